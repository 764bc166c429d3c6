//! Writes a compacted segment.
//!
//! 1. The header.
//! 2. The records that are kept, as they were but for where they stand, and for values that are compressed on the way.
//! 3. The block of heads, the index, the seal.
//! 4. Syncs of the file and of its name.

use super::account::Account;
use crate::entry::{Entry, Jsn, Location, Seq};
use crate::error::Error;
use crate::journal::index::SegmentIndex;
use crate::journal::record::{
    FLAG_EXPIRES, FLAG_INLINE, FLAG_MORE, FLAG_REPLACES, HEADER_BYTES, Header, Kind, RecordSpan,
    encode_record, padded_len,
};
use crate::journal::segment::{self, SEGMENT_HEADER_BYTES, SealBuilder, SegmentId, encode_compacted_header};
use crate::store::Segment;
use base::Disk;
use base::checksum::crc32c;
use base::disk::{self, DiskOp, FileId, OpenMode};
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A compacted segment under construction.
pub(super) struct Output {
    id: SegmentId,
    folder: PathBuf,
    file: FileId,
    stands_for: (Jsn, Jsn),
    written: u64,
    /// What is not yet written.
    out: Vec<u8>,
    heads: SealBuilder,
    records: Vec<(Jsn, u32)>,
    pub account: Account,
}

impl Output {
    /// Makes the file of segment `id`.
    pub fn create(
        disk: &mut dyn Disk,
        folder: &Path,
        id: SegmentId,
        incarnation: u64,
        stands_for: (Jsn, Jsn),
    ) -> Result<Output, Error> {
        let (file, _) = disk::open(disk, &folder.join(segment::file_name(id)), OpenMode::Create)?;
        Ok(Output {
            id,
            folder: folder.to_path_buf(),
            file,
            stands_for,
            written: 0,
            out: encode_compacted_header(id, incarnation, stands_for).to_vec(),
            heads: SealBuilder::new(),
            records: Vec::new(),
            account: Account::default(),
        })
    }

    /// Bytes that wait to be written.
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    fn offset(&self) -> u64 {
        self.written + self.out.len() as u64
    }

    /// Appends a record with a value, whose `bytes` begin with its checked header. The value's checksum moves with
    /// it as it is, unless it was compressed: then `packed` has its flag and what stands for it.
    pub fn push_moved(
        &mut self,
        header: &Header,
        bytes: &[u8],
        packed: Option<(u8, &[u8])>,
        key: &[u8],
        entry: &Entry<'_>,
    ) {
        let (offset, start) = (self.offset(), self.out.len());
        let mut header = Header { flags: header.flags & !FLAG_MORE, ..*header };
        match packed {
            None => self.out.extend_from_slice(&bytes[..header.record_len()]),
            Some((flag, stored)) => {
                self.out.extend_from_slice(&bytes[..header.value_range().start]);
                self.out.extend_from_slice(stored);
                header.flags |= flag;
                header.value_crc = crc32c(stored);
                header.value_len = u32::try_from(stored.len()).expect("it is shorter than the value");
            }
        }
        let span = header.write(self.id, offset, &mut self.out[start..]);
        self.out.resize(start + padded_len(header.record_len()), 0);
        self.note(span, header.seq, key, &Entry { location: in_journal(span), ..*entry });
    }

    /// Appends an entry of a group's log that is applied as a data record, with the ledger's `seq`.
    pub fn push_applied(&mut self, header: &Header, bytes: &[u8], seq: Seq, key: &[u8], entry: &Entry<'_>) {
        let data = [key, entry.head, &bytes[header.value_range()]].concat();
        let (offset, start) = (self.offset(), self.out.len());
        let header = Header {
            kind: Kind::Data,
            flags: header.flags & !(FLAG_MORE | FLAG_REPLACES),
            seq,
            key_crc: crc32c(&data[..key.len() + entry.head.len()]),
            head_len: u32::try_from(entry.head.len()).expect("it is shorter than the entry's"),
            ..*header
        };
        self.out.resize(start + HEADER_BYTES, 0);
        self.out.extend_from_slice(&data);
        let span = header.write(self.id, offset, &mut self.out[start..]);
        self.out.resize(start + padded_len(header.record_len()), 0);
        self.note(span, seq, key, &Entry { location: in_journal(span), ..*entry });
    }

    /// Appends a record that is log only: its ledger entry has all of it.
    pub fn push_log_only(&mut self, seq: Seq, key: &[u8], entry: &Entry<'_>) {
        let (kind, flags) = match entry.location {
            Location::Deleted => (Kind::Delete, 0),
            _ => (Kind::Data, FLAG_INLINE),
        };
        let offset = self.offset();
        let value = [entry.inline];
        let (out, id) = (&mut self.out, self.id);
        let (expiry, head) = with_expiry(entry);
        let span = encode_record(out, id, offset, kind, flags | expiry, entry.jsn, seq, key, &head, &value);
        self.note(span, seq, key, entry);
    }

    /// Appends a record whose header or key is damaged, from what its ledger entry says, with a value that does not
    /// pass: it goes on to be an error that names its key.
    pub fn push_damaged(&mut self, seq: Seq, key: &[u8], entry: &Entry<'_>, value: &[u8]) {
        let (offset, start) = (self.offset(), self.out.len());
        let (out, id) = (&mut self.out, self.id);
        let (flags, head) = with_expiry(entry);
        encode_record(out, id, offset, Kind::Data, flags, entry.jsn, seq, key, &head, &[value]);
        let header = Header::parse(&self.out[start..], id, offset).expect("it was just encoded");
        let header = Header { value_crc: !header.value_crc, ..header };
        let span = header.write(id, offset, &mut self.out[start..]);
        self.note(span, seq, key, &Entry { location: in_journal(span), ..*entry });
    }

    /// Appends a record of a kind that the ledger has no entry of.
    pub fn push_other(&mut self, header: &Header, bytes: &[u8]) {
        let (offset, start, len) = (self.offset(), self.out.len(), header.record_len());
        self.out.extend_from_slice(&bytes[..len]);
        let header = Header { flags: header.flags & !FLAG_MORE, ..*header };
        let span = header.write(self.id, offset, &mut self.out[start..]);
        self.out.resize(start + padded_len(len), 0);
        self.records.push((header.jsn, span.offset));
        self.heads.count(header.jsn, header.seq);
        self.account.count(Location::Deleted, span.len);
    }

    fn note(&mut self, span: RecordSpan, seq: Seq, key: &[u8], entry: &Entry<'_>) {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        self.heads.push(entry.jsn, seq, key, &[&bytes]);
        self.records.push((entry.jsn, span.offset));
        self.account.count(entry.location, span.len);
    }

    /// Writes what waits.
    pub fn write(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        if self.out.is_empty() {
            return Ok(());
        }
        let data = Bytes::from(std::mem::take(&mut self.out));
        let len = data.len() as u64;
        disk::run(
            disk,
            DiskOp::Write { file: self.file, offset: self.written, data: data.into(), room: 0, sync: false },
        )?;
        self.written += len;
        Ok(())
    }

    /// Whether no record was appended.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Ends the records; what is to be written behind them comes in parts.
    pub fn seal(self) -> Sealing {
        assert!(self.out.is_empty() && self.written > SEGMENT_HEADER_BYTES as u64, "all records are written");
        let index = SegmentIndex::new(&self.records);
        let end = self.heads.with_index(&index).finish(self.id, self.written);
        let index = index.ending_at(self.written);
        let segment =
            Segment { id: self.id, file: self.file, first_jsn: self.stands_for.0, index: Some(index) };
        Sealing {
            segment: Arc::new(segment),
            account: self.account,
            folder: self.folder,
            at: self.written,
            parts: end.parts.into(),
            len: end.end,
        }
    }

    /// Removes the file. What led here is what is told; a file that stays is removed at the next start.
    pub fn discard(self, disk: &mut dyn Disk) {
        discard(disk, &self.folder, self.id, self.file);
    }
}

/// A compacted segment whose records are written.
pub(super) struct Sealing {
    pub segment: Arc<Segment>,
    pub account: Account,
    /// The file's length in the end.
    pub len: u64,
    folder: PathBuf,
    at: u64,
    parts: VecDeque<Bytes>,
}

impl Sealing {
    /// Writes one part, and with the last one syncs all; `true` when the segment and its name are durable.
    pub fn step(&mut self, disk: &mut dyn Disk) -> Result<bool, Error> {
        let Some(data) = self.parts.pop_front() else {
            disk::run(disk, DiskOp::SyncDir { path: self.folder.clone() })?;
            return Ok(true);
        };
        let (len, sync) = (data.len() as u64, self.parts.is_empty());
        disk::run(
            disk,
            DiskOp::Write { file: self.segment.file, offset: self.at, data: data.into(), room: 0, sync },
        )?;
        self.at += len;
        Ok(false)
    }

    /// Removes the file, as [`Output::discard`].
    pub fn discard(self, disk: &mut dyn Disk) {
        discard(disk, &self.folder, self.segment.id, self.segment.file);
    }
}

fn discard(disk: &mut dyn Disk, folder: &Path, id: SegmentId, file: FileId) {
    disk::run(disk, DiskOp::Close { file }).ok();
    disk::run(disk, DiskOp::Remove { path: folder.join(segment::file_name(id)) }).ok();
}

/// A record's flag and head for the entry's.
fn with_expiry<'a>(entry: &Entry<'a>) -> (u8, Cow<'a, [u8]>) {
    match entry.expires_ms {
        Some(expires_ms) => (FLAG_EXPIRES, [&expires_ms.to_le_bytes()[..], entry.head].concat().into()),
        None => (0, entry.head.into()),
    }
}

fn in_journal(span: RecordSpan) -> Location {
    Location::Journal { offset: span.offset, len: span.len }
}
