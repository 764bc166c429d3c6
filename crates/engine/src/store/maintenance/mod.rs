//! What a store does for itself, one of each kind at a time, each as a job.
//!
//! * `segment.rs`: the next segment is made as soon as the last one made is in use, and the one before it is sealed.
//! * `memtable.rs`: so is the next memtable.
//! * `sync.rs`: what was written without a sync is synced where nobody waits for it.
//! * `flush.rs`: a frozen memtable is flushed to a table of level 0. `merge.rs`: levels over their size are merged.
//! * `backlog.rs`: how much of that is still to be done, by which writes are paced; `compaction.rs` has its own part of
//!   it.
//! * `cut.rs`: tables let go of what was dropped with its range or has ended.
//! * `manifest.rs`: a flush or merge that is done is an edit; an edit becomes the new version once the manifest
//!   that says so is durable. The lease of dot counters.
//! * `compaction.rs`: what is of use in segments that are mostly waste moves to a new one.
//! * `scrub.rs`: what lies there is read again, within a period.
//! * `store/index.rs`: index entries are made anew where they are not whole.
//! * `backup.rs`: the segment under way is ended, so that whole files make up a backup.
//! * `obsolete.rs`: files of tables and segments that nobody reads any more are removed.
//!
//! A job that fails because of the disk fences the store: what it has is still read, and nothing is lost. One for which
//! there was no room is tried again (`room.rs`). One that meets damage leaves it where it is; a compaction that fails
//! is tried again.

mod backlog;
mod backup;
mod compaction;
mod cut;
mod flush;
mod lag;
mod manifest;
mod memtable;
mod merge;
mod obsolete;
mod scrub;
mod segment;
mod sync;

pub(super) use manifest::{Edit, set_oldest};
pub(crate) use manifest::{LEASE_COUNTERS, position};
pub(super) use obsolete::WASTE_DIR;
pub(super) use scrub::ScrubState;

use super::{Event, Store};
use crate::error::Error;
use crate::index::Building;
use crate::journal::writer::ReadySegment;
use crate::lost::LostRanges;
use crate::manifest::{MergeCursors, MergePlan};
use crate::memtable::Memtable;
use crate::store::disk_room::Claim;
use crate::table::{Table, TableId};
use backlog::Underway;
use base::Monotonic;
use base::spawn::Outcome;
use compaction::CompactionState;
use manifest::ManifestRun;
use obsolete::Removing;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Jobs under way and what waits for them.
#[derive(Default)]
pub(super) struct Maintenance {
    pub(super) next_segment: u64,
    segment: Option<Outcome<Result<ReadySegment, Error>>>,
    sync: Option<sync::SyncRun>,
    memtable: Option<Outcome<Memtable>>,
    flush: Option<Underway>,
    merge: Option<(MergePlan, Underway)>,
    pub(super) merge_cursors: MergeCursors,
    /// The room that the merge under way may take.
    merge_claim: Option<Claim>,
    /// As of when no level was found too large, and nothing that makes room.
    no_merge: Option<merge::MergesAsOf>,
    /// Whether the last look for a merge has found one without room.
    merge_lacks_room: bool,
    replacing: merge::Replacing,
    /// What merges and the scrub have found lost, for [`Store::take_lost`].
    found_lost: Arc<LostRanges>,
    /// Tables in which a merge has met damage.
    damaged_tables: BTreeSet<TableId>,
    cut_look: cut::CutLook,
    pub(super) edits: Vec<Edit>,
    manifest: Option<ManifestRun>,
    obsolete: Vec<Arc<Table>>,
    pub(super) compaction: CompactionState,
    removing: Option<Removing>,
    pub(super) scrub: ScrubState,
    pub(super) next_table: Arc<AtomicU64>,
    pub(super) closing: Option<super::close::Closing>,
    backup: Option<backup::BackupRun>,
}

impl Maintenance {
    /// Nothing under way; the next segment and table have these numbers.
    pub(super) fn new(next_segment: u64, next_table: Arc<AtomicU64>) -> Maintenance {
        Maintenance { next_segment, next_table, ..Maintenance::default() }
    }
}

impl Maintenance {
    /// Whether files of tables or segments wait for whoever still reads them.
    pub(super) fn holds_files(&self) -> bool {
        !self.obsolete.is_empty() || !self.compaction.obsolete.is_empty()
    }
}

impl Store {
    pub(super) fn maintain(&mut self, now: Monotonic, events: &mut Vec<Event>) {
        self.take_segment();
        self.take_sync_beside();
        self.want_seal();
        self.take_flush();
        self.take_merge();
        self.step_checkpoints();
        self.take_compaction(now);
        self.take_manifest();
        self.take_scrub(now);
        self.step_room(now);
        self.step_index(now);
        self.want_sync_beside();
        if self.writer.fenced().is_none() && !self.waits_for_room() {
            self.want_segment();
            self.want_memtable();
            self.step_reclaim(now);
            self.want_flush();
            self.want_merge();
            self.want_compaction(now);
            self.step_backup();
            self.want_manifest();
        }
        self.end_hopeless_backup();
        self.want_scrub(now);
        self.remove_obsolete();
        self.remove_segments(now);
        self.step_close(events);
    }

    /// True while the ledger is about to change. Compaction, which keeps to a pace, is not waited for.
    pub(super) fn edits_pending(&self) -> bool {
        let at_work = &self.maintenance;
        at_work.flush.is_some()
            || at_work.merge.is_some()
            || at_work.manifest.is_some()
            || !at_work.edits.is_empty()
    }

    /// Whether it works in the background, the scrub apart: then its pace is a matter of how often it has a turn.
    pub fn is_maintaining(&self) -> bool {
        self.edits_pending() || self.maintenance_pending()
    }

    /// Whether work is under way that ends by itself, and after which there may be room for a write that was refused.
    pub(crate) fn makes_room(&self) -> bool {
        let at_work = &self.maintenance;
        let is_under_way = self.edits_pending() || at_work.segment.is_some() || at_work.sync.is_some();
        is_under_way && self.unfinished().is_none()
    }

    /// True while a job is under way or wanted whose end this store waits for.
    pub(super) fn maintenance_pending(&self) -> bool {
        let at_work = &self.maintenance;
        at_work.segment.is_some()
            || at_work.sync.is_some()
            || at_work.flush.is_some()
            || at_work.merge.is_some()
            || at_work.compaction.running.is_some()
            || at_work.removing.is_some()
            || at_work.manifest.is_some()
            || !at_work.edits.is_empty()
            || self.building.as_ref().is_some_and(Building::is_reading)
    }

    pub(crate) fn tables_dir(&self) -> PathBuf {
        self.dir.join(super::open::TABLES_DIR)
    }
}
