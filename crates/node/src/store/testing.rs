//! What tests of stores run on: jobs that run when the test says, a clock that stands; and what several of them look
//! at.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use super::Adapter;
use backends::{Kind, Settings};
use base::{Clock, Job, Monotonic, Progress, Spawn, Wall};
use engine::fold::Visit;
use engine::store::{Event, LookupId, OpenReport};
use engine::{Durability, Found, Machine};
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

    fn lease(&self) -> Monotonic {
        self.now()
    }
}

/// Opens a store of `kind` in `folder`, or makes one.
pub fn open(kind: Kind, folder: &Path, jobs: &Arc<Jobs>) -> (Adapter, OpenReport) {
    let machine = Machine::new(OsDisk::blocking().blocking_handles(), OsClock::new(), OsRng::new());
    let settings = Settings { durability: Durability::None, ..Settings::default() };
    let platform = (Arc::clone(jobs) as Arc<dyn Spawn>, Arc::new(Standing) as Arc<dyn Clock>);
    Adapter::open(kind, folder, &settings, machine, platform).unwrap()
}

/// What a lookup has found, taken from the events that have come.
pub fn take_found(events: &mut Vec<Event>, id: LookupId) -> Option<Found> {
    let is_it = |event: &Event| matches!(event, Event::Lookup(of, _) if *of == id);
    let at = events.iter().position(is_it).unwrap();
    let Event::Lookup(_, found) = events.remove(at) else { unreachable!() };
    found.unwrap()
}

/// Of keys that are numbers the first three of each ten, the last of them with a leap; what follows is skipped, or
/// leapt over.
pub fn three_of_ten(key: &[u8]) -> Visit {
    let number: u32 = std::str::from_utf8(key).unwrap().parse().unwrap();
    let next = format!("{:04}", number / 10 * 10 + 10).into_bytes();
    match number % 10 {
        0 | 1 => Visit::Take,
        2 => Visit::TakeAndSeek(next),
        3..7 => Visit::Skip,
        _ => Visit::Seek(next),
    }
}
