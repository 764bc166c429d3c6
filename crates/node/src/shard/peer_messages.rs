//! Messages of other nodes, and the links to them.
//!
//! 1. [`Shard::peer`] takes a message, and gives it to the component that it is for.
//! 2. [`Shard::bounce`] takes a message back that could not be sent. A write that nobody has begun goes to another node;
//!    a question counts as refused.
//! 3. [`Shard::link`], [`Shard::progress`] and [`Shard::doubt`] say which nodes are there.

use std::time::Duration;

use kv::{Error, Event, Request};

use super::Shard;
use super::reply_to::ReplyTo;
use crate::frontdoor::forwards::Forward;
use crate::hop::{CoverageAsk, CoveragePage, RequestTimes};
use crate::liveness::{self, promises};
use crate::peer::{AskId, NodeId, PeerMessage};
use crate::request::task::Coordinator;

impl Shard {
    /// Takes a message of another node, for this shard by [`crate::peer::route`].
    pub fn peer(&mut self, from: NodeId, message: PeerMessage) {
        if message.is_answer() {
            liveness::on_sign_of_life(&mut self.env, from, None, message.load());
        }
        self.deliver(from, message);
        self.drain();
    }

    /// Gives a message of another node to the component that it is for.
    fn deliver(&mut self, from: NodeId, message: PeerMessage) {
        match message {
            PeerMessage::Ping { id, life, load, props, promise } => {
                promises::hear_ping(&mut self.env, from, life, promise.as_ref());
                let metadata = &self.metadata;
                liveness::on_ping(&mut self.env, &|env| metadata.known(env), (from, id), (life, load), props);
            }
            PeerMessage::Pong { id, life, load, props, promise } => {
                promises::hear_ping(&mut self.env, from, life, promise.as_ref());
                self.frontdoor.stop.has_heard(&self.env, from, id);
                liveness::on_pong(&mut self.env, from, life, load, props);
            }
            PeerMessage::Ask { id, ttl_ms, life, key, ask } => {
                self.requests.on_ask(&mut self.env, (from, id), ttl_ms, life, key, ask)
            }
            PeerMessage::Answer { id, result, .. } => {
                self.requests.resume(&mut self.env, id.number(), Event::Answer { from, result });
            }
            PeerMessage::Forward { id, ttl_ms, request } => self.on_forward(from, id, ttl_ms, *request),
            PeerMessage::Forwarded { id, result } => {
                self.frontdoor.forwards.on_result(&mut self.env, id.number(), *result);
            }
            PeerMessage::AskPage { id, ask, .. } => {
                self.coverage.on_peer_asks(&mut self.env, from, id, &CoverageAsk::Keys(ask))
            }
            PeerMessage::AskRows { id, ask, .. } => {
                self.coverage.on_peer_asks(&mut self.env, from, id, &CoverageAsk::Rows(ask))
            }
            PeerMessage::Page { id, page } => {
                self.coverage.on_page(&mut self.env, id.number(), CoveragePage::Keys(page));
            }
            PeerMessage::Rows { id, page } => {
                self.coverage.on_page(&mut self.env, id.number(), CoveragePage::Rows(page));
            }
            // The shell's.
            PeerMessage::Membership { .. } => {}
            PeerMessage::AskCopy { id, target, partitions, start } => {
                self.handoff.outbound.on_ask_copy(&mut self.env, (from, id), target, partitions, start);
            }
            PeerMessage::CopyPart { id, part } => {
                self.handoff.inbound.on_copy_part(&mut self.env, from, id.number(), part);
            }
            PeerMessage::AskTree { id, partitions, ask } => {
                self.anti_entropy.on_ask(&mut self.env, (from, id), partitions, ask);
            }
            PeerMessage::Tree { id, answer } => {
                self.anti_entropy.on_answer(&mut self.env, from, id.number(), answer);
            }
            PeerMessage::Props { id, change } => self.metadata.on_peer_props(&mut self.env, from, id, change),
            PeerMessage::AskProps { leaves, .. } => self.metadata.on_ask_props(&mut self.env, from, &leaves),
            PeerMessage::Groups { block, birth, envelope, .. } => {
                self.consistent.on_envelope(&mut self.env, (from, birth), block, envelope)
            }
            PeerMessage::CatchUp { message, .. } => self.consistent.on_catch_up(&mut self.env, from, message),
            PeerMessage::AskLeader { id, ttl_ms, life, number, request } => {
                self.consistent.on_ask_leader(&mut self.env, (from, id), (ttl_ms, life), number, *request);
            }
            PeerMessage::LeaderAnswer { id, answer } => {
                self.consistent.on_leader_answer(&mut self.env, from, id.number(), answer);
            }
            PeerMessage::PropsInForce { id } => {
                self.metadata.on_peer_in_force(&mut self.env, from, id.number());
            }
        }
    }

    /// Takes back a message that could not be sent: the link is down, or too much waits for it.
    pub fn bounce(&mut self, to: NodeId, message: PeerMessage) {
        self.env.counters.bounced += 1;
        match message {
            PeerMessage::Forward { id, request, .. } => {
                if let Some(forward) = self.frontdoor.forwards.take(&mut self.env, id.number()) {
                    self.forward_again(forward, *request);
                }
            }
            PeerMessage::Groups { envelope, .. } => self.consistent.on_bounced(&mut self.env, to, envelope),
            // The component that has asked takes it as a refusal.
            question => {
                if let Some(refusal) = question.refusal(Error::Overload) {
                    self.deliver(to, refusal);
                }
            }
        }
        self.drain();
    }

    /// A write could not be sent, so nobody has begun it: another node coordinates it, or this one. Once: a node that
    /// cannot send to two has too much to send.
    fn forward_again(&mut self, forward: Forward, request: Request) {
        let Forward { to, reply_to, times, is_second, .. } = forward;
        let coordinator = match request {
            Request::Put(put) if !is_second => Coordinator::put(put),
            Request::Delete(delete) if !is_second => Coordinator::delete(delete),
            _ => return self.env.reply(reply_to, Err(Error::Overload)),
        };
        self.start_object(reply_to, coordinator, times, Some(to));
    }

    fn on_forward(&mut self, from: NodeId, id: AskId, ttl_ms: u32, request: Request) {
        if !self.frontdoor.forwards.is_first(from, id) {
            return;
        }
        let came = self.env.now();
        let times = RequestTimes { came, deadline: came + Duration::from_millis(ttl_ms.into()) };
        match request {
            Request::Put(_) | Request::Delete(_) => {
                self.accept(ReplyTo::Coordinator(from, id), request, times)
            }
            _ => {
                let error = Error::Store("only writes are passed on".to_owned());
                self.env.reply_to_forward(from, id, Err(error));
            }
        }
    }

    /// Another source says that a peer is not there, or not the one it was: it is asked.
    pub fn doubt(&mut self, node: NodeId) {
        let metadata = &self.metadata;
        liveness::doubt(&mut self.env, &|env| metadata.known(env), node);
    }

    /// A link to another node is there, or is no more. Without links, as in simulation, silence tells.
    pub fn link(&mut self, node: NodeId, is_up: bool) {
        let metadata = &self.metadata;
        liveness::link(&mut self.env, &|env| metadata.known(env), node, is_up);
        self.drain();
    }

    /// Bytes of a message from this node are arriving: it is there, however long the message takes.
    pub fn progress(&mut self, node: NodeId) {
        let now = self.env.now();
        self.env.peers.note_progress(node, now);
    }

    /// Whether it has done nothing for so long that it may be ticked less often, until it does.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.env.peers.is_quiet()
    }

    /// Whether it is known which peers can be reached.
    pub fn knows_peers(&self) -> bool {
        self.env.knows_peers()
    }
}
