//! Records that lie close together in the journal, read by one operation, and announced before they are wanted.
//!
//! A fold knows all records of its window before it reads the first one, and so does a lookup of many keys. The system
//! does not, and files are opened for reads at random: it brings what is asked for and no more.
//!
//! Invariants
//! * A stretch lies in one file, begins and ends with a record that is wanted, and is one record or has [`STRETCH_BYTES_MAX`] at most.
//! * Where a stretch cannot be read, each of its records is read by itself: what is wrong with one costs no other.
//! * Nothing is announced while all comes from memory. From a stretch on that does not, records are announced, each
//!   once, until
//!   [`AHEAD_RECORDS`] or [`AHEAD_BYTES`] are ahead of what was read, and the stretch that they are in with them.

use super::RecordAt;
use crate::error::Error;
use crate::store::try_read;
use base::Disk;
use base::disk::{self, FileId};
use bytes::Bytes;

/// What may lie between two records of a stretch: a page, since reads of the two by themselves would bring as much.
const GAP_BYTES_MAX: u64 = 4 << 10;

/// The longest stretch: a job's slice is to take about a millisecond.
const STRETCH_BYTES_MAX: u64 = 256 << 10;

/// Records that may be under way from the disk: as many operations as a disk does at once, some hundred, even if each
/// is a stretch.
const AHEAD_RECORDS: usize = 128;

/// Bytes of them: memory that holds what nobody has asked for yet.
const AHEAD_BYTES: u64 = 4 << 20;

/// The records that are wanted, in the journal's order, and the stretch that was read last.
#[derive(Default)]
pub(crate) struct Stretches {
    /// Each with the index of what it is of.
    wanted: Vec<(RecordAt, usize)>,
    /// How many of them were read, and how many were announced.
    read: usize,
    announced: usize,
    /// Bytes that were announced and not read yet.
    ahead: u64,
    held: Option<Stretch>,
}

/// One stretch of a file.
struct Stretch {
    file: FileId,
    from: u64,
    to: u64,
    /// Nothing where it could not be read.
    bytes: Bytes,
}

impl Stretches {
    /// Wants one record more, which `index` is remembered with. Nothing has been read yet.
    pub fn push(&mut self, at: RecordAt, index: usize) {
        self.wanted.push((at, index));
    }

    /// All that are wanted are there.
    pub fn sort(&mut self) {
        self.wanted.sort_unstable_by_key(|(at, _)| (at.segment, at.offset));
    }

    /// The next record: where it stands, what it was remembered with, and its bytes.
    ///
    /// These may share their memory with their neighbours': whoever keeps them for long copies them.
    pub fn next(&mut self, disk: &mut dyn Disk) -> Option<(RecordAt, usize, Result<Bytes, Error>)> {
        let (at, index) = *self.wanted.get(self.read)?;
        let (from, to) = span(&at);
        if !self.held.as_ref().is_some_and(|stretch| stretch.spans(at.file, from, to)) {
            self.held = Some(self.read_stretch(disk));
        }
        self.read += 1;
        self.ahead = self.ahead.saturating_sub(to - from);
        // A stretch of this record alone is given away, so that it need not be copied.
        let held = match self.held.take_if(|stretch| (stretch.from, stretch.to) == (from, to)) {
            Some(alone) => alone.slice(from, to),
            None => self.held.as_ref().and_then(|stretch| stretch.slice(from, to)),
        };
        let bytes = match held {
            Some(bytes) => Ok(bytes),
            None => disk::read(disk, at.file, from, at.len as usize).map_err(Error::from),
        };
        Some((at, index, bytes))
    }

    /// The stretch that the next record begins.
    fn read_stretch(&mut self, disk: &mut dyn Disk) -> Stretch {
        let records = &self.wanted[self.read..];
        let file = records[0].0.file;
        let (count, from, to) = stretch_at(records);
        let len = usize::try_from(to - from).unwrap_or(usize::MAX);
        let mut bytes = try_read(disk, file, from, len);
        if bytes.is_none() {
            self.announce(disk);
            // A record by itself is read once, and its error is told.
            bytes = if count > 1 { disk::read(disk, file, from, len).ok() } else { None };
        }
        Stretch { file, from, to, bytes: bytes.unwrap_or_default() }
    }

    /// Announces what lies ahead, stretch by stretch.
    fn announce(&mut self, disk: &mut dyn Disk) {
        self.announced = self.announced.max(self.read);
        while self.announced < self.wanted.len()
            && self.announced < self.read + AHEAD_RECORDS
            && self.ahead < AHEAD_BYTES
        {
            let records = &self.wanted[self.announced..];
            let (count, from, to) = stretch_at(records);
            disk.will_read(records[0].0.file, from, usize::try_from(to - from).unwrap_or(usize::MAX));
            self.ahead += records[..count].iter().map(|(at, _)| u64::from(at.len)).sum::<u64>();
            self.announced += count;
        }
    }
}

impl Stretch {
    fn spans(&self, file: FileId, from: u64, to: u64) -> bool {
        self.file == file && self.from <= from && to <= self.to
    }

    /// What lies there, unless it could not be read, or the file ends before.
    fn slice(&self, from: u64, to: u64) -> Option<Bytes> {
        let at = |offset: u64| usize::try_from(offset - self.from).ok();
        let (from, to) = (at(from)?, at(to)?);
        (to <= self.bytes.len()).then(|| self.bytes.slice(from..to))
    }
}

/// The stretch that begins with the first of `records`: how many they are, where it begins, and where it ends.
fn stretch_at(records: &[(RecordAt, usize)]) -> (usize, u64, u64) {
    let first = &records[0].0;
    let (from, mut to) = span(first);
    let mut count = 1;
    for (next, _) in &records[1..] {
        let (next_from, next_to) = span(next);
        if next.file != first.file || next_from > to + GAP_BYTES_MAX || next_to > from + STRETCH_BYTES_MAX {
            break;
        }
        to = to.max(next_to);
        count += 1;
    }
    (count, from, to)
}

fn span(at: &RecordAt) -> (u64, u64) {
    let from = u64::from(at.offset);
    (from, from + u64::from(at.len))
}
