//! Room on the disk: what happens when there is none, or no file handle left.
//!
//! 1. The free space is looked at once a second while something is written, whenever the journals of a disk's stores
//!    have taken a quarter of what was free, room ahead of their records included, and when a job that takes or gives
//!    room has ended; what one store finds the others know. A batch that would leave less than
//!    the reserve ([`Options::reserve_bytes`](super::Options::reserve_bytes)) is refused ([`Error::Exhausted`]); what
//!    was taken before goes on: the reserve is for its flush, its manifest, and for merges and compactions, which begin
//!    at once (`reclaim.rs`). Batches without a value may use the upper half of the reserve, too: deletions, drops of
//!    ranges, an owner's tombstones and notes.
//! 2. A merge or a compaction claims the room that it needs from what is free, not needed for flushes and manifests,
//!    and not claimed by the other stores of the disk; one that does not fit is not begun, and on a disk that is nearly
//!    full none that copies what a snapshot holds. A flush and a manifest claim nothing: they must be written in any
//!    case. A manifest without room takes that of its copy.
//! 3. Where the disk has no room all the same, because somebody else has used it up, what needed it waits for the next
//!    look and is tried again: a group of the journal, in its place, since nothing of it was synced; a flush or a
//!    manifest from its beginning. Meanwhile writes are refused, and a version that waits so is an error to its
//!    readers; all else is read as ever. Merges and compactions are tried again after the next look, too, and nobody
//!    waits for them.
//! 4. When there is room again, writes are taken again.
//!
//! Nothing here is told by an error that could mean lost bytes: a failed sync fences the store for good.

use super::disk_room::{Claim, Found, Unflushed};
use super::{Options, Store};
use crate::error::Error;
use base::disk;
use base::spawn::Outcome;
use base::{Disk, Job, Monotonic, Progress};
use std::path::PathBuf;
use std::time::Duration;

/// How often the free space is looked at, and how soon after a refusal the disk is asked again.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The same while nothing is written: the first write behind it has it looked at once more, and a look wakes two
/// threads.
const LOOK_IDLE_EVERY: Duration = Duration::from_secs(10);

/// It is looked at when this part of what was free has been taken, too, and of the reserve where that is more: fast
/// writers do not run it through.
const LOOK_SHARE: u64 = 4;

/// Batches without a value are taken until this part of the reserve is left, in eighths; those that only remove keys,
/// as reaping does, leave less, so that what has been deleted can go.
const SMALL_RESERVE_EIGHTHS: u64 = 4;
const REMOVALS_RESERVE_EIGHTHS: u64 = 3;

/// All of it.
const VALUES_RESERVE_EIGHTHS: u64 = 8;

/// What a batch brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Brings {
    /// Values.
    Values,
    /// Keys and heads only.
    Heads,
    /// Nothing: it removes keys.
    Removals,
}

/// Compaction is thrifty while less than the reserve and this part of it is free: what it frees then is not missed a
/// moment later.
const NEAR_RESERVE_SHARE: u64 = 8;

/// Merges and compactions leave room for so many manifests: the one that makes them count is written beside the one
/// before it, and is larger by their tables. A store that cannot write its manifest frees nothing any more.
const JOBS_MANIFESTS: u64 = 2;

/// And so many bytes, for heads of files and for blocks of a file system.
const JOBS_LEFT_MIN: u64 = 16 << 10;

/// A segment is at most this part of a store's share of the disk, so that one can be compacted in a small part of it,
/// and little lies in the one that is written, where nothing can be freed.
const SEGMENT_DISK_SHARE: u64 = 16;

/// Smaller segments would be a file for every few values, and each file takes a handle.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;

/// At least so many segments are kept back: one for a compaction, and as much for merges by parts, which would be too
/// small else.
const LEAST_SEGMENTS: u64 = 2;

/// On a disk so small that these are more than this part of a store's share of it, that part is kept back instead.
const LEAST_DISK_SHARE: u64 = 8;

/// Where more than this times the comfortable room is free, it is looked over in one of [`LOOKED_OVER_EVERY`] turns: what
/// a few turns take makes no difference.
const PLENTY: u64 = 4;
const LOOKED_OVER_EVERY: u32 = 16;

/// How full the disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fullness {
    /// Nobody need be thrifty.
    Ample,
    /// Little more than the reserve is free.
    NearlyLow,
    /// Values are refused, or one was that is no larger than the room that is left.
    Low,
}

/// What is known of the room on the disk.
pub(super) struct Room {
    /// Bytes that were free at the last look of any store of the disk, if that is known; how many of those looks it
    /// knows.
    free: Option<u64>,
    shared_looks: u64,
    /// Bytes of the manifest.
    manifest: u64,
    /// As of the last turn.
    unflushed: Unflushed,
    looking: Option<Outcome<Option<u64>>>,
    looked_at: Monotonic,
    /// How many looks have been answered.
    looks: u64,
    /// Bytes that the journal had taken when it was looked.
    taken: u64,
    /// And those of all stores of the disk; those that they had taken at the last turn, of which this one had taken so
    /// many.
    all_taken: u64,
    all_taken_now: u64,
    noted: u64,
    /// Free bytes that are kept back, and how many are in any case, beside what is not flushed yet.
    reserve: u64,
    least: u64,
    /// The largest batch that was refused since there was room for one as large.
    wanted: u64,
    /// As of the last turn that added up: most turns need no more than this.
    fullness: Fullness,
    has_plenty: bool,
    turns: u32,
    /// A job has ended that took or gave room since the last look.
    is_stale: bool,
    /// What the disk has refused; it is tried again after a look.
    refused: Option<Error>,
    /// When a merge or a compaction found no room.
    shortage: Option<Monotonic>,
}

impl Room {
    /// As of the store's start, when so many bytes were free, and it had so many.
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

    /// How many looks have been answered: what did not fit may fit after the next one.
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

    /// A job has ended that took or gave room: the next turn looks.
    pub(super) fn look_soon(&mut self) {
        self.is_stale = true;
    }

    /// A merge or a compaction found no room: for a while none begins that needs some.
    pub(super) fn note_shortage(&mut self, now: Monotonic) {
        self.shortage = Some(now);
    }

    fn free_after(&self, taken: u64) -> Option<u64> {
        let since = (self.all_taken_now - self.all_taken) + (taken - self.noted);
        self.free.map(|free| free.saturating_sub(since))
    }
}

/// A store's share of the disk, where so many bytes are free and it has so many itself.
fn disk_share(options: &Options, free: Option<u64>, own: u64) -> u64 {
    free.map_or(u64::MAX, |free| (free / options.disk_room.stores()).saturating_add(own))
}

/// Tables are at most this part of it: those that a merge reads together are to fit in a small part of the disk.
const TABLE_DISK_SHARE: u64 = 128;

/// Smaller tables would be a file for every few hundred keys.
const TABLE_BYTES_MIN: u64 = 128 << 10;

/// How large tables of a store are: as the options say, but a small part of its share of the disk.
pub(super) fn table_bytes(options: &Options, free: Option<u64>, own: u64) -> u64 {
    let part = disk_share(options, free, own) / TABLE_DISK_SHARE;
    options.table_bytes_target.min(part.max(TABLE_BYTES_MIN))
}

/// How large segments of a store are: as the options say, but a small part of its share of the disk.
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

    /// Whether so little space is left that writes are refused, or one was that is no larger than what is left.
    pub(super) fn is_low(&self) -> bool {
        self.room.fullness == Fullness::Low
    }

    /// Whether it is low, or will soon be.
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

    /// So much is to be free where nobody need be thrifty.
    pub(super) fn comfortable(&self) -> u64 {
        let reserve = self.room.reserve;
        reserve.saturating_add(reserve / NEAR_RESERVE_SHARE).saturating_add(self.room.wanted)
    }

    /// How much of what batches without a value may use of the reserve is used, in thousandths: they are slowed by it,
    /// so that merges and compactions keep up with them.
    pub(super) fn reserve_used_thousandths(&self) -> u64 {
        let reserve = self.room.reserve;
        let theirs = reserve - reserve / 8 * SMALL_RESERVE_EIGHTHS;
        let used = self.free_now().map_or(0, |free| reserve.saturating_sub(free));
        used.saturating_mul(1000) / theirs.max(1)
    }

    /// Refuses a batch of so many bytes that would use the reserve, or more of it than one without a value may.
    #[inline]
    pub(super) fn check_room(&mut self, brings: impl FnOnce() -> Brings, bytes: usize) -> Result<(), Error> {
        if let Some(refused) = &self.room.refused {
            return Err(refused.clone());
        }
        // What the last turns and this batch take is far from the reserve.
        if self.room.has_plenty && bytes as u64 <= self.room.reserve {
            return Ok(());
        }
        let brings = brings();
        let waiting = (self.writer.waiting_bytes() + bytes) as u64;
        // What is left below is for merges: a flush of what was taken is not to use it. Values leave the whole reserve,
        // which has room for that.
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

    /// Bytes of the disk that are free, as far as is known; `None` if the disk cannot tell.
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

    /// Bytes that merges and compactions of this store may take: what is free, without what must be flushed and what
    /// others have claimed.
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

    /// Claims room for a merge or a compaction; `None` if there is not so much.
    pub(super) fn claim_room(&self, bytes: u64) -> Option<Claim> {
        let fits = bytes == 0 || bytes <= self.room_for_jobs();
        fits.then(|| self.options.disk_room.claim(bytes, self.free_now().unwrap_or(u64::MAX))).flatten()
    }

    /// Something that the store rests on has failed: it waits for room if that was all, else it takes no more writes.
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

    /// Looks at the free space when it is time, and lets go on what waited for it.
    pub(super) fn step_room(&mut self, now: Monotonic) {
        let waits = self.room.refused.is_some() || self.writer.refused().is_some();
        self.room.turns = self.room.turns.wrapping_add(1);
        let is_spared = self.room.has_plenty && !self.room.turns.is_multiple_of(LOOKED_OVER_EVERY);
        if is_spared && !waits && self.room.looking.is_none() {
            return;
        }

        let taken = self.writer.taken();
        self.note_taken(taken);
        if let Some(looking) = &self.room.looking {
            let Some(free) = looking.take() else { return };
            self.room.looking = None;
            self.room.free = free;
            let found = Found { free, all_taken: self.room.all_taken };
            self.room.shared_looks = self.options.disk_room.note_found(found);
            self.room.refused = None;
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
            return;
        }
        let is_idle = taken == self.room.taken && !waits && !self.is_low();
        let is_due = now.since(self.room.looked_at) >= if is_idle { LOOK_IDLE_EVERY } else { LOOK_EVERY };
        let share = (self.room.free.unwrap_or(0).max(self.room.reserve) / LOOK_SHARE).max(1);
        let has_run = self.room.all_taken_now - self.room.all_taken >= share;
        // What has ended is looked at once where it matters.
        let is_awaited = self.room.is_stale && self.is_nearly_low();
        if is_due || ((has_run || is_awaited) && !waits) {
            let looking = Outcome::new();
            self.spawn.spawn(Box::new(Look { folder: self.dir.clone(), free: looking.clone() }));
            (self.room.looking, self.room.looked_at, self.room.taken) = (Some(looking), now, taken);
            (self.room.all_taken, self.room.is_stale) = (self.room.all_taken_now, false);
        }
    }

    /// Tells the other stores of the disk what this one has taken, and keeps back as much as was asked for, and at
    /// least what it takes to make room again: what is not flushed yet, and a segment.
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
        // Deletions may use half of what is kept back: it is twice what jobs leave for manifests, so that some is left
        // for the jobs.
        let least = unflushed.saturating_add(self.room.least).saturating_add(2 * self.room.for_manifests());
        self.room.reserve = self.options.reserve_bytes.max(least);
        self.room.fullness = self.fullness_now();
        self.room.has_plenty = self.free_now().is_none_or(|free| free / PLENTY >= self.comfortable());
        self.writer.take_ahead(self.room.fullness == Fullness::Ample);
    }
}

/// Asks the disk. One that cannot tell is taken for one with room: it says so itself when there is none.
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
