//! More partitions, or fewer, without rewriting data.
//!
//! A partition is a prefix of the position's bits, so one partition of a ring is the same positions as two of a ring twice as
//! large. A ring is *split* by giving each of these to the owner that there was: its preference lists name the
//! same nodes as before, since a node that comes up again is skipped, so nothing moves and the new ring can be published at
//! once. Then a claim at the new size spreads them, by transfers.
//!
//! The way back is the same in reverse: owners are claimed for the smaller ring ([`Ring::owners_at`]), transfers lead to that
//! claim [`split`](Ring::split) to the size there is, and then the ring is *merged*, which again moves nothing.
//!
//! A node's shards do not notice: a shard is chosen by as many bits of the position as the ring had when the store was
//! made ([`shard_of`](crate::shard_of)).

use std::sync::Arc;

use crate::error::Error;
use crate::member::NodeId;
use crate::ring::{Ring, RingVersion};
use crate::size::{Partition, RingSize};

impl RingSize {
    /// The partition of a ring of this size that holds the first position of `partition` of a ring of size `of`: the one that
    /// it is a part of, or the first of its parts.
    pub fn convert(self, partition: Partition, of: RingSize) -> Partition {
        match self.bits() >= of.bits() {
            true => Partition(partition.0 << (self.bits() - of.bits())),
            false => Partition(partition.0 >> (of.bits() - self.bits())),
        }
    }
}

impl Ring {
    /// The same ring with at least as many partitions.
    ///
    /// # Errors
    /// [`Error::Sizes`] if `size` is smaller.
    pub fn split(&self, version: RingVersion, size: RingSize) -> Result<Ring, Error> {
        if size < self.size() {
            return Err(Error::Sizes(self.size().partitions(), size.partitions()));
        }
        Ring::new(version, size, Arc::clone(self.members()), self.owners_at(size))
    }

    /// The same ring with at most as many partitions.
    ///
    /// # Errors
    /// [`Error::Sizes`] if `size` is larger, [`Error::Unmerged`] if partitions that would be one have several owners.
    pub fn merge(&self, version: RingVersion, size: RingSize) -> Result<Ring, Error> {
        if size > self.size() {
            return Err(Error::Sizes(self.size().partitions(), size.partitions()));
        }
        let owners = self.owners_at(size);
        let differs = |partition: &Partition| {
            self.owner(*partition) != owners[size.convert(*partition, self.size()).0 as usize]
        };
        match self.size().all().find(differs) {
            Some(partition) => Err(Error::Unmerged(partition, size.partitions())),
            None => Ring::new(version, size, Arc::clone(self.members()), owners),
        }
    }

    /// The owners as a ring of another size has them, by partition: where partitions would be one, the node that owns most of
    /// them, and of several the one that comes first.
    pub fn owners_at(&self, size: RingSize) -> Box<[NodeId]> {
        if size >= self.size() {
            return size.all().map(|partition| self.owner(self.size().convert(partition, size))).collect();
        }
        let parts = self.owners().chunks(self.owners().len() / size.all().len());
        let most = |part: &[NodeId]| {
            let count = |node: &NodeId| part.iter().filter(|other| *other == node).count();
            // Of equals the last is the maximum: hence the reverse.
            part.iter().rev().copied().max_by_key(count).expect("a part is not empty")
        };
        parts.map(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use base::Monotonic;
    use proptest::prelude::*;

    use super::*;
    use crate::claim::Claimed;
    use crate::member::Members;
    use crate::nodes::NodeSet;
    use crate::position::{Position, shard_of};
    use crate::transfer::{Limits, Transfers};

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
        fn a_split_moves_nothing_and_can_be_taken_back(
            ring in any_ring(6), more in 0u32..4, positions in prop::collection::vec(any::<u64>(), 20), n_val in 1usize..8,
        ) {
            let split = ring.split(RingVersion(2), size(ring.size().partitions() << more)).unwrap();
            for position in positions.into_iter().map(Position) {
                prop_assert_eq!(nodes(&ring, position, n_val), nodes(&split, position, n_val));
                let coarse = ring.size().convert(split.size().partition(position), split.size());
                prop_assert_eq!(coarse, ring.size().partition(position));
                // The store has as many bits as the ring had when it was made.
                let prefix = position.prefix(ring.size().bits());
                prop_assert_eq!(u32::from(prefix), coarse.0);
                prop_assert!(shard_of(prefix, 3) < 3);
            }
            prop_assert_eq!(split.merge(RingVersion(1), ring.size()).unwrap(), ring);
        }
    }

    #[test]
    fn what_has_several_owners_is_not_merged() {
        let owners = [0, 0, 1, 1, 2, 2, 0, 1, 0, 0, 1, 1, 2, 2, 0, 0].map(NodeId);
        let members = Arc::new(Members::anonymous(3));
        let ring = Ring::new(RingVersion(1), size(16), members, owners.into()).unwrap();
        let error = ring.merge(RingVersion(2), size(8)).expect_err("two owners").to_string();
        assert_eq!(error, "partition 7 has another owner than those it would be one with in a ring of 8");
        assert_eq!(*ring.owners_at(size(8)), [0, 1, 2, 0, 0, 1, 2, 0].map(NodeId));
        assert!(
            ring.merge(RingVersion(2), size(32)).is_err() && ring.split(RingVersion(2), size(8)).is_err()
        );
    }

    /// From 64 partitions to 256 and back, with claims and transfers.
    #[test]
    fn a_ring_grows_and_shrinks() {
        let members = Arc::new(Members::anonymous(5));
        let claim = |owners: Option<&[NodeId]>, at: RingSize| {
            Claimed { size: at, members: &members, owners, target_n: 3 }.claim().unwrap()
        };
        let ring = |version, at, owners: Box<[NodeId]>| {
            Ring::new(RingVersion(version), at, Arc::clone(&members), owners).unwrap()
        };
        let small = ring(1, size(64), claim(None, size(64)).owners);
        let large = small.split(RingVersion(2), size(256)).unwrap();
        let spread = claim(Some(large.owners()), size(256));
        assert!(spread.shortfalls.is_empty());
        let spread = carry_out(&large, &ring(3, size(256), spread.owners));

        let again = claim(Some(&spread.owners_at(size(64))), size(64));
        assert!(again.shortfalls.is_empty());
        let again = ring(4, size(64), again.owners);
        let before = carry_out(&spread, &again.split(RingVersion(5), size(256)).unwrap());
        assert_eq!(before.merge(RingVersion(4), size(64)).unwrap(), again);
    }

    fn carry_out(from: &Ring, to: &Ring) -> Ring {
        let mut transfers = Transfers::plan(from, to, 3, Limits::default()).unwrap();
        while !transfers.is_done() {
            for begun in transfers.start(Monotonic(0), &NodeSet::new()) {
                assert!(transfers.on_copied(begun.partition, begun.to));
            }
            transfers.switch();
        }
        assert_eq!(transfers.owners(), to.owners());
        to.clone()
    }
}
