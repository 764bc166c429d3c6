//! When the memtable is put aside for its flush:
//!
//! 1. When its entries take what a memtable may: memory is bounded.
//! 2. When a segment begins, if as much of the journal as [`Store::unflushed_segments_max`] allows is in no table yet. What no table has,
//!    a start after a crash reads, and no compaction may touch. Objects of many kilobytes take so little of a memtable that by its bytes
//!    alone this could be several times what lives.
//!
//! The second comes where a segment begins, since then all segments before it are settled by the flush, and its end is synced anyway.

use super::write::MEMTABLES_FROZEN_MAX;
use super::{Frozen, Store};

/// Of what the journal has that is of use, one part in so many may be in no table: half of what it may waste by default.
const UNFLUSHED_SHARE: u64 = 8;

/// Segments that may be in no table, however small the journal: the one that is written, and one before it. A flush for less would be a
/// table of a few hundred entries, and syncs of a table and of a manifest, for each.
const UNFLUSHED_SEGMENTS_MIN: u64 = 2;

/// And however large it is: a start reads them, and those of frozen memtables, in some seconds.
const UNFLUSHED_SEGMENTS_MAX: u64 = 8;

impl Store {
    /// Whether entries take as much memory as one memtable may.
    pub(super) fn is_memtable_full(&self) -> bool {
        self.memtable.bytes() >= self.options.memtable_bytes_max
    }

    /// Puts the memtable aside if it is full, and there is a place for it.
    pub(super) fn freeze_if_full(&mut self) {
        if self.is_memtable_full() && self.frozen.len() < MEMTABLES_FROZEN_MAX {
            self.freeze();
        }
    }

    /// The same where a segment begins, if the memtable spans as many as may be unflushed.
    pub(super) fn freeze_if_long(&mut self) {
        let spans_too_many = self.unflushed_segments() > self.unflushed_segments_max();
        if spans_too_many && !self.memtable.is_empty() && self.frozen.len() < MEMTABLES_FROZEN_MAX {
            self.freeze();
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
        let useful = total.bytes().saturating_sub(total.dead_bytes);
        let share = useful / UNFLUSHED_SHARE / self.options.segment_bytes_target.max(1);
        share.clamp(UNFLUSHED_SEGMENTS_MIN, UNFLUSHED_SEGMENTS_MAX)
    }

    /// Puts the memtable aside for its flush. Its records must be durable before a table may speak of
    /// them: they are synced, beside other writes where nobody waits for that.
    pub(super) fn freeze(&mut self) {
        self.memtable.link();
        let next = self.next_memtable();
        let full = std::mem::replace(&mut self.memtable, next);
        self.frozen.push_back(Frozen {
            reader: full.reader(),
            last_seq: self.writer.last_seq(),
            end: self.writer.position(),
            end_jsn: self.writer.next_jsn(),
            end_account: self.accounts.of(self.writer.active().0),
        });
        self.writer.want_durable();
    }
}
