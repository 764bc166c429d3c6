//! A tree of hashes over the keys of one partition, in two levels: chunks of segments, which are there once they hold
//! something.
//!
//! A key has a *place*: the first 32 bits of its hash. Its segment is the first [`Tree::bits`] of them, and a segment's
//! hash is the XOR of the [`leaf`] hashes of its keys. So a write changes a segment by the leaf before and the leaf
//! after, in any order; two trees of different keys are merged by XOR; and a *group*, of all keys whose place begins
//! with fewer bits, has the XOR of its segments as hash: trees that tell apart different numbers of bits are compared
//! by the fewer.
//!
//! These segments are *rows*. Of the same keys there are as many *columns*, by as many bits of their places that begin
//! [`CROSS_BITS`] further on. A key with a different head is seen in its row and in its column: where such rows and
//! columns cross there is hardly another key (decision 67).
//!
//! A tree is made with four to eight keys to a row, and is *crowded* with sixteen: then it is to be made anew, finer.
//! So a key takes half a byte to two.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The coarsest tree: half a kilobyte when all of it is used, and the keys of a segment are few even where a partition
/// has grown since.
pub const BITS_MIN: u32 = 7;

/// The finest: a fold over segments tells a million from each other by what tables say, and no more. Eight megabytes.
pub const BITS_MAX: u32 = 20;

/// By how many bits columns begin behind rows: in so many columns are the keys of a row, of which there are fewer.
pub const CROSS_BITS: u32 = 5;

/// Keys to a row in a new tree, at most.
const KEYS_NEW: u64 = 8;
/// Keys to a row beyond which a tree is crowded.
const KEYS_CROWDED: u64 = 16;

/// Segments that are there together.
const CHUNK_BITS: u32 = 5;
pub(super) const CHUNK: usize = 1 << CHUNK_BITS;
const _: () = assert!(BITS_MIN >= CHUNK_BITS && BITS_MAX <= 32, "a tree has whole chunks");
const _: () =
    assert!(BITS_MIN >= CROSS_BITS && BITS_MAX + CROSS_BITS <= 32, "rows and columns share bits of a place");

/// The hash of a key at this place with this head.
#[inline]
pub fn leaf(place: u32, head: &[u8]) -> u32 {
    (xxh3_64_with_seed(head, place.into()) >> 32) as u32
}

/// By which bits of their places keys are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The first.
    Rows,
    /// Those behind the first `CROSS_BITS`.
    Columns,
}

impl Axis {
    /// A place whose first bits are those that group it.
    fn turn(self, place: u32) -> u32 {
        match self {
            Axis::Rows => place,
            Axis::Columns => place << CROSS_BITS,
        }
    }
}

/// How keys are grouped: by so many bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// Which.
    pub axis: Axis,
    /// How many.
    pub bits: u32,
}

/// A tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    bits: u32,
    keys: u64,
    root: u32,
    rows: Segments,
    columns: Segments,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new(BITS_MIN)
    }
}

impl Tree {
    /// An empty one that tells so many bits apart.
    ///
    /// # Panics
    /// If they are fewer than [`BITS_MIN`] or more than [`BITS_MAX`].
    pub fn new(bits: u32) -> Tree {
        assert!((BITS_MIN..=BITS_MAX).contains(&bits), "a tree tells 7 to 20 bits apart");
        Tree { bits, keys: 0, root: 0, rows: Segments::new(bits), columns: Segments::new(bits) }
    }

    /// Asserts that rows and columns fit the tree. Costs the same for trees of any size.
    #[inline]
    pub fn invariants(&self) {
        let bits = (self.rows.bits, self.columns.bits);
        debug_assert_eq!(bits, (self.bits, self.bits), "rows and columns are as fine as the tree");
        for chunks in [self.rows.chunks.len(), self.columns.chunks.len()] {
            let is_whole = chunks == 0 || chunks == 1 << (self.bits - CHUNK_BITS);
            debug_assert!(is_whole, "there is a place for each chunk, or for none");
        }
    }

    /// How many bits it tells apart, of rows and of columns.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// How many keys it has.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.keys == 0 && self.root == 0
    }

    /// The hash of all.
    pub fn root(&self) -> u32 {
        self.root
    }

    /// The key at this place goes from one leaf to another; `None` is that it is not there.
    #[inline]
    pub fn change(&mut self, place: u32, old: Option<u32>, new: Option<u32>) {
        self.keys = (self.keys + u64::from(new.is_some())).saturating_sub(u64::from(old.is_some()));
        let change = old.unwrap_or(0) ^ new.unwrap_or(0);
        if change != 0 {
            self.xor(place, change);
        }
    }

    /// Places change by these hashes, and there are so many keys more.
    pub(super) fn change_many(&mut self, keys: i64, changes: &[(u32, u32)]) {
        self.keys = self.keys.saturating_add_signed(keys);
        changes.iter().for_each(|&(place, change)| self.xor(place, change));
    }

    fn xor(&mut self, place: u32, change: u32) {
        self.root ^= change;
        for axis in [Axis::Rows, Axis::Columns] {
            let number = axis.turn(place) >> (32 - self.bits);
            *self.segments_mut(axis).get_mut(number) ^= change;
        }

        if cfg!(debug_assertions) {
            self.invariants();
        }
    }

    pub(super) fn segments(&self, axis: Axis) -> &Segments {
        match axis {
            Axis::Rows => &self.rows,
            Axis::Columns => &self.columns,
        }
    }

    fn segments_mut(&mut self, axis: Axis) -> &mut Segments {
        match axis {
            Axis::Rows => &mut self.rows,
            Axis::Columns => &mut self.columns,
        }
    }

    /// One of these segments and so many keys; `None` if they are not of the same keys.
    pub(super) fn of_segments(keys: u64, rows: Segments, columns: Segments) -> Option<Tree> {
        let root = rows.group(0, 0);
        let is_one = rows.bits == columns.bits && columns.group(0, 0) == root;
        is_one.then_some(Tree { bits: rows.bits, keys, root, rows, columns })
    }

    /// The hash of the row of this number, of 2^`bits`. Of a finer one than the tree tells apart nothing is known: 0.
    pub fn group(&self, number: u32, bits: u32) -> u32 {
        self.rows.group(number, bits)
    }

    /// The same of a row or a column.
    pub fn group_by(&self, by: Grouping, number: u32) -> u32 {
        self.segments(by.axis).group(number, by.bits)
    }

    /// The rows of 2^`bits` that begin with the `under_bits` of `under`, with their hashes.
    pub fn groups(&self, under: u32, under_bits: u32, bits: u32) -> Vec<(u32, u32)> {
        let below = bits.saturating_sub(under_bits);
        let first = under << below;
        (first..first + (1 << below)).map(|number| (number, self.group(number, bits))).collect()
    }

    /// Adds the keys of another, which has none that this one has. The result tells apart what both do.
    pub fn merge(&mut self, other: &Tree) {
        let mut merged = Tree { keys: self.keys + other.keys, ..Tree::new(self.bits.min(other.bits)) };
        for tree in [&*self, other] {
            merged.root ^= tree.root;
            merged.rows.add(&tree.rows);
            merged.columns.add(&tree.columns);
        }
        debug_assert_eq!(merged.rows.group(0, 0), merged.root, "the root is the hash of all rows");
        debug_assert_eq!(merged.columns.group(0, 0), merged.root, "rows and columns are of the same keys");
        *self = merged;
    }

    /// The same with as many segments as its keys are worth, if it has more.
    pub fn fitted(mut self) -> Tree {
        let bits = (BITS_MIN..self.bits).find(|&bits| self.keys <= KEYS_NEW << bits).unwrap_or(self.bits);
        if bits < self.bits {
            self.merge(&Tree::new(bits));
        }
        self
    }

    /// Whether it has so many keys that it is to be made anew with more segments.
    pub fn is_crowded(&self) -> bool {
        self.bits < BITS_MAX && self.keys > KEYS_CROWDED << self.bits
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.rows.bytes() + self.columns.bytes()
    }
}

/// The columns in which keys of a row, of 2^`bits`, may be, of as many; and where each crosses it: a group of places
/// that begin with [`CROSS_BITS`] more bits. None where there are fewer bits than that.
pub fn across(row: u32, bits: u32) -> impl Iterator<Item = (u32, u32)> {
    let shared = bits.checked_sub(CROSS_BITS).map(|shared| row & ((1 << shared) - 1));
    let of = move |shared: u32| {
        (0..1 << CROSS_BITS).map(move |at| ((shared << CROSS_BITS) | at, (row << CROSS_BITS) | at))
    };
    shared.into_iter().flat_map(of)
}

/// All rows of a tree, or all its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segments {
    bits: u32,
    /// None at all while all are 0.
    chunks: Vec<Option<Box<[u32; CHUNK]>>>,
}

impl Segments {
    pub(super) fn new(bits: u32) -> Segments {
        Segments { bits, chunks: Vec::new() }
    }

    /// The chunks that are there, with their numbers.
    pub(super) fn chunks(&self) -> impl Iterator<Item = (u32, &[u32; CHUNK])> {
        (0..).zip(&self.chunks).filter_map(|(number, chunk)| Some((number, chunk.as_deref()?)))
    }

    /// Puts a chunk in its place, where none is; `None` if there is no such place.
    pub(super) fn put_chunk(&mut self, number: u32, hashes: &[u32; CHUNK]) -> Option<()> {
        if number >> (self.bits - CHUNK_BITS) != 0 {
            return None;
        }
        for (segment, hash) in (number << CHUNK_BITS..).zip(hashes) {
            *self.get_mut(segment) ^= hash;
        }
        Some(())
    }

    fn get_mut(&mut self, segment: u32) -> &mut u32 {
        if self.chunks.is_empty() {
            self.chunks.resize(1 << (self.bits - CHUNK_BITS), None);
        }
        let chunk = self.chunks[index(segment >> CHUNK_BITS)].get_or_insert_with(|| Box::new([0; CHUNK]));
        &mut chunk[index(segment) % CHUNK]
    }

    fn group(&self, number: u32, bits: u32) -> u32 {
        let Some(below) = self.bits.checked_sub(bits).filter(|_| u64::from(number) < 1 << bits) else {
            return 0;
        };
        if self.chunks.is_empty() {
            return 0;
        }
        let first = u64::from(number) << below;
        let last = first + (1 << below) - 1;
        let (first, last) = (usize::try_from(first).unwrap_or(0), usize::try_from(last).unwrap_or(0));
        let chunks = &self.chunks[first / CHUNK..=last / CHUNK];
        if below < CHUNK_BITS {
            let xor = |chunk: &[u32; CHUNK]| chunk[first % CHUNK..=last % CHUNK].iter().fold(0, |a, b| a ^ b);
            return chunks[0].as_deref().map_or(0, xor);
        }
        chunks.iter().flatten().flat_map(|chunk| chunk.iter()).fold(0, |a, b| a ^ b)
    }

    /// Adds finer ones, or as fine.
    fn add(&mut self, other: &Segments) {
        for (number, chunk) in other.chunks() {
            for (segment, &hash) in (number << CHUNK_BITS..).zip(chunk).filter(|(_, hash)| **hash != 0) {
                *self.get_mut(segment >> (other.bits - self.bits)) ^= hash;
            }
        }
    }

    fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().flatten().count();
        self.chunks.capacity() * size_of::<Option<Box<[u32; CHUNK]>>>() + chunks * size_of::<[u32; CHUNK]>()
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).expect("an address has at least 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    /// A tree of so many random keys.
    fn random(bits: u32, keys: usize, seed: u64) -> (Tree, Vec<(u32, u32)>) {
        let mut rng = SplitMix64::new(seed);
        let mut tree = Tree::new(bits);
        let leaves: Vec<(u32, u32)> =
            (0..keys).map(|_| (rng.next_u64() as u32, rng.next_u64() as u32)).collect();
        leaves.iter().for_each(|&(place, leaf)| tree.change(place, None, Some(leaf)));
        (tree, leaves)
    }

    #[test]
    fn an_empty_tree_takes_no_memory_and_is_empty_again() {
        let (mut tree, leaves) = random(12, 100, 1);
        assert!(tree.root() != 0 && tree.bytes() > 0 && tree.keys() == 100);
        for (place, leaf) in leaves {
            tree.change(place, Some(leaf), None);
        }
        assert_eq!((tree.root(), tree.keys()), (0, 0));
        assert!((0..1 << 12).all(|segment| tree.group(segment, 12) == 0));
        assert_eq!(Tree::default().bytes(), 0);
    }

    #[test]
    fn the_order_of_changes_does_not_count() {
        let (tree, leaves) = random(9, 500, 2);
        let mut other = Tree::new(9);
        for &(place, leaf) in leaves.iter().rev() {
            // By way of another version.
            other.change(place, None, Some(!leaf));
            other.change(place, Some(!leaf), Some(leaf));
        }
        assert_eq!(tree, other);
    }

    #[test]
    fn groups_are_the_xor_of_what_is_in_them() {
        let (tree, leaves) = random(11, 3_000, 3);
        for bits in [0, 1, 4, 6, 8, 11] {
            let groups = tree.groups(0, 0, bits);
            assert_eq!(groups.len(), 1 << bits);
            for (number, hash) in groups {
                let is_in = |place: u32| bits == 0 || place >> (32 - bits) == number;
                let leaves = leaves.iter().filter(|(place, _)| is_in(*place));
                assert_eq!(hash, leaves.fold(0, |hash, (_, leaf)| hash ^ leaf), "{number} of 2^{bits}");
            }
        }
        assert_eq!(tree.groups(3, 4, 6), (12..16).map(|at| (at, tree.group(at, 6))).collect::<Vec<_>>());
        assert_eq!((tree.group(0, 0), tree.group(1, 12), tree.group(9, 3)), (tree.root(), 0, 0));
    }

    #[test]
    fn a_key_is_where_its_row_and_its_column_cross() {
        for bits in [BITS_MIN, 12, BITS_MAX] {
            let (mut tree, leaves) = random(bits, 5_000, 9);
            let before = tree.clone();
            let changed: Vec<u32> = leaves[..4].iter().map(|(place, _)| *place).collect();
            (77..).zip(&changed).for_each(|(leaf, &place)| tree.change(place, None, Some(leaf)));
            for fewer in [7, bits] {
                let differ = |axis: Axis, number: &u32| {
                    let by = Grouping { axis, bits: fewer };
                    tree.group_by(by, *number) != before.group_by(by, *number)
                };
                let rows: Vec<u32> = (0..1 << fewer).filter(|row| differ(Axis::Rows, row)).collect();
                let crossings: Vec<u32> = rows
                    .iter()
                    .flat_map(|&row| across(row, fewer))
                    .filter(|(column, _)| differ(Axis::Columns, column))
                    .map(|(_, crossing)| crossing)
                    .collect();
                let place = |place: &u32| place >> (32 - fewer - CROSS_BITS);
                assert!(changed.iter().map(place).all(|at| crossings.contains(&at)), "{fewer} of {bits}");
                if fewer > 10 {
                    let there = leaves.iter().filter(|(at, _)| crossings.contains(&place(at)));
                    assert!(there.count() <= 5, "few others");
                }
            }
        }
        assert_eq!((across(1, 3).count(), across(1, 7).count()), (0, 32));
    }

    #[test]
    fn trees_merge_by_what_both_tell_apart() {
        let (mut one, mut leaves) = random(12, 300, 4);
        let (other, more) = random(9, 200, 5);
        one.merge(&other);
        leaves.extend(more);
        let mut all = Tree::new(9);
        leaves.iter().for_each(|&(place, leaf)| all.change(place, None, Some(leaf)));
        assert_eq!(one, all);
    }

    #[test]
    fn a_fitted_tree_has_at_most_two_bytes_for_a_key() {
        for keys in [1_000, 10_000, 100_000] {
            let tree = random(BITS_MAX, keys, 6).0.fitted();
            let bytes = tree.bytes() as f64 / keys as f64;
            assert!((1.0..=2.2).contains(&bytes), "{bytes} a key of {keys}");
            assert!(!tree.is_crowded());
            assert_eq!(tree.root(), random(10, keys, 6).0.root());
        }
        assert!(random(8, 4_097, 7).0.is_crowded() && !random(8, 4_096, 7).0.is_crowded());
        assert!(!random(BITS_MIN, 10, 7).0.fitted().is_crowded());
    }

    #[test]
    fn a_leaf_is_of_the_place_and_the_head() {
        assert_eq!(leaf(1, b"head"), leaf(1, b"head"));
        assert!(leaf(1, b"head") != leaf(2, b"head") && leaf(1, b"head") != leaf(1, b"heae"));
    }
}
