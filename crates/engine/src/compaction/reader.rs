//! Goes through a segment's records by their keys and ledger entries, reading as little as it can: the blocks of
//! heads where they are whole, otherwise the records.

use crate::entry::{Entry, Location, Seq};
use crate::error::{Damage, Error};
use crate::journal::fault::Fault;
use crate::journal::record::{FLAG_INLINE, Header, Kind, Record};
use crate::journal::scan::{Scanned, ScannedRecord, Scanner, find_seal};
use crate::journal::segment::{self, Heads, SEGMENT_HEADER_BYTES, Seal};
use crate::proposals::record::ProposedHead;
use crate::store::Segment;
use base::Disk;
use base::disk::{self, DiskOp, FileId, OpenMode};
use bytes::Bytes;
use std::path::Path;

/// About so many bytes of heads come at once.
const CHUNK_BYTES: usize = 1 << 20;

/// A record of a segment.
pub(crate) struct Listed {
    pub key: Bytes,
    /// Its version's; of an entry of a group's log nobody but the ledger knows that.
    pub seq: Seq,
    /// Whether it is an entry of a group's log.
    pub is_proposed: bool,
    /// The ledger entry; none for a kind of record that has none.
    pub entry: Bytes,
    /// Such a record, or an entry of a group's log.
    pub other: Option<ScannedRecord>,
}

/// A reader at a place in a segment.
pub(crate) struct SegmentReader {
    file: FileId,
    scanner: Scanner,
    /// What the seal promises, where the blocks of heads are read.
    seal: Option<Seal>,
    heads_seen: u64,
}

impl SegmentReader {
    /// Opens the segment's file in `folder` anew.
    pub fn open(disk: &mut dyn Disk, folder: &Path, segment: &Segment) -> Result<SegmentReader, Error> {
        let path = folder.join(segment::file_name(segment.id));
        let (file, len) = disk::open(disk, &path, OpenMode::Read)?;
        let seal = find_seal(disk, file, len, segment.id)
            .map(|seal| seal.filter(|seal| seal.heads == seal.records && seal.heads_offset < len));
        let seal = match seal {
            Ok(seal) => seal,
            Err(error) => {
                disk::run(disk, DiskOp::Close { file }).ok();
                return Err(error);
            }
        };
        let start = seal.map_or(SEGMENT_HEADER_BYTES as u64, |seal| seal.heads_offset);
        Ok(SegmentReader { file, scanner: Scanner::new(file, len, segment.id, start), seal, heads_seen: 0 })
    }

    /// The file.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// The next records, in the order of their numbers; `None` at the end. [`Error::Damaged`] where a record is lost
    /// with its key.
    pub fn next_chunk(&mut self, disk: &mut dyn Disk) -> Result<Option<Vec<Listed>>, Error> {
        if self.seal.is_some() { self.next_heads(disk) } else { self.next_records(disk) }
    }

    /// Lets the file go. It was only read: that it does not close loses nothing.
    pub fn close(self, disk: &mut dyn Disk) {
        disk::run(disk, DiskOp::Close { file: self.file }).ok();
    }

    fn next_heads(&mut self, disk: &mut dyn Disk) -> Result<Option<Vec<Listed>>, Error> {
        loop {
            match self.scanner.next(disk)? {
                Some(Scanned::Record(record)) if record.header().kind.is_heads() => {
                    let value = record.value();
                    let mut chunk = Vec::new();
                    for head in Heads::new(record.header().kind, &value) {
                        let head = head?;
                        let (key, entry) = (value.slice_ref(head.key), value.slice_ref(head.entry));
                        chunk.push(Listed { key, seq: head.seq, is_proposed: false, entry, other: None });
                    }
                    self.heads_seen += chunk.len() as u64;
                    return Ok(Some(chunk));
                }
                Some(Scanned::Record(_)) => {}
                Some(Scanned::Gap(fault) | Scanned::Tail { fault, .. }) => return Err(fault.damage().into()),
                None => break,
            }
        }
        match self.seal {
            Some(seal) if seal.heads != self.heads_seen => Err(Error::Malformed("block of heads")),
            _ => Ok(None),
        }
    }

    fn next_records(&mut self, disk: &mut dyn Disk) -> Result<Option<Vec<Listed>>, Error> {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while bytes < CHUNK_BYTES {
            match self.scanner.next(disk)? {
                Some(Scanned::Record(record)) if record.header().kind.is_numbered() => {
                    let listed = listed(record)?;
                    let whole = listed.other.as_ref().map_or(0, ScannedRecord::len);
                    bytes += listed.key.len() + listed.entry.len() + whole;
                    chunk.push(listed);
                }
                Some(Scanned::Record(_) | Scanned::Tail { blank: true, .. }) => {}
                Some(Scanned::Gap(fault) | Scanned::Tail { fault, .. }) => {
                    chunk.extend(listed_remains(&fault)?);
                }
                None => break,
            }
        }
        Ok((!chunk.is_empty()).then_some(chunk))
    }
}

fn listed(found: ScannedRecord) -> Result<Listed, Error> {
    let record = found.record();
    let key = Bytes::copy_from_slice(record.key);
    let (seq, is_proposed) = (record.seq, record.kind == Kind::Proposed);
    let entry = match record.kind {
        Kind::Data | Kind::Delete | Kind::Proposed => entry_of(&record, found.header(), found.offset)?,
        _ => return Ok(Listed { key, seq, is_proposed, entry: Bytes::new(), other: Some(found) }),
    };
    Ok(Listed { key, seq, is_proposed, entry, other: is_proposed.then_some(found) })
}

/// The ledger entry of a data or delete record that stands at `offset`, or of an entry of a group's log, if it is
/// applied.
pub(crate) fn entry_of(record: &Record<'_>, header: &Header, offset: u64) -> Result<Bytes, Error> {
    let too_long = |_| Error::Malformed("segment of more than 4 GiB");
    let (location, inline): (_, &[u8]) = match record.kind {
        Kind::Delete => (Location::Deleted, &[]),
        _ if record.flags & FLAG_INLINE != 0 => (Location::Inline, record.value),
        _ => {
            let offset = u32::try_from(offset).map_err(too_long)?;
            let len = u32::try_from(header.record_len()).map_err(too_long)?;
            (Location::Journal { offset, len }, &[])
        }
    };
    let head = match record.kind {
        Kind::Proposed => ProposedHead::split(record.head).map_or(record.head, |(_, head)| head),
        _ => record.head,
    };
    let mut entry = Vec::new();
    Entry { jsn: record.jsn, location, head, inline, expires_ms: record.expires_ms }.encode(&mut entry);
    Ok(entry.into())
}

/// What is left of a record whose value is damaged; nothing where none was lost. An inline value is lost with its
/// record, so that record cannot be told what to become.
fn listed_remains(fault: &Fault) -> Result<Option<Listed>, Error> {
    let damage: Damage = fault.damage();
    match &fault.remains {
        None if !fault.may_have_lost_a_key() => Ok(None),
        Some(remains) if remains.header.kind.has_value() && remains.header.flags & FLAG_INLINE == 0 => {
            let header = &remains.header;
            let (expires_ms, head) = header.split_expiry(&remains.head);
            let (key, jsn, seq) = (&remains.key[..], header.jsn, header.seq);
            let (kind, flags) = (header.kind, header.flags);
            let record = Record { kind, flags, jsn, seq, key, head, value: &[], expires_ms };
            let entry = entry_of(&record, header, fault.from)?;
            let is_proposed = kind == Kind::Proposed;
            Ok(Some(Listed { key: remains.key.clone(), seq: header.seq, is_proposed, entry, other: None }))
        }
        _ => Err(damage.into()),
    }
}

impl Listed {
    /// Whether it is a version, or may be one.
    pub fn has_entry(&self) -> bool {
        self.other.is_none() || self.is_proposed
    }

    /// What was read for it, about.
    pub fn bytes(&self) -> u64 {
        (self.key.len() + self.entry.len()) as u64
    }
}
