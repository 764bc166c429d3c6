//! Requests that other nodes coordinate for clients of this shard, and the memory of those that came from other nodes.
//!
//! A write goes to a node that is to hold its key, can write, and has less to do. One that could not be sent is sent to
//! another node once; then this node coordinates it, or refuses it.

use crate::peer::{AskId, NodeId, PeerMessage};
use crate::shard::env::Env;
use crate::shard::knobs::WORK_MAX;
use crate::shard::reply_to::ReplyTo;
use base::Monotonic;
use kv::{Error, Request, Response};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A client's request that another node coordinates.
pub(crate) struct Forward {
    pub to: NodeId,
    pub reply_to: ReplyTo,
    pub deadline: Monotonic,
    /// Whether it came back from another before.
    pub is_second: bool,
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
    /// The deadlines of all of them.
    pub fn deadlines(&self) -> impl Iterator<Item = Monotonic> {
        self.waiting.values().map(|forward| forward.deadline)
    }

    /// Whether this one comes for the first time.
    pub fn is_first(&mut self, from: NodeId, id: AskId) -> bool {
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

    /// Has another node coordinate a client's write. `avoids` is the one that it could not be sent to before.
    pub fn forward(
        &mut self,
        env: &mut Env,
        to: NodeId,
        reply_to: ReplyTo,
        request: Request,
        deadline: Monotonic,
        avoids: Option<NodeId>,
    ) {
        env.counters.forwards += 1;
        let name = env.next_id();
        let forward = Forward { to, reply_to, deadline, is_second: avoids.is_some() };
        env.deadlines.note(deadline);
        self.waiting.insert(name, forward);
        env.gauges.forwards = self.waiting.len();
        let (id, ttl_ms) = (env.ask_id(name), env.ttl_ms(deadline));
        env.send(to, PeerMessage::Forward { id, ttl_ms, request: Box::new(request) });
    }

    /// Another node has coordinated a request, or could not.
    pub fn on_result(&mut self, env: &mut Env, name: u64, result: Result<Response, Error>) {
        let result = match result {
            // It has yet to hear of a bucket type that is known here, and has written nothing.
            Err(Error::NoType(_)) => Err(Error::Unreachable),
            result => result,
        };
        if let Some(forward) = self.take(env, name) {
            env.reply(forward.reply_to, result);
        }
    }

    /// A forward is over.
    pub fn take(&mut self, env: &mut Env, name: u64) -> Option<Forward> {
        let forward = self.waiting.remove(&name);
        env.gauges.forwards = self.waiting.len();
        forward
    }

    /// A node will not answer.
    pub fn fail(&mut self, env: &mut Env, node: NodeId) {
        self.end(env, |forward| forward.to == node, &Error::Unreachable);
    }

    /// Answers clients whose requests are past their deadline.
    pub fn expire(&mut self, env: &mut Env, now: Monotonic) {
        self.end(env, |forward| forward.deadline <= now, &Error::Timeout);
    }

    fn end(&mut self, env: &mut Env, which: impl Fn(&Forward) -> bool, error: &Error) {
        let ended = self.waiting.iter().filter(|(_, forward)| which(forward));
        let ended: Vec<u64> = ended.map(|(&id, _)| id).collect();
        for id in ended {
            let forward = self.take(env, id).expect("just seen");
            env.reply(forward.reply_to, Err(error.clone()));
        }
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        assert_eq!(env.gauges.forwards, self.waiting.len(), "all forwards are counted");
        assert_eq!(self.seen.len(), self.order.len(), "each that has come has its place");
        assert!(self.order.len() <= SEEN_MAX, "the oldest are forgotten");
    }
}
