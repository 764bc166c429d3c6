//! The tables of one process, shared by its shards.
//!
//! One lock holds both tables for one step of either, so renewing and closing are each one step. It is taken once for
//! an envelope, and by a group once for an answer or a vote. A read takes it only where the stored end of its lease
//! has passed.
//!
//! Groups close promises by the newest reading that any call brought. It may be older than the step, and a promise is
//! then closed later. A caller brings one in each turn.
//!
//! Each shard says until when it will have turned again. The process asks for promises only while no shard is late: the
//! groups of one that hangs are to be led elsewhere.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::Monotonic;

use super::{Block, Grants, Process, Promises, Renewal, TURN_MAX};

/// The tables of a process.
pub(crate) struct Tables {
    pub(crate) promises: Promises,
    pub(crate) grants: Grants,
    /// The newest reading of the lease clock that a call brought.
    pub(crate) now: Monotonic,
    /// Shards whose groups have all given up their leases.
    released: BTreeSet<u16>,
    /// All shards have.
    is_released: bool,
}

/// A handle of the tables of one process.
#[derive(Clone)]
pub struct SharedTables {
    here: Process,
    tables: Arc<Mutex<Tables>>,
    /// For each shard the reading from which on it counts as one that hangs.
    late_from: Arc<[AtomicU64]>,
}

impl std::fmt::Debug for SharedTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedTables").field("here", &self.here).finish_non_exhaustive()
    }
}

impl SharedTables {
    /// The tables of a process with so many shards, which started at that reading of its clock.
    pub fn new(here: Process, shards: u16, started: Monotonic) -> SharedTables {
        let tables = Tables {
            promises: Promises::new(started),
            grants: Grants::default(),
            now: started,
            released: BTreeSet::new(),
            is_released: false,
        };
        let late_from = (0..shards).map(|_| AtomicU64::new(0)).collect();
        SharedTables { here, tables: Arc::new(Mutex::new(tables)), late_from }
    }

    /// Brings a reading of the clock.
    pub fn advance(&self, now: Monotonic) {
        self.with(|tables| tables.advance(now));
    }

    /// The newest reading that a call brought.
    pub fn now(&self) -> Monotonic {
        self.with(|tables| tables.now)
    }

    /// Notes that a shard turns, and turns again within some time.
    pub fn note_turn(&self, shard: u16, now: Monotonic, within: Duration) {
        if let Some(late_from) = self.late_from.get(usize::from(shard)) {
            // Relaxed: the reading is all that is told.
            late_from.store((now + within + TURN_MAX).0, Ordering::Relaxed);
        }
    }

    /// Whether each shard has turned as it said.
    fn all_turn(&self, now: Monotonic) -> bool {
        self.late_from.iter().all(|late_from| now.0 < late_from.load(Ordering::Relaxed))
    }

    /// This process.
    pub fn here(&self) -> Process {
        self.here
    }

    /// The block of a frame to a process. The stamp is a reading of the clock from before the frame is sent; `wants`
    /// says that leaders of this process serve reads by leases.
    pub fn block(&self, to: Process, stamp: Monotonic, wants: bool) -> Block {
        let asks = wants && self.all_turn(stamp);
        self.with(|tables| {
            tables.advance(stamp);
            let (echo, promise) = tables.promises.told(to);
            let is_released = tables.is_released;
            Block { stamp, echo, promise, asks: asks && !is_released, is_released }
        })
    }

    /// Takes the block of a frame to this life, before the groups take its messages. The receipt is a reading of the
    /// clock from after the frame has come.
    pub fn hear(&self, from: Process, block: &Block, receipt: Monotonic) -> Renewal {
        self.with(|tables| {
            tables.advance(receipt);
            tables.grants.hear(from, block, receipt);
            tables.promises.hear(from, block, receipt)
        })
    }

    /// Notes the life of a node that the cluster has registered.
    pub fn register(&self, process: Process, now: Monotonic) {
        self.with(|tables| {
            tables.grants.register(process);
            tables.promises.register(process, now);
        });
    }

    /// Notes that all groups of a shard have given up their leases for the rest of this life. When all shards have, the
    /// promises of all others to it are released.
    pub fn release(&self, shard: u16) {
        self.with(|tables| {
            tables.released.insert(shard);
            tables.is_released = tables.released.len() >= self.late_from.len();
        });
    }

    /// One step on the tables.
    pub(crate) fn with<T>(&self, step: impl FnOnce(&mut Tables) -> T) -> T {
        // Each step leaves the tables whole, so a panic of another thread does not matter.
        step(&mut self.tables.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Tables {
    fn advance(&mut self, now: Monotonic) {
        self.now = self.now.max(now);
    }
}
