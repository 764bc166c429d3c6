//! Coverage: few nodes that together hold every key.
//!
//! Each partition is given to one of its primaries: to a preferred node where that is one, and otherwise to whoever
//! holds most of what is still open, until nothing is. That is the greedy set cover, whose cost is at most a logarithm
//! above the least, and on an even ring next to it: with n copies about one node in n is asked. Counts are kept in a
//! heap and corrected when they come up (Minoux 1978), so a plan for 16,384 partitions takes milliseconds.
//!
//! Who may be asked for a partition is the caller's to say: a node that is down may not, nor one that still waits for
//! the transfer of that partition, or that others keep hints for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::error::Error;
use crate::node_id::NodeId;
use crate::partition::Partition;
use crate::ring::Ring;

impl Ring {
    /// For each of `partitions` a node that is a primary of it, with `n_val` of them, and that `may` be asked for it;
    /// few nodes in all. By node, its partitions in the order given.
    ///
    /// # Errors
    /// [`Error::NotCovered`] if there is none for some.
    ///
    /// # Panics
    /// If the ring has no such partition.
    pub fn cover(
        &self,
        partitions: impl IntoIterator<Item = Partition>,
        n_val: usize,
        preferred: Option<NodeId>,
        may: impl Fn(Partition, NodeId) -> bool,
    ) -> Result<BTreeMap<NodeId, Vec<Partition>>, Error> {
        let (mut open, mut pairs) = (Vec::new(), Vec::new());
        for (at, partition) in partitions.into_iter().enumerate() {
            let before = pairs.len();
            pairs.extend(
                self.preflist(partition, n_val).map(|it| (it.node, at)).filter(|it| may(partition, it.0)),
            );
            if pairs.len() == before {
                return Err(Error::NotCovered(partition));
            }
            open.push(Some(partition));
        }
        let held = Held::of(&pairs);
        let mut cover = BTreeMap::new();
        let mut take = |node: NodeId, open: &mut [Option<Partition>]| {
            let taken: Vec<Partition> = held.by(node).iter().filter_map(|&at| open[at].take()).collect();
            if !taken.is_empty() {
                cover.insert(node, taken);
            }
        };
        if let Some(node) = preferred {
            take(node, &mut open);
        }
        let count = |node: NodeId, open: &[Option<Partition>]| {
            held.by(node).iter().filter(|&&at| open[at].is_some()).count()
        };
        let mut heap: BinaryHeap<(usize, Reverse<NodeId>)> =
            self.owning().iter().map(|node| (count(node, &open), Reverse(node))).collect();
        while let Some((known, Reverse(node))) = heap.pop() {
            match count(node, &open) {
                0 => {}
                now if now < known => heap.push((now, Reverse(node))),
                _ => take(node, &mut open),
            }
        }
        Ok(cover)
    }
}

/// By node, the places in the list of partitions that it may be asked for, in order.
struct Held {
    /// By node, where its places begin; one more for the end.
    begins: Vec<usize>,
    places: Vec<usize>,
}

impl Held {
    fn of(pairs: &[(NodeId, usize)]) -> Held {
        let nodes = pairs.iter().map(|(node, _)| node.index() + 1).max().unwrap_or(0);
        let mut begins = vec![0; nodes + 1];
        pairs.iter().for_each(|(node, _)| begins[node.index() + 1] += 1);
        for node in 0..nodes {
            begins[node + 1] += begins[node];
        }
        let (mut next, mut places) = (begins.clone(), vec![0; pairs.len()]);
        for &(node, at) in pairs {
            places[next[node.index()]] = at;
            next[node.index()] += 1;
        }
        Held { begins, places }
    }

    fn by(&self, node: NodeId) -> &[usize] {
        match self.begins.get(node.index() + 1) {
            Some(&end) => &self.places[self.begins[node.index()]..end],
            None => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::ring::RingVersion;
    use crate::size::RingSize;

    fn ring(partitions: u32, nodes: u32) -> Ring {
        Ring::round_robin(RingVersion(1), RingSize::new(partitions).unwrap(), nodes).unwrap()
    }

    #[test]
    fn about_one_node_in_n_is_asked() {
        let everyone = |_: Partition, _: NodeId| true;
        for (partitions, nodes, least) in [(64, 1, 1), (64, 3, 1), (64, 4, 2), (256, 16, 6), (4096, 64, 22)] {
            let ring = ring(partitions, nodes);
            let cover = ring.cover(ring.size().all(), 3, None, everyone).unwrap();
            assert!(cover.len() <= least * 3 / 2, "{} of {nodes}", cover.len());
        }
    }

    #[test]
    fn a_preferred_node_comes_first_and_what_nobody_has_is_told() {
        let ring = ring(16, 5);
        let cover = ring.cover(ring.size().all(), 3, Some(NodeId(4)), |_, _| true).unwrap();
        let held = ring.size().all().filter(|at| ring.preflist(*at, 3).any(|it| it.node == NodeId(4)));
        assert_eq!(cover[&NodeId(4)], held.collect::<Vec<_>>());
        let is_up = |_: Partition, node: NodeId| ![1, 2, 3].contains(&node.0);
        assert_eq!(ring.cover(ring.size().all(), 3, None, is_up), Err(Error::NotCovered(Partition(1))));
        let waits = |partition: Partition, _: NodeId| partition != Partition(9);
        assert_eq!(ring.cover(ring.size().all(), 3, None, waits), Err(Error::NotCovered(Partition(9))));
    }

    proptest! {
        #[test]
        fn every_partition_is_given_once_to_who_may(
            nodes in 1u32..40, n_val in 1usize..6, away in prop::collection::btree_set((0u32..64, 0u16..40), 0..80),
            down in prop::collection::btree_set(0u16..40, 0..12), preferred in prop::option::of(0u16..40),
        ) {
            let ring = ring(64, nodes);
            let may = |partition: Partition, node: NodeId| {
                !away.contains(&(partition.0, node.0)) && !down.contains(&node.0)
            };
            let has = |partition: &Partition| ring.preflist(*partition, n_val).any(|it| may(*partition, it.node));
            match ring.cover(ring.size().all(), n_val, preferred.map(NodeId), may) {
                Err(Error::NotCovered(partition)) => {
                    prop_assert_eq!(ring.size().all().find(|at| !has(at)), Some(partition));
                }
                other => {
                    let cover = other.unwrap();
                    let given: Vec<Partition> = cover.values().flatten().copied().collect();
                    prop_assert_eq!(given.len(), 64);
                    prop_assert_eq!(given.into_iter().collect::<BTreeSet<_>>().len(), 64);
                    for (node, partitions) in cover {
                        for partition in partitions {
                            let is_primary = ring.preflist(partition, n_val).any(|it| it.node == node);
                            prop_assert!(is_primary && may(partition, node));
                        }
                    }
                }
            }
        }
    }
}
