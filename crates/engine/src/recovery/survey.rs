//! Which segments of a journal count, without a manifest that must be believed.
//!
//! A compacted segment that is sealed stands for its range of numbers: what else lies in that range are its inputs,
//! which a crash has left. One without its seal was not finished, and its inputs are there; if they are not, it was
//! whole once and is damaged, and it counts. Where a manifest names the inputs, an output that it does not name does
//! not count.
//!
//! A start replays what a manifest says, or else the newest segments: those behind the last that is sealed. All others
//! were synced: a segment is sealed when it is synced, and none ends before the one before it is.

use crate::entry::Jsn;
use crate::error::Error;
use crate::journal::scan::{Scanned, Scanner, find_seal};
use crate::journal::segment::{self, FOLDER, Position, SEGMENT_HEADER_BYTES, Seal, SegmentId};
use crate::manifest::ManifestState;
use base::Disk;
use base::checksum::crc32c;
use base::disk::{self, DiskErrorKind, DiskOp, OpenMode};
use bytes::Bytes;
use std::path::Path;

/// Heads that a job sorts at once: with what sorting them takes, some 100 MiB for each job under way.
const GROUP_BYTES: u64 = 48 << 20;

/// The file that says what the runs and notes beside it were made of.
const PLAN_FILE: &str = "PLAN";

/// A segment that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub id: SegmentId,
    pub len: u64,
    /// The first number that it stands for.
    pub first_jsn: Jsn,
    /// The number after the last for which it stands, as far as it says so itself.
    end_jsn: Option<Jsn>,
    pub seal: Option<Seal>,
    /// Records from this number on are not its own.
    pub bound: Option<Jsn>,
}

/// What there is of a journal.
pub(super) struct Survey {
    /// Segments to be gathered, in the order of their numbers, in groups.
    pub groups: Vec<Vec<Found>>,
    /// Segments that the manifest names and that are not there, with the first numbers they had.
    pub missing: Vec<(SegmentId, Jsn)>,
    /// Whether the journal was compacted since the manifest was written: then the manifest's tables are not all.
    pub is_newer: bool,
    /// Where a start is to begin to replay.
    pub replay_from: Position,
    /// The number after the last one of what is gathered.
    pub end_jsn: Jsn,
    /// A number above those of all segments.
    pub next_segment: u64,
}

impl Survey {
    /// Looks at every file of the journal in the store's folder `dir`.
    pub fn of(disk: &mut dyn Disk, dir: &Path, state: Option<&ManifestState>) -> Result<Survey, Error> {
        let folder = dir.join(FOLDER);
        let (mut found, mut next_segment) = (Vec::new(), 1);
        for name in list(disk, &folder)? {
            let Some(id) = segment::parse_file_name(&name) else { continue };
            next_segment = next_segment.max(id.number() + 1);
            found.push(look(disk, &folder, id)?);
        }
        let missing = missing(&found, state);
        let there: Vec<SegmentId> = found.iter().map(|segment| segment.id).collect();
        found.retain(|segment| counts(segment, state, &there));
        let is_named =
            |id: SegmentId| state.is_none_or(|state| state.segments.iter().any(|record| record.id == id.0));
        let is_newer = found.iter().any(|s| s.id.is_compacted() && s.seal.is_some() && !is_named(s.id));
        let found = without_inputs(found);
        let replay_from = replay_position(&found, state, next_segment);
        let (mut gathered, replayed) = part(found, replay_from);
        let ends = gathered.iter().filter_map(|segment| segment.end_jsn);
        let first_replayed =
            replayed.iter().map(|segment| segment.first_jsn).find(|jsn| *jsn < Jsn(u64::MAX));
        let known_end = state.map_or(Jsn(1), |state| state.replay_jsn);
        let end_jsn = ends.max().unwrap_or(Jsn(1)).max(known_end).max(first_replayed.unwrap_or_default());
        gathered.retain(|segment| segment.first_jsn < Jsn(u64::MAX));
        let firsts: Vec<Jsn> = gathered.iter().map(|segment| segment.first_jsn).collect();
        for (at, segment) in gathered.iter_mut().enumerate() {
            segment.bound = firsts.get(at + 1).copied().or(first_replayed);
        }
        let groups = grouped(gathered);
        Ok(Survey { groups, missing, is_newer, replay_from, end_jsn, next_segment })
    }

    /// Whether the folder's notes are of this very journal.
    pub fn is_planned(&self, disk: &mut dyn Disk, folder: &Path) -> Result<bool, Error> {
        let (file, _) = match disk::open(disk, &folder.join(PLAN_FILE), OpenMode::Read) {
            Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        let plan = self.encode();
        let there = disk::read(disk, file, 0, plan.len() + 1);
        disk::run(disk, DiskOp::Close { file })?;
        Ok(there? == plan)
    }

    /// Says what the folder's notes will be of.
    pub fn plan(&self, disk: &mut dyn Disk, folder: &Path) -> Result<(), Error> {
        Ok(disk::replace_file(disk, &folder.join(PLAN_FILE), Bytes::from(self.encode()))?)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for group in &self.groups {
            out.extend((group.len() as u64).to_le_bytes());
            for found in group {
                let bound = found.bound.unwrap_or_default().0;
                let numbers =
                    [found.id.0, found.len, found.first_jsn.0, bound, u64::from(found.seal.is_some())];
                out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            }
        }
        let crc = crc32c(&out);
        out.extend(crc.to_le_bytes());
        out
    }
}

fn list(disk: &mut dyn Disk, folder: &Path) -> Result<Vec<String>, Error> {
    match disk::list(disk, folder) {
        Err(error) if error.kind == DiskErrorKind::NotFound => Ok(Vec::new()),
        other => Ok(other?),
    }
}

fn look(disk: &mut dyn Disk, folder: &Path, id: SegmentId) -> Result<Found, Error> {
    let (file, len) = disk::open(disk, &folder.join(segment::file_name(id)), OpenMode::Read)?;
    let looked = look_into(disk, file, len, id);
    // It was only read.
    disk::run(disk, DiskOp::Close { file }).ok();
    looked
}

fn look_into(disk: &mut dyn Disk, file: disk::FileId, len: u64, id: SegmentId) -> Result<Found, Error> {
    let seal = match find_seal(disk, file, len, id) {
        Ok(seal) => seal,
        Err(Error::Disk(error)) => return Err(error.into()),
        Err(_) => None,
    };
    let header = disk::read(disk, file, 0, SEGMENT_HEADER_BYTES)?;
    let stands_for =
        segment::parse_header(&header, id).ok().filter(|_| id.is_compacted()).map(|h| h.stands_for);
    let (first_jsn, end_jsn) = match (stands_for, seal) {
        (Some((first, end)), _) => (first, Some(end)),
        (None, Some(seal)) => (seal.first_jsn, Some(seal.end_jsn)),
        (None, None) => (first_number(disk, file, len, id)?, None),
    };
    Ok(Found { id, len, first_jsn, end_jsn, seal, bound: None })
}

/// The number of the first record that can be read; the greatest of all if there is none.
fn first_number(disk: &mut dyn Disk, file: disk::FileId, len: u64, id: SegmentId) -> Result<Jsn, Error> {
    let mut scanner = Scanner::new(file, len, id, SEGMENT_HEADER_BYTES as u64);
    while let Some(scanned) = scanner.next(disk)? {
        match scanned {
            Scanned::Record(record) => return Ok(record.header().jsn),
            Scanned::Gap(fault) => {
                if let Some(remains) = fault.remains {
                    return Ok(remains.header.jsn);
                }
            }
            Scanned::Tail { .. } => break,
        }
    }
    Ok(Jsn(u64::MAX))
}

/// Segments that the manifest names and that are not there.
fn missing(found: &[Found], state: Option<&ManifestState>) -> Vec<(SegmentId, Jsn)> {
    let records = state.into_iter().flat_map(|state| &state.segments);
    let gone = records.filter(|record| found.iter().all(|segment| segment.id.0 != record.id));
    // A newer compaction may have taken its place.
    let stood_for = |jsn: Jsn| {
        found.iter().any(|segment| {
            let within = segment.first_jsn <= jsn && segment.end_jsn.is_some_and(|end| jsn < end);
            segment.id.is_compacted() && segment.seal.is_some() && within
        })
    };
    gone.filter(|record| !stood_for(record.first_jsn))
        .map(|record| (SegmentId(record.id), record.first_jsn))
        .collect()
}

/// Whether a compacted segment is more than what a crash left of a compaction: then its inputs are named, and there.
/// The first of them is the one that goes first.
fn counts(segment: &Found, state: Option<&ManifestState>, there: &[SegmentId]) -> bool {
    let named = state.into_iter().flat_map(|state| &state.segments);
    let is_input = |id: u64, first_jsn: Jsn| {
        id != segment.id.0 && first_jsn == segment.first_jsn && there.contains(&SegmentId(id))
    };
    let mut is_left_over = false;
    for record in named {
        if record.id == segment.id.0 {
            return true;
        }
        is_left_over |= is_input(record.id, record.first_jsn);
    }
    !segment.id.is_compacted() || !is_left_over
}

/// Leaves out what sealed segments that compaction wrote stand for, and those that were not finished.
fn without_inputs(mut found: Vec<Found>) -> Vec<Found> {
    let is_output = |segment: &Found| segment.id.is_compacted() && segment.seal.is_some();
    let width = |segment: &Found| segment.end_jsn.map_or(0, |end| end.0.saturating_sub(segment.first_jsn.0));
    found.sort_by_key(|segment| {
        (segment.first_jsn, !is_output(segment), u64::MAX - width(segment), segment.id)
    });
    let mut kept: Vec<Found> = Vec::with_capacity(found.len());
    let mut stood_for = Jsn(0);
    for (at, segment) in found.iter().enumerate() {
        if segment.first_jsn < stood_for {
            continue;
        }
        let is_unfinished = segment.id.is_compacted() && segment.seal.is_none();
        let input_there =
            found.iter().enumerate().any(|(other, o)| other != at && o.first_jsn == segment.first_jsn);
        if is_unfinished && input_there {
            continue;
        }
        if is_output(segment) {
            stood_for = segment.end_jsn.unwrap_or_default();
        }
        kept.push(*segment);
    }
    kept
}

/// Where the replay begins: where the manifest says, since it knows that all before was synced, or else with the first
/// segment behind the last that is sealed.
fn replay_position(found: &[Found], state: Option<&ManifestState>, next_segment: u64) -> Position {
    let native = || found.iter().filter(|segment| !segment.id.is_compacted());
    if let Some(at) = state.map(|state| state.replay_position)
        && (at.segment >= next_segment || native().any(|segment| segment.id.0 == at.segment))
    {
        return Position { segment: SegmentId(at.segment), offset: at.offset };
    }
    let last_sealed = native().filter(|segment| segment.seal.is_some()).map(|segment| segment.id).max();
    let compacted_to = found.iter().filter(|s| s.id.is_compacted()).filter_map(|s| s.end_jsn).max();
    let is_replayed = |segment: &&Found| {
        last_sealed.is_none_or(|last| segment.id > last)
            && compacted_to.is_none_or(|end| segment.first_jsn >= end)
    };
    match native().filter(is_replayed).map(|segment| segment.id).min() {
        Some(segment) => Position { segment, offset: SEGMENT_HEADER_BYTES as u64 },
        None => Position { segment: SegmentId(next_segment), offset: 0 },
    }
}

/// What is to be gathered, in the order of numbers, and what is replayed. Of the segment in which the replay begins
/// what is before is gathered, too.
fn part(found: Vec<Found>, replay_from: Position) -> (Vec<Found>, Vec<Found>) {
    let (mut gathered, mut replayed) = (Vec::new(), Vec::new());
    for segment in found {
        if segment.id.is_compacted() || segment.id < replay_from.segment {
            gathered.push(segment);
            continue;
        }
        let is_first = segment.id == replay_from.segment;
        if is_first && replay_from.offset > SEGMENT_HEADER_BYTES as u64 {
            let len = replay_from.offset.min(segment.len);
            gathered.push(Found { len, seal: None, end_jsn: None, ..segment });
        } else {
            replayed.push(segment);
        }
    }
    replayed.sort_by_key(|segment| segment.id);
    (gathered, replayed)
}

fn grouped(segments: Vec<Found>) -> Vec<Vec<Found>> {
    let mut groups: Vec<Vec<Found>> = Vec::new();
    let mut room = 0u64;
    for segment in segments {
        let bytes = segment.seal.map_or(segment.len, |seal| segment.len.saturating_sub(seal.heads_offset));
        match groups.last_mut().filter(|_| bytes <= room) {
            Some(group) => group.push(segment),
            None => {
                groups.push(vec![segment]);
                room = GROUP_BYTES;
            }
        }
        room = room.saturating_sub(bytes);
    }
    groups
}
