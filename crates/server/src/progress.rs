//! How far a node is, for the supervisor of its process: its stage, and the turns of its shards.
//!
//! 1. The node opens its stores, and takes part in its cluster. 2. It waits until it may serve, and until each listener
//!    of each shard accepts. 3. It serves. 4. It stops.
//!
//! Invariant: a stage is never followed by an earlier one.
//!
//! Left out: readiness (`health.rs`). A node that serves may still be the worse choice for a client.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// A stage in the life of a node's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Stores are opened, and recovered after an unclean stop.
    #[default]
    Opening,
    /// Stores are open. Clients wait until the other nodes were asked.
    Waiting,
    /// Clients are served.
    Serving,
    /// The clean stop has begun.
    Stopping,
}

/// The progress of a node. Its threads note it, and its supervisor's thread reads it.
#[derive(Debug, Default)]
pub struct Progress {
    stage: Mutex<Stage>,
    changed: Condvar,
    /// Listeners that do not accept yet.
    closed_listeners: AtomicUsize,
    /// The turns of each shard.
    turns: OnceLock<Box<[AtomicU64]>>,
}

impl Progress {
    /// The stage.
    pub fn stage(&self) -> Stage {
        *self.lock()
    }

    /// Waits until the stage is another than `seen`, `timeout` at most. The stage then.
    pub fn wait(&self, seen: Stage, timeout: Duration) -> Stage {
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |stage| *stage == seen);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// The turns of each shard since its start; none before its store is open.
    pub fn turns(&self) -> Vec<u64> {
        self.turns.get().into_iter().flatten().map(|turns| turns.load(Ordering::Relaxed)).collect()
    }

    /// The number of shards, and of listeners of all of them, is known.
    pub(crate) fn expect(&self, shards: u16, listeners: usize) {
        self.closed_listeners.store(listeners, Ordering::Release);
        let turns = (0..shards).map(|_| AtomicU64::new(0)).collect();
        self.turns.set(turns).expect("a process has one node");
    }

    /// A shard has turned. Its thread alone notes its turns.
    pub(crate) fn turned(&self, shard: u16) {
        if let Some(turns) = self.turns.get().and_then(|all| all.get(usize::from(shard))) {
            turns.store(turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// A listener accepts from now on. With the last of them, the node serves.
    pub(crate) fn accepts(&self) {
        if self.closed_listeners.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.reach(Stage::Serving);
        }
    }

    /// Goes on to a stage, unless a later one is reached.
    pub(crate) fn reach(&self, stage: Stage) {
        let mut reached = self.lock();
        if stage > *reached {
            *reached = stage;
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_serves_when_each_listener_accepts() {
        let progress = Progress::default();
        assert_eq!((progress.stage(), progress.turns()), (Stage::Opening, Vec::new()));
        progress.expect(2, 2);
        progress.reach(Stage::Waiting);
        progress.accepts();
        assert_eq!(progress.stage(), Stage::Waiting);
        progress.accepts();
        assert_eq!(progress.stage(), Stage::Serving);
        assert_eq!(progress.wait(Stage::Opening, Duration::MAX), Stage::Serving, "another one does not wait");
    }

    #[test]
    fn a_stop_before_the_end_of_the_start_stays_a_stop() {
        let progress = Progress::default();
        progress.expect(1, 1);
        progress.reach(Stage::Stopping);
        progress.accepts();
        progress.reach(Stage::Waiting);
        assert_eq!(progress.stage(), Stage::Stopping);
    }

    #[test]
    fn turns_are_counted_by_shard() {
        let progress = Progress::default();
        progress.turned(0);
        progress.expect(2, 4);
        progress.turned(1);
        progress.turned(1);
        assert_eq!(progress.turns(), [0, 2]);
    }
}
