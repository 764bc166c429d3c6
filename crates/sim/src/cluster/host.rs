//! One node of the cluster: its machine, and what the world knows of its process.

use super::Event;
use super::plan::Plan;
use super::processor::Processor;
use crate::SimTime;
use crate::disk::DiskImage;
use crate::machine::{Machine, MachineConfig};
use crate::seed::Seed;
use crate::trace::Trace;
use base::Monotonic;
use node::{Layout, Members};
use protocol::peer::VERSION;
use ring::Ring;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// A node.
pub(super) struct Host {
    pub(super) machine: Machine,
    /// How often a process was started.
    pub(super) starts: u64,
    /// While the process stands still: what it takes when it goes on.
    pub(super) held: Option<VecDeque<Event>>,
    /// The buckets that are known to have their properties; clients may come when all do.
    pub(super) buckets: BTreeSet<usize>,
    pub(super) prepared: bool,
    /// It has begun a clean stop; by then it closes, whoever still waits for it.
    pub(super) stops_by: Option<Monotonic>,
    /// The last process has stopped cleanly, and none has been started since.
    pub(super) stopped_cleanly: bool,
    /// The operator is about to cut the power.
    pub(super) gives_up: bool,
    /// Disk faults of all nodes that had fired when the process began.
    pub(super) faults_before: u64,
    /// The others that it was told it cannot reach.
    pub(super) told_down: BTreeSet<usize>,
    /// The disk to start with next; `None` within for an empty one.
    pub(super) next_disk: Option<(Option<DiskImage>, Layout)>,
    /// It will never be started again.
    pub(super) gone: bool,
    /// It has left the cluster, and with it nothing is lost.
    pub(super) left: bool,
    /// The version of the protocol between nodes that its program speaks.
    pub(super) speaks: u16,
    /// What it has sent to other nodes.
    pub(super) sent_bytes: u64,
    /// Its disk is slow for now.
    pub(super) slow: bool,
    /// Its processor; `None` where all work is done in no time.
    pub(super) processor: Option<Processor>,
}

impl Host {
    pub(super) fn new(
        seed: Seed,
        plan: &Plan,
        at: usize,
        ring: &Arc<Ring>,
        time: &SimTime,
        trace: &Trace,
    ) -> Host {
        // It is told before it starts.
        let members = Members::alone(&format!("n{at}@sim"));
        let config = MachineConfig {
            name: &format!("d{at}"),
            number: u64::try_from(at).expect("a small number"),
            layout: Layout::new(plan.shards[at], ring.size()),
            members,
            ring: Arc::clone(ring),
            founding: plan.founding(),
            options: plan.options.clone(),
            reaping: plan.reaping,
            anti_entropy: plan.anti_entropy,
            rebuilding: plan.rebuilding,
            strong_reads: node::StrongReads::Ask,
            live_groups: None,
            disk: plan.disk,
            drift_ppm_max: 200,
        };
        Host {
            machine: Machine::new(seed, config, time, trace),
            starts: 0,
            held: None,
            buckets: BTreeSet::new(),
            prepared: false,
            stops_by: None,
            stopped_cleanly: false,
            gives_up: false,
            faults_before: 0,
            told_down: BTreeSet::new(),
            next_disk: None,
            gone: false,
            left: false,
            speaks: VERSION,
            sent_bytes: 0,
            slow: false,
            processor: None,
        }
    }

    /// Forgets the process, which has died or stopped.
    pub(super) fn end_process(&mut self) {
        self.machine.end_process();
        self.held = None;
        self.processor = self.processor.take().map(|_| Processor::default());
        self.buckets.clear();
        self.prepared = false;
        self.stops_by = None;
        self.gives_up = false;
        self.told_down.clear();
    }

    /// The properties of a bucket are right. Clients may come when those of `of` buckets are.
    pub(super) fn on_bucket_prepared(&mut self, bucket: usize, of: usize) {
        self.buckets.insert(bucket);
        self.prepared |= self.buckets.len() == of;
    }

    /// Whether the process runs, takes writes, and is not about to end.
    pub(super) fn serves(&self) -> bool {
        self.answers() && self.machine.process.as_ref().is_some_and(|it| it.refuses_writes().is_none())
    }

    /// Whether it runs, takes reads at least, and is not about to end.
    fn answers(&self) -> bool {
        let is_stopping = self.stops_by.is_some() || self.machine.is_closing();
        self.prepared && self.held.is_none() && self.machine.process.is_some() && !is_stopping
    }

    /// Whether nothing is under way within it. A rotten node may be fenced again and again, so it need only take reads.
    pub(super) fn is_quiet(&self, is_rotten: bool) -> bool {
        let serves = if is_rotten { self.answers() } else { self.serves() };
        serves && self.machine.process.as_ref().is_some_and(|process| process.has_no_hops())
    }
}
