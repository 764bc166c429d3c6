//! Job threads: background work of one shard, slice by slice.
//!
//! Jobs take turns: after a slice a job goes to the end of the queue, so that a long merge does not hold back
//! a flush. Job threads have a lower priority than the shards' threads, which answer clients.

use crate::disk::{OsDisk, Wake};
use crate::workers::Workers;
use base::{Job, Progress, Spawn};
use std::io;

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
        let make_handle = disk.blocking_handles();
        let workers = Workers::start("annulet-job", threads, JOBS_MAX, move || {
            lower_priority();
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
}

impl Spawn for JobThreads {
    fn spawn(&self, job: Box<dyn Job>) {
        assert!(self.workers.push(job).is_ok(), "more than {JOBS_MAX} jobs (JOBS_MAX) are waiting");
    }
}

impl Drop for JobThreads {
    fn drop(&mut self) {
        self.workers.abandon();
    }
}

/// On Linux the priority is the calling thread's own. Without it jobs only compete harder, so a refusal is
/// no error.
fn lower_priority() {
    rustix::process::setpriority_process(None, JOB_NICENESS).ok();
}

#[cfg(test)]
mod tests;
