//! Dual writes: during a partition transfer, a write is confirmed when the outgoing and the incoming replica have it.

use super::execute::Requests;
use super::task::{Coordinator, PendingReply, Task};
use crate::peer::NodeId;
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;
use ::object::key;
use kv::{Error, Event};
use std::sync::Arc;

impl Requests {
    /// Has a replica's work go on as one that passes the version on.
    pub(crate) fn pass_before_answer(
        &mut self,
        env: &mut Env,
        id: &mut Option<u64>,
        work: &mut Task,
    ) -> Option<Event> {
        let Some(version) = work.unpassed.take() else {
            // It began before anything moved, and has found the version of another write.
            self.reply_when_durable(env, id, work, PendingReply::Replica(Err(Error::Unreachable)));
            return None;
        };
        self.release_key(env, work);
        let mates = mates(env, work);
        work.coordinator = Coordinator::DualWrite(kv::DualWrite::new(mates, version.0, version.1));
        Some(Event::Start)
    }
}

/// Passes a client's write on; the task goes on when that is done. False if no other node is to have it.
pub(super) fn pass_on(env: &mut Env, id: &mut Option<u64>, work: &mut Task) -> bool {
    if matches!(work.coordinator, Coordinator::Merge(_)) {
        return false;
    }
    let Some(version) = work.unpassed.take() else { return false };
    let mates = mates(env, work);
    if mates.is_empty() {
        return false;
    }
    let id = *id.get_or_insert_with(|| env.next_id());
    let pass = Coordinator::DualWrite(kv::DualWrite::new(mates, version.0, version.1));
    let props = Arc::clone(&work.props);
    let pass = Task::new(ReplyTo::DualWrite(id), pass, work.key.clone(), props, work.deadline);
    env.start(pass);
    true
}

/// Whether a write that reaches a joiner while everything is still copied was sent by the new ring: its sender has
/// heard earlier that this is the ring in force. By the old one a joiner is asked only to stand in for somebody.
fn is_by_target(work: &Task) -> bool {
    matches!(&work.coordinator, Coordinator::Merge(merge) if !merge.stands_in())
}

/// Whether a replica's part in a write is to be passed on before it is confirmed.
pub(crate) fn is_unpassed(env: &Env, work: &Task) -> bool {
    !env.topology.is_at_rest()
        && matches!(work.coordinator, Coordinator::Merge(_))
        && work.coordinator.is_passed_on()
        && (work.unpassed.is_some() || matches!(work.reply_to, ReplyTo::Replica(..)))
        && !mates(env, work).is_empty()
}

/// To whom what this work writes here is passed on.
fn mates(env: &Env, work: &Task) -> Vec<NodeId> {
    let (key, n_val) = (&work.key, work.props.n_val);
    let topology = &env.topology;
    if topology.is_at_rest() || base::planted!(MoveNotPassedOn) {
        return Vec::new();
    }
    let (here, at) = (env.peers.here(), env.ownership().position(key::prefix_of(key)));
    let (givers, joiners) = (topology.givers(at, n_val), topology.joiners(at, n_val));
    if givers.contains(&here) {
        joiners
    } else if joiners.contains(&here) && (topology.before.is_some() || is_by_target(work)) {
        givers
    } else {
        Vec::new()
    }
}
