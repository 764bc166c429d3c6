//! Questions between replicas: those of tasks to other nodes, and those of other nodes to this replica.
//!
//! A question carries the time after which nobody waits; what has no time left is not begun. An answer to work that
//! is over is dropped.

use super::execute::Requests;
use crate::peer::{AskId, NodeId, PeerMessage};
use crate::reap::reaper;
use crate::request::task::{Coordinator, Task, placed};
use crate::shard::env::Env;
use crate::shard::knobs::WORK_MAX;
use crate::shard::reply_to::ReplyTo;
use base::Monotonic;
use bytes::Bytes;
use kv::reap::Cleared;
use kv::{Answer, Ask, Error, Event, Graveyard, Reason};
use std::sync::Arc;
use std::time::Duration;

impl Requests {
    /// Asks a replica on behalf of work.
    pub(crate) fn ask(
        &mut self,
        env: &mut Env,
        to: NodeId,
        work: u64,
        deadline: Monotonic,
        key: Bytes,
        ask: Ask,
    ) {
        match &ask {
            Ask::Merge { reason: Reason::Repair | Reason::Heal, .. } => env.counters.repairs += 1,
            Ask::Merge { reason: Reason::Handoff, .. } => env.counters.handoffs += 1,
            Ask::Merge { .. } | Ask::Read { .. } | Ask::Reap { .. } => {}
        }
        let (id, ttl_ms) = (env.ask_id(work), env.ttl_ms(deadline));
        let writes = ask.writes();
        let Some(ask) = without_reaped(&self.graveyard, &key, ask) else {
            // Nothing is left to be sent: all primaries have something newer. The message comes back as one that could
            // not be sent.
            return self.unsent.push(to, id);
        };
        let life = if writes { env.peers.life_of(to) } else { 0 };
        env.send(to, PeerMessage::Ask { id, ttl_ms, life, key, ask });
    }

    /// Tells tasks whose questions were not sent.
    pub(crate) fn refuse_unsent(&mut self, env: &mut Env) {
        for (from, id) in self.unsent.take() {
            self.resume(env, id.number(), Event::Answer { from, result: Err(Error::Unreachable) });
        }
    }

    /// Another node asks this replica.
    pub fn on_ask(
        &mut self,
        env: &mut Env,
        (from, id): (NodeId, AskId),
        ttl_ms: u32,
        life: u64,
        key: Bytes,
        ask: Ask,
    ) {
        let reply_to = ReplyTo::Replica(from, id);
        if life != 0 && life != env.peers.life() {
            // It was sent to a process that has died, and may be older than what has been reaped since.
            return answer(env, from, id, Err(Error::Unreachable));
        }
        let bytes_max = env.knobs.limits.work_bytes_max.saturating_mul(2);
        if env.gauges.requests() >= 2 * WORK_MAX || env.gauges.task_bytes >= bytes_max {
            env.counters.refused += 1;
            return answer(env, from, id, Err(Error::Overload));
        }
        let placed = placed(&key).map_err(|error| Error::Damaged(error.to_string()));
        let found =
            placed.and_then(|(prefix, bucket)| Ok((prefix, Arc::clone(env.props.get_as_replica(&bucket)?))));
        let (prefix, props) = match found {
            Ok(found) => found,
            Err(error) => return answer(env, from, id, Err(error)),
        };
        let is_for_here = matches!(&ask, Ask::Merge { hints, .. } if hints.is_empty());
        if is_for_here && env.ownership().has_given_up(prefix, props.n_val) {
            // By a ring that was in force once: nobody would look here for an object that this node kept.
            return answer(env, from, id, Err(Error::Unreachable));
        }

        let now = env.now();
        if matches!(ask, Ask::Read { .. } | Ask::Merge { reason: Reason::Write, .. }) {
            env.activity.note_client(now);
        }
        let mut unpassed = None;
        let coordinator = match ask {
            Ask::Read { want } => {
                env.counters.replica_reads += 1;
                Coordinator::Read(kv::replica::Read::new(want))
            }
            Ask::Merge { head, value, hints, reason } => {
                env.counters.replica_writes += 1;
                if !env.topology.is_at_rest() && !reason.is_of_move() {
                    unpassed = Some(Box::new((head.clone(), value.clone())));
                }
                Coordinator::Merge(kv::Merge::new(head, value, hints, reason))
            }
            Ask::Reap { round, tombstone } => match reaper::part(env, round, tombstone, &key, props.n_val) {
                Some(part) => Coordinator::ReapPart(Box::new(part)),
                None => return answer(env, from, id, Ok(Answer::Reaping { round, agrees: false })),
            },
        };
        let deadline = now + Duration::from_millis(ttl_ms.into());
        let mut work = Task::new(reply_to, coordinator, key, props, deadline);
        work.unpassed = unpassed;
        self.start(env, work);
    }
}

/// Answers another node's question.
pub(crate) fn answer(env: &mut Env, to: NodeId, id: AskId, result: Result<Answer, Error>) {
    let load = env.gauges.reported_load();
    env.send(to, PeerMessage::Answer { id, result, load });
}

/// A task's question, without what was deleted by a tombstone that is remembered here, or overwritten by a version
/// whose context is folded; `None` if nothing of it is left.
fn without_reaped(graveyard: &Graveyard, key: &Bytes, ask: Ask) -> Option<Ask> {
    let Ask::Merge { head, value, hints, reason } = ask else { return Some(ask) };
    match graveyard.clear(key, &head, &value) {
        Ok(Cleared::Instead(head, value)) => Some(Ask::Merge { head, value, hints, reason }),
        Ok(Cleared::Nothing) => None,
        // What cannot be read is for the receiver to refuse.
        Ok(Cleared::Same) | Err(_) => Some(Ask::Merge { head, value, hints, reason }),
    }
}
