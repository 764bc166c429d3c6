//! A page of keys and heads, as a job: what a listing is made of.
//!
//! A scan takes a snapshot, and a job walks it in slices. It ends after a page and says where to go on; the next page
//! is a new scan on a new snapshot. So a slow reader holds no memory but one page, and no file for longer than that
//! page takes.
//!
//! A scan that is likely to be short goes ahead on its owner's thread first, for a bounded while and only with what is
//! in memory: to have another thread do it, and be told, would take as long. What is not at hand, and what is left
//! then, is for the job.
//!
//! What is visited is decided by a [`Visitor`], called on the thread that the scan is on for the newest acknowledged
//! version of each key that is not gone.

use super::Items;
use super::at_hand::AtHand;
use crate::entry::{Entry, WrittenAt};
use crate::error::Error;
use crate::merge::{MergeIter, Source};
use crate::read::Snapshot;
use base::spawn::Outcome;
use base::{Disk, Job, Progress, Spawn};
use bytes::Bytes;

/// Keys and heads of one page together: a page is held in memory at both ends of a connection.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// Entries looked at in one slice: about a millisecond at 250 ns each.
const SLICE_ENTRIES: usize = 4096;

/// Entries looked at by a scan that goes ahead on its owner's thread, which answers nobody meanwhile: about a tenth of
/// a millisecond, what a few dozen lookups take.
const AHEAD_ENTRIES: usize = 1024;

/// Names a scan under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScanId(pub u64);

/// What a visitor wants of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visit {
    /// It belongs on the page.
    Take,
    /// It does not.
    Skip,
    /// It belongs on the page, and the next entry of interest is at or after this key.
    TakeAndSeek(Vec<u8>),
    /// It does not, and the next entry of interest is at or after this key.
    Seek(Vec<u8>),
}

/// Decides by key and head.
pub type Visitor = Box<dyn FnMut(&[u8], &[u8]) -> Visit + Send>;

/// What to scan.
pub struct ScanRequest {
    /// The first key.
    pub start: Bytes,
    /// The key behind the last one.
    pub end: Bytes,
    /// How many items a page has at most.
    pub items_max: usize,
    /// What becomes an item.
    pub visitor: Visitor,
    /// Whether it goes on where versions were lost, and where a block of a table is damaged, with what is left there;
    /// otherwise that is an error.
    pub past_losses: bool,
}

/// A part of a scan's result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanPage {
    /// Keys and heads, in key order.
    pub items: Items,
    /// Where to go on; `None` when the range is done.
    pub next: Option<Bytes>,
    /// Whether a block of a table was left out, which is damaged.
    pub has_left_out: bool,
}

/// A scan under way, as its store sees it.
pub(crate) struct Scan {
    pub(crate) id: ScanId,
    /// Whether its page was there when it was begun, and nobody will be woken for it.
    pub(crate) was_at_hand: bool,
    outcome: Outcome<Result<ScanPage, Error>>,
}

impl Scan {
    pub(crate) fn start(id: ScanId, request: ScanRequest, snapshot: Snapshot, spawn: &dyn Spawn) -> Scan {
        let outcome = Outcome::new();
        spawn.spawn(Box::new(ScanJob::new(request, snapshot, outcome.clone())));
        Scan { id, was_at_hand: false, outcome }
    }

    /// The same, which goes ahead on this thread with what `disk` has at hand, and is a job only if that is not all.
    pub(crate) fn start_ahead(
        id: ScanId,
        request: ScanRequest,
        snapshot: Snapshot,
        disk: &mut dyn Disk,
        spawn: &dyn Spawn,
    ) -> Scan {
        let outcome = Outcome::new();
        let mut job = ScanJob::new(request, snapshot, outcome.clone());
        let was_at_hand = job.go_ahead(disk) == Progress::Done;
        if !was_at_hand {
            spawn.spawn(Box::new(job));
        }
        Scan { id, was_at_hand, outcome }
    }

    pub(crate) fn take(&self) -> Option<Result<ScanPage, Error>> {
        self.outcome.take()
    }
}

/// Walks a snapshot until a page is full.
pub(crate) struct ScanJob {
    request: ScanRequest,
    snapshot: Snapshot,
    iter: MergeIter,
    page: ScanPage,
    page_bytes: usize,
    begun: bool,
    /// Where the cursor is to be put; `None` where it is at the next entry.
    seek: Option<Vec<u8>>,
    /// Of a scan that goes ahead: the last key that was seen and is not on the page, if it is behind those on it.
    passed: Option<Vec<u8>>,
    outcome: Outcome<Result<ScanPage, Error>>,
}

impl ScanJob {
    pub(crate) fn new(
        request: ScanRequest,
        snapshot: Snapshot,
        outcome: Outcome<Result<ScanPage, Error>>,
    ) -> ScanJob {
        let mut iter = snapshot.iter();
        if request.past_losses {
            iter.cut_out();
        }
        ScanJob {
            seek: Some(request.start.to_vec()),
            request,
            iter,
            snapshot,
            page: ScanPage::default(),
            page_bytes: 0,
            begun: false,
            passed: None,
            outcome,
        }
    }

    /// Goes on without waiting, as far as `disk` has in memory what it needs, and for [`AHEAD_ENTRIES`]. If that is not
    /// all, it goes on as a job.
    fn go_ahead(&mut self, disk: &mut dyn Disk) -> Progress {
        let mut disk = AtHand::of(disk);
        self.passed = Some(Vec::new());
        let step = self.step(&mut disk, AHEAD_ENTRIES);
        if disk.has_missed() {
            // Behind the last key that was seen, if it was not on its way to another.
            self.seek.get_or_insert_with(|| {
                let seen = [
                    self.page.items.last_key().unwrap_or_default(),
                    self.passed.as_deref().unwrap_or_default(),
                ];
                [seen[0].max(seen[1]), &[0]].concat()
            });
        }
        self.passed = None;
        match disk.has_missed() {
            true => Progress::More,
            false => self.end(step),
        }
    }

    fn step(&mut self, disk: &mut dyn Disk, entries_max: usize) -> Result<Progress, Error> {
        if !self.begun {
            if !self.request.past_losses {
                self.snapshot.lost.check_range(&self.request.start, &self.request.end)?;
            }
            if self.request.end.is_empty() {
                return Ok(Progress::Done);
            }
            self.iter.expect_end(&self.request.end);
            self.begun = true;
        }
        for _ in 0..entries_max {
            if let Some(key) = &self.seek {
                self.iter.seek(disk, key)?;
                self.seek = None;
            }
            let Some(item) = self.iter.item() else { return Ok(Progress::Done) };
            if self.page.items.len() >= self.request.items_max || self.page_bytes >= PAGE_BYTES_MAX {
                self.page.next = Some(Bytes::copy_from_slice(item.key));
                return Ok(Progress::Done);
            }
            let entry = Entry::decode(item.entry)?;
            let visit = if self.snapshot.is_gone(item.key, item.seq, &entry) {
                Visit::Skip
            } else {
                (self.request.visitor)(item.key, entry.head)
            };
            if matches!(visit, Visit::Take | Visit::TakeAndSeek(_)) {
                self.page_bytes += item.key.len() + entry.head.len();
                self.page.items.push(item.key, entry.head);
            } else if let Some(passed) = &mut self.passed {
                passed.clear();
                passed.extend_from_slice(item.key);
            }
            match visit {
                Visit::Seek(key) | Visit::TakeAndSeek(key) if key.as_slice() > item.key => {
                    self.seek = Some(key);
                }
                _ => self.iter.next(disk)?,
            }
        }
        Ok(Progress::More)
    }

    /// Gives the page, or what has kept it from being one.
    fn end(&mut self, step: Result<Progress, Error>) -> Progress {
        let page = match step {
            Ok(Progress::More) => return Progress::More,
            Ok(Progress::Done) => {
                self.page.has_left_out = !self.iter.take_lost().is_empty();
                Ok(std::mem::take(&mut self.page))
            }
            Err(error) => Err(error),
        };
        self.outcome.set(page);
        Progress::Done
    }
}

impl Job for ScanJob {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        let step = self.step(disk, SLICE_ENTRIES);
        self.end(step)
    }
}

/// The newest version of a key and its head, at once: for start-up and tools. Blocks. An error if a newer one, or the
/// only one, may have been lost.
pub fn read_newest(
    disk: &mut dyn Disk,
    snapshot: &Snapshot,
    key: &[u8],
) -> Result<Option<(WrittenAt, Bytes)>, Error> {
    let mut iter = snapshot.iter();
    iter.seek(disk, key)?;
    let Some(item) = iter.item().filter(|item| item.key == key) else {
        return snapshot.lost.check_missing(key).map(|()| None);
    };
    snapshot.lost.check_found(key, item.seq)?;
    let entry = Entry::decode(item.entry)?;
    let is_gone = snapshot.is_gone(item.key, item.seq, &entry);
    let written = WrittenAt { seq: item.seq, jsn: entry.jsn };
    Ok((!is_gone).then(|| (written, Bytes::copy_from_slice(entry.head))))
}

/// Everything in a range, at once and in memory: for start-up and tools. Blocks. An error if versions were lost there.
pub fn read_all(
    disk: &mut dyn Disk,
    snapshot: &Snapshot,
    start: &[u8],
    end: &[u8],
) -> Result<Vec<(Bytes, Bytes)>, Error> {
    snapshot.lost.check_range(start, end)?;
    let mut iter = snapshot.iter();
    let mut items = Vec::new();
    iter.seek(disk, start)?;
    while let Some(item) = iter.item().filter(|item| item.key < end) {
        let entry = Entry::decode(item.entry)?;
        if !snapshot.is_gone(item.key, item.seq, &entry) {
            items.push((Bytes::copy_from_slice(item.key), Bytes::copy_from_slice(entry.head)));
        }
        iter.next(disk)?;
    }
    Ok(items)
}
