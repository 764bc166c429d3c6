//! The segments that a start finds: which count, which of them are to be replayed, and what is left over.

use super::replay::Recovery;
use super::{JOURNAL_DIR, Segment};
use crate::compaction::Account;
use crate::entry::Jsn;
use crate::error::{Damage, Error};
use crate::journal::fault::Fault;
use crate::journal::index::SegmentIndex;
use crate::journal::record::Kind;
use crate::journal::replay::Source;
use crate::journal::scan::{Scanned, Scanner, find_seal};
use crate::journal::segment::{self, SEGMENT_HEADER_BYTES, SegmentId};
use crate::manifest::{MANIFEST_FILE, ManifestState, SegmentRecord};
use base::disk::{self, DiskOp, OpenMode};
use base::{Disk, FastMap};
use std::collections::BTreeMap;

/// The journal was compacted since the manifest was written, and what the manifest names is gone.
const OLDER_MANIFEST: &str = "it is older than the journal; the ledger can be made again from the journal";

impl Recovery<'_> {
    /// Opens the segments that the manifest names and those that are newer, and removes the others: inputs of a
    /// compaction that counts, and outputs of one that does not.
    pub(super) fn open_segments(&mut self, state: &ManifestState) -> Result<Vec<Source>, Error> {
        let journal = self.dir.join(JOURNAL_DIR);
        let at = state.replay_position;
        let names = disk::list(self.disk, &journal)?;
        self.check_age(state, &names)?;
        let (mut found, mut removed) = (Vec::new(), false);
        for name in names {
            let Some(id) = segment::parse_file_name(&name) else { continue };
            self.next_segment = self.next_segment.max(id.number() + 1);
            if is_left_over(state, id) {
                disk::run(self.disk, DiskOp::Remove { path: journal.join(&name) })?;
                removed = true;
                continue;
            }
            let (file, len) = disk::open(self.disk, &journal.join(&name), OpenMode::Write)?;
            found.push(Source { segment: id, file, len, start: SEGMENT_HEADER_BYTES as u64, sealed: false });
        }
        if removed {
            disk::run(self.disk, DiskOp::SyncDir { path: journal })?;
        }
        for record in &state.segments {
            let id = SegmentId(record.id);
            let Some(source) = found.iter().find(|source| source.segment == id) else {
                let damage =
                    Damage { file: segment::path_in_store(id), offset: 0, what: "the segment is missing" };
                // What was to be replayed from it might have replaced anything.
                if !id.is_compacted() && id.0 >= at.segment {
                    return Err(damage.into());
                }
                self.report.damage.push(damage);
                self.segments.insert(id, Segment::missing(id, record.first_jsn));
                self.accounts.set(id, record.account);
                continue;
            };
            let index = match id.is_compacted() {
                true => Some(self.index_of(source)?),
                false => None,
            };
            self.segments.insert(id, Segment { id, file: source.file, first_jsn: record.first_jsn, index });
            self.accounts.set(id, account_of(record, source, at.segment));
        }
        found.retain(|source| !source.segment.is_compacted());
        self.before.extend(found.iter().filter(|source| source.segment.0 <= at.segment));
        self.before.sort_by_key(|source| source.segment);
        found.retain(|source| source.segment.0 >= at.segment);
        for source in &mut found {
            if source.segment.0 == at.segment {
                source.start = at.offset;
            }
            // Its first record's number is found by the replay if the manifest does not know the segment.
            let (id, file) = (source.segment, source.file);
            let fresh = Segment { id, file, first_jsn: Jsn(u64::MAX), index: None };
            self.segments.entry(id).or_insert(fresh);
        }
        Ok(found)
    }

    /// Nothing is removed by a manifest that is older than the journal: one that was restored, say. What a crash leaves
    /// of compactions may go: either all that it stands for, or what stands for it now, is named and there; or the
    /// manifest knew those records, and that nothing is left of them.
    fn check_age(&mut self, state: &ManifestState, names: &[String]) -> Result<(), Error> {
        let journal = self.dir.join(JOURNAL_DIR);
        let there: Vec<SegmentId> = names.iter().filter_map(|name| segment::parse_file_name(name)).collect();
        for id in there.iter().filter(|id| id.is_compacted() && is_left_over(state, **id)) {
            let (file, _) = disk::open(self.disk, &journal.join(segment::file_name(*id)), OpenMode::Read)?;
            let header = disk::read(self.disk, file, 0, SEGMENT_HEADER_BYTES);
            disk::run(self.disk, DiskOp::Close { file })?;
            // Without a header it was not finished.
            let Ok(header) = segment::parse_header(&header?, *id) else { continue };
            let (first, last) = header.stands_for;
            let mut named = state
                .segments
                .iter()
                .filter(|record| (first..=last).contains(&record.first_jsn))
                .map(|record| there.contains(&SegmentId(record.id)))
                .peekable();
            let is_older = match named.peek() {
                Some(_) => named.any(|is_there| !is_there),
                None => last > state.last_jsn,
            };
            if is_older {
                return Err(Damage { file: MANIFEST_FILE.to_owned(), offset: 0, what: OLDER_MANIFEST }.into());
            }
        }
        Ok(())
    }

    /// The index of a compacted segment; made again from its records if it is damaged.
    fn index_of(&mut self, source: &Source) -> Result<SegmentIndex, Error> {
        match read_index(self.disk, source) {
            Ok(Some(index)) => return Ok(index),
            Ok(None) | Err(Error::Damaged(_) | Error::Malformed(_) | Error::Format { .. }) => {}
            Err(error) => return Err(error),
        }
        let (file, offset) = (segment::path_in_store(source.segment), source.len);
        self.report.damage.push(Damage { file, offset, what: "the index of a compacted segment" });
        let mut scanner = Scanner::new(source.file, source.len, source.segment, source.start);
        let mut records = Vec::new();
        while let Some(scanned) = scanner.next(self.disk)? {
            let (header, offset) = match &scanned {
                Scanned::Record(record) => (record.header(), record.offset),
                Scanned::Gap(Fault { remains: Some(remains), from, .. }) => (&remains.header, *from),
                Scanned::Gap(_) | Scanned::Tail { .. } => continue,
            };
            if header.kind.is_numbered() {
                records.push((header.jsn, to_u32(offset)?));
            }
        }
        Ok(SegmentIndex::new(&records))
    }
}

/// A segment's account up to the replay position. An old manifest has none: then all is taken to be of use.
fn account_of(record: &SegmentRecord, source: &Source, replay_from: u64) -> Account {
    let unknown = record.account == Account::default();
    if unknown && (source.segment.is_compacted() || record.id < replay_from) {
        return Account { value_bytes: source.len - source.start.min(source.len), ..record.account };
    }
    record.account
}

fn read_index(disk: &mut dyn Disk, source: &Source) -> Result<Option<SegmentIndex>, Error> {
    let Some(seal) = find_seal(disk, source.file, source.len, source.segment)? else { return Ok(None) };
    if seal.index_offset < SEGMENT_HEADER_BYTES as u64 || !seal.index_offset.is_multiple_of(8) {
        return Ok(None);
    }
    let mut scanner = Scanner::new(source.file, source.len, source.segment, seal.index_offset);
    match scanner.next(disk)? {
        Some(Scanned::Record(record)) if record.header().kind == Kind::Index => {
            Ok(SegmentIndex::decode(&record.value()).map(|index| index.ending_at(seal.heads_offset)))
        }
        _ => Ok(None),
    }
}

/// The segments in the order of their records: as the manifest names them, and behind them those that are newer. One
/// without a record that is known holds no number, so it takes that of the next.
pub(super) fn ascending(
    segments: BTreeMap<SegmentId, Segment>,
    named: &[SegmentRecord],
    next_jsn: Jsn,
) -> Vec<Segment> {
    let rank: FastMap<u64, usize> = named.iter().enumerate().map(|(at, record)| (record.id, at)).collect();
    let mut segments: Vec<Segment> = segments.into_values().collect();
    segments.sort_by_key(|segment| (rank.get(&segment.id.0).copied().unwrap_or(usize::MAX), segment.id));
    let mut bound = next_jsn;
    for segment in segments.iter_mut().rev() {
        segment.first_jsn = segment.first_jsn.min(bound);
        bound = segment.first_jsn;
    }
    segments
}

/// Whether a segment's file is what a compaction's crash left: an output that does not count, or an input of one that
/// does.
fn is_left_over(state: &ManifestState, id: SegmentId) -> bool {
    let named = state.segments.iter().any(|record| record.id == id.0);
    !named && (id.is_compacted() || id.0 < state.replay_position.segment)
}

pub(super) fn to_u32(number: u64) -> Result<u32, Error> {
    u32::try_from(number).map_err(|_| Error::Malformed("segment of more than 4 GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::disk::FileId;

    #[test]
    fn segments_ascend_though_a_crash_left_one_without_a_record() {
        let segment =
            |id: u64, jsn| Segment { id: SegmentId(id), file: FileId(0), first_jsn: Jsn(jsn), index: None };
        let found = [segment(1, 5), segment(2, u64::MAX), segment(3, 9), segment(4, u64::MAX)];
        let found = found.into_iter().map(|segment| (segment.id, segment)).collect();
        let firsts: Vec<u64> =
            ascending(found, &[], Jsn(12)).iter().map(|segment| segment.first_jsn.0).collect();
        assert_eq!(firsts, [5, 9, 9, 12]);
    }

    /// A compacted segment's id says nothing of its place, and one before it without a record begins where it does.
    #[test]
    fn segments_are_in_the_order_of_the_manifest() {
        let compacted = SegmentId::compacted(9).0;
        let named = [(2, 9), (compacted, 9), (4, 12)].map(|(id, first)| SegmentRecord {
            id,
            first_jsn: Jsn(first),
            last_jsn: Jsn(0),
            len: 0,
            sealed: false,
            account: Account::default(),
        });
        let found = named.iter().map(|record| (record.id, record.first_jsn)).chain([(5, Jsn(u64::MAX))]);
        let found = found.map(|(id, first_jsn)| {
            let index = SegmentId(id).is_compacted().then(|| SegmentIndex::new(&[]));
            (SegmentId(id), Segment { id: SegmentId(id), file: FileId(0), first_jsn, index })
        });
        let order = ascending(found.collect(), &named, Jsn(20));
        let ids: Vec<u64> = order.iter().map(|segment| segment.id.0).collect();
        assert_eq!(ids, [2, compacted, 4, 5]);
    }
}
