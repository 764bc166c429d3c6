//! A store under test: opened on the real disk, driven by one thread in a closed loop, as a shard drives it.

use super::objects::Objects;
use super::told;
use crate::{Result, sys};
use base::{Clock, Spawn};
use engine::fold::{FoldEnd, FoldRequest, FoldVisitor, ScanId, ScanPage, ScanRequest};
use engine::store::{Event, Platform, StoreStats};
use engine::{Before, Error, Found, Lookup, Options, Store, Want, Write};
use os::{DiskCounters, DiskFigures, JobThreads, OsClock, OsDisk, OsRng};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Threads that read for lookups which would wait: what a server gives each shard.
const READERS: usize = 4;

/// Writes between two turns, at most: what a shard takes in a round from a few dozen connections.
const TURN_WRITES: u32 = 32;

/// What waits for a wake-up looks around again after this.
const NAP: Duration = Duration::from_millis(1);

/// So many turns in a row in which nothing is under way: then nothing is due.
const QUIET_TURNS: u32 = 50;

/// A wait that is worth a sleep: shorter ones are added up. Sleeps last a little longer than asked, so fewer follow.
const PACE_MIN: Duration = Duration::from_micros(50);

/// What counts of it at most.
const WAITED_AHEAD_MAX: Duration = Duration::from_millis(1);

/// A store under test.
pub struct Bed {
    /// The store.
    pub store: Store,
    /// How long it took to open.
    pub opening: Duration,
    disk: Arc<DiskCounters>,
    clock: OsClock,
    events: Vec<Event>,
    woken: Arc<AtomicBool>,
    writes: u32,
    /// When it must be done: a measurement ends.
    until: Instant,
    /// How long writes should have waited that have not.
    owed: Duration,
    /// How much longer than asked the last waits have been.
    waited_ahead: Duration,
    /// How long writes have waited because the store asked for it.
    pub paced: Duration,
    /// Writes that were refused and tried again.
    pub refused: u64,
    // After the store, whose jobs they run.
    _jobs: Arc<JobThreads>,
}

impl Bed {
    /// Opens the store in `dir`, or makes one. It is to be done with all that is asked of it within `time_max`.
    pub fn open(dir: &Path, options: Options, time_max: Duration) -> Result<Bed> {
        let begin = Instant::now();
        // By default the kernel adds up to 50 us to each sleep, as long as the shortest here.
        fs::write("/proc/self/timerslack_ns", "1000")?;
        let woken = Arc::new(AtomicBool::new(false));
        let (flag, owner) = (Arc::clone(&woken), thread::current());
        let wake: os::Wake = Arc::new(move || {
            flag.store(true, Ordering::Release);
            owner.unpark();
        });
        let disk = OsDisk::threaded(READERS, Arc::clone(&wake))?;
        let counters = disk.counters();
        let startup = Box::new(disk.blocking_handle());
        let jobs = Arc::new(JobThreads::new(1, &disk, wake)?);
        let clock = OsClock::new();
        let spawn: Arc<dyn Spawn> = Arc::<JobThreads>::clone(&jobs);
        let (disk, rng) = (Box::new(disk), Box::new(OsRng::new()));
        let platform = Platform { disk, startup, spawn, rng, clock: Arc::new(clock) };
        let (store, _) = Store::open(dir, options, platform).map_err(told)?;
        let opening = begin.elapsed();
        Ok(Bed {
            store,
            opening,
            disk: counters,
            clock,
            events: Vec::new(),
            woken,
            writes: 0,
            until: begin + time_max,
            owed: Duration::ZERO,
            waited_ahead: Duration::ZERO,
            paced: Duration::ZERO,
            refused: 0,
            _jobs: jobs,
        })
    }

    /// Writes an object, once writes have waited as long as the store has asked for, and longer only if it refuses more for now.
    pub fn put(&mut self, objects: &mut Objects, number: u64, version: u64) -> Result<()> {
        self.wait_owed();
        let (key, head, value) = objects.object(number, version);
        let write = [Write::Put { key, head, value: &value }];
        loop {
            match self.store.write(&write) {
                Ok(_) => break,
                Err(Error::Full { .. }) => {
                    self.refused += 1;
                    self.nap()?;
                }
                Err(error) => return Err(told(error)),
            }
        }
        self.go_on()
    }

    /// Whether the last write ended its turn.
    pub fn is_between_turns(&self) -> bool {
        self.writes == 0
    }

    /// Writes a batch over a version that is known, and what changes of the index, waiting as [`Bed::put`] does.
    pub fn write_over(&mut self, batch: &[Write<'_>], before: Before<'_>) -> Result<()> {
        self.wait_owed();
        while let Err(error) = self.store.write_over(batch, before) {
            match error {
                Error::Full { .. } => self.nap()?,
                error => return Err(told(error)),
            }
        }
        self.go_on()
    }

    /// Looks a key up, waiting for the disk if need be.
    pub fn lookup(&mut self, key: &[u8], want: Want) -> Result<Option<Found>> {
        let id = match self.store.lookup(key, want) {
            Lookup::Done(answer) => return answer.map_err(told),
            Lookup::NeedsIo(id) => id,
        };
        loop {
            self.turn()?;
            let ended = self.take(|event| matches!(event, Event::Lookup(ended, _) if *ended == id));
            if let Some(Event::Lookup(_, answer)) = ended {
                return answer.map_err(told);
            }
            thread::park_timeout(NAP);
        }
    }

    /// One page of a scan.
    pub fn scan(&mut self, request: ScanRequest) -> Result<ScanPage> {
        let id = self.begin_scan(request)?;
        self.wait_scan(id)
    }

    /// The same of a scan that goes ahead, as a node's do for index queries.
    pub fn scan_ahead(&mut self, request: ScanRequest) -> Result<ScanPage> {
        let id = self.store.scan_ahead(request).map_err(told)?;
        self.wait_scan(id)
    }

    fn wait_scan(&mut self, id: ScanId) -> Result<ScanPage> {
        loop {
            self.turn()?;
            if let Some(page) = self.ended_scan(id)? {
                return Ok(page);
            }
            thread::park_timeout(NAP);
        }
    }

    /// A fold, from its begin to its end.
    pub fn fold(&mut self, request: FoldRequest, visitor: FoldVisitor) -> Result<FoldEnd> {
        let id = self.store.fold(request, visitor).map_err(told)?;
        loop {
            self.turn()?;
            let ended = self.take(|event| matches!(event, Event::Fold(ended, _) if *ended == id));
            if let Some(Event::Fold(_, end)) = ended {
                return end.map_err(told);
            }
            thread::park_timeout(NAP);
        }
    }

    /// Begins a scan that goes on beside other work.
    pub fn begin_scan(&mut self, request: ScanRequest) -> Result<ScanId> {
        self.store.scan(request).map_err(told)
    }

    /// The page of a scan that was begun, once a turn has brought it.
    pub fn ended_scan(&mut self, id: ScanId) -> Result<Option<ScanPage>> {
        match self.take(|event| matches!(event, Event::Scan(ended, _) if *ended == id)) {
            Some(Event::Scan(_, page)) => page.map(Some).map_err(told),
            _ => Ok(None),
        }
    }

    /// Takes an event that has come. The others stay for who waits for them: a scan may end while a lookup waits.
    fn take(&mut self, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        let at = self.events.iter().position(wanted)?;
        Some(self.events.swap_remove(at))
    }

    /// Lets the store end everything that is under way or due.
    pub fn rest(&mut self) -> Result<()> {
        loop {
            self.store.tick();
            self.turn()?;
            if let Some(error) = self.store.fenced() {
                return Err(told(error));
            }
            if self.store.is_at_rest() {
                return Ok(());
            }
            thread::park_timeout(NAP);
        }
    }

    /// Lets the store end everything, compaction included: it may wait for its pace, and begin again with the next choice.
    pub fn settle(&mut self) -> Result<()> {
        let mut quiet = 0;
        while quiet < QUIET_TURNS {
            self.rest()?;
            quiet = if self.store.is_compacting() { 0 } else { quiet + 1 };
            thread::park_timeout(NAP);
        }
        Ok(())
    }

    /// What it does and holds.
    pub fn stats(&self) -> StoreStats {
        self.store.stats()
    }

    /// What its disk has done.
    pub fn disk(&self) -> DiskFigures {
        self.disk.snapshot()
    }

    /// Stops the store cleanly.
    pub fn close(mut self) -> Result<()> {
        self.store.begin_close();
        loop {
            self.store.tick();
            self.turn()?;
            if let Some(Event::Closed(result)) = self.take(|event| matches!(event, Event::Closed(_))) {
                return result.map_err(told);
            }
            thread::park_timeout(NAP);
        }
    }

    /// After a write: ends the turn when that is due, or when the next write is to wait.
    fn go_on(&mut self) -> Result<()> {
        self.owed += self.store.pace();
        self.writes += 1;
        let full = self.writes >= TURN_WRITES || self.is_wait_due();
        if full || self.woken.swap(false, Ordering::Acquire) {
            self.writes = 0;
            self.turn()?;
        }
        Ok(())
    }

    fn is_wait_due(&self) -> bool {
        self.owed >= self.waited_ahead + PACE_MIN
    }

    fn wait_owed(&mut self) {
        if !self.is_wait_due() {
            return;
        }
        let begin = Instant::now();
        thread::sleep(self.owed - self.waited_ahead);
        let waited = begin.elapsed();
        self.paced += waited;
        // A processor that came late is no reason to write faster than asked for long.
        self.waited_ahead = (self.waited_ahead + waited).saturating_sub(self.owed).min(WAITED_AHEAD_MAX);
        self.owed = Duration::ZERO;
    }

    fn nap(&mut self) -> Result<()> {
        self.turn()?;
        thread::park_timeout(NAP);
        Ok(())
    }

    /// A turn of the store.
    pub fn turn(&mut self) -> Result<()> {
        self.store.turn(self.clock.now(), &mut self.events);
        if Instant::now() >= self.until {
            return Err("the store was not done in time".into());
        }
        Ok(())
    }
}

/// User and system time of this process, for a stretch of work.
pub struct Cpu {
    begin: Duration,
}

impl Cpu {
    /// From now on.
    pub fn start() -> Result<Cpu> {
        Ok(Cpu { begin: sys::process_cpu(std::process::id())? })
    }

    /// Microseconds for each of `ops`.
    pub fn us_per(&self, ops: u64) -> Result<f64> {
        let spent = sys::process_cpu(std::process::id())? - self.begin;
        Ok(spent.as_secs_f64() * 1e6 / ops as f64)
    }
}

/// How long this thread has waited for a processor so far.
pub struct RunQueue(File);

impl RunQueue {
    /// Of the calling thread.
    pub fn open() -> Result<RunQueue> {
        Ok(RunQueue(File::open("/proc/thread-self/schedstat")?))
    }

    /// In all.
    pub fn waited(&self) -> Result<Duration> {
        let mut bytes = [0; 96];
        let len = self.0.read_at(&mut bytes, 0)?;
        let text = std::str::from_utf8(&bytes[..len])?;
        let nanos = text.split_whitespace().nth(1).ok_or("schedstat has another form")?.parse()?;
        Ok(Duration::from_nanos(nanos))
    }
}
