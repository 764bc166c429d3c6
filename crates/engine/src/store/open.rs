//! Opening a store: after a clean stop, after a crash, after damage.
//!
//! 1. Lock the folder.
//! 2. Read the manifest; without one the folder must be empty, and a new store begins.
//! 3. Open its tables; remove those that it does not name.
//! 4. Replay the journal from where the tables end, cut what is torn, and sync the rest: what is shown to a
//!    reader now must not be lost by the next crash.
//! 5. Begin a new segment: what a crash left is never written again.
//! 6. Write the manifest, with a new lease.
//!
//! Damage does not keep a store from opening. In the journal: later records are applied, a damaged value answers an
//! error, and where a key was lost everything that it might have been answers that error. A table that is lost leaves
//! its range of keys as one of which versions are lost ([`crate::lost`]); a segment that is lost leaves its values.
//! A manifest that is lost has a copy. What does: the manifest and its copy, or all tables; the journal's end. Then the
//! ledger can be made again from the journal ([`crate::recovery`]).

use super::maintenance::{LEASE_COUNTERS, Maintenance, ScrubState, position};
use super::room::Room;
use super::segments::{Segment, Segments};
use super::stats::GroupTimes;
use super::{BlockCache, JOURNAL_TOKEN, Options, Store, StoreCounters, Times};
use crate::compaction::{Account, Accounts};
use crate::compression::Compressor;
use crate::drops::{DroppedRanges, RangeDrop};
use crate::entry::{Entry, Jsn, Location, Seq};
use crate::error::{Damage, Error};
use crate::journal::index::SegmentIndex;
use crate::journal::prepare::PrepareSegment;
use crate::journal::record::{FLAG_INLINE, Header, Kind};
use crate::journal::scan::{
    End, Fault, RECORDS_MISSING, Replay, Replayed, Scanned, ScannedRecord, Scanner, Source, find_seal,
};
use crate::journal::segment::{self, Position, SEGMENT_HEADER_BYTES, SegmentId};
use crate::journal::writer::Writer;
use crate::lost::{LostRange, LostRanges};
use crate::manifest::{
    self, FoundManifest, LEVELS, MANIFEST_FILE, ManifestState, SegmentRecord, TableRecord, Version,
};
use crate::memtable::Memtable;
use crate::merge::{MemtableSource, MergeJob, MergeRequest};
use crate::read::Publisher;
use crate::recovery;
use crate::table::{Table, TableId};
use base::disk::{self, DiskErrorKind, DiskOp, OpenMode};
use base::spawn::Outcome;
use base::{Clock, Disk, FastMap, Job, Progress, Rng, Spawn};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The folder of segments in a store's folder.
pub(super) const JOURNAL_DIR: &str = segment::FOLDER;
/// The folder of tables in a store's folder.
pub(crate) const TABLES_DIR: &str = "tables";
/// The file that says that the journal has every value that tables have. Compaction removes it before it first lets go of
/// the record of an inline value.
pub(crate) const WHOLE_FILE: &str = "JOURNAL-IS-WHOLE";
/// The file that is locked while a store is open.
pub(crate) const LOCK_FILE: &str = "LOCK";

/// Where not one of a ledger's tables is left, the folder is more likely to be the wrong one than the disk to be so bad.
const LEDGER_LOST: &str = "none of the ledger's tables can be read; it can be made again from the journal";

/// The journal was compacted since the manifest was written, and what the manifest names is gone.
const OLDER_MANIFEST: &str = "it is older than the journal; the ledger can be made again from the journal";

/// What a store runs on.
pub struct Platform {
    /// The owner's handle, on which nothing blocks.
    pub disk: Box<dyn Disk>,
    /// A handle of the same disk whose operations complete at once; used while opening.
    pub startup: Box<dyn Disk>,
    /// Where jobs go. Their handles are of the same disk.
    pub spawn: Arc<dyn Spawn>,
    /// Randomness for the incarnation of a new store.
    pub rng: Box<dyn Rng>,
    /// The time: by its wall clock versions expire.
    pub clock: Arc<dyn Clock>,
}

/// What opening found, for the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// There was no store in the folder; there is now.
    pub created: bool,
    /// The last stop was clean.
    pub clean: bool,
    /// Records replayed from the journal.
    pub replayed: u64,
    /// Torn tails that were cut off: expected after a crash, and never acknowledged at `sync`.
    pub torn: Vec<Damage>,
    /// Damage: what these bytes held can not be read here.
    pub damage: Vec<Damage>,
}

/// What replay builds up.
struct Recovery<'a> {
    disk: &'a mut dyn Disk,
    dir: &'a Path,
    options: &'a Options,
    next_table: Arc<AtomicU64>,
    memtable: Memtable,
    version: Version,
    segments: BTreeMap<SegmentId, Segment>,
    /// The segments that the manifest names, in their order.
    named: &'a [SegmentRecord],
    accounts: Accounts,
    replay_account: Account,
    /// A number above those of all segments whose files were found.
    next_segment: u64,
    next_jsn: Jsn,
    next_seq: Seq,
    /// Where the records begin that only the memtable has.
    replay_from: (Position, Jsn),
    lost: Arc<LostRanges>,
    drops: Arc<DroppedRanges>,
    report: OpenReport,
}

impl Store {
    /// Opens the store in `dir`, or makes one. Blocks until it can serve.
    pub fn open(dir: &Path, options: Options, platform: Platform) -> Result<(Store, OpenReport), Error> {
        if options.compression.is_some_and(|codec| !codec.is_built()) {
            return Err(Error::Refused("compression with zstd, which this build leaves out"));
        }
        let Platform { disk, mut startup, spawn, mut rng, clock } = platform;
        prepare_folder(&mut *startup, dir)?;
        if options.rebuild_lost_ledger && is_ledger_lost(&mut *startup, dir)? {
            rebuild_ledger(&mut *startup, dir, &options, &mut *rng)?;
        }
        let found = manifest::find(&mut *startup, dir)?;
        let created = found.is_none();
        let FoundManifest { state, damage } = match found {
            Some(found) => found,
            None => {
                let state = new_store(&mut *startup, dir, &options, &mut *rng)?;
                FoundManifest { state, damage: None }
            }
        };
        let clean = state.clean.is_some();
        let mut recovery = Recovery::begin(&mut *startup, dir, &options, &state)?;
        (recovery.report.created, recovery.report.clean) = (created, clean);
        recovery.report.damage.extend(damage);
        recovery.replay(&state)?;
        let id = SegmentId(state.next_segment_id.max(recovery.next_segment));
        let journal = dir.join(JOURNAL_DIR);
        let ready =
            PrepareSegment::new(&journal, id, state.incarnation, Outcome::new()).run(recovery.disk)?;
        let Recovery {
            memtable,
            version,
            segments,
            next_jsn,
            next_seq,
            replay_from,
            lost,
            drops,
            report,
            next_table,
            mut accounts,
            replay_account,
            ..
        } = recovery;
        let mut known = Segments::default();
        ascending(segments, &state.segments, next_jsn).into_iter().for_each(|segment| known.push(segment));
        known.push(Segment { id, file: ready.file, first_jsn: next_jsn, index: None });
        accounts.begin(id);
        let next_counter = first_counter(&state);
        let maintenance = Maintenance::new(id.0 + 1, next_table);
        let writer = Writer::new(
            JOURNAL_TOKEN,
            options.durability,
            options.segment_bytes_target,
            ready,
            next_jsn,
            next_seq,
        );
        let compressor = Compressor::new(&options);
        // A disk that cannot tell is taken for one with room.
        let room = Room::new(disk::space(&mut *startup, dir).ok(), clock.now());
        let mut store = Store {
            dir: dir.to_path_buf(),
            cache: BlockCache::new(options.block_cache_bytes),
            options,
            disk,
            spawn,
            last_sync_at: clock.now(),
            turned_at: clock.now(),
            clock,
            writer,
            segments: Arc::new(known),
            accounts,
            replay_account,
            memtable,
            frozen: VecDeque::new(),
            version: Arc::new(version),
            drops,
            flushed: Seq(0),
            manifest: state,
            parked: FastMap::default(),
            scans: Vec::new(),
            folds: Vec::new(),
            publisher: Publisher::default(),
            maintenance,
            lost,
            last_id: 0,
            next_counter,
            group_began: None,
            counters: StoreCounters::default(),
            group_times: GroupTimes::default(),
            room,
            read_times: Times::default(),
            completions: Vec::new(),
            scratch_prefix: Vec::new(),
            scratch_inline: Vec::new(),
            compressor,
        };
        let next_table = store.maintenance.next_table.load(std::sync::atomic::Ordering::Relaxed);
        store.maintenance.scrub = ScrubState::open(&mut *startup, dir, store.now_ms(), next_table);
        let mut state = store.manifest.clone();
        state.clean = None;
        state.dot_lease_end = next_counter + LEASE_COUNTERS;
        (state.replay_position, state.replay_jsn) = (position(replay_from.0), replay_from.1);
        store.describe(&mut state, &Arc::clone(&store.version), &Arc::clone(&store.segments));
        manifest::write(&mut *startup, dir, &state)?;
        store.manifest = state;
        Ok((store, report))
    }
}

impl<'a> Recovery<'a> {
    /// Opens the tables that the manifest names.
    fn begin(
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
            version: Version::new(levels),
            segments: BTreeMap::new(),
            named: &state.segments,
            accounts: Accounts::default(),
            replay_account: account_at(state),
            next_segment: 0,
            next_jsn: Jsn(state.last_jsn.0 + 1),
            next_seq: Seq(state.last_seq.0 + 1),
            replay_from: (at, state.replay_jsn),
            lost: LostRanges::new(state.lost.iter().cloned().chain(lost)),
            drops: DroppedRanges::new(state.drops.clone()),
            report: OpenReport { damage, ..OpenReport::default() },
        })
    }

    /// Opens every segment and replays those that may hold what no table has.
    fn replay(&mut self, state: &ManifestState) -> Result<(), Error> {
        let sources = self.open_segments(state)?;
        let known_end = state.clean.map_or(state.replay_position, |clean| clean.journal_end);
        let floor = Position { segment: SegmentId(known_end.segment), offset: known_end.offset };
        let replayed: Vec<_> = sources.iter().map(|source| source.segment).collect();
        let mut replay = Replay::open(self.disk, &sources, floor)?;
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
        self.cut(&ends)?;
        // A record that was read from the page cache may not be on the disk; from now on it is shown to readers.
        for segment in replayed.iter().filter_map(|id| self.segments.get(id)) {
            disk::run(self.disk, DiskOp::Sync { file: segment.file })?;
        }
        Ok(())
    }

    /// A start may leave numbers out, those of records that a crash took; but the manifest knew them. If it did not, it is
    /// older than segments that compaction has let go of as a whole.
    fn note_gap(&mut self, state: &ManifestState, expected: Option<Jsn>, record: &ScannedRecord) {
        let Header { jsn, seq, .. } = *record.header();
        if expected.is_some_and(|expected| jsn > expected) && jsn.0 - 1 > state.last_jsn.0 {
            let file = segment::path_in_store(record.segment);
            let damage = Damage { file, offset: record.offset, what: RECORDS_MISSING };
            self.report.damage.push(damage.clone());
            self.lost = self.lost.with([LostRange::everything(seq, damage)]);
        }
    }

    /// Opens the segments that the manifest names and those that are newer, and removes the others: inputs of a
    /// compaction that counts, and outputs of one that does not.
    fn open_segments(&mut self, state: &ManifestState) -> Result<Vec<Source>, Error> {
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
        found.retain(|source| !source.segment.is_compacted() && source.segment.0 >= at.segment);
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

    /// Nothing is removed by a manifest that is older than the journal: one that was restored, say. What a crash leaves of
    /// compactions may go: either all that it stands for, or what stands for it now, is named and there; or the manifest
    /// knew those records, and that nothing is left of them.
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

    fn note_first(&mut self, id: SegmentId, jsn: Jsn) {
        let segment = self.segments.get_mut(&id).expect("every source is listed");
        segment.first_jsn = segment.first_jsn.min(jsn);
    }

    fn apply(&mut self, scanned: &ScannedRecord) -> Result<(), Error> {
        let record = scanned.record();
        let (offset, len) = (to_u32(scanned.offset)?, to_u32(scanned.len() as u64)?);
        let (location, inline): (_, &[u8]) = match record.kind {
            Kind::Data if record.flags & FLAG_INLINE != 0 => (Location::Inline, record.value),
            Kind::Data => (Location::Journal { offset, len }, &[]),
            Kind::Delete => (Location::Deleted, &[]),
            Kind::RangeDrop => {
                self.drop_range(record.key, record.head, record.seq, record.jsn);
                return Ok(());
            }
            // No writer of this version makes the other kinds.
            _ => return Err(Error::Malformed("record kind in the journal")),
        };
        let (jsn, head, expires_ms) = (record.jsn, record.head, record.expires_ms);
        let entry = Entry { jsn, location, head, inline, expires_ms };
        self.accounts.begin(scanned.segment);
        self.accounts.count(location, len);
        self.enter(record.key, record.seq, entry);
        self.report.replayed += 1;
        if self.memtable.bytes() >= self.options.memtable_bytes_max {
            let end = Position { segment: scanned.segment, offset: scanned.offset + padded(scanned.len()) };
            self.flush(end)?;
        }
        Ok(())
    }

    fn enter(&mut self, key: &[u8], seq: Seq, entry: Entry<'_>) {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        self.memtable.insert(key, seq.0, &[&bytes]);
        self.pass(entry.jsn, seq);
    }

    // One that the manifest names already is older than what it names last.
    fn drop_range(&mut self, start: &[u8], end: &[u8], seq: Seq, jsn: Jsn) {
        if seq > self.drops.last_seq() {
            let (start, end) = (Bytes::copy_from_slice(start), Bytes::copy_from_slice(end));
            self.drops = self.drops.with(RangeDrop { start, end, seq });
        }
        self.pass(jsn, seq);
        self.report.replayed += 1;
    }

    /// Numbers up to these are taken.
    fn pass(&mut self, jsn: Jsn, seq: Seq) {
        self.next_jsn = self.next_jsn.max(Jsn(jsn.0 + 1));
        self.next_seq = self.next_seq.max(Seq(seq.0 + 1));
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
        } else if let Some(remains) = fault.remains.as_ref().filter(|r| r.header.kind == Kind::RangeDrop) {
            self.drop_range(&remains.key, &remains.head, remains.header.seq, remains.header.jsn);
        } else if fault.may_have_lost_a_key() {
            let below = fault.lost.to_seq.or(next_seq).unwrap_or(self.next_seq);
            self.lost = self.lost.with([LostRange::everything(below, fault.damage())]);
        }
        Ok(())
    }

    /// Writes the memtable to a table of level 0: what is replayed need not fit into memory.
    fn flush(&mut self, end: Position) -> Result<(), Error> {
        let full = std::mem::replace(&mut self.memtable, Memtable::new(self.options.memtable_bytes_max));
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
        let source = Box::new(MemtableSource::new(&full.reader(), Seq(u64::MAX)));
        let mut job = MergeJob::new(vec![source], request, outcome.clone());
        while job.slice(self.disk) == Progress::More {}
        let output = outcome.take().expect("a job that is done has its outcome")?;
        let added: Vec<_> = output.tables.into_iter().map(|table| (0, table)).collect();
        self.version = self.version.apply(&added, &[]);
        let mut segments = Segments::default();
        for segment in ascending(self.segments.clone(), self.named, self.next_jsn) {
            segments.push(segment);
        }
        self.accounts.bury(&segments, &output.dead);
        self.replay_from = (end, self.next_jsn);
        self.replay_account = self.accounts.of(end.segment);
        Ok(())
    }

    /// Cuts torn tails, newest segment first, and removes segments that hold no record.
    fn cut(&mut self, ends: &[End]) -> Result<(), Error> {
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
            } else if end.cut.is_some() {
                disk::run(self.disk, DiskOp::Truncate { file: segment.file, len: end.end })?;
                disk::run(self.disk, DiskOp::Sync { file: segment.file })?;
            }
        }
        Ok(())
    }
}

fn prepare_folder(disk: &mut dyn Disk, dir: &Path) -> Result<(), Error> {
    disk::run(disk, DiskOp::CreateDir { path: dir.to_path_buf() })?;
    disk::run(disk, DiskOp::Lock { path: dir.join(LOCK_FILE) })?;
    for folder in [JOURNAL_DIR, TABLES_DIR] {
        disk::run(disk, DiskOp::CreateDir { path: dir.join(folder) })?;
    }
    disk::run(disk, DiskOp::SyncDir { path: dir.to_path_buf() })?;
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        disk::run(disk, DiskOp::SyncDir { path: parent.to_path_buf() })?;
    }
    Ok(())
}

// The manifest is the first file that a store has, so files without one are those of a store that lost it.
fn new_store(
    disk: &mut dyn Disk,
    dir: &Path,
    options: &Options,
    rng: &mut dyn Rng,
) -> Result<ManifestState, Error> {
    for folder in [JOURNAL_DIR, TABLES_DIR] {
        if !disk::list(disk, &dir.join(folder))?.is_empty() {
            let what = format!("missing, though {folder} holds files: this store has lost its manifest");
            return Err(Error::Format { file: MANIFEST_FILE.to_owned(), what });
        }
    }
    let whole = Bytes::from_static(b"No value is in tables alone.\n");
    disk::replace_file(disk, &dir.join(WHOLE_FILE), whole)?;
    let state = ManifestState {
        incarnation: rng.next_u64().max(1),
        dot_lease_end: 1,
        next_table_id: TableId(1),
        next_segment_id: 1,
        replay_jsn: Jsn(1),
        metadata: options.metadata.clone(),
        ..ManifestState::default()
    };
    manifest::write(disk, dir, &state)?;
    Ok(state)
}

/// Whether there is no manifest that can be read though there are files, or none of the tables that it names.
fn is_ledger_lost(disk: &mut dyn Disk, dir: &Path) -> Result<bool, Error> {
    let state = match manifest::find(disk, dir) {
        Ok(Some(found)) => found.state,
        Ok(None) => {
            let files = [JOURNAL_DIR, TABLES_DIR].map(|folder| disk::list(disk, &dir.join(folder)));
            return Ok(files.into_iter().any(|names| names.is_ok_and(|names| !names.is_empty())));
        }
        Err(Error::Damaged(_)) => return Ok(true),
        Err(other) => return Err(other),
    };
    for record in state.levels.iter().flatten() {
        if let Ok(table) = open_table(disk, &dir.join(TABLES_DIR), record)? {
            disk::run(disk, table.close_op())?;
            return Ok(false);
        }
    }
    Ok(state.levels.iter().flatten().next().is_some())
}

fn rebuild_ledger(
    disk: &mut dyn Disk,
    dir: &Path,
    options: &Options,
    rng: &mut dyn Rng,
) -> Result<(), Error> {
    // Shards are opened in parallel, each on its thread; here one job after another will do.
    recovery::rebuild(disk, dir, options, rng, &mut recovery::in_turn, &Arc::default())?;
    Ok(())
}

fn first_counter(state: &ManifestState) -> u64 {
    if base::planted!(DotReused) {
        return state.dot_lease_end.saturating_sub(LEASE_COUNTERS).max(1);
    }
    match state.clean {
        Some(clean) => clean.dot_counter + 1,
        None => state.dot_lease_end,
    }
}

/// The table that the manifest names, or why it is lost. An error is one that may pass, or a newer program's format.
pub(crate) fn open_table(
    disk: &mut dyn Disk,
    dir: &Path,
    record: &TableRecord,
) -> Result<Result<Table, Damage>, Error> {
    let damage = |what| Damage { file: record.id.file_name(), offset: 0, what };
    match Table::open(disk, dir, record.id) {
        Ok(table) if record.describes(&table) => Ok(Ok(table)),
        Ok(_) => Ok(Err(damage("it is not the table that the manifest names"))),
        Err(Error::Damaged(damage)) => Ok(Err(damage)),
        Err(Error::Disk(error)) if error.kind == DiskErrorKind::NotFound => {
            Ok(Err(damage("the table is missing")))
        }
        Err(other) => Err(other),
    }
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
fn ascending(segments: BTreeMap<SegmentId, Segment>, named: &[SegmentRecord], next_jsn: Jsn) -> Vec<Segment> {
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

/// Whether a segment's file is what a compaction's crash left: an output that does not count, or an input of one that does.
fn is_left_over(state: &ManifestState, id: SegmentId) -> bool {
    let named = state.segments.iter().any(|record| record.id == id.0);
    !named && (id.is_compacted() || id.0 < state.replay_position.segment)
}

fn to_u32(number: u64) -> Result<u32, Error> {
    u32::try_from(number).map_err(|_| Error::Malformed("segment of more than 4 GiB"))
}

fn padded(len: usize) -> u64 {
    crate::journal::record::padded_len(len) as u64
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
