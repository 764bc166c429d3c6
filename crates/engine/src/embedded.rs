//! A store for a program that would rather wait: each call returns when it is done.
//!
//! Disk operations and jobs are carried out inside the call that causes them, so a call that fills the memtable
//! pays for its flush. The server does not use this; tools, tests and programs without a loop of their own do.
//!
//! ```
//! # fn main() -> Result<(), engine::Error> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! use engine::{Embedded, Options};
//!
//! let disk = os::OsDisk::blocking();
//! let handles = [disk.blocking_handle(), disk.blocking_handle(), disk];
//! let handles = handles.map(|handle| Box::new(handle) as Box<dyn base::Disk>);
//! let mut store = Embedded::open(folder.path(), Options::default(), handles, Box::new(os::OsRng::new()))?;
//! store.put(b"key", b"head", b"value")?;
//! assert_eq!(store.head(b"key")?.map(|found| found.head), Some("head".into()));
//! assert_eq!(store.get(b"key")?.and_then(|found| found.value), Some("value".into()));
//! store.delete(b"key")?;
//! assert_eq!(store.get(b"key")?, None);
//! store.close()?;
//! # Ok(())
//! # }
//! ```

use crate::entry::Seq;
use crate::error::Error;
use crate::fold::{ScanPage, ScanRequest};
use crate::store::{Event, Found, Lookup, OpenReport, Options, Platform, Store, Want, Write};
use base::{Disk, Job, Monotonic, Progress, Rng, Spawn};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

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
    report: OpenReport,
    events: Vec<Event>,
}

impl Embedded {
    /// Opens the store in `dir`, or makes one. The three handles are of one disk and complete each operation
    /// within `submit`.
    pub fn open(
        dir: &Path,
        options: Options,
        handles: [Box<dyn Disk>; 3],
        rng: Box<dyn Rng>,
    ) -> Result<Embedded, Error> {
        let [disk, startup, jobs] = handles;
        let spawn = Arc::new(RunAtOnce::new(jobs));
        let platform = Platform { disk, startup, spawn, rng, now: Monotonic::default() };
        let (store, report) = Store::open(dir, options, platform)?;
        Ok(Embedded { store, report, events: Vec::new() })
    }

    /// What opening found.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// Sets a key's head and value, and returns when that is as durable as the options say.
    pub fn put(&mut self, key: &[u8], head: &[u8], value: &[u8]) -> Result<Seq, Error> {
        self.write(&[Write::Put { key, head, value: &[value] }])
    }

    /// Removes a key, and returns when that is as durable as the options say.
    pub fn delete(&mut self, key: &[u8]) -> Result<Seq, Error> {
        self.write(&[Write::Delete { key }])
    }

    /// Applies a batch, all of it or nothing, and returns when that is as durable as the options say.
    pub fn write(&mut self, batch: &[Write<'_>]) -> Result<Seq, Error> {
        let seq = self.store.write(batch)?;
        while self.store.acknowledged() < seq {
            if let Some(error) = self.store.fenced() {
                return Err(error);
            }
            self.turn();
        }
        self.turn();
        Ok(seq)
    }

    /// Head and value of a key's newest version.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Found>, Error> {
        self.lookup(key, Want::Value)
    }

    /// The head of a key's newest version.
    pub fn head(&mut self, key: &[u8]) -> Result<Option<Found>, Error> {
        self.lookup(key, Want::Head)
    }

    /// One page of a scan.
    pub fn scan(&mut self, request: ScanRequest) -> Result<ScanPage, Error> {
        let id = self.store.scan(request)?;
        loop {
            self.turn();
            for event in self.events.drain(..) {
                match event {
                    Event::Scan(ended, page) if ended == id => return page,
                    _ => {}
                }
            }
        }
    }

    /// The store itself.
    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Stops cleanly: nothing has to be replayed at the next start.
    pub fn close(mut self) -> Result<(), Error> {
        self.store.begin_close();
        loop {
            self.turn();
            for event in self.events.drain(..) {
                if let Event::Closed(result) = event {
                    return result;
                }
            }
        }
    }

    fn lookup(&mut self, key: &[u8], want: Want) -> Result<Option<Found>, Error> {
        let id = match self.store.lookup(key, want) {
            Lookup::Done(answer) => return answer,
            Lookup::NeedsIo(id) => id,
        };
        loop {
            self.turn();
            for event in self.events.drain(..) {
                match event {
                    Event::Lookup(ended, answer) if ended == id => return answer,
                    _ => {}
                }
            }
        }
    }

    fn turn(&mut self) {
        self.store.tick();
        self.store.turn(Monotonic::default(), &mut self.events);
    }
}
