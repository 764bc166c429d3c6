//! The tables of one process, shared by its shards.
//!
//! One lock holds both tables for one step of either, so renewing and closing are each one step. It is taken once for
//! an envelope, and by a group once for an answer or a vote. A read takes it only where the stored end of its lease
//! has passed.

use std::sync::{Arc, Mutex, PoisonError};

use base::Monotonic;

use super::{Block, Grants, Process, Promises};

/// The tables of a process.
pub(crate) struct Tables {
    pub(crate) promises: Promises,
    pub(crate) grants: Grants,
    /// All groups of this process have given up their leases.
    is_released: bool,
}

/// A handle of the tables of one process.
#[derive(Clone)]
pub struct SharedTables {
    here: Process,
    tables: Arc<Mutex<Tables>>,
}

impl SharedTables {
    /// The tables of a process that started at that reading of its clock.
    pub fn new(here: Process, started: Monotonic) -> SharedTables {
        let tables =
            Tables { promises: Promises::new(started), grants: Grants::default(), is_released: false };
        SharedTables { here, tables: Arc::new(Mutex::new(tables)) }
    }

    /// This process.
    pub fn here(&self) -> Process {
        self.here
    }

    /// The block of a frame to a process. The stamp is a reading of the clock from before the frame is sent; `asks`
    /// says that each shard of this process turned within [`super::TURN_MAX`].
    pub fn block(&self, to: Process, stamp: Monotonic, asks: bool) -> Block {
        self.with(|tables| {
            let (echo, promise) = tables.promises.told(to);
            let is_released = tables.is_released;
            Block { stamp, echo, promise, asks: asks && !is_released, is_released }
        })
    }

    /// Takes the block of a frame to this life, before the groups take its messages. The receipt is a reading of the
    /// clock from after the frame has come.
    pub fn hear(&self, from: Process, block: &Block, receipt: Monotonic) {
        self.with(|tables| {
            tables.grants.hear(from, block, receipt);
            tables.promises.hear(from, block, receipt);
        });
    }

    /// Notes the life of a node that the cluster has registered.
    pub fn register(&self, process: Process, now: Monotonic) {
        self.with(|tables| {
            tables.grants.register(process);
            tables.promises.register(process, now);
        });
    }

    /// Releases the promises of all others to this life. All groups of all shards have given up their leases before.
    pub fn release(&self) {
        self.with(|tables| tables.is_released = true);
    }

    /// One step on the tables.
    pub(crate) fn with<T>(&self, step: impl FnOnce(&mut Tables) -> T) -> T {
        // Each step leaves the tables whole, so a panic of another thread does not matter.
        step(&mut self.tables.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
