//! Scenarios: courses of faults around one group in which a fault of consistent groups shows.
//!
//! Random faults seldom come in the order that a rare fault needs. A seed's plan has a few scenarios, which begin when
//! nothing else goes wrong: all processes are registered, and the group has all its voters and a leader.
//!
//! 1. *Focus*: clients turn to the group's keys, with short pauses.
//! 2. The stages of the scenario, each some time after the one before.
//! 3. The links are mended, and other faults go on.
//!
//! Invariant: while a scenario is under way, no other fault begins but those of messages and disk operations; around a
//! loss not even those.
//!
//! Left out: checks. All promises of the world hold in scenarios, too.

use super::host::Folder;
use super::plan::Loss;
use super::{Event, World, node_id};
use crate::disk::DiskOdds;
use crate::fault::Fault;
use crate::network::NetworkConfig;
use crate::seed::{between, duration_between, index_below};
use base::rng::SplitMix64;
use std::collections::VecDeque;
use std::time::Duration;

/// The interval at which a scenario looks whether it can begin.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Looks before a scenario is given up: ten seconds of them.
const LOOKS_MAX: u32 = 100;
/// The time of a process from its death to its start where the order of starts matters.
pub(super) const DOWN: Duration = Duration::from_millis(20);
/// The time of a leader's death where the others are to go on: longer than their registrations take.
const DOWN_LONG: Duration = Duration::from_secs(6);
/// Scenarios of a life: each takes some seconds.
const SCENARIOS_MAX: u64 = 3;
/// Bits that flip in the journal of a voter: some are in entries that its group needs.
const FLIPS: u64 = 24;

/// The course of a scenario. The *leader* is that of the group when the scenario begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The leader's machine loses power.
    Crashed,
    /// The leader hears nobody for longer than others wait for it, while all hear it.
    Deaf,
    /// The leader is cut from all.
    Isolated,
    /// The leader stands still until another one leads. Answers to its last questions come when it goes on.
    Usurped,
    /// A voter that has acknowledged entries hears nothing of the leader, and writes for other groups. It then loses
    /// power, or hears of the leader again.
    Stalled,
    /// A voter is cut off. Another one loses its disk, or a part of it, when only the leader has the writes since; then
    /// the leader dies, and the first one is back.
    Behind,
    /// A voter is set back to a copy of its folder of the same start, while leaders remember its acknowledgments.
    SetBack,
    /// A voter misses many writes, the others restart, and the catch-up breaks again and again.
    Refill,
    /// The same, and keys are deleted at the first break: of scripts only, as are those that follow (`script.rs`).
    Deleted,
    /// A leader loses power when entries of the next one have replaced its own.
    Overtaken,
    /// A voter restarts behind its vote, and is asked again in that term.
    AskedTwice,
    /// A voter loses power with old entries that are not applied.
    Outdated,
    /// As the voter that is behind, beside one with a few flipped bits.
    Damaged,
}

/// The nodes of a scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cast {
    /// The number of the group.
    pub(super) group: usize,
    pub(super) leader: usize,
    pub(super) follower: usize,
    /// Another follower.
    pub(super) other: usize,
}

/// A scenario under way.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) kind: Kind,
    pub(super) stage: u32,
    pub(super) looks: u32,
    cast: Option<Cast>,
    /// The folder to which a node is set back.
    folder: Option<Folder>,
    pub(super) catch_ups: u64,
    /// A term or an index that a script has noted.
    pub(super) noted: u64,
    /// The candidate of a script's election.
    pub(super) candidate: Option<usize>,
}

impl Scenario {
    fn new(kind: Kind) -> Scenario {
        let (cast, folder, candidate) = (None, None, None);
        Scenario { kind, stage: 0, looks: 0, cast, folder, catch_ups: 0, noted: 0, candidate }
    }

    /// The group that clients turn to.
    pub(super) fn focus(&self) -> Option<usize> {
        // Where entries are to grow old, other groups write.
        let is_left = self.kind == Kind::Outdated && self.stage > 2;
        self.cast.map(|cast| cast.group).filter(|_| !is_left)
    }

    /// Begins to look whether the next stage can come.
    pub(super) fn begin_glances(&mut self) {
        self.looks = 0;
    }

    /// Looks again at this stage some time later; none if that was in vain too often.
    pub(super) fn glance_again(&mut self, after: Duration, most: u32) -> Option<Duration> {
        self.stage -= 1;
        self.looks += 1;
        (self.looks < most).then_some(after)
    }

    /// Whether all but the planned faults is to be right.
    pub(super) fn is_pure(&self) -> bool {
        !matches!(self.kind, Kind::Crashed | Kind::Deaf | Kind::Isolated | Kind::Usurped | Kind::Stalled)
    }
}

impl World {
    /// Takes the next stage of the scenario under way, or begins the next one.
    pub(super) fn on_scenario(&mut self) {
        if !self.phase.has_trouble() {
            return;
        }
        if self.is_restoring {
            self.events.after(LOOK_EVERY, Event::Scenario);
            return;
        }
        let next = || self.plan.scenarios.pop().map(Scenario::new);
        let Some(mut scenario) = self.scenario.take().or_else(next) else { return };
        let delay = match scenario.cast {
            None => self.begin_scenario(&mut scenario),
            Some(cast) => {
                scenario.stage += 1;
                self.play(&mut scenario, cast)
            }
        };
        let delay = match delay {
            Some(delay) => {
                self.scenario = Some(scenario);
                delay
            }
            None => {
                self.end_scenario(&scenario);
                self.draw_duration(500, 2_000)
            }
        };
        self.events.after(delay, Event::Scenario);
    }

    pub(super) fn draw_duration(&mut self, min_ms: u64, max_ms: u64) -> Duration {
        duration_between(&mut self.rng, Duration::from_millis(min_ms), Duration::from_millis(max_ms))
    }

    fn begin_scenario(&mut self, scenario: &mut Scenario) -> Option<Duration> {
        scenario.looks += 1;
        if scenario.looks > LOOKS_MAX {
            return None;
        }
        let Some(cast) = self.draw_cast(scenario.kind) else { return Some(LOOK_EVERY) };
        self.trace.line(format_args!("scenario {:?} of {cast:?}", scenario.kind));
        scenario.cast = Some(cast);
        self.hosts.iter().for_each(|host| host.machine.disk.disarm());
        if scenario.is_pure() {
            self.inside.set_config(NetworkConfig::CALM);
            self.hosts.iter().for_each(|host| host.machine.disk.set_odds(DiskOdds::SOUND));
        }
        Some(self.draw_duration(200, 400))
    }

    /// Nodes for a scenario, if it can begin now.
    fn draw_cast(&mut self, kind: Kind) -> Option<Cast> {
        let now = self.events.now();
        let is_calm = self.partition.is_none()
            && self.hosts.iter().all(|host| host.held.is_none() && host.stalled_until <= now)
            && self.are_registered();
        if !is_calm {
            return None;
        }
        let group = index_below(&mut self.rng, self.groups.len());
        let prefix = self.groups[group];
        let (mut voters, live) = (self.registry.voters(prefix), self.registry.live_voters(prefix));
        let leader = self.leader_of(prefix)?;
        if live.len() < voters.len() {
            return None;
        }
        voters.retain(|at| *at != leader);
        let follower = voters.swap_remove(index_below(&mut self.rng, voters.len()));
        let other = voters[index_below(&mut self.rng, voters.len())];
        let is_fit = match kind {
            Kind::Behind | Kind::Damaged => self.may_hurt(follower),
            Kind::SetBack => self.may_hurt(follower) && !self.leads_any(follower),
            _ => true,
        };
        is_fit.then_some(Cast { group, leader, follower, other })
    }

    /// The voter that leads a group, as far as it knows.
    pub(super) fn leader_of(&mut self, prefix: u16) -> Option<usize> {
        let reports = self.reports(prefix);
        let leaders = reports.iter().filter(|(_, it)| it.role == node::GroupRole::Leader);
        leaders.max_by_key(|(_, it)| it.term).map(|(at, _)| *at)
    }

    fn leads_any(&mut self, at: usize) -> bool {
        self.groups
            .clone()
            .into_iter()
            .any(|prefix| self.reports(prefix).get(&at).is_some_and(|it| it.role == node::GroupRole::Leader))
    }

    /// Mends the links, and has other faults go on.
    fn end_scenario(&mut self, scenario: &Scenario) {
        self.trace.line(format_args!("scenario {:?} is over", scenario.kind));
        self.mend();
        if scenario.is_pure() {
            self.inside.set_config(self.plan.inside);
            self.hosts.iter().for_each(|host| host.machine.disk.set_odds(self.plan.disk));
        }
    }

    /// Ends the scenario under way, and all that is cut.
    pub(super) fn interrupt_scenario(&mut self) {
        match self.scenario.take() {
            Some(scenario) => self.end_scenario(&scenario),
            None => self.mend(),
        }
    }

    pub(super) fn mend(&mut self) {
        self.inside.heal_all();
        (0..self.hosts.len()).for_each(|at| self.links_changed(at));
    }

    /// The stages of all scenarios; the time until the next stage, or none at the end.
    fn play(&mut self, scenario: &mut Scenario, cast: Cast) -> Option<Duration> {
        match scenario.kind {
            Kind::Crashed => self.play_crashed(scenario.stage, cast),
            Kind::Deaf => self.play_cut(scenario.stage, cast, false),
            Kind::Isolated => self.play_cut(scenario.stage, cast, true),
            Kind::Usurped => self.play_usurped(scenario.stage, cast),
            Kind::Stalled => self.play_stalled(scenario.stage, cast),
            Kind::Behind => self.play_behind(scenario.stage, cast),
            Kind::SetBack => self.play_set_back(scenario, cast),
            Kind::Refill | Kind::Deleted => self.play_refill(scenario, cast),
            Kind::Overtaken => self.play_overtaken(scenario, cast),
            Kind::AskedTwice => self.play_asked_twice(scenario, cast),
            Kind::Outdated => self.play_outdated(scenario.stage, cast),
            Kind::Damaged => self.play_damaged(scenario.stage, cast),
        }
    }

    fn play_crashed(&mut self, stage: u32, cast: Cast) -> Option<Duration> {
        if stage > 1 {
            return None;
        }
        let down = self.draw_duration(300, 3_000);
        self.crash(cast.leader, down);
        Some(self.draw_duration(1_800, 2_500))
    }

    fn play_cut(&mut self, stage: u32, cast: Cast, is_both_ways: bool) -> Option<Duration> {
        match stage {
            1 => {
                let links = self.links_of(cast.leader, is_both_ways);
                let fault = if is_both_ways { Fault::Partition } else { Fault::OneWay };
                self.trace.fault(fault, format_args!("n{} for a scenario", cast.leader));
                self.set_links(&links, true);
                Some(self.draw_duration(1_400, 3_000))
            }
            2 => {
                self.mend();
                Some(self.draw_duration(300, 800))
            }
            _ => None,
        }
    }

    fn play_usurped(&mut self, stage: u32, cast: Cast) -> Option<Duration> {
        match stage {
            1 => {
                let pause = self.draw_duration(1_800, 2_600);
                let delay = pause + self.draw_duration(20, 500);
                for (from, to) in self.links_of(cast.leader, false) {
                    self.inside.delay(node_id(from), node_id(to), delay);
                }
                Some(self.draw_duration(1, 10)).inspect(|wait| {
                    self.trace.fault(Fault::Pause, format_args!("n{} for {pause:?}", cast.leader));
                    self.events.after(*wait + pause, Event::Resume(cast.leader));
                })
            }
            2 => {
                if self.hosts[cast.leader].machine.process.is_some() {
                    self.hosts[cast.leader].held.get_or_insert_with(VecDeque::new);
                }
                Some(Duration::from_millis(3_500))
            }
            _ => None,
        }
    }

    fn play_stalled(&mut self, stage: u32, cast: Cast) -> Option<Duration> {
        match stage {
            1 => {
                self.trace.fault(Fault::OneWay, format_args!("n{} -> n{}", cast.leader, cast.follower));
                self.set_links(&[(cast.leader, cast.follower)], true);
                Some(self.draw_duration(500, 3_000))
            }
            2 => {
                if index_below(&mut self.rng, 4) > 0 {
                    self.crash(cast.follower, DOWN);
                }
                self.mend();
                Some(self.draw_duration(1_000, 2_000))
            }
            _ => None,
        }
    }

    fn play_behind(&mut self, stage: u32, cast: Cast) -> Option<Duration> {
        match stage {
            1 => Some(self.cut_off_other(cast)),
            2 => {
                let is_flipped = self.plan.loss == Some(Loss::Flipped);
                match is_flipped {
                    true => self.flip_journal(cast.follower, FLIPS),
                    false => self.hosts[cast.follower].next_disk = Some(None),
                }
                self.trace.line(format_args!("n{} loses its disk", cast.follower));
                Some(self.crash_all_but_other(cast))
            }
            _ => None,
        }
    }

    /// Cuts the voter off that is to stay behind, and returns how long.
    pub(super) fn cut_off_other(&mut self, cast: Cast) -> Duration {
        let links = self.links_of(cast.other, true);
        self.set_links(&links, true);
        self.draw_duration(600, 1_200)
    }

    /// Crashes the hurt follower and the leader, brings the voter back that stayed behind, and returns how long the
    /// leader stays away at least.
    pub(super) fn crash_all_but_other(&mut self, cast: Cast) -> Duration {
        self.hosts[cast.follower].is_hurt = true;
        self.crash(cast.follower, DOWN);
        self.crash(cast.leader, DOWN_LONG);
        self.mend();
        DOWN_LONG + Duration::from_secs(1)
    }

    fn play_set_back(&mut self, scenario: &mut Scenario, cast: Cast) -> Option<Duration> {
        match scenario.stage {
            1 => {
                scenario.folder = Some(self.folder(cast.follower));
                Some(self.draw_duration(300, 1_000))
            }
            2 => {
                let is_fit = self.hosts[cast.follower].serves() && !self.leads_any(cast.follower);
                let folder = scenario.folder.take().filter(|_| is_fit)?;
                self.trace.line(format_args!("n{} is set back", cast.follower));
                self.hosts[cast.follower].next_disk = Some(Some(folder));
                self.hosts[cast.follower].is_hurt = true;
                self.crash(cast.follower, DOWN);
                Some(Duration::from_secs(5))
            }
            _ => None,
        }
    }

    /// The links to a node, or to it and from it.
    pub(super) fn links_of(&self, at: usize, is_both_ways: bool) -> Vec<(usize, usize)> {
        let others = (0..self.hosts.len()).filter(|other| *other != at);
        let to = others.clone().map(|other| (other, at));
        let from = others.map(|other| (at, other)).filter(|_| is_both_ways);
        to.chain(from).collect()
    }

    /// Cuts a node's power; it starts again after that time.
    pub(super) fn crash(&mut self, at: usize, down: Duration) {
        if self.hosts[at].machine.process.is_some() {
            self.hosts[at].next_down = Some(down);
            self.power_cut(at);
        }
    }

    /// Flips bits of a node's journal that it has synced.
    pub(super) fn flip_journal(&mut self, at: usize, flips: u64) {
        for _ in 0..flips {
            let host = &self.hosts[at];
            host.watch.flip_journal(&host.machine.disk, &mut self.rng);
        }
    }
}

/// Draws a few kinds among some.
pub(super) fn draw_kinds(rng: &mut SplitMix64, among: &[Kind]) -> Vec<Kind> {
    (0..between(rng, 1, SCENARIOS_MAX)).map(|_| among[index_below(rng, among.len())]).collect()
}
