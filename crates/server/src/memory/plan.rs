//! The memory plan: how a node divides the memory that it may use. A pure function of that amount, of the number of
//! shards, and of the memory of their stores.
//!
//! 1. Fixed parts first: the program, its stores, connections, and all that consists of many small pieces.
//! 2. The rest is for large pieces: requests, values, answers, messages of other nodes, records for the journal. A
//!    fifth of it is the largest value, up to Riak's limit; the largest object fits in each of the other four parts.
//! 3. Half of the rest goes to these parts; the other half is left to the page cache.
//!
//! Invariants: from [`MEMORY_MIN`] on, and with [`SHARD_MEMORY_MIN`] for each shard, the parts add up to the limit at
//! most; an object of the largest size passes through each part.

use kv::Limits;
use kv::limits::{OBJECT_BYTES_MAX, VALUE_BYTES_MAX};
use protocol::frame::FRAME_MAX;

const MIB: u64 = 1 << 20;

/// Below it a node starts, but nothing is promised: the program alone takes some 30 MiB.
pub const MEMORY_MIN: u64 = 256 * MIB;

/// A shard's own memtables, caches and buffers take 20 MiB at least; with less than this for each they leave no room
/// for large pieces.
pub const SHARD_MEMORY_MIN: u64 = 64 * MIB;

/// The program at rest, and a part of the limit for memory that the allocator keeps and for uncounted pieces.
const PROGRAM_BYTES: u64 = 24 * MIB;
const PROGRAM_SHARE: u64 = 32;

/// Flushes, merges, compactions, scrubs, folds, hash trees, backups, the metadata log, the index: one byte of the limit
/// in so many.
const BACKGROUND_SHARE: u64 = 16;

/// Connections' own buffers: this share of the limit, and the most that an idle connection keeps.
const CONNECTIONS_SHARE: u64 = 16;
const CONNECTION_BYTES: u64 = 8 << 10;

/// Small messages for other nodes that take nothing: one byte of the limit in so many, for all links.
const QUEUES_SHARE: u64 = 32;

/// Journals' queues of small records: one byte of the limit in so many for the queues of all shards, and as many that
/// are being written.
const JOURNAL_SHARE: u64 = 32;

/// Bounds of one shard's queue: a disk's second of small records, and half a second of a fast disk's writing.
const JOURNAL_QUEUE_BYTES: (u64, u64) = (MIB, 64 * MIB);

/// Buffers that a shard's journal keeps for its next groups.
const JOURNAL_SPARE_BYTES: u64 = 8 * MIB;

/// Bytes that a frame, a head and a key add to a value.
const BESIDE_VALUE_BYTES: u64 = 2 * MIB;

/// The most that a shard's requests need: ten of the largest.
const REQUESTS_PER_SHARD_MAX: u64 = 512 * MIB;

/// The parts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The sum that they are parts of.
    pub limit: u64,
    /// The program, and memory that the allocator keeps.
    pub program: u64,
    /// Memtables, caches and heads of all stores.
    pub stores: u64,
    /// Jobs in the background.
    pub background: u64,
    /// Buffers of idle connections.
    pub connections: u64,
    /// Small messages that wait for links to other nodes.
    pub queues: u64,
    /// Small records that wait for the journals.
    pub journals: u64,
    /// Requests of clients, from their first byte until nobody holds their values.
    pub requests: u64,
    /// Values that were read, until nobody holds them.
    pub values: u64,
    /// Answers that clients have not taken yet.
    pub answers: u64,
    /// Large messages of other nodes, from their first byte until nobody holds their values.
    pub messages: u64,
    /// Large records on their way to the journals.
    pub records: u64,
    /// The largest value of one sibling.
    pub value_max: u64,
    /// The largest object, all siblings' values together.
    pub object_max: u64,
    /// Shards, among which parts are divided.
    pub shards: u64,
}

impl MemoryPlan {
    /// A plan for `limit` bytes and these shards; their stores keep `stores` bytes in all.
    pub fn new(limit: u64, shards: u16, stores: u64) -> MemoryPlan {
        let shards = u64::from(shards.max(1));
        let mut plan = MemoryPlan {
            limit,
            program: PROGRAM_BYTES + limit / PROGRAM_SHARE,
            stores,
            background: limit / BACKGROUND_SHARE,
            connections: limit / CONNECTIONS_SHARE,
            queues: limit / QUEUES_SHARE,
            journals: shards * (2 * journal_queue(limit, shards) + JOURNAL_SPARE_BYTES),
            requests: 0,
            values: 0,
            answers: 0,
            messages: 0,
            records: 0,
            value_max: 0,
            object_max: 0,
            shards,
        };
        plan.divide(limit.saturating_sub(plan.sum()));
        plan
    }

    /// Divides the rest for large pieces.
    fn divide(&mut self, left: u64) {
        let largest =
            |part: u64, most: usize| part.saturating_sub(BESIDE_VALUE_BYTES).clamp(MIB, most as u64);
        self.value_max = largest(left / 5, VALUE_BYTES_MAX);
        self.requests = self.value_max + BESIDE_VALUE_BYTES;
        let part = left.saturating_sub(self.requests) / 4;
        self.object_max = largest(part, OBJECT_BYTES_MAX).max(self.value_max);
        let object = self.object_max + BESIDE_VALUE_BYTES;
        (self.values, self.answers, self.messages, self.records) = (object, object, object, object);
        let surplus = left.saturating_sub(self.requests + 4 * object) / 2;
        let most = REQUESTS_PER_SHARD_MAX * self.shards;
        self.requests = (self.requests + surplus / 3).min(most);
        for part in [&mut self.values, &mut self.answers, &mut self.messages, &mut self.records] {
            *part = (*part + surplus / 6).min(most);
        }
    }

    /// All parts together.
    pub fn sum(&self) -> u64 {
        let fixed =
            [self.program, self.stores, self.background, self.connections, self.queues, self.journals];
        let large = [self.requests, self.values, self.answers, self.messages, self.records];
        fixed.into_iter().chain(large).sum()
    }

    /// Limits of requests.
    pub fn limits(&self) -> Limits {
        Limits {
            value_bytes_max: bytes(self.value_max),
            object_bytes_max: bytes(self.object_max),
            ..Limits::default()
        }
    }

    /// The largest frame and the largest body of a request: a value and the bytes beside it, up to the protocol's
    /// limit.
    pub fn request_max(&self) -> usize {
        bytes(self.value_max + BESIDE_VALUE_BYTES / 2).min(FRAME_MAX)
    }

    /// Bytes of values that one shard's requests may hold.
    pub fn work_bytes_max(&self) -> usize {
        bytes(self.requests / self.shards)
    }

    /// Bytes that wait in one shard's journal.
    pub fn journal_queue(&self) -> usize {
        bytes(journal_queue(self.limit, self.shards))
    }

    /// Bytes of small messages that wait for all links of one shard.
    pub fn link_queues(&self) -> usize {
        bytes(self.queues / self.shards)
    }

    /// How many connections have buffers.
    pub fn connections_max(&self) -> usize {
        bytes(self.connections / CONNECTION_BYTES)
    }
}

/// Bytes that wait in one shard's journal.
fn journal_queue(limit: u64, shards: u64) -> u64 {
    let (least, most) = JOURNAL_QUEUE_BYTES;
    (limit / JOURNAL_SHARE / 2 / shards).clamp(least, most)
}

fn bytes(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;

    fn plan(mib: u64, shards: u16) -> MemoryPlan {
        let options = machine::resources(mib * MIB, shards).options();
        MemoryPlan::new(mib * MIB, shards, machine::stores_bytes(&options, shards))
    }

    #[test]
    fn the_parts_add_up_to_the_limit_at_most() {
        for shards in [1, 2, 3, 4, 8, 12, 32] {
            let least = (MEMORY_MIN / MIB).max(SHARD_MEMORY_MIN / MIB * u64::from(shards));
            for mib in (least..4096).chain([8 << 10, 24 << 10, 1 << 20]) {
                let plan = plan(mib, shards);
                assert!(
                    plan.sum() <= plan.limit,
                    "{mib} MiB, {shards} shards: {} MiB: {plan:#?}",
                    plan.sum() / MIB
                );
            }
        }
    }

    #[test]
    fn the_largest_object_passes_through_every_part() {
        for shards in [1, 2, 8] {
            for mib in [16, 256, 512, 1 << 10, 4 << 10, 64 << 10] {
                let plan = plan(mib, shards);
                let MemoryPlan {
                    value_max, object_max, requests, values, answers, messages, records, ..
                } = plan;
                assert!(value_max >= MIB && object_max >= value_max && requests > value_max, "{plan:?}");
                assert!(
                    [values, answers, messages, records].iter().all(|&part| part > object_max),
                    "{plan:?}"
                );
                assert!(plan.request_max() as u64 >= value_max);
            }
        }
    }

    #[test]
    fn objects_are_as_large_as_memory_allows() {
        let sizes = |mib, shards| {
            let plan = plan(mib, shards);
            (plan.value_max / MIB, plan.object_max / MIB)
        };
        assert!(sizes(256, 1).0 >= 16 && sizes(256, 2).0 >= 16, "{:?} {:?}", sizes(256, 1), sizes(256, 2));
        assert!(sizes(512, 2).0 >= 42, "{:?}", sizes(512, 2));
        assert_eq!(sizes(1 << 10, 2), (50, 100));
        assert_eq!(plan(24 << 10, 1).limits(), Limits::default());
    }

    #[test]
    fn a_large_machine_has_the_largest_parts() {
        let plan = plan(64 << 10, 2);
        assert_eq!((plan.work_bytes_max() as u64, plan.requests), (512 * MIB, 1024 * MIB));
        assert_eq!((plan.journal_queue() as u64, plan.request_max()), (64 * MIB, FRAME_MAX));
        assert!(plan.connections_max() > 100_000 && plan.link_queues() as u64 >= 1024 * MIB);
    }
}
