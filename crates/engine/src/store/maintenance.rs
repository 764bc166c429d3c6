//! What a store does for itself, one of each kind at a time, each as a job.
//!
//! * The next segment is made as soon as the last one made is in use.
//! * A frozen memtable is flushed to a table of level 0; levels over their size are merged.
//! * A flush or merge that is done becomes an edit; an edit becomes the new version once the manifest that
//!   says so is durable. An edit that speaks of records not yet durable waits for them.
//! * The lease of dot counters is extended when half of it is used.
//! * Files of tables that nobody reads any more are removed.
//!
//! A job that fails because of the disk fences the store: what it has is still read, and nothing is lost.

use super::{Event, Store, Suspect};
use crate::entry::{Jsn, Seq};
use crate::error::Error;
use crate::journal::prepare::PrepareSegment;
use crate::journal::segment::{Position, SegmentId};
use crate::journal::writer::ReadySegment;
use crate::manifest::{JournalPosition, ManifestJob, ManifestState, MergeCursors, MergePlan, Version};
use crate::merge::{MemtableSource, MergeJob, MergeOutput, MergeRequest, Source};
use crate::table::{Table, TableId};
use base::disk;
use base::spawn::Outcome;
use base::{Disk, Job, Progress};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Dot counters leased at a time: the manifest is written once in a million writes, and 64 bits allow for 10^13
/// unclean starts.
pub const LEASE_COUNTERS: u64 = 1 << 20;

/// Jobs under way and what waits for them.
#[derive(Default)]
pub(super) struct Maintenance {
    pub(super) next_segment: u64,
    segment: Option<Outcome<Result<ReadySegment, Error>>>,
    flush: Option<Outcome<Result<MergeOutput, Error>>>,
    merge: Option<(MergePlan, Outcome<Result<MergeOutput, Error>>)>,
    merge_cursors: MergeCursors,
    edits: Vec<Edit>,
    manifest: Option<ManifestRun>,
    obsolete: Vec<Arc<Table>>,
    pub(super) next_table: Arc<AtomicU64>,
    pub(super) closing: Option<super::close::Closing>,
}

impl Maintenance {
    /// Nothing under way; the next segment and table have these numbers.
    pub(super) fn new(next_segment: u64, next_table: Arc<AtomicU64>) -> Maintenance {
        Maintenance { next_segment, next_table, ..Maintenance::default() }
    }
}

/// A change of the version that waits for its manifest.
struct Edit {
    /// Tables that are new, and their levels.
    added: Vec<(usize, Arc<Table>)>,
    /// Tables that go.
    removed: Vec<Arc<Table>>,
    /// Whether the oldest frozen memtable is now in a table.
    flushed: bool,
    /// The manifest may say so once this version is durable.
    needs_durable: Seq,
}

struct ManifestRun {
    outcome: Outcome<Result<(), Error>>,
    state: ManifestState,
    /// The version that the manifest describes, and what to do when it is durable.
    version: Arc<Version>,
    edit: Option<Edit>,
}

impl Store {
    pub(super) fn maintain(&mut self, events: &mut Vec<Event>) {
        self.take_segment();
        self.take_flush();
        self.take_merge();
        self.take_manifest();
        if self.writer.fenced().is_none() {
            self.want_segment();
            self.want_flush();
            self.want_merge();
            self.want_manifest();
        }
        self.remove_obsolete();
        self.step_close(events);
    }

    /// True while a job is under way or wanted whose end this store waits for.
    pub(super) fn maintenance_pending(&self) -> bool {
        let at_work = &self.maintenance;
        at_work.segment.is_some()
            || at_work.flush.is_some()
            || at_work.merge.is_some()
            || at_work.manifest.is_some()
            || !at_work.edits.is_empty()
    }

    fn want_segment(&mut self) {
        if !self.writer.wants_segment()
            || self.maintenance.segment.is_some()
            || self.maintenance.closing.is_some()
        {
            return;
        }
        let outcome = Outcome::new();
        let id = SegmentId(self.maintenance.next_segment);
        self.maintenance.next_segment += 1;
        let (dir, incarnation) = (self.dir.join(super::open::JOURNAL_DIR), self.manifest.incarnation);
        let job = PrepareSegment::new(&dir, id, incarnation, outcome.clone());
        self.spawn.spawn(Box::new(job));
        self.maintenance.segment = Some(outcome);
    }

    fn take_segment(&mut self) {
        let Some(made) = self.maintenance.segment.as_ref().and_then(Outcome::take) else { return };
        self.maintenance.segment = None;
        match made {
            Ok(ready) => self.writer.provide(ready),
            Err(error) => self.writer.fence(error),
        }
    }

    pub(super) fn want_flush(&mut self) {
        let waits = self.maintenance.edits.iter().any(|edit| edit.flushed)
            || self
                .maintenance
                .manifest
                .as_ref()
                .is_some_and(|run| run.edit.as_ref().is_some_and(|e| e.flushed));
        if self.maintenance.flush.is_some() || waits {
            return;
        }
        let Some(oldest) = self.frozen.front() else { return };
        let source: Box<dyn Source> = Box::new(MemtableSource::new(&oldest.reader, Seq(u64::MAX)));
        let outcome = Outcome::new();
        let job = MergeJob::new(vec![source], self.merge_request(0, u64::MAX, false), outcome.clone());
        self.spawn.spawn(Box::new(job));
        self.maintenance.flush = Some(outcome);
    }

    fn take_flush(&mut self) {
        let Some(done) = self.maintenance.flush.as_ref().and_then(Outcome::take) else { return };
        self.maintenance.flush = None;
        match done {
            Ok(output) => {
                let needs_durable = self.frozen.front().expect("a flush has its memtable").last_seq;
                self.counters.flushes += 1;
                let edit = Edit {
                    added: in_level(0, output.tables),
                    removed: Vec::new(),
                    flushed: true,
                    needs_durable,
                };
                self.maintenance.edits.push(edit);
            }
            Err(error) => self.writer.fence(error),
        }
    }

    fn want_merge(&mut self) {
        let busy = self.maintenance.merge.is_some()
            || self.maintenance.edits.iter().any(|edit| !edit.removed.is_empty())
            || self.maintenance.manifest.as_ref().is_some_and(|run| run.edit.is_some())
            || self.maintenance.closing.is_some();
        if busy {
            return;
        }
        let cursors = &mut self.maintenance.merge_cursors;
        let Some(plan) = self.version.pick_merge(&self.options.levels(), cursors) else { return };
        let request =
            self.merge_request(plan.output_level, self.options.table_bytes_target, plan.drop_deletions);
        let outcome = Outcome::new();
        let job = MergeJob::new(plan.sources(), request, outcome.clone());
        self.spawn.spawn(Box::new(job));
        self.maintenance.merge = Some((plan, outcome));
    }

    fn take_merge(&mut self) {
        let Some(done) = self.maintenance.merge.as_ref().and_then(|(_, outcome)| outcome.take()) else {
            return;
        };
        let (plan, _) = self.maintenance.merge.take().expect("just looked");
        match done {
            Ok(output) => {
                self.counters.merges += 1;
                let edit = Edit {
                    added: in_level(plan.output_level, output.tables),
                    removed: plan.tables().cloned().collect(),
                    flushed: false,
                    needs_durable: Seq(0),
                };
                self.maintenance.edits.push(edit);
            }
            Err(error) => self.writer.fence(error),
        }
    }

    fn want_manifest(&mut self) {
        if self.maintenance.manifest.is_some() {
            return;
        }
        let durable = self.writer.durable();
        let ready = self.maintenance.edits.iter().position(|edit| edit.needs_durable <= durable);
        let edit = ready.map(|index| self.maintenance.edits.remove(index));
        if edit.is_none() && self.manifest.dot_lease_end - self.next_counter > LEASE_COUNTERS / 2 {
            return;
        }
        let version = match &edit {
            Some(edit) => {
                let removed: Vec<TableId> = edit.removed.iter().map(|table| table.id()).collect();
                Arc::new(self.version.apply(&edit.added, &removed))
            }
            None => Arc::clone(&self.version),
        };
        let mut state = self.manifest.clone();
        state.dot_lease_end = state.dot_lease_end.max(self.next_counter + LEASE_COUNTERS);
        if edit.as_ref().is_some_and(|edit| edit.flushed) {
            let flushed = self.frozen.front().expect("a flush has its memtable");
            state.replay_position = position(flushed.end);
            state.replay_jsn = flushed.end_jsn;
        }
        self.describe(&mut state, &version);
        self.write_manifest(state, version, edit);
    }

    /// Fills in what the manifest says of tables and segments.
    pub(super) fn describe(&self, state: &mut ManifestState, version: &Version) {
        state.next_table_id = TableId(self.maintenance.next_table.load(Ordering::Relaxed));
        state.next_segment_id = self.maintenance.next_segment;
        state.last_seq = self.writer.last_seq();
        state.last_jsn = Jsn(self.writer.next_jsn().0 - 1);
        state.levels = version.records();
        state.segments = self.segments.iter().map(|segment| segment.record()).collect();
        state.suspect = self.suspect.as_ref().map(Suspect::record);
    }

    fn write_manifest(&mut self, state: ManifestState, version: Arc<Version>, edit: Option<Edit>) {
        let outcome = Outcome::new();
        let job = ManifestJob::new(self.dir.clone(), state.clone(), outcome.clone());
        self.spawn.spawn(Box::new(job));
        self.maintenance.manifest = Some(ManifestRun { outcome, state, version, edit });
    }

    fn take_manifest(&mut self) {
        let Some(done) = self.maintenance.manifest.as_ref().and_then(|run| run.outcome.take()) else {
            return;
        };
        let run = self.maintenance.manifest.take().expect("just looked");
        if let Err(error) = done {
            self.writer.fence(error);
            return;
        }
        self.counters.manifests += 1;
        self.manifest = run.state;
        self.version = run.version;
        if let Some(edit) = run.edit {
            if edit.flushed {
                self.frozen.pop_front();
            }
            self.maintenance.obsolete.extend(edit.removed);
        }
    }

    // A table's file goes when only this list knows it: snapshots, parked lookups and jobs hold theirs.
    fn remove_obsolete(&mut self) {
        if self.maintenance.obsolete.is_empty() {
            return;
        }
        let mut unused = Vec::new();
        self.maintenance.obsolete.retain(|table| {
            let last = Arc::strong_count(table) == 1;
            if last {
                unused.push(Arc::clone(table));
            }
            !last
        });
        if !unused.is_empty() {
            self.spawn.spawn(Box::new(RemoveTables(unused)));
        }
    }

    fn merge_request(
        &self,
        output_level: usize,
        table_bytes_target: u64,
        drop_deletions: bool,
    ) -> MergeRequest {
        MergeRequest {
            dir: self.tables_dir(),
            next_table_id: Arc::clone(&self.maintenance.next_table),
            output_level,
            table_bytes_target,
            drop_deletions,
            dropped: None,
        }
    }

    pub(super) fn tables_dir(&self) -> PathBuf {
        self.dir.join(super::open::TABLES_DIR)
    }
}

/// Removes the files of tables. One that stays, because of an error or a crash, is removed at the next start.
struct RemoveTables(Vec<Arc<Table>>);

impl Job for RemoveTables {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        for table in self.0.drain(..) {
            let closed = disk::run(disk, table.close_op());
            let removed = disk::run(disk, table.remove_op());
            drop((closed, removed));
        }
        Progress::Done
    }
}

fn in_level(level: usize, tables: Vec<Arc<Table>>) -> Vec<(usize, Arc<Table>)> {
    tables.into_iter().map(|table| (level, table)).collect()
}

/// A journal position as the manifest has it.
pub(super) fn position(at: Position) -> JournalPosition {
    JournalPosition { segment: at.segment.0, offset: at.offset }
}
