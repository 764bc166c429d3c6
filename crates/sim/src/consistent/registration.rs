//! Registration of processes: a model of what a node's shell does with the metadata log.
//!
//! 1. A process that has started asks the registry for its start, is told the births that its stores keep, and
//!    registers them when they are durable. Each step takes time. The folder of an older copy counts the start that it
//!    was told only then.
//! 2. Each change of the registry reaches each node that runs, at some time. A node that is cut from most others hears
//!    of it later.

use super::ending::Phase;
use super::{Event, World, node_id};
use crate::check::{Verdict, Violation};
use crate::seed::duration_between;
use membership::state::StoreBirths;
use std::time::Duration;

/// The longest time of each step of a registration while nothing goes wrong.
const AGREEMENT_CALM_MAX: Duration = Duration::from_millis(50);
/// A node that is cut from most others asks for the agreement again after this time.
const HEAR_AGAIN: Duration = Duration::from_millis(200);

const BIRTH: &str = "a store that lost nothing keeps its birth";

impl World {
    pub(super) fn agreement_delay(&mut self) -> Duration {
        let longest = if self.phase.has_trouble() { self.plan.agreement_max } else { AGREEMENT_CALM_MAX };
        duration_between(&mut self.rng, Duration::from_millis(1), longest)
    }

    /// The registry takes the start of a process. It does so also while the process stands still.
    pub(super) fn on_confirm(&mut self, at: usize) -> Verdict {
        let Some(process) = &self.hosts[at].machine.process else { return Ok(()) };
        let (life, found) = (process.life, process.births.clone());
        let before = self.registry.births(at);
        let mut stores = found.iter().enumerate();
        let is_held = self.registry.is_founded()
            && stores.any(|(shard, found)| found.is_held(before.get(shard).copied()));
        let (starts, births) = self.registry.begin((at, life, self.hosts[at].starts + 1), &found);
        if is_held {
            self.trace.line(format_args!("n{at} is start {starts}, and holds its groups back"));
            self.hosts[at].is_held = true;
            self.hosts[at].count_start(starts);
            self.publish();
            return Ok(());
        }
        let replaced = before.iter().zip(&births).filter(|(before, birth)| before != birth).count();
        self.tally.births += replaced as u64;
        // The births of a restored node may be newer than those that were registered before the loss.
        if replaced > 0 && !self.hosts[at].is_hurt && !self.is_restoring {
            return Err(Violation::new(
                BIRTH,
                format!("n{at} found {found:?}, of which {before:?} is registered"),
            ));
        }
        self.hosts[at].count_start(starts);
        self.trace.line(format_args!("n{at} is start {starts}, with births {births:?}"));
        self.give_births(at, births)?;
        self.publish();
        if self.phase == Phase::Stopping {
            // A stop on a full disk fails; the operator tries again.
            self.stop(at);
        }
        Ok(())
    }

    /// Has the stores of a node keep births.
    pub(super) fn give_births(&mut self, at: usize, births: Vec<ring::Birth>) -> Verdict {
        self.hosts[at].kept = vec![None; births.len()];
        self.hosts[at].given = births.clone();
        for (shard, birth) in births.into_iter().enumerate() {
            if let Some(running) = self.hosts[at].machine.shard(shard) {
                running.keep_birth(birth);
                self.schedule_turn(at, shard);
                self.after_shard(at, shard)?;
            }
        }
        Ok(())
    }

    /// Whether the registry has the starts of all processes, all of which run.
    pub(super) fn are_confirmed(&self) -> bool {
        let mut hosts = self.hosts.iter().enumerate();
        hosts.all(|(at, host)| host.life().is_some_and(|life| self.registry.has_begun(at, life)))
    }

    pub(super) fn on_birth_kept(&mut self, at: usize, shard: usize, birth: ring::Birth) {
        let host = &mut self.hosts[at];
        host.kept[shard] = Some(birth);
        let are_kept = host.given.iter().zip(&host.kept).all(|(given, kept)| Some(*given) == *kept);
        if are_kept {
            host.write_raised_starts();
        }
        if are_kept && !host.registers {
            host.registers = true;
            let delay = self.agreement_delay();
            self.events.after(delay, Event::Register(at));
        }
    }

    /// The registry takes the births of a node's stores.
    pub(super) fn on_register(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        host.registers = false;
        let Some(life) = host.life() else { return };
        let kept: Option<Vec<ring::Birth>> = host.kept.iter().copied().collect();
        let Some(births) = kept.filter(|kept| *kept == host.given) else { return };
        let ring_bits = u8::try_from(self.ring.size().bits()).expect("a few bits");
        let is_taken = self.registry.register(at, life, StoreBirths { ring_bits, births: births.into() });
        self.trace.line(format_args!("n{at} is registered: {is_taken}"));
        self.publish();
    }

    /// A store of a node has forgotten: it gets another birth.
    pub(super) fn on_forgot(&mut self, at: usize, shard: usize) -> Verdict {
        let host = &mut self.hosts[at];
        let Some(running) = host.machine.shard(shard) else { return Ok(()) };
        if host.given.get(shard).copied() != running.birth() {
            return Ok(());
        }
        if !host.is_hurt {
            return Err(Violation::new(BIRTH, format!("n{at}/{shard} has forgotten")));
        }
        let birth = self.registry.draw();
        self.trace.line(format_args!("n{at}/{shard} has forgotten, and is {birth:?} now"));
        self.tally.births += 1;
        let host = &mut self.hosts[at];
        host.given[shard] = birth;
        host.machine.shard(shard).into_iter().for_each(|running| running.keep_birth(birth));
        self.schedule_turn(at, shard);
        Ok(())
    }

    /// All nodes hear of a change, some sooner than others.
    pub(super) fn publish(&mut self) {
        for at in 0..self.hosts.len() {
            let delay = self.agreement_delay();
            self.events.after(delay, Event::Publish(at));
        }
    }

    /// A node hears of the agreement, if it can speak to most others.
    pub(super) fn on_publish(&mut self, at: usize) -> Verdict {
        let (nodes, version) = (self.hosts.len(), self.registry.version());
        if self.hosts[at].machine.process.is_none() || self.hosts[at].heard == version {
            return Ok(());
        }
        let reached = (0..nodes).filter(|&other| self.is_joined(at, other)).count();
        if 2 * reached <= nodes {
            self.events.after(HEAR_AGAIN, Event::Publish(at));
            return Ok(());
        }
        self.hosts[at].heard = version;
        let agreement = self.registry.agreement();
        self.trace.line(format_args!("n{at} hears of agreement {version}"));
        for shard in 0..self.hosts[at].shards() {
            if let Some(running) = self.hosts[at].machine.shard(shard) {
                running.agree(std::sync::Arc::clone(&agreement));
                self.schedule_turn(at, shard);
                self.after_shard(at, shard)?;
            }
        }
        Ok(())
    }

    /// Whether two nodes can speak to each other both ways.
    pub(super) fn is_joined(&self, one: usize, two: usize) -> bool {
        let (from, to) = (node_id(one), node_id(two));
        one == two || !self.inside.is_cut(from, to) && !self.inside.is_cut(to, from)
    }
}
