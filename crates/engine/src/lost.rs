//! Ranges of keys of which versions were lost: what a lookup there may answer, and what it must not.
//!
//! A table that cannot be read any more, a damaged block that a merge has left out, a record whose key is damaged: each
//! leaves a range of keys and a seq below which a version may have been lost. In such a range a version that is found
//! is the newest only if its seq is not below that, and a key that is not found may have been there. Anything else is
//! an error that names the damage; other ranges are served as ever.
//!
//! A range's life: 1. whoever meets the damage adds it, before what was damaged goes; 2. every manifest names it;
//! 3. it ends when a range drop covers it, or when a repair finds all of its versions in the journal
//! ([`crate::recovery`]), or when an operator accepts the loss ([`Store::accept_losses`](crate::Store::accept_losses)).
//!
//! While it lasts merges keep deletions in it, and compaction keeps the records of its keys: a repair needs both.
//!
//! A range of all keys outlives drops of some of them. A reader that has dropped its keys, and written them anew, names
//! the version of that drop: then losses of earlier versions do not count.
//!
//! Left out: which of the keys were lost. A loss is a few keys of a block, or what other replicas have.

use crate::drops::{DroppedRanges, is_before_end};
use crate::entry::Seq;
use crate::error::{Damage, Error};
use bytes::Bytes;
use std::sync::Arc;

/// Ranges that are told apart: a disk with more damaged places than this is lost, and neighbours become one.
pub const LOST_RANGES_MAX: usize = 256;

/// What is said of a place whose own words were not kept.
pub(crate) const LOST_HERE: &str = "versions of keys were lost here";

/// One range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// The first key.
    pub start: Bytes,
    /// The key behind the last one; empty for no end.
    pub end: Bytes,
    /// Versions before this one may have been replaced by one that was lost; none if it is 0. In either case a key
    /// that is not found may have been lost.
    pub below: Seq,
    /// Where they were lost.
    pub damage: Damage,
}

impl LostRange {
    /// All keys.
    pub fn everything(below: Seq, damage: Damage) -> LostRange {
        LostRange { start: Bytes::new(), end: Bytes::new(), below, damage }
    }

    /// The keys from `first` to `last`, both among them.
    pub fn of_keys(first: &[u8], last: &[u8], below: Seq, damage: Damage) -> LostRange {
        LostRange { start: Bytes::copy_from_slice(first), end: key_after(last), below, damage }
    }

    /// Whether `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.start <= *key && is_before_end(key, &self.end)
    }

    fn overlaps(&self, start: &[u8], end: &[u8]) -> bool {
        is_before_end(&self.start, end) && is_before_end(start, &self.end)
    }

    /// Whether it counts for keys that were dropped with the version `dropped_at`, 0 for never.
    fn counts_since(&self, dropped_at: Seq) -> bool {
        dropped_at == Seq(0) || self.below > dropped_at
    }

    /// The least range that holds both.
    fn hull(self, other: LostRange) -> LostRange {
        let end = match self.end.is_empty() || other.end.is_empty() {
            true => Bytes::new(),
            false => self.end.max(other.end),
        };
        LostRange {
            start: self.start.min(other.start),
            end,
            below: self.below.max(other.below),
            damage: self.damage,
        }
    }
}

/// The key that comes right after `key`.
pub(crate) fn key_after(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

/// All ranges that are known. A list is replaced, never changed, like a version of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostRanges(Vec<LostRange>);

impl LostRanges {
    /// These.
    pub fn new(ranges: impl IntoIterator<Item = LostRange>) -> Arc<LostRanges> {
        Arc::new(LostRanges::default().extended(ranges))
    }

    /// These and some more.
    pub fn with(&self, more: impl IntoIterator<Item = LostRange>) -> Arc<LostRanges> {
        Arc::new(self.clone().extended(more))
    }

    fn extended(mut self, more: impl IntoIterator<Item = LostRange>) -> LostRanges {
        for range in more {
            let is_known = |known: &LostRange| {
                (&known.start, &known.end) == (&range.start, &range.end) && known.below >= range.below
            };
            if !self.0.iter().any(is_known) {
                self.0.push(range);
            }
            if self.0.len() > LOST_RANGES_MAX {
                self.coalesce();
            }
        }
        self
    }

    /// Makes one of each two neighbours.
    fn coalesce(&mut self) {
        self.0.sort_by(|a, b| a.start.cmp(&b.start));
        let mut coalesced = Vec::with_capacity(self.0.len().div_ceil(2));
        let mut ranges = std::mem::take(&mut self.0).into_iter();
        while let Some(first) = ranges.next() {
            coalesced.push(match ranges.next() {
                Some(second) => first.hull(second),
                None => first,
            });
        }
        self.0 = coalesced;
    }

    /// Fails if version `seq` of `key`, the newest that was found, may not be the newest.
    #[inline]
    pub fn check_found(&self, key: &[u8], seq: Seq) -> Result<(), Error> {
        match self.0.is_empty() {
            true => Ok(()),
            false => self.check(|range| seq < range.below && range.contains(key)),
        }
    }

    /// Fails if `key`, which was not found, may have been lost.
    #[inline]
    pub fn check_missing(&self, key: &[u8]) -> Result<(), Error> {
        self.check_missing_since(key, Seq(0))
    }

    /// The same for a reader that has dropped `key` with the version `dropped_at`, 0 for never: earlier versions are gone
    /// anyway.
    #[inline]
    pub fn check_missing_since(&self, key: &[u8], dropped_at: Seq) -> Result<(), Error> {
        match self.0.is_empty() {
            true => Ok(()),
            false => self.check(|range| range.counts_since(dropped_at) && range.contains(key)),
        }
    }

    /// Those that count for keys that were dropped with the version `dropped_at`.
    pub fn since(self: &Arc<Self>, dropped_at: Seq) -> Arc<LostRanges> {
        match self.0.iter().all(|range| range.counts_since(dropped_at)) {
            true => Arc::clone(self),
            false => {
                let counting = self.0.iter().filter(|range| range.counts_since(dropped_at));
                Arc::new(LostRanges(counting.cloned().collect()))
            }
        }
    }

    /// Whether versions of `key` were lost, all of them before `seq`.
    pub fn were_before(&self, key: &[u8], seq: Seq) -> bool {
        let mut around = self.0.iter().filter(|range| range.contains(key)).peekable();
        around.peek().is_some() && around.all(|range| range.below <= seq)
    }

    /// Fails if a key from `start` up to `end` may have been lost; an empty `end` is none.
    pub fn check_range(&self, start: &[u8], end: &[u8]) -> Result<(), Error> {
        self.check(|range| range.overlaps(start, end))
    }

    #[cold]
    fn check(&self, is_it: impl Fn(&LostRange) -> bool) -> Result<(), Error> {
        match self.0.iter().find(|range| is_it(range)) {
            Some(range) => Err(range.damage.clone().into()),
            None => Ok(()),
        }
    }

    /// Those that no drop covers: all that was lost in a range is older than its drop.
    pub fn not_dropped(self: &Arc<Self>, drops: &DroppedRanges) -> Arc<LostRanges> {
        let is_dropped = |range: &LostRange| {
            drops.iter().any(|drop| {
                let reaches = drop.end.is_empty() || (!range.end.is_empty() && range.end <= drop.end);
                range.below <= drop.seq && drop.start <= range.start && reaches
            })
        };
        match self.0.iter().any(is_dropped) {
            true => LostRanges::new(self.0.iter().filter(|range| !is_dropped(range)).cloned()),
            false => Arc::clone(self),
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &LostRange> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when nothing is known to be lost.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drops::RangeDrop;

    fn damage(offset: u64) -> Damage {
        Damage { file: "0000000000000001.tbl".to_owned(), offset, what: LOST_HERE }
    }

    fn range(from: &[u8], to: &[u8], below: u64) -> LostRange {
        LostRange::of_keys(from, to, Seq(below), damage(below))
    }

    #[test]
    fn losses_before_a_drop_do_not_count_for_its_keys() {
        let lost = LostRanges::new([range(b"b", b"d", 10), range(b"x", b"z", 0)]);
        assert!(lost.check_missing_since(b"c", Seq(9)).is_err(), "the drop itself may be lost");
        assert!(lost.check_missing_since(b"c", Seq(10)).is_ok());
        assert!(lost.check_missing_since(b"y", Seq(0)).is_err(), "it was never dropped");
        assert!(lost.check_missing_since(b"y", Seq(1)).is_ok());

        assert_eq!(lost.since(Seq(0)), lost);
        assert_eq!(lost.since(Seq(9)), LostRanges::new([range(b"b", b"d", 10)]));
        assert!(lost.since(Seq(10)).is_empty());
    }

    #[test]
    fn only_its_keys_are_uncertain_and_only_below_its_seq() {
        let lost = LostRanges::new([range(b"b", b"d", 10)]);
        assert_eq!(lost.check_found(b"a", Seq(1)), Ok(()));
        assert_eq!(lost.check_found(b"d", Seq(10)), Ok(()));
        assert_eq!(lost.check_found(b"d", Seq(9)), Err(damage(10).into()));
        assert_eq!(lost.check_found(b"d\0", Seq(9)), Ok(()));
        assert!(lost.check_missing(b"c").is_err() && lost.check_missing(b"e").is_ok());
        assert!(lost.check_range(b"", b"b").is_ok() && lost.check_range(b"d", b"").is_err());
        // Where all that is left is known to be the newest, only what is missing is uncertain.
        let lost = LostRanges::new([range(b"b", b"d", 0)]);
        assert!(lost.check_found(b"c", Seq(1)).is_ok() && lost.check_missing(b"c").is_err());
    }

    #[test]
    fn a_drop_of_all_of_it_ends_it() {
        let lost = LostRanges::new([range(b"b", b"d", 10)]);
        let after = |start: &'static [u8], end: &'static [u8], seq| {
            let (start, end) = (Bytes::from_static(start), Bytes::from_static(end));
            lost.not_dropped(&DroppedRanges::new(vec![RangeDrop { start, end, seq: Seq(seq) }])).len()
        };
        assert_eq!([after(b"b", b"d\0", 10), after(b"", b"", 10), after(b"a", b"e", 99)], [0, 0, 0]);
        assert_eq!([after(b"b", b"d", 10), after(b"b\0", b"", 10), after(b"", b"", 9)], [1, 1, 1]);
    }

    #[test]
    fn too_many_become_fewer_that_cover_the_same() {
        let key = |number: usize| format!("{number:05}").into_bytes();
        let many = 3 * LOST_RANGES_MAX;
        let lost = LostRanges::new((0..many).map(|n| range(&key(10 * n), &key(10 * n + 3), n as u64 + 1)));
        assert!(lost.len() <= LOST_RANGES_MAX && lost.len() > LOST_RANGES_MAX / 4);
        for n in 0..many {
            assert!(lost.check_found(&key(10 * n + 3), Seq(n as u64)).is_err());
            assert!(lost.check_missing(&key(10 * n)).is_err());
        }
    }
}
