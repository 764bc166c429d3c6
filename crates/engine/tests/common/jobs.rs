//! Jobs that run while a store waits for them, and at no other time: in a test, what happens elsewhere.

use base::{Await, Disk, Job, Progress, Spawn};
use engine::Jobs;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A queue of jobs, which take turns.
struct WhileWaiting {
    jobs: Mutex<VecDeque<Box<dyn Job>>>,
    disk: Mutex<Box<dyn Disk>>,
}

/// Jobs of a store, each wait for which is a slice of one.
pub fn while_waiting(disk: impl Disk + 'static) -> Jobs {
    let jobs = Arc::new(WhileWaiting { jobs: Mutex::default(), disk: Mutex::new(Box::new(disk)) });
    Jobs { spawn: Arc::clone(&jobs) as Arc<dyn Spawn>, ended: Box::new(Waits(jobs)) }
}

impl Spawn for WhileWaiting {
    fn spawn(&self, job: Box<dyn Job>) {
        self.jobs.lock().unwrap().push_back(job);
    }
}

struct Waits(Arc<WhileWaiting>);

impl Await for Waits {
    fn wait(&self, _at_most: Duration) {
        let Some(mut job) = self.0.jobs.lock().unwrap().pop_front() else { return };
        if job.slice(&mut **self.0.disk.lock().unwrap()) == Progress::More {
            self.0.jobs.lock().unwrap().push_back(job);
        }
    }
}
