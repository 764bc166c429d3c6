//! The network: messages that are lost, doubled and late, cuts, and pings by which nodes know each other's silence.

use std::time::Duration;

use base::{Monotonic, Rng};
use bytes::Bytes;
use strong::catch_up::{ToReceiver, ToSender};
use strong::group::{Group, Input, VoterId};
use strong::wake::Urgency;

use super::clients::Forward;
use super::{Event, MILLISECOND, SECOND, World};

/// Interval of pings between nodes.
pub(super) const PING_EVERY: u64 = 200 * MILLISECOND;

/// Silence after which a peer counts as down.
const SILENT_AFTER: Duration = Duration::from_millis(1_200);

/// Age up to which a message is a sign of life.
const FRESH: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(super) enum Wire {
    Ping,
    Message(Bytes),
    ToReceiver(ToReceiver),
    ToSender(ToSender),
    Forward(Forward),
}

impl World {
    pub(super) fn send(&mut self, from: usize, to: usize, wire: Wire) {
        self.sent += 1;
        if self.cuts.contains(&(from, to)) || self.rng.chance(self.faults.lost_of_thousand, 1_000) {
            return;
        }
        let (life, sent) = (self.nodes[from].life, self.now);
        let pair = (from, to);
        // A message names both ends, as its sender knows them.
        let (from, to) = (self.voter(from), self.known(from, to));
        if self.slow == Some(pair) {
            return self.delayed.push(Event::Deliver { from, life, sent, to, wire });
        }
        for _ in 0..if self.rng.chance(1, 20) { 2 } else { 1 } {
            let is_late = self.rng.chance(self.faults.late_of_thousand, 1_000);
            let late = if is_late { self.rng.below(4 * SECOND) } else { 0 };
            let delay = MILLISECOND / 10 + self.rng.below(5 * MILLISECOND) + late;
            self.after(delay, Event::Deliver { from, life, sent, to, wire: wire.clone() });
        }
    }

    pub(super) fn on_delivered(
        &mut self,
        (voter, life): (VoterId, u64),
        sent: Monotonic,
        receiver: VoterId,
        wire: Wire,
    ) {
        let (from, to) = (usize::from(voter.node.0), usize::from(receiver.node.0));
        let is_known = self.known(to, from) == voter && self.voter(to) == receiver;
        if self.nodes[to].group.is_none() || !is_known {
            return;
        }
        let known = self.nodes[to].heard.get(&from).map_or(0, |(_, life)| *life);
        if life < known {
            // Nodes drop messages of an earlier process, and also those to one, which are taken here.
            return;
        }
        // A node knows how old a message is by the echo of its own pings; an old one is no sign of life.
        let is_fresh = self.now.since(sent) < FRESH;
        if is_fresh || life > known {
            self.nodes[to].heard.insert(from, (self.now, life));
        }
        let is_new = life > known && known > 0;
        let is_back = is_fresh && self.nodes[to].up.insert(from);
        if is_new || is_back {
            self.on_back(to, voter, is_new);
        }
        match wire {
            Wire::Ping => {}
            Wire::Message(message) => self.step(to, Input::Message { from: voter, message }),
            Wire::ToReceiver(message) => self.on_receiver_message(from, to, message),
            Wire::Forward(forward) => self.on_forward((from, life), to, forward),
            Wire::ToSender(message) => self.on_sender_message(from, to, message),
        }
    }

    /// A voter's link or process has come back. A group at rest that settled without it is woken at a pace.
    fn on_back(&mut self, node: usize, voter: VoterId, is_new: bool) {
        let it = &mut self.nodes[node];
        let is_leader = it.group.as_ref().is_some_and(Group::leads);
        if is_new && is_leader && it.group.as_ref().is_some_and(Group::is_settled) {
            it.marked.mark((), voter);
        }
        if is_leader && it.marked.is_marked((), voter) {
            it.marked.on_back(voter);
            return self.plan_wakes(node);
        }
        if is_new {
            self.step(node, Input::Restarted { voter });
        }
        if self.nodes[node].up.contains(&voter.node.0.into()) {
            self.step(node, Input::Reachable { voter, is_up: true });
        }
    }

    /// A voter has become silent. A group that it leads stands for election at a pace.
    fn on_away(&mut self, node: usize, voter: VoterId) {
        let it = &mut self.nodes[node];
        it.marked.on_away(voter);
        if it.group.as_ref().is_some_and(|group| !group.leads() && group.leader() == Some(voter)) {
            it.leaderless.push((), Urgency::Other);
            return self.plan_wakes(node);
        }
        self.step(node, Input::Reachable { voter, is_up: false });
    }

    fn plan_wakes(&mut self, node: usize) {
        let it = &self.nodes[node];
        let (life, timers) = (it.life, [it.marked.next_timer(), it.leaderless.next_timer()]);
        if let Some(at) = timers.into_iter().flatten().min() {
            self.at(at.max(self.now), Event::Wake { node, life });
        }
    }

    pub(super) fn on_wake(&mut self, node: usize) {
        let marked = self.nodes[node].marked.take(self.now);
        for ((), voter) in marked {
            self.count("wake");
            self.step(node, Input::Restarted { voter });
            if self.nodes[node].up.contains(&voter.node.0.into()) {
                self.step(node, Input::Reachable { voter, is_up: true });
            }
        }
        for () in self.nodes[node].leaderless.take(self.now) {
            for other in (0..self.nodes.len()).filter(|other| *other != node) {
                let (voter, is_up) = (self.known(node, other), self.nodes[node].up.contains(&other));
                if !is_up {
                    self.step(node, Input::Reachable { voter, is_up });
                }
            }
        }
        self.plan_wakes(node);
    }

    /// Marks a group that came to rest for each voter that is away.
    pub(super) fn mark(&mut self, node: usize) {
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            let voter = self.known(node, other);
            let it = &mut self.nodes[node];
            let Some(group) = it.group.as_ref().filter(|group| group.leads() && group.is_settled()) else {
                return;
            };
            if group.reaches(voter) {
                it.marked.unmark((), voter);
            } else {
                it.marked.mark((), voter);
            }
        }
    }

    pub(super) fn ping(&mut self, node: usize, life: u64) {
        if self.nodes[node].life != life || self.nodes[node].group.is_none() {
            return;
        }
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            let heard = self.nodes[node].heard.get(&other).map_or(Monotonic(0), |(at, _)| *at);
            if self.now.since(heard) > SILENT_AFTER && self.nodes[node].up.remove(&other) {
                let voter = self.known(node, other);
                self.on_away(node, voter);
            }
            self.send(node, other, Wire::Ping);
        }
        self.after(PING_EVERY, Event::Ping { node, life });
    }

    /// Cuts a node off in both directions.
    pub fn isolate(&mut self, node: usize) {
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.cuts.extend([(node, other), (other, node)]);
        }
    }

    pub(super) fn cut(&mut self, pair: (usize, usize), at_most: u64) {
        if pair.0 != pair.1 && self.cuts.insert(pair) {
            let until = self.rng.below(at_most);
            self.after(until, Event::Join { pair });
        }
    }

    /// Lets the messages of the slow pair arrive.
    pub fn arrive(&mut self) {
        self.slow = None;
        for event in std::mem::take(&mut self.delayed) {
            self.after(0, event);
        }
    }
}
