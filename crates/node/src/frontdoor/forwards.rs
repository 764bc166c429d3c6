//! Requests that other nodes coordinate for clients of this shard, and the memory of those that came from other nodes.
//!
//! A write goes to a node that is to hold its key, can write, and has less to do. One that could not be sent is sent to
//! another node once; then this node coordinates it, or refuses it.
//!
//! A slow one has lines in the log here, too. They name the other node, as that may be the one that hangs.

use crate::frontdoor::slow::{SlowLooks, SlowOp, SlowRequest, SlowStage, StageClock};
use crate::hop::RequestTimes;
use crate::peer::{AskId, NodeId, PeerMessage};
use crate::shard::env::Env;
use crate::shard::knobs::WORK_MAX;
use crate::shard::reply_to::ReplyTo;
use base::Monotonic;
use bytes::Bytes;
use kv::{Bucket, Error, Request, Response};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The names and the stages of a request, for the log of slow requests.
struct Record {
    op: SlowOp,
    bucket: Bucket,
    key: Bytes,
    /// Bytes of its value.
    bytes: usize,
    stages: StageClock,
    /// Whether a line says that it is slow.
    is_slow: bool,
}

impl Record {
    /// Of a write that is passed on now; `None` while the log is off.
    fn of(env: &Env, to: NodeId, request: &Request, times: RequestTimes) -> Option<Record> {
        env.knobs.slow.threshold()?;
        let op = if matches!(request, Request::Delete(_)) { SlowOp::Delete } else { SlowOp::Put };
        let (bucket, key) = (request.bucket()?.clone(), request.key()?.clone());
        let now = env.recent();
        let mut stages = StageClock::begun(times.came, now);
        stages.enter(SlowStage::Replicas, now);
        stages.ask(to, now);
        Some(Record { op, bucket, key, bytes: request.value_len(), stages, is_slow: false })
    }

    fn write(&self, env: &mut Env, result: Option<&Result<Response, Error>>, now: Monotonic) {
        let slow = SlowRequest {
            op: self.op,
            bucket: [&self.bucket.bucket_type, &self.bucket.name],
            key: Some(&self.key),
            stages: &self.stages,
            nodes: self.stages.replicas(now).collect(),
            siblings: None,
            bytes: self.bytes,
            waits: result.is_none(),
            error: result.and_then(|result| result.as_ref().err()),
        };
        slow.write(env, now);
    }
}

/// A client's request that another node coordinates.
pub(crate) struct Forward {
    pub to: NodeId,
    pub reply_to: ReplyTo,
    pub times: RequestTimes,
    /// Whether it came back from another before.
    pub is_second: bool,
    record: Option<Record>,
}

impl Forward {
    /// Answers its client.
    fn reply(mut self, env: &mut Env, result: Result<Response, Error>) {
        if let (Some(record), Some(threshold)) = (&mut self.record, env.knobs.slow.threshold()) {
            let now = env.recent();
            record.stages.answered(self.to, now);
            if record.is_slow || now.since(self.times.came) >= threshold {
                record.write(env, Some(&result), now);
            }
        }
        env.reply(self.reply_to, result);
    }
}

/// Requests passed on to this node that are remembered, so that one which comes twice is carried out once: more than
/// can be under way here.
const SEEN_MAX: usize = 4 * WORK_MAX;

/// All of them.
#[derive(Default)]
pub(crate) struct Forwards {
    waiting: BTreeMap<u64, Forward>,
    looks: SlowLooks,
    /// Those of other nodes that have come, and their order.
    seen: BTreeSet<(NodeId, AskId)>,
    order: VecDeque<(NodeId, AskId)>,
}

impl Forwards {
    /// The deadlines of all of them.
    pub fn deadlines(&self) -> impl Iterator<Item = Monotonic> {
        self.waiting.values().map(|forward| forward.times.deadline)
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
        times: RequestTimes,
        avoids: Option<NodeId>,
    ) {
        env.counters.forwards += 1;
        let name = env.next_id();
        let record = Record::of(env, to, &request, times);
        if record.is_some() {
            self.looks.note(env, times.came);
        }
        let forward = Forward { to, reply_to, times, is_second: avoids.is_some(), record };
        env.deadlines.note(times.deadline);
        self.waiting.insert(name, forward);
        env.gauges.forwards = self.waiting.len();
        let (id, ttl_ms) = (env.ask_id(name), env.ttl_ms(times.deadline));
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
            forward.reply(env, result);
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

    /// Answers clients whose requests are past their deadline, and tells of those that have come to be slow.
    pub fn expire(&mut self, env: &mut Env, now: Monotonic) {
        self.end(env, |forward| forward.times.deadline <= now, &Error::Timeout);
        self.look_for_slow(env, now);
    }

    /// When requests are looked at next, if they are.
    pub fn next_look(&self) -> Option<Monotonic> {
        self.looks.next()
    }

    /// Writes a line about each request that has come to be slow, as far as there is room.
    fn look_for_slow(&mut self, env: &mut Env, now: Monotonic) {
        let Some(came_max) = self.looks.begin(env, now) else { return };
        let mut first: Option<Monotonic> = None;
        for forward in self.waiting.values_mut() {
            let Some(record) = forward.record.as_mut().filter(|record| !record.is_slow) else { continue };
            let came = forward.times.came;
            if came <= came_max && self.looks.have_room(env, now) {
                record.is_slow = true;
                record.write(env, None, now);
            } else {
                first = Some(first.map_or(came, |first| first.min(came)));
            }
        }
        if let Some(first) = first {
            self.looks.note(env, first);
        }
    }

    fn end(&mut self, env: &mut Env, which: impl Fn(&Forward) -> bool, error: &Error) {
        let ended = self.waiting.iter().filter(|(_, forward)| which(forward));
        let ended: Vec<u64> = ended.map(|(&id, _)| id).collect();
        for id in ended {
            let forward = self.take(env, id).expect("just seen");
            forward.reply(env, Err(error.clone()));
        }
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        assert_eq!(env.gauges.forwards, self.waiting.len(), "all forwards are counted");
        assert_eq!(self.seen.len(), self.order.len(), "each that has come has its place");
        assert!(self.order.len() <= SEEN_MAX, "the oldest are forgotten");
        let mut ends = self.order.front().into_iter().chain(self.order.back());
        assert!(ends.all(|end| self.seen.contains(end)), "each place is of one that has come");
        self.looks.invariants();
    }
}
