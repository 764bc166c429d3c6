//! Room on the disk: what happens when there is none, or no file handle left.
//!
//! 1. The free space is looked at once a second while something is written, and whenever the journal has taken a quarter of the reserve, room ahead of
//!    its records included. While less than [`Options::reserve_bytes`](super::Options::reserve_bytes) is left, writes are refused
//!    ([`Error::Exhausted`]); what was taken before goes on: the reserve is for its flush, its manifest, and for compactions,
//!    which begin at once, since they free more than they take. Batches without a value may use the upper half of the reserve,
//!    too: deletions, drops of ranges, an owner's tombstones and notes.
//! 2. Where the disk has no room all the same, because somebody else has used it up, what needed it waits for the next look
//!    and is tried again: a group of the journal, in its place, since nothing of it was synced; a flush, a merge or a manifest
//!    from its beginning. Meanwhile writes are refused, and a version that waits so is an error to its readers; all else is
//!    read as ever.
//! 3. When there is room again, writes are taken again.
//!
//! Nothing here is told by an error that could mean lost bytes: a failed sync fences the store for good.

use super::Store;
use crate::error::Error;
use base::disk;
use base::spawn::Outcome;
use base::{Disk, Job, Monotonic, Progress};
use std::path::PathBuf;
use std::time::Duration;

/// How often the free space is looked at, and how soon after a refusal the disk is asked again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The same while nothing is written: the first write behind it has it looked at once more, and a look wakes two threads.
const LOOK_IDLE_EVERY: Duration = Duration::from_secs(10);

/// It is looked at when this part of the reserve has been taken, too, so that fast writers do not run it through.
const LOOK_RESERVE_SHARE: u64 = 4;

/// Batches without a value are taken until this part of the reserve is left.
const DELETIONS_RESERVE_SHARE: u64 = 2;

/// What is known of the room on the disk.
#[derive(Default)]
pub(super) struct Room {
    /// Bytes that were free at the last look, if that is known.
    free: Option<u64>,
    looking: Option<Outcome<Option<u64>>>,
    looked_at: Monotonic,
    /// Bytes that the journal had taken then.
    taken: u64,
    /// What the disk has refused; it is tried again after a look.
    refused: Option<Error>,
}

impl Room {
    /// As of the store's start.
    pub(super) fn new(free: Option<u64>, now: Monotonic) -> Room {
        Room { free, looked_at: now, ..Room::default() }
    }
}

impl Store {
    /// Why the store takes no writes for now, or at all; what is durable is read as ever.
    pub fn refuses_writes(&self) -> Option<Error> {
        self.unfinished().or_else(|| self.reserve_is_kept(1).err())
    }

    /// The same of batches without a value, such as deletions.
    pub fn refuses_deletions(&self) -> Option<Error> {
        self.unfinished().or_else(|| self.reserve_is_kept(DELETIONS_RESERVE_SHARE).err())
    }

    /// Why what has been written is not acknowledged, if there is no telling when it will be.
    pub fn held_up(&self) -> Option<Error> {
        self.fenced().or_else(|| self.writer.refused().cloned())
    }

    /// Why a flush or a compaction will not end, if there is no telling when it will.
    pub fn unfinished(&self) -> Option<Error> {
        self.held_up().or_else(|| self.room.refused.clone())
    }

    /// Whether so little space is left that writes are refused.
    pub(super) fn is_low(&self) -> bool {
        self.reserve_is_kept(1).is_err()
    }

    /// Refuses a batch that would use the reserve, or more of it than one without a value may.
    pub(super) fn check_room(&self, is_small: bool) -> Result<(), Error> {
        if let Some(refused) = &self.room.refused {
            return Err(refused.clone());
        }
        self.reserve_is_kept(if is_small { DELETIONS_RESERVE_SHARE } else { 1 })
    }

    fn reserve_is_kept(&self, share: u64) -> Result<(), Error> {
        if base::planted!(NoReserve) {
            return Ok(());
        }
        match self.room.free {
            Some(free) if free < self.options.reserve_bytes / share => Err(self.reserve_used(free)),
            _ => Ok(()),
        }
    }

    #[cold]
    fn reserve_used(&self, free: u64) -> Error {
        let reserve = self.options.reserve_bytes;
        Error::Exhausted(format!("{free} bytes are free on the disk, of which {reserve} are a reserve"))
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
        if let Some(looking) = &self.room.looking {
            let Some(free) = looking.take() else { return };
            self.room.looking = None;
            self.room.free = free;
            self.room.refused = None;
            self.writer.try_again();
            return;
        }
        let waits = self.room.refused.is_some() || self.writer.refused().is_some();
        let taken = self.writer.taken();
        let is_idle = taken == self.room.taken && !waits && !self.is_low();
        let due = now.since(self.room.looked_at) >= if is_idle { LOOK_IDLE_EVERY } else { LOOK_EVERY };
        let share = self.options.reserve_bytes / LOOK_RESERVE_SHARE;
        let ran = share > 0 && taken - self.room.taken >= share;
        if (due && (waits || share > 0)) || (ran && !waits) {
            let looking = Outcome::new();
            self.spawn.spawn(Box::new(Look { folder: self.dir.clone(), free: looking.clone() }));
            (self.room.looking, self.room.looked_at, self.room.taken) = (Some(looking), now, taken);
        }
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
