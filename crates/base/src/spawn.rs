//! Background work: jobs cut into slices.
//!
//! A flush, a merge, a fold, the making of the next journal segment: each is a [`Job`] that is handed to a
//! [`Spawn`]. On a real machine a job thread calls its slices one after another, with a disk of its own whose
//! operations block; in a simulation the scheduler calls one slice at a time between other events. A job gives
//! its result back through a cell that it shares with whoever spawned it ([`Outcome`]).

use crate::Disk;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whether a job has more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Call again.
    More,
    /// The result is in its outcome; the job can be dropped.
    Done,
}

/// One piece of background work.
pub trait Job: Send {
    /// Does a bounded amount of work: about a millisecond, or one megabyte of I/O. `disk` completes each
    /// operation before `submit` returns.
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress;

    /// Whether it has one slice, and writes may wait for it: it goes before those that wait for their turn. A store has
    /// one sync and one segment of these under way at most, so others have their turns.
    fn is_urgent(&self) -> bool {
        false
    }
}

/// Where jobs are handed over.
pub trait Spawn: Send + Sync {
    /// Takes `job` and runs it to its end unless the process ends first. After its last slice the spawner's
    /// shard is woken.
    fn spawn(&self, job: Box<dyn Job>);
}

/// Where a thread waits for jobs that run on others.
pub trait Await: Send + Sync {
    /// Returns when a job has ended since it returned last, or after `at_most`. For one thread at a time.
    fn wait(&self, at_most: Duration);
}

/// The cell through which a job's result comes back.
#[derive(Debug)]
pub struct Outcome<T>(Arc<Mutex<Option<T>>>);

impl<T> Outcome<T> {
    /// An empty cell.
    pub fn new() -> Outcome<T> {
        Outcome(Arc::new(Mutex::new(None)))
    }

    /// Puts the result in; the last thing that a job does.
    pub fn set(&self, value: T) {
        *self.lock() = Some(value);
    }

    /// Takes the result out, if it is there.
    pub fn take(&self) -> Option<T> {
        self.lock().take()
    }

    // A panic while holding this lock leaves a whole value behind, so poison is no reason to stop.
    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for Outcome<T> {
    fn default() -> Self {
        Outcome::new()
    }
}

impl<T> Clone for Outcome<T> {
    fn clone(&self) -> Self {
        Outcome(Arc::clone(&self.0))
    }
}
