//! A large cluster, up to 1,000 nodes on 16,384 partitions: the real ring, failure detector, metadata log, agreed state
//! and reports, on nodes whose stores are models.
//!
//! What costs a whole node its memory and its time is left out: a store is the numbers of the writes that it has of each partition
//! (`store.rs`). What decides is not: [`membership::Membership`] runs at each node, on a file that tears and a network that loses,
//! doubles, holds up and is cut; who copies what from whom, and who passes writes on, is what [`node::Topology`] says;
//! reports are those of [`membership::reporter`].
//!
//! 1. *Life*: the founders begin at once. An operator has members come, leave and take each other's place, by commands
//!    that he gives any node (`operator.rs`). Meanwhile nodes crash, voters and leaders more often, links are cut,
//!    disks are lost for good (`trouble.rs`), and clients write and read (`clients.rs`).
//! 2. *Calm*: nothing goes wrong any more. What was begun must come to its end within a bounded time (`settled.rs`).
//!
//! Promises: of one version of the ring there is one; everybody comes to know the newest state; a read of two of three
//! replicas sees every write that was confirmed before it, by whatever ring it goes, so two owners of a range never
//! both answer as its sole truth; in the end each partition is at as many living nodes as it is to have replicas, with
//! all that was confirmed, and at no other; and where there are no zones a plan moves at most a fifth more than it
//! must.
//!
//! `transitions.rs` has nodes die at each step of a change, not by chance. `idle.rs` measures what a cluster at rest
//! costs, `carried.rs` how a change is carried out.
//!
//! In some seeds the operator does not wait for what he has begun, and what nodes report comes when something else was
//! decided.
//!
//! In some seeds the ring doubles, once or twice, alone or together with a change of members (`least.rs` says what a
//! plan must move).
//!
//! Left out: hints, repair and deletes, which the world of whole nodes has; clocks that are wrong.

pub mod carried;
mod clients;
mod copies;
mod host;
pub mod idle;
mod known;
mod least;
mod operator;
mod plan;
mod settled;
mod store;
#[cfg(test)]
mod tests;
pub mod transitions;
mod trouble;

use crate::check::{Verdict, Violation};
use crate::kind::Kind;
use crate::network::{self, Network, Packet};
use crate::report::Report;
use crate::scheduler::Scheduler;
use crate::seed::{Seed, duration_between};
use crate::trace::{Keep, Trace};
use crate::{Fault, SimTime};
use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use bytes::Bytes;
use clients::Clients;
use host::Host;
use known::Known;
use membership::state::{Command, State};
use membership::{ClusterId, Input, NodeId, Output, Stop};
use operator::Operator;
pub use plan::Shape;
use plan::{Plan, REPLICAS};
use ring::{RingSize, RingVersion};
use settled::Settling;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use transitions::Script;

const CLUSTER: ClusterId = ClusterId(1);

/// How late shards take what is published at most.
const HEARD_WITHIN: Duration = Duration::from_millis(50);
/// How often a newcomer asks the next member for what all agree on.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// How often the world looks at itself.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How late a report comes at most: as late as an operator may have decided anew, and all have heard of it.
const LATE_REPORT_MAX: Duration = Duration::from_secs(10);
/// No seed lives so long; one that does is going round in circles.
const EVENTS_PER_NODE_MAX: u64 = 1_000_000;
/// Names what nodes propose by themselves, of which nobody awaits the answer.
const REPORT: u64 = 0;

/// What one node says to another.
#[derive(Clone, Debug)]
struct Word(Bytes);

/// Which process of a node something is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Life(NodeId, u32);

#[derive(Debug)]
enum Event {
    Word(Packet<Word>),
    /// Something is due at a node.
    Timer(Life),
    Start(NodeId),
    /// A node's shards take what was published.
    Hear(Life, RingVersion),
    /// Part of a copy from another node has come, or will not.
    Part(Life, Life, RingVersion),
    /// What a node reports comes late.
    Report(Life, Command),
    /// A node looks what it can copy next.
    Copy(Life),
    /// Some client asks something.
    Client,
    /// A request reaches a replica of its list.
    Arrive(u32, usize),
    /// What a replica has written reaches whom it is passed on to.
    Pass(u32, usize, NodeId),
    /// A request is over.
    End(u32),
    Operate,
    Trouble,
    /// The links that were cut are mended.
    Mend,
    Look,
}

impl From<Packet<Word>> for Event {
    fn from(packet: Packet<Word>) -> Event {
        Event::Word(packet)
    }
}

/// Where a world is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Life,
    Calm,
    Over,
}

struct World {
    shape: Shape,
    plan: Plan,
    /// The parts of all stores.
    units: RingSize,
    rng: SplitMix64,
    /// Draws when reports come late.
    reports: SplitMix64,
    trace: Trace,
    events: Scheduler<Event>,
    network: Network,
    hosts: BTreeMap<NodeId, Host>,
    /// What was published, by version.
    published: BTreeMap<RingVersion, Rc<Known>>,
    /// The last entry that is known to be committed anywhere, and where.
    newest: (u64, NodeId),
    clients: Clients,
    operator: Operator,
    script: Option<Script>,
    settling: Settling,
    phase: Phase,
    deaths: u64,
    /// Partitions that were copied to a node.
    copied: u64,
    cuts: BTreeSet<(NodeId, NodeId)>,
}

/// Lives the life of `seed`, and returns what came of it and its trace.
pub fn run(seed: Seed, shape: Shape, keep: Keep) -> (Report, Trace) {
    let mut world = World::new(seed, shape, Plan::of(seed, shape), keep);
    let (handled, end) = world.live();
    let (kind, plan) = (Kind::Elastic(shape), &world.plan);
    let missing = plan.crashes.saturating_sub(world.deaths) + world.operator.changes_left();
    let report = Report::new((kind, seed), &world.trace, handled, world.clients.acknowledged(), end);
    let (deaths, changes) = (world.deaths, world.operator.changes());
    (Report { crashes_missing: missing, deaths, changes, ..report }, world.trace)
}

/// Lives a life in which nothing goes wrong but that the operator does not wait for what he has begun, and that reports
/// come late.
///
/// # Errors
/// The promise that was broken.
pub fn second_thoughts(seed: Seed, shape: Shape) -> Verdict {
    World::new(seed, shape, Plan::second_thoughts(shape), Keep::Hash).live().1
}

impl World {
    fn new(seed: Seed, shape: Shape, plan: Plan, keep: Keep) -> World {
        let time = SimTime::default();
        let trace = Trace::new(time.clone(), keep);
        trace.line(format_args!("{plan:?}"));
        let network = Network::new(plan.network, seed.stream("network", 0), trace.clone());
        let mut events = Scheduler::new(time, seed.stream("scheduler", 0));
        let units = plan.units(shape);
        if plan.late_reports.enabled() {
            trace.enable(Fault::LateReport);
        }
        let names: Vec<(String, String)> = (0..plan.founders).map(|at| (name(at), plan.zone(at))).collect();
        let size = RingSize::new(shape.partitions).expect("the shape was checked");
        let nodes = names.iter().map(|(name, zone)| (&**name, ADDRESS, &**zone));
        let founded =
            State::found_by(CLUSTER, (size, size.finest()), nodes).expect("names differ, and fit the ring");
        let mut hosts = BTreeMap::new();
        for node in (0..plan.founders).map(NodeId) {
            hosts.insert(node, Host::founder(node, &founded));
            events.at(Monotonic(0), Event::Start(node));
        }
        events.at(Monotonic(0), Event::Look);
        let mut world = World {
            shape,
            rng: seed.stream("world", 0),
            trace,
            events,
            network,
            hosts,
            published: BTreeMap::new(),
            newest: (0, NodeId(0)),
            units,
            reports: seed.stream("reports", 0),
            clients: Clients::new(seed.stream("clients", 0), units.partitions()),
            operator: Operator::new(seed, &plan),
            script: None,
            settling: Settling::default(),
            phase: Phase::Life,
            deaths: 0,
            copied: 0,
            cuts: BTreeSet::new(),
            plan,
        };
        world.found_stores(&founded);
        world
    }

    /// Lives until all is over; says how many events that took.
    fn live(&mut self) -> (u64, Verdict) {
        let (mut handled, most) = (0, EVENTS_PER_NODE_MAX * u64::from(self.shape.nodes));
        self.events.after(self.plan.quiet, Event::Client);
        self.events.after(self.plan.quiet, Event::Trouble);
        self.events.after(self.plan.quiet, Event::Operate);
        while self.phase != Phase::Over {
            let event = self.events.pop().expect("there is always a look to come");
            handled += 1;
            let verdict = match handled > most {
                true => Err(Violation::new("a world comes to rest", format!("{:?}", self.phase))),
                false => self.on_event(event),
            };
            if let Err(violation) = verdict {
                return (handled, Err(violation));
            }
        }
        (handled, Ok(()))
    }

    fn on_event(&mut self, event: Event) -> Verdict {
        match event {
            Event::Word(packet) => self.on_word(packet),
            Event::Timer(life) => self.on_timer(life),
            Event::Start(node) => self.start(node),
            Event::Hear(life, version) => {
                self.hear(life, version);
                self.follow(life.0)
            }
            Event::Part(life, from, target) => {
                self.on_part(life, from, target);
                self.follow(life.0)
            }
            Event::Report(life, command) => self.on_late_report(life, command),
            Event::Copy(life) => {
                self.copy(life);
                self.follow(life.0)
            }
            Event::Client => {
                self.on_client();
                Ok(())
            }
            Event::Arrive(number, at) => {
                self.on_arrive(number, at);
                Ok(())
            }
            Event::Pass(number, at, mate) => {
                self.on_pass(number, at, mate);
                Ok(())
            }
            Event::End(number) => self.on_end(number),
            Event::Operate => self.operate(),
            Event::Trouble => {
                self.on_trouble();
                Ok(())
            }
            Event::Mend => {
                self.mend();
                Ok(())
            }
            Event::Look => {
                self.events.after(LOOK_EVERY, Event::Look);
                self.look()
            }
        }
    }

    // Nodes.

    fn on_word(&mut self, packet: Packet<Word>) -> Verdict {
        if !self.network.arrives(&packet) {
            return Ok(());
        }
        self.step(member(packet.to), Input::Message(packet.message.0), Some(member(packet.from)))
    }

    fn on_timer(&mut self, life: Life) -> Verdict {
        let now = self.events.now();
        let Some(process) = self.process(life) else { return Ok(()) };
        process.timer = None;
        if process.membership.state().is_none() && now >= process.ask_at {
            process.ask_at = now + ASK_EVERY;
            let contact = process.next_contact();
            self.step(life.0, Input::Join { contact }, None)?;
        }
        self.step(life.0, Input::Tick, None)
    }

    /// Gives a node something, and what follows from it for the node itself.
    fn step(&mut self, node: NodeId, input: Input, from: Option<NodeId>) -> Verdict {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = self.events.now();
            let Some(host) = self.hosts.get_mut(&node) else { return Ok(()) };
            let Some(process) = &mut host.process else { return Ok(()) };
            let mut out = Vec::new();
            process.membership.step(input, now, &mut out);
            host.cost.steps += 1;
            let mut has_changed = false;
            for output in out {
                has_changed |= output == Output::Changed;
                if !self.on_output(node, from, output)? {
                    return Ok(());
                }
            }
            self.on_commit(node);
            if has_changed && !self.on_changed(node)? {
                return Ok(());
            }
            inputs.extend(self.propose(node));
        }
        self.set_timer(node);
        self.play_script();
        Ok(())
    }

    /// Sees to what a node's shards have made of something.
    fn follow(&mut self, node: NodeId) -> Verdict {
        self.propose(node).map_or(Ok(()), |input| self.step(node, input, None))
    }

    /// What a node is to propose by itself now, unless that is held up.
    fn propose(&mut self, node: NodeId) -> Option<Input> {
        let command = self.report(node)?;
        let may_be_late = self.phase == Phase::Life && command.is_report();
        if !(may_be_late && self.plan.late_reports.fires(&mut self.reports)) {
            return Some(Input::Propose { token: REPORT, command });
        }
        self.trace.fault(Fault::LateReport, format_args!("{node}: {command:?}"));
        let delay = duration_between(&mut self.reports, Duration::ZERO, LATE_REPORT_MAX);
        self.events.after(delay, Event::Report(self.hosts[&node].life(), command));
        None
    }

    /// What a node wanted to propose long ago reaches the log.
    fn on_late_report(&mut self, life: Life, command: Command) -> Verdict {
        match self.process(life) {
            Some(_) => self.step(life.0, Input::Propose { token: REPORT, command }, None),
            None => Ok(()),
        }
    }

    /// False if the node's process has ended.
    fn on_output(&mut self, node: NodeId, from: Option<NodeId>, output: Output) -> Result<bool, Violation> {
        match output {
            Output::Write(write) => {
                let is_torn = self.phase == Phase::Life && self.plan.torn.fires(&mut self.rng);
                let torn_at = is_torn.then(|| self.rng.next_u64());
                self.hosts.get_mut(&node).expect("it has just stepped").write(write, torn_at);
                if is_torn {
                    self.trace.fault(Fault::CrashInWrite, format_args!("{node}"));
                    self.crash(node);
                    return Ok(false);
                }
            }
            Output::Send { to, message } => self.send(node, to, message),
            Output::Reply(message) => from.into_iter().for_each(|to| self.send(node, to, message.clone())),
            Output::Starts(starts) => {
                self.hosts.get_mut(&node).expect("it has just stepped").starts = starts;
            }
            Output::Answer { token, outcome } if token != REPORT => self.operator.on_answer(token, outcome),
            Output::Note(text) | Output::Alarm(text) => self.trace.line(format_args!("{node}: {text}")),
            Output::Stop(Stop::Removed) => {
                self.leave(node)?;
                return Ok(false);
            }
            Output::Stop(stop @ Stop::Copy) => {
                return Err(Violation::new(
                    "a node that was started again is no copy",
                    format!("{node}: {stop}"),
                ));
            }
            Output::Answer { .. } | Output::Changed | Output::Up(_) | Output::Down(_) => {}
        }
        Ok(true)
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Bytes) {
        let cost = &mut self.hosts.get_mut(&from).expect("it has just stepped").cost;
        cost.messages += 1;
        cost.bytes += message.len() as u64;
        let (from, to) = (place(from), place(to));
        self.network.send(&mut self.events, Packet { from, to, message: Word(message) });
    }

    fn set_timer(&mut self, node: NodeId) {
        let now = self.events.now();
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let life = host.life();
        let Some(process) = &mut host.process else { return };
        let asks = process.membership.state().is_none().then_some(process.ask_at);
        let due = [Some(process.membership.next_timer()), asks, process.reporter.next_timer(now)];
        let due = due.into_iter().flatten().min().unwrap_or(now);
        match process.timer {
            Some((at, _)) if at == due => return,
            Some((_, id)) => drop(self.events.cancel(id)),
            None => {}
        }
        process.timer = Some((due, self.events.at(due, Event::Timer(life))));
    }

    /// Whether one node reaches the other.
    fn reaches(&self, from: NodeId, to: NodeId) -> bool {
        let is_up = self.hosts.get(&to).is_some_and(|host| host.process.is_some());
        is_up && !self.cuts.contains(&(from, to)) && !self.cuts.contains(&(to, from))
    }

    fn draw(&mut self, longest: Duration) -> Duration {
        duration_between(&mut self.rng, Duration::ZERO, longest)
    }

    // What all agree on.

    fn on_commit(&mut self, node: NodeId) {
        let commit = self.membership(node).map_or(0, |it| it.log().commit());
        if commit > self.newest.0 {
            self.newest = (commit, node);
        }
    }

    /// The newest state that any living node knows.
    fn newest_state(&self) -> Option<&State> {
        let known = self.membership(self.newest.1).filter(|it| it.log().commit() >= self.newest.0);
        let known = known.or_else(|| {
            let all = self.hosts.values().filter_map(|host| Some(&host.process.as_ref()?.membership));
            all.max_by_key(|it| it.log().commit())
        });
        known?.state()
    }

    /// A node knows another state than before. False if it is no member any more, and has ended.
    fn on_changed(&mut self, node: NodeId) -> Result<bool, Violation> {
        let state = self.membership(node).and_then(|it| it.state()).expect("it has just changed");
        let is_member = state.members().get(&node).is_some_and(|it| !it.is_forgotten());
        let version = state.ring_version();
        if !is_member {
            self.leave(node)?;
            return Ok(false);
        }
        self.remember(node)?;
        let delay = self.draw(HEARD_WITHIN);
        let host = self.hosts.get_mut(&node).expect("it has just stepped");
        let life = host.life();
        let process = host.process.as_mut().expect("it has just stepped");
        if version > process.heard {
            process.heard = version;
            self.events.after(delay, Event::Hear(life, version));
        }
        Ok(true)
    }

    /// What a node knows to be published is what others know under this version.
    fn remember(&mut self, node: NodeId) -> Verdict {
        let host = &self.hosts[&node];
        let Some(state) = host.process.as_ref().and_then(|it| it.membership.state()) else { return Ok(()) };
        let version = state.ring_version();
        match self.published.get(&version) {
            Some(known) if !known.is_of(state) => {
                let what = format!("{node} knows another ring {} than others", version.0);
                Err(Violation::new("of each version there is one ring", what))
            }
            Some(_) => Ok(()),
            None => {
                let known = Known::of(state, self.units);
                self.trace.line(format_args!("{node} publishes {known}"));
                self.published.insert(version, Rc::new(known));
                Ok(())
            }
        }
    }

    /// A node's process has ended for good: it is no member any more.
    fn leave(&mut self, node: NodeId) -> Verdict {
        let is_member = self.newest_state().and_then(|state| state.members().get(&node));
        if is_member.is_some_and(|it| !it.is_forgotten()) {
            return Err(Violation::new("a member is not sent away", format!("{node} ends")));
        }
        self.trace.line(format_args!("{node} has left"));
        self.end_process(node);
        let host = self.hosts.get_mut(&node).expect("it has just stepped");
        host.left = true;
        if host.store.len() > 0 && !host.gone {
            let what = format!("{node} has left with {} partitions", host.store.len());
            return Err(Violation::new("a node that leaves has handed over all partitions", what));
        }
        Ok(())
    }
}

const ADDRESS: &str = "h:1";

fn name(at: u16) -> String {
    format!("n{at}@sim")
}

fn place(node: NodeId) -> network::NodeId {
    network::NodeId(node.0.into())
}

fn member(place: network::NodeId) -> NodeId {
    NodeId(u16::try_from(place.0).expect("it was a member's number"))
}
