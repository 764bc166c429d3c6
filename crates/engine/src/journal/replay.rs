//! The replay of the segments that a start must apply, in order; it decides what each fault is.
//!
//! The first torn fault ([`super::fault`]) ends the journal: everything from it on, or from the start of the batch
//! that it breaks, is to be cut, later segments included, so what is left is a prefix of what was written. Damage
//! is reported, and later records are yielded.
//!
//! A segment's end may be synced while the next one is already written, so after a power cut the next one may be there
//! without it, and is cut as well. The seal is made behind that sync and vouches for the records before it, so a fault
//! after which the next segment goes on without a missing number lost only heads: it cuts those off and nothing else.
//!
//! Left out: the last synced group has no later mark that vouches for it. Damage to it looks just like a torn
//! tail and is cut as one, unless the caller knows better ([`Source::sealed`], the `floor` of [`Replay::open`]).
//! The next mark ends that, which is that of the first group that begins after the sync.

use super::fault::{Fault, Lost, Verdict, classify};
use super::record::{self, HEADER_BYTES, Header, Kind};
use super::scan::{Scanned, ScannedRecord, Scanner, find_seal};
use super::segment::{self, HeaderError, Position, SEGMENT_HEADER_BYTES, SegmentId, parse_durable_mark};
use crate::entry::{Jsn, Seq};
use crate::error::Error;
use base::Disk;
use base::disk::{self, FileId};
use std::collections::VecDeque;

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
    /// Where what counts ends: for a segment that is sealed, and for one with a damaged end, the file's end. Zeros
    /// behind it are room that was made ahead of records, and may be cut off.
    pub end: u64,
    /// Whether it is sealed.
    pub sealed: bool,
    /// Why the file must be cut to `end`. All cuts must be synced before the journal is written again: its new
    /// records would otherwise stand before old ones with the same numbers. `end` is zero where not even the
    /// header is good; a file cut to its header or less may be removed.
    pub cut: Option<Fault>,
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
    /// Entries of groups' logs so far: a mark that is lost may have given as many seqs.
    proposed: u64,
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
    /// A replay of `sources`, ascending and without omission. All before `floor` is known to have been synced;
    /// `next_jsn` is the number with which the first source goes on at its `start`, where that is known: nothing
    /// numbered may be left of it. Reads the seals, and the newest segment, or the newest that has a group mark, to
    /// find the durable mark.
    pub fn open(
        disk: &mut dyn Disk,
        sources: &[Source],
        floor: Position,
        next_jsn: Option<Jsn>,
    ) -> Result<Replay, Error> {
        assert!(sources.is_sorted_by(|a, b| a.segment < b.segment), "segments ascend");
        let mut durable = floor;
        for source in sources {
            if source.sealed || source.start > SEGMENT_HEADER_BYTES as u64 {
                let offset = if source.sealed { source.len } else { source.start };
                durable = durable.max(Position { segment: source.segment, offset });
            }
            if let Some(mark) = seal_mark(disk, source)? {
                durable = durable.max(mark);
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
            next_jsn,
            next_seq: None,
            proposed: 0,
            torn: false,
        })
    }

    /// There are so many entries of groups' logs before, to which marks may give seqs.
    pub fn note_proposed(&mut self, count: u64) {
        self.proposed += count;
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
                    let end = current.scanner.end();
                    self.on_end(end);
                }
            }
        }
    }

    /// The durable mark: all before it was synced.
    pub fn durable(&self) -> Position {
        self.durable
    }

    /// A number above those of all records so far, the damaged ones included; `None` if none is known of. The
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
        let kind = record.header().kind;
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
                self.next_jsn = self.next_jsn.max(Some(record.header().jsn));
                self.next_seq = self.next_seq.max(kind.seq_after(record.header().seq));
            }
            Kind::Heads | Kind::HeadsV1 | Kind::Index => {
                current.heads_at.get_or_insert(record.offset);
            }
            Kind::Seal => current.sealed = true,
            _ => {
                if record.header().flags & record::FLAG_MORE != 0 {
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
        if fault.remains.as_ref().is_some_and(|remains| remains.header.kind.is_heads()) {
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
        let (end, next_jsn) = (fault.to, self.next_jsn);
        let start = self.current().source.start;
        if start > SEGMENT_HEADER_BYTES as u64 && fault.from == start {
            // The scanner has read no record here, so it does not know the number. The rest of a seal may stand here.
            fault.lost.from_jsn = fault.lost.from_jsn.or(next_jsn);
        }
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
        let mut end = at;
        for fault in missing {
            if self.on_fault(fault) == Verdict::Torn {
                return;
            }
            end = self.current().scanner.end();
        }
        self.end(End { segment: source.segment, end, sealed, cut: None });
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
        self.pass(record.header());
        self.ready.push_back(Replayed::Record(record));
    }

    /// Numbers that lost records may have had are not given again.
    fn skip_lost(&mut self, fault: &Fault) {
        if let Some(remains) = &fault.remains {
            if remains.header.kind.is_numbered() {
                self.pass(&remains.header);
            }
            return;
        }
        // As many records at most as there is room for, and as many seqs: marks give theirs to entries before them.
        let records_max = (fault.to - fault.from) / HEADER_BYTES as u64;
        let seqs_max = records_max.saturating_add(if records_max > 0 { self.proposed } else { 0 });
        let Some(next_jsn) = self.next_jsn else { return };
        let next_jsn = fault.lost.to_jsn.unwrap_or(Jsn(next_jsn.0.saturating_add(records_max)));
        self.next_jsn = self.next_jsn.max(Some(next_jsn));
        self.next_seq = self.next_seq.map(|seq| Seq(seq.0.saturating_add(seqs_max))).max(fault.lost.to_seq);
    }

    fn pass(&mut self, header: &Header) {
        self.next_jsn = self.next_jsn.max(Some(header.kind.jsn_after(header.jsn)));
        self.next_seq = self.next_seq.max(header.kind.seq_after(header.seq));
        self.proposed += u64::from(header.kind == Kind::Proposed);
    }

    fn current(&mut self) -> &mut Current {
        self.current.as_mut().expect("events come only from a segment that is being replayed")
    }
}

const NO_BATCH_END: &str = "batch without its end";

/// Between the end of one segment and the beginning of the next, numbers are left out.
pub(crate) const RECORDS_MISSING: &str = "synced records are missing";

fn fault_in(source: &Source, from: u64, to: u64, what: &'static str, lost: Lost) -> Fault {
    Fault { segment: source.segment, from, to, what, remains: None, lost, kind: None, derived: false }
}

/// Where the segment's records end, if it has a seal: one is made when they are synced.
fn seal_mark(disk: &mut dyn Disk, source: &Source) -> Result<Option<Position>, Error> {
    match find_seal(disk, source.file, source.len, source.segment) {
        Ok(seal) => Ok(seal.map(|seal| Position { segment: source.segment, offset: seal.heads_offset })),
        Err(Error::Disk(error)) => Err(error.into()),
        // It is read again where it stands, and what it lacks is told there.
        Err(_) => Ok(None),
    }
}

/// The largest position that a group mark in the segment says was synced. A mark cannot know more than what
/// stands before itself.
fn largest_mark(disk: &mut dyn Disk, source: &Source) -> Result<Option<Position>, Error> {
    let mut scanner = Scanner::new(source.file, source.len, source.segment, source.start);
    let mut largest = None;
    while let Some(scanned) = scanner.next(disk)? {
        if let Scanned::Record(found) = scanned
            && found.header().kind == Kind::GroupMark
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
                && found.header().kind == Kind::GroupMark
                && parse_durable_mark(found.record().head) == Some(start);
            return Ok(Some(First { jsn: found.header().jsn, fresh, at_start }));
        }
        Some(Scanned::Gap(Fault { remains: Some(remains), .. })) => Some(remains.header.jsn),
        Some(Scanned::Gap(fault)) => fault.lost.to_jsn,
        Some(Scanned::Tail { .. }) | None => None,
    };
    Ok(jsn.map(|jsn| First { jsn, fresh: false, at_start: false }))
}
