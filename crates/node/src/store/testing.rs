//! What tests of stores run on: jobs that run when the test says, a clock that stands.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use super::Adapter;
use backends::{Kind, Settings};
use base::{Clock, Job, Monotonic, Progress, Spawn, Wall};
use engine::store::OpenReport;
use engine::{Durability, Machine};
use os::{OsClock, OsDisk, OsRng};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Jobs that wait until they are run.
#[derive(Default)]
pub struct Jobs(Mutex<Vec<Box<dyn Job>>>);

impl Jobs {
    /// Runs all, and tells how many there were.
    pub fn run(&self) -> usize {
        let jobs = std::mem::take(&mut *self.0.lock().unwrap());
        let count = jobs.len();
        for mut job in jobs {
            while job.slice(&mut OsDisk::blocking()) == Progress::More {}
        }
        count
    }
}

impl Spawn for Jobs {
    fn spawn(&self, job: Box<dyn Job>) {
        self.0.lock().unwrap().push(job);
    }
}

/// It is always the same time.
pub struct Standing;

impl Clock for Standing {
    fn now(&self) -> Monotonic {
        Monotonic(0)
    }

    fn wall(&self) -> Wall {
        Wall(1_700_000_000_000_000)
    }
}

/// Opens a store of `kind` in `folder`, or makes one.
pub fn open(kind: Kind, folder: &Path, jobs: &Arc<Jobs>) -> (Adapter, OpenReport) {
    let machine = Machine::new(OsDisk::blocking().blocking_handles(), OsClock::new(), OsRng::new());
    let settings = Settings { durability: Durability::None, ..Settings::default() };
    let platform = (Arc::clone(jobs) as Arc<dyn Spawn>, Arc::new(Standing) as Arc<dyn Clock>);
    Adapter::open(kind, folder, &settings, machine, platform).unwrap()
}
