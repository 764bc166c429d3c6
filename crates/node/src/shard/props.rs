//! Bucket properties: shard 0 keeps them in its store, every shard of every node has all of them in memory.
//!
//! 1. Shard 0 of the node that was asked decides what the properties will be, stamps the change and writes it.
//! 2. When that may be acknowledged it tells the other shards, and shard 0 of every node that can be reached, which
//!    does the same.
//! 3. When they all have it in force, the client is answered: its next request, whichever shard of whichever node
//!    it reaches, sees the change.
//! 4. A node that comes up is told every change; it takes those that are later than what it has.
//!
//! Left out: agreement. Two changes of one bucket at the same time on two sides of a cut are settled by their
//! stamps when it heals, and one of them is lost.

use super::{Origin, Output, Shard, Waiter, store_error};
use crate::hop::{Hop, ShardId};
use crate::peer::{AskId, NodeId, PeerMessage};
use base::{Disk, Monotonic};
use engine::fold::read_all;
use engine::{Seq, Store, Write};
use kv::props::{N_VAL_MAX, StampedProps};
use kv::{Bucket, BucketProps, BucketTable, Error, Prop, Request, Response};
use object::key;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The shard that keeps the properties.
const KEEPER: ShardId = ShardId(0);

struct Change {
    origin: Origin,
    deadline: Monotonic,
    bucket: Bucket,
    change: StampedProps,
    /// Shards that have not said that it is in force.
    shards: u16,
    /// Nodes that have not.
    nodes: BTreeSet<NodeId>,
    /// Whether it may be acknowledged here.
    written: bool,
}

/// Changes under way.
#[derive(Default)]
pub(super) struct PropsChanges {
    changes: BTreeMap<u64, Change>,
}

impl PropsChanges {
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }
}

impl Shard {
    /// The properties that shard 0's store keeps. Blocks; `disk` completes its operations at once.
    pub fn read_props(store: &Store, disk: &mut dyn Disk) -> Result<BucketTable, engine::Error> {
        let range = key::bucket_properties();
        let mut table = BucketTable::default();
        for (key, head) in read_all(disk, &store.snapshot(), &range.start, &range.end)? {
            let malformed = |_| engine::Error::Malformed("bucket properties");
            let (bucket_type, name) = key::decode_bucket_key(&key).map_err(malformed)?;
            let bucket =
                Bucket { bucket_type: bucket_type.into_owned().into(), name: name.into_owned().into() };
            let change =
                StampedProps::decode(&head).map_err(|_| engine::Error::Malformed("bucket properties"))?;
            table.set(&bucket, change);
        }
        Ok(table)
    }

    /// Changes a bucket's properties, or with `None` gives it its type's again.
    pub(super) fn set_props(
        &mut self,
        origin: Origin,
        bucket: Bucket,
        changes: Option<Vec<Prop>>,
        deadline: Monotonic,
    ) {
        if self.config.id != KEEPER {
            let request = match changes {
                Some(changes) => Request::SetProps(bucket, changes),
                None => Request::ResetProps(bucket),
            };
            return self.forward(KEEPER, origin, request, deadline);
        }
        match self.plan_props(&bucket, changes) {
            Ok(change) => self.begin_change(origin, bucket, change, deadline),
            Err(error) => self.reply(origin, Err(error)),
        }
    }

    fn plan_props(&self, bucket: &Bucket, changes: Option<Vec<Prop>>) -> Result<StampedProps, Error> {
        self.config.limits.check_bucket(bucket)?;
        self.table.get(bucket)?;
        let props = changes.map(|changes| self.table.changed(bucket, &changes)).transpose()?;
        let stamp = self.config.clock.wall().0.max(self.table.stamp(bucket) + 1);
        Ok(StampedProps { stamp, props })
    }

    fn begin_change(&mut self, origin: Origin, bucket: Bucket, change: StampedProps, deadline: Monotonic) {
        let seq = match self.write_props(&bucket, &change) {
            Ok(seq) => seq,
            Err(error) => return self.end_change_of(origin, &change, Err(error)),
        };
        let id = self.next_work();
        let nodes = match origin {
            // Whoever sent it tells the others itself.
            Origin::Replica(..) => BTreeSet::new(),
            _ => self.peers.up().collect(),
        };
        let shards = self.config.layout.shards - 1;
        let change = Change { origin, deadline, bucket, change, shards, nodes, written: false };
        self.changes.changes.insert(id, change);
        self.awaiting.insert((seq, Waiter::Props(id)));
        self.take_acknowledged();
    }

    // In force here at once: the next change builds on this one even while it is not yet acknowledged.
    fn write_props(&mut self, bucket: &Bucket, change: &StampedProps) -> Result<Seq, Error> {
        let mut ledger_key = Vec::new();
        key::encode_bucket_key(&bucket.bucket_type, &bucket.name, &mut ledger_key);
        let head = change.encode();
        let write = Write::Put { key: &ledger_key, head: &head, value: &[] };
        let seq = self.store.write(&[write]).map_err(store_error)?;
        self.table.set(bucket, change.clone());
        Ok(seq)
    }

    pub(super) fn on_props_written(&mut self, id: u64, result: Result<(), Error>) {
        let ask = self.ask_id(id);
        let Some(change) = self.changes.changes.get_mut(&id) else { return };
        if let Err(error) = result {
            return self.end_change(id, Err(error));
        }
        change.written = true;
        let (bucket, stamped) = (change.bucket.clone(), change.change.clone());
        let nodes: Vec<NodeId> = change.nodes.iter().copied().collect();
        for shard in (0..self.config.layout.shards).map(ShardId).filter(|&shard| shard != KEEPER) {
            let message =
                Hop::Props { from: KEEPER, change: id, bucket: bucket.clone(), props: stamped.clone() };
            self.outputs.push(Output::Hop { to: shard, message });
        }
        for node in nodes {
            self.send(node, props_message(ask, &bucket, &stamped));
        }
        self.end_change_if_done(id);
    }

    pub(super) fn on_props(&mut self, from: ShardId, change: u64, bucket: &Bucket, props: StampedProps) {
        self.table.set(bucket, props);
        self.outputs.push(Output::Hop { to: from, message: Hop::PropsInForce { change } });
    }

    pub(super) fn on_in_force(&mut self, id: u64) {
        if let Some(change) = self.changes.changes.get_mut(&id) {
            change.shards -= 1;
            self.end_change_if_done(id);
        }
    }

    /// Takes a change from another node.
    pub(super) fn on_peer_props(
        &mut self,
        from: NodeId,
        id: AskId,
        bucket: &Bucket,
        stamp: u64,
        props: Option<Arc<BucketProps>>,
    ) {
        let known = self.table.of_type(&bucket.bucket_type).is_ok();
        let sound = props.as_ref().is_none_or(|props| (1..=N_VAL_MAX).contains(&props.n_val));
        if !known || !sound || self.config.id != KEEPER || self.table.stamp(bucket) >= stamp {
            return self.send(from, PeerMessage::PropsInForce { id });
        }
        let deadline = self.config.clock.now() + super::TIMEOUT_DEFAULT;
        let change = StampedProps { stamp, props };
        self.begin_change(Origin::Replica(from, id), bucket.clone(), change, deadline);
    }

    pub(super) fn on_peer_in_force(&mut self, from: NodeId, id: u64) {
        if let Some(change) = self.changes.changes.get_mut(&id) {
            change.nodes.remove(&from);
            self.end_change_if_done(id);
        }
    }

    /// Waits no longer for a node that is down: it is told when it comes up.
    pub(super) fn fail_props(&mut self, node: NodeId) {
        let ids: Vec<u64> = self.changes.changes.keys().copied().collect();
        ids.into_iter().for_each(|id| self.on_peer_in_force(node, id));
    }

    /// Tells a node that has come up every change.
    pub(super) fn bring_props(&mut self, node: NodeId) {
        if self.config.id != KEEPER {
            return;
        }
        let id = self.ask_id(0);
        let table = self.table.clone();
        for (bucket, change) in table.iter() {
            self.send(node, props_message(id, bucket, change));
        }
    }

    fn end_change_if_done(&mut self, id: u64) {
        let done = |change: &Change| change.written && change.shards == 0 && change.nodes.is_empty();
        if self.changes.changes.get(&id).is_some_and(done) {
            self.end_change(id, Ok(()));
        }
    }

    fn end_change(&mut self, id: u64, result: Result<(), Error>) {
        let Change { origin, change, .. } = self.changes.changes.remove(&id).expect("a change ends once");
        self.end_change_of(origin, &change, result);
    }

    fn end_change_of(&mut self, origin: Origin, change: &StampedProps, result: Result<(), Error>) {
        match origin {
            // A node that cannot keep it is told again when it comes up.
            Origin::Replica(to, id) => self.send(to, PeerMessage::PropsInForce { id }),
            _ => {
                let done = if change.props.is_some() { Response::PropsSet } else { Response::PropsReset };
                self.reply(origin, result.map(|()| done));
            }
        }
    }

    pub(super) fn expire_changes(&mut self, now: Monotonic) {
        let due = self.changes.changes.iter().filter(|(_, change)| change.deadline <= now);
        let expired: Vec<u64> = due.map(|(&id, _)| id).collect();
        for id in expired {
            self.end_change(id, Err(Error::Timeout));
        }
    }
}

fn props_message(id: AskId, bucket: &Bucket, change: &StampedProps) -> PeerMessage {
    PeerMessage::Props { id, bucket: bucket.clone(), stamp: change.stamp, props: change.props.clone() }
}
