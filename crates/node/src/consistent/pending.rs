//! A request on a key of a consistent type, on its way to the leader of its group and there.
//!
//! A request that waits notes its stage: for a leader, for the node of the leader, for the disk, for the sync of its
//! entry here, for a majority, for the entry to be applied. A slow one writes a line while it waits, and one with its
//! answer. The node of the client counts it, and names the leader's node among those that were asked. The leader's node
//! has lines of its own, from when the request came there.

use std::sync::Arc;
use std::time::Duration;

use base::Monotonic;
use bytes::Bytes;
use kv::{BucketProps, Error, Request, Response};
use object::key;

use super::group::GroupKey;
use crate::frontdoor::latency::Timed;
use crate::frontdoor::slow::{SlowOp, SlowRequest, SlowStage, StageClock};
use crate::hop::RequestTimes;
use crate::peer::NodeId;
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;

/// The longest wait for a leader: a death is noticed in 1.5 s, and an election takes well below a second.
const LEADER_WAIT_MAX: Duration = Duration::from_secs(10);

/// A request on its way.
pub(super) struct Pending {
    pub reply_to: ReplyTo,
    pub request: Request,
    pub props: Arc<BucketProps>,
    pub group: GroupKey,
    /// When it came to this node, and when its client stops waiting.
    pub times: RequestTimes,
    /// When it was begun here.
    pub begun: Monotonic,
    /// When it ends without a leader.
    pub gives_up: Monotonic,
    /// The node that another one has named as the leader.
    pub hint: Option<NodeId>,
    /// Nodes that were asked since it waited last.
    pub asked: u32,
    /// Voters that were asked and knew no leader. Another one is asked next: a voter without a link to the leader does
    /// not hear of it.
    pub turn: u32,
    /// The first voter of the list was asked to lead.
    pub has_sought: bool,
    /// Its stages, from its first wait on.
    pub stages: Option<Box<StageClock>>,
    /// Whether a line says that it is slow.
    pub is_slow: bool,
}

impl Pending {
    /// One that begins now.
    pub fn begin(
        env: &Env,
        reply_to: ReplyTo,
        request: Request,
        prefix: u16,
        props: Arc<BucketProps>,
        times: RequestTimes,
    ) -> Pending {
        let now = env.now();
        let n_val = u8::try_from(props.n_val).unwrap_or(u8::MAX);
        Pending {
            reply_to,
            request,
            props,
            group: GroupKey { n_val, prefix },
            times,
            begun: now,
            gives_up: times.deadline.min(now + LEADER_WAIT_MAX),
            hint: None,
            asked: 0,
            turn: 0,
            has_sought: false,
            stages: None,
            is_slow: false,
        }
    }

    /// Whether it is of another node, which takes this one for the leader's.
    pub fn is_asked(&self) -> bool {
        matches!(self.reply_to, ReplyTo::Leader(..))
    }

    /// Answers it. Its time counts where its client is, and not at the leader that was asked for it.
    pub fn reply(&self, env: &mut Env, result: Result<Response, Error>) {
        let now = env.now();
        if !self.is_asked() {
            let timed = match self.request {
                Request::Get(_) => Timed::ConsistentGet,
                _ => Timed::ConsistentPut,
            };
            env.latency.add(timed, self.begun, now);
        }
        self.note_end(env, &result, now);
        env.reply(self.reply_to, result);
    }

    /// Whether it only reads.
    pub fn is_read(&self) -> bool {
        matches!(self.request, Request::Get(_))
    }

    /// The ledger key that it is about.
    pub fn ledger_key(&self) -> Bytes {
        let bucket = self.request.bucket().expect("it is about a key");
        let name = self.request.key().expect("a missing key was invented");
        let mut out = Vec::new();
        key::encode_object_key(self.group.prefix, &bucket.bucket_type, &bucket.name, name, &mut out);
        out.into()
    }

    /// Enters a stage. The stages before its first wait are made of its times.
    pub fn enter(&mut self, stage: SlowStage, now: Monotonic) {
        let (came, begun) = (self.times.came, self.begun);
        self.stages.get_or_insert_with(|| Box::new(StageClock::begun(came, begun))).enter(stage, now);
    }

    /// The node of its leader is asked. To be called when its wait is noted.
    pub fn note_ask(&mut self, env: &Env, node: NodeId) {
        if let Some(stages) = &mut self.stages {
            stages.ask(node, env.recent());
        }
    }

    /// The node has answered, or will not.
    pub fn note_answer(&mut self, env: &Env, node: NodeId) {
        if let Some(stages) = &mut self.stages {
            stages.answered(node, env.recent());
        }
    }

    /// It is about to be answered.
    fn note_end(&self, env: &mut Env, result: &Result<Response, Error>, now: Monotonic) {
        let is_slow = |threshold| now.since(self.times.came) >= threshold || self.is_slow;
        if env.knobs.slow.threshold().is_some_and(is_slow) {
            if !self.is_slow {
                self.count_slow(env);
            }
            self.write_line(env, Some(result), now);
        }
    }

    /// A request of another node counts there.
    pub fn count_slow(&self, env: &mut Env) {
        env.counters.slow += u64::from(!matches!(self.reply_to, ReplyTo::Leader(..)));
    }

    pub fn write_line(&self, env: &mut Env, result: Option<&Result<Response, Error>>, now: Monotonic) {
        let stages =
            self.stages.as_deref().copied().unwrap_or_else(|| StageClock::begun(self.times.came, self.begun));
        let op = match &self.request {
            Request::Get(_) => SlowOp::Get,
            Request::Delete(_) => SlowOp::Delete,
            _ => SlowOp::Put,
        };
        let bucket = self.request.bucket().expect("it is about a key");
        let key = self.request.key().expect("a missing key was invented");
        let found = match result {
            Some(Ok(Response::Found(found))) => found.value.as_ref().map_or(0, |value| value.len()),
            _ => 0,
        };
        let slow = SlowRequest {
            op,
            bucket: [&bucket.bucket_type, &bucket.name],
            key: Some(key),
            stages: &stages,
            nodes: stages.replicas(now).collect(),
            siblings: None,
            bytes: self.request.value_len() + found,
            waits: result.is_none(),
            error: result.and_then(|result| result.as_ref().err()),
        };
        slow.write(env, now);
    }
}
