//! Writes the newest versions of a merge's sources into new tables, slice by slice.
//!
//! Steps: 1. seek; 2. copy entries, a bounded number in a slice, ending a table (synced) when it is large enough;
//! 3. sync the directory; 4. open each table, which checks it; 5. give the outcome. After an error the tables
//! made so far are removed, as far as the disk lets them be; whatever stays, after a crash too, is in no manifest
//! and is removed when the store is opened.

use super::{Item, LedgerSource, MergeIter, Source};
use crate::compaction::DeadRecord;
use crate::drops::DroppedRanges;
use crate::entry::{Entry, Location};
use crate::error::Error;
use crate::lost::{LostRange, LostRanges};
use crate::manifest::Version;
use crate::memtable;
use crate::table::{FilterBits, Table, TableBuilder, TableId};
use base::Disk;
use base::disk::{self, DiskOp};
use base::spawn::{Job, Outcome, Progress};
use bytes::Bytes;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A slice copies at most so many bytes: what [`Job::slice`] asks for.
const SLICE_BYTES: usize = 1 << 20;

/// A slice reads at most so many entries: about a millisecond, at some 250 ns for each.
const SLICE_ENTRIES: usize = 4096;

/// One in so many entries is looked for in the ledger: two waits for memory for some ten microseconds of copying.
const SAMPLED_EVERY: u64 = 32;

/// What a merge is to do with what it reads.
#[derive(Clone)]
pub struct MergeRequest {
    /// Where the tables go.
    pub dir: PathBuf,
    /// The next table's number, shared by all jobs of a store.
    pub next_table_id: Arc<AtomicU64>,
    /// The level for which the tables are made.
    pub output_level: usize,
    /// A table is ended when it is this long. `u64::MAX` for one table: a flush into level 0.
    pub table_bytes_target: u64,
    /// Whether deletions are left out: nothing below the output level can hold their keys.
    pub drop_deletions: bool,
    /// Which versions are left out because their range was dropped: drops that no crash can undo.
    pub dropped: Arc<DroppedRanges>,
    /// Where versions were lost: deletions stay there.
    pub lost: Arc<LostRanges>,
    /// Versions that end by now, in milliseconds since 1970, become deletions.
    pub now_ms: u64,
}

/// What a merge has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeStats {
    /// Versions read from all sources.
    pub versions_read: u64,
    /// Entries written.
    pub entries_written: u64,
    /// Bytes of the new tables.
    pub bytes_written: u64,
    /// Deletions left out.
    pub deletions_dropped: u64,
    /// Newest versions left out because their range was dropped.
    pub range_dropped: u64,
    /// Newest versions that had ended and became deletions, or were left out like them.
    pub expired: u64,
    /// Values and deletions of which it was asked whether they replace something deep in the ledger.
    pub sampled: u64,
    /// Those of them that do, as far as filters tell.
    pub sampled_replacing: u64,
}

/// A merge's result.
#[derive(Debug)]
pub struct MergeOutput {
    /// The level for which the tables were made.
    pub level: usize,
    /// The new tables, open, in key order. None if every entry was left out.
    pub tables: Vec<Arc<Table>>,
    /// Counts.
    pub stats: MergeStats,
    /// The records whose versions are in none of the new tables, though one of the sources had them.
    pub dead: Vec<DeadRecord>,
    /// What was left out because its blocks are damaged.
    pub lost: Vec<LostRange>,
}

/// A flush or a merge as a job.
pub struct MergeJob {
    request: MergeRequest,
    iter: MergeIter,
    step: Step,
    builder: Option<TableBuilder>,
    /// The tables whose files were made, the one under construction included.
    made: Vec<TableId>,
    tables: Vec<Arc<Table>>,
    stats: MergeStats,
    /// The deletion that is written in the place of a version that has ended.
    deletion: Vec<u8>,
    /// No table holds keys on both sides of one of these.
    fences: VecDeque<Bytes>,
    /// Where it is looked whether entries replace something.
    replaces_in: Option<Arc<Version>>,
    copied: u64,
    dead: Vec<DeadRecord>,
    lost: Vec<LostRange>,
    /// Versions read so far, for whoever waits for the outcome.
    read: Arc<AtomicU64>,
    outcome: Outcome<Result<MergeOutput, Error>>,
}

/// What becomes of the newest version of a key.
enum Fate {
    Kept,
    Deleted,
    Left,
}

enum Step {
    Seek,
    Copy,
    SyncDir,
    Open,
}

impl MergeJob {
    /// A job that merges `sources`; where they have the same version of a key, it is taken from the first.
    pub fn new(
        sources: Vec<LedgerSource>,
        request: MergeRequest,
        outcome: Outcome<Result<MergeOutput, Error>>,
    ) -> MergeJob {
        let mut iter = MergeIter::new(sources);
        iter.note_replaced();
        iter.cut_out();
        MergeJob {
            request,
            iter,
            step: Step::Seek,
            builder: None,
            made: Vec::new(),
            tables: Vec::new(),
            stats: MergeStats::default(),
            deletion: Vec::new(),
            fences: VecDeque::new(),
            replaces_in: None,
            copied: 0,
            dead: Vec::new(),
            lost: Vec::new(),
            read: Arc::default(),
            outcome,
        }
    }

    /// How many versions it has read from its sources, as of its last slice.
    pub fn versions_read(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }

    /// The same, with the new tables cut at these keys, which ascend: none has keys on both sides of one.
    pub fn with_fences(self, fences: Vec<Bytes>) -> MergeJob {
        MergeJob { fences: fences.into(), ..self }
    }

    /// The same, telling of a sample of entries whether they replace something deep in this version of the ledger.
    pub fn with_sample_in(self, version: Arc<Version>) -> MergeJob {
        MergeJob { replaces_in: Some(version), ..self }
    }

    fn step(&mut self, disk: &mut dyn Disk) -> Result<Progress, Error> {
        match self.step {
            Step::Seek => {
                self.iter.seek(disk, &[])?;
                self.step = Step::Copy;
            }
            Step::Copy => self.copy(disk)?,
            Step::SyncDir => {
                disk::run(disk, DiskOp::SyncDir { path: self.request.dir.clone() })?;
                self.step = Step::Open;
            }
            Step::Open => match self.made.get(self.tables.len()) {
                None => return Ok(Progress::Done),
                Some(&id) => {
                    let table = Table::open(disk, &self.request.dir, id)?;
                    self.stats.bytes_written += table.len();
                    self.stats.entries_written += table.meta().entries;
                    self.tables.push(Arc::new(table));
                }
            },
        }
        Ok(Progress::More)
    }

    /// Copies entries until the slice or a table is full, or nothing is left.
    fn copy(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        let mut bytes = 0;
        for _ in 0..SLICE_ENTRIES {
            let Some(item) = self.iter.item() else {
                self.end_table(disk)?;
                self.stats.versions_read = self.iter.versions_read();
                self.dead.append(&mut self.iter.take_replaced());
                self.dead.sort_unstable();
                self.lost = self.iter.take_lost();
                self.step = if self.made.is_empty() { Step::Open } else { Step::SyncDir };
                return Ok(());
            };
            bytes += item.key.len() + item.entry.len();
            if self.fences.front().is_some_and(|fence| *item.key >= **fence) {
                self.fences.pop_front();
                self.end_table(disk)?;
                return Ok(());
            }
            let fate = fate(&self.request, &mut self.stats, item, &mut self.deletion)?;
            if !matches!(fate, Fate::Kept) {
                self.dead.extend(DeadRecord::of(item.entry)?);
            }
            if !matches!(fate, Fate::Left) {
                if let Some(version) = &self.replaces_in {
                    self.copied += 1;
                    if self.copied.is_multiple_of(SAMPLED_EVERY) {
                        sample(version, item, &mut self.stats)?;
                    }
                }
                if self.builder.is_none() {
                    let id = TableId(self.request.next_table_id.fetch_add(1, Ordering::Relaxed));
                    self.made.push(id);
                    let bits = match self.request.output_level {
                        0 => FilterBits::Many,
                        _ => FilterBits::Usual,
                    };
                    let builder = TableBuilder::create(disk, &self.request.dir, id)?.with_filter(bits);
                    self.builder.insert(builder).set_cut(self.request.dropped.last_seq());
                }
                let builder = self.builder.as_mut().expect("made above");
                let entry = if matches!(fate, Fate::Deleted) { &self.deletion } else { item.entry };
                builder.add(disk, item.key, item.seq, entry)?;
                if builder.file_len() >= self.request.table_bytes_target {
                    self.end_table(disk)?;
                    return self.iter.next(disk);
                }
            }
            self.iter.next(disk)?;
            if bytes >= SLICE_BYTES {
                break;
            }
        }
        Ok(())
    }

    fn end_table(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        if let Some(builder) = self.builder.take() {
            builder.finish(disk)?;
        }
        Ok(())
    }

    /// Removes what was made. The error that led here is what is told; that a file stays is harmless.
    fn discard(&mut self, disk: &mut dyn Disk) {
        if let Some(builder) = self.builder.take() {
            builder.abandon(disk);
        }
        for table in self.tables.drain(..) {
            disk::run(disk, table.close_op()).ok();
        }
        for id in self.made.drain(..) {
            let path = self.request.dir.join(id.file_name());
            disk::run(disk, DiskOp::Remove { path }).ok();
        }
    }
}

/// Looks whether an entry replaces something. What is inline, as index entries are, has no value in the journal.
fn sample(version: &Version, item: Item<'_>, stats: &mut MergeStats) -> Result<(), Error> {
    if Entry::decode(item.entry)?.location != Location::Inline {
        stats.sampled += 1;
        stats.sampled_replacing += u64::from(version.may_hold_deep(item.key, memtable::hash(item.key)));
    }
    Ok(())
}

/// What becomes of the newest version of a key. A version that has ended hides older ones in deeper levels, as a
/// deletion does, so it is left out only where deletions are.
fn fate(
    request: &MergeRequest,
    stats: &mut MergeStats,
    item: Item<'_>,
    deletion: &mut Vec<u8>,
) -> Result<Fate, Error> {
    if request.dropped.covers(item.key, item.seq) {
        stats.range_dropped += 1;
        return Ok(Fate::Left);
    }
    if !request.drop_deletions && !Entry::expires(item.entry) {
        return Ok(Fate::Kept);
    }
    let entry = Entry::decode(item.entry)?;
    if !entry.is_gone(request.now_ms) {
        return Ok(Fate::Kept);
    }
    // Where a version was lost, that a key is gone is known as long as its deletion is there.
    let ends_here = request.drop_deletions && request.lost.check_missing(item.key).is_ok();
    if entry.location == Location::Deleted {
        if !ends_here {
            return Ok(Fate::Kept);
        }
        stats.deletions_dropped += 1;
        return Ok(Fate::Left);
    }
    stats.expired += 1;
    if ends_here {
        return Ok(Fate::Left);
    }
    deletion.clear();
    entry.ended().encode(deletion);
    Ok(Fate::Deleted)
}

impl Job for MergeJob {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        let result = match self.step(disk) {
            Ok(Progress::More) => {
                self.read.store(self.iter.versions_read(), Ordering::Relaxed);
                return Progress::More;
            }
            Ok(Progress::Done) => Ok(MergeOutput {
                level: self.request.output_level,
                tables: std::mem::take(&mut self.tables),
                stats: self.stats,
                dead: std::mem::take(&mut self.dead),
                lost: std::mem::take(&mut self.lost),
            }),
            Err(error) => {
                self.discard(disk);
                Err(error)
            }
        };
        self.outcome.set(result);
        Progress::Done
    }
}
