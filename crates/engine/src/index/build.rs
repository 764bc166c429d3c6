//! Making all index entries anew, from the heads of objects, while the store serves.
//!
//! 1. Drop the space of entries, mark and all, if there is anything in it.
//! 2. Read a page: a job walks the objects of a snapshot, and gathers those that have entries ([`ReadPage`]).
//! 3. Write their entries, but not those of objects that were written since that snapshot: such a write has brought all
//!    of its own ([`Building::touch`]). Go on with the next page, or
//! 4. write the mark. When it may be acknowledged the index is whole.
//!
//! Invariants: while it goes on each write of an object writes all of its entries, and takes those of the version
//! before away, there or not. So what is in the space is at any moment what the written part of the objects has, and a
//! crash costs no more than to begin again. A range that is dropped has the page read again, of a snapshot that shows
//! so.

use super::Indexing;
use crate::entry::{Entry, Seq};
use crate::error::Error;
use crate::lost::LostRange;
use crate::merge::{MergeIter, Source};
use crate::read::Snapshot;
use base::spawn::Outcome;
use base::{Disk, Job, Monotonic, Progress};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Bytes of entries on a page: written in one turn, which takes the shard a few milliseconds.
const PAGE_BYTES: usize = 128 << 10;

/// Heads looked at in one slice: about a millisecond.
const SLICE_HEADS: usize = 4096;

/// Objects written while a page is read, beyond which it is read again instead: they are held in memory.
const TOUCHED_MAX: usize = 64 << 10;

/// How far it has come.
pub(crate) enum Step {
    /// The space of entries is to be dropped.
    Drop,
    /// The page from this key on is to be read.
    Read(Bytes),
    /// It is being read.
    Reading(Bytes, Outcome<Result<Page, Error>>),
    /// It is to be written; it was read from this key on.
    Write(Bytes, Page),
    /// The mark is to be written.
    Mark,
    /// It was written, and is to be acknowledged with all before it.
    Marked(Seq),
}

/// Entries being made anew.
pub(crate) struct Building {
    pub step: Step,
    /// When to read again what the disk has failed.
    pub again_at: Option<Monotonic>,
    /// Pages are read of snapshots that show this version: that of the last drop.
    pub not_before: Seq,
    /// Objects whose entries were written since the page's snapshot, and when.
    touched: BTreeMap<Box<[u8]>, Seq>,
}

/// What a start finds of the index.
pub(crate) struct Found {
    /// What is to be made anew.
    pub building: Option<Building>,
    /// When the mark was written.
    pub marked: Seq,
    /// Whether there may be an entry.
    pub has_entries: bool,
}

/// Objects that have entries.
#[derive(Default)]
pub(crate) struct Page {
    pub objects: Vec<Indexed>,
    /// Where the next page begins.
    next: Option<Bytes>,
}

/// An object and its entries.
pub(crate) struct Indexed {
    pub key: Bytes,
    pub expires_ms: Option<u64>,
    pub entries: Vec<Bytes>,
}

impl Building {
    /// From the first object on, with nothing in the space since version `dropped_at`. What was written until then
    /// brought what changed among its entries only, and that is dropped; so a page must show it.
    pub fn from_start(indexing: &Indexing, dropped_at: Seq) -> Building {
        let step = Step::Read(Bytes::from_static(indexing.objects.0));
        Building { not_before: dropped_at, ..Building::at(step) }
    }

    fn at(step: Step) -> Building {
        Building { step, again_at: None, not_before: Seq(0), touched: BTreeMap::new() }
    }

    /// What is to be made of a store that was opened: nothing where the mark is there and no loss came after it. Tells
    /// beside it when the mark was written, and whether there is any entry. Blocks.
    pub fn look(disk: &mut dyn Disk, snapshot: &Snapshot, indexing: &Indexing) -> Found {
        let Ok((mark, has_entries)) = find(disk, snapshot, indexing) else {
            return Found { building: Some(Building::at(Step::Drop)), marked: Seq(0), has_entries: true };
        };
        let is_later = |range: &LostRange| {
            let keys = || &range.start[..]..&range.end[..];
            mark < Some(range.below) && (indexing.has_entries(keys()) || indexing.has_objects(keys()))
        };
        let is_whole = mark.is_some() && !snapshot.lost.iter().any(is_later);
        let building = match (is_whole, mark.is_some() || has_entries) {
            (true, _) => None,
            (false, true) => Some(Building::at(Step::Drop)),
            (false, false) => Some(Building::from_start(indexing, Seq(0))),
        };
        Found { building, marked: mark.unwrap_or_default(), has_entries }
    }

    /// All entries of an object were written as of `seq`.
    pub fn touch(&mut self, key: &[u8], seq: Seq) {
        self.touched.insert(key.into(), seq);
        if self.touched.len() > TOUCHED_MAX {
            self.read_again(seq);
            self.touched.clear();
        }
    }

    /// Whether a page's object was written since the page's snapshot.
    pub fn is_touched(&self, key: &[u8]) -> bool {
        self.touched.contains_key(key)
    }

    /// What was read of the page may no longer be so: it is to be read of a snapshot that shows version `seq`.
    pub fn read_again(&mut self, seq: Seq) {
        self.not_before = seq;
        if let Step::Reading(from, _) | Step::Write(from, _) = &self.step {
            self.step = Step::Read(from.clone());
        }
    }

    /// Begins to read a page of what `snapshot` shows.
    pub fn read(&mut self, from: Bytes, snapshot: Snapshot, indexing: Indexing) -> Box<dyn Job> {
        self.touched.retain(|_, seq| *seq > snapshot.seq());
        let outcome = Outcome::new();
        self.step = Step::Reading(from.clone(), outcome.clone());
        let mut iter = snapshot.iter();
        iter.cut_out();
        Box::new(ReadPage {
            indexing,
            snapshot,
            iter,
            from: Some(from),
            page: Page::default(),
            bytes: 0,
            outcome,
        })
    }

    /// What comes behind a page that has been written.
    pub fn behind(page: Page) -> Step {
        page.next.map_or(Step::Mark, Step::Read)
    }

    /// Whether a job is under way.
    pub fn is_reading(&self) -> bool {
        matches!(self.step, Step::Reading(..))
    }
}

/// When the mark was written, if it is there, and whether there is an entry.
fn find(disk: &mut dyn Disk, snapshot: &Snapshot, indexing: &Indexing) -> Result<(Option<Seq>, bool), Error> {
    let mut iter = snapshot.iter();
    iter.seek(disk, indexing.mark())?;
    let mut mark = None;
    if let Some(item) = iter.item().filter(|item| item.key == indexing.mark()) {
        let entry = Entry::decode(item.entry)?;
        mark = (!snapshot.is_gone(item.key, item.seq, &entry)).then_some(item.seq);
        iter.next(disk)?;
    }
    Ok((mark, iter.item().is_some_and(|item| item.key < indexing.entries.1)))
}

/// Gathers the objects of a page. What is damaged, or may not be the newest, is left out: it is told wherever it is
/// read.
struct ReadPage {
    indexing: Indexing,
    snapshot: Snapshot,
    iter: MergeIter,
    /// Where to begin, until it has.
    from: Option<Bytes>,
    page: Page,
    bytes: usize,
    outcome: Outcome<Result<Page, Error>>,
}

impl ReadPage {
    fn step(&mut self, disk: &mut dyn Disk) -> Result<Progress, Error> {
        if let Some(from) = self.from.take() {
            self.iter.seek(disk, &from)?;
        }
        for _ in 0..SLICE_HEADS {
            let Some(item) = self.iter.item().filter(|item| item.key < self.indexing.objects.1) else {
                return Ok(Progress::Done);
            };
            if self.bytes >= PAGE_BYTES {
                self.page.next = Some(Bytes::copy_from_slice(item.key));
                return Ok(Progress::Done);
            }
            let entry = Entry::decode(item.entry)?;
            if (self.indexing.may_have)(entry.head)
                && !self.snapshot.is_gone(item.key, item.seq, &entry)
                && self.snapshot.lost.check_found(item.key, item.seq).is_ok()
            {
                let mut entries = Vec::new();
                (self.indexing.entries_of)(item.key, entry.head, &mut |key| {
                    self.bytes += key.len();
                    entries.push(Bytes::copy_from_slice(key));
                });
                let key = Bytes::copy_from_slice(item.key);
                self.page.objects.push(Indexed { key, expires_ms: entry.expires_ms, entries });
            }
            self.iter.next(disk)?;
        }
        Ok(Progress::More)
    }
}

impl Job for ReadPage {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        match self.step(disk) {
            Ok(Progress::More) => return Progress::More,
            Ok(Progress::Done) => self.outcome.set(Ok(std::mem::take(&mut self.page))),
            Err(error) => self.outcome.set(Err(error)),
        }
        Progress::Done
    }
}
