//! Tables let go of what was dropped with its range, and of what has ended.
//!
//! 1. A table that holds nothing else is removed whole: no byte of it is read.
//! 2. A table below level 0 of which only a part was dropped is rewritten where it is. Level 0 waits for its merge,
//!    which leaves the same out.
//! 3. On a disk that is nearly full, a table with versions that end is rewritten now and then: nothing else may come to
//!    merge it.
//! 4. A drop that can cover nothing any more is forgotten.
//!
//! Only drops that no crash can undo count here: what a table has let go of is gone for good.

use super::manifest::Edit;
use crate::drops::{DroppedRanges, RangeDrop};
use crate::entry::Seq;
use crate::manifest::{LEVELS, MergePlan, Version};
use crate::merge::MergeJob;
use crate::store::Store;
use crate::table::{Table, TableMeta};
use base::spawn::Outcome;
use std::sync::Arc;

/// What the last look found nothing to do for: looking again costs a walk over all tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CutLook {
    /// How many manifests had been written: the version changes with them only.
    manifests: u64,
    /// The newest drop that no crash can undo.
    drops: Seq,
    /// When the next table ends as a whole.
    due_ms: u64,
}

impl Store {
    /// To be called where a merge could begin: it takes a merge's place.
    pub(super) fn want_cut(&mut self) {
        let drops = self.drops.until(self.writer.durable());
        if self.is_low()
            && let Some((level, table)) = self.table_with_ended()
        {
            self.rewrite(level, &table);
            if self.maintenance.merge.is_some() {
                self.note_looked_through(&[table]);
            }
            return;
        }
        let last = self.maintenance.cut_look;
        let seen = (last.manifests, last.drops) == (self.counters.manifests, drops.last_seq());
        if seen && (last.due_ms == u64::MAX || last.due_ms > self.now_ms()) {
            return;
        }
        self.lost = self.lost.not_dropped(&drops);
        let now_ms = self.now_ms();
        let ends = self.version.tables().filter_map(|(_, table)| table.meta().ends_ms());
        self.maintenance.cut_look = CutLook {
            manifests: self.counters.manifests,
            drops: drops.last_seq(),
            due_ms: ends.filter(|&ends_ms| ends_ms > now_ms).min().unwrap_or(u64::MAX),
        };
        let removed = removable(&self.version, &drops, now_ms);
        if !removed.is_empty() {
            self.counters.tables_cut += removed.len() as u64;
            self.count_dead_of(&removed);
            self.maintenance.edits.push(Edit { removed, ..Edit::default() });
            return;
        }
        if drops.is_empty() {
            return;
        }
        let partly = (1..LEVELS).find_map(|level| {
            let tables = self.version.level(level).iter();
            tables
                .clone()
                .find(|table| drops.iter().any(|drop| holds(&drops, drop, table.meta())))
                .map(|t| (level, t))
        });
        match partly {
            Some((level, table)) => self.rewrite(level, &Arc::clone(table)),
            None => self.forget_drops(),
        }
    }

    fn rewrite(&mut self, level: usize, table: &Arc<Table>) {
        let inputs = vec![(level, vec![Arc::clone(table)])];
        let plan = MergePlan { inputs, output_level: level, drop_deletions: false, cuts: Vec::new() };
        let Some(claim) = self.claim_room(plan.needs()) else {
            // It is found again when there is room.
            self.maintenance.cut_look = CutLook::default();
            return;
        };
        let outcome = Outcome::new();
        let request = self.merge_request(level, u64::MAX, false);
        let job = MergeJob::new(plan.sources(), request, outcome.clone());
        self.begin_merge(plan, job, outcome, claim);
    }

    // The memtables hold nothing that is older than a drop when all up to it has been flushed.
    fn forget_drops(&mut self) {
        let (version, flushed) = (&self.version, self.flushed);
        let drops = Arc::clone(&self.drops);
        let is_needed = |drop: &RangeDrop| {
            drop.seq > flushed || version.tables().any(|(_, table)| holds(&drops, drop, table.meta()))
        };
        if self.drops.iter().any(|drop| !is_needed(drop)) {
            self.drops = self.drops.retain(is_needed);
        }
    }
}

/// Whether a table may hold a version that `drop`, one of `drops`, covers.
fn holds(drops: &DroppedRanges, drop: &RangeDrop, table: &TableMeta) -> bool {
    table.min_seq < drop.seq
        && table.cut_seq < drop.seq
        && drops.may_cover(drop, &table.min_key, &table.max_key)
}

/// Tables all of whose versions are gone.
fn removable(version: &Version, drops: &DroppedRanges, now_ms: u64) -> Vec<Arc<Table>> {
    let tables = version.tables().filter(|(level, table)| {
        let meta = table.meta();
        let dropped =
            drops.iter().any(|drop| meta.max_seq < drop.seq && drop.contains(&meta.min_key, &meta.max_key));
        dropped
            || (meta.ends_ms().is_some_and(|ends_ms| ends_ms <= now_ms)
                && hides_nothing(version, *level, table))
    });
    tables.map(|(_, table)| Arc::clone(table)).collect()
}

/// Whether no older table can hold one of its keys: what has ended hides older versions as long as there are any.
fn hides_nothing(version: &Version, level: usize, table: &Arc<Table>) -> bool {
    let meta = table.meta();
    let older_here = version.level(0).iter().skip_while(|other| other.id() != table.id()).skip(1);
    let older = (level == 0).then_some(older_here).into_iter().flatten();
    older.clone().all(|other| !other.meta().overlaps(&meta.min_key, &meta.max_key))
        && (level + 1..LEVELS)
            .all(|deeper| version.overlapping(deeper, &meta.min_key, &meta.max_key).is_empty())
}
