//! How a world begins and ends: preparation, and the liveness phase, in which every key is read until its replicas
//! are equal.
//!
//! First hints come home, which nothing but time may be needed for: every primary is examined until it has what it
//! missed. Then, in rounds, keys are read.
//!
//! A round of that: each primary of each key is examined, then each key is read with all of them asked. A read must
//! show at least what each had when it was examined. When all copies are equal, what they have come to agree on is
//! held against everything that was ever acknowledged.

use super::client::{self, Place};
use super::{AUDITOR, BUCKETS, Event, REPLICAS, World};
use crate::check::cluster::{Copies, check_bounds, check_promise, check_read};
use crate::check::history::KeyName;
use crate::check::{Verdict, Violation};
use crate::disk::{DiskImage, DiskOdds};
use crate::network::NetworkConfig;
use crate::network::NodeId;
use crate::seed::index_below;
use crate::{check, show};
use base::Monotonic;
use bytes::Bytes;
use engine::Durability;
use kv::replica::{self, Answer, Ask};
use kv::response::Found;
use kv::turn::Want;
use kv::{BucketProps, Error, GetRequest, Prop, Quorum, Request, Response};
use node::{AskId, PeerMessage};
use object::Context;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long replicas may take at most to become equal when nothing goes wrong any more: a node must notice that
/// others are back, bring hints home, and repair what reads have shown.
const CONVERGE_MAX: Duration = Duration::from_secs(40);
/// How long what was missed may take to come home: the next round of hints is due, and some were under way when
/// they were lost.
const HOMECOMING_MAX: Duration = Duration::from_secs(20);
/// The pause between two rounds.
const ROUND_PAUSE: Duration = Duration::from_millis(100);
/// How long a question of the auditor may take.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a request for properties may take: the default, as it cannot say.
const PROPS_TIMEOUT: Duration = node::shard::TIMEOUT_DEFAULT;
/// What a quiet cluster may take to finish what the last read has begun.
const REST: Duration = Duration::from_secs(2);
/// How often memory is looked at, in ticks.
const BOUNDS_EVERY: u64 = 20;
/// Questions of the auditor are numbered from here: no node will ever draw such a number.
const AUDITS_FROM: u64 = 0xA0D1_7000_0000_0000;

/// Where a world is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nodes start and are given the properties of buckets.
    Preparation,
    /// Everything happens.
    Life,
    /// Faults are over; what was missed comes home.
    Homecoming,
    /// Replicas become equal.
    Convergence,
    /// What is under way comes to its end, messages of long ago included.
    Settling,
    /// Once more.
    LastConvergence,
    /// Until then nobody asks anything.
    Rest(Monotonic),
    /// The end.
    Over,
}

impl Phase {
    pub(super) fn has_clients(self) -> bool {
        self == Phase::Life
    }

    pub(super) fn has_trouble(self) -> bool {
        self == Phase::Life
    }
}

/// A node was asked what it has of a key.
#[derive(Clone, Debug)]
pub(super) struct Audit {
    place: Place,
    /// What it was bound to have when it was asked.
    promised: Context,
    /// Whether its copy is compared with others.
    compared: bool,
}

/// What the auditor asked a node for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Read(Place),
    Props(usize),
    Set(usize),
}

/// What a round has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Pause(Monotonic),
    Examining,
    Reading,
}

/// What the auditor asked for and was told.
#[derive(Debug)]
pub(super) struct Ending {
    /// The examinations under way, by the node and the question's number.
    pub(super) audits: BTreeMap<(usize, u64), Audit>,
    /// A copy of some node's disk, to be restored.
    pub(super) backup: Option<(usize, DiskImage)>,
    last_audit: u64,
    ticks: u64,
    asked: BTreeMap<u64, (usize, Asked)>,
    round: Round,
    began: Monotonic,
    copies: BTreeMap<Place, Copies>,
    read: BTreeMap<Place, (Option<Found>, Context)>,
    /// Why there is nothing to compare in this round.
    failed: Option<String>,
}

impl Default for Ending {
    fn default() -> Ending {
        Ending {
            audits: BTreeMap::new(),
            backup: None,
            last_audit: AUDITS_FROM,
            ticks: 0,
            asked: BTreeMap::new(),
            round: Round::Pause(Monotonic(0)),
            began: Monotonic(0),
            copies: BTreeMap::new(),
            read: BTreeMap::new(),
            failed: None,
        }
    }
}

impl Ending {
    /// The process of a node has died, and will answer nothing.
    pub(super) fn on_death(&mut self, node: usize) {
        self.audits.retain(|(at, _), _| *at != node);
        self.asked.retain(|_, (at, _)| *at != node);
        self.failed = Some(format!("n{node} has died"));
    }

    fn is_setting(&self, node: usize, bucket: usize) -> bool {
        self.asked.values().any(|(at, asked)| *at == node && matches!(asked, Asked::Set(of) if *of == bucket))
    }

    fn is_examining(&self) -> bool {
        self.audits.values().any(|audit| audit.compared)
    }

    fn is_reading(&self) -> bool {
        self.asked.values().any(|(_, asked)| matches!(asked, Asked::Read(_)))
    }
}

impl World {
    /// Goes on to the next part of its life if this one is over.
    pub(super) fn advance(&mut self) -> Verdict {
        let (now, phase) = (self.events.now(), self.phase);
        match phase {
            Phase::Preparation if self.hosts.iter().all(|host| host.prepared) => self.enter(Phase::Life),
            Phase::Preparation if now > Monotonic(0) + PROPS_TIMEOUT * 2 => {
                return Err(Violation::new("a cluster starts", "properties are not in force everywhere"));
            }
            Phase::Life if self.has_lived() => self.enter(Phase::Homecoming),
            Phase::Homecoming if self.come_home()? => self.enter(Phase::Convergence),
            Phase::Convergence if self.converge()? => self.enter(Phase::Settling),
            Phase::LastConvergence if self.converge()? => self.enter(Phase::Rest(now + REST)),
            Phase::Settling if now > self.inside.busy_until() && self.checks.is_idle() => {
                self.enter(Phase::LastConvergence);
            }
            Phase::Rest(until) if now >= until => {
                self.check_bounds(true)?;
                self.enter(Phase::Over);
            }
            _ => {}
        }
        Ok(())
    }

    fn enter(&mut self, phase: Phase) {
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
            if self.hosts[at].gone {
                // What a hint for it keeps elsewhere will never come home.
                self.checks.on_loss(at);
            }
        }
    }

    /// Examines the primaries until they have what they missed.
    fn come_home(&mut self) -> Result<bool, Violation> {
        let now = self.events.now();
        match self.ending.round {
            Round::Pause(until) if now >= until && self.is_quiet() => {
                self.ending.failed = None;
                self.ending.round = Round::Examining;
                self.examine_all()?;
            }
            Round::Pause(until) if now > until + HOMECOMING_MAX => return Err(self.no_convergence()),
            Round::Examining if !self.ending.is_examining() => {
                self.ending.round = Round::Pause(now + ROUND_PAUSE * 5);
                let is_late = now > self.ending.began + HOMECOMING_MAX;
                return match self.missing() {
                    Some(missing) if is_late => Err(missing),
                    missing => Ok(missing.is_none() && self.ending.failed.is_none()),
                };
            }
            _ => {}
        }
        Ok(false)
    }

    /// What has not come home yet. Where a crash may take what was acknowledged, it takes hints too.
    fn missing(&self) -> Option<Violation> {
        if self.plan.options.durability != Durability::Sync {
            return None;
        }
        let copies = self.ending.copies.iter();
        let heads = copies.flat_map(|(place, copies)| copies.of_nodes().map(|(at, head)| (*place, at, head)));
        let mut homes = heads.map(|(place, at, head)| self.checks.check_home(at, &name(place), head));
        homes.find_map(Result::err)
    }

    /// Goes on with a round, or begins one. True when all copies of everything are equal, and right.
    fn converge(&mut self) -> Result<bool, Violation> {
        let now = self.events.now();
        match self.ending.round {
            _ if now > self.ending.began + CONVERGE_MAX => return Err(self.no_convergence()),
            Round::Pause(until) if now >= until && self.is_quiet() => {
                self.ending.failed = None;
                self.ending.round = Round::Examining;
                self.examine_all()?;
            }
            Round::Examining if !self.ending.is_examining() => {
                self.ending.round = Round::Reading;
                self.read_all()?;
            }
            Round::Reading if !self.ending.is_reading() => {
                self.ending.round = Round::Pause(now + ROUND_PAUSE);
                return self.compare();
            }
            _ => {}
        }
        Ok(false)
    }

    fn no_convergence(&self) -> Violation {
        let differs = self.ending.copies.iter().find(|(_, copies)| !copies.are_equal());
        match (differs, &self.ending.failed) {
            (Some((place, copies)), _) => copies.differ(&name(*place)),
            (None, failed) => {
                let why = failed.clone().unwrap_or_else(|| format!("{:?}", self.ending.round));
                Violation::new("replicas become equal", format!("they cannot be read: {why}"))
            }
        }
    }

    /// Whether all nodes serve, and no client waits.
    fn is_quiet(&self) -> bool {
        let is_client = |(_, from, _): &(usize, NodeId, u64)| *from != AUDITOR;
        !self.requests.values().any(is_client) && self.living().all(|at| self.hosts[at].is_quiet())
    }

    /// The nodes that there will be.
    fn living(&self) -> impl Iterator<Item = usize> {
        (0..self.hosts.len()).filter(|at| !self.hosts[*at].gone)
    }

    fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let keys = self.plan.keys;
        (0..BUCKETS.len()).flat_map(move |bucket| (0..keys).map(move |key| (bucket, key)))
    }

    fn examine_all(&mut self) -> Verdict {
        self.ending.copies.clear();
        for place in self.places() {
            for at in self.primaries(place) {
                self.examine(at, place, true)?;
            }
        }
        Ok(())
    }

    /// A node has started: whatever it has promised to have is asked for.
    pub(super) fn examine_promises(&mut self, at: usize) -> Verdict {
        if self.plan.options.durability != Durability::Sync {
            return Ok(());
        }
        for place in self.places() {
            if self.primaries(place).contains(&at) {
                self.examine(at, place, false)?;
            }
        }
        Ok(())
    }

    /// Asks a node itself for what it has of a key, as another node would.
    fn examine(&mut self, at: usize, place: Place, compared: bool) -> Verdict {
        let promised = self.checks.promised(at, &name(place));
        if promised.is_none() && !compared {
            return Ok(());
        }
        let (bucket, key) = client::names(place);
        let prefix = self.hosts[at].machine.layout.prefix(&bucket, &key);
        let mut ledger_key = Vec::new();
        object::key::encode_object_key(prefix, &bucket.bucket_type, &bucket.name, &key, &mut ledger_key);
        self.ending.last_audit += 1;
        let id = self.ending.last_audit;
        let audit = Audit { place, promised: promised.unwrap_or_default(), compared };
        self.ending.audits.insert((at, id), audit);
        let message = PeerMessage::Ask {
            id: AskId(id),
            ttl_ms: u32::try_from(AUDIT_TIMEOUT.as_millis()).expect("seconds"),
            key: Bytes::from(ledger_key),
            ask: Ask::Read { want: Want::Head },
        };
        let other = (at + 1) % self.hosts.len();
        self.checks.on_message(other, at, &message)?;
        self.deliver(at, replica::NodeId(u16::try_from(other).expect("a small number")), message)
    }

    /// Takes a node's answer to an examination.
    pub(super) fn on_examined(&mut self, at: usize, audit: Audit, result: Result<Answer, Error>) -> Verdict {
        let head = match result {
            Ok(Answer::Read(stored)) => stored.map(|stored| stored.head),
            other => {
                self.ending.failed = Some(format!("n{at} was examined and said {other:?}"));
                return Ok(());
            }
        };
        check_promise(at, &name(audit.place), &audit.promised, head.as_ref())?;
        if audit.compared {
            self.ending.copies.entry(audit.place).or_default().insert(at, head);
        }
        Ok(())
    }

    fn read_all(&mut self) -> Verdict {
        self.ending.read.clear();
        let living: Vec<usize> = self.living().collect();
        for place in self.places() {
            let all = u32::try_from(self.primaries(place).len()).expect("a small number");
            let at = living[index_below(&mut self.rng, living.len())];
            let (bucket, key) = client::names(place);
            let request = Request::Get(GetRequest {
                r: Quorum::Exactly(all),
                pr: Quorum::Exactly(all),
                deleted_context: true,
                timeout: Some(u32::try_from(AUDIT_TIMEOUT.as_millis()).expect("seconds")),
                ..GetRequest::new(bucket, key)
            });
            self.ask(at, Asked::Read(place), request, AUDIT_TIMEOUT)?;
        }
        Ok(())
    }

    /// Asks a node something, past the network.
    fn ask(&mut self, at: usize, asked: Asked, request: Request, timeout: Duration) -> Verdict {
        let shard = index_below(&mut self.rng, usize::from(self.hosts[at].machine.layout.shards));
        if self.hosts[at].machine.process.as_ref().is_none_or(|process| process.closing[shard]) {
            self.ending.failed = Some(format!("n{at} does not run"));
            return Ok(());
        }
        self.numbers += 1;
        self.ending.asked.insert(self.numbers, (at, asked));
        self.on_ask((AUDITOR, self.numbers), (at, shard), request, timeout)
    }

    /// Asks a node for the properties of a bucket.
    pub(super) fn ask_props(&mut self, at: usize, bucket: usize) -> Verdict {
        self.ask(at, Asked::Props(bucket), Request::GetProps(client::bucket(bucket)), PROPS_TIMEOUT)
    }

    /// Takes an answer of a node to the auditor.
    pub(super) fn on_audited(&mut self, at: usize, number: u64, result: Result<Response, Error>) -> Verdict {
        let Some((_, asked)) = self.ending.asked.remove(&number) else { return Ok(()) };
        match (asked, result) {
            (Asked::Read(place), result @ Ok(Response::Found(_) | Response::NotFound { .. })) => {
                let context = show::context(&result).map(|bytes| Context::decode(&bytes));
                let context = context.transpose().map_err(|error| unreadable(place, &error))?;
                let found = if let Ok(Response::Found(found)) = result { Some(found) } else { None };
                self.ending.read.insert(place, (found, context.unwrap_or_default()));
            }
            (Asked::Props(bucket), Ok(Response::Props(props))) => {
                if is_right(&props, bucket, self.plan.node_confirms) {
                    self.hosts[at].on_bucket_prepared(bucket);
                } else if !self.ending.is_setting(at, bucket) {
                    let request =
                        Request::SetProps(client::bucket(bucket), props_of(bucket, self.plan.node_confirms));
                    return self.ask(at, Asked::Set(bucket), request, PROPS_TIMEOUT);
                }
            }
            (Asked::Set(_), _) => {}
            (asked, result) => self.ending.failed = Some(format!("{asked:?} was answered {result:?}")),
        }
        Ok(())
    }

    /// Holds the copies against each other and the reads; if all are equal, against what was acknowledged.
    fn compare(&mut self) -> Result<bool, Violation> {
        let Ending { copies, read, failed, .. } = &self.ending;
        if failed.is_some() || read.len() < copies.len() {
            self.trace.line(format_args!("nothing to compare: {failed:?}"));
            return Ok(false);
        }
        for (place, (_, context)) in read {
            check_read(&name(*place), &copies[place], context)?;
        }
        let is_done =
            |place: &Place, copies: &Copies| copies.are_equal() && copies.have(&name(*place), &read[place].1);
        let unequal = copies.iter().filter(|(place, copies)| !is_done(place, copies)).count();
        self.trace.line(format_args!("{unequal} keys differ"));
        if unequal > 0 {
            return Ok(false);
        }
        for (place, (found, context)) in read {
            self.checks.check_end(&name(*place), found.as_ref(), context)?;
        }
        Ok(true)
    }

    /// Looks at what the shards hold, now and then.
    pub(super) fn check_bounds(&mut self, quiet: bool) -> Verdict {
        self.ending.ticks += 1;
        if !quiet && !self.ending.ticks.is_multiple_of(BOUNDS_EVERY) {
            return Ok(());
        }
        for (at, host) in self.hosts.iter().enumerate() {
            let shards = host.machine.process.iter().flat_map(|process| process.shards.iter().enumerate());
            for (shard, running) in shards.filter_map(|(at, shard)| Some((at, shard.as_ref()?))) {
                check_bounds(at, shard, &running.stats(), quiet)?;
            }
        }
        Ok(())
    }
}

fn name(place: Place) -> KeyName {
    let (bucket, key) = client::names(place);
    KeyName::of(&bucket, &key)
}

fn unreadable(place: Place, error: &object::Error) -> Violation {
    check::Violation::new("only what was written is shown", format!("{}: its context: {error}", name(place)))
}

/// What makes a bucket what it is.
fn props_of(bucket: usize, node_confirms: u32) -> Vec<Prop> {
    let kinds = [vec![Prop::AllowMult(true)], Vec::new(), vec![Prop::LastWriteWins(true)]];
    let mut props = kinds[bucket].clone();
    props.push(Prop::NodeConfirms(node_confirms));
    props
}

fn is_right(props: &BucketProps, bucket: usize, node_confirms: u32) -> bool {
    let replicas = usize::try_from(props.n_val) == Ok(REPLICAS);
    let kind = (props.allow_mult, props.last_write_wins) == (bucket == 0, bucket == 2);
    replicas && kind && props.node_confirms == node_confirms
}
