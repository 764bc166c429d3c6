//! A node: its machine, and the world's knowledge of its process and its data folder.

use super::Event;
use super::plan::Plan;
use super::tally::Counted;
use crate::SimTime;
use crate::cluster::rot::Watch;
use crate::disk::DiskImage;
use crate::machine::{Machine, MachineConfig};
use crate::seed::Seed;
use crate::trace::Trace;
use backends::Kind as Backend;
use base::Monotonic;
use node::store::TypeBackends;
use node::store::founding::Founding;
use node::{Layout, Members, Reaping, Rebuilding};
use ring::{Birth, Ring};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The contents of a data folder at some moment: the disk, and the starts that it counts.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub(super) image: DiskImage,
    pub(super) starts: u32,
}

/// A node.
pub(super) struct Host {
    pub(super) machine: Machine,
    /// The starts that its data folder counts.
    pub(super) starts: u32,
    /// The count that it was told as an older copy, until its stores keep their new births.
    raised_starts: Option<u32>,
    /// While the process stands still: the events that it takes when it goes on.
    pub(super) held: Option<VecDeque<Event>>,
    /// Until then no operation of its disk ends.
    pub(super) stalled_until: Monotonic,
    /// Links that it was told are down.
    pub(super) told_down: BTreeSet<usize>,
    /// The folder that it starts with next, if that is another one; none for an empty one.
    pub(super) next_disk: Option<Option<Folder>>,
    /// The time of its next death until it starts again, if that matters.
    pub(super) next_down: Option<Duration>,
    /// Its disk lost something that its stores may have promised.
    pub(super) is_hurt: bool,
    /// It never starts again.
    pub(super) gone: bool,
    /// Its process is fenced, and about to be ended.
    pub(super) gives_up: bool,
    /// The births that its stores are to keep, and those that they keep.
    pub(super) given: Vec<Birth>,
    pub(super) kept: Vec<Option<Birth>>,
    /// Its process was started with a restored folder, and no operator has let it go on.
    pub(super) is_held: bool,
    /// A registration is under way.
    pub(super) registers: bool,
    /// The version of the agreement that it heard of last.
    pub(super) heard: u64,
    /// The counters of its process, as it was looked at last.
    pub(super) counted: Counted,
    pub(super) is_slow: bool,
    /// The ends of its journal, between which bits may flip.
    pub(super) watch: Watch,
}

impl Host {
    /// Counts the start of its process. That of an older copy is another one than the folder says.
    pub(super) fn count_start(&mut self, starts: u32) {
        self.starts += 1;
        self.raised_starts = (starts != self.starts).then_some(starts);
    }

    /// Writes the count that an older copy was told.
    pub(super) fn write_raised_starts(&mut self) {
        self.starts = self.raised_starts.take().unwrap_or(self.starts);
    }

    pub(super) fn new(
        seed: Seed,
        plan: &Plan,
        at: usize,
        ring: &Arc<Ring>,
        time: &SimTime,
        trace: &Trace,
    ) -> Host {
        let names: Vec<String> = (0..plan.nodes()).map(name).collect();
        let members = Members::new(names.iter().map(String::as_str), &name(at)).expect("names differ");
        let config = MachineConfig {
            name: &format!("d{at}"),
            number: u64::try_from(at).expect("a small number"),
            layout: Layout::new(plan.shards[at], ring.size()),
            members,
            ring: Arc::clone(ring),
            founding: Founding { backend: Backend::Annulet, types: TypeBackends::default() },
            options: plan.options.clone(),
            reaping: Reaping::after(None),
            anti_entropy: plan.anti_entropy,
            rebuilding: Rebuilding::default(),
            strong_reads: plan.strong_reads,
            live_groups: plan.live_groups,
            disk: plan.disk,
            drift_ppm_max: plan.drift_ppm_max,
        };
        Host {
            machine: Machine::new(seed, config, time, trace),
            starts: 0,
            raised_starts: None,
            held: None,
            stalled_until: Monotonic(0),
            told_down: BTreeSet::new(),
            next_disk: None,
            next_down: None,
            is_hurt: false,
            gone: false,
            gives_up: false,
            given: Vec::new(),
            kept: Vec::new(),
            is_held: false,
            registers: false,
            heard: 0,
            counted: Counted::default(),
            is_slow: false,
            watch: Watch::default(),
        }
    }

    pub(super) fn shards(&self) -> usize {
        usize::from(self.machine.layout.shards)
    }

    /// The process that runs.
    pub(super) fn life(&self) -> Option<u64> {
        self.machine.process.as_ref().map(|process| process.life)
    }

    /// Whether the process runs and is not about to end.
    pub(super) fn serves(&self) -> bool {
        self.machine.process.is_some() && self.held.is_none() && !self.machine.is_closing()
    }

    /// Forgets the process, which has died or stopped.
    pub(super) fn end_process(&mut self) {
        self.machine.end_process();
        self.held = None;
        self.told_down.clear();
        self.gives_up = false;
        (self.registers, self.is_held) = (false, false);
        (self.heard, self.counted) = (0, Counted::default());
        self.given.clear();
        self.kept.clear();
        self.watch = Watch::default();
    }
}

/// A node's name. The order of names is that of numbers, as there are fewer than ten.
fn name(at: usize) -> String {
    format!("n{at}@sim")
}
