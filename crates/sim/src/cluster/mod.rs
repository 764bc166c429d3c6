//! A cluster of real nodes under many clients, on disks, clocks and a network that fail: the world behind rows S1 to
//! S3, C0 to C6, C8, C12 and C14.
//!
//! Three to six nodes, or as many as are asked for, each of one or two [`node::Shard`]s over [`engine::Store`]s on a
//! disk of its own, speak
//! [`PeerMessage`]s, encoded, over a network that loses, doubles, reorders and holds up; clients speak to any of
//! them. What passes the nodes' boundaries and what they say to each other is told to [`Checks`].
//!
//! 1. *Preparation*: all nodes start and agree on the properties of the buckets.
//! 2. *Life*, the safety phase: until enough was acknowledged, nodes have died often enough, and every fault that
//!    the seed enabled has fired. At most one node loses its disk, or never comes back.
//! 3. *Convergence*, the liveness phase: faults end, and all keys are read until their replicas are equal, within a
//!    bounded time. Then everything acknowledged is asked for.
//! 4. *Settling*: the last messages of the time of faults arrive, and everything is asked for again.
//! 5. *Ends*: where the objects of a bucket end, all clocks leap beyond that, and nothing is left of them. In life they
//!    may do so once, too.
//! 6. *Listing*: each bucket is listed, and the listing is exactly the keys that the last reads have found.
//! 7. *Searching*: each bucket is searched by index, and what is told is exactly the entries of the objects there are.
//!
//! A node alone (rows S1 to S3) is a cluster of one, with a plan of its own. It dies far more often, at random times
//! and at chosen disk operations, starts included. Clients also change bucket properties. Each read is checked against
//! the promises of one replica. In some seeds its life ends with rot (`rot.rs`); in all, its keys are read before and
//! after a clean stop (`ending.rs`).
//!
//! Somebody lists buckets all the while, by folds too (`lister.rs`), and somebody searches them (`searcher.rs`). In
//! some seeds operators have nodes reap tombstones and erase objects (`purger.rs`), and in some members come and go,
//! and partitions move from node to node (`mover.rs`).
//!
//! By a script, in the place of a life by chance: a copy that is cut again and again (`transfer.rs`), nodes that are
//! restarted one after the other (`rolling.rs`), many buckets, and nodes that all start at once (`gossip.rs`), more
//! clients than processors can serve (`overload.rs`, with `processor.rs`).
//!
//! Left out of a cluster of several: rot (a replica that is damaged silently), changes of properties during life;
//! deletes of keys that are written once where tombstones are reaped (a clock that is behind may then write what the
//! tombstone would have covered).

mod auditor;
mod client;
mod ending;
pub mod gossip;
mod host;
mod life;
mod links;
mod lister;
mod mover;
pub mod overload;
mod plan;
mod processor;
mod purger;
pub mod rolling;
pub(crate) mod rot;
mod script;
mod searcher;
pub mod transfer;
mod trouble;

use crate::check::cluster::{Checks, SLACK};
use crate::check::history::{
    KeyName, LAST_WRITE_BUCKET, NEWEST_BUCKET, NUMBERS_FROM, ONCE_BUCKET, ONCE_TYPE, SIBLINGS_BUCKET,
};
use crate::check::{Verdict, Violation};
use crate::disk::DiskImage;
use crate::machine::{Machine, Step, TICK, Timer};
use crate::network::{Network, NetworkConfig, NodeId, Packet};
use crate::partition::Partition;
use crate::report::{Report, Searched};
use crate::scheduler::Scheduler;
use crate::seed::{Seed, duration_between};
use crate::show;
use crate::trace::{Keep, Trace};
use crate::{Kind, SimTime};
use auditor::Auditor;
use backends::Kind as Backend;
use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use bytes::Bytes;
use client::{Client, Place};
use ending::{Ending, Phase};
use host::Host;
use kv::fold::{Finds, Fold, Scope};
use kv::{Error, Request, Response};
use links::Frame;
use lister::Lister;
use mover::Mover;
use node::{Output, PeerMessage, RequestId};
use plan::Plan;
use purger::Purger;
use ring::Ring;
use rot::Rot;
use script::Script;
use searcher::Searcher;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The buckets that clients use; the one that is checked best comes first.
const BUCKETS: [&[u8]; 4] = [SIBLINGS_BUCKET, NEWEST_BUCKET, LAST_WRITE_BUCKET, ONCE_BUCKET];
/// The one whose bucket type is not the default one.
const ONCE: usize = 3;

/// How many replicas each object has: what the properties say that the world leaves alone.
const REPLICAS: usize = 3;

/// How much longer than the node a client waits at most.
const PATIENCE_MAX: Duration = Duration::from_millis(100);
/// The longest that a client of a node alone waits.
const PATIENCE_ALONE_MAX: Duration = Duration::from_millis(40);
/// No seed needs nearly as many events for each pair of nodes, who ask each other all the time whether they are there;
/// one that does is going round in circles.
const EVENTS_MAX: u64 = 2_000_000;

/// Clients are nodes of the outer network, numbered from here.
const CLIENTS_FROM: u32 = 1000;
/// Whoever reads everything in the end, and prepares everything in the beginning. It needs no network.
const AUDITOR: NodeId = NodeId(u32::MAX);
/// Whoever lists. It needs no network either.
const LISTER: NodeId = NodeId(u32::MAX - 1);
/// Whoever searches. Nor does it.
const SEARCHER: NodeId = NodeId(u32::MAX - 2);
/// Whoever purges. Nor does it.
const PURGER: NodeId = NodeId(u32::MAX - 3);

/// What clients and nodes say to each other.
#[derive(Clone, Debug)]
enum Message {
    Ask { number: u64, shard: usize, request: Box<Request>, timeout: Duration },
    Answer { number: u64, result: Result<Response, Error> },
}

#[derive(Debug)]
enum Event {
    /// A message to or from a client arrives.
    Outside(Packet<Message>),
    /// A frame of one node arrives at another.
    Inside(Packet<Frame>),
    /// A client does what it does next; void if it has done something since.
    Client(usize, u64),
    Machine(usize, Step),
    /// A shard begins its clean stop.
    Close(usize, usize),
    /// A shard takes a message back that could not be sent.
    Bounce {
        at: usize,
        shard: usize,
        to: usize,
        message: Box<PeerMessage>,
    },
    /// A node is told whether its link to another is up.
    Link(usize, usize),
    /// A node's process fell over its disk: the operator cuts the power.
    GiveUp(usize),
    Start(usize),
    /// A node goes on after a pause.
    Resume(usize),
    /// A node's buckets are looked at, and given their properties if they do not have them.
    Prepare(usize),
    Trouble,
    /// A node hears who holds what.
    Hear(usize),
    /// The cut links come, go, or are mended.
    Partition,
    /// More is asked for than can be served: another request is due.
    Offer,
    /// A node's processor has done what it was given.
    Free(usize),
    /// A node looks at the time.
    Tick(usize),
    /// The world does.
    Look,
}

impl Event {
    /// The node whose process is to take it, and cannot while it stands still.
    fn taker(&self) -> Option<usize> {
        match self {
            Event::Outside(packet) => node_of(packet.to),
            Event::Inside(packet) => node_of(packet.to),
            Event::Machine(at, _) | Event::Close(at, _) | Event::Bounce { at, .. } => Some(*at),
            Event::Link(at, _) | Event::Prepare(at) | Event::Hear(at) => Some(*at),
            Event::Free(at) => Some(*at),
            _ => None,
        }
    }

    /// The node whose processor it takes: not what disks and jobs do beside it.
    fn worker(&self) -> Option<usize> {
        match self {
            Event::Machine(_, Step::DiskEnds(_) | Step::JobSlice(_)) | Event::Free(_) => None,
            Event::Tick(at) => Some(*at),
            event => event.taker(),
        }
    }

    /// Whether it dies with the process of `node`.
    fn is_of_process(&self, node: usize) -> bool {
        match self {
            Event::Machine(at, _) | Event::Close(at, _) | Event::Bounce { at, .. } => *at == node,
            Event::GiveUp(at) | Event::Start(at) | Event::Resume(at) | Event::Prepare(at) => *at == node,
            Event::Free(at) => *at == node,
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
    kind: Kind,
    seed: Seed,
    plan: Plan,
    rng: SplitMix64,
    trace: Trace,
    events: Scheduler<Event>,
    /// Between nodes.
    inside: Network,
    /// Between clients and nodes.
    outside: Network,
    mover: Mover,
    hosts: Vec<Host>,
    clients: Vec<(Client, u64)>,
    checks: Checks,
    /// Who asked what a node is at, which node, and under which number.
    requests: BTreeMap<u64, (usize, NodeId, u64)>,
    numbers: u64,
    acknowledged: u64,
    partition: Option<Partition>,
    /// Some operation of some disk was armed to fail.
    error_armed: bool,
    /// A copy of some node's disk, to be restored.
    backup: Option<(usize, DiskImage)>,
    phase: Phase,
    ending: Ending,
    /// How often all clocks have leapt beyond the ends of what was written.
    leaps: u64,
    auditor: Auditor,
    lister: Lister,
    searcher: Searcher,
    purger: Purger,
    script: Option<Script>,
    /// Something stored was damaged silently.
    is_rotten: bool,
    rot: Rot,
    /// Power cuts up to the last death.
    power_cuts: u64,
}

/// Lives the life of `seed` with so many nodes, or else a handful, on stores of `backend`, and returns what came of it
/// and its trace.
pub fn run(seed: Seed, nodes: Option<u16>, backend: Backend, keep: Keep) -> (Report, Trace) {
    let kind = match backend {
        Backend::Annulet => nodes.map_or(Kind::Cluster, Kind::ClusterOf),
        other => Kind::ClusterOn(other),
    };
    report(World::with(kind, seed, Plan::of(seed, nodes).on(backend), keep))
}

/// The same of one node.
pub fn run_alone(seed: Seed, backend: Backend, keep: Keep) -> (Report, Trace) {
    let kind = if backend == Backend::Annulet { Kind::Node } else { Kind::NodeOn(backend) };
    report(World::with(kind, seed, Plan::alone(seed).on(backend), keep))
}

/// The same of a handful on the engine, with a store of another backend for a bucket type.
pub fn run_of_types(seed: Seed, keep: Keep) -> (Report, Trace) {
    report(World::with(Kind::ClusterOfTypes, seed, Plan::of(seed, None).of_types(), keep))
}

/// Lives a world's life.
fn report(mut world: World) -> (Report, Trace) {
    let (handled, end) = world.live();
    let (deaths, changes) = (world.deaths(), world.mover.changes());
    let report = Report::new((world.kind, world.seed), &world.trace, handled, world.acknowledged, end);
    // A node alone sends no message about the tombstones that it reaps.
    let reaps = world.plan.reaping.delay.filter(|_| !world.plan.is_alone());
    let reaps = reaps.map(|_| world.checks.reaps());
    let crashes_missing = world.plan.deaths.saturating_sub(deaths);
    let searched = Some(Searched { whole: world.searcher.whole, rows: world.checks.rows_told() });
    let purged = world.plan.purges.then_some(world.purger.purged);
    (Report { crashes_missing, deaths, changes, reaps, searched, purged, ..report }, world.trace)
}

impl World {
    fn with(kind: Kind, seed: Seed, plan: Plan, keep: Keep) -> World {
        let time = SimTime::default();
        let trace = Trace::new(time.clone(), keep);
        trace.line(format_args!("{plan:?}"));
        plan.enable(&trace);
        // Nothing goes wrong until everything is prepared.
        let network = |part: &str| Network::new(NetworkConfig::CALM, seed.stream(part, 0), trace.clone());
        let mover = Mover::new(seed, &plan);
        let ring = Arc::clone(mover.ring());
        let hosts = (0..plan.nodes()).map(|at| Host::new(seed, &plan, at, &ring, &time, &trace)).collect();
        let client = |at: u32| (Client::new(seed.stream("client", at.into()), &plan), 0);
        let mut events = Scheduler::new(time, seed.stream("scheduler", 0));
        (0..plan.nodes()).filter(|at| mover.is_admitted(*at)).for_each(|at| {
            events.at(Monotonic(0), Event::Start(at));
        });
        events.at(Monotonic(0), Event::Look);
        World {
            kind,
            seed,
            rng: seed.stream("world", 0),
            inside: network("inside"),
            outside: network("outside"),
            trace: trace.clone(),
            events,
            mover,
            hosts,
            clients: (0..plan.clients).map(client).collect(),
            checks: Checks::new(plan.nodes(), plan.node_confirms),
            requests: BTreeMap::new(),
            numbers: NUMBERS_FROM,
            acknowledged: 0,
            partition: None,
            error_armed: false,
            phase: Phase::Preparation,
            backup: None,
            ending: Ending::default(),
            leaps: 0,
            auditor: Auditor::default(),
            lister: Lister::new(seed.stream("lister", 0)),
            searcher: Searcher::new(seed.stream("searcher", 0)),
            purger: Purger::new(seed.stream("purger", 0)),
            script: None,
            is_rotten: false,
            rot: Rot::of(seed, &plan),
            power_cuts: 0,
            plan,
        }
    }

    /// Lives until all is over; says how many events that took.
    fn live(&mut self) -> (u64, Verdict) {
        let mut handled = 0;
        let events_max = EVENTS_MAX * (self.hosts.len() * self.hosts.len()) as u64;
        while self.phase != Phase::Over {
            let event = self.events.pop().expect("there is always a look to come");
            handled += 1;
            if handled > events_max {
                let what = format!("{:?} after {handled}", self.phase);
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
        self.handle_when_free(event)
    }

    fn handle(&mut self, event: Event) -> Verdict {
        match event {
            Event::Outside(packet) => return self.on_outside(packet),
            Event::Inside(packet) => return self.on_inside(packet),
            Event::Client(at, turn) => self.on_client(at, turn),
            Event::Machine(at, step) => return self.on_step(at, step),
            Event::Close(at, shard) => return self.on_close(at, shard),
            Event::Bounce { at, shard, to, message } => return self.on_bounce(at, shard, to, *message),
            Event::Link(at, to) => return self.on_link(at, to),
            Event::GiveUp(at) => self.power_cut(at),
            Event::Start(at) => return self.on_start(at),
            Event::Resume(at) => return self.on_resume(at),
            Event::Prepare(at) => return self.on_prepare(at),
            Event::Hear(at) => return self.on_hear(at),
            Event::Trouble => self.on_trouble(),
            Event::Partition => self.on_partition(),
            Event::Offer => self.on_offer(),
            Event::Free(at) => return self.on_free(at),
            Event::Tick(at) => return self.on_tick(at),
            Event::Look => return self.on_look(),
        }
        Ok(())
    }

    // Clients.

    fn schedule_client(&mut self, at: usize) {
        let (client, turn) = &mut self.clients[at];
        *turn += 1;
        let turn = *turn;
        let longest = if client.rng.chance(1, 6) { self.plan.think_max * 10 } else { self.plan.think_max };
        let think = duration_between(&mut client.rng, Duration::ZERO, longest);
        self.events.after(think, Event::Client(at, turn));
    }

    fn on_client(&mut self, at: usize, due: u64) {
        let (client, turn) = &mut self.clients[at];
        if *turn != due || !self.phase.has_clients() {
            return;
        }
        if let Some(Script::Rolling(rolling)) = &mut self.script
            && client.is_waiting()
        {
            rolling.on_end(None);
        }
        self.numbers += 1;
        let number = self.numbers;
        let nodes = self.plan.nodes();
        let (request, timeout) = client.next(number, self.plan.keys, self.plan.timeout_max, nodes);
        if let Some(Script::Rolling(rolling)) = &self.script
            && rolling.leaves() == Some(client.node)
        {
            client.node = (client.node + 1) % nodes;
        }
        let (node, shard) = (client.node, usize::try_from(client.rng.below(16)).expect("a small number"));
        *turn += 1;
        let patience = match self.plan.is_alone() {
            true => duration_between(&mut client.rng, PATIENCE_ALONE_MAX / 4, PATIENCE_ALONE_MAX),
            false => timeout + duration_between(&mut client.rng, Duration::ZERO, PATIENCE_MAX),
        };
        self.events.after(patience, Event::Client(at, *turn));
        self.trace.line(format_args!("c{at} #{number} to n{node}: {}", show::request(&request)));
        let message = Message::Ask { number, shard, request: Box::new(request), timeout };
        self.outside.send(&mut self.events, Packet { from: client_id(at), to: node_id(node), message });
    }

    fn on_outside(&mut self, packet: Packet<Message>) -> Verdict {
        if !self.outside.arrives(&packet) {
            return Ok(());
        }
        match packet.message {
            Message::Ask { number, shard, request, timeout } => {
                let at = node_of(packet.to).expect("clients ask nodes");
                let shard = shard % usize::from(self.hosts[at].machine.layout.shards);
                if !self.listens(at, shard) {
                    self.trace.line(format_args!("{} #{number} is refused", packet.from));
                    return Ok(());
                }
                self.on_ask((packet.from, number), (at, shard), *request, timeout)
            }
            Message::Answer { number, result } if overload::is_of_crowd(packet.to) => {
                self.on_crowd_answer(number, &result)
            }
            Message::Answer { number, result } => {
                let at = usize::try_from(packet.to.0 - CLIENTS_FROM).expect("a small number");
                if self.clients[at].0.on_answer(number, &result) {
                    if let Some(Script::Rolling(rolling)) = &mut self.script {
                        rolling.on_end(Some(&result));
                    }
                    self.acknowledged += u64::from(result.is_ok());
                    self.schedule_client(at);
                }
                Ok(())
            }
        }
    }

    /// Whether a shard takes requests.
    fn listens(&self, at: usize, shard: usize) -> bool {
        let host = &self.hosts[at];
        let takes = host.prepared && host.stops_by.is_none();
        takes && host.machine.process.as_ref().is_some_and(|process| !process.closing[shard])
    }

    /// Gives a shard a request.
    fn on_ask(
        &mut self,
        (from, number): (NodeId, u64),
        (at, shard): (usize, usize),
        request: Request,
        timeout: Duration,
    ) -> Verdict {
        self.charge(at, processor::REQUEST);
        self.numbers += 1;
        let id = self.numbers;
        self.trace.line(format_args!("{from} #{number} is request {id} of n{at}"));
        self.requests.insert(id, (at, from, number));
        let now = self.events.now();
        // Clocks run at different speeds.
        let deadline = now + timeout + timeout / 500 + SLACK;
        self.checks.on_request(id, at, &request, now, deadline);
        if from == PURGER
            && let Request::Delete(delete) = &request
        {
            let told = self.purger.told(at, &delete.key).expect("an erase deletes what its fold has found");
            self.checks.on_erase(id, told);
        }
        if let Some(bucket) = listed(&request) {
            let rings: Vec<Arc<Ring>> = self.mover.rings().cloned().collect();
            let primaries = |key: &KeyName| primaries_by(&rings, key);
            self.checks.on_list(id, &bucket.name, now, primaries);
        }
        self.hosts[at].machine.shard(shard).expect("it listens").request(RequestId(id), request);
        self.schedule_turn(at, shard);
        self.after_shard(at, shard)
    }

    // Nodes.

    /// A node's machine, and what it schedules its steps by.
    fn parts(&mut self, at: usize) -> (&mut Machine, Timer<'_, Event, impl Fn(Step) -> Event + use<>>) {
        let wrap = move |step| Event::Machine(at, step);
        (&mut self.hosts[at].machine, Timer { events: &mut self.events, rng: &mut self.rng, wrap })
    }

    fn schedule_turn(&mut self, at: usize, shard: usize) {
        let (machine, mut timer) = self.parts(at);
        machine.schedule_turn(shard, &mut timer);
    }

    fn on_step(&mut self, at: usize, step: Step) -> Verdict {
        if matches!(step, Step::Turn(_)) {
            self.charge_turn(at);
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

    /// Takes what a shard has for others, and what it has started.
    fn after_shard(&mut self, at: usize, shard: usize) -> Verdict {
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
            Output::Reply { to, result, more } if self.lister.awaits(to) => {
                self.on_list_reply((at, shard), to, result, more)
            }
            Output::Reply { to, result, more } if self.searcher.awaits(to) => {
                self.on_search_reply((at, shard), to, result, more)
            }
            Output::Reply { to, result, more } if self.purger.awaits(at, to) => {
                self.on_purge_reply(at, to, result, more)
            }
            Output::Reply { to, result, more } => {
                assert!(!more, "nobody else asks for anything long");
                self.on_reply(at, to, result)
            }
            Output::Hop { to, message } => {
                let (machine, mut timer) = self.parts(at);
                machine.send_hop((shard, to), message, &mut timer);
                Ok(())
            }
            Output::Peer { to, message } => {
                self.charge(at, processor::MESSAGE);
                self.send(at, shard, usize::from(to.0), message)
            }
            Output::Adopted(epoch) => {
                self.on_adopted(at, shard, epoch);
                Ok(())
            }
            Output::Copied(version) => {
                self.on_copied(at, shard, version);
                Ok(())
            }
            // No cluster of this world has consistent bucket types.
            Output::BirthKept(_) | Output::Forgot => Ok(()),
            Output::Slow(_) => unreachable!("the log of slow requests is off"),
            Output::Closed(result) => self.on_closed(at, shard, result),
        }
    }

    fn on_reply(&mut self, at: usize, to: RequestId, result: Result<Response, Error>) -> Verdict {
        self.charge(at, processor::ANSWER);
        self.trace.line(format_args!("n{at} answers request {}: {}", to.0, show::answer(&result)));
        let rings: Vec<Arc<Ring>> = self.mover.rings().cloned().collect();
        let causes = self.causes();
        let primaries = |key: &KeyName| primaries_by(&rings, key);
        self.checks.on_answer(to.0, &result, self.events.now(), causes, primaries)?;
        let (_, from, number) = self.requests.remove(&to.0).expect("the answer was checked");
        match from {
            AUDITOR => return self.on_audited(at, number, result),
            LISTER | SEARCHER | PURGER => return Ok(()),
            _ => {}
        }
        let message = Message::Answer { number, result };
        self.outside.send(&mut self.events, Packet { from: node_id(at), to: from, message });
        Ok(())
    }

    fn on_tick(&mut self, at: usize) -> Verdict {
        self.charge_turn(at);
        for shard in 0..usize::from(self.hosts[at].machine.layout.shards) {
            if let Some(running) = self.hosts[at].machine.shard(shard) {
                running.tick();
                running.turn();
                running.invariants();
                self.after_shard(at, shard)?;
            }
        }
        self.close_if_drained(at);
        // A shard that has stopped answers nothing; its clients see the process end.
        if !self.hosts[at].machine.is_closing() || self.plan.is_alone() {
            self.checks.check_deadlines(at, self.events.now())?;
        }
        Ok(())
    }

    fn on_look(&mut self) -> Verdict {
        self.events.after(TICK, Event::Look);
        for at in 0..self.hosts.len() {
            // Who stands still does not look at the time either.
            if self.hosts[at].held.is_none() {
                self.handle_when_free(Event::Tick(at))?;
            }
        }
        self.watch_rot();
        self.list_something()?;
        self.search_something()?;
        self.purge_something()?;
        self.check_bounds(false)?;
        self.move_on()?;
        match self.phase {
            Phase::Life if self.script.is_some() => self.play(),
            _ => self.advance(),
        }
    }

    /// The nodes that are primaries of a key, and can be reached in the end.
    fn primaries(&self, place: Place) -> Vec<usize> {
        let (bucket, key) = client::names(place);
        let all = primaries_of(self.mover.ring(), &bucket.name, &key);
        all.into_iter().filter(|at| !self.hosts[*at].gone).collect()
    }
}

fn primaries_of(ring: &Ring, bucket: &[u8], key: &[u8]) -> Vec<usize> {
    let bucket_type = if bucket == ONCE_BUCKET { ONCE_TYPE } else { kv::bucket::DEFAULT_TYPE };
    let list = ring.preflist_of_key(bucket_type, bucket, key, REPLICAS);
    list.map(|entry| usize::from(entry.node.0)).collect()
}

/// The bucket whose keys a request lists.
fn listed(request: &Request) -> Option<&kv::Bucket> {
    match request {
        Request::ListKeys(list) => Some(&list.bucket),
        Request::Fold(request) => match &request.fold {
            Fold { scope: Scope::Bucket(bucket), finds: Finds::Objects, .. } => Some(bucket),
            _ => None,
        },
        _ => None,
    }
}

/// The primaries of a key by any of these rings.
fn primaries_by(rings: &[Arc<Ring>], key: &KeyName) -> Vec<usize> {
    let all: BTreeSet<usize> =
        rings.iter().flat_map(|ring| primaries_of(ring, key.bucket(), key.key())).collect();
    all.into_iter().collect()
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

fn key_name(key: u64) -> Bytes {
    Bytes::from(format!("k{key}"))
}

#[cfg(test)]
mod tests;
