//! How a store makes room: on a disk that is nearly full, or because an operator has asked for it.
//!
//! What was deleted or overwritten is known to be waste once a merge meets both versions, and can go once its segment
//! is in tables and has ended. On a disk that is full nothing of that comes by itself: no values are taken, so no
//! memtable and no segment fills up. So, while less than the reserve is free:
//!
//! 1. Once a second what the memtable has is flushed, however little. The segment that is written is ended first, if
//!    there is something in it.
//! 2. Level 0 is merged into the runs, these into the leveled levels, and those with deletions into deeper ones, as far
//!    as that frees more than a part of what it reads, and by parts that fit in the room there is (`manifest/pick.rs`).
//! 3. Compaction takes every segment that gains by it and fits, the emptiest first, as fast as it can
//!    (`maintenance/compaction.rs`). A segment of which nothing lives takes no room at all.
//! 4. Versions that have ended are cut out of tables that have some, a table at a time.
//! 5. Segments that are kept aside go, the oldest first (`maintenance/obsolete.rs`).
//!
//! [`Store::reclaim`] does the same once, on any disk.
//!
//! Left out: waste in the segment that is written and is below a sixteenth of its size; what snapshots hold.

use super::Store;
use super::room::LOOK_EVERY;
use super::write::MEMTABLES_FROZEN_MAX;
use crate::entry::Seq;
use crate::manifest::{FIRST_LEVELED, MergeOptions, MergePlan, Reclaiming};
use crate::table::{Table, TableId};
use base::{FastMap, Monotonic};
use std::sync::Arc;
use std::time::Duration;

/// The segment that is written is ended if it has at least this part of what it may have: each is a file.
const ENDED_SHARE: u64 = 16;

/// Merges are to free one byte for so many that they read: while deletions come in, more of them share the next merge.
const COST_WHILE_DELETED: u64 = 8;

/// The same when half of what deletions may use of the reserve is used.
const COST_WHEN_URGENT: u64 = 64;

/// The same once no more come: the last merge may be dear, and a few keys in a large ledger are still not worth it.
const COST_AT_REST: u64 = 1024;

/// From here on, in thousandths of what deletions may use of the reserve, it is urgent.
const URGENT_FROM: u64 = 500;

/// A table with versions that end is looked through once in so long.
const ENDED_LOOK_EVERY: Duration = Duration::from_secs(60);

/// What is known of making room between turns.
#[derive(Default)]
pub(super) struct Reclaim {
    flushed_at: Option<Monotonic>,
    asked: Option<Stage>,
    /// Bytes of journal and tables when it was asked for last.
    before: u64,
    /// When tables with versions that end were rewritten.
    looked_through: FastMap<TableId, Monotonic>,
}

/// How far it is with what was asked for.
enum Stage {
    Begun,
    /// Versions up to this one are being flushed and merged.
    Ledger(Seq),
    Journal,
}

/// What a store that was asked to make room tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Whether it is still at it.
    pub is_running: bool,
    /// Bytes of the journal's records and of tables when it was asked for last; 0 if it never was.
    pub bytes_before: u64,
    /// The same as of now.
    pub bytes: u64,
    /// Segments that only older snapshots still need.
    pub segments_held: usize,
    /// Why the last compaction failed, if it did.
    pub failure: Option<crate::Error>,
}

impl Store {
    /// Flushes, merges and compacts all that gains by it, whatever the target and the schedule; turns carry it out, and
    /// [`Store::reclaimed`] tells when it is done. Nothing if it is under way.
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

    /// How far [`Store::reclaim`] is.
    pub fn reclaimed(&self) -> Reclaimed {
        Reclaimed {
            is_running: self.reclaim.asked.is_some(),
            bytes_before: self.reclaim.before,
            bytes: self.stored_bytes(),
            segments_held: self.stats().segments_held,
            failure: self.compaction_failure().cloned(),
        }
    }

    /// Whether room is made: the disk is nearly full, or it was asked for.
    pub(super) fn is_reclaiming(&self) -> bool {
        self.reclaim.asked.is_some() || self.is_low()
    }

    fn stored_bytes(&self) -> u64 {
        let tables: u64 = self.version.tables().map(|(_, table)| table.len()).sum();
        self.accounts.total().bytes() + tables
    }

    /// Flushes what is due for it, and goes on with what was asked for.
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

    /// Ends the active segment, if it has so many bytes at least, and freezes the memtable; whether there was anything
    /// to do.
    fn flush_for_room(&mut self, segment_bytes_min: u64) -> bool {
        let active = self.accounts.of(self.writer.active().0).bytes();
        let ends = active >= segment_bytes_min.max(1) && self.writer.end_segment();
        if ends {
            self.note_segment();
        }
        // An empty memtable says that a segment that has ended is in tables.
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
                    // However small it is: an operator sees all waste go.
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

    /// Whether nothing above the leveled levels is as old as this version.
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

    /// Whether nothing has come to be flushed for room for a while.
    fn has_rested(&self) -> bool {
        self.reclaim.flushed_at.is_none_or(|at| self.turned_at.since(at) >= LOOK_EVERY)
    }

    /// A table from which versions that have ended may be cut out, which was not looked through lately.
    pub(super) fn table_with_ended(&mut self) -> Option<(usize, Arc<Table>)> {
        let now = self.turned_at;
        self.reclaim.looked_through.retain(|_, at| now.since(*at) < ENDED_LOOK_EVERY);
        let known = &self.reclaim.looked_through;
        let mut tables = self.version.tables().filter(|(level, _)| *level > 0);
        let (level, table) =
            tables.find(|(_, table)| table.meta().expiring > 0 && !known.contains_key(&table.id()))?;
        Some((level, Arc::clone(table)))
    }

    /// A rewrite looks through these tables, or has made them.
    pub(super) fn note_looked_through(&mut self, tables: &[Arc<Table>]) {
        let now = self.turned_at;
        self.reclaim.looked_through.extend(tables.iter().map(|table| (table.id(), now)));
    }
}
