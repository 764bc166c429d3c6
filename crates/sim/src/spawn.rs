//! Background jobs, one slice at a time between other events.
//!
//! Each slice is an event of the world, so a job's slices mix with everything else as the seed has it, and a
//! crash falls between any two of them, or inside one by the disk's armed power cut.

use base::{Disk, Job, Progress, Spawn};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A job of one node, for events to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// One node's jobs. Clones share them.
#[derive(Clone, Default)]
pub struct SimSpawn(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    spawned: u64,
    /// Jobs whose first slice the world has yet to schedule.
    started: Vec<JobId>,
    jobs: BTreeMap<JobId, Box<dyn Job>>,
}

impl SimSpawn {
    /// A node without jobs.
    pub fn new() -> SimSpawn {
        SimSpawn::default()
    }

    /// The jobs that were spawned since the last call: the world schedules the first slice of each.
    pub fn take_started(&self) -> Vec<JobId> {
        std::mem::take(&mut self.lock().started)
    }

    /// Runs one slice with `disk`, a handle whose operations complete at once. After [`Progress::More`] the
    /// world schedules another; after [`Progress::Done`] it wakes the node's shards. A job that died with its
    /// process is done.
    pub fn slice(&self, id: JobId, disk: &mut dyn Disk) -> Progress {
        // Out of the map while it runs: a job may spawn another.
        let Some(mut job) = self.lock().jobs.remove(&id) else { return Progress::Done };
        let progress = job.slice(disk);
        if progress == Progress::More {
            self.lock().jobs.insert(id, job);
        }
        progress
    }

    /// Drops all jobs: the process has died.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.started.clear();
        // A job's drop may reach back here: let go of the lock first.
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        drop(jobs);
    }

    /// How many jobs are under way.
    pub fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    /// True when no job is under way.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // The map is whole whenever a panic can leave this lock, so poison is no reason to stop.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spawn for SimSpawn {
    fn spawn(&self, job: Box<dyn Job>) {
        let mut state = self.lock();
        state.spawned += 1;
        let id = JobId(state.spawned);
        state.jobs.insert(id, job);
        state.started.push(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DiskConfig, SimDisk};
    use crate::trace::Keep;
    use crate::{Seed, SimTime, Trace};
    use base::spawn::Outcome;

    struct Countdown {
        left: u32,
        spawn: SimSpawn,
        outcome: Outcome<&'static str>,
    }

    impl Job for Countdown {
        fn slice(&mut self, _disk: &mut dyn Disk) -> Progress {
            self.left -= 1;
            if self.left > 0 {
                return Progress::More;
            }
            self.outcome.set("lift-off");
            self.spawn.spawn(Box::new(Countdown {
                left: 9,
                spawn: self.spawn.clone(),
                outcome: Outcome::new(),
            }));
            Progress::Done
        }
    }

    #[test]
    fn slices_run_when_the_world_says_and_die_with_the_process() {
        let trace = Trace::new(SimTime::default(), Keep::Hash);
        let disk = SimDisk::new("disk", DiskConfig::sound("/data"), Seed(1).stream("disk", 0), trace);
        let mut handle = disk.immediate();
        let (spawn, outcome) = (SimSpawn::new(), Outcome::new());
        spawn.spawn(Box::new(Countdown { left: 2, spawn: spawn.clone(), outcome: outcome.clone() }));
        let [job] = spawn.take_started()[..] else { panic!("one job was spawned") };
        assert_eq!((spawn.slice(job, &mut handle), outcome.take()), (Progress::More, None));
        assert_eq!((spawn.slice(job, &mut handle), outcome.take()), (Progress::Done, Some("lift-off")));
        let [next] = spawn.take_started()[..] else { panic!("the job spawned another") };
        assert_eq!((spawn.len(), spawn.slice(next, &mut handle)), (1, Progress::More));
        spawn.clear();
        assert!(spawn.is_empty() && spawn.take_started().is_empty());
        assert_eq!(spawn.slice(next, &mut handle), Progress::Done, "the dead have nothing more to do");
    }
}
