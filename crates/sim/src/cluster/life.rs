//! Life and death of the nodes' processes: starts, crashes, clean stops, and disks that are not what they were.

use super::ending::Phase;
use super::host::Host;
use super::plan::Loss;
use super::{Event, World};
use crate::check::answers::Causes;
use crate::check::{Verdict, Violation, damage, index};
use crate::fault::Fault;
use crate::machine::{Process, SLOW_MAX, Stop};
use crate::report::ACKNOWLEDGED_MIN;
use crate::seed::{duration_between, index_below};
use base::{Monotonic, Rng};
use engine::Durability;
use node::Shard;
use protocol::peer::VERSION;
use std::time::Duration;

/// At durability `interval`: what a crash may take beyond the interval. Two operations of a slow disk, a tick,
/// and the way of a turn.
const INTERVAL_SLACK: Duration = SLOW_MAX.saturating_mul(2).saturating_add(Duration::from_millis(15));
/// How long a clean stop waits for what is under way, and for others to hear of it: as a server does.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// The longest time between the first shard's stop and the last one's.
const STOP_SPREAD_MAX: Duration = Duration::from_millis(3);
/// The most starts of a node alone. All of 2,000 seeds need fewer; a node that needs more never comes up again.
const STARTS_MAX: u64 = 2_000;
/// Acknowledged operations before a disk is lost: there must be something to lose.
const LOSS_FROM: u64 = ACKNOWLEDGED_MIN / 3;

impl World {
    pub(super) fn on_start(&mut self, at: usize) -> Verdict {
        // A host that is no member yet has nothing to start with, whatever has become of its disk.
        if self.hosts[at].gone || !self.mover.is_admitted(at) {
            return Ok(());
        }
        self.change_disk(at);
        let known = self.mover.start_with(at);
        self.hosts[at].machine.knows(known);
        self.hosts[at].faults_before = self.disk_faults();
        self.hosts[at].starts += 1;
        if self.hosts[at].starts > 1 {
            self.hosts[at].speaks = VERSION;
        }
        if self.plan.is_alone() && self.hosts[at].starts > STARTS_MAX {
            return Err(Violation::new("a node stays up", format!("it was started {STARTS_MAX} times")));
        }
        match self.hosts[at].machine.start() {
            Ok(reports) => {
                self.trace.line(format_args!("n{at} has started: {reports:?}"));
                let causes = self.causes();
                let clean = std::mem::take(&mut self.hosts[at].stopped_cleanly);
                reports.iter().try_for_each(|report| damage::check_start(report, clean, causes))?;
                self.events.after(Duration::ZERO, Event::Prepare(at));
                self.on_start_hear(at)?;
                self.links_changed(at);
                self.examine_promises(at)?;
            }
            Err(error) => {
                self.trace.line(format_args!("n{at} does not start: {error}"));
                self.hosts[at].stopped_cleanly = false;
                let machine = &self.hosts[at].machine;
                if machine.deaths == machine.disk.deaths() {
                    damage::check_failed_start(&error, self.causes())?;
                    machine.disk.power_cut();
                    if matches!(error, engine::Error::Damaged(_)) {
                        self.give_up_node(at);
                    }
                }
            }
        }
        self.follow_up(at);
        Ok(())
    }

    /// A node that has lost bucket properties does not start, however often that is tried: its operator says that it is
    /// down. The life of a node alone is over then: it has reported the damage.
    fn give_up_node(&mut self, at: usize) {
        self.trace.line(format_args!("n{at} is given up"));
        if self.plan.is_alone() {
            self.phase = Phase::Over;
        }
        self.hosts[at].gone = true;
        self.checks.on_loss(at, self.events.now());
        self.on_disk_changed(at);
    }

    /// Puts another disk in, if the world has decided to.
    fn change_disk(&mut self, at: usize) {
        let Some((image, layout)) = self.hosts[at].next_disk.take() else { return };
        self.hosts[at].machine.disk.replace(image.as_ref());
        self.hosts[at].machine.layout = layout;
        self.hosts[at].stopped_cleanly = false;
        let fault = self.plan.loss.expect("it was planned").fault();
        self.trace.fault(fault, format_args!("n{at}"));
        self.checks.on_loss(at, self.events.now());
        self.on_disk_changed(at);
    }

    /// Schedules what a node has started, or its next start if its process has died.
    pub(super) fn follow_up(&mut self, at: usize) {
        if self.hosts[at].machine.has_died() {
            return self.on_death(at);
        }
        let (machine, mut timer) = self.parts(at);
        machine.schedule_started(&mut timer);
        let host = &mut self.hosts[at];
        let fenced = host.machine.process.as_ref().and_then(Process::fenced);
        if let (Some(error), false) = (fenced, host.gives_up) {
            self.trace.line(format_args!("n{at} is fenced: {error}"));
            host.gives_up = true;
            let pause = duration_between(&mut self.rng, Duration::ZERO, self.plan.fenced_max());
            // After life a rotten node stays fenced: a restart would not help.
            if self.phase.has_clients() || !self.is_rotten {
                self.events.after(pause, Event::GiveUp(at));
            }
        }
    }

    pub(super) fn power_cut(&mut self, at: usize) {
        self.hosts[at].machine.disk.power_cut();
        self.follow_up(at);
    }

    fn on_death(&mut self, at: usize) {
        // After a failed sync the system shows what the disk may not have, and calls it clean: a process that is
        // merely started again would believe it. The operator restarts the machine.
        let is_alone = self.plan.is_alone();
        let is_cut = is_alone && self.trace.count(Fault::PowerCut) > self.power_cuts;
        if !is_cut && (self.error_armed || self.disk_faults() > self.hosts[at].faults_before) {
            self.hosts[at].machine.disk.power_cut();
            self.hosts[at].machine.has_died();
        }
        let cuts = self.trace.count(Fault::PowerCut);
        let was_cut = std::mem::replace(&mut self.power_cuts, cuts) < cuts;
        let lost_after = match self.plan.options.durability {
            Durability::Sync => None,
            // The system's buffers outlive a process.
            Durability::Interval if is_alone && !was_cut => None,
            Durability::Interval => {
                let lost = self.plan.options.sync_interval + INTERVAL_SLACK;
                Some(Monotonic(self.events.now().0.saturating_sub((Monotonic(0) + lost).0)))
            }
            Durability::None => Some(Monotonic(0)),
        };
        self.error_armed &= !is_alone;
        self.end_process(at, lost_after);
        if self.hosts[at].gone {
            return;
        }
        let down = duration_between(&mut self.rng, Duration::ZERO, self.plan.down_max);
        let down = if self.phase.has_trouble() { down } else { down / 10 };
        self.events.after(down, Event::Start(at));
        if self.phase.has_trouble()
            && self.script.is_none()
            && self.rng.chance(1, if is_alone { 4 } else { 6 })
        {
            self.arm_crash(at);
        }
    }

    fn end_process(&mut self, at: usize, lost_after: Option<Monotonic>) {
        self.hosts[at].end_process();
        self.rot.on_death();
        self.mover.on_death(at);
        self.requests.retain(|_, (node, _, _)| *node != at);
        self.auditor.on_death(at);
        self.lister.on_death(at);
        self.purger.on_death(at);
        self.on_searched_node_death(at);
        self.checks.on_death(at, self.events.now(), lost_after);
        self.events.retain(|event| !event.is_of_process(at));
        self.links_changed(at);
    }

    /// Begins a clean stop: others are told.
    pub(super) fn stop(&mut self, at: usize) {
        let by = self.events.now() + DRAIN_MAX;
        let host = &mut self.hosts[at];
        if host.machine.process.is_none() || host.machine.is_closing() || host.stops_by.is_some() {
            return;
        }
        if self.plan.is_alone() {
            // No other node can serve its clients: it stops at once.
            return self.close(at);
        }
        host.stops_by = Some(by);
        for shard in 0..usize::from(host.machine.layout.shards) {
            host.machine.shard(shard).into_iter().for_each(Shard::begin_stop);
        }
        self.trace.line(format_args!("n{at} is to stop"));
    }

    /// Goes on with a clean stop when nobody waits for the node.
    pub(super) fn close_if_drained(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        let Some(by) = host.stops_by.filter(|_| !host.machine.is_closing()) else { return };
        let shards = usize::from(host.machine.layout.shards);
        let is_drained = |shard| host.machine.shard(shard).is_some_and(|shard| shard.is_drained());
        if !(0..shards).all(is_drained) && self.events.now() < by {
            return;
        }
        self.close(at);
    }

    /// Stops each shard on its own, as each thread of a server does, while others still serve.
    fn close(&mut self, at: usize) {
        for shard in 0..usize::from(self.hosts[at].machine.layout.shards) {
            let pause = duration_between(&mut self.rng, Duration::ZERO, STOP_SPREAD_MAX);
            self.events.after(pause, Event::Close(at, shard));
        }
    }

    pub(super) fn on_close(&mut self, at: usize, shard: usize) -> Verdict {
        if self.hosts[at].machine.begin_close(shard) {
            self.trace.line(format_args!("n{at}/{shard} stops"));
            self.schedule_turn(at, shard);
        }
        self.after_shard(at, shard)
    }

    pub(super) fn on_closed(
        &mut self,
        at: usize,
        shard: usize,
        result: Result<(), engine::Error>,
    ) -> Verdict {
        self.trace.line(format_args!("n{at}/{shard} has stopped: {result:?}"));
        if let Err(error) = &result {
            damage::check_failed_start(error, Causes { closing: false, ..self.causes() })?;
        }
        match self.hosts[at].machine.on_closed(shard, result.is_err()) {
            Stop::UnderWay => {}
            Stop::Failed => self.hosts[at].machine.disk.kill(),
            Stop::Done => {
                self.end_process(at, self.plan.forgets().then_some(Monotonic(0)));
                self.hosts[at].stopped_cleanly = true;
                index::check_stopped(&self.hosts[at].machine.index_findings(), self.causes())?;
                if self.plan.is_alone() && self.rng.chance(1, 3) {
                    // A clean stop has synced everything.
                    self.power_cut(at);
                    return Ok(());
                }
                let down = duration_between(&mut self.rng, Duration::ZERO, self.plan.down_max);
                self.events.after(down, Event::Start(at));
            }
        }
        Ok(())
    }

    /// Loses a disk, if that is planned, has not been done, and can be.
    pub(super) fn lose(&mut self) {
        let Some(loss) = self.plan.loss.filter(|_| self.acknowledged >= LOSS_FROM) else { return };
        let at = match (loss, &self.backup) {
            (Loss::Restored, None) => return self.back_up(),
            (Loss::Restored, Some((at, _))) => *at,
            _ => index_below(&mut self.rng, self.hosts.len()),
        };
        let has_been = self.trace.count(loss.fault()) > 0;
        let is_coming = self.hosts.iter().any(|host| host.next_disk.is_some());
        if has_been || is_coming || self.hosts[at].machine.process.is_none() {
            return;
        }
        if loss == Loss::Gone && !self.can_lose(at) {
            return;
        }
        let own = self.hosts[at].machine.layout;
        let next = match loss {
            Loss::Wiped => Some((None, own)),
            Loss::Restored => self.backup.take().map(|(_, image)| (Some(image), own)),
            Loss::Cloned => {
                let other = (at + 1 + index_below(&mut self.rng, self.hosts.len() - 1)) % self.hosts.len();
                let machine = &self.hosts[other].machine;
                Some((Some(machine.disk.image(self.seed.stream("image", 0))), machine.layout))
            }
            Loss::Gone => {
                self.hosts[at].gone = true;
                self.trace.fault(Fault::GoneForGood, format_args!("n{at}"));
                self.checks.on_loss(at, self.events.now());
                None
            }
        };
        self.hosts[at].next_disk = next;
        self.power_cut(at);
    }

    /// Takes a copy of some node's disk, to restore later.
    fn back_up(&mut self) {
        let at = index_below(&mut self.rng, self.hosts.len());
        self.trace.line(format_args!("n{at} is backed up"));
        let image = self.hosts[at].machine.disk.image(self.seed.stream("image", 0));
        self.backup = Some((at, image));
    }

    /// Looks at the buckets of a node whose properties are not known to be right.
    pub(super) fn on_prepare(&mut self, at: usize) -> Verdict {
        let host = &self.hosts[at];
        if host.prepared || host.machine.process.is_none() || host.machine.is_closing() {
            return Ok(());
        }
        let unknown: Vec<usize> = (0..self.plan.buckets()).filter(|at| !host.buckets.contains(at)).collect();
        self.events.after(Duration::from_millis(20), Event::Prepare(at));
        unknown.into_iter().try_for_each(|bucket| self.ask_props(at, bucket))
    }

    pub(super) fn causes(&self) -> Causes {
        // On any disk, at any time: one node's error is told by others, and later. A node alone has only its process's
        // own.
        let before = if self.plan.is_alone() { self.hosts[0].faults_before } else { 0 };
        Causes {
            disk_failed: self.error_armed || self.disk_faults() > before,
            rotten: self.is_rotten,
            closing: self.hosts.iter().any(|host| host.machine.is_closing() || host.stopped_cleanly),
        }
    }

    fn disk_faults(&self) -> u64 {
        let faults = [Fault::ReadError, Fault::WriteError, Fault::SyncError, Fault::NoSpace];
        faults.into_iter().map(|fault| self.trace.count(fault)).sum()
    }

    /// How often processes have died.
    pub(super) fn deaths(&self) -> u64 {
        self.hosts.iter().map(|host| host.machine.deaths).sum()
    }

    /// Whether enough was acknowledged and answered, and enough processes have died.
    pub(super) fn has_seen_enough(&self) -> bool {
        self.acknowledged >= ACKNOWLEDGED_MIN + ACKNOWLEDGED_MIN / 5
            && self.searcher.whole >= self.kind.searches_min()
            && self.deaths() >= self.plan.deaths
    }

    /// Whether the world has seen what it is there to see.
    pub(super) fn has_lived(&self) -> bool {
        let is_changing = |host: &Host| host.next_disk.is_some();
        self.events.now() >= Monotonic(0) + self.plan.life_max()
            || self.has_seen_enough()
                && (self.trace.count(Fault::CrashInWrite) > 0 || self.plan.forgets())
                && self.trace.unfired().is_empty()
                && self.mover.has_begun_all()
                && !self.hosts.iter().any(is_changing)
    }
}
