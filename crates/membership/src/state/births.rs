//! Births of a node's stores, and the registration of them by a process of the node.
//!
//! Invariant: a registration names the process that made it.
//!
//! Left out: the registrations that a state has (`registrations.rs`).

use std::sync::Arc;

use ring::{Birth, RingSize};

use super::bounds::STORES_MAX;

/// The stores of a node, one for each shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreBirths {
    /// Bits of a prefix by which the node finds the shard: those of the ring when its data folder was made.
    pub ring_bits: u8,
    /// The birth of each shard's store.
    pub births: Arc<[Birth]>,
}

/// The stores that a process has registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// How often its data folder was started.
    pub starts: u32,
    /// The process: drawn at random at each start.
    pub start: u64,
    /// Its stores.
    pub stores: StoreBirths,
}

impl StoreBirths {
    /// The store that holds the keys of `prefix`, of as many as there are prefixes in the cluster.
    pub fn of_prefix(&self, prefix: u16, prefixes: RingSize) -> Birth {
        self.births[usize::from(self.shard_of_prefix(prefix, prefixes))]
    }

    /// The shard of that store.
    pub fn shard_of_prefix(&self, prefix: u16, prefixes: RingSize) -> u16 {
        let finer = prefixes.bits() - u32::from(self.ring_bits);
        let shards = u16::try_from(self.births.len()).expect("State::flaw holds stores to their bound");
        ring::shard_of(prefix >> finer, shards)
    }

    /// Whether a node can have such stores.
    pub(super) fn are_possible(&self, prefixes: RingSize) -> bool {
        (1..=STORES_MAX).contains(&self.births.len()) && u32::from(self.ring_bits) <= prefixes.bits()
    }
}
