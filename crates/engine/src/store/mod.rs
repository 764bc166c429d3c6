//! A store: one journal, one ledger, one owner.
//!
//! Everything in it is called from one thread, and nothing it does on that thread waits for a disk: reads that
//! would wait are parked, writes are handed over when a turn ends, and whatever takes long is a job.
//!
//! * `write.rs`: a batch goes to the journal's open group and to the memtable; `condition.rs`: if keys have the
//!   versions that the caller knows; `index.rs`: with index entries beside it; `load.rs`: a sorted load goes past the
//!   memtable.
//! * `freeze.rs`: the memtable is put aside when it is full, or the journal has much that no table has.
//! * `proposals.rs`: entries of consistent groups, which become versions when they are applied.
//! * `lookup.rs`: HEAD and GET, resumable.
//! * `maintenance/`: flushes, merges, the next segment, the manifest; one at a time of each kind.
//! * `checkpoint.rs`: what the owner keeps beside the ledger is kept with each flush.
//! * `pressure.rs`: how near it is to its limits, and how much slower writes should come.
//! * `room.rs`: what it does when the disk is full; `disk_room.rs`: what stores of one disk know of each other;
//!   `reclaim.rs`: how it makes room.
//! * `stats.rs`: what it has done and what it holds, for operators; `resources.rs`: options that fit a machine.
//! * `open/`: recovery. `close.rs`: the clean stop. `destroy.rs`: the end.
//!
//! Invariants
//! * A version may be acknowledged once [`Store::acknowledged`] has reached its seq, not before.
//! * The manifest never speaks of a table whose records might be lost: they are durable first.
//! * A version of the ledger (memtables, tables) is replaced, never changed: whoever holds one may read on.

mod cache;
mod checkpoint;
mod close;
mod condition;
mod destroy;
mod disk_room;
mod freeze;
mod index;
mod load;
mod lookup;
mod maintenance;
mod open;
mod options;
mod pressure;
mod proposals;
mod reclaim;
mod resources;
mod room;
mod segments;
mod stats;
mod times;
mod write;

pub use crate::journal::writer::JournalCounters;
pub(crate) use cache::BlockCache;
pub use condition::{Condition, WriteIf};
pub(crate) use destroy::destroy;
pub use disk_room::DiskRoom;
pub(crate) use lookup::try_read;
pub use lookup::{Found, LOOKUPS_PARKED_MAX, Lookup, LookupId, Want};
pub(crate) use maintenance::{LEASE_COUNTERS, position};
pub(crate) use open::{LOCK_FILE, TABLES_DIR, WHOLE_FILE, open_table};
pub use open::{OpenReport, Platform};
pub use options::{CompactionSchedule, DayWindow, Durability, Options};
pub use pressure::PACE_MAX;
pub use reclaim::Reclaimed;
pub use resources::{Concurrency, Resources};
pub use stats::{Amplification, CompressionCounters, LevelStats, StoreCounters, StoreStats};
pub use times::Times;
pub use write::{BATCH_WRITES_MAX, LEVEL0_TABLES_MAX, MEMTABLES_FROZEN_MAX, Write};

use crate::checkpoint::Checkpoints;
use crate::compaction::{Account, Accounts, DeadRecord};
use crate::compression::Compressor;
use crate::drops::DroppedRanges;
use crate::entry::{Jsn, Seq};
use crate::error::Error;
use crate::fold::{Fold, FoldEnd, FoldId, FoldRequest, FoldVisitor, FoldWalk};
use crate::fold::{Scan, ScanId, ScanPage, ScanRequest};
use crate::index::Building;
use crate::journal::segment::Position;
use crate::journal::writer::Writer;
use crate::lost::LostRanges;
use crate::manifest::{JournalPosition, ManifestState, Version};
use crate::memtable::{Memtable, MemtableReader};
use crate::read::{Publisher, Snapshot};
use base::disk::{Completion, Token};
use base::{Clock, Disk, FastMap, Monotonic, Spawn};
use lookup::Parked;
use maintenance::Maintenance;
use proposals::Groups;
pub(crate) use segments::{Segment, Segments};
use stats::GroupTimes;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The journal's own operations carry this token; every other is a lookup's id, counted from 1.
const JOURNAL_TOKEN: Token = Token(0);

/// Scans under way at once: each is a job and holds a page.
pub const SCANS_MAX: usize = 256;

/// Folds under way at once: each is a job and holds a window.
pub const FOLDS_MAX: usize = 64;

/// What a turn has to tell.
#[derive(Debug)]
pub enum Event {
    /// A parked lookup has its answer.
    Lookup(LookupId, Result<Option<Found>, Error>),
    /// A page of a scan is ready.
    Scan(ScanId, Result<ScanPage, Error>),
    /// A fold has ended.
    Fold(FoldId, Result<FoldEnd, Error>),
    /// The clean stop is complete, or failed; drop the store.
    Closed(Result<(), Error>),
}

/// A memtable that takes no more entries and waits for its flush.
struct Frozen {
    reader: MemtableReader,
    /// The newest version in it.
    last_seq: Seq,
    /// The journal up to here is in this memtable or an older one.
    end: Position,
    end_jsn: Jsn,
    /// The account of the segment in which `end` is, up to there.
    end_account: Account,
    /// The oldest entry of a group's log that was not applied then.
    oldest_entry: Option<(JournalPosition, Jsn)>,
    /// Records of such entries that had become of no use.
    dead_entries: Vec<DeadRecord>,
}

/// An open store.
pub struct Store {
    dir: PathBuf,
    options: Options,
    disk: Box<dyn Disk>,
    spawn: Arc<dyn Spawn>,
    clock: Arc<dyn Clock>,
    writer: Writer,
    segments: Arc<Segments>,
    accounts: Accounts,
    /// The account of the segment at which a replay would begin, up to there.
    replay_account: Account,
    memtable: Memtable,
    /// The bytes of entries with which it is full: fewer for the first one since the start.
    memtable_bytes_max: usize,
    /// Oldest first.
    frozen: VecDeque<Frozen>,
    version: Arc<Version>,
    /// Ranges that were dropped, and may not be cut out of tables everywhere.
    drops: Arc<DroppedRanges>,
    /// Index entries being made anew; `None` where all are there, or none are kept.
    building: Option<Building>,
    /// Whether there may be index entries.
    has_entries: bool,
    /// The version of the mark that says that all are there.
    indexed_at: Seq,
    /// Versions up to this one are in tables, as far as is known since the store was opened.
    flushed: Seq,
    checkpoints: Checkpoints,
    manifest: ManifestState,
    cache: BlockCache,
    parked: FastMap<LookupId, Parked>,
    scans: Vec<Scan>,
    folds: Vec<Fold>,
    publisher: Publisher,
    maintenance: Maintenance,
    /// Consistent groups; none in a store that neither takes nor has any.
    groups: Option<Box<Groups>>,
    /// Where versions were lost.
    lost: Arc<LostRanges>,
    last_id: u64,
    next_counter: u64,
    last_sync_at: Monotonic,
    /// When the turn began that is under way, or the last one.
    turned_at: Monotonic,
    /// When the group that is under way went to the disk, and whether to be synced.
    group_began: Option<(Monotonic, bool)>,
    counters: StoreCounters,
    group_times: GroupTimes,
    room: room::Room,
    reclaim: reclaim::Reclaim,
    read_times: Times,
    completions: Vec<Completion>,
    scratch_prefix: Vec<u8>,
    scratch_inline: Vec<u8>,
    compressor: Option<Compressor>,
}

impl Store {
    /// Ends a turn: takes what the disk and the jobs have done, hands waiting writes to the disk, and starts
    /// what maintenance is due. To be called after new writes, and whenever the disk or a job has woken the
    /// shard. What it has to tell is appended to `events`.
    pub fn turn(&mut self, now: Monotonic, events: &mut Vec<Event>) {
        self.hand_over(now, events);
        self.maintain(now, events);
        self.publish();
    }

    /// [`Store::turn`] on a disk that is done with an operation when it is given it: what is handed over counts in the
    /// same turn.
    pub(crate) fn turn_at_once(&mut self, now: Monotonic, events: &mut Vec<Event>) {
        self.hand_over(now, events);
        self.take_completions(events);
        self.maintain(now, events);
        self.publish();
    }

    fn hand_over(&mut self, now: Monotonic, events: &mut Vec<Event>) {
        self.turned_at = now;
        if self.publisher.is_begun() {
            // Before anything more may be acknowledged, and shown. Where nobody reads beside the owner, whoever takes a
            // snapshot sees to it: the more entries wait for it, the less work is each.
            self.memtable.link();
        }
        self.take_completions(events);
        self.take_scans(events);
        self.take_folds(events);
        self.append_old_again();
        self.sync_by_interval(now);
        self.flush_journal();
    }

    /// Everything up to this version may be acknowledged, and shown to whoever reads.
    pub fn acknowledged(&self) -> Seq {
        if base::planted!(AckBeforeSync) {
            return self.writer.last_seq();
        }
        self.writer.acknowledged()
    }

    /// Everything up to this version is as safe as `durability` asks.
    pub fn reached(&self, durability: Durability) -> Seq {
        self.writer.reached(durability)
    }

    /// The version of the last write: once it may be acknowledged, so may all.
    pub fn last_written(&self) -> Seq {
        self.writer.last_seq()
    }

    /// When a write may be acknowledged.
    pub fn durability(&self) -> Durability {
        self.options.durability
    }

    /// To be called a few times a second: what waits for the disk though nobody waits for it goes there with the
    /// next turn.
    pub fn tick(&mut self) {
        self.writer.want_push();
    }

    /// Why the store takes no more writes, if a write has failed.
    #[inline]
    pub fn fenced(&self) -> Option<Error> {
        self.writer.fenced().map(|cause| Error::Fenced(cause.to_owned()))
    }

    /// Whether writes wait for a turn to end, or the page of a scan is at hand; writes that wait for the disk to be
    /// done with others do not count.
    #[inline]
    pub fn wants_turn(&self) -> bool {
        self.writer.can_flush() || self.scans.iter().any(|scan| scan.was_at_hand)
    }

    /// Where it is.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// What it was told.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The random id of this store's life: the actor of its dots.
    pub fn incarnation(&self) -> u64 {
        self.manifest.incarnation
    }

    /// What the store remembers for its owner since it was made.
    pub fn metadata(&self) -> &BTreeMap<Vec<u8>, Vec<u8>> {
        &self.manifest.metadata
    }

    /// The next number of the store-wide dot counter. It is never given twice, whatever happens: numbers come
    /// from a durable lease, and an unclean start begins after the lease.
    pub fn next_counter(&mut self) -> Result<u64, Error> {
        if self.next_counter >= self.manifest.dot_lease_end {
            let limit = usize::try_from(maintenance::LEASE_COUNTERS).unwrap_or(usize::MAX);
            return Err(Error::Full { what: "the lease of dot counters", limit });
        }
        let counter = self.next_counter;
        self.next_counter += 1;
        Ok(counter)
    }

    /// Starts a scan; an event will bring its page.
    ///
    /// # Errors
    /// If there are too many; and, unless it goes past losses, if something of the range was lost, or if what was
    /// acknowledged without durability was not written in the end: a key of it would be missing without a word.
    pub fn scan(&mut self, request: ScanRequest) -> Result<ScanId, Error> {
        self.scan_since(request, Seq(0))
    }

    /// The same for an owner that has dropped these keys with the version `dropped_at`, and written anew those that are
    /// still there: earlier losses do not count.
    ///
    /// # Errors
    /// As for [`Store::scan`].
    pub fn scan_since(&mut self, request: ScanRequest, dropped_at: Seq) -> Result<ScanId, Error> {
        let (id, snapshot) = self.begin_scan(&request, dropped_at)?;
        self.scans.push(Scan::start(id, request, snapshot, &*self.spawn));
        Ok(id)
    }

    /// [`Store::scan`] of what is likely to be short, and whose visitor is quick: it goes ahead at once for a bounded
    /// while, with what is in memory. If that is all, the next turn has the page, and is wanted
    /// ([`Store::wants_turn`]).
    ///
    /// # Errors
    /// As for [`Store::scan`].
    pub fn scan_ahead(&mut self, request: ScanRequest) -> Result<ScanId, Error> {
        let (id, snapshot) = self.begin_scan(&request, Seq(0))?;
        self.scans.push(Scan::start_ahead(id, request, snapshot, &mut *self.disk, &*self.spawn));
        Ok(id)
    }

    fn begin_scan(&mut self, request: &ScanRequest, dropped_at: Seq) -> Result<(ScanId, Snapshot), Error> {
        let id = ScanId(self.next_id());
        if self.scans.len() >= SCANS_MAX {
            return Err(Error::Full { what: "the list of scans", limit: SCANS_MAX });
        }
        let lost = self.lost.since(dropped_at);
        if !request.past_losses {
            lost.check_range(&request.start, &request.end)?;
            if let Some(cause) = self.writer.took_back() {
                return Err(Error::Fenced(cause.to_owned()));
            }
        }
        Ok((id, Snapshot { lost, ..self.snapshot() }))
    }

    /// Whether versions of keys from `start` up to `end` may have been lost.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the damage that has taken them.
    pub fn check_range(&self, start: &[u8], end: &[u8]) -> Result<(), Error> {
        self.check_range_since(start, end, Seq(0))
    }

    /// The same of keys that were dropped with the version `dropped_at`.
    ///
    /// # Errors
    /// As for [`Store::check_range`].
    pub fn check_range_since(&self, start: &[u8], end: &[u8], dropped_at: Seq) -> Result<(), Error> {
        self.lost.since(dropped_at).check_range(start, end)
    }

    /// Starts a fold as of now; `visitor` is called on a job's thread, and an event will bring the end.
    pub fn fold(&mut self, request: FoldRequest, visitor: FoldVisitor) -> Result<FoldId, Error> {
        let snapshot = self.readable_snapshot();
        self.fold_at(request, snapshot, visitor)
    }

    /// [`Store::fold`] as of the moment of `snapshot`.
    pub fn fold_at(
        &mut self,
        request: FoldRequest,
        snapshot: Snapshot,
        visitor: FoldVisitor,
    ) -> Result<FoldId, Error> {
        let id = FoldId(self.next_id());
        if self.folds.len() >= FOLDS_MAX {
            return Err(Error::Full { what: "the list of folds", limit: FOLDS_MAX });
        }
        let (fold, job) = Fold::new(id, FoldWalk::new(request, snapshot)?, visitor);
        self.folds.push(fold);
        self.spawn.spawn(job);
        Ok(id)
    }

    /// Ends a fold before its time. Its event will say where it can be resumed.
    pub fn cancel_fold(&mut self, id: FoldId) {
        if let Some(fold) = self.folds.iter().find(|fold| fold.id == id) {
            fold.cancel();
        }
    }

    /// The ledger as of now: what may be acknowledged, and nothing else, for as long as it is held.
    pub fn snapshot(&mut self) -> Snapshot {
        self.memtable.link();
        self.snapshot_at(self.acknowledged())
    }

    /// The same of versions whose records the operating system has: their values can be read by anybody.
    pub fn readable_snapshot(&mut self) -> Snapshot {
        self.memtable.link();
        self.snapshot_at(self.readable())
    }

    /// Everything up to this version may be acknowledged, and the operating system has its records.
    pub fn readable(&self) -> Seq {
        self.acknowledged().min(self.writer.written())
    }

    fn snapshot_at(&self, seq: Seq) -> Snapshot {
        assert!(self.memtable.is_linked_to(seq.0), "what a snapshot shows is linked before");
        let frozen = self.frozen.iter().rev().map(|frozen| frozen.reader.clone());
        Snapshot {
            seq,
            now_ms: self.now_ms(),
            dropped: self.drops.until(seq),
            memtables: std::iter::once(self.memtable.reader()).chain(frozen).collect(),
            version: Arc::clone(&self.version),
            segments: Arc::clone(&self.segments),
            lost: Arc::clone(&self.lost),
        }
    }

    /// What readers on other threads follow.
    pub(crate) fn publisher(&mut self) -> &Publisher {
        if !self.publisher.is_begun() {
            let first = self.readable_snapshot();
            self.publisher.begin(first);
        }
        &self.publisher
    }

    fn publish(&mut self) {
        if !self.publisher.is_begun() {
            return;
        }
        let seq = self.readable();
        let mut publisher = std::mem::take(&mut self.publisher);
        publisher.publish(seq, |last| self.is_shown_by(last, seq), || self.snapshot_at(seq));
        self.publisher = publisher;
    }

    /// Whether `last` has the shares that a snapshot at `seq` would have.
    fn is_shown_by(&self, last: &Snapshot, seq: Seq) -> bool {
        let newest = last.memtables.first();
        Arc::ptr_eq(&self.version, &last.version)
            && self.frozen.len() + 1 == last.memtables.len()
            && newest.is_some_and(|newest| newest.is_same(&self.memtable.reader()))
            && Arc::ptr_eq(&self.segments, &last.segments)
            && Arc::ptr_eq(&self.lost, &last.lost)
            && self.drops.until(seq) == last.dropped
    }

    /// How many range drops are remembered: those that some table or memtable may still hold versions for.
    pub fn drops(&self) -> usize {
        self.drops.len()
    }

    /// The time by which versions end, in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.wall().0 / 1000
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Hands what waits for the disk to it, if it is done with what went before.
    fn flush_journal(&mut self) {
        if self.writer.flush(&mut *self.disk) {
            self.group_began = Some((self.turned_at, self.writer.is_syncing()));
        }
    }

    fn take_completions(&mut self, events: &mut Vec<Event>) {
        let mut completions = std::mem::take(&mut self.completions);
        self.disk.poll(&mut completions);
        for Completion { token, result } in completions.drain(..) {
            if token == JOURNAL_TOKEN {
                self.writer.on_written(result.map(|_| ()));
                if let Some((began, synced)) = self.group_began.take() {
                    self.group_times.count(synced, self.turned_at.since(began));
                }
            } else if let Some((id, answer)) = self.resume_lookup(LookupId(token.0), result) {
                events.push(Event::Lookup(id, answer));
            }
        }
        self.completions = completions;
    }

    fn take_scans(&mut self, events: &mut Vec<Event>) {
        self.scans.retain(|scan| match scan.take() {
            Some(page) => {
                events.push(Event::Scan(scan.id, page));
                false
            }
            None => true,
        });
    }

    fn take_folds(&mut self, events: &mut Vec<Event>) {
        let Store { folds, cache, .. } = self;
        folds.retain(|fold| match fold.take() {
            Some((end, blocks)) => {
                blocks.into_iter().for_each(|(number, block)| cache.keep(number, block));
                events.push(Event::Fold(fold.id, end));
                false
            }
            None => true,
        });
    }

    fn sync_by_interval(&mut self, now: Monotonic) {
        if self.options.durability == Durability::Interval
            && now.since(self.last_sync_at) >= self.options.sync_interval
        {
            self.writer.want_sync();
            self.last_sync_at = now;
        }
    }
}
