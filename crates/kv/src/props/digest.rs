//! What two nodes compare to find out whether their properties differ, and where, without telling each other all of
//! them.
//!
//! 1. A change in force has a hash of its ledger key and its stored form. The key decides its leaf, one of [`LEAVES`].
//! 2. A leaf is the sum of the hashes that fall into it, and the root the sum of all: sums do not depend on the order
//!    in which changes came, and one that goes is taken off again.
//! 3. Roots that are equal say that nothing differs. Else the leaves say where: a Merkle tree of two levels.
//!
//! Invariant: the same changes in force have the same digest, in every program that stores them in the same form.
//!
//! Left out: whoever looks for two tables with one digest finds them. Members of a cluster trust each other.

use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::PropsChange;

/// Leaves: all of them are 2 KiB, and one of them has forty of the most buckets that there can be.
pub const LEAVES: usize = 256;

/// The sums over all changes in force. A clone costs nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    root: u64,
    leaves: Arc<[u64; LEAVES]>,
}

impl Default for Digest {
    fn default() -> Digest {
        Digest { root: 0, leaves: Arc::new([0; LEAVES]) }
    }
}

impl Digest {
    /// Asserts that the sums fit each other.
    pub(super) fn invariants(&self) {
        let sum = self.leaves.iter().fold(0, |sum: u64, leaf| sum.wrapping_add(*leaf));
        debug_assert_eq!(self.root, sum, "the root is the sum of the leaves");
    }

    pub(super) fn root(&self) -> u64 {
        self.root
    }

    pub(super) fn leaves(&self) -> &[u64] {
        &self.leaves[..]
    }

    /// A change has come into force.
    pub(super) fn add(&mut self, change: &PropsChange) {
        let (leaf, hash) = hash(change);
        self.root = self.root.wrapping_add(hash);
        let sum = &mut Arc::make_mut(&mut self.leaves)[leaf];
        *sum = sum.wrapping_add(hash);
    }

    /// One that was is not any more.
    pub(super) fn take_off(&mut self, change: &PropsChange) {
        let (leaf, hash) = hash(change);
        self.root = self.root.wrapping_sub(hash);
        let sum = &mut Arc::make_mut(&mut self.leaves)[leaf];
        *sum = sum.wrapping_sub(hash);
    }

    /// Whether a change is of a leaf that is another here than among these. One that they lack differs.
    pub(super) fn is_unlike(&self, leaves: &[u64], change: &PropsChange) -> bool {
        let leaf = leaf_of(xxh3_64(&change.ledger_key()));
        leaves.get(leaf) != Some(&self.leaves[leaf])
    }
}

fn hash(change: &PropsChange) -> (usize, u64) {
    let key = xxh3_64(&change.ledger_key());
    (leaf_of(key), xxh3_64_with_seed(&change.encode(), key))
}

fn leaf_of(key: u64) -> usize {
    usize::from(key.to_le_bytes()[0])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use crate::bucket::Bucket;
    use crate::props::{BucketProps, BucketTable, Prop, Resets, StampedProps};
    use bytes::Bytes;

    fn change(name: u32, stamp: u64, n: u32) -> PropsChange {
        let props = BucketProps::default().with(&[Prop::NVal(n)]).unwrap();
        let bucket = Bucket::untyped(Bytes::from(format!("bucket {name}")));
        PropsChange::Bucket(bucket, StampedProps { stamp, props: Some(Arc::new(props)) })
    }

    #[test]
    fn the_order_of_changes_does_not_count_and_what_is_over_leaves_nothing() {
        let (mut one, mut other) = (BucketTable::default(), BucketTable::default());
        for name in 0..1_000 {
            one.apply(change(name, 1, 2));
            one.apply(change(name, 2, 3));
            other.apply(change(999 - name, 2, 3));
            other.apply(change(999 - name, 1, 2));
        }
        assert_eq!(
            (one.digest(Resets::Counted), one.leaves(Resets::Counted)),
            (other.digest(Resets::Counted), other.leaves(Resets::Counted))
        );
        assert_eq!(one.changes_unlike(Resets::Counted, other.leaves(Resets::Counted)).count(), 0);
        let first = change(0, 2, 3);
        other.take_back(&first, None);
        assert_ne!(one.digest(Resets::Counted), other.digest(Resets::Counted));
        other.apply(first);
        assert_eq!(one.digest(Resets::Counted), other.digest(Resets::Counted));
        (0..1_000).for_each(|name| other.take_back(&change(name, 2, 3), None));
        assert_eq!(
            (other.digest(Resets::Counted), other.leaves(Resets::Counted)),
            (0, BucketTable::default().leaves(Resets::Counted))
        );
    }

    #[test]
    fn leaves_find_what_differs_and_little_beside_it() {
        let (mut one, mut other) = (BucketTable::default(), BucketTable::default());
        for name in 0..10_000 {
            one.apply(change(name, 1, 2));
            other.apply(change(name, 1, 2));
        }
        other.apply(change(77, 2, 3));
        let found: Vec<PropsChange> =
            other.changes_unlike(Resets::Counted, one.leaves(Resets::Counted)).collect();
        assert!(found.contains(&change(77, 2, 3)) && found.len() < 80, "{}", found.len());
        assert_eq!(
            other.changes_unlike(Resets::Counted, &[]).count(),
            10_000,
            "who says nothing is told everything"
        );
    }

    #[test]
    fn the_sums_are_what_they_always_were() {
        // XXH3-64 of `encode()` with that of the ledger key as its seed, by the reference implementation in C.
        let mut table = BucketTable::default();
        let reset = StampedProps { stamp: 0x0102, props: None };
        table.apply(PropsChange::Bucket(Bucket::untyped(Bytes::from_static(b"b")), reset));
        assert_eq!(table.digest(Resets::Counted), 0x1605_6EAE_E34C_3C0A);
        let leaf = table.leaves(Resets::Counted).iter().position(|sum| *sum != 0).unwrap();
        assert_eq!((leaf, table.leaves(Resets::Counted)[leaf]), (13, table.digest(Resets::Counted)));
    }

    #[test]
    fn two_changes_at_the_same_moment_end_alike_everywhere() {
        let (one, other) = (change(1, 5, 2), change(1, 5, 3));
        let ended = |changes: [&PropsChange; 2]| {
            let mut table = BucketTable::default();
            let news = changes.map(|change| {
                let is_news = table.is_news(change);
                table.apply(change.clone());
                is_news
            });
            (table.digest(Resets::Counted), table.in_force(&one), news)
        };
        let (first, second) = (ended([&one, &other]), ended([&other, &one]));
        assert_eq!((first.0, &first.1), (second.0, &second.1));
        assert!(first.2[1] != second.2[1], "one of both holds over the other");
    }
}
