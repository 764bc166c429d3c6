//! The heads of a group of segments, sorted into a run: a table with the newest version of each key that the group has.
//!
//! Heads come from the segment's block of them where it is whole, and has one for each record; else from the records,
//! where damage is told as at a start ([`crate::store`]). All of the segments were synced, so nothing is torn: what
//! does not pass is damage, but for a seal that was cut off and what an earlier use of the file has left.

use super::notes::{self, Known, Notes};
use super::survey::Found;
use super::{REBUILD_DIR, RebuildProgress};
use crate::compaction::entry_of;
use crate::drops::RangeDrop;
use crate::entry::{Entry, Jsn, Location, Seq};
use crate::error::Error;
use crate::journal::fault::{Fault, Remains};
use crate::journal::record::{FLAG_INLINE, Kind, Record};
use crate::journal::scan::{Scanned, ScannedRecord, Scanner};
use crate::journal::segment::{self, FOLDER, Heads, SEGMENT_HEADER_BYTES};
use crate::lost::LostRange;
use crate::table::{TableBuilder, TableId};
use base::disk::{self, DiskErrorKind, DiskOp, FileId, OpenMode};
use base::spawn::Outcome;
use base::{Disk, Job, Progress};
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Damaged places of a group that are named; more is a lost disk.
const DAMAGE_NAMED_MAX: usize = 1024;

/// The table that a group's run is.
pub(super) fn run_id(group: usize) -> TableId {
    TableId(group as u64 + 1)
}

/// A job that makes one run. A slice is one segment: it has its thread for itself.
pub(super) struct Gather {
    dir: PathBuf,
    number: usize,
    segments: std::vec::IntoIter<Found>,
    items: Items,
    notes: Notes,
    progress: Arc<RebuildProgress>,
    outcome: Outcome<Result<Notes, Error>>,
}

/// Entries in the order in which they came, and where each stands.
#[derive(Default)]
struct Items {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

#[derive(Clone, Copy)]
struct Place {
    at: usize,
    key_len: u32,
    entry_len: u32,
    seq: Seq,
}

impl Items {
    fn push(&mut self, key: &[u8], seq: Seq, entry: &[u8]) {
        let too_long = "keys and heads have limits far below 4 GiB";
        self.places.push(Place {
            at: self.bytes.len(),
            key_len: u32::try_from(key.len()).expect(too_long),
            entry_len: u32::try_from(entry.len()).expect(too_long),
            seq,
        });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(entry);
    }

    fn key(&self, place: &Place) -> &[u8] {
        &self.bytes[place.at..][..place.key_len as usize]
    }

    fn entry(&self, place: &Place) -> &[u8] {
        &self.bytes[place.at + place.key_len as usize..][..place.entry_len as usize]
    }

    /// By key, the newest version first.
    fn sort(&mut self) {
        let mut places = std::mem::take(&mut self.places);
        places.sort_unstable_by(|a, b| self.key(a).cmp(self.key(b)).then(b.seq.cmp(&a.seq)));
        self.places = places;
    }
}

impl Gather {
    /// A job for group `number` of the store in `dir`.
    pub fn new(
        dir: &Path,
        number: usize,
        segments: Vec<Found>,
        progress: Arc<RebuildProgress>,
        outcome: Outcome<Result<Notes, Error>>,
    ) -> Gather {
        Gather {
            dir: dir.to_path_buf(),
            number,
            segments: segments.into_iter(),
            items: Items::default(),
            notes: Notes::default(),
            progress,
            outcome,
        }
    }

    fn step(&mut self, disk: &mut dyn Disk) -> Result<Progress, Error> {
        let Some(found) = self.segments.next() else {
            self.write_run(disk)?;
            return Ok(Progress::Done);
        };
        let path = self.dir.join(FOLDER).join(segment::file_name(found.id));
        let (file, _) = disk::open(disk, &path, OpenMode::Read)?;
        let (account, first_jsn) = (Default::default(), found.first_jsn);
        self.notes.accounts.push(Known { id: found.id.0, first_jsn, account });
        let read = self.read(disk, file, &found);
        // It was only read.
        disk::run(disk, DiskOp::Close { file }).ok();
        read?;
        self.progress.segments_read.fetch_add(1, Ordering::Relaxed);
        Ok(Progress::More)
    }

    fn read(&mut self, disk: &mut dyn Disk, file: FileId, found: &Found) -> Result<(), Error> {
        let (items, places) = (self.items.bytes.len(), self.items.places.len());
        let before = self.notes.clone();
        if self.read_heads(disk, file, found)? {
            return Ok(());
        }
        self.items.bytes.truncate(items);
        self.items.places.truncate(places);
        self.notes = before;
        self.read_records(disk, file, found)
    }

    /// Reads the block of heads; `false` if it is not whole, or does not have all.
    fn read_heads(&mut self, disk: &mut dyn Disk, file: FileId, found: &Found) -> Result<bool, Error> {
        let seal = found.seal.filter(|seal| {
            let start = seal.heads_offset;
            seal.heads == seal.records && start >= SEGMENT_HEADER_BYTES as u64 && start.is_multiple_of(8)
        });
        let Some(seal) = seal else { return Ok(false) };
        let mut scanner = Scanner::new(file, found.len, found.id, seal.heads_offset);
        let mut seen = 0;
        loop {
            match scanner.next(disk)? {
                Some(Scanned::Record(record)) if record.header().kind.is_heads() => {
                    for head in Heads::new(record.header().kind, &record.value()) {
                        let Ok(head) = head else { return Ok(false) };
                        let Ok(entry) = Entry::decode(head.entry) else { return Ok(false) };
                        self.add(head.key, head.seq, &entry, head.entry);
                        seen += 1;
                    }
                }
                Some(Scanned::Record(_)) => {}
                Some(Scanned::Gap(_) | Scanned::Tail { .. }) => return Ok(false),
                None => return Ok(seen == seal.heads),
            }
        }
    }

    fn read_records(&mut self, disk: &mut dyn Disk, file: FileId, found: &Found) -> Result<(), Error> {
        let mut scanner = Scanner::new(file, found.len, found.id, SEGMENT_HEADER_BYTES as u64);
        let is_own = |jsn: Jsn| found.bound.is_none_or(|bound| jsn < bound);
        while let Some(scanned) = scanner.next(disk)? {
            match scanned {
                Scanned::Record(record) if !record.header().kind.is_numbered() => {}
                Scanned::Record(record) if is_own(record.header().jsn) => self.record(&record)?,
                // What is left of an earlier use of the file, or of what a start has cut.
                Scanned::Record(_) | Scanned::Tail { blank: true, .. } => break,
                Scanned::Gap(fault) => self.fault(&fault, found)?,
                Scanned::Tail { mut fault, .. } => {
                    fault.lost.to_jsn = found.bound;
                    self.fault(&fault, found)?;
                }
            }
        }
        Ok(())
    }

    fn record(&mut self, scanned: &ScannedRecord) -> Result<(), Error> {
        let record = scanned.record();
        match record.kind {
            Kind::Data | Kind::Delete => {
                let bytes = entry_of(&record, scanned.header(), scanned.offset)?;
                self.add(record.key, record.seq, &Entry::decode(&bytes)?, &bytes);
            }
            Kind::RangeDrop => self.add_drop(record.key, record.head, record.seq, record.jsn),
            Kind::Proposed if base::planted!(OverwrittenProposalRebuilt) => {
                let bytes = entry_of(&record, scanned.header(), scanned.offset)?;
                self.add(record.key, record.seq, &Entry::decode(&bytes)?, &bytes);
            }
            // Whether an entry took effect, and when, only later marks say: the owner drops what it has of groups.
            Kind::Proposed | Kind::CommitMark => {
                let next_seq = record.kind.seq_after(record.seq).unwrap_or(record.seq);
                self.notes.has_groups = true;
                let account = &mut self.notes.accounts.last_mut().expect("a segment is being read").account;
                let is_value = record.kind == Kind::Proposed && record.flags & FLAG_INLINE == 0;
                let len = u32::try_from(scanned.len()).unwrap_or(u32::MAX);
                let in_journal = Location::Journal { offset: 0, len };
                account.count(if is_value { in_journal } else { Location::Inline }, len);
                self.pass(Seq(next_seq.0.saturating_sub(1)), record.jsn);
            }
            // No writer of this version makes the other kinds.
            _ => return Err(Error::Malformed("record kind in the journal")),
        }
        Ok(())
    }

    /// A lost value leaves its key and head; where the key is lost, it may have been any.
    fn fault(&mut self, fault: &Fault, found: &Found) -> Result<(), Error> {
        match &fault.remains {
            Some(Remains { header, key, head }) => {
                let kind = header.kind;
                if kind.is_numbered() {
                    self.damaged(fault);
                }
                match kind {
                    Kind::RangeDrop => self.add_drop(key, head, header.seq, header.jsn),
                    Kind::Data | Kind::Delete => {
                        let (expires_ms, head) = header.split_expiry(head);
                        // An inline value is lost with its record, so its entry names that.
                        let (jsn, seq, flags) = (header.jsn, header.seq, 0);
                        let record = Record { kind, flags, jsn, seq, key, head, value: &[], expires_ms };
                        let bytes = entry_of(&record, header, fault.from)?;
                        self.add(key, seq, &Entry::decode(&bytes)?, &bytes);
                    }
                    kind => self.notes.has_groups |= matches!(kind, Kind::Proposed | Kind::CommitMark),
                }
            }
            None if fault.is_of_groups() => {
                self.damaged(fault);
                self.notes.has_groups = true;
            }
            None if fault.may_have_lost_a_key() => {
                self.damaged(fault);
                let below = fault.lost.to_seq.unwrap_or_else(|| {
                    let last = found.seal.map_or(self.notes.last_seq, |seal| seal.max_seq);
                    let records = (fault.to - fault.from) / 8;
                    Seq(last.0.saturating_add(records).saturating_add(1))
                });
                self.notes.lost.push(LostRange::everything(below, fault.damage()));
            }
            None => {}
        }
        Ok(())
    }

    fn damaged(&mut self, fault: &Fault) {
        if self.notes.damage.len() < DAMAGE_NAMED_MAX {
            self.notes.damage.push(fault.damage());
        }
    }

    fn add(&mut self, key: &[u8], seq: Seq, entry: &Entry<'_>, bytes: &[u8]) {
        self.items.push(key, seq, bytes);
        self.pass(seq, entry.jsn);
        let account = &mut self.notes.accounts.last_mut().expect("a segment is being read").account;
        match entry.location {
            Location::Journal { len, .. } => account.count(entry.location, len),
            _ => {
                let len = key.len() + entry.head.len() + entry.inline.len();
                account.count(entry.location, u32::try_from(len).unwrap_or(u32::MAX));
            }
        }
    }

    fn add_drop(&mut self, start: &[u8], end: &[u8], seq: Seq, jsn: Jsn) {
        let (start, end) = (Bytes::copy_from_slice(start), Bytes::copy_from_slice(end));
        self.notes.drops.push(RangeDrop { start, end, seq });
        self.pass(seq, jsn);
    }

    fn pass(&mut self, seq: Seq, jsn: Jsn) {
        self.notes.last_seq = self.notes.last_seq.max(seq);
        self.notes.last_jsn = self.notes.last_jsn.max(jsn);
    }

    fn write_run(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        let (folder, id) = (self.dir.join(REBUILD_DIR), run_id(self.number));
        // A job that was killed may have left it.
        match disk::run(disk, DiskOp::Remove { path: folder.join(id.file_name()) }) {
            Err(error) if error.kind != DiskErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        self.items.sort();
        if !self.items.places.is_empty() {
            let mut builder = TableBuilder::create(disk, &folder, id)?;
            let mut last: Option<&[u8]> = None;
            for place in &self.items.places {
                let key = self.items.key(place);
                if last != Some(key) {
                    builder.add(disk, key, place.seq, self.items.entry(place))?;
                    self.notes.entries += 1;
                }
                last = Some(key);
            }
            builder.finish(disk)?;
            disk::run(disk, DiskOp::SyncDir { path: folder.clone() })?;
        }
        notes::write(disk, &folder, self.number, &self.notes)
    }
}

impl Job for Gather {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        match self.step(disk) {
            Ok(Progress::More) => return Progress::More,
            Ok(Progress::Done) => self.outcome.set(Ok(std::mem::take(&mut self.notes))),
            Err(error) => self.outcome.set(Err(error)),
        }
        self.items = Items::default();
        Progress::Done
    }
}
