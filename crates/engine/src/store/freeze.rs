//! When the memtable is put aside for its flush:
//!
//! 1. When its entries take what a memtable may, the first one since a start a part of it: memory is bounded.
//! 2. When a segment begins, if it spans as many as [`segments_max`] allows. What no table has, a start after a crash
//!    reads, and no compaction may touch. Objects of many kilobytes take so little of a memtable that by its bytes
//!    alone this could be several times what lives.
//!
//! The second comes where a segment begins, since then all segments before it are settled by the flush, and the end of
//! the last is synced anyway. Where no more memtables may wait, it is left for where the next segment begins. What a
//! start replays is put aside by its bytes alone (`open/replay.rs`).

use super::write::MEMTABLES_FROZEN_MAX;
use super::{Frozen, Store};

/// Of what the journal has that is of use, one part in so many may be in no table: half of what it may waste by
/// default.
const UNFLUSHED_SHARE: u64 = 8;

/// Segments that may be in no table, however small the journal: the one that is written, and one before it. A flush for
/// less would be a table of a few hundred entries, and syncs of a table and of a manifest, for each.
const UNFLUSHED_SEGMENTS_MIN: u64 = 2;

/// And however large it is: a start reads them, and those of frozen memtables, in some seconds.
const UNFLUSHED_SEGMENTS_MAX: u64 = 8;

impl Store {
    /// Whether entries take as much memory as one memtable may.
    pub(super) fn is_memtable_full(&self) -> bool {
        self.memtable.bytes() >= self.memtable_bytes_max
    }

    /// Puts the memtable aside if it is full, and there is a place for it.
    pub(super) fn freeze_if_full(&mut self) {
        if self.is_memtable_full() && self.frozen.len() < MEMTABLES_FROZEN_MAX {
            self.freeze();
        }
    }

    /// The same where a segment begins, if the memtable spans as many before it as may be unflushed.
    pub(super) fn freeze_if_long(&mut self) {
        if self.unflushed_segments() > self.unflushed_segments_max() {
            self.begin_flush();
        }
    }

    /// Whether the segment that is written is the last one before the memtable is put aside.
    pub(super) fn is_nearly_long(&self) -> bool {
        self.unflushed_segments() >= self.unflushed_segments_max()
    }

    /// Segments with records that the memtable has, the one that is written among them.
    fn unflushed_segments(&self) -> u64 {
        let from = self.frozen.back().map_or(self.manifest.replay_jsn, |last| last.end_jsn);
        self.segments.iter().rev().take_while(|segment| segment.first_jsn >= from).count() as u64
    }

    fn unflushed_segments_max(&self) -> u64 {
        let total = self.accounts.total();
        segments_max(total.bytes().saturating_sub(total.dead_bytes), self.options.segment_bytes_target)
    }

    /// Puts the memtable aside for its flush. Its records must be durable before a table may speak of
    /// them: they are synced, beside other writes where nobody waits for that.
    pub(super) fn freeze(&mut self) {
        if let Some(groups) = &mut self.groups {
            groups.enter_states(&mut self.memtable);
        }
        self.memtable.link();
        let next = self.next_memtable();
        let full = std::mem::replace(&mut self.memtable, next);
        self.memtable_bytes_max = self.options.memtable_bytes_max;
        let dead_entries = self.take_dead_entries();
        self.frozen.push_back(Frozen {
            reader: full.reader(),
            last_seq: self.writer.last_seq(),
            end: self.writer.position(),
            end_jsn: self.writer.next_jsn(),
            end_account: self.accounts.of(self.writer.active().0),
            oldest_entry: self.groups.as_ref().and_then(|groups| groups.oldest()),
            dead_entries,
        });
        self.writer.want_durable();
    }
}

/// How many segments a memtable may span, where the journal has so many bytes that are of use.
fn segments_max(useful_bytes: u64, segment_bytes: u64) -> u64 {
    let share = useful_bytes / UNFLUSHED_SHARE / segment_bytes.max(1);
    share.clamp(UNFLUSHED_SEGMENTS_MIN, UNFLUSHED_SEGMENTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memtable_may_span_an_eighth_of_the_journal_within_bounds() {
        let of_segments = |segments: u64| segments_max(segments * 100, 100);
        assert_eq!([0, 1, 16, 23, 24, 40, 64, 65, 10_000].map(of_segments), [2, 2, 2, 2, 3, 5, 8, 8, 8]);
        assert_eq!(segments_max(u64::MAX, 0), UNFLUSHED_SEGMENTS_MAX);
    }
}
