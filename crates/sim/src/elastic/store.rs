//! The model of a node's store: the numbers of the writes that it has, by partition of the finest ring that there will
//! be. It outlives crashes, as what is durable does.

use super::World;
use super::known::Known;
use membership::NodeId;
use membership::state::State;
use ring::Partition;
use std::collections::{BTreeMap, BTreeSet};

/// The number of a write. Each partition has its first one from the beginning, at all its owners.
pub(super) type Number = u32;

/// What everybody has who ever got the partition.
pub(super) const FIRST: Number = 0;

/// What a node has.
#[derive(Debug, Default)]
pub(super) struct Store(BTreeMap<Partition, BTreeSet<Number>>);

impl Store {
    /// How many partitions it has something of.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn write(&mut self, partition: Partition, number: Number) {
        self.0.entry(partition).or_default().insert(number);
    }

    /// What it has of a partition.
    pub(super) fn of(&self, partition: Partition) -> BTreeSet<Number> {
        self.0.get(&partition).cloned().unwrap_or_default()
    }

    /// Takes what another has.
    pub(super) fn take(&mut self, partition: Partition, numbers: BTreeSet<Number>) {
        if !numbers.is_empty() {
            self.0.entry(partition).or_default().extend(numbers);
        }
    }

    /// Drops what `node` is not to have.
    pub(super) fn drop_strays(&mut self, node: NodeId, known: &Known) {
        self.0.retain(|partition, _| known.keeps(node, *partition));
    }
}

impl World {
    /// All owners have the first write of what is theirs.
    pub(super) fn found_stores(&mut self, founded: &State) {
        let known = Known::of(founded, self.units);
        for partition in self.units.all() {
            for node in known.list(partition) {
                let host = self.hosts.get_mut(&node).expect("founders own everything");
                host.store.write(partition, FIRST);
            }
        }
    }
}
