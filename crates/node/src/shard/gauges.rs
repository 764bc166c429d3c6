//! Gauges of a shard: how much work is under way, by component.
//!
//! Invariant: each gauge is written by the component that it measures, with each change, and read by all.

use crate::peer::Load;

/// Work under way, by component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gauges {
    /// Tasks that are parked.
    pub tasks: usize,
    /// Tasks that have replied and wait for their last replicas.
    pub replied: usize,
    /// Bytes of values that parked tasks hold.
    pub task_bytes: usize,
    /// Scans and queries of clients, and pages being read.
    pub coverage: usize,
    /// Changes of bucket properties.
    pub metadata: usize,
    /// Requests that another node coordinates.
    pub forwards: usize,
    /// Requests on keys of consistent types.
    pub consistent: usize,
    /// Requests that are not admitted yet.
    pub waiting: usize,
    /// Bytes of values that they hold.
    pub waiting_bytes: usize,
    /// Writes that are held back by pacing.
    pub held: usize,
    /// Bytes of values that they hold.
    pub held_bytes: usize,
    /// Whether trees of hashes are kept, so that writes raise the heads that they replace.
    pub keeps_trees: bool,
    /// Whether the node stops.
    pub is_stopping: bool,
}

impl Gauges {
    /// Checks relations between gauges of several components.
    pub fn invariants(&self) {
        assert!(self.replied <= self.tasks, "a task that has replied is parked");
        assert!(self.waiting > 0 || self.waiting_bytes == 0, "bytes are of requests that wait");
        assert!(self.held > 0 || self.held_bytes == 0, "bytes are of writes that are held");
        assert!(self.tasks > 0 || self.task_bytes == 0, "bytes are of tasks");
    }

    /// All requests.
    pub fn requests(&self) -> usize {
        self.tasks + self.coverage + self.metadata + self.forwards + self.consistent + self.queued()
    }

    /// Bytes of values that they hold.
    pub fn bytes(&self) -> usize {
        self.task_bytes + self.waiting_bytes + self.held_bytes
    }

    /// Requests that have not been begun.
    pub fn queued(&self) -> usize {
        self.waiting + self.held
    }

    /// Requests without a reply.
    pub fn load(&self) -> Load {
        Load(u32::try_from(self.requests() - self.replied).unwrap_or(u32::MAX))
    }

    /// The load as other nodes are told.
    pub fn reported_load(&self) -> Load {
        if self.is_stopping { Load::STOPPING } else { self.load() }
    }
}
