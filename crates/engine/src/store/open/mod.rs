//! Opening a store: after a clean stop, after a crash, after damage.
//!
//! `replay.rs` builds up what the tables and the journal have, `groups.rs` what they have of consistent groups,
//! `segments.rs` finds the journal's segments.
//!
//! 1. Lock the folder.
//! 2. Read the manifest; without one the folder must be empty, and a new store begins.
//! 3. Open its tables; remove those that it does not name.
//! 4. Replay the journal from where the tables end, cut what is torn, and sync the rest: what is shown to a
//!    reader now must not be lost by the next crash.
//!    Full memtables are put aside and flushed later.
//! 5. Begin a new segment: what a crash left is never written again.
//! 6. See whether the index is whole, if one is kept.
//! 7. Look for a checkpoint of what the owner keeps beside these tables.
//! 8. Write the manifest, with a new lease.
//!
//! Damage does not keep a store from opening. In the journal: later records are applied, a damaged value answers an
//! error, and where a key was lost everything that it might have been answers that error. A table that is lost leaves
//! its range of keys as one of which versions are lost ([`crate::lost`]); a segment that is lost leaves its values.
//! A manifest that is lost has a copy. What does: the manifest and its copy, or all tables; the journal's end. Then the
//! ledger can be made again from the journal ([`crate::recovery`]).

mod groups;
mod replay;
mod segments;

use super::maintenance::{LEASE_COUNTERS, Maintenance, ScrubState, position, set_oldest};
use super::reclaim::Reclaim;
use super::room::{Room, segment_bytes, table_bytes};
use super::segments::{Segment, Segments};
use super::stats::GroupTimes;
use super::write::MEMTABLES_FROZEN_MAX;
use super::{BlockCache, Frozen, JOURNAL_TOKEN, Options, Store, StoreCounters, Times};
use crate::checkpoint::{self, Checkpoints, FoundCheckpoint, FoundLog, NotTaken};
use crate::compression::{Compressor, ZSTD_LEVELS};
use crate::entry::{Jsn, Seq};
use crate::error::{Damage, Error};
use crate::fold::Replayed;
use crate::index::Building;
use crate::journal::prepare::PrepareSegment;
use crate::journal::segment::{self, SegmentId};
use crate::journal::writer::Writer;
use crate::manifest::{self, FoundManifest, MANIFEST_FILE, ManifestState, TableRecord};
use crate::read::Publisher;
use crate::recovery;
use crate::table::{Table, TableId};
use base::disk::{self, DiskErrorKind, DiskOp};
use base::spawn::Outcome;
use base::{Clock, Disk, FastMap, Rng, Spawn};
use bytes::Bytes;
use replay::Recovery;
use std::path::Path;
use std::sync::Arc;

/// The folder of segments in a store's folder.
pub(super) const JOURNAL_DIR: &str = segment::FOLDER;
/// The folder of tables in a store's folder.
pub(crate) const TABLES_DIR: &str = "tables";
/// The file that says that the journal has every value that tables have. Compaction removes it before it first lets go
/// of the record of an inline value.
pub(crate) const WHOLE_FILE: &str = "JOURNAL-IS-WHOLE";
/// The file that is locked while a store is open.
pub(crate) const LOCK_FILE: &str = "LOCK";

/// Where not one of a ledger's tables is left, the folder is more likely to be the wrong one than the disk to be so
/// bad.
const LEDGER_LOST: &str = "none of the ledger's tables can be read; it can be made again from the journal";

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
    /// Why what the owner kept beside the tables is not taken, if there was any.
    pub checkpoint: Option<NotTaken>,
}

impl Store {
    /// Opens the store in `dir`, or makes one. Blocks until it can serve.
    pub fn open(dir: &Path, mut options: Options, platform: Platform) -> Result<(Store, OpenReport), Error> {
        if options.compression.is_some_and(|codec| !codec.is_built()) {
            return Err(Error::Refused("compression with zstd, which this build leaves out"));
        }
        if !ZSTD_LEVELS.contains(&options.zstd_level) {
            return Err(Error::Refused("a level of zstd that is not from 1 to 19"));
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
        let checkpoint = recovery.find_checkpoint(&state)?;
        let id = SegmentId(state.next_segment_id.max(recovery.next_segment));
        let journal = dir.join(JOURNAL_DIR);
        let ready =
            PrepareSegment::new(&journal, id, state.incarnation, Outcome::new()).run(recovery.disk)?;
        let Recovery {
            memtable,
            frozen,
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
            groups,
            oldest_entry,
            ..
        } = recovery;
        let has_groups = groups.takes || groups.is_used;
        let mut known = Segments::default();
        segments::ascending(segments, &state.segments, next_jsn)
            .into_iter()
            .for_each(|segment| known.push(segment));
        known.push(Segment { id, file: ready.file, first_jsn: next_jsn, index: None });
        accounts.begin(id);
        let next_counter = first_counter(&state);
        let maintenance = Maintenance::new(id.0 + 1, next_table);
        // A disk that cannot tell is taken for one with room.
        let free = disk::space(&mut *startup, dir).ok();
        let tables: u64 = version.tables().map(|(_, table)| table.len()).sum();
        let own = accounts.total().bytes() + tables;
        options.segment_bytes_target = segment_bytes(&options, free, own);
        options.table_bytes_target = table_bytes(&options, free, own);
        let mut writer = Writer::new(
            JOURNAL_TOKEN,
            options.durability,
            options.segment_bytes_target,
            ready,
            next_jsn,
            next_seq,
        );
        writer.bound(options.journal_queue_bytes_max, options.journal_budget.clone());
        let compressor = Compressor::new(&options);
        let room = Room::new(free, own, &options, clock.now());
        let memtable_bytes_max = options.first_memtable_bytes();
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
            memtable_bytes_max,
            frozen,
            version: Arc::new(version),
            drops,
            building: None,
            has_entries: false,
            indexed_at: Seq(0),
            flushed: Seq(0),
            checkpoints: Checkpoints::default(),
            manifest: state,
            parked: FastMap::default(),
            scans: Vec::new(),
            folds: Vec::new(),
            publisher: Publisher::default(),
            maintenance,
            groups: has_groups.then(|| Box::new(groups)),
            lost,
            last_id: 0,
            next_counter,
            group_began: None,
            counters: StoreCounters::default(),
            group_times: GroupTimes::default(),
            room,
            reclaim: Reclaim::default(),
            read_times: Times::default(),
            completions: Vec::new(),
            scratch_prefix: Vec::new(),
            scratch_inline: Vec::new(),
            compressor,
        };
        let next_table = store.maintenance.next_table.load(std::sync::atomic::Ordering::Relaxed);
        store.maintenance.scrub = ScrubState::open(&mut *startup, dir, store.now_ms(), next_table);
        if let Some(indexing) = store.options.indexing {
            let snapshot = store.snapshot();
            let found = Building::look(&mut *startup, &snapshot, &indexing);
            (store.building, store.indexed_at) = (found.building, found.marked);
            store.has_entries = found.has_entries;
        }
        store.checkpoints = store.checkpoints_of(checkpoint, replay_from.1);
        let mut state = store.manifest.clone();
        state.clean = None;
        state.dot_lease_end = next_counter + LEASE_COUNTERS;
        (state.replay_position, state.replay_jsn) = (position(replay_from.0), replay_from.1);
        set_oldest(&mut state, oldest_entry);
        store.describe(&mut state, &Arc::clone(&store.version), &Arc::clone(&store.segments));
        let manifest_bytes = manifest::write(&mut *startup, dir, &state)?;
        store.room.note_manifest(manifest_bytes);
        store.manifest = state;
        store.keep_suspicions()?;
        Ok((store, report))
    }

    fn checkpoints_of(&mut self, log: Option<FoundLog>, flushed: Jsn) -> Checkpoints {
        let Some(FoundLog { records, end, .. }) = log else { return Checkpoints::of(None, None, flushed) };
        let snapshot = self.snapshot();
        let frozen = self.frozen.iter().map(|frozen| (frozen.reader.clone(), frozen.last_seq));
        let parts = frozen.chain([(self.memtable.reader(), snapshot.seq())]).collect();
        let replayed = Replayed { parts, snapshot };
        Checkpoints::of(Some(end), Some(FoundCheckpoint { records, replayed }), flushed)
    }
}

impl Recovery<'_> {
    /// The checkpoint that says what the tables have; one that may say anything else is removed.
    fn find_checkpoint(&mut self, state: &ManifestState) -> Result<Option<FoundLog>, Error> {
        let found = checkpoint::find(self.disk, self.dir, state.incarnation, self.replay_from.1);
        let why = match found {
            Ok(None) => return Ok(None),
            Err(_) => NotTaken::Damaged,
            Ok(Some(_)) if !self.report.damage.is_empty() || !self.lost.is_empty() => NotTaken::Losses,
            Ok(Some(None)) => NotTaken::Other,
            // The manifest names drops before what they cut out of is flushed.
            Ok(Some(Some(found))) if self.drops.last_seq() > found.seq => NotTaken::Drops,
            Ok(Some(Some(found))) => return Ok(Some(found)),
        };
        self.report.checkpoint = Some(why);
        checkpoint::remove(self.disk, self.dir)?;
        Ok(None)
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
