//! More partitions without rewriting data.
//!
//! A partition is a prefix of the position's bits, so one partition of a ring is the same positions as two of a ring
//! twice as large. [`grown`] gives the second of these to the owner of the one, and the first to the owner of the next
//! partition. With owners `a b c d …` that is `b a c b d c …`, and a list from there on names
//!
//! * at the first half: `b a c (b) d (c) …`, which is `a b c d …` with the first two exchanged;
//! * at the second half: `a c b d (c) …`, which is the same with the second and the third exchanged.
//!
//! So lists of three nodes and more name the same nodes on every ring, with any owners, and no data of theirs
//! moves, however often a ring is doubled; and neighbours are at least three partitions apart ([`DISTANCE_GROWN`]) if
//! they were before. Lists of one or two nodes change for half of the positions with each doubling: such buckets move
//! as with any change of owners. No way keeps both all lists and a distance of four: decision 39 has the reason.
//!
//! A node's shards do not notice: a shard is chosen by as many bits of the position as the ring had when the store was
//! made ([`shard_of`](crate::shard_of)). A ring does not shrink.

use crate::error::Error;
use crate::node_id::NodeId;
use crate::partition::Partition;
use crate::size::RingSize;

/// How far apart a node's partitions are on a ring that was [`grown`], if they were before: what later claims keep.
pub const DISTANCE_GROWN: usize = 3;

/// The owners of a ring of `size`, grown from the ring of these owners so that lists of three nodes and more name whom
/// they named.
///
/// # Errors
/// [`Error::Sizes`] if `size` is smaller, [`Error::Owners`] if so many owners are those of no ring.
pub fn grown(owners: &[NodeId], size: RingSize) -> Result<Vec<NodeId>, Error> {
    let refused = Error::Owners { owners: owners.len(), partitions: size.partitions() };
    let before = RingSize::of_owners(owners).ok_or(refused)?;
    if size < before {
        return Err(Error::Sizes(before.partitions(), size.partitions()));
    }
    let mut owners = owners.to_vec();
    for _ in before.bits()..size.bits() {
        let next = owners.iter().cycle().skip(1);
        owners = owners.iter().zip(next).flat_map(|(owner, next)| [*next, *owner]).collect();
    }
    Ok(owners)
}

/// What a change of owners moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Copies of partitions that a node has afterwards and not before, by the larger of the two rings.
    pub copies: usize,
    /// Copies that there are afterwards.
    pub of: usize,
    /// Nodes on the shortest list afterwards: how many copies are distinct.
    pub distinct_min: usize,
}

/// What moves of buckets with so many replicas from the ring of the owners `before` to the one `after`, whatever their
/// sizes.
///
/// # Panics
/// If so many owners are those of no ring.
pub fn moved(before: &[NodeId], after: &[NodeId], n_val: usize) -> Moved {
    let (mut moved, mut list) = (Moved { copies: 0, of: 0, distinct_min: n_val }, Vec::new());
    let (mut had, ratio) = (Vec::new(), before.len().max(after.len()));
    assert!(ratio.is_power_of_two() && before.len().is_power_of_two() && after.len().is_power_of_two());
    for at in 0..ratio {
        nodes_from(before, at / (ratio / before.len()), n_val, &mut had);
        nodes_from(after, at / (ratio / after.len()), n_val, &mut list);
        moved.copies += list.iter().filter(|node| !had.contains(node)).count();
        moved.of += list.len();
        moved.distinct_min = moved.distinct_min.min(list.len());
    }
    moved
}

/// The first different owners from there on, as [`Ring::preflist`](crate::Ring::preflist) names them, without a ring
/// being made.
fn nodes_from(owners: &[NodeId], at: usize, n_val: usize, nodes: &mut Vec<NodeId>) {
    nodes.clear();
    let clockwise = owners[at..].iter().chain(&owners[..at]);
    for node in clockwise {
        if nodes.len() == n_val {
            break;
        }
        if !nodes.contains(node) {
            nodes.push(*node);
        }
    }
}

impl RingSize {
    /// The partition of a ring of this size that holds the first position of `partition` of a ring of size `of`: the
    /// one that it is a part of, or the first of its parts.
    pub fn convert(self, partition: Partition, of: RingSize) -> Partition {
        match self.bits() >= of.bits() {
            true => Partition(partition.0 << (self.bits() - of.bits())),
            false => Partition(partition.0 >> (of.bits() - self.bits())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::member::Members;
    use crate::position::Position;
    use crate::ring::{Ring, RingVersion};

    fn size(partitions: u32) -> RingSize {
        RingSize::new(partitions).unwrap()
    }

    fn nodes(ring: &Ring, position: Position, n_val: usize) -> BTreeSet<NodeId> {
        ring.preflist(ring.size().partition(position), n_val).map(|entry| entry.node).collect()
    }

    fn any_ring(members: u16) -> impl Strategy<Value = Ring> {
        let owners = (3u32..7).prop_flat_map(move |bits| prop::collection::vec(0..members, 1usize << bits));
        owners.prop_map(move |owners| {
            let size = size(u32::try_from(owners.len()).unwrap());
            let members = Arc::new(Members::anonymous(members));
            Ring::new(RingVersion(1), size, members, owners.into_iter().map(NodeId).collect()).unwrap()
        })
    }

    proptest! {
        #[test]
        fn partitions_of_two_sizes_nest(
            bits in 3u32..10,
            more in 0u32..4,
            position in any::<u64>().prop_map(Position),
        ) {
            let (small, large) = (size(1 << bits), size(1 << (bits + more)));
            prop_assert_eq!(small.convert(large.partition(position), large), small.partition(position));
            let first = large.convert(small.partition(position), small);
            prop_assert_eq!(large.first(first), small.first(small.partition(position)));
        }

        #[test]
        fn a_grown_ring_has_the_lists_that_there_were(
            ring in any_ring(6), more in 0u32..4, positions in prop::collection::vec(any::<u64>(), 20), n_val in 3usize..8,
        ) {
            let larger = size(ring.size().partitions() << more);
            let owners = grown(ring.owners(), larger).unwrap();
            let large = Ring::new(RingVersion(2), larger, Arc::clone(ring.members()), owners.into()).unwrap();
            for position in positions.into_iter().map(Position) {
                prop_assert_eq!(nodes(&ring, position, n_val), nodes(&large, position, n_val));
            }
            let moved = moved(ring.owners(), large.owners(), n_val);
            let distinct = n_val.min(usize::from(ring.nodes()));
            prop_assert_eq!(moved, Moved { copies: 0, of: distinct << larger.bits(), distinct_min: distinct });
        }

        #[test]
        fn what_moves_is_told_by_the_lists(
            before in any_ring(6), after in any_ring(6), n_val in 1usize..6,
        ) {
            let finest = before.size().max(after.size());
            let (mut copies, mut of) = (0, 0);
            for partition in finest.all() {
                let (had, has) = (nodes(&before, finest.first(partition), n_val), nodes(&after, finest.first(partition), n_val));
                copies += has.difference(&had).count();
                of += has.len();
            }
            let moved = moved(before.owners(), after.owners(), n_val);
            prop_assert_eq!((moved.copies, moved.of), (copies, of));
        }
    }

    #[test]
    fn a_grown_ring_keeps_a_distance_of_three() {
        let a_to_h = [0, 1, 2, 3, 4, 5, 6, 7].map(NodeId);
        let owners = grown(&a_to_h, size(16)).unwrap();
        assert_eq!(owners, [1, 0, 2, 1, 3, 2, 4, 3, 5, 4, 6, 5, 7, 6, 0, 7].map(NodeId));
        let owners = grown(&a_to_h, size(128)).unwrap();
        let is_apart = |at: usize| (1..DISTANCE_GROWN).all(|step| owners[at] != owners[(at + step) % 128]);
        assert!((0..128).all(is_apart));
        assert!(grown(&a_to_h[..7], size(16)).is_err());
        assert_eq!(grown(&owners, size(64)), Err(Error::Sizes(128, 64)));
    }

    #[test]
    fn short_lists_move() {
        let a_to_h = [0, 1, 2, 3, 4, 5, 6, 7].map(NodeId);
        let owners = grown(&a_to_h, size(16)).unwrap();
        let copies = |n_val| {
            let Moved { copies, of, .. } = moved(&a_to_h, &owners, n_val);
            (copies, of)
        };
        assert_eq!([1, 2, 3, 4].map(copies), [(8, 16), (8, 32), (0, 48), (0, 64)]);
    }
}
