//! One node under many clients, on a disk and a network that fail: the world behind rows S1 to S3 and C0.
//!
//! The node is the real one: [`node::Shard`]s over [`engine::Store`]s. Clients read and write a handful of keys
//! over the network; the world cuts the power, kills the process, stops it cleanly, lets clocks jump and disk
//! operations fail, at moments and at chosen operations, starts included. What passes the node's boundary is
//! told to [`Checks`].
//!
//! 1. *Life*: until enough was acknowledged, the node has died often enough, and every fault that the seed
//!    enabled has fired.
//! 2. *Rot*, in some seeds: bits flip and blocks land in wrong places, and life goes on for a while.
//! 3. *Calm*: faults end; every key is read and listed; the node is stopped cleanly, started, and read again.

mod client;
mod ending;
mod life;
mod machine;
mod plan;
mod rot;

use crate::SimTime;
use crate::check::history::{NEWEST_BUCKET, NUMBERS_FROM, SIBLINGS_BUCKET};
use crate::check::{Checks, Verdict, Violation};
use crate::disk::OperationId;
use crate::network::{Network, NodeId, Packet};
use crate::report::Report;
use crate::scheduler::Scheduler;
use crate::seed::{Seed, duration_between, index_below};
use crate::spawn::JobId;
use crate::trace::{Keep, Trace};
use base::rng::SplitMix64;
use base::{Monotonic, Progress, Rng};
use bytes::Bytes;
use client::Client;
use ending::{Ending, Phase};
use kv::{Error, Request, Response};
use machine::Machine;
use node::{Output, RequestId};
use plan::Plan;
use rot::Watch;
use std::collections::BTreeMap;
use std::time::Duration;

/// The buckets that clients use.
const BUCKETS: [&[u8]; 2] = [SIBLINGS_BUCKET, NEWEST_BUCKET];

/// How often shards are told that time passes.
const TICK: Duration = Duration::from_millis(5);
/// The longest that an input waits for its turn to end.
const TURN_DELAY_MAX: Duration = Duration::from_micros(40);
/// The longest way from shard to shard.
const HOP_DELAY_MAX: Duration = Duration::from_micros(20);
/// The longest pause between two slices of a job.
const SLICE_PAUSE_MAX: Duration = Duration::from_micros(500);
/// How long a client waits at most before it does something else.
const PATIENCE_MAX: Duration = Duration::from_millis(40);
/// No seed needs nearly as many events; one that does is going round in circles.
const EVENTS_MAX: u64 = 1_000_000;

const NODE: NodeId = NodeId(0);
/// Whoever reads everything in the end, and prepares everything in the beginning. It needs no network.
const AUDITOR: NodeId = NodeId(u32::MAX);

#[derive(Clone, Debug)]
enum Message {
    Ask { number: u64, shard: usize, request: Box<Request> },
    Answer { number: u64, result: Result<Response, Error>, more: bool },
}

#[derive(Debug)]
enum Event {
    Arrives(Packet<Message>),
    /// A client does what it does next; void if it has done something since.
    Client(usize, u64),
    DiskEnds(OperationId),
    JobSlice(JobId),
    Turn(usize),
    Hop(usize, usize),
    /// A shard begins its clean stop.
    Close(usize),
    /// The node's process fell over its disk: the operator cuts the power.
    GiveUp,
    Trouble,
    Tick,
    Start,
}

impl Event {
    /// Whether it dies with the process.
    fn is_of_process(&self) -> bool {
        match self {
            Event::Arrives(_) | Event::Client(..) | Event::Trouble | Event::Tick => false,
            Event::DiskEnds(_) | Event::JobSlice(_) | Event::Turn(_) | Event::Hop(..) => true,
            Event::Close(_) | Event::GiveUp | Event::Start => true,
        }
    }
}

impl From<Packet<Message>> for Event {
    fn from(packet: Packet<Message>) -> Event {
        Event::Arrives(packet)
    }
}

struct World {
    plan: Plan,
    rng: SplitMix64,
    trace: Trace,
    events: Scheduler<Event>,
    network: Network,
    machine: Machine,
    clients: Vec<(Client, u64)>,
    checks: Checks,
    /// Who asked what the node is at, and under which number.
    requests: BTreeMap<u64, (NodeId, u64)>,
    numbers: u64,
    acknowledged: u64,
    /// The bucket with siblings has them: clients may come.
    prepared: bool,
    /// The last process has stopped cleanly, and none has been started since.
    stopped_cleanly: bool,
    /// Disk faults that had fired when the process began.
    disk_faults_before: u64,
    /// An operation was armed to fail since the last death.
    error_armed: bool,
    power_cuts: u64,
    watch: Watch,
    phase: Phase,
    ending: Ending,
}

/// Lives the life of `seed`, and returns what came of it and its trace.
pub fn run(seed: Seed, keep: Keep) -> (Report, Trace) {
    let mut world = World::new(seed, keep);
    let mut handled = 0;
    let end = loop {
        if world.phase == Phase::Over {
            break Ok(());
        }
        let event = world.events.pop().expect("there is always a tick to come");
        handled += 1;
        if handled > EVENTS_MAX {
            break Err(Violation::new("a world comes to rest", format!("{:?} after {handled}", world.phase)));
        }
        if let Err(violation) = world.step(event) {
            break Err(violation);
        }
    };
    (Report::new(seed, &world.trace, handled, world.acknowledged, end), world.trace)
}

impl World {
    fn new(seed: Seed, keep: Keep) -> World {
        let time = SimTime::default();
        let trace = Trace::new(time.clone(), keep);
        let plan = Plan::of(seed);
        trace.line(format_args!("{plan:?}"));
        plan.enable(&trace);
        let network = Network::new(plan.network, seed.stream("network", 0), trace.clone());
        let mut events = Scheduler::new(time.clone(), seed.stream("scheduler", 0));
        let clients =
            (0..plan.clients).map(|at| (Client::new(seed.stream("client", at.into())), 0)).collect();
        events.at(Monotonic(0), Event::Start);
        events.at(Monotonic(0), Event::Tick);
        events.after(plan.trouble_pause_max, Event::Trouble);
        let machine = Machine::new(seed, &plan, &time, &trace);
        let mut world = World {
            plan,
            rng: seed.stream("world", 0),
            trace,
            events,
            network,
            machine,
            clients,
            checks: Checks::default(),
            requests: BTreeMap::new(),
            numbers: NUMBERS_FROM,
            acknowledged: 0,
            prepared: false,
            stopped_cleanly: false,
            disk_faults_before: 0,
            error_armed: false,
            power_cuts: 0,
            watch: Watch::default(),
            phase: Phase::Life,
            ending: Ending::default(),
        };
        (0..world.clients.len()).for_each(|at| world.schedule_client(at));
        world
    }

    fn step(&mut self, event: Event) -> Verdict {
        match event {
            Event::Arrives(packet) => self.on_arrives(packet),
            Event::Client(at, turn) => {
                self.on_client(at, turn);
                Ok(())
            }
            Event::DiskEnds(operation) => {
                if let Some(handle) = self.machine.disk.finish(operation)
                    && let Some(process) = &self.machine.process
                    && let Some(shard) = process.handles.get(&handle)
                {
                    self.schedule_turn(*shard);
                }
                Ok(())
            }
            Event::JobSlice(job) => self.on_job_slice(job),
            Event::Turn(shard) => self.on_turn(shard),
            Event::Hop(from, to) => self.on_hop(from, to),
            Event::Close(shard) => self.on_close(shard),
            Event::GiveUp => {
                self.machine.disk.power_cut();
                self.follow_up();
                Ok(())
            }
            Event::Trouble => {
                self.on_trouble();
                Ok(())
            }
            Event::Tick => self.on_tick(),
            Event::Start => self.on_start(),
        }
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
        let shards = usize::from(self.plan.shards);
        let (client, turn) = &mut self.clients[at];
        if *turn != due || !self.phase.has_clients() {
            return;
        }
        if client.waiting.is_some() {
            client.give_up();
        }
        self.numbers += 1;
        let number = self.numbers;
        let request = client.next(number, self.plan.keys);
        let shard = index_below(&mut client.rng, shards);
        *turn += 1;
        let patience = duration_between(&mut client.rng, PATIENCE_MAX / 4, PATIENCE_MAX);
        self.events.after(patience, Event::Client(at, *turn));
        self.trace.line(format_args!("c{at} #{number} to {shard}: {}", shown(&request)));
        let packet = Packet {
            from: client_id(at),
            to: NODE,
            message: Message::Ask { number, shard, request: Box::new(request) },
        };
        self.network.send(&mut self.events, packet);
    }

    fn on_arrives(&mut self, packet: Packet<Message>) -> Verdict {
        if !self.network.arrives(&packet) {
            return Ok(());
        }
        match packet.message {
            Message::Ask { number, shard, request } => self.on_ask(packet.from, number, shard, *request),
            Message::Answer { number, result, more } => {
                let at = usize::try_from(packet.to.0 - 1).expect("a small number");
                if self.clients[at].0.on_answer(number, &result, more) {
                    self.acknowledged += u64::from(result.is_ok());
                    self.schedule_client(at);
                }
                Ok(())
            }
        }
    }

    // The node.

    fn on_ask(&mut self, from: NodeId, number: u64, shard: usize, request: Request) -> Verdict {
        let listens = self.machine.process.as_ref().is_some_and(|process| {
            process.shards[shard].is_some() && !process.closing[shard] && (self.prepared || from == AUDITOR)
        });
        if !listens {
            self.trace.line(format_args!("{from} #{number} is refused"));
            return Ok(());
        }
        self.numbers += 1;
        let id = self.numbers;
        self.trace.line(format_args!("{from} #{number} is request {id}"));
        self.requests.insert(id, (from, number));
        // A default of a minute where a request cannot say.
        let timeout =
            request.timeout().map_or(node::shard::TIMEOUT_DEFAULT, |ms| Duration::from_millis(ms.into()));
        let deadline = self.events.now() + timeout + timeout / 10;
        self.checks.on_request(id, &request, deadline);
        let process = self.machine.process.as_mut().expect("just looked");
        process.shards[shard].as_mut().expect("just looked").request(RequestId(id), request);
        self.schedule_turn(shard);
        self.after_shard(shard)
    }

    fn schedule_turn(&mut self, shard: usize) {
        let Some(process) = &mut self.machine.process else { return };
        if !std::mem::replace(&mut process.turn_due[shard], true) {
            let delay = duration_between(&mut self.rng, Duration::ZERO, TURN_DELAY_MAX);
            self.events.after(delay, Event::Turn(shard));
        }
    }

    fn on_turn(&mut self, shard: usize) -> Verdict {
        let Some(process) = &mut self.machine.process else { return Ok(()) };
        process.turn_due[shard] = false;
        if let Some(running) = &mut process.shards[shard] {
            running.turn();
        }
        self.after_shard(shard)
    }

    fn on_hop(&mut self, from: usize, to: usize) -> Verdict {
        let Some(process) = &mut self.machine.process else { return Ok(()) };
        let queue = process.hops.get_mut(&(from, to)).expect("a hop under way has a queue");
        let message = queue.pop_front().expect("each hop has its event");
        let Some(shard) = &mut process.shards[to] else { return Ok(()) };
        shard.hop(message);
        self.schedule_turn(to);
        self.after_shard(to)
    }

    /// Takes what a shard has for others, and what it has started.
    fn after_shard(&mut self, shard: usize) -> Verdict {
        let mut outputs = Vec::new();
        loop {
            if let Some(Some(running)) =
                self.machine.process.as_mut().map(|process| &mut process.shards[shard])
            {
                running.take_outputs(&mut outputs);
            }
            if outputs.is_empty() {
                break;
            }
            for output in outputs.drain(..) {
                self.on_output(shard, output)?;
            }
        }
        self.follow_up();
        Ok(())
    }

    fn on_output(&mut self, shard: usize, output: Output) -> Verdict {
        match output {
            Output::Reply { to, result, more } => self.on_reply(shard, to, result, more),
            Output::Hop { to, message } => {
                let to = usize::from(to.0);
                let process = self.machine.process.as_mut().expect("its output was just taken");
                process.hops.entry((shard, to)).or_default().push_back(message);
                let delay = duration_between(&mut self.rng, Duration::ZERO, HOP_DELAY_MAX);
                self.events.after(delay, Event::Hop(shard, to));
                Ok(())
            }
            Output::Closed(result) => self.on_closed(shard, result),
        }
    }

    fn on_reply(
        &mut self,
        shard: usize,
        to: RequestId,
        result: Result<Response, Error>,
        more: bool,
    ) -> Verdict {
        self.trace.line(format_args!("request {} is answered {}", to.0, answer_shown(&result)));
        let causes = self.causes();
        self.checks.on_answer(to.0, &result, more, self.events.now(), || causes)?;
        let (from, number) = self.requests.get(&to.0).copied().expect("the answer was checked");
        if more {
            let process = self.machine.process.as_mut().expect("it has just answered");
            process.shards[shard].as_mut().expect("it has just answered").proceed(to);
        } else {
            self.requests.remove(&to.0);
        }
        if from == AUDITOR {
            return self.on_audited(number, result);
        }
        let packet = Packet { from: NODE, to: from, message: Message::Answer { number, result, more } };
        self.network.send(&mut self.events, packet);
        Ok(())
    }

    fn on_job_slice(&mut self, job: JobId) -> Verdict {
        let mut disk = self.machine.disk.immediate();
        let progress = self.machine.spawn.slice(job, &mut disk);
        drop(disk);
        match progress {
            Progress::More => {
                let pause = duration_between(&mut self.rng, Duration::ZERO, SLICE_PAUSE_MAX);
                self.events.after(pause, Event::JobSlice(job));
            }
            Progress::Done => (0..usize::from(self.plan.shards)).for_each(|shard| self.schedule_turn(shard)),
        }
        self.follow_up();
        Ok(())
    }

    fn on_tick(&mut self) -> Verdict {
        self.events.after(TICK, Event::Tick);
        for shard in 0..usize::from(self.plan.shards) {
            if let Some(Some(running)) =
                self.machine.process.as_mut().map(|process| &mut process.shards[shard])
            {
                running.tick();
                running.turn();
                self.after_shard(shard)?;
            }
        }
        if self.plan.rots() {
            self.watch.look(&self.machine.disk);
        }
        self.checks.check_deadlines(self.events.now())?;
        self.advance()
    }
}

fn client_id(at: usize) -> NodeId {
    NodeId(u32::try_from(at + 1).expect("a small number"))
}

fn key_name(key: u64) -> Bytes {
    Bytes::from(format!("k{key}"))
}

/// A request as the trace shows it.
fn shown(request: &Request) -> String {
    let name = |bytes: &Bytes| bytes.escape_ascii().to_string();
    let blind = |context: &Option<Bytes>| if context.is_some() { "" } else { " blind" };
    match request {
        Request::Get(get) => format!("get {}/{}", name(&get.bucket.name), name(&get.key)),
        Request::Put(put) => {
            let key = put.key.as_ref().map(name).unwrap_or_default();
            format!("put {}/{key} +{}{}", name(&put.bucket.name), put.value.len(), blind(&put.context))
        }
        Request::Delete(delete) => {
            format!("delete {}/{}{}", name(&delete.bucket.name), name(&delete.key), blind(&delete.context))
        }
        other => format!("{other:?}"),
    }
}

/// An answer as the trace shows it.
fn answer_shown(result: &Result<Response, Error>) -> String {
    match result {
        Ok(Response::Found(found)) => match object::Head::decode(&found.head) {
            Ok(head) => {
                let siblings = head.siblings().iter();
                let dots: Vec<_> =
                    siblings.map(|s| (s.dot.counter, s.metadata.deleted, s.value_len)).collect();
                format!("found {dots:?} under {:?}", head.context().entries())
            }
            Err(error) => format!("found {error}"),
        },
        Ok(Response::Put { .. }) => "written".to_owned(),
        Ok(Response::Props(props)) => format!("props {}", props.young_vclock),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests;
