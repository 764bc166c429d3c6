//! Room is made: on a nearly full disk, or at an operator's request.
//!
//! A deleted or overwritten version is known to be waste once a merge has met both versions. Its segment can go once
//! all its records are in tables and it is not written any more. On a full disk none of this happens by itself: no
//! values come in, so no memtable and no segment fills up. While less than the reserve is free:
//!
//! 1. The memtable is flushed once a second, however little it has. The active segment ends before, if it has enough.
//! 2. Level 0 is merged into the runs, the runs into the leveled levels, and levels with deletions into deeper ones.
//!    Each merge frees more than a part of the bytes that it reads, and fits in the room (`manifest/pick.rs`).
//! 3. Every segment with enough waste is compacted if its output fits, the emptiest first and without a pace
//!    (`maintenance/compaction.rs`). A segment without live records takes no room at all.
//! 4. Expired versions are cut out of tables, a table at a time.
//! 5. Segments that are kept aside are removed, the oldest first (`maintenance/obsolete.rs`).
//!
//! [`Store::reclaim`] does the same once, on any disk.
//!
//! Left out: waste in a small active segment of a full disk, and data that snapshots hold.

use super::Store;
use super::room::LOOK_EVERY;
use super::write::MEMTABLES_FROZEN_MAX;
use crate::entry::Seq;
use crate::manifest::{FIRST_LEVELED, MergeOptions, MergePlan, Reclaiming};
use crate::table::{Table, TableId};
use base::{FastMap, Monotonic};
use std::sync::Arc;
use std::time::Duration;

/// The active segment of a full disk ends with this part of its size: each segment is a file.
const ENDED_SHARE: u64 = 16;

/// Bytes that a merge may read for each byte that it frees. While deletions come in, more of them share the next merge.
const COST_WHILE_DELETED: u64 = 8;

/// The same when the reserve's part for deletions is half used.
const COST_WHEN_URGENT: u64 = 64;

/// The same once no more come. The last merge may be dear; a few keys in a large ledger are still not worth one.
const COST_AT_REST: u64 = 1024;

/// The used part of the reserve's part for deletions, in thousandths, from which room is urgent.
const URGENT_FROM: u64 = 500;

/// Interval of rewrites of a table for its expired versions.
const ENDED_LOOK_EVERY: Duration = Duration::from_secs(60);

/// State of making room between turns.
#[derive(Default)]
pub(super) struct Reclaim {
    flushed_at: Option<Monotonic>,
    /// Stage of the operator's request.
    asked: Option<Stage>,
    /// Bytes of journal and tables at the last request.
    before: u64,
    /// Times at which tables with a time to live were rewritten.
    looked_through: FastMap<TableId, Monotonic>,
}

/// Stages of an operator's request.
enum Stage {
    Begun,
    /// Versions up to this one are flushed and merged.
    Ledger(Seq),
    /// Segments are compacted and removed.
    Journal,
}

/// State of an operator's request for room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Whether it is under way.
    pub is_running: bool,
    /// Bytes of the journal's records and of tables at the last request; 0 without one.
    pub bytes_before: u64,
    /// The same bytes as of now.
    pub bytes: u64,
    /// Segments that only older snapshots still need.
    pub segments_held: usize,
    /// Why the store takes no more writes, or why the last compaction failed.
    pub failure: Option<crate::Error>,
}

impl Store {
    /// Begins to flush, merge and compact all waste, whatever the target and the schedule. Turns carry it out, and
    /// [`Store::reclaimed`] has its state. A request under way goes on.
    ///
    /// # Errors
    /// If the store takes no writes any more.
    pub fn reclaim(&mut self) -> Result<(), crate::Error> {
        if let Some(fenced) = self.fenced() {
            return Err(fenced);
        }
        if self.maintenance.closing.is_some() {
            return Err(crate::Error::Closing);
        }
        if self.reclaim.asked.is_none() {
            (self.reclaim.asked, self.reclaim.before) = (Some(Stage::Begun), self.stored_bytes());
        }
        Ok(())
    }

    /// The state of the last request.
    pub fn reclaimed(&self) -> Reclaimed {
        let fenced = self.fenced();
        Reclaimed {
            // A store that takes no more writes will not end it.
            is_running: self.reclaim.asked.is_some() && fenced.is_none(),
            bytes_before: self.reclaim.before,
            bytes: self.stored_bytes(),
            segments_held: self.stats().segments_held,
            failure: fenced.or_else(|| self.compaction_failure().cloned()),
        }
    }

    /// Whether room is made: the disk is nearly full, or an operator has asked for it.
    pub(super) fn is_reclaiming(&self) -> bool {
        self.reclaim.asked.is_some() || self.is_low()
    }

    fn stored_bytes(&self) -> u64 {
        let tables: u64 = self.version.tables().map(|(_, table)| table.len()).sum();
        self.accounts.total().bytes() + tables
    }

    /// Goes on with a request, and flushes for room when that is due.
    pub(super) fn step_reclaim(&mut self, now: Monotonic) {
        if !self.is_reclaiming() {
            return;
        }
        self.step_asked();
        let is_due = self.reclaim.flushed_at.is_none_or(|at| now.since(at) >= LOOK_EVERY);
        let ended_from = self.options.segment_bytes_target / ENDED_SHARE;
        if is_due && self.is_low() && self.frozen.is_empty() && self.flush_for_room(ended_from) {
            self.reclaim.flushed_at = Some(now);
        }
    }

    /// Ends the active segment from this size on, and freezes the memtable; whether there was anything to do.
    fn flush_for_room(&mut self, segment_bytes_min: u64) -> bool {
        let active = self.accounts.of(self.writer.active().0).bytes();
        let ends = active >= segment_bytes_min.max(1) && self.writer.end_segment();
        if ends {
            self.note_segment();
        }
        // The flush of an empty memtable tells, too, that the ended segment is in tables.
        let freezes = (ends || !self.memtable.is_empty()) && self.frozen.len() < MEMTABLES_FROZEN_MAX;
        if freezes {
            self.freeze();
        }
        ends || freezes
    }

    fn step_asked(&mut self) {
        match self.reclaim.asked {
            None => {}
            Some(Stage::Begun) => {
                let upto = self.writer.last_seq();
                if self.frozen.is_empty() {
                    // An operator sees all waste go, however small the segment is.
                    self.flush_for_room(1);
                    self.reclaim.asked = Some(Stage::Ledger(upto));
                }
            }
            Some(Stage::Ledger(upto)) => {
                let is_flushed = self.frozen.is_empty() && !self.edits_pending();
                if is_flushed && (self.is_merged(upto) || self.finds_no_merge()) {
                    self.compact_journal();
                    self.reclaim.asked = Some(Stage::Journal);
                }
            }
            Some(Stage::Journal) if self.is_compacting() || self.is_removing() || self.edits_pending() => {}
            Some(Stage::Journal) => self.reclaim.asked = None,
        }
    }

    /// Whether all versions up to this one are in leveled levels.
    fn is_merged(&self, upto: Seq) -> bool {
        let above = (0..FIRST_LEVELED).flat_map(|level| self.version.level(level));
        above.into_iter().all(|table| table.meta().min_seq > upto)
    }

    /// The next merge that makes room; `None` if none gains enough, or fits.
    pub(super) fn reclaiming_merge(&mut self, options: &MergeOptions) -> Option<MergePlan> {
        let reclaiming = self.reclaiming(options);
        self.version.pick_reclaiming(&mut self.maintenance.merge_cursors, &reclaiming)
    }

    fn reclaiming(&self, options: &MergeOptions) -> Reclaiming {
        let total = self.accounts.total();
        let tables: u64 = self.version.tables().map(|(_, table)| table.len()).sum();
        let useful = total.bytes().saturating_sub(total.dead_bytes) + tables;
        let rests = self.memtable.is_empty() && self.frozen.is_empty() && self.has_rested();
        let cost = match () {
            () if rests || self.reclaim.asked.is_some() => COST_AT_REST,
            () if self.reserve_used_thousandths() >= URGENT_FROM => COST_WHEN_URGENT,
            () => COST_WHILE_DELETED,
        };
        Reclaiming {
            entry_bytes: useful / self.version.entries().max(1),
            cost,
            replacing_thousandths: options.replacing_thousandths,
            room: self.room_for_jobs(),
        }
    }

    /// Whether the last flush for room was some time ago.
    fn has_rested(&self) -> bool {
        self.reclaim.flushed_at.is_none_or(|at| self.turned_at.since(at) >= LOOK_EVERY)
    }

    /// A table with a time to live that was not rewritten lately.
    pub(super) fn table_with_ended(&mut self) -> Option<(usize, Arc<Table>)> {
        let now = self.turned_at;
        self.reclaim.looked_through.retain(|_, at| now.since(*at) < ENDED_LOOK_EVERY);
        let known = &self.reclaim.looked_through;
        let mut tables = self.version.tables().filter(|(level, _)| *level > 0);
        let (level, table) =
            tables.find(|(_, table)| table.meta().expiring > 0 && !known.contains_key(&table.id()))?;
        Some((level, Arc::clone(table)))
    }

    /// Notes that a rewrite reads these tables, or has made them.
    pub(super) fn note_looked_through(&mut self, tables: &[Arc<Table>]) {
        let now = self.turned_at;
        self.reclaim.looked_through.extend(tables.iter().map(|table| (table.id(), now)));
    }
}
