//! Job threads: background work of one shard, slice by slice.
//!
//! Jobs take turns: after a slice a job goes to the end of the queue, so that a long merge does not hold back
//! a flush. One that writes may wait for, which has one slice, goes before the others; several such go as they came. A
//! shard's job threads have a lower priority than its own thread, which answers clients.

use crate::disk::{OsDisk, Wake};
use crate::workers::Workers;
use base::{Await, Job, Progress, Spawn};
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How many jobs may wait. An engine has one flush, a merge for each level and a few folds under way, so
/// reaching this is a bug of its bounds.
pub const JOBS_MAX: usize = 1024;

/// The nice value of a job thread: about a third of the share of a busy core that a shard gets. Lower, and
/// flushes starve under load until writes have to wait for them.
const JOB_NICENESS: i32 = 5;

/// Threads that run jobs.
///
/// Dropping it ends the threads after the slices under way. Jobs that were not at their end are then gone, as
/// after a crash, so whoever needs a job's outcome waits for that first.
pub struct JobThreads {
    workers: Workers<Box<dyn Job>>,
}

impl JobThreads {
    /// Starts `threads` threads, one being the usual number. Their disks share the files of `disk`; `wake` is
    /// called after each job's last slice.
    pub fn new(threads: usize, disk: &OsDisk, wake: Wake) -> io::Result<JobThreads> {
        JobThreads::start(threads, disk, wake, || lower_priority(JOB_NICENESS))
    }

    fn start(threads: usize, disk: &OsDisk, wake: Wake, begin: fn()) -> io::Result<JobThreads> {
        let make_handle = disk.blocking_handles();
        let workers = Workers::start("annulet-job", threads, JOBS_MAX, move || {
            begin();
            let wake = Wake::clone(&wake);
            let mut disk = make_handle();
            move |mut job: Box<dyn Job>| match job.slice(&mut disk) {
                Progress::More => Some(job),
                Progress::Done => {
                    drop(job);
                    wake();
                    None
                }
            }
        })?;
        Ok(JobThreads { workers })
    }

    /// The same for a thread without a loop of its own, and where it waits for them. They have the priority of all
    /// others: a program may have hundreds that are ready to run, and writes would wait for a thread that gets less
    /// than each of these.
    pub fn awaited(threads: usize, disk: &OsDisk) -> io::Result<(JobThreads, JobsEnded)> {
        let ended = JobsEnded::default();
        let rung = Arc::clone(&ended.0);
        let jobs = JobThreads::start(threads, disk, Arc::new(move || rung.ring()), || ())?;
        Ok((jobs, ended))
    }
}

/// Where a thread waits for its jobs to end ([`JobThreads::awaited`]). What ends while it does not wait is remembered.
#[derive(Debug, Default)]
pub struct JobsEnded(Arc<Bell>);

#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.heard.notify_one();
    }
}

impl Await for JobsEnded {
    fn wait(&self, at_most: Duration) {
        let rung = self.0.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = self.0.heard.wait_timeout_while(rung, at_most, |rung| !*rung);
        *heard.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

impl Spawn for JobThreads {
    fn spawn(&self, job: Box<dyn Job>) {
        let pushed = if job.is_urgent() { self.workers.push_urgent(job) } else { self.workers.push(job) };
        assert!(pushed.is_ok(), "more than {JOBS_MAX} jobs (JOBS_MAX) are waiting");
    }
}

impl Drop for JobThreads {
    fn drop(&mut self) {
        self.workers.abandon();
    }
}

/// Gives the calling thread this nice value: on Linux it is the thread's own. Without it the thread only competes
/// harder, so a refusal is no error.
pub fn lower_priority(niceness: i32) {
    rustix::process::setpriority_process(None, niceness).ok();
}

#[cfg(test)]
mod tests;
