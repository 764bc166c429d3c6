//! Bucket properties: shard 0 keeps them in its store, every shard has all of them in memory.
//!
//! 1. Shard 0 decides what the properties will be and writes them.
//! 2. When that may be acknowledged it tells the other shards.
//! 3. When they all have them in force, the client is answered: its next request, whichever shard it reaches,
//!    sees the change.

use super::{Origin, Output, Shard, Waiter, store_error};
use crate::hop::{Hop, ShardId};
use base::{Disk, Monotonic};
use engine::fold::read_all;
use engine::{Store, Write};
use kv::{Bucket, BucketProps, BucketTable, Error, Prop, Request, Response};
use object::key;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The shard that keeps the properties.
const KEEPER: ShardId = ShardId(0);

struct Change {
    origin: Origin,
    deadline: Monotonic,
    bucket: Bucket,
    props: Option<Arc<BucketProps>>,
    /// Shards that have not said that it is in force.
    waiting: u16,
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
            let props =
                BucketProps::decode(&head).map_err(|_| engine::Error::Malformed("bucket properties"))?;
            table.set(&bucket, Arc::new(props));
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
        match self.write_props(&bucket, changes) {
            Ok((seq, props)) => {
                let id = self.next_work();
                let change =
                    Change { origin, deadline, bucket, props, waiting: self.config.layout.shards - 1 };
                self.changes.changes.insert(id, change);
                self.awaiting.insert((seq, Waiter::Props(id)));
                self.take_acknowledged();
            }
            Err(error) => self.reply(origin, Err(error)),
        }
    }

    // In force here at once: the next change builds on this one even while it is not yet acknowledged.
    fn write_props(
        &mut self,
        bucket: &Bucket,
        changes: Option<Vec<Prop>>,
    ) -> Result<(engine::Seq, Option<Arc<BucketProps>>), Error> {
        self.config.limits.check_bucket(bucket)?;
        let props = changes.map(|changes| self.table.changed(bucket, &changes)).transpose()?;
        if props.is_none() {
            self.table.get(bucket)?;
        }
        let mut ledger_key = Vec::new();
        key::encode_bucket_key(&bucket.bucket_type, &bucket.name, &mut ledger_key);
        let head = props.as_ref().map(|props| props.encode());
        let write = match &head {
            Some(head) => Write::Put { key: &ledger_key, head, value: &[] },
            None => Write::Delete { key: &ledger_key },
        };
        let seq = self.store.write(&[write]).map_err(store_error)?;
        self.put_in_force(bucket, props.clone())?;
        Ok((seq, props))
    }

    fn put_in_force(&mut self, bucket: &Bucket, props: Option<Arc<BucketProps>>) -> Result<(), Error> {
        match props {
            Some(props) => self.table.set(bucket, props),
            None => {
                self.table.reset(bucket)?;
            }
        }
        Ok(())
    }

    pub(super) fn on_props_written(&mut self, id: u64, result: Result<(), Error>) {
        let Some(change) = self.changes.changes.get(&id) else { return };
        if let Err(error) = result {
            return self.end_change(id, Err(error));
        }
        for shard in (0..self.config.layout.shards).map(ShardId).filter(|&shard| shard != KEEPER) {
            let (bucket, props) = (change.bucket.clone(), change.props.clone());
            let message = Hop::Props { from: KEEPER, change: id, bucket, props };
            self.outputs.push(Output::Hop { to: shard, message });
        }
        if change.waiting == 0 {
            self.end_change(id, Ok(()));
        }
    }

    pub(super) fn on_props(
        &mut self,
        from: ShardId,
        change: u64,
        bucket: &Bucket,
        props: Option<Arc<BucketProps>>,
    ) {
        self.put_in_force(bucket, props).expect("the keeper has checked the bucket's type");
        self.outputs.push(Output::Hop { to: from, message: Hop::PropsInForce { change } });
    }

    pub(super) fn on_in_force(&mut self, id: u64) {
        let Some(change) = self.changes.changes.get_mut(&id) else { return };
        change.waiting -= 1;
        if change.waiting == 0 {
            self.end_change(id, Ok(()));
        }
    }

    fn end_change(&mut self, id: u64, result: Result<(), Error>) {
        let change = self.changes.changes.remove(&id).expect("a change ends once");
        let done = if change.props.is_some() { Response::PropsSet } else { Response::PropsReset };
        self.reply(change.origin, result.map(|()| done));
    }

    pub(super) fn expire_changes(&mut self, now: Monotonic) {
        let due = self.changes.changes.iter().filter(|(_, change)| change.deadline <= now);
        let expired: Vec<u64> = due.map(|(&id, _)| id).collect();
        for id in expired {
            self.end_change(id, Err(Error::Timeout));
        }
    }
}
