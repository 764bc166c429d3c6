//! The cluster's agreement on consistent groups, as a trusted registry: the metadata log without its own faults.
//!
//! 1. A process asks for its start ([`Registry::begin`]). The last process of its member is registered no more. The
//!    registry says which births the stores keep: an older copy of a folder keeps none.
//! 2. When the stores keep their births durably, they are registered ([`Registry::register`]).
//! 3. When all members are registered for the first time, the groups are founded.
//! 4. A restore of all nodes puts the records of an earlier time in place ([`Registry::restore`]).
//!
//! Invariant: a member has one registered process at most. Each change has a version of its own.

use base::Rng;
use base::rng::SplitMix64;
use membership::state::{Founding, StoreBirths};
use node::{Agreement, FoundBirth, RegisteredProcess, VoterId};
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

/// The agreement as it was at some time.
#[derive(Clone, Debug)]
pub(super) struct Records {
    members: Vec<Record>,
    founding: Option<Founding>,
}

/// The registry.
pub(super) struct Registry {
    rng: SplitMix64,
    records: Vec<Record>,
    owners: Arc<[NodeId]>,
    n_val: u8,
    prefixes: RingSize,
    founding: Option<Founding>,
    /// The stores whose births are all voters: those of the founding, or those after the last restore.
    voters: BTreeMap<NodeId, StoreBirths>,
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
            voters: BTreeMap::new(),
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
            let stores: BTreeMap<NodeId, StoreBirths> = self.stores().collect();
            let (number, owners) = (self.rng.next_u64(), Arc::clone(&self.owners));
            self.voters.clone_from(&stores);
            self.founding = Some(Founding { number, epoch: 0, owners, stores: Arc::new(stores) });
        }
        true
    }

    /// The records as of now.
    pub(super) fn records(&self) -> Records {
        Records { members: self.records.clone(), founding: self.founding.clone() }
    }

    /// Puts earlier records in place of the present ones.
    pub(super) fn restore(&mut self, records: &Records) {
        let Records { members, founding } = records.clone();
        (self.records, self.founding) = (members, founding);
        self.version += 1;
    }

    /// Begins an epoch of the groups.
    pub(super) fn raise_epoch(&mut self) {
        self.founding.iter_mut().for_each(|founding| founding.epoch += 1);
        self.version += 1;
    }

    /// Takes the stores that are registered now for those whose births are all voters.
    pub(super) fn settle_voters(&mut self) {
        self.voters = self.stores().collect();
    }

    /// Whether there are groups.
    pub(super) fn is_founded(&self) -> bool {
        self.founding.is_some()
    }

    /// The epochs of the foundings, by n_val.
    pub(super) fn epochs(&self) -> BTreeMap<u8, u16> {
        self.founding.iter().map(|founding| (self.n_val, founding.epoch)).collect()
    }

    /// The number of nodes of each group.
    pub(super) fn copies(&self) -> usize {
        usize::from(self.n_val).min(self.records.len())
    }

    /// Whether a voter is a registered store.
    pub(super) fn votes(&self, voter: VoterId) -> bool {
        let record = &self.records[usize::from(voter.node.0)];
        record.is_registered && record.stores.iter().any(|stores| stores.births.contains(&voter.birth))
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

    /// Whether the start of a process is the last one of its member.
    pub(super) fn has_begun(&self, at: usize, life: u64) -> bool {
        self.records[at].life == life
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
        let birth = |stores: &StoreBirths| stores.of_prefix(prefix, self.prefixes);
        let keeps = |at: &usize| {
            let voter = self.voters.get(&number(*at)).map(birth);
            voter.is_some() && self.records[*at].stores.as_ref().map(birth) == voter
        };
        self.voters(prefix).into_iter().filter(keeps).collect()
    }
}

/// A node as nodes number it.
fn number(at: usize) -> NodeId {
    NodeId(u16::try_from(at).expect("a small number"))
}
