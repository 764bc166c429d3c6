//! The machine that a node runs on: what outlives its processes, and the process if one runs.
//!
//! A world drives any number of machines. What a machine waits for is a [`Step`], which the world schedules by a
//! [`Timer`] and hands back to [`Machine::run`] when it is due; then it takes what the shards have for others
//! ([`Machine::take_outputs`]), and schedules what they have started ([`Machine::schedule_started`]).

use crate::disk::{Atlas, DiskConfig, DiskHandle, DiskOdds, HandleId, OperationId, SimDisk};
use crate::scheduler::Scheduler;
use crate::seed::{Seed, duration_between};
use crate::spawn::{JobId, SimSpawn};
use crate::trace::{Keep, Trace};
use crate::{SimClock, SimTime};
use backends::{Kind as Backend, Settings};
use base::rng::SplitMix64;
use base::{Clock, Progress, Rng, Spawn};
use bytes::Bytes;
use engine::Options;
use engine::check::{Finding, check_index};
use engine::fold::read_all;
use engine::store::{OpenReport, Platform};
use kv::Limits;
use node::store::founding::Founding;
use node::store::{Routed, check_entries};
use node::{
    Adapter, FoundBirth, Hop, Layout, LeaseConfig, Members, Output, Reaping, Rebuilding, Shard, ShardConfig,
    ShardId, Store, StrongReads,
};
use object::key::KeyRange;
use ring::Ring;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where a node keeps its data.
pub(crate) const DATA: &str = "/data";

/// The longest that a slow operation takes.
pub(crate) const SLOW_MAX: Duration = Duration::from_millis(20);

/// How often shards are told that time passes.
pub(crate) const TICK: Duration = Duration::from_millis(5);
/// The longest that an input waits for its turn to end.
const TURN_DELAY_MAX: Duration = Duration::from_micros(40);
/// The longest way from shard to shard.
const HOP_DELAY_MAX: Duration = Duration::from_micros(20);
/// The longest pause between two slices of a job.
const SLICE_PAUSE_MAX: Duration = Duration::from_micros(500);

/// What a machine is made with.
pub(crate) struct MachineConfig<'a> {
    /// What its disk is called in the trace.
    pub(crate) name: &'a str,
    /// Tells its randomness from that of other machines.
    pub(crate) number: u64,
    pub(crate) layout: Layout,
    pub(crate) members: Members,
    pub(crate) ring: Arc<Ring>,
    /// What its stores are; options that it has not count for nothing.
    pub(crate) founding: Founding,
    pub(crate) options: Options,
    pub(crate) reaping: Reaping,
    pub(crate) anti_entropy: Option<Duration>,
    pub(crate) rebuilding: Rebuilding,
    pub(crate) strong_reads: StrongReads,
    /// Live consistent groups of a shard beyond which those at rest are unloaded; none for the usual bound.
    pub(crate) live_groups: Option<usize>,
    pub(crate) disk: DiskOdds,
    /// The most that its clock gains or loses, in parts of a million.
    pub(crate) drift_ppm_max: u32,
}

/// The machine.
pub(crate) struct Machine {
    pub(crate) disk: SimDisk,
    pub(crate) clock: SimClock,
    pub(crate) spawn: SimSpawn,
    pub(crate) deaths: u64,
    pub(crate) process: Option<Process>,
    pub(crate) layout: Layout,
    members: Arc<Members>,
    ring: Arc<Ring>,
    founding: Founding,
    options: Options,
    reaping: Reaping,
    anti_entropy: Option<Duration>,
    rebuilding: Rebuilding,
    strong_reads: StrongReads,
    live_groups: Option<usize>,
    rng: SplitMix64,
}

/// A running process: its shards, and what is under way between them.
pub(crate) struct Process {
    /// `None` for one that has stopped.
    pub(crate) shards: Vec<Option<Shard>>,
    /// Which shard each handle belongs to.
    handles: BTreeMap<HandleId, usize>,
    /// Whether a turn is scheduled.
    turn_due: Vec<bool>,
    /// Which shards have begun to stop.
    pub(crate) closing: Vec<bool>,
    /// A shard's stop has failed.
    close_failed: bool,
    /// The process, as other nodes know it.
    pub(crate) life: u64,
    /// The births that the stores keep; none of stores without groups.
    pub(crate) births: Vec<FoundBirth>,
    /// Messages between shards, in order.
    pub(crate) hops: BTreeMap<(usize, usize), VecDeque<Hop>>,
}

/// What a machine waits for. It dies with the process.
#[derive(Debug)]
pub(crate) enum Step {
    DiskEnds(OperationId),
    JobSlice(JobId),
    Turn(usize),
    Hop(usize, usize),
}

/// How a machine has its steps scheduled.
pub(crate) struct Timer<'a, E, W> {
    pub(crate) events: &'a mut Scheduler<E>,
    pub(crate) rng: &'a mut SplitMix64,
    /// Makes a step the world's event.
    pub(crate) wrap: W,
}

impl<E, W: Fn(Step) -> E> Timer<'_, E, W> {
    fn after(&mut self, delay: Duration, step: Step) {
        self.events.after(delay, (self.wrap)(step));
    }

    fn within(&mut self, delay_max: Duration, step: Step) {
        let delay = duration_between(self.rng, Duration::ZERO, delay_max);
        self.after(delay, step);
    }
}

/// What has become of a clean stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Other shards are still at it.
    UnderWay,
    /// It was no better than a crash.
    Failed,
    /// All shards have stopped.
    Done,
}

impl Machine {
    pub(crate) fn new(seed: Seed, config: MachineConfig<'_>, time: &SimTime, trace: &Trace) -> Machine {
        let mut rng = seed.stream("machine", config.number);
        let most = i32::try_from(config.drift_ppm_max).expect("a small number");
        let drift_ppm =
            i32::try_from(rng.below(u64::from(config.drift_ppm_max) * 2)).expect("a small number");
        let disk = DiskConfig {
            odds: config.disk,
            slow_max: SLOW_MAX,
            atlas: Atlas::everywhere(),
            ..DiskConfig::sound(DATA)
        };
        Machine {
            disk: SimDisk::new(config.name, disk, seed.stream("disk", config.number), trace.clone()),
            clock: SimClock::new(time.clone(), drift_ppm - most),
            spawn: SimSpawn::new(),
            deaths: 0,
            process: None,
            layout: config.layout,
            members: Arc::new(config.members),
            ring: config.ring,
            founding: config.founding,
            options: config.options,
            reaping: config.reaping,
            anti_entropy: config.anti_entropy,
            rebuilding: config.rebuilding,
            strong_reads: config.strong_reads,
            live_groups: config.live_groups,
            rng,
        }
    }

    /// What it starts with from now on.
    pub(crate) fn knows(&mut self, (members, ring): (Arc<Members>, Arc<Ring>)) {
        (self.members, self.ring) = (members, ring);
    }

    /// Starts the process, and tells what each store found.
    pub(crate) fn start(&mut self) -> Result<Vec<OpenReport>, engine::Error> {
        self.clock.restart();
        let (mut stores, mut reports, mut handles) = (Vec::<Store>::new(), Vec::new(), BTreeMap::new());
        let (mut table, mut births) = (None, Vec::new());
        for shard in 0..self.layout.shards {
            let dir = node::layout::shard_dir(Path::new(DATA), shard);
            let (store, shard_table, report) = match self.founding.backend {
                Backend::Annulet => {
                    let queued = self.disk.queued();
                    handles.insert(queued.id(), usize::from(shard));
                    let (mut store, report) = self.open_engine(&dir, shard, queued)?;
                    if self.options.groups.is_some() {
                        let disk = &mut self.disk.immediate();
                        births.push(node::read_birth(&mut store, disk, self.members.here())?);
                    }
                    let table = match shard {
                        0 => Some(node::read_props(&mut store, &mut self.disk.immediate())?),
                        _ => None,
                    };
                    (store.into(), table, report)
                }
                other => {
                    let (mut adapter, report) = self.open_other(other, &dir)?;
                    let table = (shard == 0).then(|| node::read_props_of(&mut adapter)).transpose()?;
                    (adapter.into(), table, report)
                }
            };
            let mut of_types = Vec::new();
            for (bucket_type, backend) in self.founding.clone().types.iter() {
                let dir = node::layout::type_dir(Path::new(DATA), shard, bucket_type);
                of_types.push((bucket_type.to_owned(), self.open_other(backend, &dir)?.0));
            }
            stores.push(if of_types.is_empty() { store } else { Routed::new(store, of_types).into() });
            reports.push(report);
            table = table.or(shard_table);
        }
        let table = table.expect("there is a shard 0");
        let life = self.rng.next_u64().max(1);
        let here = self.members.here();
        let leases = LeaseConfig::starting(here, life, self.layout.shards, self.strong_reads, &self.clock);
        let mut shards = Vec::new();
        for (id, store) in (0..).map(ShardId).zip(stores) {
            let config = ShardConfig {
                id,
                layout: self.layout,
                members: Arc::clone(&self.members),
                ring: Arc::clone(&self.ring),
                limits: Limits::default(),
                clock: Arc::new(self.clock.clone()),
                rng: self.fresh_rng(),
                read_form: kv::ReadStrategy::LocalValue,
                life,
                reaping: self.reaping,
                anti_entropy: self.anti_entropy,
                rebuilding: self.rebuilding,
                gathered: base::Budget::unlimited(),
                slow: node::SlowRequests::off(),
                leases: leases.clone(),
            };
            let mut shard = Shard::new(config, store, table.clone());
            self.live_groups.into_iter().for_each(|most| shard.bound_live_groups(most));
            shards.push(Some(shard));
        }
        let count = shards.len();
        self.process = Some(Process {
            shards,
            handles,
            turn_due: vec![false; count],
            closing: vec![false; count],
            close_failed: false,
            life,
            births,
            hops: BTreeMap::new(),
        });
        Ok(reports)
    }

    fn open_engine(
        &mut self,
        dir: &Path,
        shard: u16,
        queued: DiskHandle,
    ) -> Result<(engine::Store, OpenReport), engine::Error> {
        let platform = Platform {
            disk: Box::new(queued),
            startup: Box::new(self.disk.immediate()),
            spawn: Arc::new(self.spawn.clone()),
            rng: self.fresh_rng(),
            clock: Arc::new(self.clock.clone()),
        };
        let options = Options { metadata: self.layout.metadata(shard), ..self.options.clone() };
        engine::Store::open(dir, options, platform)
    }

    fn open_other(&mut self, backend: Backend, dir: &Path) -> Result<(Adapter, OpenReport), engine::Error> {
        let settings = self.backend_settings();
        let (disk, rng) = (self.disk.clone(), SplitMix64::new(self.rng.next_u64()));
        let machine = engine::Machine::new(move || disk.immediate(), self.clock.clone(), rng);
        let platform: (Arc<dyn Spawn>, Arc<dyn Clock>) =
            (Arc::new(self.spawn.clone()), Arc::new(self.clock.clone()));
        Adapter::open(backend, dir, &settings, machine, platform)
    }

    /// What a store of another backend is told.
    fn backend_settings(&self) -> Settings {
        Settings {
            durability: self.options.durability,
            cache_bytes: self.options.block_cache_bytes,
            segment_bytes: self.options.segment_bytes_target,
            memory_bytes: None,
        }
    }

    /// Keys and heads in these ranges, in stores that have stopped cleanly: on a copy of the disk.
    pub(crate) fn stored(&self, ranges: &[KeyRange]) -> Result<BTreeMap<Bytes, Bytes>, engine::Error> {
        let copy = self.disk.fork(SplitMix64::new(1), Trace::new(SimTime::default(), Keep::Hash));
        copy.kill();
        copy.set_odds(DiskOdds::SOUND);
        let mut stored = BTreeMap::new();
        for shard in 0..self.layout.shards {
            let platform = Platform {
                disk: Box::new(copy.queued()),
                startup: Box::new(copy.immediate()),
                spawn: Arc::new(SimSpawn::new()),
                rng: Box::new(SplitMix64::new(1)),
                clock: Arc::new(self.clock.clone()),
            };
            let options = Options { metadata: self.layout.metadata(shard), ..self.options.clone() };
            let dir = node::layout::shard_dir(Path::new(DATA), shard);
            let mut store = engine::Store::open(&dir, options, platform)?.0;
            let snapshot = store.readable_snapshot();
            for range in ranges {
                stored.extend(read_all(&mut copy.immediate(), &snapshot, &range.start, &range.end)?);
            }
        }
        Ok(stored)
    }

    fn fresh_rng(&mut self) -> Box<dyn Rng> {
        Box::new(SplitMix64::new(self.rng.next_u64()))
    }

    /// Forgets the process, which has died or stopped.
    pub(crate) fn end_process(&mut self) {
        self.process = None;
        self.spawn.clear();
    }

    /// Whether the process has died since this was asked last.
    pub(crate) fn has_died(&mut self) -> bool {
        std::mem::replace(&mut self.deaths, self.disk.deaths()) < self.disk.deaths()
    }

    /// A shard, if it runs.
    pub(crate) fn shard(&mut self, shard: usize) -> Option<&mut Shard> {
        self.process.as_mut()?.shards.get_mut(shard)?.as_mut()
    }

    /// Moves what a shard has for others to `outputs`.
    pub(crate) fn take_outputs(&mut self, shard: usize, outputs: &mut Vec<Output>) {
        if let Some(running) = self.shard(shard) {
            running.take_outputs(outputs);
        }
    }

    /// Runs a step that is due. Returns the shard that it was for, if that has been given something to do.
    pub(crate) fn run<E>(
        &mut self,
        step: Step,
        timer: &mut Timer<'_, E, impl Fn(Step) -> E>,
    ) -> Option<usize> {
        match step {
            Step::DiskEnds(operation) => {
                if let Some(handle) = self.disk.finish(operation)
                    && let Some(process) = &self.process
                    && let Some(&shard) = process.handles.get(&handle)
                {
                    self.schedule_turn(shard, timer);
                }
                None
            }
            Step::JobSlice(job) => {
                self.run_slice(job, timer);
                None
            }
            Step::Turn(shard) => {
                self.process.as_mut()?.turn_due[shard] = false;
                let running = self.shard(shard)?;
                running.turn();
                running.invariants();
                if running.has_more() {
                    self.schedule_turn(shard, timer);
                }
                Some(shard)
            }
            Step::Hop(from, to) => {
                let process = self.process.as_mut()?;
                let queue = process.hops.get_mut(&(from, to)).expect("a hop under way has a queue");
                let message = queue.pop_front().expect("each hop has its event");
                process.shards[to].as_mut()?.hop(message);
                self.schedule_turn(to, timer);
                Some(to)
            }
        }
    }

    fn run_slice<E>(&mut self, job: JobId, timer: &mut Timer<'_, E, impl Fn(Step) -> E>) {
        let mut disk = self.disk.immediate();
        let progress = self.spawn.slice(job, &mut disk);
        drop(disk);
        match progress {
            Progress::More => timer.within(SLICE_PAUSE_MAX, Step::JobSlice(job)),
            Progress::Done => {
                (0..usize::from(self.layout.shards)).for_each(|shard| self.schedule_turn(shard, timer));
            }
        }
    }

    /// Has a shard's turn end soon.
    pub(crate) fn schedule_turn<E>(&mut self, shard: usize, timer: &mut Timer<'_, E, impl Fn(Step) -> E>) {
        let Some(process) = &mut self.process else { return };
        if !std::mem::replace(&mut process.turn_due[shard], true) {
            timer.within(TURN_DELAY_MAX, Step::Turn(shard));
        }
    }

    /// Sends a message from shard to shard.
    pub(crate) fn send_hop<E>(
        &mut self,
        (from, to): (usize, ShardId),
        message: Hop,
        timer: &mut Timer<'_, E, impl Fn(Step) -> E>,
    ) {
        let to = usize::from(to.0);
        let process = self.process.as_mut().expect("a process has sent it");
        process.hops.entry((from, to)).or_default().push_back(message);
        timer.within(HOP_DELAY_MAX, Step::Hop(from, to));
    }

    /// Schedules what disk and jobs have begun.
    pub(crate) fn schedule_started<E>(&mut self, timer: &mut Timer<'_, E, impl Fn(Step) -> E>) {
        for started in self.disk.take_started() {
            timer.after(started.takes, Step::DiskEnds(started.operation));
        }
        for job in self.spawn.take_started() {
            timer.after(Duration::ZERO, Step::JobSlice(job));
        }
    }

    /// Begins a shard's clean stop, unless that has begun.
    pub(crate) fn begin_close(&mut self, shard: usize) -> bool {
        let Some(process) = &mut self.process else { return false };
        if std::mem::replace(&mut process.closing[shard], true) {
            return false;
        }
        self.shard(shard).map(Shard::begin_close).is_some()
    }

    /// A shard has stopped.
    pub(crate) fn on_closed(&mut self, shard: usize, failed: bool) -> Stop {
        let process = self.process.as_mut().expect("it has just stopped");
        process.shards[shard] = None;
        process.close_failed |= failed;
        match process.shards.iter().any(Option::is_some) {
            true => Stop::UnderWay,
            false if process.close_failed => Stop::Failed,
            false => Stop::Done,
        }
    }

    /// What is wrong with the index entries of stores that have stopped cleanly: on a copy of the disk, to which
    /// nothing happens meanwhile.
    pub(crate) fn index_findings(&self) -> Vec<String> {
        let Some(indexing) = self.options.indexing else { return Vec::new() };
        let copy = self.disk.fork(SplitMix64::new(1), Trace::new(SimTime::default(), Keep::Hash));
        copy.kill();
        copy.set_odds(DiskOdds::SOUND);
        let mut findings = Vec::new();
        let first = |shard| (shard, self.founding.backend, node::layout::shard_dir(Path::new(DATA), shard));
        let of_type = |shard, (name, backend): (&str, Backend)| {
            (shard, backend, node::layout::type_dir(Path::new(DATA), shard, name))
        };
        let of_shard = |shard| {
            let of_types = self.founding.types.iter().map(move |it| of_type(shard, it));
            std::iter::once(first(shard)).chain(of_types)
        };
        // Others keep no entries, or nothing at all.
        let keeps_entries = |backend: Backend| backend.is_kept() && backend.is_ordered();
        let stores = (0..self.layout.shards).flat_map(of_shard);
        for (shard, backend, dir) in stores.filter(|(_, backend, _)| keeps_entries(*backend)) {
            let now_ms = self.clock.wall().0 / 1000;
            let mut find = |what: String| findings.push(format!("shard {shard}: {what}"));
            let checked = match backend {
                Backend::Annulet => {
                    let mut on_finding = |finding: Finding| find(finding.what);
                    check_index(&mut copy.immediate(), &dir, &indexing, now_ms, &mut on_finding).map(drop)
                }
                other => {
                    self.check_other(other, &dir, &copy, now_ms).map(|found| found.into_iter().for_each(find))
                }
            };
            if let Err(error) = checked {
                findings.push(format!("shard {shard} cannot be checked: {error}"));
            }
        }
        findings
    }

    /// What is wrong with the entries of a store of another backend, on a disk of its own.
    fn check_other(
        &self,
        backend: Backend,
        dir: &Path,
        disk: &SimDisk,
        now_ms: u64,
    ) -> Result<Vec<String>, engine::Error> {
        let disk = disk.clone();
        let machine = engine::Machine::new(move || disk.immediate(), self.clock.clone(), SplitMix64::new(1));
        let mut store = backend.open(dir, &self.backend_settings(), machine)?;
        Ok(check_entries(&mut *store, now_ms)?.unwrap_or_default())
    }

    /// Whether the process has begun to stop.
    pub(crate) fn is_closing(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.closing.contains(&true))
    }
}

impl Process {
    /// Why some store takes no writes for now, or at all.
    pub(crate) fn refuses_writes(&self) -> Option<engine::Error> {
        self.shards.iter().flatten().find_map(|shard| shard.status().refuses_writes())
    }

    /// Why some store takes no more writes.
    pub(crate) fn fenced(&self) -> Option<engine::Error> {
        self.shards.iter().flatten().find_map(|shard| shard.status().fenced())
    }

    /// Whether nothing is under way between shards.
    pub(crate) fn has_no_hops(&self) -> bool {
        self.hops.values().all(VecDeque::is_empty)
    }
}
