//! Bucket properties and bucket types: shard 0 keeps them in its store, every shard of every node has all of them in
//! memory.
//!
//! 1. Shard 0 of the node that was asked decides what the properties will be, stamps the change and writes it.
//! 2. When that may be acknowledged it tells the other shards, and shard 0 of every node that can be reached, which
//!    does the same.
//! 3. When they all have it in force, the client is answered: its next request, whichever shard of whichever node
//!    it reaches, sees the change.
//! 4. Pings have a sum over the known properties. A node that lacks some asks one that has them (`sync.rs`), and takes
//!    the later ones.
//!
//! A change is told again until it is confirmed: messages are lost where a link is not.
//!
//! A reset is a change too. It is remembered until every member has it (`resets.rs`). One of a bucket that has no
//! properties anywhere changes nothing, and so do properties of an untyped bucket that equal the defaults.
//!
//! A bucket type is activated only while every node can be reached: each has kept it by then, or is told it with its
//! activation.
//!
//! A change that cannot be written is refused and taken back. One that another node keeps holds nevertheless, for as
//! long as this process lives; the next is told it again.
//!
//! Left out: agreement. Two changes of one bucket or type at the same time on two sides of a cut are settled by their
//! stamps when it heals, and one of them is lost.

use crate::hop::{Hop, ShardId};
use crate::metadata::sync::{AGAIN_AFTER, Asking, Telling};
use crate::peer::{AskId, NodeId, PeerMessage};
use crate::shard::Shard;
use crate::shard::awaiting::Waiter;
use crate::shard::output::Output;
use crate::shard::reply_to::ReplyTo;
use crate::shard::store_error::store_error;
use crate::store::Adapter;
use base::{Disk, Monotonic};
use bytes::Bytes;
use engine::fold::read_all;
use engine::{Seq, Write};
use kv::props::{N_VAL_MAX, StampedProps, StampedType};
use kv::{Bucket, BucketTable, Error, Prop, PropsChange, Request, Response, TypeChange};
use object::key;
use std::collections::{BTreeMap, BTreeSet};

/// The shard that keeps the properties.
pub(crate) const KEEPER: ShardId = ShardId(0);

/// A change that is being spread.
struct Spread {
    reply_to: ReplyTo,
    /// The answer when all is done.
    done: Response,
    deadline: Monotonic,
    change: PropsChange,
    /// What was in force before it.
    before: Option<PropsChange>,
    /// Shards that have not said that it is in force.
    shards: u16,
    /// Nodes that have not.
    nodes: BTreeSet<NodeId>,
    /// When these were told last.
    told: Monotonic,
    /// Whether it may be acknowledged here.
    written: bool,
}

/// Changes under way.
#[derive(Default)]
pub(crate) struct PropsChanges {
    changes: BTreeMap<u64, Spread>,
    /// The nodes that have not confirmed all that they are told.
    pub tellings: BTreeMap<NodeId, Telling>,
    /// Whom this node has asked.
    pub asking: Asking,
}

impl PropsChanges {
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether all of them may be acknowledged here.
    pub(crate) fn are_written(&self) -> bool {
        self.changes.values().all(|spread| spread.written)
    }

    /// The deadlines of all of them.
    pub(crate) fn deadlines(&self) -> impl Iterator<Item = Monotonic> {
        self.changes.values().map(|spread| spread.deadline)
    }
}

impl Shard {
    /// The properties that shard 0's store keeps. Blocks; `disk` completes its operations at once.
    pub fn read_props(store: &mut engine::Store, disk: &mut dyn Disk) -> Result<BucketTable, engine::Error> {
        let snapshot = store.readable_snapshot();
        props_of(|range| read_all(disk, &snapshot, &range.start, &range.end))
    }

    /// The same of another backend's.
    pub fn read_props_of(adapter: &mut Adapter) -> Result<BucketTable, engine::Error> {
        props_of(|range| adapter.read_all(&range))
    }

    /// Changes a bucket's properties, or with `None` gives it its type's again.
    pub(crate) fn set_props(
        &mut self,
        reply_to: ReplyTo,
        bucket: Bucket,
        changes: Option<Vec<Prop>>,
        deadline: Monotonic,
    ) {
        if self.env.knobs.id != KEEPER {
            let request = match changes {
                Some(changes) => Request::SetProps(bucket, changes),
                None => Request::ResetProps(bucket),
            };
            return self.env.forward_to_shard(KEEPER, reply_to, request, deadline);
        }
        let done = if changes.is_some() { Response::PropsSet } else { Response::PropsReset };
        match self.plan_props(bucket, changes) {
            Ok(Some(change)) => self.spread(reply_to, change, done, deadline),
            Ok(None) => self.env.reply(reply_to, Ok(done)),
            Err(error) => self.env.reply(reply_to, Err(error)),
        }
    }

    /// The change that a client wants; `None` if nothing has to change.
    fn plan_props(
        &mut self,
        bucket: Bucket,
        changes: Option<Vec<Prop>>,
    ) -> Result<Option<PropsChange>, Error> {
        self.env.knobs.limits.check_bucket(&bucket)?;
        self.env.props.get(&bucket)?;
        let props = changes.map(|changes| self.env.props.changed(&bucket, &changes)).transpose()?.flatten();
        let stamp = self.env.version_clock.next(self.env.clock.wall(), self.env.props.stamp(&bucket));
        let change = PropsChange::Bucket(bucket.clone(), StampedProps { stamp, props });
        if change.is_reset() {
            if self.env.props.in_force(&change).is_none() && self.all_know_the_same() {
                return Ok(None);
            }
            self.env.props.check_reset(&bucket)?;
        }
        Ok(Some(change))
    }

    /// Creates, changes or activates a bucket type.
    pub(crate) fn change_type(
        &mut self,
        reply_to: ReplyTo,
        name: Bytes,
        change: TypeChange,
        deadline: Monotonic,
    ) {
        if self.env.knobs.id != KEEPER {
            return self.env.forward_to_shard(KEEPER, reply_to, Request::ChangeType(name, change), deadline);
        }
        let now = self.env.version_clock.next(self.env.clock.wall(), self.env.props.type_stamp(&name));
        let checked = self.env.knobs.limits.check_type(&name);
        match checked.and_then(|()| self.env.props.changed_type(&name, &change, now, self.env.peers.all_up()))
        {
            Ok(changed) => {
                self.spread(reply_to, PropsChange::Type(name, changed), Response::PropsSet, deadline);
            }
            Err(error) => self.env.reply(reply_to, Err(error)),
        }
    }

    fn spread(&mut self, reply_to: ReplyTo, change: PropsChange, done: Response, deadline: Monotonic) {
        let before = self.env.props.in_force(&change);
        let written = match self.write_props(&change) {
            Err(error) if !matches!(reply_to, ReplyTo::Replica(..)) => {
                return self.answer_spread(reply_to, Err(error));
            }
            written => written,
        };
        // In force here at once: the next change builds on this one even while it is not yet acknowledged.
        self.env.props.apply(change.clone());
        let id = self.env.next_id();
        let nodes = match reply_to {
            // Whoever sent it tells the others itself.
            ReplyTo::Replica(..) => BTreeSet::new(),
            _ => self.env.peers.up().collect(),
        };
        let shards = self.env.knobs.layout.shards - 1;
        let told = self.env.now();
        let spread = Spread { reply_to, done, deadline, change, before, shards, nodes, told, written: false };
        self.env.deadlines.note(deadline);
        self.changes.changes.insert(id, spread);
        self.env.gauges.metadata = self.changes.len();
        match written {
            Ok(seq) => {
                self.env.awaiting.insert(seq, Waiter::Props(id));
                self.take_acknowledged();
            }
            Err(error) => self.on_props_written(id, Err(error)),
        }
    }

    pub(crate) fn write_props(&mut self, change: &PropsChange) -> Result<Seq, Error> {
        let (key, head) = (change.ledger_key(), change.encode());
        let write = Write::Put { key: &key, head: &head, value: &[] };
        self.env.store.write(&[write]).map_err(store_error)
    }

    pub(crate) fn on_props_written(&mut self, id: u64, result: Result<(), Error>) {
        let Some(spread) = self.changes.changes.get_mut(&id) else { return };
        let is_kept = result.is_ok();
        if let Err(error) = result
            && !matches!(spread.reply_to, ReplyTo::Replica(..))
        {
            return self.take_back(id, error);
        }
        spread.written = true;
        let change = spread.change.clone();
        if !is_kept {
            self.resets.keep_later(change.clone());
        }
        for shard in (0..self.env.knobs.layout.shards).map(ShardId).filter(|&shard| shard != KEEPER) {
            let message = Hop::Props { from: KEEPER, change: id, props: change.clone() };
            self.env.out.push(Output::Hop { to: shard, message });
        }
        self.tell_change(id);
        self.end_spread_if_done(id);
    }

    /// Tells a change to those who have not confirmed it.
    fn tell_change(&mut self, id: u64) {
        let (ask, now) = (self.env.ask_id(id), self.env.now());
        let Some(spread) = self.changes.changes.get_mut(&id) else { return };
        spread.told = now;
        // Where a later change is in force by now, it is told instead: an earlier one is not to be on its way any more.
        // A change that was replaced and then forgotten is known to all.
        let Some(change) = self.env.props.in_force(&spread.change) else { return spread.nodes.clear() };
        for node in spread.nodes.clone() {
            self.env.send(node, PeerMessage::Props { id: ask, change: change.clone() });
        }
    }

    /// Tells once more what was not confirmed.
    pub(crate) fn tick_props(&mut self, now: Monotonic) {
        let is_due = |spread: &Spread| {
            spread.written && !spread.nodes.is_empty() && now.since(spread.told) >= AGAIN_AFTER
        };
        let due = self.changes.changes.iter().filter(|(_, spread)| is_due(spread));
        let due: Vec<u64> = due.map(|(&id, _)| id).collect();
        due.into_iter().for_each(|id| self.tell_change(id));
        self.tell_again(now);
    }

    pub(crate) fn on_props(&mut self, from: ShardId, change: u64, props: PropsChange) {
        self.env.version_clock.see(props.stamp(), self.env.clock.wall(), None);
        self.env.props.apply(props);
        self.env.out.push(Output::Hop { to: from, message: Hop::PropsInForce { change } });
    }

    pub(crate) fn on_in_force(&mut self, id: u64) {
        if let Some(spread) = self.changes.changes.get_mut(&id) {
            spread.shards -= 1;
            self.end_spread_if_done(id);
        }
    }

    /// Takes a change from another node.
    pub(crate) fn on_peer_props(&mut self, from: NodeId, id: AskId, change: PropsChange) {
        self.note_told(from, self.env.props.is_news(&change));
        // Whoever tells it may have heard it from another.
        self.env.version_clock.see(change.stamp(), self.env.clock.wall(), None);
        let is_sound = self.is_sound(&change);
        let is_under_way = self.changes.changes.values().any(|spread| spread.change == change);
        if is_under_way {
            // It is not in force everywhere yet: whoever tells it once more hears when it is.
            return;
        }
        if !is_sound || self.env.knobs.id != KEEPER || !self.env.props.is_news(&change) {
            return self.env.send(from, PeerMessage::PropsInForce { id });
        }
        let deadline = self.env.now() + crate::shard::knobs::TIMEOUT_DEFAULT;
        self.spread(ReplyTo::Replica(from, id), change, Response::PropsSet, deadline);
    }

    // A bucket's change may come before its type's.
    fn is_sound(&self, change: &PropsChange) -> bool {
        let limits = &self.env.knobs.limits;
        let (named, n_val) = match change {
            PropsChange::Bucket(bucket, change) => {
                (limits.check_bucket(bucket), change.props.as_ref().map_or(1, |props| props.n_val))
            }
            PropsChange::Type(name, change) => (limits.check_type(name), change.props.n_val),
        };
        named.is_ok() && (1..=N_VAL_MAX).contains(&n_val)
    }

    pub(crate) fn on_peer_in_force(&mut self, from: NodeId, id: u64) {
        if let Some(spread) = self.changes.changes.get_mut(&id) {
            spread.nodes.remove(&from);
            self.end_spread_if_done(id);
        } else {
            self.on_told(from, id);
        }
    }

    /// Waits no longer for a node that is down: it is told when it comes up.
    pub(crate) fn fail_props(&mut self, node: NodeId) {
        self.fail_asking(node);
        self.resets.revoke(node);
        let ids: Vec<u64> = self.changes.changes.keys().copied().collect();
        ids.into_iter().for_each(|id| self.on_peer_in_force(node, id));
    }

    /// Takes back a change that could not be written, and refuses it.
    fn take_back(&mut self, id: u64, error: Error) {
        let Spread { reply_to, change, before, .. } =
            self.changes.changes.remove(&id).expect("a change ends once");
        self.env.gauges.metadata = self.changes.len();
        self.env.props.take_back(&change, before.clone());
        // A change that was built on it is not to bring it back.
        for later in self.changes.changes.values_mut() {
            if later.before.as_ref() == Some(&change) {
                later.before.clone_from(&before);
            }
        }
        self.answer_spread(reply_to, Err(error));
    }

    fn end_spread_if_done(&mut self, id: u64) {
        let done = |spread: &Spread| spread.written && spread.shards == 0 && spread.nodes.is_empty();
        if self.changes.changes.get(&id).is_some_and(done) {
            self.end_spread(id, Ok(()));
        }
    }

    fn end_spread(&mut self, id: u64, result: Result<(), Error>) {
        let Spread { reply_to, done, .. } = self.changes.changes.remove(&id).expect("a change ends once");
        self.env.gauges.metadata = self.changes.len();
        self.answer_spread(reply_to, result.map(|()| done));
    }

    fn answer_spread(&mut self, reply_to: ReplyTo, result: Result<Response, Error>) {
        match reply_to {
            // A node that cannot keep it is told again when it comes up.
            ReplyTo::Replica(to, id) => self.env.send(to, PeerMessage::PropsInForce { id }),
            _ => self.env.reply(reply_to, result),
        }
    }

    pub(crate) fn expire_changes(&mut self, now: Monotonic) {
        let due = self.changes.changes.iter().filter(|(_, spread)| spread.deadline <= now);
        let expired: Vec<u64> = due.map(|(&id, _)| id).collect();
        for id in expired {
            self.end_spread(id, Err(Error::Timeout));
        }
    }
}

/// All properties, of a store whose ranges `read_all` reads.
fn props_of(
    mut read_all: impl FnMut(key::KeyRange) -> Result<Vec<(Bytes, Bytes)>, engine::Error>,
) -> Result<BucketTable, engine::Error> {
    let mut table = BucketTable::default();
    for (key, head) in read_all(key::bucket_types())? {
        table.apply(read_type(&key, &head).ok_or(engine::Error::Malformed("bucket type"))?);
    }
    for (key, head) in read_all(key::bucket_properties())? {
        table.apply(read_bucket(&key, &head).ok_or(engine::Error::Malformed("bucket properties"))?);
    }
    Ok(table)
}

fn read_type(key: &[u8], head: &[u8]) -> Option<PropsChange> {
    let name = key::decode_bucket_type(key).ok()?.into_owned();
    Some(PropsChange::Type(name.into(), StampedType::decode(head).ok()?))
}

fn read_bucket(key: &[u8], head: &[u8]) -> Option<PropsChange> {
    let (bucket_type, name) = key::decode_bucket_key(key).ok()?;
    let bucket = Bucket { bucket_type: bucket_type.into_owned().into(), name: name.into_owned().into() };
    Some(PropsChange::Bucket(bucket, StampedProps::decode(head).ok()?))
}
