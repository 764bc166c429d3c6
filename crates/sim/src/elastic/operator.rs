//! Whoever changes the cluster: he gives his commands to any node that runs, looks again later, and tries again what
//! was refused.
//!
//! A *wish* is about one member; those that are there together are staged one after the other and committed together.
//! Members whose nodes are gone for good are removed by force, or replaced.

use super::host::Host;
use super::least::Least;
use super::plan::Plan;
use super::{ADDRESS, Event, Phase, World, name};
use crate::check::{Verdict, Violation};
use crate::seed::{Seed, between, index_below};
use base::Rng;
use base::rng::SplitMix64;
use membership::log::Outcome;
use membership::state::{self, Change, Command, Record, State, Step};
use membership::{Input, NodeId};
use ring::{MemberState, RingSize};
use std::collections::{BTreeSet, VecDeque};

/// Members that stay: each partition keeps its replicas when one of them is gone.
const STAYING_MIN: usize = 5;
/// A plan may move a fifth more than it must; the least of it is for rings on which there is little to move.
const SLACK: usize = 8;

/// What a plan moves is judged where each node has as many partitions as large clusters are told to have.
const PARTITIONS_EACH: usize = 16;
/// And where there are so many nodes that copies are apart without effort.
const CLAIMERS_MIN: usize = 2 * ring::TARGET_N_DEFAULT;

/// What is to become of a member, or of a node that is none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The node that is the so-manyth to come joins.
    Join(u16),
    /// The ring has so many partitions.
    Grow(RingSize),
    Leave(NodeId),
    /// A newcomer that was wished for before takes its place.
    Replace(NodeId),
    ForceRemove(NodeId),
    ForceReplace(NodeId),
}

/// The operator.
pub(super) struct Operator {
    rng: SplitMix64,
    /// Draws when the ring grows, and how often it may still double.
    growth: SplitMix64,
    doublings_left: u32,
    wishes: VecDeque<Wish>,
    /// Nodes that have come.
    come: u16,
    come_max: u16,
    changes: u64,
    changes_left: u64,
    last_token: u64,
    /// The commits that were given.
    commits: BTreeSet<u64>,
}

impl Operator {
    pub(super) fn new(seed: Seed, plan: &Plan) -> Operator {
        Operator {
            rng: seed.stream("operator", 0),
            growth: seed.stream("growth", 1),
            doublings_left: plan.doublings,
            wishes: VecDeque::new(),
            come: plan.founders,
            come_max: plan.founders + plan.newcomers,
            changes: 0,
            changes_left: plan.changes,
            last_token: super::REPORT,
            commits: BTreeSet::new(),
        }
    }

    /// Changes that were committed.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Changes that are still to be committed.
    pub(super) fn changes_left(&self) -> u64 {
        self.changes_left
    }

    /// Whether he has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.wishes.is_empty()
    }

    pub(super) fn wish(&mut self, wish: Wish) {
        self.wishes.push_back(wish);
    }

    /// The next node to come, if there is one.
    pub(super) fn newcomer(&mut self) -> Option<Wish> {
        let at = Some(self.come).filter(|at| *at < self.come_max)?;
        self.come += 1;
        Some(Wish::Join(at))
    }

    pub(super) fn on_answer(&mut self, token: u64, outcome: Outcome) {
        if self.commits.remove(&token) && outcome.is_ok() {
            self.changes += 1;
            self.changes_left = self.changes_left.saturating_sub(1);
        }
    }

    /// Wishes for a change of members, of the ring, or of both together.
    fn draw(&mut self, valid: &[NodeId], size: RingSize) {
        if self.doublings_left > 0 && self.growth.chance(1, 2) {
            self.doublings_left -= 1;
            let larger =
                RingSize::new(size.partitions() << 1).expect("a ring may double as often as a plan says");
            self.wish(Wish::Grow(larger));
            if self.growth.chance(1, 2) {
                return;
            }
        }
        let leaver = valid[index_below(&mut self.rng, valid.len())];
        let may_leave = valid.len() > STAYING_MIN;
        if !may_leave && self.come == self.come_max {
            // Nobody may go and nobody is to come: another change comes about only by another node.
            self.come_max += 1;
        }
        match self.rng.below(5) {
            0 | 1 => {
                for _ in 0..between(&mut self.rng, 1, 3) {
                    let newcomer = self.newcomer();
                    self.wishes.extend(newcomer);
                }
            }
            2 if may_leave => self.wishes.push_back(Wish::Leave(leaver)),
            _ => match self.newcomer() {
                Some(newcomer) => self.wishes.extend([newcomer, Wish::Replace(leaver)]),
                None if may_leave => self.wishes.push_back(Wish::Leave(leaver)),
                None => {}
            },
        }
    }

    /// Wishes for a member that is gone for good to be removed.
    fn remove(&mut self, gone: NodeId) {
        let is_wished =
            |wish: &Wish| matches!(wish, Wish::ForceRemove(node) | Wish::ForceReplace(node) if *node == gone);
        if self.wishes.iter().any(is_wished) {
            return;
        }
        let replaces = self.rng.chance(1, 2);
        match self.newcomer().filter(|_| replaces) {
            Some(newcomer) => self.wishes.extend([newcomer, Wish::ForceReplace(gone)]),
            None => self.wishes.push_back(Wish::ForceRemove(gone)),
        }
    }

    /// The command that comes next by this state, if one does. Wishes that are fulfilled, or cannot be, are forgotten.
    fn next(&mut self, state: &State, plan: &Plan) -> Option<Command> {
        let expected = state.version();
        while let Some(&wish) = self.wishes.front() {
            let staged = |node: NodeId, change| Some(Command::Stage { expected, node, change });
            let is_open = |node: &NodeId| {
                let is_member = state.members().get(node).is_some_and(|it| !it.is_forgotten());
                is_member && !state.staged().contains_key(node)
            };
            let is_valid = |node: &NodeId| {
                state.members().get(node).is_some_and(|it| it.member.state == MemberState::Valid)
            };
            let command = match wish {
                Wish::Join(at) if !has_named(state, at) => Some(Command::Admit {
                    expected,
                    name: name(at),
                    address: ADDRESS.to_owned(),
                    zone: plan.zone(at),
                    weight: 100,
                }),
                // A ring grows by itself: who waits for what moves may wait for somebody who is gone.
                Wish::Grow(size) if may_grow(state, size) => Some(Command::StageRing { expected, size }),
                Wish::Leave(node) if is_open(&node) && is_valid(&node) => staged(node, Change::Leave),
                Wish::Replace(node) if is_open(&node) && is_valid(&node) => {
                    newcomer(state).and_then(|by| staged(node, Change::Replace(by)))
                }
                Wish::ForceRemove(node) if is_open(&node) => staged(node, Change::ForceRemove),
                Wish::ForceReplace(node) if is_open(&node) => {
                    // Who was about to go has no place that another could take.
                    let has_place = state.members()[&node].member.state.may_own();
                    match newcomer(state).filter(|_| has_place) {
                        Some(by) => staged(node, Change::ForceReplace(by)),
                        None => staged(node, Change::ForceRemove),
                    }
                }
                _ => None,
            };
            if command.is_some() {
                return command;
            }
            self.wishes.pop_front();
        }
        None
    }
}

fn may_grow(state: &State, size: RingSize) -> bool {
    let is_at_rest = *state.step() == Step::AtRest && state.heading() == state.owners();
    is_at_rest && state.size() < size && state.staged_size() != Some(size)
}

fn has_named(state: &State, at: u16) -> bool {
    state.members().values().any(|record| *record.member.name == *name(at))
}

/// Who waits to join and takes nobody's place yet.
fn newcomer(state: &State) -> Option<NodeId> {
    let is_free = |node: &NodeId| !state.staged().values().any(|change| change.by() == Some(*node));
    let joining =
        |(node, record): (&NodeId, &Record)| (record.member.state == MemberState::Joining).then_some(*node);
    state.members().iter().filter_map(joining).find(is_free)
}

impl World {
    /// Looks at the cluster through one of its nodes, and gives it a command if one is due.
    pub(super) fn operate(&mut self) -> Verdict {
        let pause = self.draw(self.plan.operator_pause_max);
        self.events.after(pause, Event::Operate);
        let knows = |host: &Host| host.process.as_ref().is_some_and(|it| it.membership.state().is_some());
        let living: Vec<NodeId> =
            self.hosts.iter().filter(|(_, host)| knows(host)).map(|(node, _)| *node).collect();
        if living.is_empty() {
            return Ok(());
        }
        let at = living[index_below(&mut self.operator.rng, living.len())];
        let gone = self.hosts.iter().filter(|(_, host)| host.gone && !host.left).map(|(node, _)| *node);
        let gone: Vec<NodeId> = gone.collect();
        let Some(state) = self.membership(at).and_then(|it| it.state()).cloned() else { return Ok(()) };
        for node in
            gone.into_iter().filter(|node| state.members().get(node).is_some_and(|it| !it.is_forgotten()))
        {
            if !state.staged().contains_key(&node) {
                self.operator.remove(node);
            }
        }
        if self.phase == Phase::Life && self.operator.is_idle() && !state.has_staged() {
            self.wish_for_change(&state);
        }
        match self.operator.next(&state, &self.plan) {
            Some(command) => self.give(at, command),
            None if !state.has_staged() => Ok(()),
            None => self.commit(at, &state),
        }
    }

    fn wish_for_change(&mut self, state: &State) {
        // Now and then a change comes while the one before is on its way.
        let is_due = self.operator.changes_left > 0
            && self.script.is_none()
            && (state.is_settled() || self.operator.rng.chance(1, 4));
        let is_valid = |(node, it): (&NodeId, &Record)| {
            (it.member.state == MemberState::Valid && !self.hosts[node].gone).then_some(*node)
        };
        let valid: Vec<NodeId> = state.members().iter().filter_map(is_valid).collect();
        if is_due && !valid.is_empty() {
            self.operator.draw(&valid, state.heading_size());
        }
    }

    fn give(&mut self, at: NodeId, command: Command) -> Verdict {
        self.operator.last_token += 1;
        let token = self.operator.last_token;
        match &command {
            Command::Commit { .. } => {
                self.trace.line(format_args!("{at} is told to commit"));
                self.operator.commits.insert(token);
            }
            command => self.trace.line(format_args!("{at} is told to {command:?}")),
        }
        self.step(at, Input::Propose { token, command }, None)
    }

    fn commit(&mut self, at: NodeId, state: &State) -> Verdict {
        let plan = match state.plan(ring::TARGET_N_DEFAULT) {
            Ok(plan) => plan,
            Err(error) => {
                self.trace.line(format_args!("no plan: {error}"));
                return Ok(());
            }
        };
        let founded = RingSize::new(self.shape.partitions).expect("the shape was checked");
        check_moves_least(state, &plan, founded)?;
        self.give(at, plan.command())
    }
}

/// Checks that a plan moves at most a fifth more partitions than it must.
fn check_moves_least(state: &State, plan: &state::Plan, founded: RingSize) -> Verdict {
    let after = state.after_commit();
    // A ring that grows names whom it named; what is decided beside is measured by that.
    let heading = ring::grown(state.heading(), plan.size).expect("a ring does not become smaller");
    let claimants: Vec<NodeId> = after.iter().filter(|it| it.state.claims()).map(|it| it.id).collect();
    // Where copies are to be in zones of their own, or nodes have few partitions each, much must move for that.
    let has_zones = after.iter().any(|it| !it.zone.is_empty());
    let has_few = plan.owners.len() < PARTITIONS_EACH * claimants.len() || claimants.len() < CLAIMERS_MIN;
    if has_zones || has_few {
        return Ok(());
    }
    let n = match plan.shortfalls.is_empty() {
        true if plan.size > founded => ring::DISTANCE_GROWN,
        true => ring::TARGET_N_DEFAULT,
        false => 1,
    };
    let least = Least { owners: &heading, claimants: &claimants, n }.moves();
    let moved = heading.iter().zip(&plan.owners).filter(|(before, after)| before != after).count();
    if moved > least + least / 5 + SLACK {
        let what = format!("{moved} partitions move, {least} must");
        return Err(Violation::new("a plan moves at most a fifth more than it must", what));
    }
    Ok(())
}
