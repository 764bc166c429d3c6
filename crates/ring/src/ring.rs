//! Who owns what: one immutable version of it.

use std::fmt;

use crate::error::Error;
use crate::position::Position;
use crate::size::{Partition, RingSize};

/// Most nodes of a ring: what a [`NodeId`] can number.
pub const NODES_MAX: u32 = 65_535;

/// A node of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Numbers the rings of a cluster; a later ring has a higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingVersion(pub u64);

/// The owner of each partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    version: RingVersion,
    size: RingSize,
    nodes: u16,
    /// By partition, each below `nodes`; every node owns at least one.
    owners: Box<[NodeId]>,
}

impl Ring {
    /// A ring whose only node owns everything.
    pub fn of_one_node(version: RingVersion, size: RingSize) -> Ring {
        Ring { version, size, nodes: 1, owners: size.all().map(|_| NodeId(0)).collect() }
    }

    /// A ring that `nodes` claim in turn: partition `p` goes to node `p mod nodes`, so that neighbours differ and
    /// no node owns two partitions more than another.
    ///
    /// # Errors
    /// [`Error::Nodes`] unless there are 1 to [`NODES_MAX`] nodes and a partition for each.
    pub fn round_robin(version: RingVersion, size: RingSize, nodes: u32) -> Result<Ring, Error> {
        let refused = Error::Nodes { nodes, partitions: size.partitions() };
        let Some(count) = u16::try_from(nodes).ok().filter(|&count| count > 0 && nodes <= size.partitions())
        else {
            return Err(refused);
        };
        let owners = (0..count).map(NodeId).cycle().take(size.all().len()).collect();
        Ok(Ring { version, size, nodes: count, owners })
    }

    /// Which ring of the cluster this is.
    pub fn version(&self) -> RingVersion {
        self.version
    }

    /// How many partitions it has.
    pub fn size(&self) -> RingSize {
        self.size
    }

    /// How many nodes own them.
    pub fn nodes(&self) -> u16 {
        self.nodes
    }

    /// The owner of `partition`.
    ///
    /// # Panics
    /// If the ring has no such partition.
    pub fn owner(&self, partition: Partition) -> NodeId {
        self.owners[partition.0 as usize]
    }

    /// The partitions that `node` owns, clockwise.
    pub fn partitions_of(&self, node: NodeId) -> impl Iterator<Item = Partition> + '_ {
        self.size.all().filter(move |&partition| self.owner(partition) == node)
    }

    /// The primaries of `partition`: clockwise from it, the partitions of the first `n_val` different nodes.
    ///
    /// With an even claim those are the next `n_val` partitions. Where the ring's end meets its start a node may
    /// come up again too early; its second partition is skipped, as in Dynamo, so that `n_val` copies are on
    /// `n_val` nodes whenever there are as many. With fewer nodes nothing is skipped, and one node holds several
    /// of the list's partitions.
    ///
    /// # Panics
    /// If the ring has no such partition.
    pub fn preflist(&self, partition: Partition, n_val: usize) -> Preflist<'_> {
        self.walk(partition, n_val, n_val)
    }

    /// The primaries of `partition`, then every other node, in the order in which they stand in for primaries
    /// that are down.
    ///
    /// # Panics
    /// If the ring has no such partition.
    pub fn preflist_with_fallbacks(&self, partition: Partition, n_val: usize) -> Preflist<'_> {
        self.walk(partition, n_val, n_val.max(usize::from(self.nodes)))
    }

    /// The primaries of an object.
    pub fn preflist_of_key(
        &self,
        bucket_type: &[u8],
        bucket: &[u8],
        key: &[u8],
        n_val: usize,
    ) -> Preflist<'_> {
        self.preflist(self.size.partition(Position::of_key(bucket_type, bucket, key)), n_val)
    }

    fn walk(&self, start: Partition, n_val: usize, len: usize) -> Preflist<'_> {
        assert!(start.0 < self.size.partitions(), "partition {start} is not on a ring of {}", self.size);
        let distinct = n_val <= usize::from(self.nodes);
        Preflist { ring: self, start, steps: 0, found: 0, n_val, len: len.min(self.owners.len()), distinct }
    }
}

/// One place of a preference list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreflistEntry {
    /// The vnode.
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
    /// Partitions passed so far.
    steps: u32,
    found: usize,
    n_val: usize,
    len: usize,
    /// Whether each node may come once only.
    distinct: bool,
}

impl Preflist<'_> {
    fn partition_after(&self, step: u32) -> Partition {
        // The size is a power of two, and neither summand is above it.
        Partition((self.start.0 + step) & (self.ring.size.partitions() - 1))
    }

    /// Whether `node` owns a partition passed before the one at `step`. The few partitions passed are looked at
    /// again, which is cheaper than remembering them.
    fn passed(&self, node: NodeId, step: u32) -> bool {
        (0..step).any(|earlier| self.ring.owner(self.partition_after(earlier)) == node)
    }
}

impl Iterator for Preflist<'_> {
    type Item = PreflistEntry;

    fn next(&mut self) -> Option<PreflistEntry> {
        if self.found == self.len {
            return None;
        }
        while self.steps < self.ring.size.partitions() {
            let step = self.steps;
            self.steps += 1;
            let partition = self.partition_after(step);
            let node = self.ring.owner(partition);
            if !self.distinct || !self.passed(node, step) {
                self.found += 1;
                return Some(PreflistEntry { partition, node, primary: self.found <= self.n_val });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ring(partitions: u32, nodes: u32) -> Ring {
        Ring::round_robin(RingVersion(1), RingSize::new(partitions).unwrap(), nodes).unwrap()
    }

    fn entries(preflist: Preflist<'_>) -> Vec<(u32, u16, bool)> {
        preflist.map(|entry| (entry.partition.0, entry.node.0, entry.primary)).collect()
    }

    #[test]
    fn one_node_holds_every_place() {
        let ring = Ring::of_one_node(RingVersion(1), RingSize::default());
        assert_eq!(entries(ring.preflist(Partition(62), 3)), [(62, 0, true), (63, 0, true), (0, 0, true)]);
        assert_eq!(ring, self::ring(64, 1));
        assert_eq!(ring.partitions_of(NodeId(0)).count(), 64);
        let all = ring.preflist_with_fallbacks(Partition(0), 3);
        assert_eq!(all.count(), 3);
    }

    #[test]
    fn the_seam_does_not_repeat_a_node() {
        // 64 = 21 * 3 + 1: partitions 63 and 0 both belong to node 0.
        let ring = ring(64, 3);
        assert_eq!(entries(ring.preflist(Partition(62), 3)), [(62, 2, true), (63, 0, true), (1, 1, true)]);
        assert_eq!(entries(ring.preflist(Partition(5), 2)), [(5, 2, true), (6, 0, true)]);
    }

    #[test]
    fn fallbacks_follow_the_primaries() {
        let ring = ring(8, 4);
        let expected = [(7, 3, true), (0, 0, true), (1, 1, false), (2, 2, false)];
        assert_eq!(entries(ring.preflist_with_fallbacks(Partition(7), 2)), expected);
    }

    #[test]
    fn a_list_is_no_longer_than_the_ring() {
        assert_eq!(ring(8, 1).preflist(Partition(3), 100).count(), 8);
        assert_eq!(ring(8, 2).preflist(Partition(3), 0).count(), 0);
    }

    #[test]
    fn each_node_needs_a_partition() {
        let size = RingSize::new(8).unwrap();
        for nodes in [0, 9, 70_000] {
            let error = Ring::round_robin(RingVersion(1), size, nodes).expect_err("no such ring");
            assert_eq!(error.to_string(), format!("a ring of 8 partitions takes 1 to 8 nodes, not {nodes}"));
        }
        let large = RingSize::new(65_536).unwrap();
        assert!(Ring::round_robin(RingVersion(1), large, NODES_MAX).is_ok());
        assert!(Ring::round_robin(RingVersion(1), large, NODES_MAX + 1).is_err());
    }

    #[test]
    fn every_partition_of_every_size_has_its_copies_apart() {
        for bits in 3..=16 {
            let partitions = 1 << bits;
            for nodes in [1, 2, 3, 4, 5, 7, 8].into_iter().chain((bits >= 10).then_some(1000)) {
                let ring = ring(partitions, nodes);
                for partition in ring.size().all() {
                    let list: Vec<PreflistEntry> = ring.preflist(partition, 3).collect();
                    let owners: BTreeSet<NodeId> = list.iter().map(|entry| entry.node).collect();
                    assert_eq!(list.len(), 3);
                    assert_eq!(
                        owners.len(),
                        nodes.min(3) as usize,
                        "{partition} of {partitions}, {nodes} nodes"
                    );
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_preflist_is_the_clockwise_walk(
            (bits, nodes, start, n_val) in (3u32..8).prop_flat_map(|bits| {
                (Just(bits), 1..=1u32 << bits, 0..1u32 << bits, 1usize..8)
            })
        ) {
            let ring = ring(1 << bits, nodes);
            let list: Vec<PreflistEntry> = ring.preflist(Partition(start), n_val).collect();
            prop_assert_eq!(list.len(), n_val);
            prop_assert_eq!(list[0].partition, Partition(start));
            prop_assert!(list.iter().all(|entry| entry.primary && ring.owner(entry.partition) == entry.node));
            let distance = |entry: &PreflistEntry| entry.partition.0.wrapping_sub(start) % (1 << bits);
            prop_assert!(list.is_sorted_by_key(distance));
            let owners: BTreeSet<NodeId> = list.iter().map(|entry| entry.node).collect();
            match n_val <= nodes as usize {
                true => prop_assert_eq!(owners.len(), n_val),
                false => prop_assert_eq!(distance(&list[n_val - 1]) as usize, n_val - 1),
            }
            let whole: Vec<PreflistEntry> = ring.preflist_with_fallbacks(Partition(start), n_val).collect();
            prop_assert_eq!(&whole[..n_val], list.as_slice());
            prop_assert!(whole[n_val..].iter().all(|entry| !entry.primary && !owners.contains(&entry.node)));
            prop_assert_eq!(whole.len(), n_val.max(nodes as usize));
            let counts = (0..ring.nodes()).map(|node| ring.partitions_of(NodeId(node)).count());
            prop_assert!(counts.clone().max().unwrap() - counts.min().unwrap() <= 1);
        }
    }
}
