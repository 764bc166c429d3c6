//! Nodes: starts and ends of processes, their registration, and messages between them.
//!
//! 1. A process that has started asks the registry for its start, is told the births that its stores keep, and
//!    registers them when they are durable. Each step takes time.
//! 2. Each change of the registry reaches each node that runs, at some time. A node that is cut from most others hears
//!    of it later.
//! 3. A process that ends breaks the connections of its clients.

use super::clients::{outcome_of, value_of};
use super::ending::Phase;
use super::scenario::Scenario;
use super::{Event, Frame, Message, World, member, node_id, node_of};
use crate::check::answers::Causes;
use crate::check::{Verdict, Violation, damage};
use crate::disk::DiskOdds;
use crate::fault::Fault;
use crate::frame;
use crate::machine::{Process, Step, Stop};
use crate::network::Packet;
use crate::seed::duration_between;
use crate::show;
use base::{Monotonic, Rng};
use kv::{Error, Request, Response};
use membership::state::StoreBirths;
use node::{Output, PeerMessage, RequestId, Shard, peer};
use protocol::peer::VERSION;
use std::time::Duration;
use strong::linearizability::Outcome;

/// How late a node is told at most that a link is up or down.
const TOLD_WITHIN: Duration = Duration::from_millis(200);
/// The longest time until a message that cannot be sent comes back.
const BOUNCE_WITHIN: Duration = Duration::from_micros(100);
/// The longest time that a node with a full disk goes on.
const FENCED_MAX: Duration = Duration::from_millis(400);
/// A node that is cut from most others asks for the agreement again after this time.
const HEAR_AGAIN: Duration = Duration::from_millis(200);

const BIRTH: &str = "a store that lost nothing keeps its birth";

impl World {
    // Starts and ends.

    pub(super) fn on_start(&mut self, at: usize) -> Verdict {
        if self.hosts[at].gone || self.hosts[at].machine.process.is_some() {
            return Ok(());
        }
        self.change_disk(at);
        match self.hosts[at].machine.start() {
            Ok(reports) => {
                self.trace.line(format_args!("n{at} has started: {reports:?}"));
                let causes = self.causes(at);
                reports.iter().try_for_each(|report| damage::check_start(report, false, causes))?;
                let delay = self.agreement_delay();
                self.events.after(delay, Event::Confirm(at));
                self.links_changed(at);
            }
            Err(error) => {
                self.trace.line(format_args!("n{at} does not start: {error}"));
                let machine = &self.hosts[at].machine;
                if machine.deaths == machine.disk.deaths() {
                    damage::check_failed_start(&error, self.causes(at))?;
                    self.hosts[at].machine.disk.power_cut();
                    if self.hosts[at].is_hurt {
                        self.trace.line(format_args!("n{at} is given up"));
                        self.hosts[at].gone = true;
                    }
                }
            }
        }
        self.follow_up(at);
        Ok(())
    }

    /// Puts another folder in, if the world has decided to.
    fn change_disk(&mut self, at: usize) {
        let Some(folder) = self.hosts[at].next_disk.take() else { return };
        let host = &mut self.hosts[at];
        host.machine.disk.replace(folder.as_ref().map(|folder| &folder.image));
        host.starts = folder.as_ref().map_or(0, |folder| folder.starts);
        if self.is_restoring {
            self.trace.line(format_args!("n{at} has the folder of its backup"));
            return;
        }
        let fault = self.plan.loss.expect("it was planned").fault();
        self.trace.fault(fault, format_args!("n{at}"));
    }

    fn causes(&self, at: usize) -> Causes {
        use Fault::{NoSpace, ReadError, SyncError, WriteError};
        let errors = [NoSpace, ReadError, SyncError, WriteError];
        let disk_failed = errors.iter().any(|fault| self.trace.count(*fault) > 0);
        Causes { disk_failed, rotten: self.hosts[at].is_hurt, closing: false }
    }

    /// Schedules the operations that a node has begun, or its next start if its process has died.
    pub(super) fn follow_up(&mut self, at: usize) {
        if self.hosts[at].machine.has_died() {
            return self.on_death(at);
        }
        let (machine, mut timer) = self.parts(at);
        machine.schedule_started(&mut timer);
        let host = &mut self.hosts[at];
        let fenced = host.machine.process.as_ref().and_then(Process::fenced);
        if let (Some(error), false) = (fenced, host.gives_up) {
            self.trace.line(format_args!("n{at} is fenced: {error}"));
            host.gives_up = true;
            let pause = duration_between(&mut self.rng, Duration::ZERO, FENCED_MAX);
            self.events.after(pause, Event::CutPower(at));
        }
    }

    pub(super) fn power_cut(&mut self, at: usize) {
        self.hosts[at].machine.disk.power_cut();
        self.follow_up(at);
    }

    fn on_death(&mut self, at: usize) {
        if self.plan.has_disk_errors() {
            // The system's memory may show writes that failed; the operator restarts the machine.
            self.hosts[at].machine.disk.power_cut();
            self.hosts[at].machine.has_died();
        }
        let is_pure = self.scenario.as_ref().is_some_and(Scenario::is_pure);
        // Faults end with the heal, also those of a process that dies later.
        let is_sound = is_pure || !self.phase.has_trouble();
        let odds = if is_sound { DiskOdds::SOUND } else { self.plan.disk };
        self.hosts[at].machine.disk.set_odds(odds);
        self.end_process(at);
        let down = duration_between(&mut self.rng, Duration::ZERO, self.plan.down_max);
        let down = if self.phase.has_trouble() { down } else { down / 10 };
        let down = self.hosts[at].next_down.take().unwrap_or(down);
        self.events.after(down, Event::Start(at));
        if self.phase.has_trouble() && self.scenario.is_none() && self.rng.chance(1, 6) {
            self.arm_crash(at);
        }
    }

    fn end_process(&mut self, at: usize) {
        self.hosts[at].end_process();
        self.break_connections(at);
        self.probes.on_death(at);
        self.events.retain(|event| !event.is_of_process(at));
        self.links_changed(at);
    }

    /// Begins a clean stop of each shard.
    pub(super) fn stop(&mut self, at: usize) {
        if !self.hosts[at].serves() {
            return;
        }
        self.trace.line(format_args!("n{at} is to stop"));
        for shard in 0..self.hosts[at].shards() {
            self.hosts[at].machine.shard(shard).into_iter().for_each(Shard::begin_stop);
            self.schedule_turn(at, shard);
            let pause = duration_between(&mut self.rng, Duration::ZERO, Duration::from_millis(200));
            self.events.after(pause, Event::Close(at, shard));
        }
    }

    pub(super) fn on_close(&mut self, at: usize, shard: usize) -> Verdict {
        if self.hosts[at].machine.begin_close(shard) {
            self.trace.line(format_args!("n{at}/{shard} stops"));
            self.schedule_turn(at, shard);
        }
        self.after_shard(at, shard)
    }

    fn on_closed(&mut self, at: usize, shard: usize, result: Result<(), engine::Error>) -> Verdict {
        self.trace.line(format_args!("n{at}/{shard} has stopped: {result:?}"));
        if let Err(error) = &result {
            damage::check_failed_start(error, self.causes(at))?;
        }
        match self.hosts[at].machine.on_closed(shard, result.is_err()) {
            Stop::UnderWay => {}
            Stop::Failed => self.hosts[at].machine.disk.kill(),
            Stop::Done => {
                self.end_process(at);
                if self.phase != Phase::Stopping {
                    let down = duration_between(&mut self.rng, Duration::ZERO, self.plan.down_max);
                    self.events.after(down, Event::Start(at));
                }
            }
        }
        Ok(())
    }

    /// The number of deaths of processes.
    pub(super) fn deaths(&self) -> u64 {
        self.hosts.iter().map(|host| host.machine.deaths).sum()
    }

    // Registration.

    fn agreement_delay(&mut self) -> Duration {
        let longest = if self.phase.has_trouble() { self.plan.agreement_max } else { AGREEMENT_CALM_MAX };
        duration_between(&mut self.rng, Duration::from_millis(1), longest)
    }

    /// The registry takes the start of a process. It does so also while the process stands still.
    pub(super) fn on_confirm(&mut self, at: usize) -> Verdict {
        let Some(process) = &self.hosts[at].machine.process else { return Ok(()) };
        let (life, found) = (process.life, process.births.clone());
        let before = self.registry.births(at);
        let mut stores = found.iter().enumerate();
        let is_held = self.registry.is_founded()
            && stores.any(|(shard, found)| found.is_held(before.get(shard).copied()));
        let (starts, births) = self.registry.begin((at, life, self.hosts[at].starts + 1), &found);
        if is_held {
            self.trace.line(format_args!("n{at} is start {starts}, and holds its groups back"));
            (self.hosts[at].starts, self.hosts[at].is_held) = (starts, true);
            self.publish();
            return Ok(());
        }
        let replaced = before.iter().zip(&births).filter(|(before, birth)| before != birth).count();
        self.tally.births += replaced as u64;
        if replaced > 0 && !self.hosts[at].is_hurt {
            return Err(Violation::new(
                BIRTH,
                format!("n{at} found {found:?}, of which {before:?} is registered"),
            ));
        }
        self.hosts[at].starts = starts;
        self.trace.line(format_args!("n{at} is start {starts}, with births {births:?}"));
        self.give_births(at, births)?;
        self.publish();
        if self.phase == Phase::Stopping {
            // A stop on a full disk fails; the operator tries again.
            self.stop(at);
        }
        Ok(())
    }

    /// Has the stores of a node keep births.
    pub(super) fn give_births(&mut self, at: usize, births: Vec<ring::Birth>) -> Verdict {
        self.hosts[at].kept = vec![None; births.len()];
        self.hosts[at].given = births.clone();
        for (shard, birth) in births.into_iter().enumerate() {
            if let Some(running) = self.hosts[at].machine.shard(shard) {
                running.keep_birth(birth);
                self.schedule_turn(at, shard);
                self.after_shard(at, shard)?;
            }
        }
        Ok(())
    }

    /// Whether the registry has the starts of all processes, all of which run.
    pub(super) fn are_confirmed(&self) -> bool {
        let mut hosts = self.hosts.iter().enumerate();
        hosts.all(|(at, host)| host.life().is_some_and(|life| self.registry.has_begun(at, life)))
    }

    fn on_birth_kept(&mut self, at: usize, shard: usize, birth: ring::Birth) {
        let host = &mut self.hosts[at];
        host.kept[shard] = Some(birth);
        let are_kept = host.given.iter().zip(&host.kept).all(|(given, kept)| Some(*given) == *kept);
        if are_kept && !host.registers {
            host.registers = true;
            let delay = self.agreement_delay();
            self.events.after(delay, Event::Register(at));
        }
    }

    /// The registry takes the births of a node's stores.
    pub(super) fn on_register(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        host.registers = false;
        let Some(life) = host.life() else { return };
        let kept: Option<Vec<ring::Birth>> = host.kept.iter().copied().collect();
        let Some(births) = kept.filter(|kept| *kept == host.given) else { return };
        let ring_bits = u8::try_from(self.ring.size().bits()).expect("a few bits");
        let is_taken = self.registry.register(at, life, StoreBirths { ring_bits, births: births.into() });
        self.trace.line(format_args!("n{at} is registered: {is_taken}"));
        self.publish();
    }

    /// A store of a node has forgotten: it gets another birth.
    fn on_forgot(&mut self, at: usize, shard: usize) -> Verdict {
        let host = &mut self.hosts[at];
        let Some(running) = host.machine.shard(shard) else { return Ok(()) };
        if host.given.get(shard).copied() != running.birth() {
            return Ok(());
        }
        if !host.is_hurt {
            return Err(Violation::new(BIRTH, format!("n{at}/{shard} has forgotten")));
        }
        let birth = self.registry.draw();
        self.trace.line(format_args!("n{at}/{shard} has forgotten, and is {birth:?} now"));
        self.tally.births += 1;
        let host = &mut self.hosts[at];
        host.given[shard] = birth;
        host.machine.shard(shard).into_iter().for_each(|running| running.keep_birth(birth));
        self.schedule_turn(at, shard);
        Ok(())
    }

    /// All nodes hear of a change, some sooner than others.
    pub(super) fn publish(&mut self) {
        for at in 0..self.hosts.len() {
            let delay = self.agreement_delay();
            self.events.after(delay, Event::Publish(at));
        }
    }

    /// A node hears of the agreement, if it can speak to most others.
    pub(super) fn on_publish(&mut self, at: usize) -> Verdict {
        let (nodes, version) = (self.hosts.len(), self.registry.version());
        if self.hosts[at].machine.process.is_none() || self.hosts[at].heard == version {
            return Ok(());
        }
        let reached = (0..nodes).filter(|&other| self.is_joined(at, other)).count();
        if 2 * reached <= nodes {
            self.events.after(HEAR_AGAIN, Event::Publish(at));
            return Ok(());
        }
        self.hosts[at].heard = version;
        let agreement = self.registry.agreement();
        self.trace.line(format_args!("n{at} hears of agreement {version}"));
        for shard in 0..self.hosts[at].shards() {
            if let Some(running) = self.hosts[at].machine.shard(shard) {
                running.agree(std::sync::Arc::clone(&agreement));
                self.schedule_turn(at, shard);
                self.after_shard(at, shard)?;
            }
        }
        Ok(())
    }

    /// Whether two nodes can speak to each other both ways.
    pub(super) fn is_joined(&self, one: usize, two: usize) -> bool {
        let (from, to) = (node_id(one), node_id(two));
        one == two || !self.inside.is_cut(from, to) && !self.inside.is_cut(to, from)
    }

    // Turns and outputs.

    pub(super) fn schedule_turn(&mut self, at: usize, shard: usize) {
        let (machine, mut timer) = self.parts(at);
        machine.schedule_turn(shard, &mut timer);
    }

    pub(super) fn on_step(&mut self, at: usize, step: Step) -> Verdict {
        let stalled_until = self.hosts[at].stalled_until;
        if matches!(step, Step::DiskEnds(_)) && stalled_until > self.events.now() {
            self.events.at(stalled_until, Event::Machine(at, step));
            return Ok(());
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

    pub(super) fn on_tick(&mut self, at: usize) -> Verdict {
        if self.hosts[at].machine.process.is_some() && self.plan.loss.is_some() {
            let host = &mut self.hosts[at];
            host.watch.look(&host.machine.disk);
        }
        for shard in 0..self.hosts[at].shards() {
            if let Some(running) = self.hosts[at].machine.shard(shard) {
                running.tick();
                running.turn();
                running.invariants();
                self.after_shard(at, shard)?;
            }
        }
        Ok(())
    }

    /// Takes a shard's outputs, and the operations that it has begun.
    pub(super) fn after_shard(&mut self, at: usize, shard: usize) -> Verdict {
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
            Output::Reply { to, result, more } => {
                assert!(!more, "nobody asks for anything long");
                return self.on_reply(at, to.0, result);
            }
            Output::Hop { to, message } => {
                let (machine, mut timer) = self.parts(at);
                machine.send_hop((shard, to), message, &mut timer);
            }
            Output::Peer { to, message } => return self.send(at, shard, usize::from(to.0), message),
            Output::BirthKept(birth) => self.on_birth_kept(at, shard, birth),
            Output::Forgot => return self.on_forgot(at, shard),
            Output::Closed(result) => return self.on_closed(at, shard, result),
            // Members and owners are fixed.
            Output::Adopted(_) | Output::Copied(_) => {}
            Output::Slow(_) => unreachable!("the log of slow requests is off"),
        }
        Ok(())
    }

    // Clients' messages.

    pub(super) fn on_outside(&mut self, packet: Packet<Message>) -> Verdict {
        if !self.outside.arrives(&packet) {
            return Ok(());
        }
        match packet.message {
            Message::Ask { number, request } => {
                let at = node_of(packet.to).expect("clients ask nodes");
                if self.restore.as_ref().is_some_and(|it| it.has_ended(number)) {
                    return Ok(());
                }
                if !self.hosts[at].serves() {
                    // The connection is refused, so the node never has the request.
                    self.finish(number, Outcome::Unavailable);
                    return Ok(());
                }
                self.ask(at, number, *request)
            }
            Message::Answer { number, result } => {
                self.on_client_answer(number, &result);
                Ok(())
            }
        }
    }

    /// Gives a node a request; any of its shards takes it.
    pub(super) fn ask(&mut self, at: usize, number: u64, request: Request) -> Verdict {
        let shards = self.hosts[at].shards();
        let shard = usize::try_from(number).expect("64 bits") % shards;
        let Some(running) = self.hosts[at].machine.shard(shard) else { return Ok(()) };
        self.requests.insert(number, at);
        running.request(RequestId(number), request);
        self.schedule_turn(at, shard);
        self.after_shard(at, shard)
    }

    fn on_reply(&mut self, at: usize, number: u64, result: Result<Response, Error>) -> Verdict {
        self.trace.line(format_args!("n{at} answers #{number}: {}", show::answer(&result)));
        self.requests.remove(&number).expect("a request has one answer");
        if self.on_probed(number, &result) {
            return Ok(());
        }
        let Some(pending) = self.pending.get(&number) else { return Ok(()) };
        let (to, key, action) = (super::client_id(pending.client), pending.key, pending.action);
        let outcome = outcome_of(&result);
        let is_definite = matches!(outcome, Outcome::Read(_) | Outcome::Done | Outcome::Failed);
        if is_definite && self.held_groups.contains(&self.keys[key].prefix) {
            let what = format!("n{at} answers #{number}: {}", show::answer(&result));
            return Err(Violation::new("a group that is held back answers nothing", what));
        }
        if let (Some(value), Some(context)) = (value_of(action, outcome), show::context(&result)) {
            self.note_version(key, context, value)?;
        }
        let message = Message::Answer { number, result };
        self.outside.send(&mut self.events, Packet { from: node_id(at), to, message });
        Ok(())
    }

    // Messages between nodes.

    fn send(&mut self, at: usize, shard: usize, to: usize, message: PeerMessage) -> Verdict {
        self.trace.line(format_args!("n{at} -> n{to} {}", show::message(&message)));
        let encoded = frame::encode(&message, VERSION)?;
        let Some(bytes) = encoded.filter(|_| !self.hosts[at].told_down.contains(&to)) else {
            self.trace.fault(Fault::Bounce, format_args!("n{at} -> n{to}"));
            let delay = duration_between(&mut self.rng, Duration::ZERO, BOUNCE_WITHIN);
            self.events.after(delay, Event::Bounce { at, shard, to, message: Box::new(message) });
            return Ok(());
        };
        let packet = Packet { from: node_id(at), to: node_id(to), message: Frame(bytes) };
        self.inside.send(&mut self.events, packet);
        Ok(())
    }

    pub(super) fn on_inside(&mut self, packet: Packet<Frame>) -> Verdict {
        if !self.inside.arrives(&packet) {
            return Ok(());
        }
        let from = node_of(packet.from).expect("nodes speak to nodes");
        let at = node_of(packet.to).expect("nodes speak to nodes");
        if self.hosts[at].machine.process.is_none() {
            return Ok(());
        }
        let message = frame::decode(packet.message.0)?;
        let shard = usize::from(peer::route(&message, &self.hosts[at].machine.layout).0);
        let Some(running) = self.hosts[at].machine.shard(shard) else { return Ok(()) };
        running.peer(member(from), message);
        self.schedule_turn(at, shard);
        self.after_shard(at, shard)
    }

    pub(super) fn on_bounce(&mut self, at: usize, shard: usize, to: usize, message: PeerMessage) -> Verdict {
        let Some(running) = self.hosts[at].machine.shard(shard) else { return Ok(()) };
        running.bounce(member(to), message);
        self.schedule_turn(at, shard);
        self.after_shard(at, shard)
    }

    /// Links of `at` have changed: it is told soon, and so are the nodes at their other ends.
    pub(super) fn links_changed(&mut self, at: usize) {
        if !self.plan.troubles.links_tell {
            return;
        }
        for other in (0..self.hosts.len()).filter(|other| *other != at) {
            for (one, two) in [(at, other), (other, at)] {
                let delay = duration_between(&mut self.rng, Duration::ZERO, TOLD_WITHIN);
                self.events.after(delay, Event::Link(one, two));
            }
        }
    }

    /// Tells a node whether its link to another is up, if that is news.
    pub(super) fn on_link(&mut self, at: usize, to: usize) -> Verdict {
        // A connection needs both ways.
        let is_up = self.is_joined(at, to) && self.hosts[to].machine.process.is_some();
        let host = &mut self.hosts[at];
        let is_news = if is_up { host.told_down.remove(&to) } else { host.told_down.insert(to) };
        if !is_news || host.machine.process.is_none() {
            return Ok(());
        }
        self.trace.line(format_args!("n{at} is told of its link to n{to}: {is_up}"));
        for shard in 0..self.hosts[at].shards() {
            if let Some(running) = self.hosts[at].machine.shard(shard) {
                running.link(member(to), is_up);
                self.schedule_turn(at, shard);
                self.after_shard(at, shard)?;
            }
        }
        Ok(())
    }

    pub(super) fn on_resume(&mut self, at: usize) -> Verdict {
        let Some(held) = self.hosts[at].held.take() else { return Ok(()) };
        self.trace.line(format_args!("n{at} goes on with {} events", held.len()));
        held.into_iter().try_for_each(|event| self.step(event))
    }

    /// A time of the world at which nothing is held up any more.
    pub(super) fn busy_until(&self) -> Monotonic {
        self.inside.busy_until().max(self.outside.busy_until())
    }
}

/// The longest time of each step of a registration while nothing goes wrong.
const AGREEMENT_CALM_MAX: Duration = Duration::from_millis(50);
