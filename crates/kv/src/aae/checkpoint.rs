//! Trees as they are kept on disk (docs/formats/trees.md), so that they outlive a process: records, the first of which
//! tells all that there is, and each later one what is different from the one before.
//!
//! ```text
//! version u32 | partitions u32 | n_vals u32 | parts
//! ```
//!
//! A tree is told whole, or as a [`Delta`]: so what is written for a change does not depend on how many keys there are.
//!
//! Left out: where the records lie, and their checksums: the store has a log for them.

use super::TreeId;
use super::tree::{Axis, BITS_MAX, BITS_MIN, CHUNK, Segments, Tree};
use bytes::{Buf, Bytes};
use std::collections::{BTreeMap, BTreeSet};

/// Versions 1 and 2 have no columns: what they tell is not taken, and trees are made anew.
const VERSION: u32 = 3;

/// The parts of a record.
const ANEW: u8 = 0;
const GONE: u8 = 1;
const CAME: u8 = 2;
const TREE: u8 = 3;
const DELTA: u8 = 4;

/// What trees are of: trees of anything else are none of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Partitions of the ring.
    pub partitions: u32,
    /// A sum over the numbers of replicas of all buckets.
    pub n_vals: u32,
}

/// What has changed in a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    keys: i64,
    unsure: bool,
    /// Places of keys, and the XOR of leaves before and after.
    changes: Vec<(u32, u32)>,
}

impl Delta {
    /// The key at this place goes from one leaf to another. `unsure` if it may have had another one than that.
    #[inline]
    pub fn change(&mut self, place: u32, old: Option<u32>, new: Option<u32>, unsure: bool) {
        self.keys += i64::from(new.is_some()) - i64::from(old.is_some());
        self.unsure |= unsure;
        let change = old.unwrap_or(0) ^ new.unwrap_or(0);
        if change != 0 {
            self.changes.push((place, change));
        }
    }

    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.changes.capacity() * size_of::<(u32, u32)>()
    }

    /// True if nothing has changed.
    pub fn is_empty(&self) -> bool {
        *self == Delta::default()
    }

    /// Whether something was changed that may have been another.
    pub fn is_unsure(&self) -> bool {
        self.unsure
    }

    /// Does it to a tree.
    pub fn apply(&self, tree: &mut Tree) {
        tree.change_many(self.keys, &self.changes);
    }
}

/// Writes a record.
pub struct RecordWriter(Vec<u8>);

impl RecordWriter {
    /// One that tells what has changed, or, if `anew`, all that there is.
    pub fn new(scope: Scope, anew: bool) -> RecordWriter {
        let mut out = Vec::new();
        [VERSION, scope.partitions, scope.n_vals].iter().for_each(|it| out.extend(it.to_le_bytes()));
        if anew {
            out.push(ANEW);
        }
        RecordWriter(out)
    }

    /// A partition has no trees any more.
    pub fn gone(&mut self, first: u16) {
        self.0.push(GONE);
        self.0.extend(first.to_le_bytes());
    }

    /// A partition has trees: none but those that follow.
    pub fn came(&mut self, first: u16) {
        self.0.push(CAME);
        self.0.extend(first.to_le_bytes());
    }

    /// A tree is this one.
    pub fn tree(&mut self, id: TreeId, tree: &Tree, unsure: bool) {
        self.head(TREE, id, unsure);
        self.0.push(u8::try_from(tree.bits()).expect("a tree tells 20 bits apart at most"));
        self.0.extend(tree.keys().to_le_bytes());
        [Axis::Rows, Axis::Columns].into_iter().for_each(|axis| self.segments(tree.segments(axis)));
    }

    fn segments(&mut self, segments: &Segments) {
        let count_at = self.0.len();
        self.0.extend([0; 4]);
        let mut count = 0_u32;
        for (number, chunk) in segments.chunks() {
            self.0.extend(number.to_le_bytes());
            chunk.iter().for_each(|hash| self.0.extend(hash.to_le_bytes()));
            count += 1;
        }
        self.0[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
    }

    /// A tree has changed so.
    pub fn delta(&mut self, id: TreeId, delta: &Delta) {
        self.head(DELTA, id, delta.unsure);
        self.0.extend(delta.keys.to_le_bytes());
        let count = u32::try_from(delta.changes.len()).expect("a list is cut long before");
        self.0.extend(count.to_le_bytes());
        for (place, change) in &delta.changes {
            self.0.extend(place.to_le_bytes());
            self.0.extend(change.to_le_bytes());
        }
    }

    fn head(&mut self, part: u8, id: TreeId, unsure: bool) {
        self.0.push(part);
        self.0.extend(id.first.to_le_bytes());
        self.0.extend(id.n_val.to_le_bytes());
        self.0.extend(id.day.to_le_bytes());
        self.0.push(unsure.into());
    }

    /// The record.
    pub fn finish(self) -> Bytes {
        self.0.into()
    }
}

/// Trees that records tell of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// What they are of.
    pub scope: Scope,
    /// The partitions that have trees.
    pub whole: BTreeSet<u16>,
    /// Trees that are not empty, and whether each was changed by a write that did not know what was there before.
    pub trees: BTreeMap<TreeId, (Tree, bool)>,
}

impl Checkpoint {
    /// What records tell of, in their order; `None` if they are damaged, or the first tells of changes.
    pub fn of(records: &[Bytes]) -> Option<Checkpoint> {
        let mut all = Checkpoint::default();
        for (at, record) in records.iter().enumerate() {
            all.read(record, at == 0)?;
        }

        if cfg!(debug_assertions) {
            all.invariants();
        }
        (!records.is_empty()).then_some(all)
    }

    /// Asserts that the trees fit the partitions.
    pub fn invariants(&self) {
        for (id, (tree, _)) in &self.trees {
            debug_assert!(self.whole.contains(&id.first), "a tree is of a partition that has trees");
            debug_assert!(!tree.is_empty(), "a tree without keys is not kept");
        }
    }

    /// One record that tells of all.
    pub fn record(&self) -> Bytes {
        let mut out = RecordWriter::new(self.scope, true);
        for &first in &self.whole {
            out.came(first);
            let of = |n_val, day| TreeId { first, n_val, day };
            for (id, (tree, unsure)) in self.trees.range(of(0, 0)..=of(u32::MAX, u32::MAX)) {
                out.tree(*id, tree, *unsure);
            }
        }
        out.finish()
    }

    fn read(&mut self, mut record: &[u8], is_first: bool) -> Option<()> {
        let bytes = &mut record;
        let version = bytes.try_get_u32_le().ok()?;
        if version != VERSION {
            return None;
        }
        let scope = Scope { partitions: bytes.try_get_u32_le().ok()?, n_vals: bytes.try_get_u32_le().ok()? };
        let is_anew = bytes.first() == Some(&ANEW);
        if is_anew {
            *self = Checkpoint { scope, ..Checkpoint::default() };
            bytes.advance(1);
        } else if is_first || scope != self.scope {
            return None;
        }
        while !bytes.is_empty() {
            match bytes.get_u8() {
                GONE => self.forget(bytes.try_get_u16_le().ok()?),
                CAME => {
                    let first = bytes.try_get_u16_le().ok()?;
                    self.forget(first);
                    self.whole.insert(first);
                }
                TREE => self.read_tree(bytes)?,
                DELTA => self.read_delta(bytes)?,
                _ => return None,
            }
        }
        Some(())
    }

    fn forget(&mut self, first: u16) {
        self.trees.retain(|id, _| id.first != first);
        self.whole.remove(&first);
    }

    fn read_id(&self, bytes: &mut &[u8]) -> Option<(TreeId, bool)> {
        let (first, n_val) = (bytes.try_get_u16_le().ok()?, bytes.try_get_u32_le().ok()?);
        let day = bytes.try_get_u32_le().ok()?;
        let unsure = bytes.try_get_u8().ok()?;
        (unsure <= 1 && self.whole.contains(&first)).then_some((TreeId { first, n_val, day }, unsure == 1))
    }

    fn read_tree(&mut self, bytes: &mut &[u8]) -> Option<()> {
        let (id, unsure) = self.read_id(bytes)?;
        let bits = u32::from(bytes.try_get_u8().ok()?);
        let keys = bytes.try_get_u64_le().ok()?;
        if !(BITS_MIN..=BITS_MAX).contains(&bits) {
            return None;
        }
        let (rows, columns) = (read_segments(bytes, bits)?, read_segments(bytes, bits)?);
        self.put(id, Tree::of_segments(keys, rows, columns)?, unsure);
        Some(())
    }

    fn read_delta(&mut self, bytes: &mut &[u8]) -> Option<()> {
        let (id, unsure) = self.read_id(bytes)?;
        let (keys, count) = (bytes.try_get_i64_le().ok()?, bytes.try_get_u32_le().ok()?);
        let mut delta = Delta { keys, ..Delta::default() };
        for _ in 0..count {
            delta.changes.push((bytes.try_get_u32_le().ok()?, bytes.try_get_u32_le().ok()?));
        }
        let (mut tree, was_unsure) = self.trees.remove(&id).unwrap_or_default();
        delta.apply(&mut tree);
        self.put(id, tree, unsure || was_unsure);
        Some(())
    }

    fn put(&mut self, id: TreeId, tree: Tree, unsure: bool) {
        match tree.is_empty() {
            true => drop(self.trees.remove(&id)),
            false => drop(self.trees.insert(id, (tree, unsure))),
        }
    }
}

fn read_segments(bytes: &mut &[u8], bits: u32) -> Option<Segments> {
    let mut segments = Segments::new(bits);
    for _ in 0..bytes.try_get_u32_le().ok()? {
        let number = bytes.try_get_u32_le().ok()?;
        let mut chunk = [0; CHUNK];
        for hash in &mut chunk {
            *hash = bytes.try_get_u32_le().ok()?;
        }
        segments.put_chunk(number, &chunk)?;
    }
    Some(segments)
}

/// One record of many, for the store's log.
pub fn join(records: &[Bytes]) -> Option<Bytes> {
    Checkpoint::of(records).map(|all| all.record())
}

#[cfg(test)]
mod tests;
