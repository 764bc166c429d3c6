//! Slow requests among the tasks: their stages, and their lines.
//!
//! 1. A task that is parked while a client waits for it notes its stage, and when it comes to be slow.
//! 2. The shard wakes then, and looks at all of them: those that are slow get a line ([`Requests::look_for_slow`]).
//! 3. The answer of a slow request is a line, too.
//!
//! A task that is never parked costs a comparison, and one that is parked no reading of the clock of its own.

use super::execute::Requests;
use super::task::{Coordinator, Task};
use crate::frontdoor::slow::{SlowOp, SlowRequest};
use crate::peer::NodeId;
use crate::shard::env::Env;
use base::Monotonic;
use kv::{Error, Response};
use object::{HeadView, key};

impl Requests {
    /// A task is parked.
    pub(super) fn note_wait(&mut self, env: &mut Env, work: &mut Task) {
        if env.knobs.slow.threshold().is_none() || !work.has_client() {
            return;
        }
        let stage = work.stage();
        work.stages().enter(stage, env.recent());
        if !work.is_slow {
            self.looks.note(env, work.came);
        }
    }

    /// When tasks are looked at next, if they are.
    pub fn next_look(&self) -> Option<Monotonic> {
        self.looks.next()
    }

    /// Writes a line about each task that has come to be slow, as far as there is room.
    pub(super) fn look_for_slow(&mut self, env: &mut Env, now: Monotonic) {
        let Some(came_max) = self.looks.begin(env, now) else { return };
        let is_new = |work: &Task| work.has_client() && !work.is_slow;
        for id in self.tasks.names(|work| is_new(work) && work.came <= came_max) {
            if !self.looks.have_room(env, now) {
                break;
            }
            let work = self.tasks.get_mut(id).expect("just seen");
            work.note_slow(env);
            work.write_line(env, None, now);
        }

        let others = self.tasks.of_clients().filter(|work| is_new(work));
        if let Some(first) = others.map(|work| work.came).min() {
            self.looks.note(env, first);
        }
    }
}

impl Task {
    /// Another node is asked.
    pub(super) fn note_ask(&mut self, env: &Env, node: NodeId) {
        if self.has_client() && env.knobs.slow.threshold().is_some() {
            self.stages().ask(node, env.recent());
        }
    }

    /// Another node has answered, or will not.
    pub(super) fn note_answer(&mut self, env: &Env, node: NodeId) {
        if self.has_client() && env.knobs.slow.threshold().is_some() {
            self.stages().answered(node, env.recent());
        }
    }

    /// Its client is about to be answered.
    pub(super) fn note_end(&mut self, env: &mut Env, result: &Result<Response, Error>, now: Monotonic) {
        let is_slow = |threshold| now.since(self.came) >= threshold || self.is_slow;
        if env.knobs.slow.threshold().is_some_and(is_slow) {
            self.note_slow(env);
            self.write_line(env, Some(result), now);
        }
    }

    /// Counts it once.
    fn note_slow(&mut self, env: &mut Env) {
        if !std::mem::replace(&mut self.is_slow, true) {
            env.counters.slow += 1;
        }
    }

    fn write_line(&mut self, env: &mut Env, result: Option<&Result<Response, Error>>, now: Monotonic) {
        let stages = *self.stages();
        // A coordinator may have given its names to its answer.
        let names = key::decode_object_key(&self.key).expect("a client's request has the key of an object");
        let slow = SlowRequest {
            op: self.op(),
            bucket: [&names.bucket_type, &names.bucket],
            key: Some(names.key),
            stages: &stages,
            nodes: stages.replicas(now).collect(),
            siblings: self.siblings(result),
            bytes: self.bytes,
            waits: result.is_none(),
            error: result.and_then(|result| result.as_ref().err()),
        };
        slow.write(env, now);
    }

    fn op(&self) -> SlowOp {
        match self.coordinator {
            Coordinator::Put(_) => SlowOp::Put,
            Coordinator::Delete(_) => SlowOp::Delete,
            _ => SlowOp::Get,
        }
    }

    /// Siblings of the answer, or of the object that was found here before a write.
    fn siblings(&self, result: Option<&Result<Response, Error>>) -> Option<usize> {
        let head = match result {
            Some(Ok(Response::Found(found) | Response::Put { object: Some(found), .. })) => Some(&found.head),
            _ => self.prior.head(),
        };
        HeadView::parse(head?).ok().map(|head| head.sibling_count())
    }
}
