//! Runs and whole tables become new tables: the newest version of each key of a part of all keys.
//!
//! A version that the journal has is the newest of its key. One that only a table has is left out where versions are
//! lost ([`crate::lost`]), in blocks that are found damaged here, too: it may have been replaced. So what is left in
//! such a range is certain, and only what is missing is not. Deletions end here, as nothing older is left that they
//! could hide, but not where versions are lost.
//!
//! Bytes of values that are of use are counted by segment, which is bounded, instead of dead ones by record.

use super::RebuildProgress;
use crate::drops::DroppedRanges;
use crate::entry::{Entry, Jsn, Location};
use crate::error::Error;
use crate::index::Indexing;
use crate::journal::record::padded_len;
use crate::lost::{LostRange, LostRanges};
use crate::manifest::TableRecord;
use crate::merge::{MergeIter, Source};
use crate::table::{Table, TableBuilder, TableId, TableIter};
use base::disk::{self, DiskErrorKind, DiskOp};
use base::spawn::Outcome;
use base::{Disk, FastMap, Job, Progress};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A slice joins so many entries.
const SLICE_ENTRIES: usize = 16 << 10;

/// One part.
pub(super) struct JoinRequest {
    /// Where the tables go.
    pub dir: PathBuf,
    /// The first table's number.
    pub first_id: TableId,
    pub table_bytes_target: u64,
    pub runs: Vec<Arc<Table>>,
    pub tables: Vec<Arc<Table>>,
    /// The first key; from the first of all without one.
    pub from: Option<Vec<u8>>,
    /// The key behind the last one.
    pub to: Option<Vec<u8>>,
    pub dropped: Arc<DroppedRanges>,
    /// Whose entries are left out.
    pub indexing: Option<Indexing>,
    pub lost: Arc<LostRanges>,
    /// The first number of each segment, ascending.
    pub segments: Arc<[(Jsn, u64)]>,
    pub progress: Arc<RebuildProgress>,
    pub outcome: Outcome<Result<Joined, Error>>,
}

/// What came of a part.
#[derive(Debug, Default)]
pub(super) struct Joined {
    /// In key order.
    pub tables: Vec<TableRecord>,
    pub keys: u64,
    /// Bytes of records with values of use, by segment.
    pub live: FastMap<u64, u64>,
    /// What was left out because its block is damaged.
    pub lost: Vec<LostRange>,
}

impl Joined {
    /// Adds what came of the part behind this one.
    pub fn append(&mut self, next: Result<Joined, Error>) -> Result<(), Error> {
        let next = next?;
        self.tables.extend(next.tables);
        self.keys += next.keys;
        self.lost.extend(next.lost);
        for (segment, bytes) in next.live {
            *self.live.entry(segment).or_default() += bytes;
        }
        Ok(())
    }
}

/// A job that joins one part.
pub(super) struct Join {
    request: JoinRequest,
    iter: MergeIter,
    sought: bool,
    builder: Option<TableBuilder>,
    made: Vec<TableId>,
    joined: Joined,
}

impl Join {
    pub fn new(request: JoinRequest) -> Join {
        // Runs come first: where a table has the same version, the run's entry says where the record stands now.
        let all = request.runs.iter().chain(&request.tables);
        let sources = all.map(|table| TableIter::new(Arc::clone(table)).into());
        let mut iter = MergeIter::new(sources.collect());
        iter.cut_out();
        let joined = Joined::default();
        Join { request, iter, sought: false, builder: None, made: Vec::new(), joined }
    }

    fn step(&mut self, disk: &mut dyn Disk) -> Result<Progress, Error> {
        if !self.sought {
            self.sought = true;
            let from = self.request.from.take().unwrap_or_default();
            self.iter.seek(disk, &from)?;
        }
        let before = self.iter.versions_read();
        for _ in 0..SLICE_ENTRIES {
            let in_journal = self.iter.source() < Some(self.request.runs.len());
            if !in_journal {
                self.note_lost();
            }
            let Some(item) = self.iter.item() else { return self.finish(disk) };
            if self.request.to.as_ref().is_some_and(|to| item.key >= &to[..]) {
                return self.finish(disk);
            }
            let lost = &self.request.lost;
            let is_certain = in_journal || lost.check_found(item.key, item.seq).is_ok();
            let is_derived = self.request.indexing.is_some_and(|indexing| indexing.is_entry(item.key));
            if is_certain && !is_derived && !self.request.dropped.covers(item.key, item.seq) {
                let entry = Entry::decode(item.entry)?;
                let ends_here = entry.location == Location::Deleted && lost.check_missing(item.key).is_ok();
                if !ends_here {
                    self.joined.keys += u64::from(entry.location != Location::Deleted);
                    count_live(&self.request.segments, &mut self.joined.live, &entry);
                    if self.builder.is_none() {
                        let id = TableId(self.request.first_id.0 + self.made.len() as u64);
                        remove(disk, &self.request.dir, id)?;
                        self.made.push(id);
                        let builder = TableBuilder::create(disk, &self.request.dir, id)?;
                        self.builder.insert(builder).set_cut(self.request.dropped.last_seq());
                    }
                    let builder = self.builder.as_mut().expect("made above");
                    builder.add(disk, item.key, item.seq, item.entry)?;
                    if builder.file_len() >= self.request.table_bytes_target {
                        self.end_table(disk)?;
                    }
                }
            }
            self.iter.next(disk)?;
        }
        self.request.progress.entries_joined.fetch_add(self.iter.versions_read() - before, Ordering::Relaxed);
        Ok(Progress::More)
    }

    /// Takes note of blocks that were left out: they are met before the keys that may have been in them.
    fn note_lost(&mut self) {
        let lost = self.iter.take_lost();
        if !lost.is_empty() {
            self.request.lost = self.request.lost.with(lost.iter().cloned());
            self.joined.lost.extend(lost);
        }
    }

    fn end_table(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        if let Some(builder) = self.builder.take() {
            builder.finish(disk)?;
        }
        Ok(())
    }

    /// Opens what was made, which checks it.
    fn finish(&mut self, disk: &mut dyn Disk) -> Result<Progress, Error> {
        self.end_table(disk)?;
        self.note_lost();
        for &id in &self.made {
            let table = Arc::new(Table::open(disk, &self.request.dir, id)?);
            self.joined.tables.push(TableRecord::of(&table));
            disk::run(disk, table.close_op())?;
        }
        Ok(Progress::Done)
    }
}

/// Counts the record that an entry points at.
fn count_live(segments: &[(Jsn, u64)], live: &mut FastMap<u64, u64>, entry: &Entry<'_>) {
    if let Location::Journal { len, .. } = entry.location {
        let after = segments.partition_point(|(first, _)| *first <= entry.jsn);
        if let Some((_, segment)) = after.checked_sub(1).and_then(|at| segments.get(at)) {
            *live.entry(*segment).or_default() += padded_len(len as usize) as u64;
        }
    }
}

/// What a rebuild that was killed has left.
fn remove(disk: &mut dyn Disk, dir: &std::path::Path, id: TableId) -> Result<(), Error> {
    match disk::run(disk, DiskOp::Remove { path: dir.join(id.file_name()) }) {
        Err(error) if error.kind != DiskErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

impl Job for Join {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        match self.step(disk) {
            Ok(Progress::More) => return Progress::More,
            Ok(Progress::Done) => self.request.outcome.set(Ok(std::mem::take(&mut self.joined))),
            Err(error) => {
                if let Some(builder) = self.builder.take() {
                    builder.abandon(disk);
                }
                self.request.outcome.set(Err(error));
            }
        }
        Progress::Done
    }
}
