//! A cluster with a consistent bucket type, under clients that expect linearizable keys: the world `strong`.
//!
//! Three to seven real nodes, each of one or two [`node::Shard`]s over [`engine::Store`]s, on simulated disks, clocks
//! and networks. One bucket type has groups of three or five voters; clients use a few keys of each of eight groups.
//! The metadata log is replaced by a trusted registry (`registry.rs`), whose answers take time.
//!
//! 1. *Preparation*: all nodes start and register, the type is created, and each group answers.
//! 2. *Life*: clients, and all faults that the seed enabled (`trouble.rs`), until enough was acknowledged. Scenarios
//!    bring faults in the order in which rare bugs show (`scenario.rs`).
//! 3. *Heal*: faults end. In half of the seeds nobody asks anything until groups with a leader are at rest by
//!    themselves. Each group answers within five seconds (`ending.rs`).
//! 4. *Cut*, in half of the seeds: links are cut one way, and stay so. Each group of which a majority can still speak
//!    to each other answers within that time, while the cut lasts and after it.
//! 5. *Rest*: the last messages of the time of faults arrive, and groups settle.
//! 6. *Reading*: each key is read once more. *Stopping*: nodes stop, and their stores are compared.
//!
//! Scripts are lives with chosen scenarios, which are too rare for a draw (`script.rs`).
//!
//! A seed's number gives its life a character (`plan.rs`): a mixture of all faults, contention and changes of leaders,
//! disks, or catch-ups.
//!
//! Promises: each key's history is linearizable, final reads included, so a failure that a client was told never takes
//! effect, and an acknowledged write is there at the end; a term of a group has one leader; voters of a group have
//! equal keys at the end; a store that lost nothing keeps its birth, and no group of it is suspect.
//!
//! Disks are lost, restored, cloned or damaged on nodes of which each group has a minority. Such a node has another
//! birth, and votes again in all its groups at the end.
//!
//! In one of six lives all nodes are restored from backups, and an operator recovers the groups (`restore.rs`). It cuts
//! the histories (`history.rs`).
//!
//! Left out: changes of members; the metadata log and its faults, which the world `elastic` has; two processes of one
//! member; the reaping of tombstones, whose interval is longer than a life.

mod backup;
mod clients;
mod ending;
mod history;
mod host;
mod messages;
mod nodes;
mod operator;
mod plan;
mod probes;
mod refill;
mod registration;
mod registry;
mod replicas;
mod restore;
mod scenario;
mod script;
mod tally;
#[cfg(test)]
mod tests;
mod trouble;

use crate::SimTime;
use crate::check::{Verdict, Violation};
use crate::kind::Kind;
use crate::machine::{Machine, Step, TICK, Timer};
use crate::network::{Network, NetworkConfig, NodeId, Packet};
use crate::partition::Partition;
use crate::report::Report;
use crate::scheduler::Scheduler;
use crate::seed::Seed;
use crate::trace::{Keep, Trace};
use base::Monotonic;
use base::rng::SplitMix64;
use bytes::Bytes;
use clients::{Client, Pending};
use ending::Phase;
use history::Key;
use host::{Folder, Host};
use kv::{Error, Request, Response};
use node::{Layout, PeerMessage};
use plan::{Character, Plan};
use probes::Probes;
use registry::Registry;
use restore::Restore;
use ring::{Ring, RingSize, RingVersion};
use scenario::Scenario;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use script::Script;
use tally::Counted;
pub use tally::Tally;

/// Groups whose keys clients use.
const GROUPS: usize = 8;

/// Events of one life at most. A life with more goes round in circles.
const EVENTS_MAX: u64 = 2_000_000;

/// Clients are nodes of the outer network, numbered from here.
const CLIENTS_FROM: u32 = 1000;

/// A message between clients and nodes.
#[derive(Clone, Debug)]
enum Message {
    Ask { number: u64, request: Box<Request> },
    Answer { number: u64, result: Result<Response, Error> },
}

/// A frame between nodes.
#[derive(Clone, Debug)]
struct Frame(Bytes);

#[derive(Debug)]
enum Event {
    /// A message to or from a client arrives.
    Outside(Packet<Message>),
    /// A frame of one node arrives at another.
    Inside(Packet<Frame>),
    /// A client sends its next request.
    Client(usize),
    /// A client waits no longer.
    GiveUpWaiting(u64),
    Machine(usize, Step),
    /// A shard begins its clean stop.
    Close(usize, usize),
    /// A shard takes back a message that could not be sent.
    Bounce {
        at: usize,
        shard: usize,
        to: usize,
        message: Box<PeerMessage>,
    },
    /// A node is told whether its link to another is up.
    Link(usize, usize),
    /// The operator cuts the power of a node whose process is fenced.
    CutPower(usize),
    Start(usize),
    /// A node goes on after a pause.
    Resume(usize),
    /// The registry takes the start of a node's process.
    Confirm(usize),
    /// The registry takes the births of a node's stores.
    Register(usize),
    /// A node hears of the agreement.
    Publish(usize),
    Trouble,
    /// The next stage of a scenario comes.
    Scenario,
    /// The next step of the restore of all nodes comes.
    Restore,
    /// The cut links come, go, or are mended.
    Partition,
    /// A node looks at the time.
    Tick(usize),
    /// The world does.
    Look,
}

impl Event {
    /// The node whose process takes it, which it cannot while it stands still.
    fn taker(&self) -> Option<usize> {
        match self {
            Event::Outside(packet) => node_of(packet.to),
            Event::Inside(packet) => node_of(packet.to),
            Event::Machine(at, _) | Event::Close(at, _) | Event::Bounce { at, .. } => Some(*at),
            Event::Link(at, _) | Event::Publish(at) => Some(*at),
            _ => None,
        }
    }

    /// Whether it ends with the process of `node`.
    fn is_of_process(&self, node: usize) -> bool {
        match self {
            Event::Machine(at, _) | Event::Close(at, _) | Event::Bounce { at, .. } => *at == node,
            Event::CutPower(at) | Event::Start(at) | Event::Resume(at) => *at == node,
            Event::Confirm(at) | Event::Register(at) => *at == node,
            _ => false,
        }
    }
}

impl From<Packet<Message>> for Event {
    fn from(packet: Packet<Message>) -> Event {
        Event::Outside(packet)
    }
}

impl From<Packet<Frame>> for Event {
    fn from(packet: Packet<Frame>) -> Event {
        Event::Inside(packet)
    }
}

struct World {
    seed: Seed,
    plan: Plan,
    rng: SplitMix64,
    trace: Trace,
    events: Scheduler<Event>,
    /// Between nodes.
    inside: Network,
    /// Between clients and nodes.
    outside: Network,
    ring: Arc<Ring>,
    hosts: Vec<Host>,
    registry: Registry,
    clients: Vec<Client>,
    keys: Vec<Key>,
    /// Keys that only catch-ups are about.
    fill_keys: Vec<Key>,
    /// The prefixes of the groups.
    groups: Vec<u16>,
    /// Requests of clients that have no answer.
    pending: BTreeMap<u64, Pending>,
    /// The node that has each request.
    requests: BTreeMap<u64, usize>,
    numbers: u64,
    partition: Option<Partition>,
    /// The scenario under way.
    scenario: Option<Scenario>,
    /// The older copy of a node's folder that is to be restored.
    backup: Option<(usize, Folder)>,
    /// The restore of all nodes.
    restore: Option<Restore>,
    /// Whether all nodes were restored, and not all groups have their voters again.
    is_restoring: bool,
    /// The groups that are held back since then.
    held_groups: BTreeSet<u16>,
    /// The value of each version of each key.
    versions: BTreeMap<(usize, Bytes), strong::linearizability::Value>,
    /// The leader of each term of each group.
    leaders: BTreeMap<(u16, u64), usize>,
    phase: Phase,
    probes: Probes,
    looks: u64,
    tally: Tally,
}

/// Lives the life of `seed`; its report and its trace.
pub fn run(seed: Seed, keep: Keep) -> (Report, Trace) {
    live(seed, Plan::of(seed), keep)
}

/// Lives the life of `seed` with a script; its report and its trace.
pub fn run_script(seed: Seed, script: Script, keep: Keep) -> (Report, Trace) {
    let mut plan = Plan::of(seed);
    script.change(&mut plan);
    live(seed, plan, keep)
}

fn live(seed: Seed, plan: Plan, keep: Keep) -> (Report, Trace) {
    let mut world = World::new(seed, plan, keep);
    let (handled, end) = world.live();
    let deaths = world.deaths();
    let acknowledged = world.tally.acknowledged();
    let report = Report::new((Kind::Strong, seed), &world.trace, handled, acknowledged, end);
    let crashes_missing = world.plan.deaths.saturating_sub(deaths);
    let unfired = world.unfired();
    (Report { unfired, crashes_missing, deaths, strong: Some(world.tally), ..report }, world.trace)
}

impl World {
    fn new(seed: Seed, plan: Plan, keep: Keep) -> World {
        let time = SimTime::default();
        let trace = Trace::new(time.clone(), keep);
        trace.line(format_args!("{plan:?}"));
        plan.enable(&trace);
        let size = RingSize::new(plan.ring_size).expect("a power of two");
        let nodes = u32::try_from(plan.nodes()).expect("a few");
        let ring = Arc::new(Ring::round_robin(RingVersion(1), size, nodes).expect("a ring of a few nodes"));
        // Nothing goes wrong until each group has answered.
        let network = |part: &str| Network::new(NetworkConfig::CALM, seed.stream(part, 0), trace.clone());
        let hosts = (0..plan.nodes()).map(|at| Host::new(seed, &plan, at, &ring, &time, &trace)).collect();
        let client = |at| Client::new(seed.stream("client", at as u64), plan.nodes());
        let mut events = Scheduler::new(time, seed.stream("scheduler", 0));
        (0..plan.nodes()).for_each(|at| {
            events.at(Monotonic(0), Event::Start(at));
        });
        events.at(Monotonic(0), Event::Look);
        let layout = Layout::new(1, size);
        let (groups, keys) = draw_keys(&layout, "k", plan.keys, None);
        let fill_keys = match plan.character {
            Character::CatchUp => draw_keys(&layout, "z", refill::FILL_KEYS, Some(&groups)).1,
            _ => Vec::new(),
        };
        World {
            seed,
            rng: seed.stream("world", 0),
            inside: network("inside"),
            outside: network("outside"),
            trace: trace.clone(),
            events,
            hosts,
            registry: Registry::new(seed.stream("registry", 0), plan.nodes(), plan.n_val, &ring),
            ring,
            clients: (0..plan.clients).map(client).collect(),
            keys,
            fill_keys,
            groups,
            pending: BTreeMap::new(),
            requests: BTreeMap::new(),
            numbers: 0,
            partition: None,
            scenario: None,
            backup: None,
            restore: plan.restore.then(|| Restore::new(seed, plan.nodes())),
            is_restoring: false,
            held_groups: BTreeSet::new(),
            versions: BTreeMap::new(),
            leaders: BTreeMap::new(),
            phase: Phase::Preparation,
            probes: Probes::default(),
            looks: 0,
            tally: Tally::default(),
            plan,
        }
    }

    /// Lives until all is over; the number of events that this took.
    fn live(&mut self) -> (u64, Verdict) {
        let mut handled = 0;
        while self.phase != Phase::Over {
            let event = self.events.pop().expect("there is always a look to come");
            handled += 1;
            if handled > EVENTS_MAX {
                let what = format!("{:?} after {handled} events", self.phase);
                return (handled, Err(Violation::new("a world comes to rest", what)));
            }
            if let Err(violation) = self.step(event) {
                return (handled, Err(violation));
            }
        }
        (handled, Ok(()))
    }

    fn step(&mut self, event: Event) -> Verdict {
        if let Some(held) = event.taker().and_then(|at| self.hosts[at].held.as_mut()) {
            held.push_back(event);
            return Ok(());
        }
        match event {
            Event::Outside(packet) => return self.on_outside(packet),
            Event::Inside(packet) => return self.on_inside(packet),
            Event::Client(at) => self.on_client(at),
            Event::GiveUpWaiting(number) => self.finish(number, strong::linearizability::Outcome::Timeout),
            Event::Machine(at, step) => return self.on_step(at, step),
            Event::Close(at, shard) => return self.on_close(at, shard),
            Event::Bounce { at, shard, to, message } => return self.on_bounce(at, shard, to, *message),
            Event::Link(at, to) => return self.on_link(at, to),
            Event::CutPower(at) => self.power_cut(at),
            Event::Start(at) => return self.on_start(at),
            Event::Resume(at) => return self.on_resume(at),
            Event::Confirm(at) => return self.on_confirm(at),
            Event::Register(at) => self.on_register(at),
            Event::Publish(at) => return self.on_publish(at),
            Event::Trouble => self.on_trouble(),
            Event::Scenario => self.on_scenario(),
            Event::Restore => return self.on_restore(),
            Event::Partition => self.on_partition(),
            Event::Tick(at) => return self.on_tick(at),
            Event::Look => return self.on_look(),
        }
        Ok(())
    }

    /// A node's machine, and the timer of its steps.
    fn parts(&mut self, at: usize) -> (&mut Machine, Timer<'_, Event, impl Fn(Step) -> Event + use<>>) {
        let wrap = move |step| Event::Machine(at, step);
        (&mut self.hosts[at].machine, Timer { events: &mut self.events, rng: &mut self.rng, wrap })
    }

    fn on_look(&mut self) -> Verdict {
        self.events.after(TICK, Event::Look);
        for at in 0..self.hosts.len() {
            if self.hosts[at].held.is_none() {
                self.step(Event::Tick(at))?;
            }
        }
        self.looks += 1;
        if self.looks.is_multiple_of(LEADERS_EVERY) {
            self.look_at_leaders()?;
        }
        self.advance()
    }

    /// Checks that each term has one leader.
    fn look_at_leaders(&mut self) -> Verdict {
        for at in 0..self.hosts.len() {
            let (mut terms, mut counted, mut is_suspect) = (Vec::new(), Counted::default(), false);
            for shard in 0..self.hosts[at].shards() {
                let Some(shard) = self.hosts[at].machine.shard(shard) else { continue };
                counted.add(&shard.stats().counters);
                let leads = |report: &node::GroupReport| report.role == node::GroupRole::Leader;
                is_suspect |= shard.status().groups().iter().any(|it| it.is_suspect);
                terms.extend(
                    shard.status().groups().iter().filter(|it| leads(it)).map(|it| (it.prefix, it.term)),
                );
            }
            self.tally.count_since(&self.hosts[at].counted, &counted);
            self.hosts[at].counted = counted;
            if is_suspect && !self.hosts[at].is_hurt {
                return Err(Violation::new(SUSPECT, format!("n{at}")));
            }
            for (prefix, term) in terms {
                let leader = *self.leaders.entry((prefix, term)).or_insert(at);
                if leader != at {
                    let what =
                        format!("n{leader} and n{at} lead term {term} of the group of prefix {prefix}");
                    return Err(Violation::new("a term has one leader", what));
                }
            }
        }
        Ok(())
    }
}

const SUSPECT: &str = "a store that lost nothing is not suspect";

/// Looks at the time between two looks at leaders.
const LEADERS_EVERY: u64 = 10;

/// Keys of these or of any groups: so many of each. The first ones are of different groups.
fn draw_keys(layout: &Layout, begin: &str, keys_each: u64, groups: Option<&[u16]>) -> (Vec<u16>, Vec<Key>) {
    let mut groups: Vec<u16> = groups.unwrap_or_default().to_vec();
    let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
    let mut keys = Vec::new();
    for number in 0_u64.. {
        let name = Bytes::from(format!("{begin}{number}"));
        let prefix = layout.prefix(&clients::bucket(), &name);
        if !groups.contains(&prefix) && groups.len() < GROUPS {
            groups.push(prefix);
        }
        if groups.contains(&prefix) && counts.get(&prefix).is_none_or(|count| *count < keys_each) {
            *counts.entry(prefix).or_default() += 1;
            keys.push(Key::new(name, prefix));
        }
        if counts.len() == GROUPS && counts.values().all(|count| *count == keys_each) {
            break;
        }
    }
    (groups, keys)
}

fn client_id(at: usize) -> NodeId {
    NodeId(CLIENTS_FROM + u32::try_from(at).expect("a small number"))
}

fn node_id(at: usize) -> NodeId {
    NodeId(u32::try_from(at).expect("a small number"))
}

/// The node with this number, if it is one.
fn node_of(id: NodeId) -> Option<usize> {
    usize::try_from(id.0).ok().filter(|_| id.0 < CLIENTS_FROM)
}

/// A node as the nodes themselves number it.
fn member(at: usize) -> kv::replica::NodeId {
    kv::replica::NodeId(u16::try_from(at).expect("a small number"))
}

/// All nodes but some.
fn all_but(nodes: usize, others: &BTreeSet<usize>) -> Vec<usize> {
    (0..nodes).filter(|at| !others.contains(at)).collect()
}
