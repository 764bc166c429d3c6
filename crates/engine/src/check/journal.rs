//! The journal's part of a check.
//!
//! Segments that compaction wrote are never replayed; each is gone through by itself. The rest is replayed as at a
//! start, but from the first record of the first segment and with nothing applied. One thing is judged otherwise: a
//! start takes a damaged block of heads for one that a crash cut off, since it can be made again. Here a segment whose
//! end is known to have been written is expected to be whole, so a flipped bit in its heads is damage.

use super::{Check, FAULTS_REMEMBERED_MAX, FindingKind, list};
use crate::compression::Codec;
use crate::entry::{Entry, Jsn};
use crate::error::Error;
use crate::journal::fault::Fault;
use crate::journal::index::SegmentIndex;
use crate::journal::record::{self, HEADER_BYTES, Header, Kind};
use crate::journal::replay::{RECORDS_MISSING, Replay, Replayed, Source};
use crate::journal::scan::{Scanned, Scanner, find_seal};
use crate::journal::segment::{
    self, FOLDER, Heads, Position, SEGMENT_HEADER_BYTES, SegmentId, TRAILER_BYTES, path_in_store,
};
use crate::manifest::{ManifestState, SegmentRecord};
use crate::memtable;
use crate::proposals::record::PROPOSED_HEAD_BYTES;
use base::Disk;
use base::disk::{self, DiskOp, FileId, OpenMode};

/// The length of a seal's record: its header and seven numbers.
const SEAL_RECORD_BYTES: usize = HEADER_BYTES + 7 * 8;

/// An open segment, and what it is known to hold.
struct Segment {
    source: Source,
    /// The first record's number, as far as the manifest or a record says it.
    first_jsn: Jsn,
    /// Where the records stand that compaction moved.
    index: Option<SegmentIndex>,
}

/// The journal's segments, oldest first: where an entry's record is looked for.
#[derive(Default)]
pub(super) struct Segments(Vec<Segment>);

impl Segments {
    /// Whether the record that `entry` of `key` was made from stands at `offset`; if not, where it should.
    pub fn find_record(
        &self,
        disk: &mut dyn Disk,
        key: &[u8],
        entry: &Entry<'_>,
        offset: u32,
        len: u32,
    ) -> Result<(), Option<Position>> {
        let after = self.0.partition_point(|segment| segment.first_jsn <= entry.jsn);
        let segment = after.checked_sub(1).and_then(|at| self.0.get(at)).ok_or(None)?;
        let id = segment.source.segment;
        let offset = match &segment.index {
            Some(index) => index.find(entry.jsn).ok_or(None)?,
            None => offset,
        };
        let offset = u64::from(offset);
        let at = Some(Position { segment: id, offset });
        // The scan has checked the record's bytes; here only its identity is.
        let bytes =
            disk::read(disk, segment.source.file, offset, HEADER_BYTES + key.len()).map_err(|_| at)?;
        let header = Header::parse(&bytes, id, offset).map_err(|_| at)?;
        // Compaction may have compressed it since the entry was made.
        let len_fits = match Codec::of_flags(header.flags) {
            // Or it was an entry of a group's log, which has more before its head.
            _ if segment.index.is_some() && header.record_len() + PROPOSED_HEAD_BYTES == len as usize => true,
            Some(_) if segment.index.is_some() => header.record_len() <= len as usize,
            _ => header.record_len() == len as usize,
        };
        let same = header.jsn == entry.jsn && header.kind.has_value() && len_fits;
        if same && bytes.get(header.key_range()) == Some(key) { Ok(()) } else { Err(at) }
    }

    /// Closes all files.
    pub fn close(self, disk: &mut dyn Disk) {
        for segment in self.0 {
            // They were only read: nothing is lost if one does not close.
            disk::run(disk, DiskOp::Close { file: segment.source.file }).ok();
        }
    }

    /// A segment in which no record was found begins where the next one does, so that the numbers ascend.
    fn settle(&mut self, named: &[SegmentRecord]) {
        let rank = |id: SegmentId| named.iter().position(|record| record.id == id.0).unwrap_or(usize::MAX);
        self.0.sort_by_key(|segment| (rank(segment.source.segment), segment.source.segment));
        let mut next = Jsn(u64::MAX);
        for segment in self.0.iter_mut().rev() {
            next = next.min(segment.first_jsn);
            segment.first_jsn = next;
        }
    }

    fn of(&mut self, id: SegmentId) -> &mut Segment {
        self.0
            .iter_mut()
            .find(|segment| segment.source.segment == id)
            .expect("only what was opened is scanned")
    }
}

impl Check<'_> {
    /// Goes through all segments and leaves them open.
    pub(super) fn journal(&mut self, state: Option<&ManifestState>) -> Result<Segments, Error> {
        let mut segments = self.open_segments(state)?;
        let sources: Vec<_> = segments.0.iter().map(|segment| segment.source).collect();
        let (moved, sources): (Vec<_>, Vec<_>) =
            sources.into_iter().partition(|source| source.segment.is_compacted());
        for source in &moved {
            match self.compacted(source) {
                Ok(index) => segments.of(source.segment).index = Some(index),
                Err(error) => self.fail(&path_in_store(source.segment), error),
            }
        }
        if let Err(error) = self.replay(&sources, &mut segments, state) {
            self.fail(FOLDER, error);
        }
        segments.settle(state.map_or(&[][..], |state| &state.segments));
        for source in moved.into_iter().chain(sources) {
            let known = |(from, _): &(Position, u64)| from.segment == source.segment;
            if !self.faults.iter().any(known)
                && let Err(error) = self.seal(&source)
            {
                self.fail(&path_in_store(source.segment), error);
            }
        }
        Ok(segments)
    }

    fn open_segments(&mut self, state: Option<&ManifestState>) -> Result<Segments, Error> {
        let folder = self.dir.join(FOLDER);
        let named = state.map_or(&[][..], |state| &state.segments[..]);
        let mut segments = Segments::default();
        for name in list(self.disk, &folder)? {
            let Some(segment) = segment::parse_file_name(&name) else { continue };
            if state.is_some_and(|state| is_leftover(state, segment)) {
                self.find(FindingKind::Leftover, path_in_store(segment), 0, "the manifest does not name it");
                continue;
            }
            let (file, len) = match disk::open(self.disk, &folder.join(&name), OpenMode::Read) {
                Ok(opened) => opened,
                Err(error) => {
                    self.fail(&path_in_store(segment), error.into());
                    continue;
                }
            };
            // What the manifest names of compaction's was synced before.
            let sealed = segment.is_compacted() || self.is_sealed(segment, file, len, state);
            let source = Source { segment, file, len, start: SEGMENT_HEADER_BYTES as u64, sealed };
            let first_jsn = named.iter().find(|record| record.id == segment.0).map(|record| record.first_jsn);
            let index = segment.is_compacted().then(|| SegmentIndex::new(&[]));
            segments.0.push(Segment { source, first_jsn: first_jsn.unwrap_or(Jsn(u64::MAX)), index });
            self.summary.segments += 1;
            self.summary.bytes += len;
        }
        for record in named {
            if segments.0.iter().all(|segment| segment.source.segment.0 != record.id) {
                let file = path_in_store(SegmentId(record.id));
                self.find(FindingKind::Damage, file, 0, "the segment is missing");
            }
        }
        Ok(segments)
    }

    /// Whether the segment's end was written, so that all of it was: trailer or seal stand where they should.
    /// Where a start has not looked since a crash, the blocks before them may be lost all the same.
    fn is_sealed(&mut self, id: SegmentId, file: FileId, len: u64, state: Option<&ManifestState>) -> bool {
        let settled =
            state.is_some_and(|state| state.clean.is_some() || id.0 < state.replay_position.segment);
        let Some(seal_at) = len.checked_sub((SEAL_RECORD_BYTES + TRAILER_BYTES) as u64) else { return false };
        let Ok(end) = disk::read(self.disk, file, seal_at, SEAL_RECORD_BYTES + TRAILER_BYTES) else {
            return false;
        };
        let Some((seal, trailer)) = end.split_at_checked(SEAL_RECORD_BYTES) else { return false };
        let is_seal = record::parse(seal, id, seal_at).is_ok_and(|record| record.kind == Kind::Seal);
        settled && (is_seal || segment::parse_trailer(trailer, id) == Some(seal_at))
    }

    fn replay(
        &mut self,
        sources: &[Source],
        segments: &mut Segments,
        state: Option<&ManifestState>,
    ) -> Result<(), Error> {
        let clean_end = state.and_then(|state| state.clean).map(|clean| clean.journal_end);
        let known = clean_end.or(state.map(|state| state.replay_position)).unwrap_or_default();
        let floor = Position { segment: SegmentId(known.segment), offset: known.offset };
        let mut replay = Replay::open(self.disk, sources, floor, None)?;
        while let Some(replayed) = replay.next(self.disk)? {
            match replayed {
                Replayed::Record(record) => {
                    self.summary.records += 1;
                    if state.is_some_and(|state| record.header().jsn >= state.replay_jsn) {
                        self.recent.insert(memtable::hash(record.record().key), ());
                    }
                    let first_jsn = &mut segments.of(record.segment).first_jsn;
                    *first_jsn = record.header().jsn.min(*first_jsn);
                }
                // Compaction may have taken out what was between this segment and the next.
                Replayed::Damage(fault)
                    if fault.what == RECORDS_MISSING
                        && state.is_some_and(|state| fault.segment.0 < state.replay_position.segment) => {}
                Replayed::Damage(fault) => self.fault(FindingKind::Damage, &fault),
                Replayed::End(end) => {
                    if let Some(fault) = &end.cut {
                        // After a clean stop nothing past the journal's end can be torn.
                        let damaged = clean_end.is_some() && fault.position() >= floor;
                        self.fault(if damaged { FindingKind::Damage } else { FindingKind::Torn }, fault);
                    }
                }
            }
        }
        Ok(())
    }

    /// Goes through a compacted segment, of which every byte was synced, and makes its index anew.
    fn compacted(&mut self, source: &Source) -> Result<SegmentIndex, Error> {
        let header = disk::read(self.disk, source.file, 0, SEGMENT_HEADER_BYTES)?;
        if segment::parse_header(&header, source.segment).is_err() {
            self.find(FindingKind::Damage, path_in_store(source.segment), 0, "segment header");
        }
        let mut scanner = Scanner::new(source.file, source.len, source.segment, source.start);
        let (mut records, mut index) = (Vec::new(), None);
        while let Some(scanned) = scanner.next(self.disk)? {
            let (header, offset) = match &scanned {
                Scanned::Record(record) if record.header().kind == Kind::Index => {
                    index = SegmentIndex::decode(&record.value());
                    continue;
                }
                Scanned::Record(record) => (*record.header(), record.offset),
                Scanned::Gap(fault) | Scanned::Tail { fault, .. } => {
                    self.fault(FindingKind::Damage, fault);
                    match &fault.remains {
                        Some(remains) => (remains.header, fault.from),
                        None => continue,
                    }
                }
            };
            if header.kind.is_numbered() {
                self.summary.records += 1;
                let offset =
                    u32::try_from(offset).map_err(|_| Error::Malformed("segment of more than 4 GiB"))?;
                records.push((header.jsn, offset));
            }
        }
        let made = SegmentIndex::new(&records);
        let whole = !self.faults.iter().any(|(from, _)| from.segment == source.segment);
        if whole && index.as_ref() != Some(&made) {
            let what = "the index does not say where the records stand";
            self.find(FindingKind::Damage, path_in_store(source.segment), source.len, what);
        }
        Ok(made)
    }

    fn fault(&mut self, kind: FindingKind, fault: &Fault) {
        if self.faults.len() < FAULTS_REMEMBERED_MAX {
            self.faults.push((fault.position(), fault.to));
        }
        self.find(kind, path_in_store(fault.segment), fault.from, fault.what);
    }

    /// A seal in a segment without faults must say what is there.
    fn seal(&mut self, source: &Source) -> Result<(), Error> {
        let Some(seal) = find_seal(self.disk, source.file, source.len, source.segment)? else {
            return Ok(());
        };
        let start = seal.heads_offset;
        let mut heads = 0;
        if start >= SEGMENT_HEADER_BYTES as u64 && start.is_multiple_of(record::ALIGN as u64) {
            let mut scanner = Scanner::new(source.file, source.len, source.segment, start);
            while let Some(Scanned::Record(record)) = scanner.next(self.disk)? {
                if record.header().kind.is_heads() {
                    for head in Heads::new(record.header().kind, &record.value()) {
                        Entry::decode(head?.entry)?;
                        heads += 1;
                    }
                }
            }
        }
        if heads != seal.heads {
            let what = format!("the seal counts {} heads, and there are {heads}", seal.heads);
            self.find(FindingKind::Damage, path_in_store(source.segment), start, what);
        }
        Ok(())
    }
}

/// Whether a segment's file is what a compaction's crash left: an output that does not count, or an input of one that
/// does.
fn is_leftover(state: &ManifestState, id: SegmentId) -> bool {
    let named = state.segments.iter().any(|record| record.id == id.0);
    !named && (id.is_compacted() || id.0 < state.replay_position.segment)
}
