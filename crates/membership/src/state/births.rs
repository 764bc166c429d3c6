//! Births of a node's stores, and of the stores that each member has registered.
//!
//! A first consistent bucket type needs to know the stores of all members: [`Command::PrepareStores`] asks for them,
//! and each process then registers its own ([`Command::RegisterStores`]). Without a consistent type there is nothing of
//! this, and the state has the bytes of a program before.
//!
//! Invariant: a registration names the process that made it. One of an earlier process counts for nothing.
//!
//! [`Command::PrepareStores`]: super::Command::PrepareStores
//! [`Command::RegisterStores`]: super::Command::RegisterStores

use std::sync::Arc;

use ring::{Birth, NodeId, RingSize};

use super::State;
use super::bounds::STORES_MAX;
use super::command::Rejected;
use super::record::Record;

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

impl State {
    /// Whether members register their stores, since a first consistent bucket type is wanted.
    pub fn registers_stores(&self) -> bool {
        self.consistent.is_some()
    }

    /// The stores that a member's process has registered; none before it has, also if an earlier process of the member
    /// had.
    pub fn registration(&self, node: NodeId) -> Option<&Registration> {
        let registration = self.consistent.as_ref()?.registrations.get(&node)?;
        let is_of =
            |record: &&Record| (record.starts, record.start) == (registration.starts, registration.start);
        self.members.get(&node).filter(is_of).map(|_| registration)
    }

    /// The stores that a member has registered last, by whichever process.
    pub fn last_registration(&self, node: NodeId) -> Option<&Registration> {
        self.consistent.as_ref()?.registrations.get(&node)
    }

    /// Idempotent: it cannot be taken back.
    pub(super) fn prepare_stores(&mut self) {
        self.consistent.get_or_insert_default();
    }

    pub(super) fn register_stores(
        &mut self,
        node: NodeId,
        (starts, start): (u32, u64),
        stores: &StoreBirths,
    ) -> Result<(), Rejected> {
        let prefixes = self.prefixes;
        let record = self.record(node)?;
        if (record.starts, record.start) != (starts, start) {
            return Err(Rejected::Life);
        }
        let consistent = self.consistent.as_mut().ok_or(Rejected::Unprepared)?;
        if !stores.are_possible(prefixes) {
            return Err(Rejected::Stores);
        }
        consistent.registrations.insert(node, Registration { starts, start, stores: stores.clone() });
        Ok(())
    }
}
