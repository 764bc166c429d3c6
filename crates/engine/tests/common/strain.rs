//! A load that is faster than what a store does in the background, and what becomes of the store meanwhile.

use super::HandClock;
use super::disk::MemoryDisk;
use base::rng::SplitMix64;
use base::{Clock, Disk, Job, Progress, Rng, Spawn};
use engine::store::{Event, OpenReport, Platform};
use engine::{CompactionSchedule, Durability, Embedded, Error, Machine, Options, Store, Write};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What background work has for itself: a slice for so many writes. A flush takes some six of them, and a memtable some
/// forty writes, so that the load is several times too fast.
const WRITES_FOR_A_SLICE: u64 = 30;

/// Turns and slices after which a store that has no more work must be at rest.
const REST_STEPS_MAX: usize = 100_000;

const KEYS: u64 = 3000;

/// Jobs that go on only when they are told to, a slice of each in turn, urgent ones first.
#[derive(Clone, Default)]
pub struct SlowJobs(Arc<Mutex<VecDeque<Box<dyn Job>>>>);

impl Spawn for SlowJobs {
    fn spawn(&self, job: Box<dyn Job>) {
        let mut jobs = self.0.lock().unwrap();
        let urgent = jobs.iter().take_while(|job| job.is_urgent()).count();
        let at = if job.is_urgent() { urgent } else { jobs.len() };
        jobs.insert(at, job);
    }
}

impl SlowJobs {
    /// One slice of the job that has waited longest; false if there is none.
    pub fn run_slice(&self, disk: &mut dyn Disk) -> bool {
        let Some(mut job) = self.0.lock().unwrap().pop_front() else { return false };
        if job.slice(disk) == (Progress::More {}) {
            self.0.lock().unwrap().push_back(job);
        }
        true
    }
}

/// A store whose background work is done when a test says so.
pub struct Slow {
    pub store: Store,
    pub disk: MemoryDisk,
    pub jobs: SlowJobs,
    pub events: Vec<Event>,
    clock: HandClock,
}

impl Slow {
    pub fn open(options: Options) -> Slow {
        Slow::open_on(MemoryDisk::default(), options).0
    }

    pub fn open_on(disk: MemoryDisk, options: Options) -> (Slow, OpenReport) {
        let (clock, jobs) = (HandClock::new(), SlowJobs::default());
        let platform = Platform {
            disk: Box::new(disk.clone()),
            startup: Box::new(disk.clone()),
            spawn: Arc::new(jobs.clone()),
            rng: Box::new(SplitMix64::new(1)),
            clock: Arc::new(clock.clone()),
        };
        let (store, report) = Store::open(Path::new("/store"), options, platform).unwrap();
        (Slow { store, disk, jobs, events: Vec::new(), clock }, report)
    }

    pub fn turn(&mut self) {
        self.store.tick();
        self.store.turn(self.clock.now(), &mut self.events);
    }

    pub fn run_slice(&mut self) -> bool {
        self.jobs.run_slice(&mut self.disk)
    }

    /// Lets it end everything that is due. Time passes: what compaction may do when nobody writes, the clock grants.
    pub fn rest(&mut self) {
        let mut quiet = 0;
        for _ in 0..REST_STEPS_MAX {
            self.clock.advance_ms(1);
            self.turn();
            quiet = if self.run_slice() || !self.store.is_at_rest() { 0 } else { quiet + 1 };
            if quiet == 10 {
                return;
            }
        }
        panic!("it never comes to rest: {:?}", self.store.stats());
    }

    fn files(&self, suffix: &str) -> usize {
        self.disk.names().iter().filter(|name| name.to_str().unwrap().ends_with(suffix)).count()
    }
}

/// The store on a disk as a crash has left it, opened by a program whose jobs run within its calls.
pub fn reopen(disk: MemoryDisk, options: &Options) -> Embedded {
    let machine = Machine::new(move || disk.clone(), HandClock::new(), SplitMix64::new(2));
    Embedded::open(Path::new("/store"), options.clone(), machine).unwrap()
}

pub fn options() -> Options {
    Options {
        durability: Durability::None,
        inline_value_bytes_max: 64,
        memtable_bytes_max: 8 << 10,
        segment_bytes_target: 256 << 10,
        table_bytes_target: 8 << 10,
        leveled_bytes_target: 64 << 10,
        block_cache_bytes: 16 << 10,
        compaction: CompactionSchedule::Continuous,
        reserve_bytes: 0,
        ..Options::default()
    }
}

/// What a load has met, and the most that there was of everything.
#[derive(Debug, Default)]
pub struct Strained {
    /// Writes that were refused and tried again.
    pub refused: u64,
    /// Refusals of one write in a row.
    pub refused_in_a_row: u64,
    /// Bytes in memtables.
    pub memtable_bytes: usize,
    /// Tables of level 0.
    pub level0_tables: usize,
    /// Segments and tables that were on the disk when it was over, a snapshot long gone, and that the store does not
    /// have.
    pub files_left: usize,
    /// Keys that did not have their last value after a restart.
    pub wrong: usize,
}

/// Writes as fast as the store takes it, for a third of the time beside a snapshot that is held.
pub fn strained(writes: u64) -> Strained {
    let (mut slow, mut strained) = (Slow::open(options()), Strained::default());
    let (mut rng, mut model, mut held) = (SplitMix64::new(6), BTreeMap::new(), None);
    for number in 0..writes {
        if number == writes / 3 {
            held = Some(slow.store.snapshot());
        } else if number == writes * 2 / 3 {
            held = None;
        }
        let key = rng.below(KEYS).to_be_bytes();
        let value = vec![number as u8; if number.is_multiple_of(4) { 200 } else { 40 }];
        let head = number.to_le_bytes();
        let mut refused = 0;
        while let Err(error) = slow.store.write(&[Write::Put { key: &key, head: &head, value: &[&value] }]) {
            assert!(matches!(error, Error::Full { .. }), "{error}");
            refused += 1;
            assert!(refused < 1000, "refused for good: {error}");
            slow.turn();
            slow.run_slice();
        }
        model.insert(key, (head, value));
        strained.refused += refused;
        strained.refused_in_a_row = strained.refused_in_a_row.max(refused);
        if number.is_multiple_of(WRITES_FOR_A_SLICE) {
            slow.turn();
            slow.run_slice();
            let stats = slow.store.stats();
            strained.memtable_bytes = strained.memtable_bytes.max(stats.memtable_bytes);
            strained.level0_tables = strained.level0_tables.max(stats.levels[0].tables);
        }
    }
    drop(held);
    slow.rest();
    let stats = slow.store.stats();
    // One segment is ready beside those that have been used.
    strained.files_left = (slow.files(".tbl") + slow.files(".seg")) - (stats.tables + stats.segments + 1);
    let mut store = reopen(slow.disk.after_kill(), &options());
    for (key, (head, value)) in &model {
        let found = store.get(key).unwrap();
        let is_right =
            found.is_some_and(|found| found.head[..] == *head && found.value.unwrap()[..] == *value);
        strained.wrong += usize::from(!is_right);
    }
    strained
}
