//! The keeper of bucket properties and types: shard 0, in whose store they are.

use crate::hop::ShardId;
use crate::shard::env::Env;
use crate::shard::store_error::store_error;
use crate::store::Adapter;
use base::Disk;
use bytes::Bytes;
use engine::fold::read_all;
use engine::{Seq, Write};
use kv::props::{StampedProps, StampedType};
use kv::{Bucket, BucketTable, Error, PropsChange};
use object::key;

/// The shard that keeps the properties.
pub(crate) const KEEPER: ShardId = ShardId(0);

/// The properties that shard 0's store keeps. Blocks; `disk` completes its operations at once.
pub fn read_props(store: &mut engine::Store, disk: &mut dyn Disk) -> Result<BucketTable, engine::Error> {
    let snapshot = store.readable_snapshot();
    props_of(|range| read_all(disk, &snapshot, &range.start, &range.end))
}

/// The same of another backend's.
pub fn read_props_of(adapter: &mut Adapter) -> Result<BucketTable, engine::Error> {
    props_of(|range| adapter.read_all(&range))
}

/// Writes a change to the store.
pub(crate) fn write_props(env: &mut Env, change: &PropsChange) -> Result<Seq, Error> {
    let (key, head) = (change.ledger_key(), change.encode());
    let write = Write::Put { key: &key, head: &head, value: &[] };
    env.store.write(&[write]).map_err(store_error)
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
