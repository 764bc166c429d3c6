//! How a world begins and ends: preparation, and the liveness phase, in which every key is read until its replicas
//! are equal (`auditor.rs` asks).
//!
//! First hints come home, which nothing but time may be needed for: every primary is examined until it has what it
//! missed. Where nodes compare what they hold, their copies become equal with nobody reading them. Then, in rounds,
//! keys are read.
//!
//! A round of that: each primary of each key is examined, then each key is read with all of them asked. A read must
//! show at least what each had when it was examined. When all copies are equal, what they have come to agree on is
//! held against everything that was ever acknowledged; as long as that fails and there is time, what a fallback keeps
//! may yet come home, and there is another round.
//!
//! A node alone goes from life to rot in some seeds (`rot.rs`); then errors of damage are allowed, and wrong answers
//! are not. It skips the phases in which replicas become equal. Its keys are read, listed and searched twice, with a
//! clean stop between.

use super::auditor::{Auditor, PROPS_TIMEOUT, name};
use super::client::Place;
use super::script::Script;
use super::{AUDITOR, Event, World};
use crate::check::cluster::{Copies, check_bounds, check_trees};
use crate::check::{Verdict, Violation};
use crate::disk::DiskOdds;
use crate::network::{NetworkConfig, NodeId};
use base::Monotonic;
use engine::Durability;
use kv::reap::REAP_MAX;
use kv::response::Found;
use object::Context;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long replicas may take at most to become equal when nothing goes wrong any more: a node must notice that
/// others are back, bring hints home, and repair what reads have shown.
const CONVERGE_MAX: Duration = Duration::from_secs(40);
/// How long what was missed may take to come home: the next round of hints is due, and some were under way when
/// they were lost.
const HOMECOMING_MAX: Duration = Duration::from_secs(20);
/// How long a node may have what it is not to have when all is quiet: it looks now and then, with growing pauses.
const STRAYS_MAX: Duration = Duration::from_secs(60);
/// How long copies may take to become equal by what nodes compare: some rounds of all, with what one exchange leaves to
/// the next.
const COMPARISON_MAX: Duration = Duration::from_secs(60);
/// How long clients go on after silent damage was done.
const ROT_FOR: Duration = Duration::from_millis(200);
/// The pause between two rounds.
const ROUND_PAUSE: Duration = Duration::from_millis(100);
/// What a quiet cluster may take to finish what the last read has begun.
const REST: Duration = Duration::from_secs(2);
/// How long what a node has begun by itself may wait for an answer that was lost: it has ten seconds, as clients here
/// have less.
const DEADLINE_MAX: Duration = Duration::from_secs(12);
/// The pause between two looks at a cluster that rests.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How often memory is looked at, in ticks.
const BOUNDS_EVERY: u64 = 20;

/// Where a world is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nodes start and are given the properties of buckets.
    Preparation,
    /// Everything happens.
    Life,
    /// Silent damage is done; clients go on until this time.
    Rot(Option<Monotonic>),
    /// Faults are over; what was missed comes home.
    Homecoming,
    /// Replicas become equal by what nodes compare, where they do.
    Comparison,
    /// Replicas become equal.
    Convergence,
    /// What is under way comes to its end, messages of long ago included.
    Settling,
    /// Once more.
    LastConvergence,
    /// All clocks have leapt, and nothing is left of what ends.
    Ends,
    /// Until then nobody asks anything.
    Rest(Monotonic),
    /// Each bucket is listed.
    Listing,
    /// Each bucket is searched by index.
    Searching,
    /// A node alone stops cleanly, and starts again after this many starts.
    Restart(u64),
    /// The end.
    Over,
}

impl Phase {
    pub(super) fn has_clients(self) -> bool {
        matches!(self, Phase::Life | Phase::Rot(_))
    }

    pub(super) fn has_trouble(self) -> bool {
        self.has_clients()
    }
}

/// What a round has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Pause(Monotonic),
    Examining,
    Reading,
}

/// How far it has come.
#[derive(Debug)]
pub(super) struct Ending {
    round: Round,
    /// When this part of the world's life began.
    began: Monotonic,
    /// What is not right although all copies are equal: something may still be on its way home.
    wrong: Option<Violation>,
    ticks: u64,
    /// Whether a node alone has been restarted in the ending.
    has_restarted: bool,
    /// Whether nodes were asked for what they are not to have.
    strays: bool,
    /// Whether one had such a thing since copies were last compared.
    strayed: bool,
    /// The copies when all was read last.
    read: BTreeMap<Place, Copies>,
}

impl Default for Ending {
    fn default() -> Ending {
        Ending {
            round: Round::Pause(Monotonic(0)),
            began: Monotonic(0),
            wrong: None,
            ticks: 0,
            has_restarted: false,
            strays: false,
            strayed: false,
            read: BTreeMap::new(),
        }
    }
}

impl World {
    /// Goes on to the next part of its life if this one is over.
    pub(super) fn advance(&mut self) -> Verdict {
        let (now, phase) = (self.events.now(), self.phase);
        match phase {
            Phase::Preparation if self.living().all(|at| self.hosts[at].prepared) => self.enter(Phase::Life),
            Phase::Preparation if now > Monotonic(0) + PROPS_TIMEOUT * 2 => {
                return Err(Violation::new("a cluster starts", "properties are not in force everywhere"));
            }
            Phase::Life if self.has_lived() => {
                let next = if self.rot.is_planned() { Phase::Rot(None) } else { Phase::Homecoming };
                self.enter(next);
            }
            Phase::Rot(None) if self.is_rotted() => self.enter(Phase::Rot(Some(now + ROT_FOR))),
            Phase::Rot(Some(until)) if now >= until => self.enter(Phase::Homecoming),
            Phase::Homecoming if self.come_home()? => self.enter(Phase::Comparison),
            Phase::Comparison if self.plan.anti_entropy.is_none() || self.become_equal()? => {
                self.enter(Phase::Convergence);
            }
            Phase::Convergence if self.converge()? => {
                self.enter(if self.plan.is_alone() { Phase::Listing } else { Phase::Settling });
            }
            Phase::LastConvergence if self.converge()? => match self.plan.ttl {
                Some(_) => {
                    self.enter(Phase::Ends);
                    self.leap();
                }
                None => self.enter(Phase::Rest(now + self.rest())),
            },
            Phase::Ends if self.has_ended()? => self.enter(Phase::Rest(now + self.rest())),
            Phase::Settling if now > self.inside.busy_until() && self.checks.is_idle() => {
                self.enter(Phase::LastConvergence);
            }
            Phase::Rest(until) if now >= until && !self.ending.strays => {
                self.ending.strays = true;
                self.examine_strays()?;
                // A hint may have come home since, or brought what the end of a later version had uncovered.
                self.examine_all()?;
            }
            Phase::Rest(until) if now >= until && !self.auditor.is_examining() => self.end_rest(now)?,
            Phase::Listing if self.list_all()? => {
                let next = if self.is_rotten { self.after_searching() } else { Phase::Searching };
                self.enter(next);
            }
            Phase::Listing if now > self.ending.began + CONVERGE_MAX => {
                return Err(Violation::new("a quiet cluster lists", "it takes too long"));
            }
            Phase::Searching if self.search_all()? => self.enter(self.after_searching()),
            Phase::Searching if now > self.ending.began + CONVERGE_MAX => {
                return Err(Violation::new("a quiet cluster is searched", "it takes too long"));
            }
            Phase::Restart(starts) if self.hosts[0].starts > starts && self.is_quiet() => {
                self.enter(Phase::Convergence);
            }
            _ => {}
        }
        Ok(())
    }

    fn after_searching(&self) -> Phase {
        match self.plan.is_alone() && !self.ending.has_restarted {
            true => Phase::Restart(self.hosts[0].starts),
            false => Phase::Over,
        }
    }

    /// Goes on from a rest in which all that strays was looked at, or rests on.
    fn end_rest(&mut self, now: Monotonic) -> Verdict {
        self.ending.strays = false;
        if !self.has_given_up_all()? {
            self.ending.strayed = true;
            self.phase = Phase::Rest(now + LOOK_AGAIN);
            return Ok(());
        }
        if std::mem::take(&mut self.ending.strayed) | !self.are_as_read() {
            // What has come home since copies were compared is compared, too, and read.
            self.enter(if self.plan.ttl.is_some() { Phase::Ends } else { Phase::LastConvergence });
            return Ok(());
        }
        match self.check_bounds(true) {
            Err(_) if now < self.ending.began + DEADLINE_MAX => self.phase = Phase::Rest(now + LOOK_AGAIN),
            verdict => {
                verdict?;
                self.enter(Phase::Listing);
            }
        }
        Ok(())
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.trace.line(format_args!("{phase:?}"));
        self.phase = phase;
        self.ending.began = self.events.now();
        self.ending.round = Round::Pause(self.events.now());
        match phase {
            Phase::Life => {
                self.inside.set_config(self.plan.inside);
                self.outside.set_config(self.plan.outside);
                (0..self.clients.len()).for_each(|at| self.schedule_client(at));
                self.events.after(self.plan.trouble_pause_max, Event::Trouble);
            }
            Phase::Homecoming => self.calm_down(),
            Phase::Restart(_) => {
                self.ending.has_restarted = true;
                self.stop(0);
            }
            Phase::Rest(_) => self.ending.read = self.auditor.copies.clone(),
            _ => {}
        }
    }

    fn calm_down(&mut self) {
        self.inside.set_config(NetworkConfig::CALM);
        self.outside.set_config(NetworkConfig::CALM);
        self.inside.heal_all();
        self.partition = None;
        for at in 0..self.hosts.len() {
            self.hosts[at].machine.disk.set_odds(DiskOdds::SOUND);
            self.hosts[at].machine.disk.disarm();
            self.links_changed(at);
            if self.hosts[at].gone && !self.hosts[at].left {
                // What a hint for it keeps elsewhere will never come home.
                self.checks.on_loss(at, self.events.now());
            }
        }
    }

    /// Examines the primaries until they have what they missed.
    fn come_home(&mut self) -> Result<bool, Violation> {
        let now = self.events.now();
        if self.plan.is_alone() {
            // It has missed nothing, but the last requests of clients may still arrive.
            return Ok(now > self.outside.busy_until());
        }
        if !self.is_at_rest() {
            // It has its own time.
            self.ending.began = now;
            self.ending.round = Round::Pause(now);
            return Ok(false);
        }
        match self.ending.round {
            Round::Pause(until) if now >= until && self.is_quiet() => self.begin_examining()?,
            Round::Pause(until) if now > until + HOMECOMING_MAX => return Err(self.no_convergence()),
            Round::Examining if !self.auditor.is_examining() => {
                self.ending.round = Round::Pause(now + ROUND_PAUSE * 5);
                let is_late = now > self.ending.began + HOMECOMING_MAX;
                return match self.missing() {
                    Some(missing) if is_late => Err(missing),
                    missing => Ok(missing.is_none() && self.auditor.failed.is_none()),
                };
            }
            _ => {}
        }
        Ok(false)
    }

    /// Begins a look at all copies.
    fn begin_examining(&mut self) -> Verdict {
        self.auditor.failed = None;
        self.ending.round = Round::Examining;
        self.examine_all()
    }

    /// Examines the copies until all are equal.
    fn become_equal(&mut self) -> Result<bool, Violation> {
        let now = self.events.now();
        match self.ending.round {
            _ if now > self.ending.began + COMPARISON_MAX => return Err(self.no_convergence()),
            Round::Pause(until) if now >= until && self.is_quiet() => self.begin_examining()?,
            Round::Examining if !self.auditor.is_examining() => {
                self.ending.round = Round::Pause(now + ROUND_PAUSE * 5);
                let nothing = Context::new();
                let mut copies = self.auditor.copies.iter();
                let are_equal =
                    copies.all(|(place, copies)| self.checks.are_done(&name(*place), copies, &nothing));
                return Ok(are_equal && self.auditor.failed.is_none());
            }
            _ => {}
        }
        Ok(false)
    }

    /// Whether all copies that were examined are equal, but of what ends, and are what they were when all was read
    /// last: nodes that compare may have spread what came home since.
    fn are_as_read(&self) -> bool {
        let (nothing, ends) = (Context::new(), self.plan.ttl.map(|(bucket, _)| bucket));
        let mut copies = self.auditor.copies.iter().filter(|((bucket, _), _)| Some(*bucket) != ends);
        copies.all(|(place, copies)| {
            let (key, then) = (name(*place), self.ending.read.get(place));
            self.checks.are_done(&key, copies, &nothing)
                && then.is_some_and(|then| copies.are_as(then, &key, self.checks.reaped()))
        })
    }

    /// What has not come home yet. Where a crash may take what was acknowledged, it takes hints too.
    fn missing(&self) -> Option<Violation> {
        if self.plan.options.durability != Durability::Sync {
            return None;
        }
        let copies = self.auditor.copies.iter();
        let heads = copies.flat_map(|(place, copies)| copies.of_nodes().map(|(at, head)| (*place, at, head)));
        let mut homes = heads.map(|(place, at, head)| self.checks.check_home(at, &name(place), head));
        homes.find_map(Result::err)
    }

    /// Goes on with rounds until all copies of everything are equal, and right.
    fn converge(&mut self) -> Result<bool, Violation> {
        Ok(self.has_read_all()? && (self.is_rotten || self.compare()?))
    }

    /// The same until everything was read, of which nothing is left in the bucket whose objects end.
    fn has_ended(&mut self) -> Result<bool, Violation> {
        if !self.has_read_all()? {
            return Ok(false);
        }
        let Auditor { copies, read, failed, .. } = &self.auditor;
        if failed.is_some() || read.len() < copies.len() {
            return Ok(false);
        }
        let bucket = self.plan.ttl.map(|(bucket, _)| bucket);
        for (place, (found, _)) in read.iter().filter(|((of, _), _)| Some(*of) == bucket) {
            let heads: Vec<_> = copies[place].of_nodes().map(|(_, head)| head).collect();
            self.checks.check_over(&name(*place), &heads, found.as_ref())?;
        }
        Ok(true)
    }

    /// Goes on with a round, or begins one. True at its end.
    fn has_read_all(&mut self) -> Result<bool, Violation> {
        let now = self.events.now();
        match self.ending.round {
            _ if now > self.ending.began + CONVERGE_MAX => return Err(self.no_convergence()),
            Round::Pause(until) if now >= until && self.is_quiet() => self.begin_examining()?,
            Round::Examining if !self.auditor.is_examining() => {
                self.ending.round = Round::Reading;
                self.read_all()?;
            }
            Round::Reading if !self.auditor.is_reading() => {
                self.ending.round = Round::Pause(now + ROUND_PAUSE);
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }

    fn no_convergence(&self) -> Violation {
        if let Some(wrong) = &self.ending.wrong {
            return wrong.clone();
        }
        let nothing = Context::new();
        let is_done = |place: &Place, copies: &Copies| self.checks.are_done(&name(*place), copies, &nothing);
        let differs = self.auditor.copies.iter().find(|(place, copies)| !is_done(place, copies));
        match (differs, &self.auditor.failed) {
            (Some((place, copies)), _) => copies.differ(&name(*place)),
            (None, failed) => {
                let why = failed.clone().unwrap_or_else(|| format!("{:?}", self.ending.round));
                Violation::new("replicas become equal", format!("they cannot be read: {why}"))
            }
        }
    }

    /// How long it takes until everything is over: a reaping that nobody answers waits for its deadline, by a clock of
    /// its own.
    fn rest(&self) -> Duration {
        if self.plan.reaping.delay.is_some() { REST + 2 * REAP_MAX } else { REST }
    }

    /// Whether no node has what it is not to have. What waits for its time has some.
    fn has_given_up_all(&self) -> Result<bool, Violation> {
        let owning = self.mover.ring().owning();
        let waits_for =
            |at: usize| self.hosts[at].gone && owning.contains(super::links::member(super::node_id(at)));
        match self.auditor.strays.first() {
            None => Ok(true),
            // What is kept for a node that is gone is kept until somebody says so.
            Some(_) if (0..self.hosts.len()).any(waits_for) => Ok(true),
            Some((at, place)) if self.events.now() > self.ending.began + self.rest() + STRAYS_MAX => {
                let what = format!("{} is still at n{at}, which is not to have it", name(*place));
                Err(Violation::new("nodes drop partitions that they do not own", what))
            }
            Some(_) => Ok(false),
        }
    }

    /// Whether all nodes serve, and no client waits.
    fn is_quiet(&self) -> bool {
        let is_client = |(_, from, _): &(usize, NodeId, u64)| *from != AUDITOR;
        !self.requests.values().any(is_client)
            && self.living().all(|at| self.hosts[at].is_quiet(self.is_rotten))
    }

    /// The nodes that there are and will be.
    pub(super) fn living(&self) -> impl Iterator<Item = usize> {
        (0..self.hosts.len()).filter(|at| self.mover.is_admitted(*at) && !self.hosts[*at].gone)
    }

    /// All keys.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let (buckets, keys) = (self.plan.buckets(), self.plan.keys);
        (0..buckets).flat_map(move |bucket| (0..keys).map(move |key| (bucket, key)))
    }

    /// Holds the copies against each other and the reads; if all are equal, against what was acknowledged.
    fn compare(&mut self) -> Result<bool, Violation> {
        let Auditor { copies, read, failed, .. } = &self.auditor;
        if failed.is_some() || read.len() < copies.len() {
            self.trace.line(format_args!("nothing to compare: {failed:?}"));
            return Ok(false);
        }
        for (place, (_, context)) in read {
            self.checks.check_read(&name(*place), &copies[place], context)?;
        }
        let is_done =
            |place: &Place, copies: &Copies| self.checks.are_done(&name(*place), copies, &read[place].1);
        let unequal = copies.iter().filter(|(place, copies)| !is_done(place, copies)).count();
        self.trace.line(format_args!("{unequal} keys differ"));
        self.ending.wrong = None;
        if unequal > 0 {
            return Ok(false);
        }
        let check = |(place, (found, context)): (&Place, &(Option<Found>, Context))| {
            self.checks.check_end(&name(*place), found.as_ref(), context)
        };
        self.ending.wrong = read.iter().map(check).find_map(Result::err);
        Ok(self.ending.wrong.is_none())
    }

    /// Looks at what the shards hold, now and then.
    pub(super) fn check_bounds(&mut self, quiet: bool) -> Verdict {
        self.ending.ticks += 1;
        if !quiet && !self.ending.ticks.is_multiple_of(BOUNDS_EVERY) {
            return Ok(());
        }
        let work_max = self.script.as_ref().and_then(Script::work_max);
        for (at, host) in self.hosts.iter().enumerate() {
            let shards = host.machine.process.iter().flat_map(|process| process.shards.iter().enumerate());
            for (shard, running) in shards.filter_map(|(at, shard)| Some((at, shard.as_ref()?))) {
                let stats = running.stats();
                check_bounds(at, shard, &stats, quiet, work_max)?;
                check_trees(at, shard, &stats)?;
            }
        }
        Ok(())
    }
}
