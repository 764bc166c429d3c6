//! Ranges of keys that were dropped: everything in them that is older than the drop is gone, at once.
//!
//! A drop is a range and a seq. Versions in the range with a lower seq are not shown from then on; those with a
//! higher one are, so a range can come back the moment it was dropped. Nothing is searched for and nothing is
//! written but one record in the journal. A list of drops is immutable and shared like a version of the ledger.
//!
//! A drop's life: 1. its record is appended to the journal, and readers leave out what it covers; 2. once it is
//! durable the manifest names it; merges leave out what it covers, and tables that hold nothing else are removed
//! whole; 3. when no memtable and no table can hold a version that it covers it is forgotten
//! (`store/maintenance/cut.rs`).
//!
//! Left out: an incarnation of the range beside the seq. Seqs of a store are never given twice, so "older than the
//! drop" needs no other name.
//!
//! An index entry ([`crate::index`]) is dropped by where its object's key is, too, so that a range takes its entries
//! along.
//!
//! Follows the range tombstones of Pebble and RocksDB, whose fragments [`DroppedRanges`] keeps as pieces.

use crate::entry::Seq;
use crate::index::Indexing;
use bytes::Bytes;
use std::sync::Arc;

/// Drops that may be remembered at once: one for each partition of a large ring that moves away at the same time.
/// More are refused until some have been cut out.
pub const DROPS_MAX: usize = 1024;

/// One drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeDrop {
    /// The first key.
    pub start: Bytes,
    /// The key behind the last one; empty for no end.
    pub end: Bytes,
    /// Versions before this one are gone.
    pub seq: Seq,
}

impl RangeDrop {
    /// Whether every key from `min` to `max` is in the range.
    pub fn contains(&self, min: &[u8], max: &[u8]) -> bool {
        *self.start <= *min && is_before_end(max, &self.end)
    }

    /// Whether a key from `min` to `max` can be in the range.
    pub fn overlaps(&self, min: &[u8], max: &[u8]) -> bool {
        *self.start <= *max && is_before_end(min, &self.end)
    }
}

/// All drops that are remembered.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DroppedRanges {
    /// In the order of their seqs.
    drops: Vec<RangeDrop>,
    /// The same without overlaps, in key order: where drops overlap the newest counts.
    pieces: Vec<RangeDrop>,
    /// Says whose index entries go with a range.
    indexing: Option<Indexing>,
}

impl DroppedRanges {
    /// No drop.
    pub fn none() -> Arc<DroppedRanges> {
        Arc::default()
    }

    /// These drops, in the order of their seqs, of a store that keeps no index.
    pub fn new(drops: Vec<RangeDrop>) -> Arc<DroppedRanges> {
        DroppedRanges::with_index(drops, None)
    }

    /// These drops, in the order of their seqs.
    pub fn with_index(drops: Vec<RangeDrop>, indexing: Option<Indexing>) -> Arc<DroppedRanges> {
        let mut all = DroppedRanges { indexing, ..DroppedRanges::default() };
        drops.into_iter().for_each(|drop| all.push(drop));
        Arc::new(all)
    }

    /// These and one more, which is newer.
    pub fn with(&self, drop: RangeDrop) -> Arc<DroppedRanges> {
        let (drops, pieces) = (self.drops.clone(), self.pieces.clone());
        let mut all = DroppedRanges { drops, pieces, indexing: self.indexing };
        all.push(drop);
        Arc::new(all)
    }

    /// Those up to `seq`.
    pub fn until(self: &Arc<Self>, seq: Seq) -> Arc<DroppedRanges> {
        if self.last_seq() <= seq {
            return Arc::clone(self);
        }
        self.retain(|drop| drop.seq <= seq)
    }

    /// Those for which `keep` says so.
    pub fn retain(&self, mut keep: impl FnMut(&RangeDrop) -> bool) -> Arc<DroppedRanges> {
        let kept = self.drops.iter().filter(|drop| keep(drop)).cloned().collect();
        DroppedRanges::with_index(kept, self.indexing)
    }

    /// Whether version `seq` of `key` is gone.
    #[inline]
    pub fn covers(&self, key: &[u8], seq: Seq) -> bool {
        !self.pieces.is_empty() && (self.pieces_cover(key, seq) || self.covers_object_of(key, seq))
    }

    /// Whether `key` is an index entry whose object's key is in a range that was dropped since.
    fn covers_object_of(&self, key: &[u8], seq: Seq) -> bool {
        let Some(indexing) = self.indexing.filter(|indexing| indexing.is_entry(key)) else { return false };
        // All drops may be older, and of hints or other things.
        seq < self.last_seq()
            && (indexing.object_of)(key).is_some_and(|object| self.pieces_cover(&object, seq))
    }

    /// Whether a table that holds keys from `min` to `max` may have some that `drop`, one of these, covers.
    pub fn may_cover(&self, drop: &RangeDrop, min: &[u8], max: &[u8]) -> bool {
        let takes_entries = |indexing: Indexing| {
            let (start, end) = indexing.entries;
            indexing.has_objects(&drop.start..&drop.end) && start <= max && min < end
        };
        drop.overlaps(min, max) || self.indexing.is_some_and(takes_entries)
    }

    /// The newest drop's seq; 0 if there is none.
    pub fn last_seq(&self) -> Seq {
        self.drops.last().map_or(Seq(0), |drop| drop.seq)
    }

    /// All of them, in the order of their seqs.
    pub fn iter(&self) -> impl Iterator<Item = &RangeDrop> {
        self.drops.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.drops.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.drops.is_empty()
    }

    fn pieces_cover(&self, key: &[u8], seq: Seq) -> bool {
        let after = self.pieces.partition_point(|piece| *piece.start <= *key);
        let Some(piece) = after.checked_sub(1).map(|at| &self.pieces[at]) else { return false };
        seq < piece.seq && is_before_end(key, &piece.end)
    }

    /// The newest drop takes its range from the pieces that were there.
    fn push(&mut self, drop: RangeDrop) {
        assert!(drop.seq > self.last_seq(), "drops come in the order of their seqs");
        let is_empty = !drop.end.is_empty() && drop.end <= drop.start;
        if !is_empty {
            let first = self.pieces.partition_point(|piece| !is_before_end(&drop.start, &piece.end));
            let last = self.pieces.partition_point(|piece| is_before_end(&piece.start, &drop.end));
            let mut parts = Vec::with_capacity(3);
            if let Some(piece) = self.pieces[first..last].first().filter(|piece| piece.start < drop.start) {
                parts.push(RangeDrop { end: drop.start.clone(), ..piece.clone() });
            }
            parts.push(drop.clone());
            let reaches_beyond =
                |piece: &&RangeDrop| !drop.end.is_empty() && (piece.end.is_empty() || piece.end > drop.end);
            if let Some(piece) = self.pieces[first..last].last().filter(reaches_beyond) {
                parts.push(RangeDrop { start: drop.end.clone(), ..piece.clone() });
            }
            self.pieces.splice(first..last, parts);
        }
        self.drops.push(drop);
    }
}

/// Whether `key` is before the end of a range; an empty end is none.
pub(crate) fn is_before_end(key: &[u8], end: &[u8]) -> bool {
    end.is_empty() || key < end
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn key(number: u8) -> Bytes {
        Bytes::from(vec![number])
    }

    proptest! {
        #[test]
        fn they_cover_what_any_of_them_does(ranges in vec((0u8..20, 0u8..22), 0..12)) {
            // An end of 20 stands for none.
            let end = |end: u8| if end >= 20 { Bytes::new() } else { key(end) };
            let drops: Vec<_> = (1..).zip(&ranges)
                .map(|(n, &(from, to))| RangeDrop { start: key(from), end: end(to), seq: Seq(n * 10) }).collect();
            let all = drops.iter().fold(DroppedRanges::none(), |all, drop| all.with(drop.clone()));
            prop_assert_eq!(&all, &DroppedRanges::new(drops.clone()));
            for number in 0..24u8 {
                for seq in (0..=ranges.len() as u64 * 10 + 5).step_by(5).map(Seq) {
                    let covered = |all: &[RangeDrop]| all.iter().any(|drop| {
                        seq < drop.seq && drop.start <= key(number) && is_before_end(&key(number), &drop.end)
                    });
                    prop_assert_eq!(all.covers(&key(number), seq), covered(&drops));
                    let some: Vec<_> = drops.iter().filter(|drop| drop.seq <= Seq(40)).cloned().collect();
                    prop_assert_eq!(all.until(Seq(40)).covers(&key(number), seq), covered(&some));
                }
            }
            prop_assert!(all.pieces.is_sorted_by(|a, b| !a.end.is_empty() && a.end <= b.start));
        }
    }

    #[test]
    fn ranges_contain_and_overlap() {
        let drop = RangeDrop { start: key(3), end: key(6), seq: Seq(1) };
        assert!(drop.contains(&[3], &[5, 9]) && !drop.contains(&[3], &[6]) && !drop.contains(&[2], &[4]));
        assert!(drop.overlaps(&[0], &[3]) && !drop.overlaps(&[0], &[2]) && !drop.overlaps(&[6], &[9]));
        let endless = RangeDrop { end: Bytes::new(), ..drop };
        assert!(endless.contains(&[3], &[255]) && endless.overlaps(&[200], &[255]));
    }
}
