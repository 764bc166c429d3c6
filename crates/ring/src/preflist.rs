//! Preference lists: the primaries of a partition, and their fallbacks.
//!
//! A list is computed as it is read, in three stretches:
//!
//! 1. the partition's row: the first nodes clockwise from it, each once;
//! 2. where more primaries are asked for than a row holds, the walk around the ring goes on behind it;
//! 3. with fewer nodes than primaries, the partitions that were skipped, clockwise; otherwise the fallbacks that no row
//!    holds, by number, beginning behind the row's last node.
//!
//! Stretch 3 is what bounds the worst case: with the row's nodes down, the next one is a bit in a bitmap, not the end
//! of a walk past partitions of nodes that were seen before. Every node computes the same list from the same ring.

use crate::node_id::NodeId;
use crate::partition::Partition;
use crate::ring::Ring;
use crate::rows::Place;

/// One place of a preference list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreflistEntry {
    /// The vnode. Of a fallback, one of its own.
    pub partition: Partition,
    /// Its owner.
    pub node: NodeId,
    /// Whether it is one of the `n_val`, not a stand-in.
    pub primary: bool,
}

/// A preference list, computed as it is read.
#[derive(Debug, Clone)]
pub struct Preflist<'a> {
    ring: &'a Ring,
    start: Partition,
    row: &'a [Place],
    found: usize,
    n_val: usize,
    len: usize,
    /// Partitions passed so far by walking.
    steps: u32,
    /// The node to go on with by number.
    next: NodeId,
}

impl<'a> Preflist<'a> {
    #[inline]
    pub(crate) fn new(ring: &'a Ring, start: Partition, n_val: usize, len: usize) -> Preflist<'a> {
        assert!(start.0 < ring.size().partitions(), "partition {start} is not on a ring of {}", ring.size());
        let row = ring.rows().of_partition(start);
        let len = len.min(ring.owners().len());
        Preflist { ring, start, row, found: 0, n_val, len, steps: 0, next: NodeId(0) }
    }

    /// What a row does not hold.
    #[cold]
    fn beyond(&mut self) -> Option<(Partition, NodeId)> {
        let nodes = usize::from(self.ring.nodes());
        if self.found == self.row.len() {
            self.steps = match self.row.len() == nodes {
                // All nodes are told; what was skipped comes now.
                true => 0,
                false => self.steps_of(self.row[self.row.len() - 1]) + 1,
            };
            self.next = NodeId(self.row[self.row.len() - 1].node().0.wrapping_add(1));
        } else if self.found == nodes {
            self.steps = 0;
        }
        match self.found < nodes {
            true if self.n_val <= self.row.len() => Some(self.by_number()),
            is_first => self.walk(is_first),
        }
    }

    fn steps_of(&self, place: Place) -> u32 {
        place.partition().0.wrapping_sub(self.start.0) & (self.ring.size().partitions() - 1)
    }

    /// The next partition whose owner comes up for the first time, or again.
    fn walk(&mut self, is_first: bool) -> Option<(Partition, NodeId)> {
        while self.steps < self.ring.size().partitions() {
            let (partition, steps) = (self.ring.after(self.start, self.steps), self.steps);
            self.steps += 1;
            if self.ring.rows().came_up(partition, steps) != is_first {
                return Some((partition, self.ring.owner(partition)));
            }
        }
        None
    }

    /// The next node that is not in the row. There is one: fewer are told than there are.
    fn by_number(&mut self) -> (Partition, NodeId) {
        let owning = self.ring.owning();
        loop {
            let node = owning.next_from(self.next).or_else(|| owning.next_from(NodeId(0)));
            let node = node.expect("a ring has an owner");
            self.next = NodeId(node.0.wrapping_add(1));
            if !self.row.iter().any(|place| place.node() == node) {
                return (self.ring.rows().lowest_of(node), node);
            }
        }
    }
}

impl Iterator for Preflist<'_> {
    type Item = PreflistEntry;

    #[inline]
    fn next(&mut self) -> Option<PreflistEntry> {
        if self.found == self.len {
            return None;
        }
        let (partition, node) = match self.row.get(self.found) {
            Some(place) => (place.partition(), place.node()),
            None => self.beyond()?,
        };
        self.found += 1;
        Some(PreflistEntry { partition, node, primary: self.found <= self.n_val })
    }
}

#[cfg(test)]
#[path = "preflist_tests.rs"]
mod tests;
