//! Clients: each has one request under way, and each request is an operation of a history.

use std::collections::BTreeMap;

use base::{Monotonic, Rng};
use bytes::Bytes;
use strong::Endpoint;
use strong::group::{Answer, Cause, Condition, Input, Proposal, Write};
use strong::linearizability::{Action, Operation, Outcome, STATES_MAX, Verdict, check};

use super::network::Wire;
use super::node::Held;
use super::{Event, MILLISECOND, SECOND, World, key};

/// A request that waits for its answer.
pub(super) struct Pending {
    pub(super) client: usize,
    pub(super) key: Bytes,
    pub(super) operation: Operation,
    pub(super) condition: Condition,
    pub(super) node: usize,
}

/// A request that one node has passed on to another.
#[derive(Clone)]
pub(super) struct Forward {
    number: u64,
    /// The life of the process that it is for.
    to_life: u64,
    token: u64,
    key: Bytes,
    action: Action,
    condition: Condition,
    deadline: Monotonic,
}

#[derive(Default)]
pub(super) struct Client {
    /// The node that it asks.
    pub(super) node: usize,
    /// The version of each key that it has seen.
    pub(super) seen: BTreeMap<Bytes, Held>,
}

impl World {
    fn instant(&mut self) -> u64 {
        self.instant += 1;
        self.instant
    }

    /// A client chooses its next request.
    pub(super) fn think(&mut self, client: usize) {
        if !self.has_clients {
            return;
        }
        let key = key(if self.rng.chance(1, 4) { self.rng.below(6) } else { self.rng.below(2) });
        if self.rng.chance(1, 10) {
            self.clients[client].node = self.below(self.nodes.len());
        }
        self.value += 1;
        let value = self.value;
        let seen = self.clients[client].seen.get(&key).copied();
        let (action, condition) = match (self.rng.below(16), seen) {
            (0, _) => (Action::Put(value), Condition::None),
            (1, _) => (Action::Delete, Condition::None),
            (2 | 3, _) => (Action::PutOnce(value), Condition::Absent),
            (4, Some((version, expected))) => (Action::DeleteIf { expected }, Condition::Is(version)),
            (5..=10, Some((version, expected))) => (Action::Cas { expected, value }, Condition::Is(version)),
            _ => (Action::Get, Condition::None),
        };
        self.request(client, key, action, condition);
    }

    /// Sends a request to the node that a client asks; its token.
    pub fn request(&mut self, client: usize, key: Bytes, action: Action, condition: Condition) -> u64 {
        self.token += 1;
        let (token, node) = (self.token, self.clients[client].node);
        let operation = Operation { call: self.instant(), end: 0, action, outcome: Outcome::Timeout };
        self.pending.insert(token, Pending { client, key, operation, condition, node });
        let delay = self.rng.below(MILLISECOND);
        self.after(delay, Event::Request { node, token });
        token
    }

    /// Lets a client ask a node.
    pub fn turn_to(&mut self, client: usize, node: usize) {
        self.clients[client].node = node;
    }

    pub(super) fn on_request(&mut self, node: usize, token: u64) {
        let Some(pending) = self.pending.get(&token) else { return };
        let Pending { key, operation: Operation { action, .. }, condition, .. } = pending;
        let (key, action, condition) = (key.clone(), *action, *condition);
        if self.nodes[node].group.is_none() {
            return self.finish(token, Outcome::Unavailable);
        }
        let deadline = Monotonic(self.now.0 + SECOND / 5 + self.rng.below(2 * SECOND));
        let leader = self.group(node).leader().map(|leader| usize::from(leader.node.0));
        match leader.filter(|leader| self.limits.forwards && *leader != node && self.rng.chance(1, 2)) {
            Some(leader) => self.forward(node, leader, token, (key, action, condition), deadline),
            None => self.submit(node, token, (key, action, condition), deadline),
        }
    }

    /// Passes a request on. Its answer may be lost, so it ends at its deadline.
    fn forward(
        &mut self,
        node: usize,
        leader: usize,
        token: u64,
        (key, action, condition): (Bytes, Action, Condition),
        deadline: Monotonic,
    ) {
        self.token += 1;
        let to_life = self.nodes[node].heard.get(&leader).map_or(0, |(_, life)| *life);
        let forward = Forward { number: self.token, to_life, token, key, action, condition, deadline };
        self.send(node, leader, Wire::Forward(forward));
        self.at(deadline, Event::Expire { token });
    }

    /// Executes a request of another node, unless it may have come before.
    pub(super) fn on_forward(&mut self, (from, life): (usize, u64), node: usize, forward: Forward) {
        let Forward { number, to_life, token, key, action, condition, deadline } = forward;
        let shard = u16::try_from(from).unwrap();
        let (origin, now) = (Endpoint { life, shard }, self.now);
        let it = &mut self.nodes[node];
        if it.life != to_life || it.forwards.admit(origin, number, deadline, now).is_err() {
            return;
        }
        self.count("forward");
        self.token += 1;
        self.forwarded.insert(self.token, token);
        self.submit(node, self.token, (key, action, condition), deadline);
    }

    /// Ends a request that was passed on and has no answer.
    pub(super) fn on_expired(&mut self, token: u64) {
        if let Some(pending) = self.pending.get(&token) {
            let outcome = match pending.operation.action {
                Action::Get => Outcome::Unavailable,
                _ => Outcome::Timeout,
            };
            self.turn(pending.client, None);
            self.finish(token, outcome);
        }
    }

    fn submit(
        &mut self,
        node: usize,
        token: u64,
        (key, action, condition): (Bytes, Action, Condition),
        deadline: Monotonic,
    ) {
        let object = match action {
            Action::Get => return self.step(node, Input::Read { token, deadline }),
            Action::Put(value) | Action::PutOnce(value) | Action::Cas { value, .. } => {
                Some(Bytes::copy_from_slice(&value.to_le_bytes()))
            }
            Action::Delete | Action::DeleteIf { .. } => None,
        };
        if self.nodes[node].damaged.contains(&key) {
            let token = self.forwarded.remove(&token).unwrap_or(token);
            if self.pending.contains_key(&token) {
                self.on_damage(node, token);
            }
            return;
        }
        let head = self.nodes[node].held(&key).map(|(version, _)| version);
        let version = self.group(node).next_version();
        let write = Write { key, object };
        let proposal = Proposal { token, condition, write, head, version, deadline };
        self.step(node, Input::Propose(proposal));
    }

    pub(super) fn on_answer(&mut self, node: usize, token: u64, answer: Answer) {
        let token = self.forwarded.remove(&token).unwrap_or(token);
        let Some(pending) = self.pending.get(&token) else { return };
        let (client, key, action) = (pending.client, pending.key.clone(), pending.operation.action);
        let held = self.nodes[node].held(&key);
        let seen = &mut self.clients[client].seen;
        let outcome = match answer {
            Answer::Readable if self.nodes[node].damaged.contains(&key) => {
                return self.on_damage(node, token);
            }
            Answer::Readable => {
                match held {
                    Some(held) => seen.insert(key, held),
                    None => seen.remove(&key),
                };
                Outcome::Read(held.map(|(_, value)| value))
            }
            Answer::Written(version) => {
                match action {
                    Action::Put(value) | Action::PutOnce(value) | Action::Cas { value, .. } => {
                        seen.insert(key, (version, value))
                    }
                    _ => seen.remove(&key),
                };
                Outcome::Done
            }
            Answer::Failed => {
                // It looks again, now and then.
                if self.rng.chance(1, 2) {
                    seen.remove(&key);
                }
                Outcome::Failed
            }
            Answer::Unavailable(cause) => {
                let leader = match cause {
                    Cause::NotLeader { leader } => leader.map(|leader| leader.node.0.into()),
                    Cause::Expired => None,
                    _ => Some(node),
                };
                self.turn(client, leader);
                Outcome::Unavailable
            }
            Answer::Timeout => {
                self.turn(client, None);
                Outcome::Timeout
            }
        };
        self.finish(token, outcome);
    }

    /// Ends a request that has met damage, and is not applied.
    fn on_damage(&mut self, node: usize, token: u64) {
        self.finish(token, Outcome::Unavailable);
        self.step(node, Input::Unreadable);
    }

    /// Lets a client ask another node, or stay where it is.
    fn turn(&mut self, client: usize, to: Option<usize>) {
        if let Some(node) = to {
            self.clients[client].node = node;
        } else if self.rng.chance(1, 2) {
            self.clients[client].node = self.below(self.nodes.len());
        }
    }

    /// Notes the end of a request; its client thinks about the next one.
    pub(super) fn finish(&mut self, token: u64, outcome: Outcome) {
        let Pending { client, key, mut operation, .. } = self.pending.remove(&token).unwrap();
        (operation.end, operation.outcome) = (self.instant(), outcome);
        let count = match outcome {
            Outcome::Read(_) => "read",
            Outcome::Done => "done",
            Outcome::Failed => "failed",
            Outcome::Unavailable => "unavailable",
            Outcome::Timeout => "timeout",
        };
        *self.counts.entry(count).or_default() += 1;
        self.histories.entry(key).or_default().push(operation);
        let pause = self.rng.below(100 * MILLISECOND) + MILLISECOND;
        self.after(pause, Event::Think { client });
    }

    /// Sends a request, and waits for its outcome.
    pub fn ask(&mut self, node: usize, key: Bytes, action: Action, condition: Condition) -> Outcome {
        self.turn_to(0, node);
        let token = self.request(0, key.clone(), action, condition);
        assert!(self.run_until(5 * SECOND, |world| !world.pending.contains_key(&token)), "no answer");
        self.histories[&key].last().unwrap().outcome
    }

    /// Ends all requests of clients.
    pub fn stop_clients(&mut self) {
        self.has_clients = false;
        assert!(self.run_until(10 * SECOND, |world| world.pending.is_empty()), "a request has no answer");
    }

    /// The verdict over all keys; the worst.
    pub fn verdict(&self) -> Verdict {
        let mut worst = Verdict::Linearizable;
        for history in self.histories.values() {
            match check(history, STATES_MAX) {
                Verdict::Linearizable => {}
                Verdict::Unknown => worst = Verdict::Unknown,
                violation => return violation,
            }
        }
        worst
    }
}
