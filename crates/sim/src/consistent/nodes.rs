//! Nodes: starts and ends of processes, turns of their shards, and outputs.
//!
//! A process that ends breaks the connections of its clients.

use super::ending::Phase;
use super::scenario::Scenario;
use super::{Event, World};
use crate::check::answers::Causes;
use crate::check::{Verdict, damage};
use crate::disk::DiskOdds;
use crate::fault::Fault;
use crate::machine::{Process, Step, Stop};
use crate::seed::duration_between;
use base::Rng;
use node::{Output, Shard};
use std::time::Duration;

/// The longest time that a node with a full disk goes on.
const FENCED_MAX: Duration = Duration::from_millis(400);

impl World {
    pub(super) fn on_start(&mut self, at: usize) -> Verdict {
        if self.hosts[at].gone || self.hosts[at].machine.process.is_some() {
            return Ok(());
        }
        self.change_disk(at);
        match self.hosts[at].machine.start() {
            Ok(reports) => {
                self.trace.line(format_args!("n{at} has started: {reports:?}"));
                let causes = self.causes(at);
                reports.iter().try_for_each(|report| damage::check_start(report, false, causes))?;
                let delay = self.agreement_delay();
                self.events.after(delay, Event::Confirm(at));
                self.links_changed(at);
            }
            Err(error) => {
                self.trace.line(format_args!("n{at} does not start: {error}"));
                let machine = &self.hosts[at].machine;
                if machine.deaths == machine.disk.deaths() {
                    damage::check_failed_start(&error, self.causes(at))?;
                    self.hosts[at].machine.disk.power_cut();
                    // An operator who restores all nodes makes room, and starts it again.
                    if self.hosts[at].is_hurt && !self.is_restoring {
                        self.trace.line(format_args!("n{at} is given up"));
                        self.hosts[at].gone = true;
                    }
                }
            }
        }
        self.follow_up(at);
        Ok(())
    }

    /// Puts another folder in, if the world has decided to.
    fn change_disk(&mut self, at: usize) {
        let Some(folder) = self.hosts[at].next_disk.take() else { return };
        let host = &mut self.hosts[at];
        host.machine.disk.replace(folder.as_ref().map(|folder| &folder.image));
        host.starts = folder.as_ref().map_or(0, |folder| folder.starts);
        if self.is_restoring {
            self.trace.line(format_args!("n{at} has the folder of its backup"));
            return;
        }
        let fault = self.plan.loss.expect("it was planned").fault();
        self.trace.fault(fault, format_args!("n{at}"));
    }

    pub(super) fn causes(&self, at: usize) -> Causes {
        use Fault::{NoSpace, ReadError, SyncError, WriteError};
        let errors = [NoSpace, ReadError, SyncError, WriteError];
        let disk_failed = errors.iter().any(|fault| self.trace.count(*fault) > 0);
        Causes { disk_failed, rotten: self.hosts[at].is_hurt, closing: false }
    }

    /// Schedules the operations that a node has begun, or its next start if its process has died.
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
            let pause = duration_between(&mut self.rng, Duration::ZERO, FENCED_MAX);
            self.events.after(pause, Event::CutPower(at));
        }
    }

    pub(super) fn power_cut(&mut self, at: usize) {
        self.hosts[at].machine.disk.power_cut();
        self.follow_up(at);
    }

    pub(super) fn on_death(&mut self, at: usize) {
        if self.plan.has_disk_errors() {
            // The system's memory may show writes that failed; the operator restarts the machine.
            self.hosts[at].machine.disk.power_cut();
            self.hosts[at].machine.has_died();
        }
        let is_pure = self.scenario.as_ref().is_some_and(Scenario::is_pure);
        // Faults end with the heal, also those of a process that dies later.
        let is_sound = is_pure || !self.phase.has_trouble();
        let odds = if is_sound { DiskOdds::SOUND } else { self.plan.disk };
        self.hosts[at].machine.disk.set_odds(odds);
        self.end_process(at);
        let down = duration_between(&mut self.rng, Duration::ZERO, self.plan.down_max);
        let down = if self.phase.has_trouble() { down } else { down / 10 };
        let down = self.hosts[at].next_down.take().unwrap_or(down);
        self.events.after(down, Event::Start(at));
        if self.phase.has_trouble() && self.scenario.is_none() && self.rng.chance(1, 6) {
            self.arm_crash(at);
        }
    }

    pub(super) fn end_process(&mut self, at: usize) {
        self.hosts[at].end_process();
        self.break_connections(at);
        self.probes.on_death(at);
        self.events.retain(|event| !event.is_of_process(at));
        self.links_changed(at);
    }

    /// Begins a clean stop of each shard.
    pub(super) fn stop(&mut self, at: usize) {
        if !self.hosts[at].serves() {
            return;
        }
        self.trace.line(format_args!("n{at} is to stop"));
        for shard in 0..self.hosts[at].shards() {
            self.hosts[at].machine.shard(shard).into_iter().for_each(Shard::begin_stop);
            self.schedule_turn(at, shard);
            let pause = duration_between(&mut self.rng, Duration::ZERO, Duration::from_millis(200));
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

    fn on_closed(&mut self, at: usize, shard: usize, result: Result<(), engine::Error>) -> Verdict {
        self.trace.line(format_args!("n{at}/{shard} has stopped: {result:?}"));
        if let Err(error) = &result {
            damage::check_failed_start(error, self.causes(at))?;
        }
        match self.hosts[at].machine.on_closed(shard, result.is_err()) {
            Stop::UnderWay => {}
            Stop::Failed => self.hosts[at].machine.disk.kill(),
            Stop::Done => {
                self.end_process(at);
                if self.phase != Phase::Stopping {
                    let down = duration_between(&mut self.rng, Duration::ZERO, self.plan.down_max);
                    self.events.after(down, Event::Start(at));
                }
            }
        }
        Ok(())
    }

    /// The number of deaths of processes.
    pub(super) fn deaths(&self) -> u64 {
        self.hosts.iter().map(|host| host.machine.deaths).sum()
    }

    // Turns and outputs.

    pub(super) fn schedule_turn(&mut self, at: usize, shard: usize) {
        let (machine, mut timer) = self.parts(at);
        machine.schedule_turn(shard, &mut timer);
    }

    pub(super) fn on_step(&mut self, at: usize, step: Step) -> Verdict {
        let stalled_until = self.hosts[at].stalled_until;
        if matches!(step, Step::DiskEnds(_)) && stalled_until > self.events.now() {
            self.events.at(stalled_until, Event::Machine(at, step));
            return Ok(());
        }
        let (machine, mut timer) = self.parts(at);
        match machine.run(step, &mut timer) {
            Some(shard) => self.after_shard(at, shard),
            None => {
                self.follow_up(at);
                Ok(())
            }
        }
    }

    pub(super) fn on_tick(&mut self, at: usize) -> Verdict {
        if self.hosts[at].machine.process.is_some() && self.plan.loss.is_some() {
            let host = &mut self.hosts[at];
            host.watch.look(&host.machine.disk);
        }
        for shard in 0..self.hosts[at].shards() {
            if let Some(running) = self.hosts[at].machine.shard(shard) {
                running.tick();
                running.turn();
                running.invariants();
                self.after_shard(at, shard)?;
            }
        }
        Ok(())
    }

    /// Takes a shard's outputs, and the operations that it has begun.
    pub(super) fn after_shard(&mut self, at: usize, shard: usize) -> Verdict {
        let mut outputs = Vec::new();
        loop {
            self.hosts[at].machine.take_outputs(shard, &mut outputs);
            if outputs.is_empty() {
                break;
            }
            for output in outputs.drain(..) {
                self.on_output(at, shard, output)?;
            }
        }
        self.follow_up(at);
        Ok(())
    }

    fn on_output(&mut self, at: usize, shard: usize, output: Output) -> Verdict {
        match output {
            Output::Reply { to, result, more } => {
                assert!(!more, "nobody asks for anything long");
                return self.on_reply(at, to.0, result);
            }
            Output::Hop { to, message } => {
                let (machine, mut timer) = self.parts(at);
                machine.send_hop((shard, to), message, &mut timer);
            }
            Output::Peer { to, message } => return self.send(at, shard, usize::from(to.0), message),
            Output::BirthKept(birth) => self.on_birth_kept(at, shard, birth),
            Output::Forgot => return self.on_forgot(at, shard),
            Output::Closed(result) => return self.on_closed(at, shard, result),
            // Members and owners are fixed.
            Output::Adopted(_) | Output::Copied(_) => {}
            Output::Slow(_) => unreachable!("the log of slow requests is off"),
        }
        Ok(())
    }
}
