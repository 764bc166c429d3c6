//! How much of each segment is of use.
//!
//! A record is counted when it is appended, and once more when its version leaves the ledger: a flush or a merge that
//! finds a newer version of the key says which record the older one had. Both counts are in the manifest that makes
//! the flush or merge count, so they are exact after a crash: what is replayed is counted again.

use crate::entry::{Entry, Jsn, Location};
use crate::error::Error;
use crate::journal::record::padded_len;
use crate::journal::segment::SegmentId;
use crate::store::Segments;
use crate::table::{Table, TableIter};
use base::spawn::Outcome;
use base::{Disk, FastMap, Job, Progress};
use std::sync::Arc;

/// A value in the journal whose version the ledger has no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadRecord {
    /// The record.
    pub jsn: Jsn,
    /// Its bytes, padding included.
    pub bytes: u32,
}

impl DeadRecord {
    /// The record that a ledger entry points at; `None` if it points at none.
    pub fn of(entry: &[u8]) -> Result<Option<DeadRecord>, Error> {
        let entry = Entry::decode(entry)?;
        Ok(match entry.location {
            Location::Journal { len, .. } => {
                let bytes = u32::try_from(padded_len(len as usize)).unwrap_or(u32::MAX);
                Some(DeadRecord { jsn: entry.jsn, bytes })
            }
            Location::Inline | Location::Deleted => None,
        })
    }
}

/// A segment's bytes by their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Records with a value of their own.
    pub value_bytes: u64,
    /// Records that are log only: deletions, and those whose value is inline.
    pub log_bytes: u64,
    /// Of `value_bytes`, those whose version the ledger has no more.
    pub dead_bytes: u64,
}

impl Account {
    /// All records.
    pub fn bytes(&self) -> u64 {
        self.value_bytes + self.log_bytes
    }

    /// Adds what another segment holds.
    pub fn add(&mut self, other: &Account) {
        self.value_bytes += other.value_bytes;
        self.log_bytes += other.log_bytes;
        self.dead_bytes += other.dead_bytes;
    }

    fn subtract(&mut self, other: &Account) {
        self.value_bytes -= other.value_bytes;
        self.log_bytes -= other.log_bytes;
        self.dead_bytes -= other.dead_bytes;
    }

    /// Counts a record of `len` bytes.
    pub fn count(&mut self, location: Location, len: u32) {
        let bytes = padded_len(len as usize) as u64;
        match location {
            Location::Journal { .. } => self.value_bytes += bytes,
            Location::Inline | Location::Deleted => self.log_bytes += bytes,
        }
    }
}

/// The accounts of all segments.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    accounts: FastMap<SegmentId, Account>,
    /// The segment that is written.
    active: (SegmentId, Account),
    /// All of them together.
    total: Account,
}

impl Accounts {
    /// Makes `id` the segment whose records are counted.
    pub fn begin(&mut self, id: SegmentId) {
        if self.active.0 != id {
            let (before, account) = std::mem::take(&mut self.active);
            self.accounts.insert(before, account);
            self.active = (id, self.accounts.remove(&id).unwrap_or_default());
        }
    }

    /// Counts a record of the active segment.
    #[inline]
    pub fn count(&mut self, location: Location, len: u32) {
        self.active.1.count(location, len);
        self.total.count(location, len);
    }

    /// What is known of all segments together. Those that a compaction reads and the one that it writes both count
    /// until its manifest is written.
    pub fn total(&self) -> Account {
        self.total
    }

    /// What is known of a segment.
    pub fn of(&self, id: SegmentId) -> Account {
        if self.active.0 == id {
            return self.active.1;
        }
        self.accounts.get(&id).copied().unwrap_or_default()
    }

    /// Says what is known of a segment.
    pub fn set(&mut self, id: SegmentId, account: Account) {
        let before = std::mem::replace(self.entry(id), account);
        self.total.subtract(&before);
        self.total.add(&account);
    }

    /// Forgets a segment.
    pub fn remove(&mut self, id: SegmentId) {
        if let Some(account) = self.accounts.remove(&id) {
            self.total.subtract(&account);
        }
    }

    /// Counts records as dead. One that compaction has dropped already was counted then.
    pub fn bury(&mut self, segments: &Segments, dead: &[DeadRecord]) {
        for record in dead {
            let Some(segment) = segments.find(record.jsn) else { continue };
            if let Some(bytes) = segment.bytes_of(record.jsn, record.bytes) {
                self.add_dead(segment.id, u64::from(bytes));
            }
        }
    }

    /// Counts bytes of a segment as dead.
    pub fn add_dead(&mut self, id: SegmentId, bytes: u64) {
        self.entry(id).dead_bytes += bytes;
        self.total.dead_bytes += bytes;
    }

    fn entry(&mut self, id: SegmentId) -> &mut Account {
        if self.active.0 == id { &mut self.active.1 } else { self.accounts.entry(id).or_default() }
    }
}

/// A slice of [`CountDead`] reads so many entries: a millisecond.
const SLICE_ENTRIES: usize = 4096;

/// Goes through a table that was removed whole, for the records of all of its versions.
pub(crate) struct CountDead {
    iter: TableIter,
    begun: bool,
    dead: Vec<DeadRecord>,
    outcome: Outcome<Vec<DeadRecord>>,
}

impl CountDead {
    /// A job that tells `outcome` what the versions in `table` have in the journal.
    pub fn new(table: Arc<Table>, outcome: Outcome<Vec<DeadRecord>>) -> CountDead {
        CountDead { iter: TableIter::new(table), begun: false, dead: Vec::new(), outcome }
    }

    fn step(&mut self, disk: &mut dyn Disk) -> Result<Progress, Error> {
        if !self.begun {
            self.begun = true;
            self.iter.seek(disk, &[])?;
        }
        for _ in 0..SLICE_ENTRIES {
            if !self.iter.valid() {
                return Ok(Progress::Done);
            }
            self.dead.extend(DeadRecord::of(self.iter.entry())?);
            self.iter.next(disk)?;
        }
        Ok(Progress::More)
    }
}

impl Job for CountDead {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        // What a damaged table does not tell is not counted, and no worse.
        let progress = self.step(disk).unwrap_or(Progress::Done);
        if progress == Progress::Done {
            self.dead.sort_unstable();
            self.outcome.set(std::mem::take(&mut self.dead));
        }
        progress
    }
}
