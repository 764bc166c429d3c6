//! A slow request, as its component knows it.

use super::line::{key_text, shown_name};
use super::{ReplicaWait, SlowLine, SlowOp, StageClock};
use crate::shard::env::Env;
use crate::shard::output::Output;
use base::Monotonic;
use kv::Error;
use ring::NodeId;
use std::time::Duration;

/// A slow request.
pub(crate) struct SlowRequest<'a> {
    pub op: SlowOp,
    /// The bucket type and the bucket.
    pub bucket: [&'a [u8]; 2],
    /// The key, of a request about one.
    pub key: Option<&'a [u8]>,
    pub stages: &'a StageClock,
    /// The other nodes that were asked, the time that each has taken, and whether it has yet to answer.
    pub nodes: Vec<(NodeId, Duration, bool)>,
    pub siblings: Option<usize>,
    /// Bytes of values.
    pub bytes: usize,
    /// Whether it still waits.
    pub waits: bool,
    /// The error that it was answered with.
    pub error: Option<&'a Error>,
}

impl SlowRequest<'_> {
    /// Writes a line about it, if there is room.
    pub fn write(&self, env: &mut Env, now: Monotonic) {
        let line = env.knobs.slow.write(now, || self.line(env, now));
        env.out.extend(line.map(Output::Slow));
    }

    fn line(&self, env: &Env, now: Monotonic) -> SlowLine {
        let members = &env.topology.members;
        let name = |node| match members.has(node) {
            true => members.name(node).clone(),
            false => node.to_string().into(),
        };
        let replica =
            |&(node, time, waits): &(NodeId, Duration, bool)| ReplicaWait { node: name(node), time, waits };
        let [bucket_type, bucket] = self.bucket;
        SlowLine {
            at: env.clock.wall(),
            op: self.op,
            bucket_type: shown_name(bucket_type),
            bucket: shown_name(bucket),
            key: self.key.and_then(|key| key_text(env.knobs.slow.keys(), [bucket_type, bucket, key])),
            time: now.since(self.stages.came()),
            stages: self.stages.times(now),
            replicas: self.nodes.iter().map(replica).collect(),
            siblings: self.siblings,
            bytes: self.bytes,
            waits: self.waits,
            error: self.error.map(Error::to_string),
            left_out: 0,
        }
    }
}
