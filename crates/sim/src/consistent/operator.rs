//! The operator of restored nodes: the command `annulet admin strong recover --all`, with the product's own choice.
//!
//! 1. All nodes are surveyed: each holds its groups back, or has registered its stores. When none holds any, all groups
//!    have a majority, and the command is done.
//! 2. The epoch of the groups is raised, and each node hears of it. Then the copies are told.
//! 3. The best copy of each group is chosen ([`choose`]).
//! 4. Each node that is held back adopts its groups, shard by shard and piece by piece, and gets its births; then the
//!    next one does.
//! 5. When a node was started anew meanwhile, the operator begins again.
//!
//! Crashes come between two pieces, between the adoption and the birth, and between the birth and its registration.
//!
//! Modelled: the numbers of surveys by the numbers of processes; the requests between operator and nodes by calls.

use super::{Event, World};
use crate::check::{Verdict, Violation};
use crate::seed::duration_between;
use base::Rng;
use base::rng::SplitMix64;
use node::Adoption;
use node::survey::{Choice, GroupCopy, Stores, choose};
use node::{AdoptError, VoterId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The longest time between two steps of the command.
const STEP_MAX: Duration = Duration::from_millis(60);
/// The longest time from a node's adoption to its births.
const ADOPTS_MAX: Duration = Duration::from_millis(3);
/// Steps that wait for registrations before the operator begins again.
const WAITS_MAX: u32 = 300;

const CHOSEN: &str = "each group of restored nodes can be recovered";

/// A node that goes on with the groups that were chosen for it.
struct Release {
    at: usize,
    life: u64,
    adoption: Adoption,
    /// The groups of each shard that are written.
    written: Vec<usize>,
}

/// The groups that a node has adopted.
enum Adopts {
    All,
    Part,
    /// None further: a store takes no writes.
    Refused,
}

/// The step of the command.
enum Step {
    Survey,
    /// The epoch is raised.
    Raised,
    /// Nodes are let go on. The first of them has adopted all its groups, or not.
    Releasing {
        left: VecDeque<Release>,
        has_adopted: bool,
    },
    /// They register their stores.
    Registering(u32),
}

/// The command under way.
pub(super) struct Recovery {
    rng: SplitMix64,
    step: Step,
}

/// The nodes, as the choice asks for them.
struct Answered<'a>(&'a World);

impl Stores for Answered<'_> {
    fn is_held(&self, node: ring::NodeId) -> bool {
        self.0.hosts[usize::from(node.0)].is_held
    }

    fn votes(&self, voter: VoterId) -> bool {
        !self.is_held(voter.node) && self.0.registry.votes(voter)
    }
}

impl Recovery {
    pub(super) fn new(rng: SplitMix64) -> Recovery {
        Recovery { rng, step: Step::Survey }
    }

    /// The time until its next step.
    pub(super) fn delay(&mut self) -> Duration {
        let max =
            if let Step::Releasing { has_adopted: true, .. } = self.step { ADOPTS_MAX } else { STEP_MAX };
        duration_between(&mut self.rng, Duration::from_micros(100), max)
    }
}

impl World {
    /// The next step of the operator's command; whether it has ended.
    pub(super) fn recover_next(&mut self, recovery: &mut Recovery) -> Result<bool, Violation> {
        match &mut recovery.step {
            Step::Survey if self.are_answering() => {
                if self.hosts.iter().all(|host| !host.is_held) {
                    // A node that has just started knows of no group yet.
                    if !self.have_heard() {
                        return Ok(false);
                    }
                    self.check_recovered()?;
                    return Ok(true);
                }
                self.registry.raise_epoch();
                self.trace.line(format_args!("the operator begins epochs {:?}", self.registry.epochs()));
                self.publish();
                recovery.step = Step::Raised;
            }
            Step::Raised if self.are_answering() && self.have_heard() => {
                let left = self.choose_copies(&mut recovery.rng)?;
                recovery.step = Step::Releasing { left, has_adopted: false };
            }
            Step::Releasing { left, has_adopted } => {
                let Some(next) = left.front_mut() else {
                    recovery.step = Step::Registering(0);
                    return Ok(false);
                };
                let at = next.at;
                let is_same = self.hosts[at].life() == Some(next.life);
                if !is_same || !self.hosts[at].serves() {
                    recovery.step = Step::Survey;
                } else if !*has_adopted {
                    match self.adopt(next)? {
                        Adopts::All => *has_adopted = true,
                        Adopts::Part => {}
                        Adopts::Refused => recovery.step = Step::Survey,
                    }
                    if recovery.rng.chance(1, 10) {
                        self.power_cut(at);
                    }
                } else {
                    let release = left.pop_front().expect("it is the first");
                    *has_adopted = false;
                    self.release(release, &mut recovery.rng)?;
                }
            }
            Step::Registering(waits) => {
                *waits += 1;
                let is_held = self.hosts.iter().any(|host| host.is_held);
                if is_held || *waits > WAITS_MAX || self.are_registered() {
                    recovery.step = Step::Survey;
                }
            }
            Step::Survey | Step::Raised => {}
        }
        Ok(false)
    }

    /// Whether each node answers a survey: it holds its groups back, or is registered.
    fn are_answering(&self) -> bool {
        self.hosts.iter().enumerate().all(|(at, host)| {
            let is_registered = host.life().is_some_and(|life| self.registry.has(at, life));
            host.serves() && (host.is_held || is_registered)
        })
    }

    fn have_heard(&self) -> bool {
        self.hosts.iter().all(|host| host.heard == self.registry.version())
    }

    /// The copies of all nodes, by group.
    fn copies(&mut self) -> BTreeMap<(u8, u16), Vec<GroupCopy>> {
        let mut copies: BTreeMap<(u8, u16), Vec<GroupCopy>> = BTreeMap::new();
        for host in &mut self.hosts {
            for shard in 0..host.shards() {
                let told = host.machine.shard(shard).map(|shard| shard.status().copies());
                for report in told.into_iter().flatten() {
                    copies.entry((report.n_val, report.prefix)).or_default().push(report.copy);
                }
            }
        }
        copies
    }

    /// Chooses a copy of each group. The groups of each node that is held back.
    fn choose_copies(&mut self, rng: &mut SplitMix64) -> Result<VecDeque<Release>, Violation> {
        let copies = self.copies();
        let mut chosen: BTreeMap<usize, Vec<(u8, u16)>> = BTreeMap::new();
        for (&group, copies) in &copies {
            match choose(copies, self.registry.copies(), &Answered(self)) {
                Choice::Lives => {}
                Choice::Copy(it) if it.may_lack_writes => {
                    return Err(Violation::new(CHOSEN, format!("{group:?} may lack writes: {copies:#?}")));
                }
                Choice::Copy(it) => chosen.entry(usize::from(it.node.0)).or_default().push(group),
                Choice::Refused(why) => {
                    return Err(Violation::new(CHOSEN, format!("{group:?}: {why}: {copies:#?}")));
                }
            }
        }
        let mut left = VecDeque::new();
        for at in (0..self.hosts.len()).filter(|at| self.hosts[*at].is_held) {
            let births = (0..self.hosts[at].shards()).map(|_| ring::Birth::draw(rng)).collect();
            let groups = chosen.remove(&at).unwrap_or_default();
            self.trace.line(format_args!("n{at} is to go on with {} groups", groups.len()));
            let adoption = Adoption { births, epochs: self.registry.epochs(), groups };
            let life = self.hosts[at].life().expect("it has answered");
            let written = vec![0; self.hosts[at].shards()];
            left.push_back(Release { at, life, adoption, written });
        }
        Ok(left)
    }

    /// Has a node adopt the next piece of its groups. A store without room for a group makes some until the next step.
    fn adopt(&mut self, release: &mut Release) -> Result<Adopts, Violation> {
        let Release { at, ref adoption, ref mut written, .. } = *release;
        for (shard, written) in (0..self.hosts[at].shards()).zip(written) {
            let Some(running) = self.hosts[at].machine.shard(shard) else { return Ok(Adopts::Refused) };
            let adopted = running.adopt(adoption, *written);
            self.trace.line(format_args!("n{at}/{shard} adopts groups: {adopted:?}"));
            let adopted = match adopted {
                Ok(adopted) => adopted,
                Err(AdoptError::Store(_)) => return Ok(Adopts::Refused),
                Err(error) => return Err(Violation::new(CHOSEN, format!("n{at}/{shard}: {error}"))),
            };
            *written = adopted.written;
            self.schedule_turn(at, shard);
            self.after_shard(at, shard)?;
            if !adopted.are_complete() {
                return Ok(Adopts::Part);
            }
        }
        Ok(Adopts::All)
    }

    /// Gives a node's stores their births. Its power is cut in some cases, before they are registered or after.
    fn release(&mut self, release: Release, rng: &mut SplitMix64) -> Verdict {
        let Release { at, adoption, .. } = release;
        self.trace.line(format_args!("n{at} goes on with births {:?}", adoption.births));
        for (_, prefix) in &adoption.groups {
            self.held_groups.remove(prefix);
        }
        self.hosts[at].is_held = false;
        self.give_births(at, adoption.births)?;
        if rng.chance(1, 5) {
            let delay = duration_between(rng, Duration::ZERO, self.plan.agreement_max);
            self.events.after(delay, Event::CutPower(at));
        }
        Ok(())
    }

    /// Checks that no group is left without a majority.
    fn check_recovered(&mut self) -> Verdict {
        for (group, copies) in self.copies() {
            let choice = choose(&copies, self.registry.copies(), &Answered(self));
            if choice != Choice::Lives {
                let what = format!("{group:?} is {choice:?}: {copies:#?}\n{}", self.describe());
                return Err(Violation::new("a recovered group has a majority", what));
            }
        }
        Ok(())
    }
}
