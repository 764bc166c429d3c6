//! The cluster's agreement on consistent groups, as a trusted registry: the metadata log without its own faults.
//!
//! 1. A process asks for its start ([`Registry::begin`]). The last process of its member is registered no more. The
//!    registry says which births the stores keep: an older copy of a folder keeps none.
//! 2. When the stores keep their births durably, they are registered ([`Registry::register`]).
//! 3. When all members are registered for the first time, the groups are founded.
//!
//! Invariant: a member has one registered process at most. Each change has a version of its own.

use base::Rng;
use base::rng::SplitMix64;
use membership::state::{Founding, StoreBirths};
use node::{Agreement, FoundBirth, RegisteredProcess};
use ring::{Birth, NodeId, Ring, RingSize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The record of a member.
#[derive(Clone, Debug, Default)]
struct Record {
    /// The start of its last process, and that process.
    starts: u32,
    life: u64,
    /// The stores that a process of it registered last.
    stores: Option<StoreBirths>,
    /// Whether the last process registered them.
    is_registered: bool,
}

/// The registry.
pub(super) struct Registry {
    rng: SplitMix64,
    records: Vec<Record>,
    owners: Arc<[NodeId]>,
    n_val: u8,
    prefixes: RingSize,
    founding: Option<Founding>,
    version: u64,
}

impl Registry {
    pub(super) fn new(rng: SplitMix64, nodes: usize, n_val: u8, ring: &Ring) -> Registry {
        Registry {
            rng,
            records: vec![Record::default(); nodes],
            owners: Arc::from(ring.owners()),
            n_val,
            prefixes: ring.size().finest(),
            founding: None,
            version: 0,
        }
    }

    /// The number of the last change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Registers the start of a process whose folder counts so many starts, unless a later one of the member is
    /// registered; the start's number, and the births that the stores are to keep.
    pub(super) fn begin(
        &mut self,
        (at, life, starts): (usize, u64, u32),
        found: &[FoundBirth],
    ) -> (u32, Vec<Birth>) {
        let record = &mut self.records[at];
        let is_older_copy = starts <= record.starts;
        record.starts = starts.max(record.starts + 1);
        record.life = life;
        record.is_registered = false;
        self.version += 1;
        let mut births = Vec::new();
        for (shard, found) in found.iter().enumerate() {
            let registered = record.stores.as_ref().and_then(|stores| stores.births.get(shard).copied());
            let is_complete = found.is_complete && !is_older_copy;
            births.push(Birth::at_start(found.stored, registered, is_complete, &mut self.rng));
        }
        (record.starts, births)
    }

    /// The births that are registered of a member's stores.
    pub(super) fn births(&self, at: usize) -> Vec<Birth> {
        self.records[at].stores.iter().flat_map(|stores| stores.births.iter().copied()).collect()
    }

    /// A birth for a store that has forgotten.
    pub(super) fn draw(&mut self) -> Birth {
        Birth::draw(&mut self.rng)
    }

    /// Registers the stores of a process, unless a later one of its member has begun; whether they are registered.
    pub(super) fn register(&mut self, at: usize, life: u64, stores: StoreBirths) -> bool {
        let record = &mut self.records[at];
        if record.life != life {
            return false;
        }
        (record.stores, record.is_registered) = (Some(stores), true);
        self.version += 1;
        if self.founding.is_none() && self.records.iter().all(|record| record.is_registered) {
            let stores = self.stores().collect();
            let (number, owners) = (self.rng.next_u64(), Arc::clone(&self.owners));
            self.founding = Some(Founding { number, epoch: 0, owners, stores: Arc::new(stores) });
        }
        true
    }

    fn stores(&self) -> impl Iterator<Item = (NodeId, StoreBirths)> {
        let stores = self.records.iter().enumerate();
        stores.filter_map(|(at, record)| Some((number(at), record.stores.clone()?)))
    }

    /// The agreement as of now.
    pub(super) fn agreement(&self) -> Arc<Agreement> {
        let foundings: BTreeMap<u8, Founding> =
            self.founding.iter().map(|founding| (self.n_val, founding.clone())).collect();
        let registered = self.records.iter().enumerate().filter(|(_, record)| record.is_registered);
        let processes = registered.filter_map(|(at, record)| {
            Some((number(at), RegisteredProcess { life: record.life, stores: record.stores.clone()? }))
        });
        let processes = processes.collect();
        Arc::new(Agreement { foundings: Arc::new(foundings), processes: Arc::new(processes) })
    }

    /// Whether the stores of a process are registered.
    pub(super) fn has(&self, at: usize, life: u64) -> bool {
        self.records[at].is_registered && self.records[at].life == life
    }

    /// The nodes of a group's voters, in the order of the prefix's list.
    pub(super) fn voters(&self, prefix: u16) -> Vec<usize> {
        let voters = self.founding.as_ref().map(|it| it.voters(self.n_val, prefix, self.prefixes));
        voters.into_iter().flatten().map(|(node, _)| usize::from(node.0)).collect()
    }

    /// Those of them that run with registered stores. Stores with other births than those of the founding have replaced
    /// these, or are about to.
    pub(super) fn present_voters(&self, prefix: u16) -> Vec<usize> {
        self.voters(prefix).into_iter().filter(|at| self.records[*at].is_registered).collect()
    }

    /// Those of them whose stores kept their births.
    pub(super) fn live_voters(&self, prefix: u16) -> Vec<usize> {
        let voters = self.founding.as_ref().map(|it| it.voters(self.n_val, prefix, self.prefixes));
        let keeps = |(node, birth): &(NodeId, Birth)| {
            let stores = self.records[usize::from(node.0)].stores.as_ref();
            stores.is_some_and(|stores| stores.of_prefix(prefix, self.prefixes) == *birth)
        };
        voters.into_iter().flatten().filter(keeps).map(|(node, _)| usize::from(node.0)).collect()
    }
}

/// A node as nodes number it.
fn number(at: usize) -> NodeId {
    NodeId(u16::try_from(at).expect("a small number"))
}
