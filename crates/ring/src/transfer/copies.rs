//! Who has the keys of which partition, while owners change.
//!
//! Invariant: every node on a partition's preference list, by the owners of the moment, has that partition.

use std::collections::BTreeMap;

use crate::node_id::NodeId;
use crate::partition::Partition;
use crate::ring::Ring;

/// Who has what.
#[derive(Debug, Clone)]
pub(super) struct Copies {
    n_val: usize,
    owners: Box<[NodeId]>,
    /// How many partitions a node owns.
    counts: BTreeMap<NodeId, usize>,
    /// By partition, in no order.
    holders: Vec<Vec<NodeId>>,
}

impl Copies {
    /// What a ring at rest has.
    pub(super) fn of(ring: &Ring, n_val: usize) -> Copies {
        let mut counts = BTreeMap::new();
        ring.owners().iter().for_each(|owner| *counts.entry(*owner).or_default() += 1);
        let holders = ring.size().all().map(|partition| {
            let mut holders: Vec<NodeId> = ring.preflist(partition, n_val).map(|entry| entry.node).collect();
            holders.sort_unstable();
            holders.dedup();
            holders
        });
        Copies { n_val, owners: ring.owners().into(), counts, holders: holders.collect() }
    }

    pub(super) fn n_val(&self) -> usize {
        self.n_val
    }

    pub(super) fn owners(&self) -> &[NodeId] {
        &self.owners
    }

    pub(super) fn owner(&self, partition: Partition) -> NodeId {
        self.owners[partition.0 as usize]
    }

    pub(super) fn holders(&self, partition: Partition) -> &[NodeId] {
        &self.holders[partition.0 as usize]
    }

    pub(super) fn has(&self, partition: Partition, node: NodeId) -> bool {
        self.holders(partition).contains(&node)
    }

    pub(super) fn add(&mut self, partition: Partition, node: NodeId) {
        if !self.has(partition, node) {
            self.holders[partition.0 as usize].push(node);
        }
    }

    /// Says whether it was there.
    pub(super) fn remove(&mut self, partition: Partition, node: NodeId) -> bool {
        let holders = &mut self.holders[partition.0 as usize];
        let there = holders.len();
        holders.retain(|holder| *holder != node);
        holders.len() < there
    }

    /// Whether a node has a partition that the owners of the moment do not ask of it.
    pub(super) fn is_surplus(&self, partition: Partition, node: NodeId) -> bool {
        // With no more holders than there must be none is one too many.
        self.holders(partition).len() > self.listed_max()
            && self.has(partition, node)
            && !self.walk(partition.0 as usize).0.contains(&node)
    }

    /// Changes owners, if the invariant holds afterwards; says whether it did.
    pub(super) fn switch(&mut self, changes: &[(Partition, NodeId)]) -> bool {
        let before: Vec<(Partition, NodeId)> =
            changes.iter().map(|&(partition, _)| (partition, self.owner(partition))).collect();
        let was_all = self.listed_max() == self.counts.len();
        let affected = self.affected(changes);
        self.set(changes);
        // The lists that name every node change with the nodes there are, all at once.
        let is_all = was_all || self.listed_max() == self.counts.len();
        let stands = match is_all {
            true => (0..self.owners.len()).all(|at| self.is_held(at)),
            false => affected.iter().chain(&self.affected(changes)).all(|&at| self.is_held(at)),
        };
        if !stands {
            self.set(&before);
        }
        stands
    }

    fn set(&mut self, changes: &[(Partition, NodeId)]) {
        for &(partition, to) in changes {
            let from = std::mem::replace(&mut self.owners[partition.0 as usize], to);
            *self.counts.entry(to).or_default() += 1;
            let left = self.counts.get_mut(&from).expect("an owner is counted");
            *left -= 1;
            if *left == 0 {
                self.counts.remove(&from);
            }
        }
    }

    /// How many nodes a list names.
    fn listed_max(&self) -> usize {
        self.n_val.min(self.counts.len())
    }

    /// The partitions whose list depends on the owners of these: each itself, and those before it whose walk reaches it.
    fn affected(&self, changes: &[(Partition, NodeId)]) -> Vec<usize> {
        let size = self.owners.len();
        let mut affected = Vec::new();
        for &(partition, _) in changes {
            for back in 0..size {
                let at = (partition.0 as usize + size - back) % size;
                let reaches = back == 0 || self.walk(at).1 > back;
                if !reaches {
                    break;
                }
                affected.push(at);
            }
        }
        affected
    }

    /// Whether every node on this partition's list has it.
    fn is_held(&self, at: usize) -> bool {
        let holders = &self.holders[at];
        match self.listed_max() == self.counts.len() {
            true => self.counts.keys().all(|node| holders.contains(node)),
            false => self.walk(at).0.iter().all(|node| holders.contains(node)),
        }
    }

    /// The nodes on this partition's list by the owners of the moment, and how many partitions are passed to find them.
    fn walk(&self, at: usize) -> (Vec<NodeId>, usize) {
        let (size, most) = (self.owners.len(), self.listed_max());
        let mut found = Vec::with_capacity(most);
        for steps in 0..size {
            let owner = self.owners[(at + steps) % size];
            if !found.contains(&owner) {
                found.push(owner);
            }
            if found.len() == most {
                return (found, steps + 1);
            }
        }
        (found, size)
    }
}
