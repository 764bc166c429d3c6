//! Room on the disk: free space, the reserve, and a full disk.
//!
//! 1. A store asks for the free space once a second while it is written. It asks earlier when the journals of the disk
//!    have taken a quarter of the free bytes, or when a job that takes or gives room has ended on a nearly full disk.
//!    All stores of a disk share the answer (`disk_room.rs`).
//! 2. A batch that would leave less than the reserve ([`Options::reserve_bytes`](super::Options::reserve_bytes)) is
//!    refused ([`Error::Exhausted`]). The reserve is for flushes, manifests, merges and compactions, which begin at
//!    once (`reclaim.rs`). Batches without a value may use half of it: deletions, drops of ranges, tombstones and notes
//!    of the owner.
//! 3. A merge or a compaction claims its room. Room for flushes and manifests and the claims of other stores are not
//!    available to it. A job without enough room does not begin. On a nearly full disk, neither does a job whose inputs
//!    a snapshot holds. Flushes and manifests claim nothing: they must be written in any case. A manifest without room
//!    takes that of its copy.
//! 4. Another program may use up the reserve. The job that found no room then waits for the next answer and is tried
//!    again. A group of the journal is written again in its place, since nothing of it was synced; a flush or a
//!    manifest is begun anew. Meanwhile writes are refused. A read of a version that waits so is an error; all others
//!    succeed.
//! 5. Writes are taken again when there is room.
//!
//! Errors that could mean lost bytes are not handled here: a failed sync fences the store for good.

use super::disk_room::{Claim, Found, Unflushed};
use super::{Options, Store};
use crate::error::Error;
use base::disk;
use base::spawn::Outcome;
use base::{Disk, Job, Monotonic, Progress};
use std::path::PathBuf;
use std::time::Duration;

/// Interval of questions for the free space, also after a refusal.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The same without writes: a question wakes two threads, and the first write asks again.
const LOOK_IDLE_EVERY: Duration = Duration::from_secs(10);

/// A question is due, too, when the journals have taken this part of the free bytes, or of the reserve if that is more:
/// fast writers must not use it up between two questions.
const LOOK_SHARE: u64 = 4;

/// Eighths of the reserve that batches leave: those without a value, and those that only remove keys. Reaping removes
/// tombstones, so it may go further than the deletions that made them.
const SMALL_RESERVE_EIGHTHS: u64 = 4;
const REMOVALS_RESERVE_EIGHTHS: u64 = 3;

/// Eighths of the reserve that batches with values leave.
const VALUES_RESERVE_EIGHTHS: u64 = 8;

/// Kinds of batches by the room that they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Brings {
    /// Values.
    Values,
    /// Keys and heads only.
    Heads,
    /// Nothing: it removes keys.
    Removals,
}

/// A disk is nearly full with less free bytes than the reserve and this part of it: jobs begin to save room early.
const NEAR_RESERVE_SHARE: u64 = 8;

/// Manifests for which merges and compactions leave room. A new manifest is written beside the current one and names
/// more tables. A store that cannot write its manifest frees nothing any more.
const JOBS_MANIFESTS: u64 = 2;

/// The least that they leave, for headers of files and blocks of the file system.
const JOBS_LEFT_MIN: u64 = 16 << 10;

/// The largest part of a store's share of the disk for one segment. Its compaction then fits in little room, and little
/// waste lies in the active segment, which cannot be compacted.
const SEGMENT_DISK_SHARE: u64 = 16;

/// The smallest segment on a small disk: a smaller one would be a file, and a handle, for a few values.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;

/// Segments in the least reserve: one for a compaction, and one for merges by parts.
const LEAST_SEGMENTS: u64 = 2;

/// The largest part of a store's share of the disk for that least reserve.
const LEAST_DISK_SHARE: u64 = 8;

/// There is plenty of room with this many times the comfortable free bytes.
const PLENTY: u64 = 4;

/// With plenty of room, one turn in this many checks it: a few turns take little of it.
const CHECKED_EVERY: u32 = 16;

/// Fullness of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fullness {
    /// Jobs need not save room.
    Ample,
    /// Little more than the reserve is free.
    NearlyLow,
    /// Batches with values are refused, or one was for which there is still no room.
    Low,
}

/// Room on the disk as one store knows it.
pub(super) struct Room {
    /// Free bytes of the last look of any store of the disk; `None` if the disk cannot tell.
    free: Option<u64>,
    /// Looks of all stores, as far as this one has learnt of them.
    shared_looks: u64,
    /// Bytes of the manifest.
    manifest: u64,
    /// Bytes of memtables that are not in tables yet, as of the last check.
    unflushed: Unflushed,
    /// The look under way, and the time of the last one.
    looking: Option<Outcome<Option<u64>>>,
    looked_at: Monotonic,
    /// Looks of this store that were answered.
    looks: u64,
    /// Bytes that its journal had taken at the last look.
    taken: u64,
    /// Bytes that the journals of all stores had taken: at the last look, and at the last check.
    all_taken: u64,
    all_taken_now: u64,
    /// The part of this store in the latter.
    noted: u64,
    /// Free bytes that are kept back.
    reserve: u64,
    /// The least of them, beside bytes that are not flushed yet.
    least: u64,
    /// The largest refused batch for which there was no room yet.
    wanted: u64,
    /// As of the last check: most turns need no more than this.
    fullness: Fullness,
    has_plenty: bool,
    /// Turns of the store.
    turns: u32,
    /// Whether a job has taken or given room since the last look.
    is_stale: bool,
    /// The error of an operation that waits for room.
    refused: Option<Error>,
    /// Time at which a merge or a compaction found no room.
    shortage: Option<Monotonic>,
}

impl Room {
    /// At the start of a store that has `own` bytes on the disk.
    pub(super) fn new(free: Option<u64>, own: u64, options: &Options, now: Monotonic) -> Room {
        let share = disk_share(options, free, own) / LEAST_DISK_SHARE;
        let all_taken = options.disk_room.note_taken(0);
        Room {
            free,
            looked_at: now,
            all_taken,
            all_taken_now: all_taken,
            reserve: options.reserve_bytes,
            least: (LEAST_SEGMENTS * options.segment_bytes_target).min(share),
            shared_looks: 0,
            manifest: 0,
            unflushed: options.disk_room.unflushed(),
            looking: None,
            looks: 0,
            taken: 0,
            noted: 0,
            wanted: 0,
            fullness: Fullness::Ample,
            has_plenty: false,
            turns: 0,
            is_stale: false,
            refused: None,
            shortage: None,
        }
    }

    /// Looks that were answered. A job that did not fit may fit after the next one.
    pub(super) fn looks(&self) -> u64 {
        self.looks
    }

    /// Bytes that merges and compactions leave for this store's manifests.
    fn for_manifests(&self) -> u64 {
        (JOBS_MANIFESTS * self.manifest).max(JOBS_LEFT_MIN)
    }

    /// A manifest of so many bytes was written.
    pub(super) fn note_manifest(&mut self, bytes: u64) {
        self.manifest = bytes;
    }

    /// A job has taken or given room: a nearly full disk is asked at the next turn.
    pub(super) fn look_soon(&mut self) {
        self.is_stale = true;
    }

    /// A merge or a compaction found no room: none that needs room begins for a while.
    pub(super) fn note_shortage(&mut self, now: Monotonic) {
        self.shortage = Some(now);
    }

    fn free_after(&self, taken: u64) -> Option<u64> {
        let since = (self.all_taken_now - self.all_taken) + (taken - self.noted);
        self.free.map(|free| free.saturating_sub(since))
    }
}

/// The share of the disk of a store that has `own` bytes there.
fn disk_share(options: &Options, free: Option<u64>, own: u64) -> u64 {
    free.map_or(u64::MAX, |free| (free / options.disk_room.stores()).saturating_add(own))
}

/// The largest part of that share for one table: the tables of one merge must fit in a small part of the disk.
const TABLE_DISK_SHARE: u64 = 128;

/// The smallest table on a small disk: a smaller one would be a file for a few hundred keys.
const TABLE_BYTES_MIN: u64 = 128 << 10;

/// Size of a store's tables: by the options, within its share of the disk.
pub(super) fn table_bytes(options: &Options, free: Option<u64>, own: u64) -> u64 {
    let part = disk_share(options, free, own) / TABLE_DISK_SHARE;
    options.table_bytes_target.min(part.max(TABLE_BYTES_MIN))
}

/// Size of a store's segments: by the options, within its share of the disk.
pub(super) fn segment_bytes(options: &Options, free: Option<u64>, own: u64) -> u64 {
    let part = disk_share(options, free, own) / SEGMENT_DISK_SHARE;
    options.segment_bytes_target.min(part.max(SEGMENT_BYTES_MIN))
}

impl Store {
    /// Why the store takes no writes for now, or at all; what is durable is read as ever.
    pub fn refuses_writes(&self) -> Option<Error> {
        self.unfinished().or_else(|| self.reserve_is_kept(VALUES_RESERVE_EIGHTHS).err())
    }

    /// The same of batches without a value, such as deletions.
    pub fn refuses_deletions(&self) -> Option<Error> {
        self.unfinished().or_else(|| self.reserve_is_kept(SMALL_RESERVE_EIGHTHS).err())
    }

    /// Why what has been written is not acknowledged, if there is no telling when it will be.
    pub fn held_up(&self) -> Option<Error> {
        self.fenced().or_else(|| self.writer.refused().cloned())
    }

    /// Why a flush or a compaction will not end, if there is no telling when it will.
    pub fn unfinished(&self) -> Option<Error> {
        self.held_up().or_else(|| self.room.refused.clone())
    }

    /// Whether values are refused for want of room, as of the last check.
    pub(super) fn is_low(&self) -> bool {
        self.room.fullness == Fullness::Low
    }

    /// Whether it is, or will soon be.
    pub(super) fn is_nearly_low(&self) -> bool {
        self.room.fullness >= Fullness::NearlyLow
    }

    fn fullness_now(&self) -> Fullness {
        match self.free_now() {
            _ if self.room.wanted > 0 => Fullness::Low,
            Some(free) if free < self.room.reserve && !base::planted!(NoReserve) => Fullness::Low,
            Some(free) if free < self.comfortable() => Fullness::NearlyLow,
            _ => Fullness::Ample,
        }
    }

    /// Free bytes with which jobs need not save room.
    pub(super) fn comfortable(&self) -> u64 {
        let reserve = self.room.reserve;
        reserve.saturating_add(reserve / NEAR_RESERVE_SHARE).saturating_add(self.room.wanted)
    }

    /// The used part of the reserve's half for batches without a value, in thousandths. It slows them, so that merges
    /// and compactions keep up.
    pub(super) fn reserve_used_thousandths(&self) -> u64 {
        let reserve = self.room.reserve;
        let theirs = reserve - reserve / 8 * SMALL_RESERVE_EIGHTHS;
        let used = self.free_now().map_or(0, |free| reserve.saturating_sub(free));
        used.saturating_mul(1000) / theirs.max(1)
    }

    /// Refuses a batch that would use more of the reserve than a batch of its kind may.
    #[inline]
    pub(super) fn check_room(&mut self, brings: impl FnOnce() -> Brings, bytes: usize) -> Result<(), Error> {
        if let Some(refused) = &self.room.refused {
            return Err(refused.clone());
        }
        // The last turns and this batch take far less than there is.
        if self.room.has_plenty && bytes as u64 <= self.room.reserve {
            return Ok(());
        }
        let brings = brings();
        let waiting = (self.writer.waiting_bytes() + bytes) as u64;
        // The rest is for merges, so the flush of these batches counts as used. Values leave the whole reserve, which
        // has room for their flush.
        let (eighths, unflushed) = match brings {
            Brings::Values => (VALUES_RESERVE_EIGHTHS, 0),
            Brings::Heads => (SMALL_RESERVE_EIGHTHS, self.room.unflushed.of_all()),
            Brings::Removals => (REMOVALS_RESERVE_EIGHTHS, self.room.unflushed.of_all()),
        };
        let refused = self.reserve_is_kept_with(eighths, waiting + unflushed);
        if refused.is_err() && brings == Brings::Values {
            self.room.wanted = self.room.wanted.max(bytes as u64);
            self.room.fullness = Fullness::Low;
        }
        refused
    }

    /// Free bytes of the disk by estimate: those of the last look without those that journals have taken since. `None`
    /// if the disk cannot tell.
    fn free_now(&self) -> Option<u64> {
        self.room.free_after(self.writer.taken())
    }

    fn reserve_is_kept(&self, eighths: u64) -> Result<(), Error> {
        self.reserve_is_kept_with(eighths, 0)
    }

    #[inline]
    fn reserve_is_kept_with(&self, eighths: u64, bytes: u64) -> Result<(), Error> {
        if base::planted!(NoReserve) {
            return Ok(());
        }
        match self.free_now() {
            Some(free) if free < (self.room.reserve / 8).saturating_mul(eighths).saturating_add(bytes) => {
                Err(self.reserve_used(free))
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn reserve_used(&self, free: u64) -> Error {
        let reserve = self.room.reserve;
        Error::Exhausted(format!("{free} bytes are free on the disk, of which {reserve} are a reserve"))
    }

    /// Bytes for merges and compactions of this store: free bytes without room for flushes and manifests, and without
    /// claims.
    pub(super) fn room_for_jobs(&self) -> u64 {
        let Some(free) = self.free_now() else { return u64::MAX };
        let is_unknown = self.room.is_stale || self.room.looking.is_some();
        if self.room.shortage.is_some()
            || (is_unknown || self.maintenance.holds_files()) && self.is_nearly_low()
        {
            return 0;
        }
        // Stores of a disk have manifests of about the same size.
        let manifests = self.options.disk_room.stores() * self.room.for_manifests();
        let kept = self.room.unflushed.of_all().saturating_add(manifests);
        self.options.disk_room.unclaimed(free.saturating_sub(kept))
    }

    /// Claims room for a merge or a compaction; `None` without enough of it.
    pub(super) fn claim_room(&self, bytes: u64) -> Option<Claim> {
        let fits = bytes == 0 || bytes <= self.room_for_jobs();
        fits.then(|| self.options.disk_room.claim(bytes, self.free_now().unwrap_or(u64::MAX))).flatten()
    }

    /// A flush or a manifest has failed. For want of room it is tried again later; any other error fences the store.
    pub(super) fn on_failure(&mut self, error: Error) {
        match error {
            Error::Exhausted(_) => drop(self.room.refused.get_or_insert(error)),
            _ => self.writer.fence(error),
        }
    }

    /// Whether jobs that need room are to wait.
    pub(super) fn waits_for_room(&self) -> bool {
        self.room.refused.is_some()
    }

    /// Checks the room, and asks the disk when that is due; operations that wait for room go on after the answer.
    pub(super) fn step_room(&mut self, now: Monotonic) {
        let waits = self.room.refused.is_some() || self.writer.refused().is_some();
        self.room.turns = self.room.turns.wrapping_add(1);
        let is_spared = self.room.has_plenty && !self.room.turns.is_multiple_of(CHECKED_EVERY);
        if is_spared && !waits && self.room.looking.is_none() {
            return;
        }

        let taken = self.writer.taken();
        self.note_taken(taken);
        if self.room.looking.is_some() {
            self.take_look(now);
        } else {
            self.want_look(now, taken, waits);
        }
    }

    /// Takes the answer of the disk, if it is there.
    fn take_look(&mut self, now: Monotonic) {
        let Some(free) = self.room.looking.as_ref().and_then(Outcome::take) else { return };
        let found = Found { free, all_taken: self.room.all_taken };
        self.room.shared_looks = self.options.disk_room.note_found(found);
        (self.room.looking, self.room.free, self.room.refused) = (None, free, None);
        self.room.looks += 1;
        self.room.shortage = self.room.shortage.filter(|at| now.since(*at) < LOOK_EVERY);

        let is_enough = self.free_now().is_none_or(|free| free >= self.comfortable());
        if is_enough {
            self.room.wanted = 0;
        }
        self.room.fullness = self.fullness_now();
        if self.is_nearly_low() {
            self.maintenance.compaction.note_room();
        }
        self.writer.try_again();
    }

    /// Asks the disk, if that is due.
    fn want_look(&mut self, now: Monotonic, taken: u64, waits: bool) {
        let is_short = waits || self.is_low() || self.room.shortage.is_some();
        let is_idle = taken == self.room.taken && !is_short;
        let is_due = now.since(self.room.looked_at) >= if is_idle { LOOK_IDLE_EVERY } else { LOOK_EVERY };
        let share = (self.room.free.unwrap_or(0).max(self.room.reserve) / LOOK_SHARE).max(1);
        let has_run = self.room.all_taken_now - self.room.all_taken >= share;
        // Room that a job has freed matters on a nearly full disk alone.
        let is_awaited = self.room.is_stale && self.is_nearly_low();
        if is_due || ((has_run || is_awaited) && !waits) {
            let looking = Outcome::new();
            self.spawn.spawn(Box::new(Look { folder: self.dir.clone(), free: looking.clone() }));
            (self.room.looking, self.room.looked_at, self.room.taken) = (Some(looking), now, taken);
            (self.room.all_taken, self.room.is_stale) = (self.room.all_taken_now, false);
        }
    }

    /// Exchanges figures with the other stores of the disk, and makes up the reserve and the fullness anew. The reserve
    /// is that of the options, and at least as much as it takes to free room again.
    fn note_taken(&mut self, taken: u64) {
        self.room.all_taken_now = self.options.disk_room.note_taken(taken - self.room.noted);
        self.room.noted = taken;
        if let Some((found, looks)) = self.options.disk_room.found_since(self.room.shared_looks)
            && self.room.looking.is_none()
        {
            (self.room.free, self.room.all_taken, self.room.shared_looks) =
                (found.free, found.all_taken, looks);
        }
        let unflushed = self.unflushed_bytes();
        self.room.unflushed.note(unflushed);
        // Deletions may use half of the reserve, so room for manifests counts twice: some is left for the jobs.
        let least = unflushed.saturating_add(self.room.least).saturating_add(2 * self.room.for_manifests());
        self.room.reserve = self.options.reserve_bytes.max(least);
        self.room.fullness = self.fullness_now();
        self.room.has_plenty = self.free_now().is_none_or(|free| free / PLENTY >= self.comfortable());
        self.writer.take_ahead(self.room.fullness == Fullness::Ample);
    }
}

/// Asks the disk for its free space. A disk that cannot tell counts as one with room.
struct Look {
    folder: PathBuf,
    free: Outcome<Option<u64>>,
}

impl Job for Look {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        self.free.set(disk::space(disk, &self.folder).ok());
        Progress::Done
    }
}
