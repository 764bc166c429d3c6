//! What comes from other nodes: questions to this replica, answers to ours, and requests that are to be coordinated
//! here.
//!
//! A question carries the time after which nobody waits; what has no time left is not begun. An answer to work that
//! is over is dropped.

use crate::peer::{AskId, NodeId, PeerMessage};
use crate::request::task::{Coordinator, Task, placed};
use crate::shard::Shard;
use crate::shard::knobs::WORK_MAX;
use crate::shard::reply_to::ReplyTo;
use base::Monotonic;
use bytes::Bytes;
use kv::{Answer, Ask, Error, Event, Reason, Request};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A client's request that another node coordinates.
struct Forward {
    to: NodeId,
    reply_to: ReplyTo,
    deadline: Monotonic,
    /// Whether it came back from another before.
    is_second: bool,
}

/// Requests passed on to this node that are remembered, so that one which comes twice is carried out once: more than
/// can be under way here.
const SEEN_MAX: usize = 4 * WORK_MAX;

/// All of them.
#[derive(Default)]
pub(crate) struct Forwards {
    waiting: BTreeMap<u64, Forward>,
    /// Those of other nodes that have come, and their order.
    seen: BTreeSet<(NodeId, AskId)>,
    order: VecDeque<(NodeId, AskId)>,
}

impl Forwards {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The deadlines of all of them.
    pub fn deadlines(&self) -> impl Iterator<Item = Monotonic> {
        self.waiting.values().map(|forward| forward.deadline)
    }

    /// Whether this one comes for the first time.
    fn is_first(&mut self, from: NodeId, id: AskId) -> bool {
        if !self.seen.insert((from, id)) {
            return false;
        }
        self.order.push_back((from, id));
        if self.order.len() > SEEN_MAX {
            let oldest = self.order.pop_front().expect("it is not empty");
            self.seen.remove(&oldest);
        }
        true
    }
}

impl Shard {
    /// Takes a message of another node, for this shard by [`crate::peer::route`].
    pub fn peer(&mut self, from: NodeId, message: PeerMessage) {
        match message {
            PeerMessage::Ping { id, life, load, props } => self.on_ping(from, id, life, load, props),
            PeerMessage::Pong { id, life, load, props } => self.on_pong(from, id, life, load, props),
            PeerMessage::Ask { id, ttl_ms, life, key, ask } => {
                self.on_ask((from, id), ttl_ms, life, key, ask)
            }
            PeerMessage::Answer { id, result, load } => {
                self.on_sign_of_life(from, None, Some(load));
                self.resume(id.number(), Event::Answer { from, result });
            }
            PeerMessage::Forward { id, ttl_ms, request } => self.on_forward(from, id, ttl_ms, *request),
            PeerMessage::Forwarded { id, result } => {
                self.on_sign_of_life(from, None, None);
                let result = match *result {
                    // It has yet to hear of a bucket type that is known here, and has written nothing.
                    Err(Error::NoType(_)) => Err(Error::Unreachable),
                    result => result,
                };
                if let Some(forward) = self.take_forward(id.number()) {
                    self.env.reply(forward.reply_to, result);
                }
            }
            PeerMessage::AskPage { id, ask, .. } => {
                self.coverage.on_peer_asks_page(&mut self.env, from, id, &ask)
            }
            PeerMessage::Page { id, page } => {
                self.on_sign_of_life(from, None, None);
                self.coverage.on_page(&mut self.env, id.number(), page);
            }
            PeerMessage::AskRows { id, ask, .. } => {
                self.coverage.on_peer_asks_rows(&mut self.env, from, id, &ask)
            }
            PeerMessage::Rows { id, page } => {
                self.on_sign_of_life(from, None, None);
                self.coverage.on_rows(&mut self.env, id.number(), page);
            }
            // The shell's.
            PeerMessage::Membership { .. } => {}
            PeerMessage::AskCopy { id, target, partitions, start } => {
                self.handoff.outbound.on_ask_copy(&mut self.env, (from, id), target, partitions, start);
            }
            PeerMessage::CopyPart { id, part } => {
                self.on_sign_of_life(from, None, None);
                self.handoff.inbound.on_copy_part(&mut self.env, from, id.number(), part);
            }
            PeerMessage::AskTree { id, partitions, ask } => {
                self.anti_entropy.on_ask(&mut self.env, (from, id), partitions, ask);
            }
            PeerMessage::Tree { id, answer } => {
                self.on_sign_of_life(from, None, None);
                self.anti_entropy.on_answer(&mut self.env, from, id.number(), answer);
            }
            PeerMessage::Props { id, change } => self.on_peer_props(from, id, change),
            PeerMessage::AskProps { leaves, .. } => self.on_ask_props(from, &leaves),
            PeerMessage::PropsInForce { id } => {
                self.on_sign_of_life(from, None, None);
                self.on_peer_in_force(from, id.number());
            }
        }
        self.drain();
    }

    /// Takes back a message that could not be sent: the link is down, or too much waits for it.
    pub fn bounce(&mut self, to: NodeId, message: PeerMessage) {
        match message {
            PeerMessage::Ask { id, .. } => {
                self.env.counters.bounced += 1;
                self.resume(id.number(), Event::Answer { from: to, result: Err(Error::Overload) });
            }
            PeerMessage::Forward { id, request, .. } => {
                self.env.counters.bounced += 1;
                if let Some(forward) = self.take_forward(id.number()) {
                    self.forward_again(forward, *request);
                }
            }
            PeerMessage::AskPage { id, .. } => {
                self.env.counters.bounced += 1;
                self.coverage.on_page(&mut self.env, id.number(), Err(Error::Overload));
            }
            PeerMessage::AskRows { id, .. } => {
                self.env.counters.bounced += 1;
                self.coverage.on_rows(&mut self.env, id.number(), Err(Error::Overload));
            }
            PeerMessage::AskCopy { id, .. } => {
                self.env.counters.bounced += 1;
                self.handoff.inbound.on_copy_part(&mut self.env, to, id.number(), Err(Error::Overload));
            }
            PeerMessage::AskTree { id, .. } => {
                self.env.counters.bounced += 1;
                self.anti_entropy.on_answer(&mut self.env, to, id.number(), Err(Error::Overload));
            }
            // Told again soon, or when the node comes up.
            PeerMessage::Props { .. }
            // Asked again while what is known differs.
            | PeerMessage::AskProps { .. }
            // Whoever waits for these has a deadline.
            | PeerMessage::Ping { .. }
            | PeerMessage::Membership { .. }
            | PeerMessage::Pong { .. }
            | PeerMessage::Answer { .. }
            | PeerMessage::Forwarded { .. }
            | PeerMessage::Page { .. }
            | PeerMessage::Rows { .. }
            | PeerMessage::CopyPart { .. }
            | PeerMessage::Tree { .. }
            | PeerMessage::PropsInForce { .. } => self.env.counters.bounced += 1,
        }
        self.drain();
    }

    /// Asks a replica on behalf of work.
    pub(crate) fn ask(&mut self, to: NodeId, work: u64, deadline: Monotonic, key: Bytes, ask: Ask) {
        match &ask {
            Ask::Merge { reason: Reason::Repair | Reason::Heal, .. } => self.env.counters.repairs += 1,
            Ask::Merge { reason: Reason::Handoff, .. } => self.env.counters.handoffs += 1,
            Ask::Merge { .. } | Ask::Read { .. } | Ask::Reap { .. } => {}
        }
        let (id, ttl_ms) = (self.env.ask_id(work), self.env.ttl_ms(deadline));
        let writes = ask.writes();
        let Some(ask) = self.without_reaped(&key, ask) else {
            // Nothing is left to be sent: all primaries have something newer. The message comes back as one that could
            // not be sent.
            return self.refuse_later(to, id);
        };
        let life = if writes { self.env.peers.life_of(to) } else { 0 };
        self.env.send(to, PeerMessage::Ask { id, ttl_ms, life, key, ask });
    }

    fn on_ask(&mut self, (from, id): (NodeId, AskId), ttl_ms: u32, life: u64, key: Bytes, ask: Ask) {
        let reply_to = ReplyTo::Replica(from, id);
        if life != 0 && life != self.env.peers.life() {
            // It was sent to a process that has died, and may be older than what has been reaped since.
            return self.answer(from, id, Err(Error::Unreachable));
        }
        let bytes_max = self.env.knobs.limits.work_bytes_max.saturating_mul(2);
        if self.env.gauges.requests() >= 2 * WORK_MAX || self.env.gauges.task_bytes >= bytes_max {
            self.env.counters.refused += 1;
            return self.answer(from, id, Err(Error::Overload));
        }
        let placed = placed(&key).map_err(|error| Error::Damaged(error.to_string()));
        let found = placed
            .and_then(|(prefix, bucket)| Ok((prefix, Arc::clone(self.env.props.get_as_replica(&bucket)?))));
        let (prefix, props) = match found {
            Ok(found) => found,
            Err(error) => return self.answer(from, id, Err(error)),
        };
        let is_for_here = matches!(&ask, Ask::Merge { hints, .. } if hints.is_empty());
        if is_for_here && self.env.ownership().has_given_up(prefix, props.n_val) {
            // By a ring that was in force once: nobody would look here for an object that this node kept.
            return self.answer(from, id, Err(Error::Unreachable));
        }
        let now = self.env.now();
        if matches!(ask, Ask::Read { .. } | Ask::Merge { reason: Reason::Write, .. }) {
            self.env.activity.note_client(now);
        }
        let mut unpassed = None;
        let coordinator = match ask {
            Ask::Read { want } => {
                self.env.counters.replica_reads += 1;
                Coordinator::Read(kv::replica::Read::new(want))
            }
            Ask::Merge { head, value, hints, reason } => {
                self.env.counters.replica_writes += 1;
                if !self.env.topology.is_at_rest() && !reason.is_of_move() {
                    unpassed = Some(Box::new((head.clone(), value.clone())));
                }
                Coordinator::Merge(kv::Merge::new(head, value, hints, reason))
            }
            Ask::Reap { round, tombstone } => match self.reap_part(round, tombstone, &key, props.n_val) {
                Some(part) => Coordinator::ReapPart(Box::new(part)),
                None => return self.answer(from, id, Ok(Answer::Reaping { round, agrees: false })),
            },
        };
        let deadline = now + Duration::from_millis(ttl_ms.into());
        let mut work = Task::new(reply_to, coordinator, key, props, deadline);
        work.unpassed = unpassed;
        self.start_work(work);
    }

    pub(crate) fn answer(&mut self, to: NodeId, id: AskId, result: Result<Answer, Error>) {
        let load = self.env.gauges.reported_load();
        self.env.send(to, PeerMessage::Answer { id, result, load });
    }

    fn on_forward(&mut self, from: NodeId, id: AskId, ttl_ms: u32, request: Request) {
        if !self.forwards.is_first(from, id) {
            return;
        }
        let deadline = self.env.now() + Duration::from_millis(ttl_ms.into());
        match request {
            Request::Put(_) | Request::Delete(_) => {
                self.accept(ReplyTo::Coordinator(from, id), request, deadline)
            }
            _ => {
                let error = Error::Store("only writes are passed on".to_owned());
                self.env.reply_to_forward(from, id, Err(error));
            }
        }
    }

    /// Has another node coordinate a client's write. `avoids` is the one that it could not be sent to before.
    pub(crate) fn forward_to_node(
        &mut self,
        to: NodeId,
        reply_to: ReplyTo,
        request: Request,
        deadline: Monotonic,
        avoids: Option<NodeId>,
    ) {
        self.env.counters.forwards += 1;
        let name = self.env.next_id();
        let forward = Forward { to, reply_to, deadline, is_second: avoids.is_some() };
        self.env.deadlines.note(deadline);
        self.forwards.waiting.insert(name, forward);
        self.env.gauges.forwards = self.forwards.len();
        let (id, ttl_ms) = (self.env.ask_id(name), self.env.ttl_ms(deadline));
        self.env.send(to, PeerMessage::Forward { id, ttl_ms, request: Box::new(request) });
    }

    /// A write could not be sent, so nobody has begun it: another node coordinates it, or this one. Once: a node
    /// that cannot send to two has too much to send.
    fn forward_again(&mut self, forward: Forward, request: Request) {
        let Forward { to, reply_to, deadline, is_second } = forward;
        let coordinator = match request {
            Request::Put(put) if !is_second => Coordinator::put(put),
            Request::Delete(delete) if !is_second => Coordinator::delete(delete),
            _ => return self.env.reply(reply_to, Err(Error::Overload)),
        };
        self.place_object(reply_to, coordinator, deadline, Some(to));
    }

    /// A forward is over.
    fn take_forward(&mut self, name: u64) -> Option<Forward> {
        let forward = self.forwards.waiting.remove(&name);
        self.env.gauges.forwards = self.forwards.len();
        forward
    }

    pub(crate) fn fail_forwards(&mut self, node: NodeId) {
        self.end_forwards(|forward| forward.to == node, &Error::Unreachable);
    }

    pub(crate) fn expire_forwards(&mut self, now: Monotonic) {
        self.end_forwards(|forward| forward.deadline <= now, &Error::Timeout);
    }

    fn end_forwards(&mut self, which: impl Fn(&Forward) -> bool, error: &Error) {
        let ended = self.forwards.waiting.iter().filter(|(_, forward)| which(forward));
        let ended: Vec<u64> = ended.map(|(&id, _)| id).collect();
        for id in ended {
            let forward = self.take_forward(id).expect("just seen");
            self.env.reply(forward.reply_to, Err(error.clone()));
        }
    }
}
