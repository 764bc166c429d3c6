//! What opening builds up: the tables that the manifest names, and what the journal has beyond them.

use super::segments::{ascending, to_u32};
use super::{
    Frozen, JOURNAL_DIR, LEDGER_LOST, MEMTABLES_FROZEN_MAX, OpenReport, Options, Segment, Segments,
    TABLES_DIR, open_table,
};
use crate::compaction::{Account, Accounts};
use crate::drops::{DroppedRanges, RangeDrop};
use crate::entry::{Entry, Jsn, Location, Seq};
use crate::error::{Damage, Error};
use crate::journal::fault::Fault;
use crate::journal::record::{FLAG_INLINE, Header, Kind, padded_len};
use crate::journal::replay::{End, RECORDS_MISSING, Replay, Replayed, Source};
use crate::journal::scan::ScannedRecord;
use crate::journal::segment::{self, Position, SEGMENT_HEADER_BYTES, SegmentId};
use crate::lost::{LostRange, LostRanges};
use crate::manifest::{JournalPosition, LEVELS, ManifestState, SegmentRecord, Version};
use crate::memtable::Memtable;
use crate::merge::{MemtableSource, MergeJob, MergeRequest};
use crate::store::proposals::Groups;
use crate::table::Table;
use base::disk::{self, DiskOp};
use base::spawn::Outcome;
use base::{Disk, Job, Progress};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What a start has built up so far.
pub(super) struct Recovery<'a> {
    pub(super) disk: &'a mut dyn Disk,
    pub(super) dir: &'a Path,
    pub(super) options: &'a Options,
    pub(super) next_table: Arc<AtomicU64>,
    pub(super) memtable: Memtable,
    /// Full ones, oldest first: they are flushed once the store is open.
    pub(super) frozen: VecDeque<Frozen>,
    /// Where the last record ends that was replayed.
    replayed_to: Position,
    pub(super) version: Version,
    pub(super) segments: BTreeMap<SegmentId, Segment>,
    /// The segments that the manifest names, in their order.
    pub(super) named: &'a [SegmentRecord],
    pub(super) accounts: Accounts,
    pub(super) replay_account: Account,
    /// A number above those of all segments whose files were found.
    pub(super) next_segment: u64,
    /// The numbers of the last record replayed.
    passed: (Jsn, Seq),
    pub(super) next_jsn: Jsn,
    pub(super) next_seq: Seq,
    /// Where the records begin that only the memtable has.
    pub(super) replay_from: (Position, Jsn),
    pub(super) lost: Arc<LostRanges>,
    pub(super) drops: Arc<DroppedRanges>,
    pub(super) groups: Groups,
    /// The oldest entry of a group's log that was not applied where the records begin that only the memtable has.
    pub(super) oldest_entry: Option<(JournalPosition, Jsn)>,
    /// The segments that were written before that, and the one that it is in.
    pub(super) before: Vec<Source>,
    pub(super) report: OpenReport,
}

impl<'a> Recovery<'a> {
    /// Opens the tables that the manifest names.
    pub(super) fn begin(
        disk: &'a mut dyn Disk,
        dir: &'a Path,
        options: &'a Options,
        state: &'a ManifestState,
    ) -> Result<Recovery<'a>, Error> {
        let tables = dir.join(TABLES_DIR);
        let mut levels: [Vec<Arc<Table>>; LEVELS] = Default::default();
        let (mut named, mut lost) = (Vec::new(), Vec::new());
        for (level, record) in
            (0..).zip(&state.levels).flat_map(|(at, level)| level.iter().map(move |t| (at, t)))
        {
            named.push(record.id.file_name());
            match open_table(disk, &tables, record)? {
                Ok(table) => levels[level].push(Arc::new(table)),
                Err(damage) => lost.push(record.lost(damage)),
            }
        }
        if !lost.is_empty() && lost.len() == named.len() {
            return Err(Damage { file: TABLES_DIR.to_owned(), offset: 0, what: LEDGER_LOST }.into());
        }
        let damage = lost.iter().map(|lost: &LostRange| lost.damage.clone()).collect();
        for stray in disk::list(disk, &tables)?.into_iter().filter(|name| !named.contains(name)) {
            disk::run(disk, DiskOp::Remove { path: tables.join(stray) })?;
        }
        let at = Position {
            segment: SegmentId(state.replay_position.segment),
            offset: state.replay_position.offset,
        };
        Ok(Recovery {
            disk,
            dir,
            options,
            next_table: Arc::new(AtomicU64::new(state.next_table_id.0)),
            memtable: Memtable::new(options.memtable_bytes_max),
            frozen: VecDeque::new(),
            replayed_to: at,
            version: Version::new(levels),
            segments: BTreeMap::new(),
            named: &state.segments,
            accounts: Accounts::default(),
            replay_account: account_at(state),
            next_segment: 0,
            passed: (Jsn(0), Seq(0)),
            next_jsn: Jsn(state.last_jsn.0 + 1),
            next_seq: Seq(state.last_seq.0 + 1),
            replay_from: (at, state.replay_jsn),
            lost: LostRanges::new(state.lost.iter().cloned().chain(lost)),
            drops: DroppedRanges::with_index(state.drops.clone(), options.indexing),
            groups: Groups::new(options.groups, state.groups.as_ref())?,
            oldest_entry: state.groups.and_then(|groups| groups.oldest),
            before: Vec::new(),
            report: OpenReport { damage, ..OpenReport::default() },
        })
    }

    /// Opens every segment and replays those that may hold what no table has.
    pub(super) fn replay(&mut self, state: &ManifestState) -> Result<(), Error> {
        let sources = self.open_segments(state)?;
        self.find_groups(state)?;
        let known_end = state.clean.map_or(state.replay_position, |clean| clean.journal_end);
        let floor = Position { segment: SegmentId(known_end.segment), offset: known_end.offset };
        let replayed: Vec<_> = sources.iter().map(|source| source.segment).collect();
        let mut replay = Replay::open(self.disk, &sources, floor, Some(state.replay_jsn))?;
        replay.note_proposed(self.groups.stash.len() as u64);
        let mut ends = Vec::new();
        let mut expected = Some(state.replay_jsn);
        while let Some(found) = replay.next(self.disk)? {
            match found {
                Replayed::Record(record) => {
                    let jsn = record.header().jsn;
                    self.note_gap(state, expected, &record);
                    expected = Some(Jsn(jsn.0 + 1));
                    self.note_first(record.segment, jsn);
                    self.apply(&record)?;
                }
                Replayed::Damage(fault) => {
                    expected = None;
                    self.damage(&fault, replay.next_seq())?;
                }
                Replayed::End(end) => ends.push(end),
            }
        }
        // Numbers that lost records may have had are not given again, or the next start would miss nothing.
        self.next_jsn = self.next_jsn.max(replay.next_jsn().unwrap_or_default());
        self.next_seq = self.next_seq.max(replay.next_seq().unwrap_or_default());
        self.groups.found = self.groups.stash.settle();
        self.groups.enter_states_if_alone(&mut self.memtable);
        self.cut(&ends, &sources)?;
        // A record that was read from the page cache may not be on the disk; from now on it is shown to readers.
        for segment in replayed.iter().filter_map(|id| self.segments.get(id)) {
            disk::run(self.disk, DiskOp::Sync { file: segment.file })?;
        }
        Ok(())
    }

    /// A start may leave numbers out, those of records that a crash took; but the manifest knew them. If it did not, it
    /// is older than segments that compaction has let go of as a whole.
    fn note_gap(&mut self, state: &ManifestState, expected: Option<Jsn>, record: &ScannedRecord) {
        let Header { jsn, seq, .. } = *record.header();
        if expected.is_some_and(|expected| jsn > expected) && jsn.0 - 1 > state.last_jsn.0 {
            let file = segment::path_in_store(record.segment);
            let damage = Damage { file, offset: record.offset, what: RECORDS_MISSING };
            self.report.damage.push(damage.clone());
            self.lost = self.lost.with([LostRange::everything(seq, damage)]);
            if self.groups.is_used {
                self.lose_unknown(Some(jsn));
            }
        }
    }

    fn note_first(&mut self, id: SegmentId, jsn: Jsn) {
        let segment = self.segments.get_mut(&id).expect("every source is listed");
        segment.first_jsn = segment.first_jsn.min(jsn);
    }

    fn apply(&mut self, scanned: &ScannedRecord) -> Result<(), Error> {
        if self.memtable.bytes() >= self.options.memtable_bytes_max {
            self.freeze()?;
        }
        let record = scanned.record();
        let (offset, len) = (to_u32(scanned.offset)?, to_u32(scanned.len() as u64)?);
        let (location, inline): (_, &[u8]) = match record.kind {
            Kind::Data if record.flags & FLAG_INLINE != 0 => (Location::Inline, record.value),
            Kind::Data => (Location::Journal { offset, len }, &[]),
            Kind::Delete => (Location::Deleted, &[]),
            Kind::RangeDrop => {
                self.drop_range(record.key, record.head, scanned.header());
                return Ok(());
            }
            Kind::Proposed => return self.propose(scanned),
            Kind::CommitMark => return self.apply_mark(scanned),
            // No writer of this version makes the other kinds.
            _ => return Err(Error::Malformed("record kind in the journal")),
        };
        match self.group_of(record.key) {
            Some(group) if location == Location::Inline => self.apply_state(group, &record)?,
            group => {
                if let Some(group) = group {
                    self.groups.stash.remove(group);
                }
                let (jsn, head, expires_ms) = (record.jsn, record.head, record.expires_ms);
                self.enter(record.key, record.seq, Entry { jsn, location, head, inline, expires_ms });
            }
        }
        self.count_replayed(scanned, location)
    }

    /// Counts a record that was replayed, and is `location` to the ledger.
    pub(super) fn count_replayed(
        &mut self,
        scanned: &ScannedRecord,
        location: Location,
    ) -> Result<(), Error> {
        self.accounts.begin(scanned.segment);
        self.accounts.count(location, to_u32(scanned.len() as u64)?);
        self.pass(scanned.header());
        self.report.replayed += 1;
        let offset = scanned.offset + padded_len(scanned.len()) as u64;
        self.replayed_to = Position { segment: scanned.segment, offset };
        Ok(())
    }

    pub(super) fn enter(&mut self, key: &[u8], seq: Seq, entry: Entry<'_>) {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        self.memtable.insert(key, seq.0, &[&bytes]);
    }

    // One that the manifest names already is older than what it names last.
    fn drop_range(&mut self, start: &[u8], end: &[u8], header: &Header) {
        let seq = header.seq;
        if seq > self.drops.last_seq() {
            let (start, end) = (Bytes::copy_from_slice(start), Bytes::copy_from_slice(end));
            self.drops = self.drops.with(RangeDrop { start, end, seq });
        }
        self.pass(header);
        self.report.replayed += 1;
    }

    /// Numbers up to these are taken.
    fn pass(&mut self, header: &Header) {
        let next_seq = header.kind.seq_after(header.seq).unwrap_or(header.seq);
        self.passed = (header.jsn, Seq(next_seq.0.saturating_sub(1)));
        self.next_jsn = self.next_jsn.max(Jsn(header.jsn.0 + 1));
        self.next_seq = self.next_seq.max(next_seq);
    }

    /// A lost value leaves its key and head; where the key is lost, whatever it might be is suspect. `next_seq`
    /// is above every version that may have been there.
    fn damage(&mut self, fault: &Fault, next_seq: Option<Seq>) -> Result<(), Error> {
        self.report.damage.push(fault.damage());
        if let Some(remains) = &fault.remains
            && matches!(remains.header.kind, Kind::Data | Kind::Delete)
        {
            self.note_first(fault.segment, remains.header.jsn);
            let location = match remains.header.kind {
                Kind::Delete => Location::Deleted,
                _ => Location::Journal {
                    offset: to_u32(fault.from)?,
                    len: to_u32(remains.header.record_len() as u64)?,
                },
            };
            self.accounts.begin(fault.segment);
            self.accounts.count(location, to_u32(remains.header.record_len() as u64)?);
            let (expires_ms, head) = remains.header.split_expiry(&remains.head);
            let entry = Entry { jsn: remains.header.jsn, location, head, inline: &[], expires_ms };
            self.enter(&remains.key, remains.header.seq, entry);
            self.pass(&remains.header);
            if self.group_of(&remains.key).is_some() {
                self.groups.note_lost(Jsn(remains.header.jsn.0 + 1));
            }
        } else if fault.is_of_groups() {
            if let Some(remains) = &fault.remains {
                self.note_first(fault.segment, remains.header.jsn);
                self.pass(&remains.header);
            }
            self.lose_of_groups(fault);
        } else if let Some(remains) = fault.remains.as_ref().filter(|r| r.header.kind == Kind::RangeDrop) {
            self.drop_range(&remains.key, &remains.head, &remains.header);
        } else if fault.may_have_lost_a_key() {
            let below = fault.lost.to_seq.or(next_seq).unwrap_or(self.next_seq);
            self.lost = self.lost.with([LostRange::everything(below, fault.damage())]);
            if self.groups.is_used {
                self.lose_unknown(fault.lost.to_jsn);
            }
        }
        Ok(())
    }

    /// Puts the full memtable aside, as a running store does.
    fn freeze(&mut self) -> Result<(), Error> {
        if self.frozen.len() >= MEMTABLES_FROZEN_MAX {
            self.flush()?;
        }
        self.groups.enter_states(&mut self.memtable);
        self.memtable.link();
        let full = std::mem::replace(&mut self.memtable, Memtable::new(self.options.memtable_bytes_max));
        // Not the numbers that are free, which the manifest may know beyond what was replayed so far: a checkpoint is
        // known by them, and two memtables would have the same.
        let (last_jsn, last_seq) = self.passed;
        let end_jsn = Jsn(last_jsn.0 + 1);
        assert!(
            self.frozen.back().is_none_or(|older| older.end_jsn < end_jsn),
            "memtables end one after the other"
        );
        self.frozen.push_back(Frozen {
            reader: full.reader(),
            last_seq,
            end: self.replayed_to,
            end_jsn,
            end_account: self.accounts.of(self.replayed_to.segment),
            oldest_entry: self.groups.oldest(),
            dead_entries: self.groups.stash.take_dead(),
        });
        Ok(())
    }

    /// Writes the oldest full memtable to a table of level 0: what is replayed need not fit into memory.
    fn flush(&mut self) -> Result<(), Error> {
        let full = self.frozen.pop_front().expect("the caller has looked");
        let outcome = Outcome::new();
        let request = MergeRequest {
            dir: self.dir.join(TABLES_DIR),
            next_table_id: Arc::clone(&self.next_table),
            output_level: 0,
            table_bytes_target: u64::MAX,
            drop_deletions: false,
            dropped: DroppedRanges::none(),
            lost: Arc::default(),
            now_ms: 0,
        };
        let source = MemtableSource::new(&full.reader, Seq(u64::MAX));
        let mut job = MergeJob::new(vec![source.into()], request, outcome.clone());
        while job.slice(self.disk) == Progress::More {}
        let output = outcome.take().expect("a job that is done has its outcome")?;
        let added: Vec<_> = output.tables.into_iter().map(|table| (0, table)).collect();
        self.version = self.version.apply(&added, &[]);
        let mut segments = Segments::default();
        for segment in ascending(self.segments.clone(), self.named, self.next_jsn) {
            segments.push(segment);
        }
        self.accounts.bury(&segments, &output.dead);
        self.accounts.bury(&segments, &full.dead_entries);
        self.oldest_entry = full.oldest_entry;
        self.replay_from = (full.end, full.end_jsn);
        self.replay_account = full.end_account;
        Ok(())
    }

    /// Cuts torn tails and room ahead of records, newest segment first, and removes segments that hold no record.
    fn cut(&mut self, ends: &[End], sources: &[Source]) -> Result<(), Error> {
        let journal = self.dir.join(JOURNAL_DIR);
        for end in ends.iter().rev() {
            if let Some(fault) = &end.cut {
                self.report.torn.push(fault.damage());
                if base::planted!(TornTailKept) {
                    continue;
                }
            }
            let segment = self.segments[&end.segment].clone();
            if end.end <= SEGMENT_HEADER_BYTES as u64 && segment.first_jsn == Jsn(u64::MAX) {
                self.segments.remove(&end.segment);
                disk::run(self.disk, DiskOp::Close { file: segment.file })?;
                disk::run(self.disk, DiskOp::Remove { path: journal.join(segment::file_name(end.segment)) })?;
                disk::run(self.disk, DiskOp::SyncDir { path: journal.clone() })?;
            } else if end.cut.is_some() || has_room(end, sources) {
                disk::run(self.disk, DiskOp::Truncate { file: segment.file, len: end.end })?;
                disk::run(self.disk, DiskOp::Sync { file: segment.file })?;
            }
        }
        Ok(())
    }
}

/// Whether there is room behind the records that a segment ends with.
fn has_room(end: &End, sources: &[Source]) -> bool {
    sources.iter().any(|source| source.segment == end.segment && source.len > end.end)
}

/// What the manifest says of the segment at which replay begins.
fn account_at(state: &ManifestState) -> Account {
    let at = state.replay_position.segment;
    state
        .segments
        .iter()
        .find(|record| record.id == at)
        .map_or_else(Account::default, |record| record.account)
}
