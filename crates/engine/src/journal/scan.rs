//! The scan of one segment: record after record, and on behind damage.
//!
//! [`Scanner`] yields records, and where there is none it tries every eighth byte until one passes its checks
//! again, so damage never cuts off what follows it. What a fault means, [`super::replay`] decides.
//!
//! Follows LevelDB's log reader for going on after damage.

use super::fault::{Fault, Lost, Remains};
use super::record::{
    self, ALIGN, HEADER_BYTES, Header, Kind, MAGIC, ParseError, Record, get_u32, padded_len,
};
use super::segment::{self, SEGMENT_HEADER_BYTES, Seal, SegmentId, TRAILER_BYTES};
use crate::entry::{Jsn, Seq};
use crate::error::Error;
use base::Disk;
use base::disk::{self, FileId};
use bytes::Bytes;

/// What the scan reads at a time. A longer record is read whole.
pub const WINDOW_BYTES: usize = 1 << 20;

/// A record and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedRecord {
    /// The segment.
    pub segment: SegmentId,
    /// Its first byte in the segment.
    pub offset: u64,
    header: Header,
    bytes: Bytes,
}

impl ScannedRecord {
    /// Its parts.
    pub fn record(&self) -> Record<'_> {
        self.header.record(&self.bytes)
    }

    /// Its checked header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// All of its bytes, padding included.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its length without padding: what a reader reads.
    pub fn len(&self) -> usize {
        self.header.record_len()
    }

    /// Never: a record has a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Its value, sharing the memory of the window that it was read in.
    pub fn value(&self) -> Bytes {
        self.bytes.slice(self.header.value_range())
    }
}

/// What a [`Scanner`] comes upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// A good record of any kind.
    Record(ScannedRecord),
    /// A record whose value is damaged, or bytes that are none, with a record behind them.
    Gap(Fault),
    /// There is no record from here to the end of the file. `blank` when all is zero or the file ends here.
    Tail {
        /// The bytes.
        fault: Fault,
        /// Whether there is nothing but zeros.
        blank: bool,
    },
}

/// Goes through the records of one segment, a window of the file at a time.
#[derive(Debug)]
pub struct Scanner {
    file: FileId,
    len: u64,
    segment: SegmentId,
    offset: u64,
    window: Bytes,
    window_at: u64,
    /// The numbers that the next record has at least.
    next_jsn: Option<Jsn>,
    next_seq: Option<Seq>,
    seal_offset: Option<u64>,
    /// Whether a record was read that repeats others. Only such records and the trailer follow it.
    has_derived: bool,
    done: bool,
}

impl Scanner {
    /// A scan of `file`, which is `len` bytes long, from a record at `start`.
    pub fn new(file: FileId, len: u64, segment: SegmentId, start: u64) -> Scanner {
        assert!(
            start >= SEGMENT_HEADER_BYTES as u64 && start.is_multiple_of(ALIGN as u64),
            "records start aligned"
        );
        Scanner {
            file,
            len,
            segment,
            offset: start,
            window: Bytes::new(),
            window_at: 0,
            next_jsn: None,
            next_seq: None,
            seal_offset: None,
            has_derived: false,
            done: false,
        }
    }

    /// Where the file ends, as far as is known.
    pub(super) fn end(&self) -> u64 {
        self.len
    }

    /// The next thing in the segment; `None` at the end of a sealed one, and after a tail.
    pub fn next(&mut self, disk: &mut dyn Disk) -> Result<Option<Scanned>, Error> {
        if self.done {
            return Ok(None);
        }
        if let Some(seal_offset) = self.seal_offset {
            return self.after_seal(disk, seal_offset);
        }
        let offset = self.offset;
        let Some(header) = self.header_at(disk, offset)? else { return self.resync(disk).map(Some) };
        let padded = padded_len(header.record_len());
        let bytes = self.read(disk, offset, padded)?;
        if bytes.len() < padded {
            // The header is good, so no other record begins before its end. Heads that found no room end so.
            let mut tail = self.tail("record is cut off", false);
            if let Scanned::Tail { fault, .. } = &mut tail {
                fault.derived |= is_derived(header.kind);
            }
            return Ok(Some(tail));
        }
        let end = offset + padded as u64;
        let lost = self.lost_before(header.kind.jsn_after(header.jsn), header.kind.seq_after(header.seq));
        self.offset = end;
        self.advance(&header);
        let scanned = match header.parse_body(&bytes[..padded]) {
            Ok(_) => {
                self.has_derived |= is_derived(header.kind);
                if header.kind == Kind::Seal {
                    self.seal_offset = Some(offset);
                }
                let bytes = bytes.slice(..padded);
                Scanned::Record(ScannedRecord { segment: self.segment, offset, header, bytes })
            }
            Err(ParseError::BadValue { key, head, what, .. }) => {
                let remains = Remains { header, key: bytes.slice_ref(key), head: bytes.slice_ref(head) };
                let fault = self.fault(offset, end, what, Lost::default());
                Scanned::Gap(Fault { remains: Some(remains), derived: is_derived(header.kind), ..fault })
            }
            Err(_) => {
                let fault = self.fault(offset, end, "key checksum", lost);
                Scanned::Gap(Fault { kind: Some(header.kind), derived: is_derived(header.kind), ..fault })
            }
        };
        Ok(Some(scanned))
    }

    /// The header at `offset`, if it is good. Numbers never go back in a segment: a record whose does was left
    /// by an earlier use of the same bytes.
    fn header_at(&mut self, disk: &mut dyn Disk, offset: u64) -> Result<Option<Header>, Error> {
        let bytes = self.read(disk, offset, HEADER_BYTES)?;
        match Header::parse(&bytes, self.segment, offset) {
            Ok(header) => Ok((Some(header.jsn) >= self.next_jsn).then_some(header)),
            Err(ParseError::Unknown(what)) => {
                let what = format!("{what} at byte {offset} is unknown to this version");
                Err(Error::Format { file: segment::path_in_store(self.segment), what })
            }
            Err(_) => Ok(None),
        }
    }

    /// Looks for the next good header behind bytes that are none.
    fn resync(&mut self, disk: &mut dyn Disk) -> Result<Scanned, Error> {
        let mut at = self.offset;
        let mut blank = true;
        while at < self.len {
            let bytes = self.read(disk, at, HEADER_BYTES)?;
            for word in bytes.chunks(ALIGN) {
                if word.len() == ALIGN
                    && get_u32(word, 0) == MAGIC
                    && at > self.offset
                    && let Some(header) = self.header_at(disk, at)?
                {
                    return Ok(self.gap(at, &header));
                }
                blank &= word == &ZEROS[..word.len()];
                at += word.len() as u64;
            }
        }
        Ok(self.tail("no record", blank))
    }

    fn gap(&mut self, to: u64, found: &Header) -> Scanned {
        let lost = self.lost_before(found.jsn, Some(found.seq));
        let fault = self.fault(self.offset, to, "record header checksum", lost);
        self.offset = to;
        Scanned::Gap(Fault { derived: lost.is_nothing() && is_derived(found.kind), ..fault })
    }

    /// Behind the seal there is the trailer and nothing else.
    fn after_seal(&mut self, disk: &mut dyn Disk, seal_offset: u64) -> Result<Option<Scanned>, Error> {
        let bytes = self.read(disk, self.offset, TRAILER_BYTES + 1)?;
        if segment::parse_trailer(&bytes, self.segment) == Some(seal_offset) {
            self.offset = self.len;
            self.done = true;
            return Ok(None);
        }
        let tail = self.tail("segment trailer", false);
        Ok(Some(tail))
    }

    fn tail(&mut self, what: &'static str, blank: bool) -> Scanned {
        self.done = true;
        let lost = Lost { from_jsn: self.next_jsn, from_seq: self.next_seq, ..Lost::default() };
        let fault = self.fault(self.offset, self.len.max(self.offset), what, lost);
        Scanned::Tail { fault: Fault { derived: self.has_derived, ..fault }, blank }
    }

    fn fault(&self, from: u64, to: u64, what: &'static str, lost: Lost) -> Fault {
        Fault { segment: self.segment, from, to, what, remains: None, lost, kind: None, derived: false }
    }

    fn lost_before(&self, to_jsn: Jsn, to_seq: Option<Seq>) -> Lost {
        let to_seq = to_seq.filter(|&seq| seq > Seq(0) && Some(seq) >= self.next_seq);
        Lost { from_jsn: self.next_jsn, to_jsn: Some(to_jsn), from_seq: self.next_seq, to_seq }
    }

    fn advance(&mut self, header: &Header) {
        self.next_jsn = Some(header.kind.jsn_after(header.jsn));
        self.next_seq = self.next_seq.max(header.kind.seq_after(header.seq));
    }

    /// At least `want` bytes at `at` unless the file ends before; more where they are at hand.
    fn read(&mut self, disk: &mut dyn Disk, at: u64, want: usize) -> Result<Bytes, Error> {
        let want = usize::try_from(self.len.saturating_sub(at)).map_or(want, |left| want.min(left));
        if let Some(skip) = at.checked_sub(self.window_at)
            && let Ok(skip) = usize::try_from(skip)
            && skip.saturating_add(want) <= self.window.len()
        {
            return Ok(self.window.slice(skip..));
        }
        let left = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX);
        let len = want.max(WINDOW_BYTES).min(left);
        // From the second window on this is a scan, and no look at what a segment begins with.
        if (1..=self.window.len() as u64).contains(&at.wrapping_sub(self.window_at)) {
            disk.will_read(self.file, at + len as u64, WINDOW_BYTES.min(left - len));
        }
        self.window = disk::read(disk, self.file, at, len)?;
        self.window_at = at;
        if self.window.len() < len {
            // The file is shorter than the caller believed.
            self.len = at + self.window.len() as u64;
        }
        Ok(self.window.clone())
    }
}

const ZEROS: [u8; ALIGN] = [0; ALIGN];

fn is_derived(kind: Kind) -> bool {
    kind.is_heads() || matches!(kind, Kind::Index | Kind::Seal)
}

/// The seal of a sealed segment, found from the end of the file; `None` if there is no good one.
pub fn find_seal(
    disk: &mut dyn Disk,
    file: FileId,
    len: u64,
    segment: SegmentId,
) -> Result<Option<Seal>, Error> {
    let Some(trailer_at) = len.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
    let trailer = disk::read(disk, file, trailer_at, TRAILER_BYTES)?;
    let Some(offset) = segment::parse_trailer(&trailer, segment).filter(|&offset| offset < trailer_at) else {
        return Ok(None);
    };
    let seal_len = usize::try_from(trailer_at - offset).unwrap_or(usize::MAX).min(WINDOW_BYTES);
    let bytes = disk::read(disk, file, offset, seal_len)?;
    match record::parse(&bytes, segment, offset) {
        Ok(record) if record.kind == Kind::Seal => Seal::from_record(&record).map(Some),
        _ => Ok(None),
    }
}
