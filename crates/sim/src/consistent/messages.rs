//! Messages of clients, messages between nodes, and the links that carry these.

use super::clients::{outcome_of, value_of};
use super::{Event, Frame, Message, World, member, node_id, node_of};
use crate::check::{Verdict, Violation};
use crate::fault::Fault;
use crate::frame;
use crate::network::Packet;
use crate::seed::duration_between;
use crate::show;
use base::Monotonic;
use kv::{Error, Request, Response};
use node::{PeerMessage, RequestId, peer};
use protocol::peer::VERSION;
use std::time::Duration;
use strong::linearizability::Outcome;

/// How late a node is told at most that a link is up or down.
const TOLD_WITHIN: Duration = Duration::from_millis(200);
/// The longest time until a message that cannot be sent comes back.
const BOUNCE_WITHIN: Duration = Duration::from_micros(100);

impl World {
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

    pub(super) fn on_reply(&mut self, at: usize, number: u64, result: Result<Response, Error>) -> Verdict {
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

    pub(super) fn send(&mut self, at: usize, shard: usize, to: usize, message: PeerMessage) -> Verdict {
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
