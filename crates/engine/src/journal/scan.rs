//! The scan of segments after a start.
//!
//! [`Scanner`] goes through one segment: it yields records, and where there is none it tries every eighth byte
//! until one passes its checks again, so damage never cuts off what follows it. [`Replay`] goes through the
//! segments that a start must apply, in order, and decides what each fault is.
//!
//! A fault is **torn** when it begins at or after the durable mark, the largest position that any group mark
//! says was synced (or that the caller knows from elsewhere): such bytes were never acknowledged. The first torn
//! fault ends the journal: everything from it on, or from the start of the batch that it breaks, is to be cut,
//! later segments included, so what is left is a prefix of what was written. A fault before the mark is
//! **damage**: it is reported, and later records are yielded. The seal of a segment is made while the next one
//! is already written, so a fault after which the next segment goes on without a missing number lost only heads:
//! it cuts those off and nothing else.
//!
//! Left out: the last synced group has no later mark that vouches for it. Damage to it looks just like a torn
//! tail and is cut as one, unless the caller knows better ([`Source::sealed`], the `floor` of [`Replay::open`]).
//! The next group's mark, were it only an empty group, ends that.
//!
//! Follows LevelDB's log reader for going on after damage, and "Protocol-Aware Recovery" (Alagappan and others,
//! FAST 2018) for telling a crash from corruption by what is known to have been persisted.

use super::record::{
    self, ALIGN, HEADER_BYTES, Header, Kind, MAGIC, ParseError, Record, get_u32, padded_len,
};
use super::segment::{
    self, HeaderError, Position, SEGMENT_HEADER_BYTES, Seal, SegmentId, TRAILER_BYTES, parse_durable_mark,
};
use crate::entry::{Jsn, Seq};
use crate::error::{Damage, Error};
use base::Disk;
use base::disk::{self, FileId};
use bytes::Bytes;
use std::collections::VecDeque;

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

/// What is left of a record whose value is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remains {
    /// Its checked header.
    pub header: Header,
    /// Its key.
    pub key: Bytes,
    /// Its head.
    pub head: Bytes,
}

/// The numbers among which those of lost records are: at or after `from` and before `to`, as far as the records
/// around them tell. Nothing was lost when both are known and equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Lost {
    /// The number after the record before.
    pub from_jsn: Option<Jsn>,
    /// The number of the record after.
    pub to_jsn: Option<Jsn>,
    /// The seq after the record before, where seqs ascend as jsns do.
    pub from_seq: Option<Seq>,
    /// The seq of the record after, likewise.
    pub to_seq: Option<Seq>,
}

impl Lost {
    /// Whether it is certain that no numbered record was lost.
    pub fn is_nothing(&self) -> bool {
        self.from_jsn.is_some() && self.from_jsn == self.to_jsn
    }
}

/// Bytes that are not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The segment.
    pub segment: SegmentId,
    /// The first bad byte's record or structure.
    pub from: u64,
    /// Where good bytes begin again, or the file ends.
    pub to: u64,
    /// What failed.
    pub what: &'static str,
    /// The record, if its key is known and only its value is damaged.
    pub remains: Option<Remains>,
    /// Otherwise, which records may have been there.
    pub lost: Lost,
    /// Whether only heads or a seal can have been there, which are made again from the records.
    derived: bool,
}

impl Fault {
    /// The error that names this place.
    pub fn damage(&self) -> Damage {
        Damage { file: segment::path_in_store(self.segment), offset: self.from, what: self.what }
    }

    /// Whether a record may have been here whose key is not known now.
    pub fn may_have_lost_a_key(&self) -> bool {
        self.remains.is_none() && !self.derived && !self.lost.is_nothing()
    }

    /// Where it begins.
    pub fn position(&self) -> Position {
        Position { segment: self.segment, offset: self.from }
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
            done: false,
        }
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
            // The header is good, so no other record begins before its end.
            return Ok(Some(self.tail("record is cut off", false)));
        }
        let end = offset + padded as u64;
        let lost = self.lost_before(header.kind.jsn_after(header.jsn), header.kind.seq_after(header.seq));
        self.offset = end;
        self.advance(&header);
        let scanned = match header.parse_body(&bytes[..padded]) {
            Ok(_) => {
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
                Scanned::Gap(Fault { derived: is_derived(header.kind), ..fault })
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
        Scanned::Tail { fault: Fault { derived: self.seal_offset.is_some(), ..fault }, blank }
    }

    fn fault(&self, from: u64, to: u64, what: &'static str, lost: Lost) -> Fault {
        Fault { segment: self.segment, from, to, what, remains: None, lost, derived: false }
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
    matches!(kind, Kind::Heads | Kind::Index | Kind::Seal)
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

/// One segment to be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The segment.
    pub segment: SegmentId,
    /// Its open file.
    pub file: FileId,
    /// The file's length.
    pub len: u64,
    /// The first record that is wanted: the first of all, or one up to which all is known to be in tables.
    pub start: u64,
    /// Whether the segment is known to have been sealed and synced, from elsewhere than the segment itself:
    /// nothing in it can be torn.
    pub sealed: bool,
}

/// What a [`Replay`] comes upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// A numbered record, to be applied. Those of one batch follow one another; half a batch never comes,
    /// unless the other half is reported as damage.
    Record(ScannedRecord),
    /// Synced bytes are damaged. What can be read after them follows.
    Damage(Fault),
    /// The segment ends. Each ends once, in order.
    End(End),
}

/// How a segment ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The segment.
    pub segment: SegmentId,
    /// Where what counts ends: for a segment that is sealed, and for one with a damaged end, the file's end.
    pub end: u64,
    /// Whether it is sealed.
    pub sealed: bool,
    /// Why the file must be cut to `end`. All cuts must be synced before the journal is written again: its new
    /// records would otherwise stand before old ones with the same numbers. `end` is zero where not even the
    /// header is good; a file cut to its header or less may be removed.
    pub cut: Option<Fault>,
}

/// What a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was not synced: a crash did this, and nobody was promised these bytes.
    Torn,
    /// It was synced: the disk broke its promise.
    Damage,
}

/// The rule: what begins before the durable mark was promised.
pub fn classify(fault: Position, durable: Position) -> Verdict {
    if fault < durable { Verdict::Damage } else { Verdict::Torn }
}

/// Goes through the segments that a start must apply.
#[derive(Debug)]
pub struct Replay {
    /// What is still to come, each with what it begins with, if it has a record.
    sources: VecDeque<(Source, Option<First>)>,
    durable: Position,
    current: Option<Current>,
    ready: VecDeque<Replayed>,
    next_jsn: Option<Jsn>,
    next_seq: Option<Seq>,
    /// Whether a torn end was cut: the next segment counts only if it goes on without a missing number.
    torn: bool,
}

/// The segment that is being replayed.
#[derive(Debug)]
struct Current {
    source: Source,
    scanner: Scanner,
    /// With what the journal goes on in a later segment.
    later: Option<First>,
    /// The records of a batch whose end has not come.
    batch: Vec<ScannedRecord>,
    /// Where the block of heads begins.
    heads_at: Option<u64>,
    sealed: bool,
}

/// What a segment begins with.
#[derive(Clone, Copy, Debug)]
struct First {
    /// The number of its first record that is known of.
    jsn: Jsn,
    /// Whether the store was opened with this segment: all that is older had been decided and synced then. So
    /// it does not depend on what an older one lacks, and its numbers may leave some out.
    fresh: bool,
    /// Whether that record stands at the segment's start. Otherwise what is missing before it was here, not in
    /// an older segment.
    at_start: bool,
}

impl Replay {
    /// A replay of `sources`, ascending and without omission. All before `floor` is known to have been synced.
    /// Reads the newest segment, or the newest that has a group mark, to find the durable mark.
    pub fn open(disk: &mut dyn Disk, sources: &[Source], floor: Position) -> Result<Replay, Error> {
        assert!(sources.is_sorted_by(|a, b| a.segment < b.segment), "segments ascend");
        let mut durable = floor;
        for source in sources {
            if source.sealed || source.start > SEGMENT_HEADER_BYTES as u64 {
                let offset = if source.sealed { source.len } else { source.start };
                durable = durable.max(Position { segment: source.segment, offset });
            }
        }
        for source in sources.iter().rev() {
            if let Some(mark) = largest_mark(disk, source)? {
                durable = durable.max(mark);
                break;
            }
        }
        let mut numbered = VecDeque::with_capacity(sources.len());
        for source in sources {
            numbered.push_back((*source, find_first(disk, source)?));
        }
        Ok(Replay {
            sources: numbered,
            durable,
            current: None,
            ready: VecDeque::new(),
            next_jsn: None,
            next_seq: None,
            torn: false,
        })
    }

    /// What comes next; `None` after the last segment's end.
    pub fn next(&mut self, disk: &mut dyn Disk) -> Result<Option<Replayed>, Error> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(Some(ready));
            }
            let Some(current) = &mut self.current else {
                let Some((source, first)) = self.sources.pop_front() else { return Ok(None) };
                self.begin(disk, source, first)?;
                continue;
            };
            match current.scanner.next(disk)? {
                Some(Scanned::Record(record)) => self.on_record(record),
                Some(Scanned::Gap(fault)) => {
                    self.on_fault(fault);
                }
                Some(Scanned::Tail { fault, blank }) => self.on_tail(fault, blank),
                None => {
                    let end = current.scanner.len;
                    self.on_end(end);
                }
            }
        }
    }

    /// The durable mark: all before it was synced.
    pub fn durable(&self) -> Position {
        self.durable
    }

    /// A number above those of all records so far, the damaged ones included; `None` if there was none. The
    /// journal goes on with this one or a higher one, in a new segment.
    pub fn next_jsn(&self) -> Option<Jsn> {
        self.next_jsn
    }

    /// A seq above those of all records so far, the damaged ones included; `None` if there was none.
    pub fn next_seq(&self) -> Option<Seq> {
        self.next_seq
    }

    fn begin(&mut self, disk: &mut dyn Disk, source: Source, first: Option<First>) -> Result<(), Error> {
        let header = disk::read(disk, source.file, 0, SEGMENT_HEADER_BYTES)?;
        let header_is_good = match segment::parse_header(&header, source.segment) {
            Ok(_) => true,
            Err(HeaderError::Damaged) => false,
            Err(HeaderError::Version(version)) => {
                let what = format!("version {version} of the journal is unknown");
                return Err(Error::Format { file: segment::path_in_store(source.segment), what });
            }
        };
        let header_end = SEGMENT_HEADER_BYTES as u64;
        let fault = |from, to, what| fault_in(&source, from, to, what, Lost::default());
        let unsynced =
            classify(Position { segment: source.segment, offset: header_end }, self.durable) == Verdict::Torn;
        let follows = |first: First| first.fresh || Some(first.jsn) == self.next_jsn;
        if self.torn && unsynced && first.is_some_and(|first| !follows(first)) {
            let end = if header_is_good { header_end } else { 0 };
            self.cut(source.segment, end, fault(end, source.len, "it follows a torn end"));
            return Ok(());
        }
        if !header_is_good {
            let fault = fault(0, header_end, "segment header");
            // The header is synced before the first record is written.
            if first.is_none() && classify(fault.position(), self.durable) == Verdict::Torn {
                self.cut(source.segment, 0, fault);
                return Ok(());
            }
            self.ready.push_back(Replayed::Damage(fault));
        }
        self.torn &= first.is_none();
        self.current = Some(Current {
            scanner: Scanner::new(source.file, source.len, source.segment, source.start),
            later: self.sources.iter().find_map(|(_, first)| *first),
            source,
            batch: Vec::new(),
            heads_at: None,
            sealed: false,
        });
        Ok(())
    }

    fn on_record(&mut self, record: ScannedRecord) {
        let kind = record.header.kind;
        let current = self.current();
        if !kind.is_numbered() && !current.batch.is_empty() {
            let fault =
                fault_in(&current.source, record.offset, record.offset, NO_BATCH_END, Lost::default());
            if self.on_fault(fault) == Verdict::Torn {
                return;
            }
        }
        let current = self.current();
        match kind {
            Kind::GroupMark => {
                self.next_jsn = self.next_jsn.max(Some(record.header.jsn));
                self.next_seq = self.next_seq.max(kind.seq_after(record.header.seq));
            }
            Kind::Heads | Kind::Index => {
                current.heads_at.get_or_insert(record.offset);
            }
            Kind::Seal => current.sealed = true,
            _ => {
                if record.header.flags & record::FLAG_MORE != 0 {
                    current.batch.push(record);
                } else {
                    self.release_batch();
                    self.release(record);
                }
            }
        }
    }

    /// Decides what a fault is and says so. A torn one ends the segment.
    fn on_fault(&mut self, fault: Fault) -> Verdict {
        let durable = self.durable;
        let current = self.current();
        if fault.remains.as_ref().is_some_and(|remains| remains.header.kind == Kind::Heads) {
            current.heads_at.get_or_insert(fault.from);
        }
        let derived = fault.derived || current.heads_at.is_some();
        let verdict = match derived && !current.source.sealed {
            true => Verdict::Torn,
            false => classify(fault.position(), durable),
        };
        match verdict {
            Verdict::Torn => {
                let batch_at = current.batch.first().map(|record| record.offset);
                let end = current.heads_at.or(batch_at).unwrap_or(fault.from);
                self.cut(fault.segment, end, fault);
            }
            Verdict::Damage => {
                self.release_batch();
                self.skip_lost(&fault);
                self.ready.push_back(Replayed::Damage(fault));
            }
        }
        verdict
    }

    fn on_tail(&mut self, mut fault: Fault, blank: bool) {
        if blank {
            return self.on_end(fault.from);
        }
        let end = fault.to;
        fault.lost.to_jsn = self.current().later.map(|later| later.jsn);
        fault.derived |= fault.lost.is_nothing();
        if self.on_fault(fault) == Verdict::Damage {
            let (segment, sealed) = (self.current().source.segment, self.current().sealed);
            self.end(End { segment, end, sealed, cut: None });
        }
    }

    /// The segment's bytes end at `at`, and all of them are accounted for. What should be there and is not?
    fn on_end(&mut self, at: u64) {
        let (durable, next_jsn) = (self.durable, self.next_jsn);
        let Current { source, later, batch, heads_at, sealed, .. } = self.current();
        let (source, later, sealed) = (*source, *later, *sealed);
        let later_jsn = later.map(|later| later.jsn);
        let at_once = |what| fault_in(&source, at, at, what, Lost::default());
        let mut missing = Vec::new();
        if !batch.is_empty() {
            missing.push(at_once(NO_BATCH_END));
        }
        if !sealed && (heads_at.is_some() || source.sealed) {
            missing.push(Fault { derived: true, ..at_once("no seal") });
        }
        let here = Position { segment: source.segment, offset: at };
        let lost = Lost { from_jsn: next_jsn, to_jsn: later_jsn, from_seq: self.next_seq, to_seq: None };
        if here < durable && durable.segment == source.segment {
            missing.push(fault_in(&source, at, durable.offset, "synced bytes are missing", lost));
        } else if next_jsn.is_some()
            && later_jsn > next_jsn
            && later.is_some_and(|later| !later.fresh && later.at_start)
        {
            match classify(here, durable) {
                Verdict::Damage => missing.push(fault_in(&source, at, at, RECORDS_MISSING, lost)),
                // Nothing is left to be cut here, and the later segment does not count.
                Verdict::Torn => self.torn = true,
            }
        }
        for fault in missing {
            if self.on_fault(fault) == Verdict::Torn {
                return;
            }
        }
        self.end(End { segment: source.segment, end: at, sealed, cut: None });
    }

    /// The one place where a torn end is cut off.
    fn cut(&mut self, segment: SegmentId, end: u64, fault: Fault) {
        self.torn = true;
        self.end(End { segment, end, sealed: false, cut: Some(fault) });
    }

    /// What is left of an unfinished batch is dropped with the segment's state.
    fn end(&mut self, end: End) {
        self.current = None;
        self.ready.push_back(Replayed::End(end));
    }

    fn release_batch(&mut self) {
        for record in std::mem::take(&mut self.current().batch) {
            self.release(record);
        }
    }

    fn release(&mut self, record: ScannedRecord) {
        self.pass(record.header.jsn, record.header.seq);
        self.ready.push_back(Replayed::Record(record));
    }

    /// Numbers that lost records may have had are not given again.
    fn skip_lost(&mut self, fault: &Fault) {
        if let Some(remains) = &fault.remains {
            if remains.header.kind.is_numbered() {
                self.pass(remains.header.jsn, remains.header.seq);
            }
            return;
        }
        // As many records at most as there is room for.
        let records_max = (fault.to - fault.from) / HEADER_BYTES as u64;
        let Some(next_jsn) = self.next_jsn else { return };
        let next_jsn = fault.lost.to_jsn.unwrap_or(Jsn(next_jsn.0.saturating_add(records_max)));
        self.next_jsn = self.next_jsn.max(Some(next_jsn));
        self.next_seq =
            self.next_seq.map(|seq| Seq(seq.0.saturating_add(records_max))).max(fault.lost.to_seq);
    }

    fn pass(&mut self, jsn: Jsn, seq: Seq) {
        self.next_jsn = self.next_jsn.max(Some(Jsn(jsn.0.saturating_add(1))));
        self.next_seq = self.next_seq.max(Some(Seq(seq.0.saturating_add(1))));
    }

    fn current(&mut self) -> &mut Current {
        self.current.as_mut().expect("events come only from a segment that is being replayed")
    }
}

const NO_BATCH_END: &str = "batch without its end";

/// Between the end of one segment and the beginning of the next, numbers are left out.
pub(crate) const RECORDS_MISSING: &str = "synced records are missing";

fn fault_in(source: &Source, from: u64, to: u64, what: &'static str, lost: Lost) -> Fault {
    Fault { segment: source.segment, from, to, what, remains: None, lost, derived: false }
}

/// The largest position that a group mark in the segment says was synced. A mark cannot know more than what
/// stands before itself.
fn largest_mark(disk: &mut dyn Disk, source: &Source) -> Result<Option<Position>, Error> {
    let mut scanner = Scanner::new(source.file, source.len, source.segment, source.start);
    let mut largest = None;
    while let Some(scanned) = scanner.next(disk)? {
        if let Scanned::Record(found) = scanned
            && found.header.kind == Kind::GroupMark
        {
            let mark = parse_durable_mark(found.record().head).ok_or(Error::Malformed("group mark"))?;
            let here = Position { segment: found.segment, offset: found.offset };
            largest = largest.max((mark <= here).then_some(mark));
        }
    }
    Ok(largest)
}

fn find_first(disk: &mut dyn Disk, source: &Source) -> Result<Option<First>, Error> {
    let mut scanner = Scanner::new(source.file, source.len, source.segment, source.start);
    let jsn = match scanner.next(disk)? {
        Some(Scanned::Record(found)) => {
            let start = Position { segment: source.segment, offset: SEGMENT_HEADER_BYTES as u64 };
            let at_start = found.offset == start.offset;
            let fresh = at_start
                && found.header.kind == Kind::GroupMark
                && parse_durable_mark(found.record().head) == Some(start);
            return Ok(Some(First { jsn: found.header.jsn, fresh, at_start }));
        }
        Some(Scanned::Gap(Fault { remains: Some(remains), .. })) => Some(remains.header.jsn),
        Some(Scanned::Gap(fault)) => fault.lost.to_jsn,
        Some(Scanned::Tail { .. }) | None => None,
    };
    Ok(jsn.map(|jsn| First { jsn, fresh: false, at_start: false }))
}
