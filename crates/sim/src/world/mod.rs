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
mod plan;
mod rot;

use crate::check::history::{NEWEST_BUCKET, NUMBERS_FROM, SIBLINGS_BUCKET};
use crate::check::{Checks, Verdict, Violation};
use crate::machine::{Machine, MachineConfig, Step, TICK, Timer};
use crate::network::{Network, NodeId, Packet};
use crate::report::Report;
use crate::scheduler::Scheduler;
use crate::seed::{Seed, duration_between, index_below};
use crate::show;
use crate::trace::{Keep, Trace};
use crate::{Kind, SimTime};
use backends::Kind as Backend;
use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use bytes::Bytes;
use client::Client;
use ending::{Ending, Phase};
use kv::{Error, Request, Response};
use node::store::TypeBackends;
use node::store::founding::Founding;
use node::{Layout, Members, Output, Rebuilding, RequestId};
use plan::Plan;
use ring::{Ring, RingSize, RingVersion};
use rot::Watch;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The buckets that clients use.
const BUCKETS: [&[u8]; 2] = [SIBLINGS_BUCKET, NEWEST_BUCKET];

/// How long a client waits at most before it does something else.
const PATIENCE_MAX: Duration = Duration::from_millis(40);
/// No seed needs nearly as many events; one that does is going round in circles.
const EVENTS_MAX: u64 = 1_000_000;
/// Of 2,000 seeds one (1264) needs 1,592 starts: a read of nearly every start fails, until the world is calmed down.
/// All others need fewer than 1,000; a node that needs more than this never comes up again.
const STARTS_MAX: u32 = 2_000;

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
    Machine(Step),
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
            Event::Machine(_) | Event::Close(_) | Event::GiveUp | Event::Start => true,
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
    starts: u32,
    watch: Watch,
    phase: Phase,
    ending: Ending,
}

/// Lives the life of `seed` on stores of `backend`, and returns what came of it and its trace.
pub fn run(seed: Seed, backend: Backend, keep: Keep) -> (Report, Trace) {
    let mut world = World::new(seed, backend, keep);
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
    let kind = if backend == Backend::Annulet { Kind::Node } else { Kind::NodeOn(backend) };
    (Report::new((kind, seed), &world.trace, handled, world.acknowledged, end), world.trace)
}

impl World {
    fn new(seed: Seed, backend: Backend, keep: Keep) -> World {
        let time = SimTime::default();
        let trace = Trace::new(time.clone(), keep);
        let plan = Plan::of(seed).on(backend);
        trace.line(format_args!("{plan:?}"));
        plan.enable(&trace);
        let network = Network::new(plan.network, seed.stream("network", 0), trace.clone());
        let mut events = Scheduler::new(time.clone(), seed.stream("scheduler", 0));
        let clients =
            (0..plan.clients).map(|at| (Client::new(seed.stream("client", at.into())), 0)).collect();
        events.at(Monotonic(0), Event::Start);
        events.at(Monotonic(0), Event::Tick);
        events.after(plan.trouble_pause_max, Event::Trouble);
        let machine = machine(seed, &plan, &time, &trace);
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
            starts: 0,
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
            Event::Machine(step) => self.on_step(step),
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
        self.trace.line(format_args!("c{at} #{number} to {shard}: {}", show::request(&request)));
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
        let (machine, mut timer) = self.parts();
        machine.schedule_turn(shard, &mut timer);
    }

    /// The machine, and what it schedules its steps by.
    fn parts(&mut self) -> (&mut Machine, Timer<'_, Event, impl Fn(Step) -> Event + use<>>) {
        (&mut self.machine, Timer { events: &mut self.events, rng: &mut self.rng, wrap: Event::Machine })
    }

    fn on_step(&mut self, step: Step) -> Verdict {
        let (machine, mut timer) = self.parts();
        match machine.run(step, &mut timer) {
            Some(shard) => self.after_shard(shard),
            None => {
                self.follow_up();
                Ok(())
            }
        }
    }

    /// Takes what a shard has for others, and what it has started.
    fn after_shard(&mut self, shard: usize) -> Verdict {
        let mut outputs = Vec::new();
        loop {
            self.machine.take_outputs(shard, &mut outputs);
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
                let (machine, mut timer) = self.parts();
                machine.send_hop((shard, to), message, &mut timer);
                Ok(())
            }
            Output::Peer { .. } => unreachable!("a node alone has nobody to send to"),
            Output::Adopted(_) | Output::Copied(_) => unreachable!("a node alone is told of no change"),
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
        self.trace.line(format_args!("request {} is answered {}", to.0, show::answer(&result)));
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

    fn on_tick(&mut self) -> Verdict {
        self.prepare_again()?;
        self.events.after(TICK, Event::Tick);
        for shard in 0..usize::from(self.plan.shards) {
            if let Some(running) = self.machine.shard(shard) {
                running.tick();
                running.turn();
                running.invariants();
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

fn machine(seed: Seed, plan: &Plan, time: &SimTime, trace: &Trace) -> Machine {
    let ring_size = RingSize::new(64).expect("a power of two");
    let config = MachineConfig {
        name: "disk",
        number: 0,
        layout: Layout::new(plan.shards, ring_size),
        members: Members::alone("sim@node"),
        ring: Arc::new(Ring::of_one_node(RingVersion(1), ring_size)),
        founding: Founding { backend: plan.backend, types: TypeBackends::default() },
        options: plan.options.clone(),
        reaping: plan.reaping,
        anti_entropy: None,
        rebuilding: Rebuilding::default(),
        disk: plan.disk,
        drift_ppm_max: 200,
    };
    Machine::new(seed, config, time, trace)
}

fn client_id(at: usize) -> NodeId {
    NodeId(u32::try_from(at + 1).expect("a small number"))
}

fn key_name(key: u64) -> Bytes {
    Bytes::from(format!("k{key}"))
}

#[cfg(test)]
mod tests;
