//! Preference lists against their definition.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::member::Members;
use crate::ring::RingVersion;
use crate::rows::ROW_LEN;
use crate::size::RingSize;

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
fn with_fewer_nodes_each_is_told_before_one_is_again() {
    let owners = [0, 0, 0, 0, 1, 1, 1, 1].map(NodeId);
    let ring =
        Ring::new(RingVersion(1), RingSize::new(8).unwrap(), Arc::new(Members::anonymous(2)), owners.into())
            .unwrap();
    assert_eq!(entries(ring.preflist(Partition(1), 3)), [(1, 0, true), (4, 1, true), (2, 0, true)]);
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
fn every_partition_of_every_size_has_its_copies_apart() {
    for bits in 3..=16 {
        let partitions = 1 << bits;
        for nodes in [1, 2, 3, 4, 5, 7, 8].into_iter().chain((bits >= 10).then_some(1000)) {
            let ring = ring(partitions, nodes);
            for partition in ring.size().all() {
                let list: Vec<PreflistEntry> = ring.preflist(partition, 3).collect();
                let owners: BTreeSet<NodeId> = list.iter().map(|entry| entry.node).collect();
                assert_eq!(list.len(), 3);
                assert_eq!(owners.len(), nodes.min(3) as usize, "{partition} of {partitions}, {nodes} nodes");
            }
        }
    }
}

#[test]
fn beyond_a_row_the_next_by_number_stands_in() {
    let ring = ring(64, 40);
    let list = ring.preflist_with_fallbacks(Partition(0), 3);
    let up =
        list.filter(|entry| entry.node.0 >= 30).take(3).map(|it| (it.node.0, it.partition.0, it.primary));
    assert_eq!(up.collect::<Vec<_>>(), [(30, 30, false), (31, 31, false), (32, 32, false)]);
}

/// What a preference list is, told the simple way.
fn model(ring: &Ring, start: u32, n_val: usize) -> Vec<(u32, u16, bool)> {
    let size = ring.size().partitions();
    let walk = (0..size).map(|step| ring.after(Partition(start), step));
    let mut seen = BTreeSet::new();
    let (first, again): (Vec<Partition>, Vec<Partition>) = walk.partition(|it| seen.insert(ring.owner(*it)));
    let told = |list: Vec<Partition>| list.into_iter().map(|it| (it.0, ring.owner(it).0)).collect::<Vec<_>>();
    let (mut list, nodes) = (told(first), seen.len());
    if n_val > nodes {
        list.extend(told(again));
        list.truncate(n_val);
    } else if n_val <= ROW_LEN && nodes > ROW_LEN {
        let mut rest: Vec<u16> = list.drain(ROW_LEN..).map(|(_, node)| node).collect();
        let last = list[ROW_LEN - 1].1;
        rest.sort_unstable_by_key(|&node| (node < last, node));
        list.extend(rest.into_iter().map(|node| (ring.partitions_of(NodeId(node)).next().unwrap().0, node)));
    }
    list.into_iter().enumerate().map(|(at, (partition, node))| (partition, node, at < n_val)).collect()
}

/// Rings of any owners at all, some with one node nearly alone.
fn any_ring() -> impl Strategy<Value = Ring> {
    let kinds = (3u32..8, 1u16..80, any::<bool>());
    let owners = kinds.prop_flat_map(|(bits, nodes, lumpy)| {
        let owner = move |draw: u16| if lumpy && !draw.is_multiple_of(8) { 0 } else { draw % nodes * 3 };
        prop::collection::vec(any::<u16>().prop_map(owner), 1usize << bits)
    });
    owners.prop_map(|owners| {
        let size = RingSize::new(u32::try_from(owners.len()).unwrap()).unwrap();
        let members = Arc::new(Members::anonymous(240));
        Ring::new(RingVersion(1), size, members, owners.into_iter().map(NodeId).collect()).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_preflist_is_what_it_is_by_definition(
        ring in any_ring(), start in any::<u32>(), n_val in prop_oneof![1usize..8, 1usize..70],
    ) {
        let start = start % ring.size().partitions();
        let n_val = n_val.min(ring.owners().len());
        let whole = entries(ring.preflist_with_fallbacks(Partition(start), n_val));
        prop_assert_eq!(&whole, &model(&ring, start, n_val));
        prop_assert_eq!(&entries(ring.preflist(Partition(start), n_val)), &whole[..n_val]);
    }
}
