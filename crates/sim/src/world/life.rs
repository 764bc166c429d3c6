//! Life and death of the node's process: starts, crashes, clean stops, and the blows that the world deals.

use super::{Event, Phase, STARTS_MAX, World, client};
use crate::check::answers::Causes;
use crate::check::{Verdict, Violation, damage, index};
use crate::disk::Armed;
use crate::fault::Fault;
use crate::machine::{Process, SLOW_MAX, Stop};
use crate::report::ACKNOWLEDGED_MIN;
use crate::seed::{between, duration_between};
use base::{Clock, Monotonic, Rng};
use engine::Durability;
use std::time::Duration;

/// How long a world lives at most before it is calmed down.
pub(super) const LIFE_MAX: Duration = Duration::from_secs(8);
/// How long the node is down at most.
const DOWN_MAX: Duration = Duration::from_millis(8);
/// How long a node with a failed disk goes on at most.
const FENCED_MAX: Duration = Duration::from_millis(15);
/// How far into its start or its life, in disk operations, the node may meet what is armed.
const ARMED_WITHIN: u64 = 60;
/// At durability `interval`: what a crash may take beyond the interval. Two operations of a slow disk, a tick,
/// and the way of a turn.
const INTERVAL_SLACK: Duration = SLOW_MAX.saturating_mul(2).saturating_add(Duration::from_millis(15));
/// The longest time between the first shard's stop and the last one's.
const STOP_SPREAD_MAX: Duration = Duration::from_millis(3);

impl World {
    pub(super) fn on_start(&mut self) -> Verdict {
        self.starts += 1;
        if self.starts > STARTS_MAX {
            return Err(Violation::new("a node stays up", format!("it was started {} times", self.starts)));
        }
        self.disk_faults_before = self.disk_faults();
        match self.machine.start() {
            Ok(reports) => {
                self.trace.line(format_args!("started: {reports:?}"));
                // It may have died in its last operation, or have met an error that it could live with.
                let causes = self.causes();
                let clean = std::mem::take(&mut self.stopped_cleanly);
                reports.iter().try_for_each(|report| damage::check_start(report, clean, causes))?;
                if !self.prepared {
                    self.ask_all([(0, client::allow_siblings())])?;
                }
            }
            Err(error) => {
                self.trace.line(format_args!("it does not start: {error}"));
                self.stopped_cleanly = false;
                if self.machine.deaths == self.machine.disk.deaths() {
                    damage::check_failed_start(&error, self.causes())?;
                    if matches!(error, engine::Error::Damaged(_)) {
                        // Told, not hidden: whoever runs this node must restore it.
                        self.phase = Phase::Over;
                        return Ok(());
                    }
                    self.machine.disk.power_cut();
                }
            }
        }
        self.follow_up();
        Ok(())
    }

    /// Schedules what the node has started, or its next start if its process has died.
    pub(super) fn follow_up(&mut self) {
        if self.machine.has_died() {
            return self.on_death();
        }
        let (machine, mut timer) = self.parts();
        machine.schedule_started(&mut timer);
        let fenced = self.machine.process.as_ref().and_then(Process::fenced);
        if let (Some(error), false) = (fenced, self.ending.gives_up) {
            self.trace.line(format_args!("fenced: {error}"));
            self.ending.gives_up = true;
            let pause = duration_between(&mut self.rng, Duration::ZERO, FENCED_MAX);
            if self.phase.has_clients() || !self.is_rotten() {
                self.events.after(pause, Event::GiveUp);
            }
        }
    }

    pub(super) fn on_death(&mut self) {
        // After a failed sync the system shows what the disk may not have, and calls it clean: a process that is
        // merely started again would believe it. The operator restarts the machine.
        if self.trace.count(Fault::PowerCut) == self.power_cuts && self.causes().disk_failed {
            self.machine.disk.power_cut();
            self.machine.deaths = self.machine.disk.deaths();
        }
        let cuts = self.trace.count(Fault::PowerCut);
        let lost_after = match self.plan.options.durability {
            Durability::Sync => None,
            Durability::Interval if cuts == self.power_cuts => None,
            Durability::Interval => {
                let lost = self.plan.options.sync_interval + INTERVAL_SLACK;
                Some(Monotonic(self.events.now().0.saturating_sub((Monotonic(0) + lost).0)))
            }
            Durability::None => Some(Monotonic(0)),
        };
        self.power_cuts = cuts;
        self.error_armed = false;
        self.prepared &= lost_after.is_none();
        self.end_process(lost_after);
        let down = duration_between(&mut self.rng, Duration::ZERO, DOWN_MAX);
        self.events.after(down, Event::Start);
        if self.phase.has_trouble() && self.rng.chance(1, 4) {
            self.arm_crash();
        }
    }

    fn end_process(&mut self, lost_after: Option<Monotonic>) {
        self.machine.end_process();
        self.watch.clear();
        self.requests.clear();
        self.ending.on_death();
        self.checks.on_death(lost_after);
        self.events.retain(|event| !event.is_of_process());
    }

    pub(super) fn on_trouble(&mut self) {
        if !self.phase.has_trouble() {
            return;
        }
        let up = self.machine.process.is_some();
        match self.rng.below(12) {
            0 | 1 => self.machine.disk.power_cut(),
            2 => self.machine.disk.kill(),
            3..6 => self.arm_crash(),
            6 | 7 if up && self.plan.has_disk_errors() => {
                let operations = between(&mut self.rng, 1, ARMED_WITHIN);
                self.machine.disk.arm(operations, Armed::Error);
                self.error_armed = true;
            }
            8 if self.plan.clock_jumps => {
                let jump = i64::try_from(self.rng.below(20_000_000)).expect("a small number") - 10_000_000;
                self.machine.clock.jump(jump);
                let wall = self.machine.clock.wall();
                self.trace.fault(Fault::ClockJump, format_args!("to {}", wall.0));
            }
            9 | 10 => self.stop(),
            _ => {}
        }
        self.follow_up();
        let pause = match self.rng.chance(1, 4) {
            true => self.plan.trouble_pause_max / 10,
            false => self.plan.trouble_pause_max,
        };
        let pause = duration_between(&mut self.rng, Duration::ZERO, pause);
        self.events.after(pause, Event::Trouble);
    }

    fn arm_crash(&mut self) {
        let crash = if self.rng.chance(2, 3) { Armed::PowerCut } else { Armed::Kill };
        self.machine.disk.arm(between(&mut self.rng, 1, ARMED_WITHIN), crash);
    }

    /// Begins a clean stop: each shard on its own, as each thread of a server does, while others still serve.
    pub(super) fn stop(&mut self) {
        let up = self.machine.process.as_ref().is_some_and(|process| !process.closing.contains(&true));
        for shard in 0..usize::from(self.plan.shards).min(if up { usize::MAX } else { 0 }) {
            let pause = duration_between(&mut self.rng, Duration::ZERO, STOP_SPREAD_MAX);
            self.events.after(pause, Event::Close(shard));
        }
    }

    pub(super) fn on_close(&mut self, shard: usize) -> Verdict {
        if self.machine.begin_close(shard) {
            self.trace.line(format_args!("shard {shard} stops"));
            self.schedule_turn(shard);
        }
        self.after_shard(shard)
    }

    pub(super) fn on_closed(&mut self, shard: usize, result: Result<(), engine::Error>) -> Verdict {
        self.trace.line(format_args!("shard {shard} has stopped: {result:?}"));
        let causes = self.causes();
        if let Err(error) = &result {
            damage::check_failed_start(error, Causes { closing: false, ..causes })?;
        }
        match self.machine.on_closed(shard, result.is_err()) {
            Stop::UnderWay => return Ok(()),
            Stop::Failed => {
                self.machine.disk.kill();
                return Ok(());
            }
            Stop::Done => {}
        }
        self.prepared &= !self.plan.forgets();
        self.end_process(self.plan.forgets().then_some(Monotonic(0)));
        self.stopped_cleanly = true;
        index::check_stopped(&self.machine.index_findings(), causes)?;
        if self.rng.chance(1, 3) {
            // A clean stop has left nothing to the system's memory.
            self.machine.disk.power_cut();
            return Ok(());
        }
        let down = duration_between(&mut self.rng, Duration::ZERO, DOWN_MAX);
        self.events.after(down, Event::Start);
        Ok(())
    }

    pub(super) fn causes(&self) -> Causes {
        Causes {
            disk_failed: self.error_armed || self.disk_faults() > self.disk_faults_before,
            rotten: self.is_rotten(),
            closing: self.machine.is_closing(),
        }
    }

    fn disk_faults(&self) -> u64 {
        let faults = [Fault::ReadError, Fault::WriteError, Fault::SyncError, Fault::NoSpace];
        faults.into_iter().map(|fault| self.trace.count(fault)).sum()
    }

    pub(super) fn is_rotten(&self) -> bool {
        self.trace.count(Fault::BitFlip) + self.trace.count(Fault::Misdirect) > 0
    }

    /// Whether the world has seen what it is there to see, but for rot.
    pub(super) fn has_lived(&self) -> bool {
        let rot = [Fault::BitFlip, Fault::Misdirect];
        self.events.now() >= Monotonic(0) + LIFE_MAX
            || self.acknowledged >= ACKNOWLEDGED_MIN + ACKNOWLEDGED_MIN / 5
                && self.machine.deaths >= self.plan.deaths
                && (self.plan.forgets() || self.trace.count(Fault::CrashInWrite) > 0)
                && self.trace.unfired().iter().all(|fault| rot.contains(fault))
    }
}
