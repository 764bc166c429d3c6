//! The hot paths that are counted. Each case prepares what it needs from fixed seeds and gives the operation.

mod cluster;
mod consistent;
mod engine;
mod object;
mod protocol;
mod ring;
mod shard;

use crate::Result;
use base::Rng;
use base::rng::SplitMix64;
use bytes::Bytes;

/// Operations that count, of each case: enough that a flush or a longer skiplist tower is an average, few enough
/// for a second under callgrind.
pub const OPERATIONS: u64 = 2_000;

/// Operations before those: they fault memory in and choose the C library's copies.
pub const WARM: u64 = 200;

/// Keys that stand in a store before a case begins.
const KEYS: u64 = 4_000;

/// The length of a value: above what the ledger keeps beside a head, so that reads go to the journal.
const VALUE_BYTES: usize = 1_024;

/// Does the operation of this number.
pub type Operation = Box<dyn FnMut(u64)>;

/// A hot path.
pub struct Case {
    /// Its name in the baseline.
    pub name: &'static str,
    /// Makes what it needs.
    pub prepare: fn() -> Result<Operation>,
}

/// All of them.
pub const ALL: &[Case] = &[
    Case { name: "engine.put", prepare: engine::put },
    Case { name: "engine.overwrite", prepare: engine::overwrite },
    Case { name: "engine.get_memtable", prepare: engine::get_memtable },
    Case { name: "engine.get_table", prepare: engine::get_table },
    Case { name: "engine.head_memtable", prepare: engine::head_memtable },
    Case { name: "engine.head_table", prepare: engine::head_table },
    Case { name: "engine.miss_memtable", prepare: engine::miss_memtable },
    Case { name: "engine.miss_table", prepare: engine::miss_table },
    Case { name: "engine.fold_100", prepare: engine::fold },
    Case { name: "engine.query_1000", prepare: engine::query },
    Case { name: "table.filter", prepare: engine::filter },
    Case { name: "table.block_find", prepare: engine::block_find },
    Case { name: "journal.encode_record", prepare: engine::encode_record_case },
    Case { name: "journal.parse_record", prepare: engine::parse_record },
    Case { name: "object.update", prepare: object::update },
    Case { name: "object.merge", prepare: object::merge },
    Case { name: "object.view", prepare: object::view },
    Case { name: "pb.decode_get", prepare: protocol::decode_get },
    Case { name: "pb.decode_put", prepare: protocol::decode_put },
    Case { name: "pb.encode_get", prepare: protocol::encode_get },
    Case { name: "shard.placement", prepare: ring::all_up },
    Case { name: "shard.placement_down", prepare: ring::a_tenth_down },
    Case { name: "shard.get", prepare: shard::get },
    Case { name: "shard.get_notfound", prepare: shard::get_notfound },
    Case { name: "shard.put", prepare: shard::put },
    Case { name: "shard.put_moving", prepare: cluster::put_moving },
    Case { name: "shard.quorum_get", prepare: cluster::quorum_get },
    Case { name: "shard.quorum_put", prepare: cluster::quorum_put },
    Case { name: "shard.replica_read", prepare: cluster::replica_read },
    Case { name: "shard.tick_idle", prepare: cluster::tick_idle },
    Case { name: "shard.consistent_get", prepare: consistent::get },
    Case { name: "shard.consistent_put", prepare: consistent::put },
];

/// A key of the usual length; every case visits them in the same scattered order.
fn key(number: u64) -> Vec<u8> {
    format!("user{:012}", base::rng::mix64(number) % 1_000_000_000_000).into_bytes()
}

fn keys(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(key).collect()
}

/// The keys of those that stand in the store, in the order in which they are asked for.
fn asked(count: u64) -> impl Fn(u64) -> usize {
    move |number| usize::try_from(number * 1_237 % count).expect("it is below the count")
}

fn value() -> Bytes {
    let mut rng = SplitMix64::new(7);
    (0..VALUE_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}
