//! A store for a program that would rather wait: each call returns when it is done.
//!
//! The one that has it is its owner: writes and everything else go through it, one at a time. Disk operations are
//! carried out inside the call that causes them. So are jobs, if the machine has nobody to run them: then a call that
//! fills the memtable pays for its flush, and a program has no thread but its own. With [`Machine::with_jobs`] they run
//! elsewhere, calls go on meanwhile, and a write waits as long as the store asks ([`Store::pace`]), or until there is
//! room. The server does not use this; tools, tests and programs without a loop of their own do.
//!
//! What jobs on other threads have done is taken by the calls that follow, as by the turns of a shard: a store that
//! nobody calls keeps what a flush of its last writes has freed until somebody does.
//!
//! ```
//! # fn main() -> Result<(), engine::Error> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! use engine::{Embedded, Machine, Options};
//!
//! let machine = Machine::new(os::OsDisk::blocking().blocking_handles(), os::OsClock::new(), os::OsRng::new());
//! let mut store = Embedded::open(folder.path(), Options::default(), machine)?;
//! store.put(b"key", b"head", b"value")?;
//! assert_eq!(store.head(b"key")?.map(|found| found.head), Some("head".into()));
//! assert_eq!(store.get(b"key")?.and_then(|found| found.value), Some("value".into()));
//! store.delete(b"key")?;
//! assert_eq!(store.get(b"key")?, None);
//! store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! With a thread of the store's own for its jobs:
//!
//! ```
//! # fn main() -> Result<(), engine::Error> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! use engine::{Embedded, Jobs, Machine, Options};
//! use std::sync::Arc;
//!
//! let disks = os::OsDisk::blocking().blocking_handles();
//! let machine = Machine::new(disks.clone(), os::OsClock::new(), os::OsRng::new()).with_jobs(move || {
//!     let (spawn, ended) = os::JobThreads::awaited(1, &disks())?;
//!     Ok(Jobs { spawn: Arc::new(spawn), ended: Box::new(ended) })
//! });
//! let mut store = Embedded::open(folder.path(), Options::default(), machine)?;
//! store.put(b"key", b"head", b"value")?;
//! store.flush()?;
//! store.close()?;
//! # Ok(())
//! # }
//! ```

use crate::entry::Seq;
use crate::error::Error;
use crate::fold::{ScanPage, ScanRequest};
use crate::index::Before;
use crate::load::BulkLoad;
use crate::proposals::GroupBatch;
use crate::read::{Reader, SharedBlocks, Snapshot};
use crate::store::{
    Condition, Durability, Event, Found, LOOKUPS_PARKED_MAX, Lookup, LookupId, OpenReport, Options, Platform,
    Store, Want, Write, WriteIf, destroy,
};
use crate::table::Table;
use base::{Await, Clock, Disk, FastMap, Job, Monotonic, Progress, Rng, Spawn};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Makes handles of one disk.
pub type MakeDisk = Arc<dyn Fn() -> Box<dyn Disk> + Send + Sync>;

/// Somebody who runs a store's jobs, and where its owner waits for them.
pub struct Jobs {
    /// Runs them beside the owner's calls.
    pub spawn: Arc<dyn Spawn>,
    /// Tells of their ends.
    pub ended: Box<dyn Await>,
}

/// Makes [`Jobs`] for a store.
type MakeJobs = Arc<dyn Fn() -> io::Result<Jobs> + Send + Sync>;

/// A call that waits for jobs looks at the store this often though none has ended: what compaction may do grows with
/// time.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A wait that is worth one: shorter ones are added up, since whoever sleeps for less sleeps longer than was asked.
const PACE_MIN: Duration = Duration::from_micros(100);

/// What a batch waits at most: a longer wait would be a stall, and a larger batch is let off the rest.
const OWED_MAX: Duration = Duration::from_millis(100);

/// What an embedded store runs on. A folder that was opened on it stays locked for as long as the machine, or a clone
/// or a reader of it, is there: the lock is the disk's.
#[derive(Clone)]
pub struct Machine {
    disks: MakeDisk,
    clock: Arc<dyn Clock>,
    rng: Arc<Mutex<dyn Rng>>,
    jobs: Option<MakeJobs>,
}

impl Machine {
    /// `disks` makes handles of one disk that complete each operation within `submit`. Versions expire by the wall
    /// clock of `clock`.
    pub fn new<D: Disk + 'static>(
        disks: impl Fn() -> D + Send + Sync + 'static,
        clock: impl Clock + 'static,
        rng: impl Rng + 'static,
    ) -> Machine {
        let disks: MakeDisk = Arc::new(move || Box::new(disks()));
        Machine { disks, clock: Arc::new(clock), rng: Arc::new(Mutex::new(rng)), jobs: None }
    }

    /// The same with somebody to run jobs beside the calls: `jobs` is called once for each store that is opened.
    pub fn with_jobs(self, jobs: impl Fn() -> io::Result<Jobs> + Send + Sync + 'static) -> Machine {
        Machine { jobs: Some(Arc::new(jobs)), ..self }
    }

    /// Who runs the jobs of a store beside its calls, if anybody does.
    fn jobs(&self) -> Result<Option<Jobs>, Error> {
        let made = self.jobs.as_ref().map(|make| make()).transpose();
        made.map_err(|error| Error::Exhausted(format!("no thread for jobs: {error}")))
    }

    /// Another handle of its disk.
    pub fn disk(&self) -> Box<dyn Disk> {
        (self.disks)()
    }

    /// Its randomness.
    pub fn rng(&self) -> Box<dyn Rng> {
        Box::new(SharedRng(Arc::clone(&self.rng)))
    }
}

/// A machine's randomness, for a store to own.
struct SharedRng(Arc<Mutex<dyn Rng>>);

impl Rng for SharedRng {
    fn next_u64(&mut self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }
}

/// Runs each job to its end when it is spawned.
pub struct RunAtOnce(Mutex<Box<dyn Disk>>);

impl RunAtOnce {
    /// With `disk` for the jobs, which completes each operation within `submit`.
    pub fn new(disk: Box<dyn Disk>) -> RunAtOnce {
        RunAtOnce(Mutex::new(disk))
    }
}

impl Spawn for RunAtOnce {
    fn spawn(&self, mut job: Box<dyn Job>) {
        let mut disk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while job.slice(&mut **disk) == Progress::More {}
    }
}

/// A store whose calls wait.
pub struct Embedded {
    store: Store,
    machine: Machine,
    /// Where to wait for jobs; `None` if they are over when they are begun.
    ended: Option<Box<dyn Await>>,
    report: OpenReport,
    events: Vec<Event>,
    /// Those that readers share, once there is one.
    blocks: OnceLock<SharedBlocks>,
    /// How long writes should have waited that have not.
    owed: Duration,
}

impl Embedded {
    /// Opens the store in `dir`, or makes one.
    pub fn open(dir: &Path, options: Options, machine: Machine) -> Result<Embedded, Error> {
        let (spawn, ended): (Arc<dyn Spawn>, _) = match machine.jobs()? {
            Some(Jobs { spawn, ended }) => (spawn, Some(ended)),
            None => (Arc::new(RunAtOnce::new((machine.disks)())), None),
        };
        let platform = Platform {
            disk: (machine.disks)(),
            startup: (machine.disks)(),
            spawn,
            rng: machine.rng(),
            clock: Arc::clone(&machine.clock),
        };
        let (store, report) = Store::open(dir, options, platform)?;
        Ok(Embedded {
            store,
            machine,
            ended,
            report,
            events: Vec::new(),
            blocks: OnceLock::new(),
            owed: Duration::ZERO,
        })
    }

    /// What opening found.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// Sets a key's head and value, and returns when that is as durable as the options say.
    pub fn put(&mut self, key: &[u8], head: &[u8], value: &[u8]) -> Result<Seq, Error> {
        self.write(&[Write::Put { key, head, value: &[value] }])
    }

    /// [`Embedded::put`] of a version that ends after `ttl`: from then on the key is as if it had been deleted.
    pub fn put_for(&mut self, key: &[u8], head: &[u8], value: &[u8], ttl: Duration) -> Result<Seq, Error> {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let expires_ms = self.store.now_ms().saturating_add(ttl_ms);
        self.write(&[Write::PutUntil { key, head, value: &[value], expires_ms }])
    }

    /// Removes a key, and returns when that is as durable as the options say.
    pub fn delete(&mut self, key: &[u8]) -> Result<Seq, Error> {
        self.write(&[Write::Delete { key }])
    }

    /// Removes every key from `start` up to `end`, which stays; an empty `end` is none. It costs one small record,
    /// however many keys there are, and the range can be written again at once.
    pub fn drop_range(&mut self, start: &[u8], end: &[u8]) -> Result<Seq, Error> {
        self.write(&[Write::DropRange { start, end }])
    }

    /// Applies a batch, all of it or nothing, and returns when that is as durable as the options say.
    pub fn write(&mut self, batch: &[Write<'_>]) -> Result<Seq, Error> {
        let seq = self.give(batch.len(), |store| store.write(batch))?;
        self.settle(seq)?;
        Ok(seq)
    }

    /// Sets a key's head and value, and its index entries with it, as [`Options::indexing`] says which there are.
    pub fn put_indexed(&mut self, key: &[u8], head: &[u8], value: &[u8]) -> Result<Seq, Error> {
        self.write_indexed(&[Write::Put { key, head, value: &[value] }], key)
    }

    /// Removes a key and its index entries.
    pub fn delete_indexed(&mut self, key: &[u8]) -> Result<Seq, Error> {
        self.write_indexed(&[Write::Delete { key }], key)
    }

    /// Applies a batch whose first write is that of the object `key`, and what changes among its index entries.
    pub fn write_indexed(&mut self, batch: &[Write<'_>], key: &[u8]) -> Result<Seq, Error> {
        let found = self.head(key);
        let before = || match &found {
            Ok(Some(found)) => Ok(Before::Version { head: &found.head, expires_ms: found.expires_ms }),
            Ok(None) => Ok(Before::Nothing),
            Err(Error::Damaged(_)) => Ok(Before::Unknown),
            Err(error) => Err(error.clone()),
        };
        let seq = self.give(batch.len(), |store| store.write_over(batch, before()?))?;
        self.settle(seq)?;
        Ok(seq)
    }

    /// Has index entries made that are not there, and returns when they are.
    pub fn build_index(&mut self) -> Result<(), Error> {
        if self.store.options().indexing.is_none() {
            return Ok(());
        }
        self.until(|store| match store.is_indexed() {
            true => Some(Ok(())),
            false => store.unfinished().map(Err),
        })
    }

    /// Has the store take so many writes. It waits for room as long as some is being made; and first, where jobs run
    /// elsewhere, as long as the store asked for.
    fn give<T>(&mut self, writes: usize, write: impl Fn(&mut Store) -> Result<T, Error>) -> Result<T, Error> {
        self.look_for_room();
        self.wait_owed();
        // The first turn begins what is due, as after an opening.
        let mut has_turned = false;
        let given = loop {
            match write(&mut self.store) {
                Err(Error::Full { .. }) if !has_turned || self.store.makes_room() => self.catch_up(),
                given => break given?,
            }
            has_turned = true;
        };
        if self.ended.is_some() {
            let owed = self.store.pace().saturating_mul(u32::try_from(writes).unwrap_or(u32::MAX));
            self.owed = (self.owed + owed).min(OWED_MAX);
        }
        Ok(given)
    }

    /// Takes what jobs have done meanwhile, and lets the rest go where that leaves nothing to wait for.
    fn wait_owed(&mut self) {
        while self.owed >= PACE_MIN {
            let wait = self.owed.min(LOOK_EVERY);
            self.wait(wait);
            self.owed -= wait;
            self.turn();
            if self.store.pace().is_zero() {
                self.owed = Duration::ZERO;
            }
        }
    }

    /// Until a job has ended, or for so long. Where jobs are over when they are begun there is nothing to wait for.
    fn wait(&self, at_most: Duration) {
        if let Some(ended) = &self.ended {
            ended.wait(at_most);
        }
    }

    /// Lets a store that had no room see whether it has some now: turns to ask the disk, to take its answer, to write
    /// what waited, and to take note of that.
    fn look_for_room(&mut self) {
        for _ in 0..4 {
            if self.store.refuses_writes().is_some() {
                self.turn();
                self.wait(LOOK_EVERY);
            }
        }
    }

    /// Until `seq` is acknowledged, and readers on other threads see it.
    fn settle(&mut self, seq: Seq) -> Result<(), Error> {
        loop {
            self.turn();
            if self.store.readable() >= seq {
                return Ok(());
            }
            if let Some(error) = self.store.held_up() {
                return Err(error);
            }
            self.wait_for_sync();
        }
    }

    /// Applies a batch with a durability of its own, and returns when it is that safe.
    pub fn write_with(&mut self, batch: &[Write<'_>], durability: Durability) -> Result<Seq, Error> {
        let seq = self.give(batch.len(), |store| store.write_with(batch, durability))?;
        loop {
            self.turn();
            if self.store.reached(durability) >= seq {
                return Ok(seq);
            }
            if let Some(error) = self.store.held_up() {
                return Err(error);
            }
            self.wait_for_sync();
        }
    }

    /// A group that is to be synced waits for the sync beside the groups that is under way.
    fn wait_for_sync(&self) {
        if self.store.syncs_beside() {
            self.wait(LOOK_EVERY);
        }
    }

    /// Applies a batch if all `conditions` hold. `Err` holds the first that does not, by its place, and the version
    /// that its key has.
    pub fn write_if(
        &mut self,
        conditions: &[Condition<'_>],
        batch: &[Write<'_>],
    ) -> Result<Result<Seq, (usize, Option<Seq>)>, Error> {
        loop {
            match self.give(batch.len(), |store| store.write_if(conditions, batch))? {
                WriteIf::Written(seq) => {
                    self.settle(seq)?;
                    return Ok(Ok(seq));
                }
                WriteIf::Refused { condition, version } => return Ok(Err((condition, version))),
                WriteIf::NeedsIo(id) => drop(self.await_lookup(id)),
            }
        }
    }

    /// Sets a key's head and value if it still has the version that the caller knows; `None` for a key that must not be
    /// there. `Err` holds the version that it has.
    pub fn put_if(
        &mut self,
        key: &[u8],
        version: Option<Seq>,
        head: &[u8],
        value: &[u8],
    ) -> Result<Result<Seq, Option<Seq>>, Error> {
        let write = [Write::Put { key, head, value: &[value] }];
        Ok(self.write_if(&[Condition { key, version }], &write)?.map_err(|(_, version)| version))
    }

    /// Appends batches of consistent groups, each in turn, and returns when all are synced. After an error some may be
    /// there; the others are not.
    pub fn propose_all(&mut self, batches: &[GroupBatch<'_>]) -> Result<(), Error> {
        let mut last = None;
        for batch in batches {
            last = Some(self.give(1, |store| store.propose(batch))?);
        }
        while last.is_some_and(|last| self.store.synced_jsn() <= last) {
            self.turn();
            if let Some(error) = self.store.held_up() {
                return Err(error);
            }
            self.wait_for_sync();
        }
        Ok(())
    }

    /// Begins a sorted load: the way to bring in many keys. See [`crate::load`].
    pub fn load(&mut self) -> Result<BulkLoad<'_>, Error> {
        let disk = (self.machine.disks)();
        BulkLoad::begin(self, disk)
    }

    /// Puts everything written so far into tables.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.store.is_flushed() {
            return Ok(());
        }
        self.store.begin_flush();
        self.until(|store| match store.is_flushed() {
            true => Some(Ok(())),
            false => {
                store.begin_flush();
                store.unfinished().map(Err)
            }
        })
    }

    /// Head and value of a key's newest version.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Found>, Error> {
        self.lookup(key, Want::Value)
    }

    /// The head of a key's newest version.
    pub fn head(&mut self, key: &[u8]) -> Result<Option<Found>, Error> {
        self.lookup(key, Want::Head)
    }

    /// The number of a key's newest version.
    pub fn version(&mut self, key: &[u8]) -> Result<Option<Seq>, Error> {
        Ok(self.lookup(key, Want::Head)?.map(|found| found.seq))
    }

    /// A handle that reads on another thread and follows this store. All readers share a block cache, as large as the
    /// store's own.
    pub fn reader(&mut self) -> Reader {
        let (disks, clock) = (Arc::clone(&self.machine.disks), Arc::clone(&self.machine.clock));
        let blocks = self.blocks();
        Reader::live(self.store.publisher(), disks, clock, blocks)
    }

    /// The store as of now, for as long as it is held: for folds made now and run later.
    pub fn snapshot(&mut self) -> Snapshot {
        self.store.readable_snapshot()
    }

    /// A handle that reads what `snapshot` shows, on any thread.
    pub fn reader_at(&self, snapshot: Snapshot) -> Reader {
        Reader::pinned(snapshot, Arc::clone(&self.machine.disks), self.blocks())
    }

    fn blocks(&self) -> SharedBlocks {
        let bytes_max = self.store.options().block_cache_bytes;
        self.blocks.get_or_init(|| SharedBlocks::new(bytes_max)).clone()
    }

    /// Heads and values of many keys, in their order, with all reads that wait for the disk under way at once.
    pub fn get_many(&mut self, keys: &[&[u8]]) -> Vec<Result<Option<Found>, Error>> {
        self.lookup_many(keys, Want::Value)
    }

    /// Heads of many keys, in their order, with all reads that wait for the disk under way at once.
    pub fn head_many(&mut self, keys: &[&[u8]]) -> Vec<Result<Option<Found>, Error>> {
        self.lookup_many(keys, Want::Head)
    }

    /// Whether there is no key.
    pub fn is_empty(&mut self) -> Result<bool, Error> {
        let snapshot = self.snapshot();
        self.reader_at(snapshot).is_empty()
    }

    /// One page of a scan.
    pub fn scan(&mut self, request: ScanRequest) -> Result<ScanPage, Error> {
        let id = self.store.scan_ahead(request)?;
        self.until_event(|event| match event {
            Event::Scan(ended, page) if ended == id => Some(page),
            _ => None,
        })
    }

    /// Compacts the journal as far as that frees anything, and returns when it is done.
    pub fn compact(&mut self) -> Result<(), Error> {
        self.store.compact();
        self.until(|store| match store.is_compacting() {
            true => store.unfinished().map(Err),
            false => Some(Ok(())),
        })?;
        self.store.compaction_failure().cloned().map_or(Ok(()), Err)
    }

    /// The store itself.
    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Stops cleanly: nothing has to be replayed at the next start.
    pub fn close(mut self) -> Result<(), Error> {
        self.close_store()
    }

    /// Stops, and removes the store's files; the folders stay, empty.
    pub fn destroy(mut self) -> Result<(), Error> {
        self.close_store()?;
        let mut disk = (self.machine.disks)();
        destroy(&mut *disk, self.store.dir())
    }

    fn close_store(&mut self) -> Result<(), Error> {
        self.store.begin_close();
        self.until_event(|event| match event {
            Event::Closed(result) => Some(result),
            _ => None,
        })
    }

    fn lookup(&mut self, key: &[u8], want: Want) -> Result<Option<Found>, Error> {
        let id = match self.store.lookup(key, want) {
            Lookup::Done(answer) => return answer,
            Lookup::NeedsIo(id) => id,
        };
        self.await_lookup(id)
    }

    fn lookup_many(&mut self, keys: &[&[u8]], want: Want) -> Vec<Result<Option<Found>, Error>> {
        let mut answers = Vec::with_capacity(keys.len());
        for keys in keys.chunks(LOOKUPS_PARKED_MAX) {
            let lookups: Vec<Lookup> = keys.iter().map(|key| self.store.lookup(key, want)).collect();
            // The events of the others come while one is waited for.
            let mut ended = FastMap::default();
            for lookup in lookups {
                answers.push(match lookup {
                    Lookup::Done(answer) => answer,
                    Lookup::NeedsIo(id) => loop {
                        if let Some(answer) = ended.remove(&id) {
                            break answer;
                        }
                        self.turn();
                        let events = self.events.drain(..);
                        ended.extend(events.filter_map(|event| match event {
                            Event::Lookup(id, answer) => Some((id, answer)),
                            _ => None,
                        }));
                    },
                });
            }
        }
        answers
    }

    fn await_lookup(&mut self, id: LookupId) -> Result<Option<Found>, Error> {
        self.until_event(|event| match event {
            Event::Lookup(ended, answer) if ended == id => Some(answer),
            _ => None,
        })
    }

    /// Turns until the store is as it should be, waiting for jobs between them.
    fn until<T>(&mut self, mut done: impl FnMut(&mut Store) -> Option<T>) -> T {
        loop {
            self.turn();
            self.events.clear();
            if let Some(done) = done(&mut self.store) {
                return done;
            }
            self.wait(LOOK_EVERY);
        }
    }

    /// Turns until one brings what is waited for.
    fn until_event<T>(&mut self, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
        loop {
            self.turn();
            if let Some(come) = self.events.drain(..).find_map(&mut wanted) {
                return come;
            }
            self.wait(LOOK_EVERY);
        }
    }

    /// Takes the tables of a sorted load, and returns when they show.
    pub(crate) fn install(&mut self, tables: Vec<Arc<Table>>, last_seq: Seq) -> Result<(), Error> {
        self.flush()?;
        self.store.install(tables, last_seq);
        self.flush()
    }

    /// A turn that may make room for what was refused: jobs that are under way elsewhere have a while for it.
    pub(crate) fn catch_up(&mut self) {
        if self.store.makes_room() {
            self.wait(LOOK_EVERY);
        }
        self.turn();
    }

    pub(crate) fn turn(&mut self) {
        self.store.tick();
        self.store.turn_at_once(self.now(), &mut self.events);
        // Where jobs are over when they are begun, what they have done is taken.
        if self.ended.is_none() && self.store.is_maintaining() {
            self.store.turn_at_once(self.now(), &mut self.events);
        }
    }

    fn now(&self) -> Monotonic {
        self.machine.clock.now()
    }
}
