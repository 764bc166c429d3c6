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
//! activation. A consistent type is activated only when its groups are founded.
//!
//! A change that cannot be written is refused and taken back. One that another node keeps holds nevertheless, for as
//! long as this process lives; the next is told it again.
//!
//! Left out: agreement. Two changes of one bucket or type at the same time on two sides of a cut are settled by their
//! stamps when it heals, and one of them is lost.

use super::keeper::{KEEPER, write_props};
use super::sync::AGAIN_AFTER;
use crate::hop::{Hop, ShardId};
use crate::peer::{AskId, NodeId, PeerMessage};
use crate::shard::awaiting::Waiter;
use crate::shard::env::Env;
use crate::shard::output::Output;
use crate::shard::reply_to::ReplyTo;
use base::Monotonic;
use bytes::Bytes;
use kv::props::{N_VAL_MAX, StampedProps, StampedType};
use kv::{Bucket, Error, Prop, PropsChange, Response, TypeChange, TypeStatus};
use std::collections::{BTreeMap, BTreeSet};

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
pub(crate) struct PropsSpread {
    changes: BTreeMap<u64, Spread>,
}

impl PropsSpread {
    /// Whether all of them may be acknowledged here.
    pub(crate) fn are_written(&self) -> bool {
        self.changes.values().all(|spread| spread.written)
    }

    /// The deadlines of all of them.
    pub(crate) fn deadlines(&self) -> impl Iterator<Item = Monotonic> {
        self.changes.values().map(|spread| spread.deadline)
    }

    /// Changes a bucket's properties, or with `None` gives it its type's again.
    pub(crate) fn set_props(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        bucket: Bucket,
        changes: Option<Vec<Prop>>,
        all_agree: bool,
        deadline: Monotonic,
    ) -> Option<PropsChange> {
        let done = if changes.is_some() { Response::PropsSet } else { Response::PropsReset };
        match plan_props(env, bucket, changes, all_agree) {
            Ok(Some(change)) => return self.spread(env, reply_to, change, done, deadline),
            Ok(None) => env.reply(reply_to, Ok(done)),
            Err(error) => env.reply(reply_to, Err(error)),
        }
        None
    }

    /// Creates, changes or activates a bucket type.
    pub(crate) fn change_type(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        name: Bytes,
        change: TypeChange,
        deadline: Monotonic,
    ) -> Option<PropsChange> {
        let now = env.version_clock.next(env.clock.wall(), env.props.type_stamp(&name));
        let checked = env.knobs.limits.check_type(&name);
        let changed = checked.and_then(|()| env.props.changed_type(&name, &change, now, env.peers.all_up()));
        match changed.and_then(|changed| check_founded(env, &name, changed)) {
            Ok(changed) => {
                self.spread(env, reply_to, PropsChange::Type(name, changed), Response::PropsSet, deadline)
            }
            Err(error) => {
                env.reply(reply_to, Err(error));
                None
            }
        }
    }

    fn spread(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        change: PropsChange,
        done: Response,
        deadline: Monotonic,
    ) -> Option<PropsChange> {
        let before = env.props.in_force(&change);
        let written = match write_props(env, &change) {
            Err(error) if !matches!(reply_to, ReplyTo::Replica(..)) => {
                answer_spread(env, reply_to, Err(error));
                return None;
            }
            written => written,
        };
        // In force here at once: the next change builds on this one even while it is not yet acknowledged.
        env.props.apply(change.clone());
        let id = env.next_id();
        let nodes = match reply_to {
            // Whoever sent it tells the others itself.
            ReplyTo::Replica(..) => BTreeSet::new(),
            _ => env.peers.up().collect(),
        };
        let shards = env.knobs.layout.shards - 1;
        let told = env.now();
        let spread = Spread { reply_to, done, deadline, change, before, shards, nodes, told, written: false };
        env.deadlines.note(deadline);
        self.changes.insert(id, spread);
        env.gauges.metadata = self.changes.len();
        match written {
            Ok(seq) if seq > env.store.acknowledged() => {
                env.awaiting.insert(seq, Waiter::Props(id));
                None
            }
            Ok(_) => self.on_written(env, id, Ok(())),
            Err(error) => self.on_written(env, id, Err(error)),
        }
    }

    /// A change may be acknowledged, or could not be written. One that holds though it is not on the disk is returned.
    pub fn on_written(&mut self, env: &mut Env, id: u64, result: Result<(), Error>) -> Option<PropsChange> {
        let spread = self.changes.get_mut(&id)?;
        let is_kept = result.is_ok();
        if let Err(error) = result
            && !matches!(spread.reply_to, ReplyTo::Replica(..))
        {
            self.take_back(env, id, error);
            return None;
        }
        spread.written = true;
        let change = spread.change.clone();
        for shard in (0..env.knobs.layout.shards).map(ShardId).filter(|&shard| shard != KEEPER) {
            let message = Hop::Props { from: KEEPER, change: id, props: change.clone() };
            env.out.push(Output::Hop { to: shard, message });
        }
        self.tell_change(env, id);
        (!is_kept).then_some(change)
    }

    /// Tells a change to those who have not confirmed it.
    fn tell_change(&mut self, env: &mut Env, id: u64) {
        let (ask, now) = (env.ask_id(id), env.now());
        let Some(spread) = self.changes.get_mut(&id) else { return };
        spread.told = now;
        // Where a later change is in force by now, it is told instead: an earlier one is not to be on its way any more.
        // A change that was replaced and then forgotten is known to all.
        match env.props.in_force(&spread.change) {
            None => spread.nodes.clear(),
            Some(change) => {
                for node in spread.nodes.clone() {
                    env.send(node, PeerMessage::Props { id: ask, change: change.clone() });
                }
            }
        }
        self.end_spread_if_done(env, id);
    }

    /// Tells once more what was not confirmed.
    pub fn tick(&mut self, env: &mut Env, now: Monotonic) {
        let is_due = |spread: &Spread| {
            spread.written && !spread.nodes.is_empty() && now.since(spread.told) >= AGAIN_AFTER
        };
        let due = self.changes.iter().filter(|(_, spread)| is_due(spread));
        let due: Vec<u64> = due.map(|(&id, _)| id).collect();
        due.into_iter().for_each(|id| self.tell_change(env, id));
    }

    pub(crate) fn on_in_force(&mut self, env: &mut Env, id: u64) {
        if let Some(spread) = self.changes.get_mut(&id) {
            spread.shards -= 1;
            self.end_spread_if_done(env, id);
        }
    }

    /// Takes a change from another node.
    pub fn on_peer_props(
        &mut self,
        env: &mut Env,
        from: NodeId,
        id: AskId,
        change: PropsChange,
    ) -> Option<PropsChange> {
        // Whoever tells it may have heard it from another.
        env.version_clock.see(change.stamp(), env.clock.wall(), None);
        let is_sound = is_sound(env, &change);
        let is_under_way = self.changes.values().any(|spread| spread.change == change);
        if is_under_way {
            // It is not in force everywhere yet: whoever tells it once more hears when it is.
            return None;
        }
        if !is_sound || env.knobs.id != KEEPER || !env.props.is_news(&change) {
            env.send(from, PeerMessage::PropsInForce { id });
            return None;
        }
        let deadline = env.now() + crate::shard::knobs::TIMEOUT_DEFAULT;
        self.spread(env, ReplyTo::Replica(from, id), change, Response::PropsSet, deadline)
    }

    /// A node has a change in force. False if no such change is spread.
    pub fn on_peer_in_force(&mut self, env: &mut Env, from: NodeId, id: u64) -> bool {
        let Some(spread) = self.changes.get_mut(&id) else { return false };
        spread.nodes.remove(&from);
        self.end_spread_if_done(env, id);
        true
    }

    /// Waits no longer for a node that is down: it is told when it comes up.
    pub fn fail(&mut self, env: &mut Env, node: NodeId) {
        let ids: Vec<u64> = self.changes.keys().copied().collect();
        for id in ids {
            self.on_peer_in_force(env, node, id);
        }
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        assert_eq!(env.gauges.metadata, self.changes.len(), "all changes are counted");
        assert!(self.changes.is_empty() || env.knobs.id == KEEPER, "one shard spreads changes");
        for spread in self.changes.values() {
            assert!(spread.shards < env.knobs.layout.shards, "this shard has it in force already");
            let is_at_start = spread.shards + 1 == env.knobs.layout.shards;
            assert!(spread.written || is_at_start, "other shards are told when it is written");
            assert!(spread.written || !env.awaiting.is_empty(), "its write is waited for");
            assert!(!spread.nodes.contains(&env.peers.here()), "other nodes are told");
        }
    }

    /// Takes back a change that could not be written, and refuses it.
    fn take_back(&mut self, env: &mut Env, id: u64, error: Error) {
        let Spread { reply_to, change, before, .. } = self.changes.remove(&id).expect("a change ends once");
        env.gauges.metadata = self.changes.len();
        env.props.take_back(&change, before.clone());
        // A change that was built on it is not to bring it back.
        for later in self.changes.values_mut() {
            if later.before.as_ref() == Some(&change) {
                later.before.clone_from(&before);
            }
        }
        answer_spread(env, reply_to, Err(error));
    }

    fn end_spread_if_done(&mut self, env: &mut Env, id: u64) {
        let done = |spread: &Spread| spread.written && spread.shards == 0 && spread.nodes.is_empty();
        if self.changes.get(&id).is_some_and(done) {
            self.end_spread(env, id, Ok(()));
        }
    }

    fn end_spread(&mut self, env: &mut Env, id: u64, result: Result<(), Error>) {
        let Spread { reply_to, done, .. } = self.changes.remove(&id).expect("a change ends once");
        env.gauges.metadata = self.changes.len();
        answer_spread(env, reply_to, result.map(|()| done));
    }

    pub fn expire(&mut self, env: &mut Env, now: Monotonic) {
        let due = self.changes.iter().filter(|(_, spread)| spread.deadline <= now);
        let expired: Vec<u64> = due.map(|(&id, _)| id).collect();
        for id in expired {
            self.end_spread(env, id, Err(Error::Timeout));
        }
    }
}

/// Refuses to activate a consistent type before its groups are founded: the shell has them founded first.
fn check_founded(env: &Env, name: &Bytes, changed: StampedType) -> Result<StampedType, Error> {
    let n_val = u8::try_from(changed.props.n_val).unwrap_or(u8::MAX);
    let is_founded = env.agreement.foundings.contains_key(&n_val);
    let needs_groups = changed.active && changed.props.consistent && env.props.of_type(name).is_err();
    if needs_groups && !is_founded {
        return Err(Error::TypeStatus(TypeStatus::Created));
    }
    Ok(changed)
}

/// The change that a client wants; `None` if nothing has to change.
fn plan_props(
    env: &mut Env,
    bucket: Bucket,
    changes: Option<Vec<Prop>>,
    all_agree: bool,
) -> Result<Option<PropsChange>, Error> {
    env.knobs.limits.check_bucket(&bucket)?;
    env.props.get(&bucket)?;
    let props = changes.map(|changes| env.props.changed(&bucket, &changes)).transpose()?.flatten();
    let stamp = env.version_clock.next(env.clock.wall(), env.props.stamp(&bucket));
    let change = PropsChange::Bucket(bucket.clone(), StampedProps { stamp, props });
    if change.is_reset() {
        if env.props.in_force(&change).is_none() && all_agree {
            return Ok(None);
        }
        env.props.check_reset(&bucket)?;
    }
    Ok(Some(change))
}

// A bucket's change may come before its type's.
fn is_sound(env: &Env, change: &PropsChange) -> bool {
    let limits = &env.knobs.limits;
    let (named, n_val) = match change {
        PropsChange::Bucket(bucket, change) => {
            (limits.check_bucket(bucket), change.props.as_ref().map_or(1, |props| props.n_val))
        }
        PropsChange::Type(name, change) => (limits.check_type(name), change.props.n_val),
    };
    named.is_ok() && (1..=N_VAL_MAX).contains(&n_val)
}

fn answer_spread(env: &mut Env, reply_to: ReplyTo, result: Result<Response, Error>) {
    match reply_to {
        // A node that cannot keep it is told again when it comes up.
        ReplyTo::Replica(to, id) => env.send(to, PeerMessage::PropsInForce { id }),
        _ => env.reply(reply_to, result),
    }
}
