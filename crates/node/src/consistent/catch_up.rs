//! Catch-up of voters that fell far behind: the sending end. Its parts are made of the store's keys
//! (`outgoing_part.rs`).
//!
//! Left out: the receiving end (`receive.rs`), whose parts and records go to the journal.

use std::collections::BTreeSet;

use base::Monotonic;
use bytes::Bytes;
use engine::Found;
use engine::fold::{ScanId, ScanPage};
use strong::catch_up::{CatchUpContents, CatchUpMessage, Sender, SenderInput, SenderOutput};
use strong::group::{Input, VoterId};

use super::context::GroupContext;
use super::group::{GroupKey, HeldGroup};
use super::open_groups::OpenGroups;
use super::outgoing_part::{CatchUpId, GatheredPart, OutgoingParts, WantedPart};
use super::voters::{endpoint_here, endpoint_of};
use super::work::Todo;
use crate::hop::ShardId;
use crate::peer::{NodeId, PeerMessage};
use crate::shard::env::Env;

/// The sending ends of catch-ups.
#[derive(Default)]
pub(super) struct CatchUps {
    /// Those under way.
    senders: BTreeSet<(GroupKey, VoterId)>,
    /// Parts on their way to them.
    parts: OutgoingParts,
}

impl CatchUps {
    /// Begins to bring a voter up to date.
    pub fn begin(&mut self, cx: &mut GroupContext<'_>, key: GroupKey, voter: VoterId) {
        let (number, now) = (cx.env.rng.next_u64(), cx.env.now());
        let Some(held) = cx.groups.get_mut(key) else { return };
        let mut outputs = Vec::new();
        let sender = Sender::begin(number, held.group.reaped(), now, &mut outputs);
        held.senders.insert(voter, sender);
        self.senders.insert((key, voter));
        cx.env.counters.consistent_catch_ups += 1;
        self.carry_out(cx, key, voter, outputs);
    }

    /// Ends a catch-up.
    pub fn end(&mut self, groups: &mut OpenGroups, key: GroupKey, voter: VoterId) {
        if let Some(held) = groups.get_mut(key) {
            held.senders.remove(&voter);
        }
        self.senders.remove(&(key, voter));
    }

    /// When a sending end has something to do.
    pub fn next_timer(&self, groups: &OpenGroups) -> Option<Monotonic> {
        let senders = self.senders.iter();
        senders.filter_map(|(key, voter)| groups.get(*key)?.senders.get(voter)?.next_timer()).min()
    }

    /// Lets sending ends take their time.
    pub fn tick(&mut self, cx: &mut GroupContext<'_>, now: Monotonic) {
        for (key, voter) in self.senders.clone() {
            let Some(held) = cx.groups.get(key) else {
                self.senders.remove(&(key, voter));
                continue;
            };
            let reaped = held.group.reaped();
            if held.senders.get(&voter).and_then(Sender::next_timer).is_some_and(|at| at <= now) {
                self.step(cx, key, voter, SenderInput::Tick { reaped });
            }
        }
        self.begin_pages(cx);
    }

    /// Gives a sending end an input.
    pub fn step(&mut self, cx: &mut GroupContext<'_>, key: GroupKey, voter: VoterId, input: SenderInput) {
        let now = cx.env.now();
        let sender = cx.groups.get_mut(key).and_then(|held| held.senders.get_mut(&voter));
        let Some(sender) = sender else { return };
        let mut outputs = Vec::new();
        sender.step(input, now, &mut outputs);
        self.carry_out(cx, key, voter, outputs);
    }

    fn carry_out(
        &mut self,
        cx: &mut GroupContext<'_>,
        key: GroupKey,
        voter: VoterId,
        outputs: Vec<SenderOutput>,
    ) {
        for output in outputs {
            match output {
                SenderOutput::Send(message) => {
                    if let Some(held) = cx.groups.get(key) {
                        let contents = CatchUpContents::ToReceiver(message);
                        send_catch_up(cx.env, (key, held), voter.node, contents);
                    }
                }
                SenderOutput::Begun { base } => {
                    cx.work.do_next(Todo::Step(key, Input::CatchUpBegun { voter, base }));
                }
                SenderOutput::Fold { number, above, after } => {
                    let applied = cx.groups.get(key).and_then(|held| held.group.applied_entry());
                    let Some(applied) = applied else { continue };
                    let (of, seq) = (CatchUpId { key, voter, number }, cx.env.store.last_written());
                    self.parts.want(WantedPart { of, above, after, applied, seq });
                    self.begin_pages(cx);
                }
                SenderOutput::CaughtUp { index, term } => {
                    cx.work.step(key, Input::CaughtUp { voter, index, term });
                }
                SenderOutput::Broken => {
                    self.end(cx.groups, key, voter);
                    cx.work.step(key, Input::CatchUpBroken { voter });
                }
            }
        }
    }

    fn begin_pages(&mut self, cx: &mut GroupContext<'_>) {
        for of in self.parts.begin_pages(cx) {
            self.break_off(cx, of);
        }
    }

    /// Breaks a catch-up off, unless another one has taken its place.
    fn break_off(&mut self, cx: &mut GroupContext<'_>, CatchUpId { key, voter, number }: CatchUpId) {
        let sender = cx.groups.get(key).and_then(|held| held.senders.get(&voter));
        if sender.is_some_and(|sender| sender.number() == number) {
            self.end(cx.groups, key, voter);
            cx.work.step(key, Input::CatchUpBroken { voter });
        }
    }

    /// Takes the part that a scan is for.
    pub fn take_scan(&mut self, id: ScanId) -> Option<WantedPart> {
        self.parts.take_scan(id)
    }

    /// Takes the page of a part.
    pub fn on_page(
        &mut self,
        cx: &mut GroupContext<'_>,
        wanted: &WantedPart,
        page: Result<ScanPage, engine::Error>,
    ) {
        cx.work.note_damage(wanted.of.key, &page);
        match page {
            Ok(page) => {
                let part = self.parts.gather(cx, wanted, &page);
                self.on_gathered(cx, part);
            }
            Err(_) => self.break_off(cx, wanted.of),
        }
    }

    /// Takes the value of a part's key.
    pub fn on_found(
        &mut self,
        cx: &mut GroupContext<'_>,
        part: u64,
        key: Bytes,
        found: Result<Option<Found>, engine::Error>,
    ) {
        let part = self.parts.on_found(cx, part, key, found);
        self.on_gathered(cx, part);
    }

    /// Gives a part to its sending end.
    fn on_gathered(&mut self, cx: &mut GroupContext<'_>, part: Option<GatheredPart>) {
        let Some(part) = part else { return };
        let of = part.of;
        match part.into_input() {
            Some(input) => self.step(cx, of.key, of.voter, input),
            None => self.break_off(cx, of),
        }
    }
}

/// Sends a message of a group's catch-up to a node.
pub(super) fn send_catch_up(
    env: &mut Env,
    (key, held): (GroupKey, &HeldGroup),
    node: NodeId,
    contents: CatchUpContents,
) {
    let Some(to) = endpoint_of(env, node, key.prefix) else { return };
    let message = CatchUpMessage { from: endpoint_here(env), to, group: held.id, contents };
    env.send(node, PeerMessage::CatchUp { to: ShardId(to.shard), message: message.encode() });
}
