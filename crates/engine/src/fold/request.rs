//! What a fold is asked for, and what it ends with.

use crate::drops::is_before_end;
use crate::entry::Seq;
use crate::error::{Damage, Error};
use crate::key_segments::KeySegments;
use bytes::Bytes;

/// Ranges of one fold: a list of buckets, say. Each costs a seek and is held with the fold.
pub const RANGES_MAX: usize = 4096;

/// How many damaged records a fold names; the rest are counted.
pub const DAMAGED_NAMED_MAX: usize = 64;

/// Blocks that one fold keeps for lookups: a megabyte, of a cache that is many times that.
pub const BLOCKS_KEPT_MAX: usize = 256;

/// Keys from `start` up to `end`, which is not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub start: Bytes,
    /// The key behind the last one; empty for no end.
    pub end: Bytes,
}

impl KeyRange {
    /// All keys.
    pub fn all() -> KeyRange {
        KeyRange::default()
    }

    /// From `start` up to `end`.
    pub fn new(start: impl Into<Bytes>, end: impl Into<Bytes>) -> KeyRange {
        KeyRange { start: start.into(), end: end.into() }
    }

    /// The keys that begin with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> KeyRange {
        let start = prefix.into();
        let end = Bytes::from(after_prefix(&start));
        KeyRange { start, end }
    }

    pub(super) fn ends_before(&self, key: &[u8]) -> bool {
        !is_before_end(key, &self.end)
    }
}

/// The first key behind all that begin with `prefix`; empty if there is none.
pub(super) fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut after = prefix.to_vec();
    while let Some(last) = after.pop() {
        if last < u8::MAX {
            after.push(last + 1);
            return after;
        }
    }
    after
}

/// What a fold visits.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// Keys and heads, in key order. The check says what must be true of an item's record in the journal; what fails
    /// is counted and named at the end, and visited only where the request says so.
    Heads(JournalCheck),
    /// Keys, heads and values, in key order. Values are read window by window, each in the journal's order.
    Objects,
    /// Keys, heads and values, window by window in the order in which they lie in the journal: nearly sequential reads,
    /// and key order only from window to window. Within a window an item of no later key is seen after one of the next.
    ObjectsByJournal,
    /// One key of each bucket: the first whose [`BucketOf`] differs from the one before. All others are skipped by
    /// seeking, so it costs by buckets and not by keys.
    Buckets(BucketOf),
}

impl What {
    /// Whether items come with their values.
    pub(super) fn has_values(self) -> bool {
        matches!(self, What::Objects | What::ObjectsByJournal)
    }
}

/// Says how many bytes at the front of a key name its bucket. The keys of a bucket must stand together.
pub type BucketOf = fn(&[u8]) -> usize;

/// What is asked of the journal for a head, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JournalCheck {
    /// Nothing: the ledger is believed.
    None,
    /// A segment that is there has its record, by what is in memory of the journal: the list of segments, and the
    /// numbers of the records in those that compaction wrote. Nothing is read.
    Presence,
    /// Its record is there and passes all its checksums.
    Checksum,
}

/// Visits only what was modified in a stretch of time, as the heads tell it.
#[derive(Clone, Copy, Debug)]
pub struct Modified {
    /// Reads the time out of a key and its head; `None` where it is unknown: such an item is visited.
    pub of: fn(key: &[u8], head: &[u8]) -> Option<u64>,
    /// The first time, in the unit of `of`.
    pub from: u64,
    /// The last time.
    pub to: u64,
}

impl Modified {
    pub(super) fn admits(&self, key: &[u8], head: &[u8]) -> bool {
        (self.of)(key, head).is_none_or(|time| (self.from..=self.to).contains(&time))
    }
}

/// A fold to be made.
#[derive(Clone, Debug)]
pub struct FoldRequest {
    /// Visited one after another, in this order. At most [`RANGES_MAX`].
    pub ranges: Vec<KeyRange>,
    /// What is visited.
    pub what: What,
    /// Only what was modified then.
    pub modified: Option<Modified>,
    /// Only keys of these segments: blocks of tables that hold none of them are not read.
    pub segments: Option<KeySegments>,
    /// How many items are visited at most.
    pub items_max: u64,
    /// Where an earlier fold of the same ranges stopped.
    pub from: Option<Place>,
    /// Whether it goes on where versions were lost, and where a block of a table is damaged, with what is left there;
    /// otherwise that is an error.
    pub past_losses: bool,
    /// Whether heads whose record fails the check are visited, too, and marked ([`Visited::is_damaged`]).
    pub damaged_too: bool,
    /// Whether the keys that are visited are about to be looked up: the blocks in which they are found, [`BLOCKS_KEPT_MAX`] at most, are
    /// kept for that. Of heads whose records are not read.
    pub keeps_blocks: bool,
}

impl FoldRequest {
    /// A fold over `what` in one range.
    pub fn over(range: KeyRange, what: What) -> FoldRequest {
        let (modified, segments, from) = (None, None, None);
        let (items_max, past_losses, damaged_too, keeps_blocks) = (u64::MAX, false, false, false);
        FoldRequest {
            ranges: vec![range],
            what,
            modified,
            segments,
            items_max,
            from,
            past_losses,
            damaged_too,
            keeps_blocks,
        }
    }

    /// Whether a key is in a segment that is wanted.
    pub(super) fn has_segment_of(&self, key: &[u8]) -> bool {
        self.segments.as_ref().is_none_or(|segments| segments.contains(key))
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let len = self.ranges.len();
        if len > RANGES_MAX {
            return Err(Error::TooLarge { what: "a list of ranges", len, limit: RANGES_MAX });
        }
        Ok(())
    }
}

/// Where a fold stopped: on the same snapshot it goes on without a gap or a repetition, on a newer one with what is
/// there then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which of the ranges.
    pub range: usize,
    /// The first key that was not visited.
    pub key: Bytes,
}

/// An item that a fold visits.
#[derive(Clone, Debug)]
pub struct Visited<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The newest version.
    pub seq: Seq,
    /// Its head.
    pub head: &'a [u8],
    /// Its value, where the fold is over objects.
    pub value: Option<Bytes>,
    /// When it ends, in milliseconds since 1970; `None` for never.
    pub expires_ms: Option<u64>,
    /// Whether its record failed the check that was asked for.
    pub is_damaged: bool,
}

/// How a fold is to go on after an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// With the next item.
    Next,
    /// Not at all; it can be resumed behind this item.
    Stop,
}

/// How a fold ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoldEnd {
    /// How many items were visited.
    pub visited: u64,
    /// Where to go on; `None` when every range is done.
    pub next: Option<Place>,
    /// Items whose record is missing or damaged.
    pub damaged: u64,
    /// The first [`DAMAGED_NAMED_MAX`] of them, each with its key.
    pub damaged_named: Vec<(Bytes, Damage)>,
    /// Whether blocks of tables were left out, as they are damaged: what they had is not shown, and something older may
    /// be in its place.
    pub has_left_out: bool,
}
