//! The nodes' part of catch-up: folds over tables, parts on the network and in journals, and the times of reaping.

use std::ops::Bound;
use std::time::Duration;

use base::Rng;
use bytes::Bytes;
use strong::catch_up::{
    Item, Place, ReceiverInput, ReceiverOutput, Sender, SenderInput, SenderOutput, ToReceiver, ToSender,
};
use strong::group::{Group, Input};

use super::network::Wire;
use super::{Event, MILLISECOND, World};

/// The entries that nodes keep, and whether they pass requests on.
#[derive(Clone, Copy, Default)]
pub struct Limits {
    /// Bytes of a group's log in memory; all without.
    pub window: Option<usize>,
    /// A start knows no entry that was applied.
    pub forgets_applied: bool,
    /// Mean interval of reaping; none without.
    pub reap_every: Option<u64>,
    /// Silence after which a voter does not hold reaping up.
    pub reap_silence: Duration,
    /// Nodes pass some requests on to the leader.
    pub forwards: bool,
}

/// A fold that a catch-up wants.
#[derive(Clone)]
pub(super) struct Fold {
    to: usize,
    number: u64,
    above: u64,
    after: Option<Bytes>,
}

impl World {
    pub(super) fn begin_catch_up(&mut self, node: usize, to: usize) {
        let (number, reaped) = (self.rng.next_u64(), self.group(node).reaped());
        let mut out = Vec::new();
        let sender = Sender::begin(number, reaped, self.now, &mut out);
        self.nodes[node].senders.insert(to, sender);
        self.on_sent(node, to, out);
        self.count("catch-up");
    }

    pub(super) fn on_sender_message(&mut self, from: usize, to: usize, message: ToSender) {
        let Some(group) = &self.nodes[to].group else { return };
        let (reaped, applied) = (group.reaped(), group.applied());
        self.send_on(to, from, SenderInput::Message { message, reaped, applied });
    }

    /// Breaks a catch-up off, as a receiver does that refuses a part.
    pub fn refuse_part(&mut self, from: usize, to: usize) {
        if let Some(number) = self.nodes[to].senders.get(&from).map(Sender::number) {
            self.on_sender_message(from, to, ToSender::Refused { number });
        }
    }

    pub(super) fn on_receiver_message(&mut self, from: usize, to: usize, message: ToReceiver) {
        let Some(group) = self.nodes[to].group.as_ref().filter(|group| !group.leads()) else { return };
        let (applied, reaped, is_unreadable) = (group.applied(), group.reaped(), group.is_unreadable());
        self.nodes[to].sender = Some(from);
        self.receive(to, ReceiverInput::Message { message, applied, reaped, is_unreadable });
    }

    pub(super) fn tick_senders(&mut self, node: usize) {
        let Some(reaped) = self.nodes[node].group.as_ref().map(Group::reaped) else { return };
        for to in self.nodes[node].senders.keys().copied().collect::<Vec<_>>() {
            self.send_on(node, to, SenderInput::Tick { reaped });
        }
    }

    fn send_on(&mut self, node: usize, to: usize, input: SenderInput) {
        let mut out = Vec::new();
        if let Some(sender) = self.nodes[node].senders.get_mut(&to) {
            sender.step(input, self.now, &mut out);
        }
        self.on_sent(node, to, out);
    }

    fn on_sent(&mut self, node: usize, to: usize, out: Vec<SenderOutput>) {
        let voter = self.known(node, to);
        for output in out {
            match output {
                SenderOutput::Send(message) => self.send(node, to, Wire::ToReceiver(message)),
                SenderOutput::Begun { base } => self.step(node, Input::CatchUpBegun { voter, base }),
                SenderOutput::Fold { number, above, after } => {
                    let (life, delay) = (self.nodes[node].life, self.rng.below(200 * MILLISECOND));
                    let fold = Fold { to, number, above, after };
                    self.after(delay, Event::Fold { node, life, fold });
                }
                SenderOutput::CaughtUp { index, term } => {
                    self.count("caught up");
                    self.step(node, Input::CaughtUp { voter, index, term });
                }
                SenderOutput::Broken => {
                    self.nodes[node].senders.remove(&to);
                    self.step(node, Input::CatchUpBroken { voter });
                }
            }
        }
    }

    /// Folds a few keys.
    pub(super) fn fold(&mut self, node: usize, Fold { to, number, above, after }: Fold) {
        let Some(applied) = self.nodes[node].group.as_ref().and_then(Group::applied_entry) else { return };
        let count = 1 + self.below(2);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let table = self.nodes[node].table.range((from, Bound::Unbounded));
        let newer = table.filter(|(_, (version, _))| version.index() > above);
        let mut items: Vec<Item> = newer
            .map(|(key, &(version, value))| {
                let object = value.map(|value| Bytes::copy_from_slice(&value.to_le_bytes()));
                Item { key: key.clone(), version, object }
            })
            .take(count + 1)
            .collect();
        let is_last = items.len() <= count;
        items.truncate(count);
        if items.iter().any(|item| self.nodes[node].damaged.contains(&item.key)) {
            let voter = self.known(node, to);
            if self.nodes[node].senders.get(&to).is_some_and(|sender| sender.number() == number) {
                self.nodes[node].senders.remove(&to);
                self.step(node, Input::CatchUpBroken { voter });
            }
            return self.step(node, Input::Unreadable);
        }
        self.send_on(node, to, SenderInput::Folded { number, applied, items, is_last });
    }

    pub(super) fn receive(&mut self, node: usize, input: ReceiverInput) {
        let mut out = Vec::new();
        self.nodes[node].receiver.step(input, &mut out);
        self.on_received(node, out);
    }

    pub(super) fn on_received(&mut self, node: usize, out: Vec<ReceiverOutput>) {
        for output in out {
            match output {
                ReceiverOutput::Receiving { is_incomplete } => {
                    self.count(if is_incomplete { "refill" } else { "receive" });
                    self.step(node, Input::Receiving { is_incomplete });
                }
                ReceiverOutput::Write { drops, items, checkpoint } => {
                    if checkpoint.place != Place::Begin {
                        self.count("part");
                    }
                    self.write_part(node, drops, items, checkpoint);
                }
                ReceiverOutput::Received { index, term } => {
                    self.step(node, Input::Received { index, term });
                }
                ReceiverOutput::Send(message) => {
                    if let Some(to) = self.nodes[node].sender {
                        self.send(node, to, Wire::ToSender(message));
                    }
                }
                ReceiverOutput::Forget => self.write_forget(node),
            }
        }
    }

    /// Lets leaders reap.
    pub(super) fn reap(&mut self) {
        let Some(every) = self.limits.reap_every else { return };
        let next = self.rng.below(2 * every);
        self.after(next, Event::Reap);
        let silence = self.limits.reap_silence;
        for node in 0..self.nodes.len() {
            if self.nodes[node].group.as_ref().is_some_and(Group::leads) {
                self.step(node, Input::Reap { silence });
            }
        }
    }

    pub(super) fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }
}
