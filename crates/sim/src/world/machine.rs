//! The machine that the node runs on: what outlives its processes, and the process if one runs.

use super::plan::Plan;
use crate::disk::{Atlas, DiskConfig, HandleId, SimDisk};
use crate::seed::Seed;
use crate::spawn::SimSpawn;
use crate::trace::Trace;
use crate::{SimClock, SimTime};
use base::rng::SplitMix64;
use base::{Clock, Rng};
use engine::store::{OpenReport, Platform};
use engine::{Options, Store};
use kv::Limits;
use node::{Hop, Layout, Shard, ShardConfig, ShardId};
use ring::{Ring, RingSize, RingVersion};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(super) const DATA: &str = "/data";

/// The longest that a slow operation takes.
pub(super) const SLOW_MAX: Duration = Duration::from_millis(20);

/// The machine.
pub(super) struct Machine {
    pub(super) disk: SimDisk,
    pub(super) clock: SimClock,
    pub(super) spawn: SimSpawn,
    pub(super) deaths: u64,
    pub(super) process: Option<Process>,
    layout: Layout,
    options: Options,
    rng: SplitMix64,
}

/// A running process: its shards, and what is under way between them.
pub(super) struct Process {
    /// `None` for one that has stopped.
    pub(super) shards: Vec<Option<Shard>>,
    /// Which shard each handle belongs to.
    pub(super) handles: BTreeMap<HandleId, usize>,
    /// Whether a turn is scheduled.
    pub(super) turn_due: Vec<bool>,
    /// Which shards have begun to stop.
    pub(super) closing: Vec<bool>,
    /// A shard's stop has failed.
    pub(super) close_failed: bool,
    /// Messages between shards, in order.
    pub(super) hops: BTreeMap<(usize, usize), VecDeque<Hop>>,
}

impl Machine {
    pub(super) fn new(seed: Seed, plan: &Plan, time: &SimTime, trace: &Trace) -> Machine {
        let mut rng = seed.stream("machine", 0);
        let drift_ppm = i32::try_from(rng.below(400)).expect("a small number") - 200;
        let config = DiskConfig {
            odds: plan.disk,
            slow_max: SLOW_MAX,
            atlas: Atlas::everywhere(),
            ..DiskConfig::sound(DATA)
        };
        Machine {
            disk: SimDisk::new("disk", config, seed.stream("disk", 0), trace.clone()),
            clock: SimClock::new(time.clone(), drift_ppm),
            spawn: SimSpawn::new(),
            deaths: 0,
            process: None,
            layout: Layout { shards: plan.shards, ring_size: RingSize::new(64).expect("a power of two") },
            options: plan.options.clone(),
            rng,
        }
    }

    /// Starts the process, and tells what each store found.
    pub(super) fn start(&mut self) -> Result<Vec<OpenReport>, engine::Error> {
        self.clock.restart();
        let (mut stores, mut reports, mut handles) = (Vec::new(), Vec::new(), BTreeMap::new());
        for shard in 0..self.layout.shards {
            let queued = self.disk.queued();
            handles.insert(queued.id(), usize::from(shard));
            let platform = Platform {
                disk: Box::new(queued),
                startup: Box::new(self.disk.immediate()),
                spawn: Arc::new(self.spawn.clone()),
                rng: self.fresh_rng(),
                now: self.clock.now(),
            };
            let metadata = self.layout.metadata(shard);
            let dir = node::layout::shard_dir(Path::new(DATA), shard);
            let (store, report) = Store::open(&dir, Options { metadata, ..self.options.clone() }, platform)?;
            stores.push(store);
            reports.push(report);
        }
        let table = Shard::read_props(&stores[0], &mut self.disk.immediate())?;
        let ring = Arc::new(Ring::of_one_node(RingVersion(1), self.layout.ring_size));
        let mut shards = Vec::new();
        for (id, store) in (0..).map(ShardId).zip(stores) {
            let config = ShardConfig {
                id,
                layout: self.layout,
                node: Arc::from("sim@node"),
                ring: Arc::clone(&ring),
                limits: Limits::default(),
                clock: Arc::new(self.clock.clone()),
                rng: self.fresh_rng(),
            };
            shards.push(Some(Shard::new(config, store, table.clone())));
        }
        let count = shards.len();
        self.process = Some(Process {
            shards,
            handles,
            turn_due: vec![false; count],
            closing: vec![false; count],
            close_failed: false,
            hops: BTreeMap::new(),
        });
        Ok(reports)
    }

    fn fresh_rng(&mut self) -> Box<dyn Rng> {
        Box::new(SplitMix64::new(self.rng.next_u64()))
    }
}

impl Process {
    /// Why some store takes no more writes.
    pub(super) fn fenced(&self) -> Option<engine::Error> {
        self.shards.iter().flatten().find_map(Shard::fenced)
    }
}
