//! The times of a scan, for the log of slow requests.
//!
//! 1. A scan notes since when its client waits, and each question for a page with the node that is asked.
//! 2. It is slow once the client has waited as long as the threshold for a part of its answer.
//! 3. Its line has the nodes that were waited for longest, those without an answer first.
//!
//! Left out: the times of this node's own shards, which are in the stage of the pages as a whole.

use super::scan_kind::ScanKind;
use crate::frontdoor::slow::{SlowOp, SlowRequest, SlowStage, StageClock};
use crate::hop::RequestTimes;
use crate::peer::NodeId;
use crate::shard::env::Env;
use base::Monotonic;
use bytes::Bytes;
use kv::coverage::Source;
use kv::{Error, Request};
use std::collections::BTreeMap;
use std::time::Duration;

/// The nodes of a line, those with the longest waits: a covering set may have hundreds.
const NODES_MAX: usize = 6;

/// The times of a scan, as long as the log is on.
pub(super) struct ScanClock {
    bucket_type: Bytes,
    bucket: Bytes,
    stages: StageClock,
    /// Since when the client waits for a part of its answer; none while it has one to take.
    waits_since: Option<Monotonic>,
    /// Questions to other nodes without an answer: the node, and when it was asked.
    asked: BTreeMap<u64, (NodeId, Monotonic)>,
    /// The time of each node's answers.
    waited: BTreeMap<NodeId, Duration>,
    /// Whether it was slow.
    is_slow: bool,
}

impl ScanClock {
    /// That of a scan which begins now; `None` while the log is off.
    pub fn of(env: &Env, request: &Request, times: RequestTimes) -> Option<Box<ScanClock>> {
        env.knobs.slow.threshold()?;
        let (bucket_type, bucket) = match (request, request.bucket()) {
            (_, Some(bucket)) => (bucket.bucket_type.clone(), bucket.name.clone()),
            (Request::ListBuckets(list), None) => (list.bucket_type.clone(), Bytes::new()),
            _ => (Bytes::new(), Bytes::new()),
        };
        Some(Box::new(ScanClock {
            bucket_type,
            bucket,
            stages: StageClock::begun(times.came, env.recent()),
            waits_since: Some(times.came),
            asked: BTreeMap::new(),
            waited: BTreeMap::new(),
            is_slow: false,
        }))
    }

    /// A page is asked for.
    pub fn ask(&mut self, question: u64, source: Source, now: Monotonic) {
        self.stages.enter(SlowStage::Pages, now);
        if let Source::Node(node) = source {
            self.asked.insert(question, (node, now));
        }
    }

    /// A page has come, or is not waited for any more.
    pub fn answered(&mut self, question: u64, now: Monotonic) {
        if let Some((node, asked)) = self.asked.remove(&question) {
            *self.waited.entry(node).or_default() += now.since(asked);
        }
    }

    /// The client has a part of its answer to take.
    pub fn send(&mut self, env: &mut Env, now: Monotonic) {
        self.stages.enter(SlowStage::Client, now);
        self.note_wait(env, now);
        self.waits_since = None;
    }

    /// The client has taken it.
    pub fn proceed(&mut self, now: Monotonic) {
        self.waits_since = Some(now);
    }

    /// Whether the client waits for a part of its answer.
    pub fn waits(&self) -> bool {
        self.waits_since.is_some()
    }

    /// Since when the client waits, if no line says so.
    pub fn new_wait(&self) -> Option<Monotonic> {
        self.waits_since.filter(|_| !self.is_slow)
    }

    /// The scan ends with an answer or an error: a slow one has its last line.
    pub fn end(&mut self, env: &mut Env, kind: ScanKind, error: Option<&Error>) {
        let now = env.now();
        self.note_wait(env, now);
        if self.is_slow {
            self.write_line(env, kind, false, error, now);
        }
    }

    /// The wait under way is slow: the scan has the line of one that waits.
    pub fn warn(&mut self, env: &mut Env, kind: ScanKind, now: Monotonic) {
        debug_assert!(self.new_wait().is_some(), "a scan has one line while it waits");
        self.set_slow(env);
        self.write_line(env, kind, true, None, now);
    }

    /// Finds out at the end of a wait whether it was slow.
    fn note_wait(&mut self, env: &mut Env, now: Monotonic) {
        let since = self.new_wait();
        let is_slow = |threshold| since.is_some_and(|since| now.since(since) >= threshold);
        if env.knobs.slow.threshold().is_some_and(is_slow) {
            self.set_slow(env);
        }
    }

    fn set_slow(&mut self, env: &mut Env) {
        self.is_slow = true;
        env.counters.slow += 1;
    }

    /// The nodes that were waited for longest, those without an answer first.
    fn nodes(&self, now: Monotonic) -> Vec<(NodeId, Duration, bool)> {
        let mut nodes: BTreeMap<NodeId, (Duration, bool)> =
            self.waited.iter().map(|(node, time)| (*node, (*time, false))).collect();
        for (node, asked) in self.asked.values() {
            let (time, waits) = nodes.entry(*node).or_default();
            (*time, *waits) = (*time + now.since(*asked), true);
        }
        let mut nodes: Vec<_> = nodes.into_iter().map(|(node, (time, waits))| (node, time, waits)).collect();
        nodes.sort_by_key(|(_, time, waits)| (!waits, std::cmp::Reverse(*time)));
        nodes.truncate(NODES_MAX);
        nodes
    }

    fn write_line(&self, env: &mut Env, kind: ScanKind, waits: bool, error: Option<&Error>, now: Monotonic) {
        let op = match kind {
            ScanKind::Listing => SlowOp::List,
            ScanKind::Fold => SlowOp::Fold,
            ScanKind::Query => SlowOp::Query,
        };
        let slow = SlowRequest {
            op,
            bucket: [&self.bucket_type, &self.bucket],
            key: None,
            stages: &self.stages,
            nodes: self.nodes(now),
            siblings: None,
            bytes: 0,
            waits,
            error,
        };
        slow.write(env, now);
    }
}
