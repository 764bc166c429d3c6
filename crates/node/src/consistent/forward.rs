//! Requests that the leader of another node executes, and those of other nodes that come here.
//!
//! A write has a number of its origin, and the leader's shard drops copies ([`strong::forward`]). It is sent once: if
//! its link breaks, it may have been executed, and ends as *timeout*. It is sent again only if the other node says that
//! it has done nothing, or if the message did not leave. A read may be sent as often as one likes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base::Monotonic;
use kv::{Error, Request};
use strong::Endpoint;
use strong::forward::ForwardError;

use super::dispatch::Pending;
use super::links::{endpoint_here, endpoint_of};
use super::{ConsistentGroups, Todo};
use crate::frontdoor::slow::SlowStage;
use crate::hop::RequestTimes;
use crate::peer::{AskId, LeaderAnswer, NodeId, PeerMessage};
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;

/// Requests that other nodes execute.
#[derive(Default)]
pub(super) struct Asked {
    requests: BTreeMap<u64, (NodeId, Pending)>,
    /// Deadlines of all of them.
    deadlines: BTreeSet<(Monotonic, u64)>,
    /// The last number of a write to each shard of another process.
    numbers: BTreeMap<Endpoint, u64>,
}

impl Asked {
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// All requests.
    pub fn pendings_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.requests.values_mut().map(|(_, pending)| pending)
    }

    fn insert(&mut self, name: u64, to: NodeId, pending: Pending) {
        self.deadlines.insert((pending.times.deadline, name));
        self.requests.insert(name, (to, pending));
    }

    fn remove(&mut self, name: u64) -> Option<Pending> {
        let (_, pending) = self.requests.remove(&name)?;
        self.deadlines.remove(&(pending.times.deadline, name));
        Some(pending)
    }

    /// Takes a request past its deadline.
    fn take_expired(&mut self, now: Monotonic) -> Option<Pending> {
        let &(_, name) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now)?;
        self.remove(name)
    }

    /// Takes the requests that a node has, of one kind.
    fn take_of(&mut self, node: NodeId, is_of_kind: fn(&Request) -> bool) -> Vec<Pending> {
        let of_node =
            self.requests.iter().filter(|(_, (to, pending))| *to == node && is_of_kind(&pending.request));
        let names: Vec<u64> = of_node.map(|(&name, _)| name).collect();
        names.into_iter().filter_map(|name| self.remove(name)).collect()
    }
}

impl ConsistentGroups {
    /// Asks the node of a leader to execute a request.
    pub(super) fn ask(&mut self, env: &mut Env, to: NodeId, mut pending: Pending) {
        let Some(there) = endpoint_of(env, to, pending.group.prefix) else { return self.wait(env, pending) };
        pending.asked += 1;
        self.note_wait(env, &mut pending, SlowStage::Replicas);
        pending.note_ask(env, to);
        let number = pending.request.writes().then(|| {
            let number = self.asked.numbers.entry(there).or_default();
            *number += 1;
            (endpoint_here(env), *number)
        });
        let name = env.next_id();
        let (id, ttl_ms) = (env.ask_id(name), env.ttl_ms(pending.times.deadline));
        let request = Box::new(pending.request.clone());
        self.asked.insert(name, to, pending);
        env.counters.forwards += 1;
        env.send(to, PeerMessage::AskLeader { id, ttl_ms, life: there.life, number, request });
    }

    /// Takes the answer of a node that was asked.
    pub fn on_leader_answer(&mut self, env: &mut Env, from: NodeId, name: u64, answer: LeaderAnswer) {
        let is_from = self.asked.requests.get(&name).is_some_and(|(to, _)| *to == from);
        let Some(mut pending) = is_from.then(|| self.asked.remove(name)).flatten() else { return };
        pending.note_answer(env, from);
        match answer {
            LeaderAnswer::Done(result) => pending.reply(env, *result),
            LeaderAnswer::NotLeader { leader } => {
                pending.hint = leader.filter(|leader| *leader != from);
                pending.turn += u32::from(pending.hint.is_none());
                match pending.hint {
                    Some(leader) if leader == env.peers.here() => self.dispatch(env, pending),
                    Some(_) if self.follows_hint(pending.group) => self.dispatch(env, pending),
                    _ => self.wait(env, pending),
                }
            }
        }
        self.run(env);
    }

    /// A node has lost the questions that it was asked.
    pub fn on_questions_lost(&mut self, env: &mut Env, node: NodeId) {
        self.ask_others(env, node);
        for mut pending in self.asked.take_of(node, Request::writes) {
            pending.note_answer(env, node);
            pending.reply(env, Err(Error::Timeout));
        }
        let lives: Vec<u64> = self.asked.numbers.keys().map(|endpoint| endpoint.life).collect();
        let has_ended = |life: &u64| env.peers.all().all(|node| is_over(env, node, *life));
        for life in lives.into_iter().filter(has_ended) {
            self.asked.numbers.retain(|endpoint, _| endpoint.life != life);
            self.window.retire(life);
        }
        self.run(env);
    }

    /// Lets the reads that a node has look for another leader. A late answer of the node is dropped.
    pub(super) fn ask_others(&mut self, env: &Env, node: NodeId) {
        for mut read in self.asked.take_of(node, |request| !request.writes()) {
            read.note_answer(env, node);
            self.todo.push_back(Todo::Dispatch(Box::new(read)));
        }
    }

    /// Ends requests past their deadline: another node may have executed them.
    pub fn expire(&mut self, env: &mut Env, now: Monotonic) {
        if self.asked.len() == 0 {
            return;
        }
        while let Some(pending) = self.asked.take_expired(now) {
            let error = if pending.request.writes() { Error::Timeout } else { Error::Unavailable };
            pending.reply(env, Err(error));
        }
        self.run(env);
    }

    /// When a turn has something to do for a deadline or a timer.
    pub fn next_deadline(&self) -> Option<Monotonic> {
        if self.is_unused() { None } else { self.next_timer() }
    }

    /// Takes a request of another node, which takes this one for the leader's.
    pub fn on_ask_leader(
        &mut self,
        env: &mut Env,
        (from, id): (NodeId, AskId),
        ttl_ms: u32,
        life: u64,
        number: Option<(Endpoint, u64)>,
        request: Request,
    ) {
        if life != env.peers.life() {
            // An earlier process was asked, and may have executed it.
            return;
        }
        if number.is_some_and(|(origin, _)| is_over(env, from, origin.life)) {
            // Its numbers may be forgotten, and nobody waits for the answer.
            return;
        }
        let now = env.now();
        let deadline = now + Duration::from_millis(ttl_ms.into());
        let reply_to = ReplyTo::Leader(from, id);
        let admitted = match number {
            Some((origin, number)) => self.window.admit(origin, number, deadline, now),
            None if request.writes() => Err(ForwardError::Seen),
            None => Ok(()),
        };
        match admitted {
            Ok(()) => {}
            // It was not seen before, so nothing was done.
            Err(ForwardError::Full) => return env.reply(reply_to, Err(Error::Unavailable)),
            Err(ForwardError::Seen | ForwardError::Late) => return,
        }
        let (Some(bucket), Some(key)) = (request.bucket(), request.key()) else {
            return env.reply(reply_to, Err(Error::Unavailable));
        };
        let (prefix, shard) = env.place(bucket, key);
        let props = env.props.get(bucket).map(Arc::clone);
        match props {
            Ok(props) if props.consistent && shard == env.knobs.id => {
                let times = RequestTimes { came: now, deadline };
                self.accept(env, reply_to, request, prefix, props, times);
            }
            // It has yet to hear of the type, and has done nothing.
            _ => env.reply(reply_to, Err(Error::Unavailable)),
        }
    }
}

/// Whether a process of a node is over, as far as is known here: neither the cluster nor the link has it. Then its
/// numbers may be forgotten, also while its successor is not registered yet.
fn is_over(env: &Env, node: NodeId, life: u64) -> bool {
    let is_registered = env.agreement.processes.get(&node).is_some_and(|process| process.life == life);
    !is_registered && env.peers.life_if_up(node) != Some(life)
}
