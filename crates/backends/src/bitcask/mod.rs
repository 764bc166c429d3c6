//! A log of records, and every key in memory: what Riak's Bitcask is, on our journal's records.
//!
//! A write appends to the newest segment; a read is one look into the key directory and one into a segment; a HEAD
//! reads a record up to its head. Each key costs its own bytes and some 60 of memory, so a store is as large as memory
//! has room for keys.
//!
//! Invariants:
//!
//! * The order of segments is the order of writes: of two records of one key the one behind counts.
//! * A segment that has a hint file is synced and whole, and is not written to. At most the newest has none, but for
//!   what a crash left.
//! * A batch is in one segment, in one write; its records but the last say that more follows, and all of them with
//!   which it begins.
//!
//! When a segment is full: it is synced, its hint is written, and, if more than half of all bytes are waste, all
//! segments are *merged*: what is live is copied to new ones behind them, these are synced and get their hints, and the
//! old ones are removed, oldest first, so that a delete never goes before what it covers. What a crash leaves of a
//! merge repeats what is there. A live record that is damaged is not copied: its segment stays, with new deletes behind
//! it for the keys that it has and that are gone.
//!
//! At opening, keys come from hints; a segment without one is scanned. What is torn at the end of such a one was
//! promised to nobody; damage before that is an error, as are damaged values when they are read. Writes go on in the
//! last segment while it is short, or else each start would leave one: where it has a hint, that is taken away first.
//! Others that were scanned are sealed with what they have.
//!
//! Follows "Bitcask: A Log-Structured Hash Table for Fast Key/Value Data" (Sheehy and Smith, 2010). Left out: expiry,
//! and merging beside writes: the write that fills a segment waits for the merge.

mod hint;
mod load;
mod merge;

use crate::backend::{Backend, Item, Limits, Object, Visit, What, Write};
use crate::error::Error;
use crate::folder;
use crate::kind::Settings;
use base::checksum::crc32c;
use base::disk::{self, Disk, DiskOp, FileId, OpenMode};
use bytes::Bytes;
use engine::journal::record::{self, FLAG_MORE, HEADER_BYTES, encode_record, padded_len};
use engine::journal::segment::{SEGMENT_HEADER_BYTES, encode_header, file_name, parse_header};
use engine::journal::{Header, Kind, ParseError, SegmentId};
use engine::{Damage, Durability, Jsn, Machine, Seq};
use hint::{Hint, HintEntry};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};

const NAME: &str = "bitcask";

/// A batch takes at most so much: places in a segment are of 32 bits, and a segment may be nearly full when it comes.
const BATCH_BYTES_MAX: usize = 1 << 30;

/// What a segment may be told to grow to: with a batch behind it, it ends below 4 GiB.
const SEGMENT_BYTES_MAX: u64 = 2 << 30;

/// Segments are merged when they take so many times what is live in them.
const WASTE_FACTOR: u64 = 2;

/// What it is told.
pub fn options(settings: &Settings) -> Vec<(&'static str, String)> {
    vec![("segment_bytes", settings.segment_bytes.to_string())]
}

/// Where a key's record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    segment: SegmentId,
    offset: u32,
    head_len: u32,
    value_len: u32,
}

impl Place {
    /// The record's length, for a key of `key_len` bytes.
    fn len(&self, key_len: usize) -> usize {
        HEADER_BYTES + key_len + self.head_len as usize + self.value_len as usize
    }
}

/// The newest segment.
struct Newest {
    segment: SegmentId,
    file: FileId,
    len: u64,
    hint: Hint,
}

/// A store.
pub struct Bitcask {
    folder: PathBuf,
    disk: Box<dyn Disk>,
    /// Whether each write is synced before the next begins.
    is_synced: bool,
    segment_bytes: u64,
    keys: BTreeMap<Box<[u8]>, Place>,
    /// Open files and their lengths, the newest segment's included.
    files: BTreeMap<SegmentId, (FileId, u64)>,
    /// Made by the first write, if the last start has left none that is not full.
    newest: Option<Newest>,
    /// The last segment, if it is sealed and not full: the first write goes on in it.
    sealed: Option<Newest>,
    /// Bytes of live records, padding included.
    live_bytes: u64,
    /// Bytes of the segments that the last merge left because of damage in them.
    kept_bytes: u64,
    /// Why it takes no more writes.
    fence: Option<String>,
}

impl Newest {
    /// The number of the next record.
    fn next_number(&self) -> u64 {
        self.hint.count() + 1
    }

    /// Adds a record, of the batch that begins with this number, to `data`, which is to be written at the segment's
    /// end.
    fn push(&mut self, data: &mut Vec<u8>, write: &Write<'_>, batch: u64, flags: u8) -> HintEntry {
        let (kind, head, value) = match *write {
            Write::Put { head, value, .. } => (Kind::Data, head, value),
            Write::Delete { .. } => (Kind::Delete, &[][..], &[][..]),
        };
        let (offset, key) = (self.len + data.len() as u64, write.key());
        let (jsn, seq) = (Jsn(self.next_number()), Seq(batch));
        let span = encode_record(data, self.segment, offset, kind, flags, jsn, seq, key, head, &[value]);
        let lens = (head.len() as u32, value.len() as u32);
        let entry = HintEntry { is_delete: kind == Kind::Delete, offset: span.offset, lens };
        self.hint.push(key, entry);
        entry
    }
}

fn failed(error: &base::DiskError) -> Error {
    Error::Failed { engine: NAME, what: error.to_string() }
}

fn damaged(segment: SegmentId, offset: u64, what: &'static str) -> Error {
    Error::Damaged(Damage { file: file_name(segment), offset, what })
}

impl Bitcask {
    /// Opens the store in `folder`, or makes one.
    pub fn open(folder: &Path, settings: &Settings, machine: &Machine) -> Result<Bitcask, Error> {
        let mut store = Bitcask {
            folder: folder.to_path_buf(),
            disk: machine.disk(),
            is_synced: settings.durability == Durability::Sync,
            segment_bytes: settings.segment_bytes.min(SEGMENT_BYTES_MAX),
            keys: BTreeMap::new(),
            files: BTreeMap::new(),
            newest: None,
            sealed: None,
            live_bytes: 0,
            kept_bytes: 0,
            fence: None,
        };
        folder::prepare(&mut *store.disk, folder).map_err(|error| failed(&error))?;
        store.load()?;
        Ok(store)
    }

    fn run(&mut self, op: DiskOp) -> Result<(), Error> {
        disk::run(&mut *self.disk, op).map(drop).map_err(|error| failed(&error))
    }

    /// Makes a new segment behind all others. `is_synced` says that in it each write will be synced before the next
    /// begins.
    fn begin_segment(&mut self, is_synced: bool) -> Result<Newest, Error> {
        let last = self.files.last_key_value().map_or(0, |(segment, _)| segment.0);
        let segment = SegmentId(last + 1);
        let path = self.folder.join(file_name(segment));
        let (file, _) =
            disk::open(&mut *self.disk, &path, OpenMode::Create).map_err(|error| failed(&error))?;
        let header = encode_header(segment, u64::from(is_synced));
        let data = Bytes::copy_from_slice(&header);
        self.run(DiskOp::Write { file, offset: 0, data: data.into(), room: 0, sync: true })?;
        self.run(DiskOp::SyncDir { path: self.folder.clone() })?;
        let len = SEGMENT_HEADER_BYTES as u64;
        self.files.insert(segment, (file, len));
        Ok(Newest { segment, file, len, hint: Hint::new(segment) })
    }

    /// The segment that is written to from now on: the last one, if it can be gone on with.
    fn go_on(&mut self) -> Result<Newest, Error> {
        let Some(newest) = self.sealed.take() else { return self.begin_segment(self.is_synced) };
        let header = disk::read(&mut *self.disk, newest.file, 0, SEGMENT_HEADER_BYTES).ok();
        let header = header.and_then(|header| parse_header(&header, newest.segment).ok());
        if header.is_none_or(|header| header.incarnation != u64::from(self.is_synced)) {
            return self.begin_segment(self.is_synced);
        }
        // As long as it has a hint, what comes behind that would pass for damage.
        self.run(DiskOp::Remove { path: self.folder.join(hint::file_name(newest.segment)) })?;
        self.run(DiskOp::SyncDir { path: self.folder.clone() })?;
        Ok(newest)
    }

    /// Syncs a segment and writes its hint: from then on it is sealed.
    fn seal(&mut self, newest: Newest) -> Result<(), Error> {
        self.run(DiskOp::Sync { file: newest.file })?;
        let path = self.folder.join(hint::file_name(newest.segment));
        let data = newest.hint.finish(newest.len);
        disk::replace_file(&mut *self.disk, &path, data).map_err(|error| failed(&error))
    }

    /// Bytes of all segments.
    fn total_bytes(&self) -> u64 {
        self.files.values().map(|(_, len)| len).sum()
    }

    fn check(&self, batch: &[Write<'_>]) -> Result<(), Error> {
        let mut bytes = 0;
        for write in batch {
            bytes += self.limits().check(write)?;
            Error::check_len("a batch", bytes, BATCH_BYTES_MAX)?;
        }
        Ok(())
    }

    fn append(&mut self, batch: &[Write<'_>]) -> Result<(), Error> {
        let mut newest = match self.newest.take() {
            Some(newest) => newest,
            None => self.go_on()?,
        };
        let mut data = Vec::new();
        let last = batch.len() - 1;
        let more = |at: usize| if at < last { FLAG_MORE } else { 0 };
        let first = newest.next_number();
        let entries = batch.iter().enumerate();
        let entries = entries.map(|(at, write)| newest.push(&mut data, write, first, more(at)));
        let entries: Vec<HintEntry> = entries.collect();
        self.write_out(&mut newest, data, self.is_synced)?;
        for (write, entry) in batch.iter().zip(entries) {
            self.apply(newest.segment, write.key(), entry);
        }
        if newest.len < self.segment_bytes {
            self.newest = Some(newest);
            return Ok(());
        }
        self.seal(newest)?;
        if self.total_bytes() - self.kept_bytes > WASTE_FACTOR * self.live_bytes.max(self.segment_bytes) {
            self.merge()?;
        }
        Ok(())
    }

    /// Writes what was put together for the end of the newest segment.
    fn write_out(&mut self, newest: &mut Newest, data: Vec<u8>, sync: bool) -> Result<(), Error> {
        let (file, offset) = (newest.file, newest.len);
        newest.len += data.len() as u64;
        self.run(DiskOp::Write { file, offset, data: data.into(), room: 0, sync })?;
        self.files.insert(newest.segment, (file, newest.len));
        Ok(())
    }

    /// Enters what a record says into the key directory.
    fn apply(&mut self, segment: SegmentId, key: &[u8], entry: HintEntry) {
        let padded = |place: &Place| padded_len(place.len(key.len())) as u64;
        let (head_len, value_len) = entry.lens;
        let place = Place { segment, offset: entry.offset, head_len, value_len };
        let before = match (entry.is_delete, self.keys.get_mut(key)) {
            (true, _) => self.keys.remove(key),
            (false, Some(old)) => Some(std::mem::replace(old, place)),
            (false, None) => self.keys.insert(key.into(), place),
        };
        self.live_bytes -= before.as_ref().map_or(0, padded);
        self.live_bytes += if entry.is_delete { 0 } else { padded(&place) };
    }

    /// Reads a key's record, checked.
    fn read(&mut self, key: &[u8], place: Place) -> Result<Object, Error> {
        let bytes = self.read_bytes(place, place.len(key.len()))?;
        let (segment, offset) = (place.segment, u64::from(place.offset));
        match record::parse(&bytes, segment, offset) {
            Ok(found) if found.key == key => {
                Ok(Object { head: bytes.slice_ref(found.head), value: bytes.slice_ref(found.value) })
            }
            Err(ParseError::BadValue { what, .. }) => Err(damaged(segment, offset, what)),
            _ => Err(damaged(segment, offset, "a record that should be here")),
        }
    }

    /// Reads a key's record up to its head, checked so far.
    fn read_head(&mut self, key: &[u8], place: Place) -> Result<Bytes, Error> {
        let bytes = self.read_bytes(place, place.len(key.len()) - place.value_len as usize)?;
        let (segment, offset) = (place.segment, u64::from(place.offset));
        match Header::parse(&bytes, segment, offset) {
            Ok(header)
                if header.head_range().end == bytes.len()
                    && header.key_crc == crc32c(&bytes[HEADER_BYTES..])
                    && &bytes[header.key_range()] == key =>
            {
                // A copy: what is kept of it must not keep its record.
                Ok(Bytes::copy_from_slice(&bytes[header.head_range()]))
            }
            _ => Err(damaged(segment, offset, "a record's key and head")),
        }
    }

    fn read_bytes(&mut self, place: Place, len: usize) -> Result<Bytes, Error> {
        let (file, _) = self.files[&place.segment];
        disk::read(&mut *self.disk, file, place.offset.into(), len).map_err(|error| failed(&error))
    }
}

impl Backend for Bitcask {
    fn write(&mut self, batch: &[Write<'_>]) -> Result<(), Error> {
        self.check(batch)?;
        if let Some(what) = &self.fence {
            let what = format!("it takes no writes since a failed one: {what}");
            return Err(Error::Failed { engine: NAME, what });
        }
        if batch.is_empty() {
            return Ok(());
        }
        let written = self.append(batch);
        self.fence = written.as_ref().err().map(ToString::to_string);
        written
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, Error> {
        let place = self.keys.get(key).copied();
        place.map(|place| self.read(key, place)).transpose()
    }

    fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let place = self.keys.get(key).copied();
        place.map(|place| self.read_head(key, place)).transpose()
    }

    fn fold(&mut self, from: &[u8], to: &[u8], what: What, visit: &mut Visit<'_>) -> Result<(), Error> {
        // The keys lie in their order in memory, and nothing is written meanwhile.
        let keys = std::mem::take(&mut self.keys);
        let range = keys.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        let mut told = Ok(());
        for (key, &place) in range.take_while(|(key, _)| to.is_empty() || &key[..] < to) {
            let object = match what {
                // The key is in memory, and there is nothing else to be told.
                What::Heads if place.head_len == 0 => Ok(Object { head: Bytes::new(), value: Bytes::new() }),
                What::Heads => self.read_head(key, place).map(|head| Object { head, value: Bytes::new() }),
                What::Objects => self.read(key, place),
            };
            match object {
                Ok(Object { head, value }) => {
                    if visit(Item { key, head: &head, value: &value }).is_break() {
                        break;
                    }
                }
                Err(error) => {
                    told = Err(error);
                    break;
                }
            }
        }
        self.keys = keys;
        told
    }

    fn limits(&self) -> Limits {
        Limits {
            batch_bytes: BATCH_BYTES_MAX,
            write_bytes: padded_len(HEADER_BYTES) + padded_len(1),
            ..Limits::default()
        }
    }

    fn close(mut self: Box<Self>) -> Result<(), Error> {
        match self.newest.take() {
            Some(newest) => self.seal(newest),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
