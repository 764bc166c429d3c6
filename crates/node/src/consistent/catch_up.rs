//! Catch-up of voters that fell far behind: the store's part in it.
//!
//! Sender: parts are made of the store's keys (`outgoing_part.rs`).
//! Receiver: parts (`incoming_part.rs`) and records go to the journal (`journal.rs`).

use std::collections::BTreeSet;
use std::ops::Range;

use base::Monotonic;
use bytes::Bytes;
use engine::Seq;
use engine::fold::{ScanId, ScanPage, ScanRequest, Visit};
use object::key;
use strong::catch_up::{
    CatchUpContents, CatchUpMessage, Place, ReceiverInput, ReceiverOutput, Sender, SenderInput, SenderOutput,
    ToSender,
};
use strong::group::{Input, VoterId};

use super::group::GroupKey;
use super::journal::{drop_keys, ranges_of, types_of};
use super::links::{endpoint_here, endpoint_of, voter_of};
use super::open::epoch_of;
use super::outgoing_part::{OutgoingParts, WantedPart};
use super::reaping::TombstoneSearch;
use super::{ConsistentGroups, Todo};
use crate::hop::ShardId;
use crate::peer::{NodeId, PeerMessage};
use crate::shard::env::Env;
use crate::shard::owners::ScanOwner;

/// A scan for a group.
pub(super) enum Scan {
    /// Of a part.
    Part(WantedPart),
    /// Of tombstones.
    Tombstones(TombstoneSearch),
}

/// Ends of catch-ups that have something to do, by time and state.
#[derive(Default)]
pub(super) struct Transfers {
    /// Sending ends.
    senders: BTreeSet<(GroupKey, VoterId)>,
    /// Parts on their way to a sending end.
    pub(super) parts: OutgoingParts,
}

impl ConsistentGroups {
    /// Begins to bring a voter up to date.
    pub(super) fn begin_catch_up(&mut self, env: &mut Env, key: GroupKey, voter: VoterId) {
        let (number, now) = (env.rng.next_u64(), env.now());
        let Some(held) = self.groups.get_mut(&key) else { return };
        let mut outputs = Vec::new();
        let sender = Sender::begin(number, held.group.reaped(), now, &mut outputs);
        held.senders.insert(voter, sender);
        self.transfers.senders.insert((key, voter));
        env.counters.consistent_catch_ups += 1;
        self.carry_out_sent(env, key, voter, outputs);
    }

    pub(super) fn end_catch_up(&mut self, key: GroupKey, voter: VoterId) {
        if let Some(held) = self.groups.get_mut(&key) {
            held.senders.remove(&voter);
        }
        self.transfers.senders.remove(&(key, voter));
    }

    /// When a sending end has something to do.
    pub(super) fn catch_up_timer(&self) -> Option<Monotonic> {
        let senders = self.transfers.senders.iter();
        senders.filter_map(|(key, voter)| self.groups.get(key)?.senders.get(voter)?.next_timer()).min()
    }

    /// Lets sending ends take their time.
    pub(super) fn tick_catch_ups(&mut self, env: &mut Env, now: Monotonic) {
        for (key, voter) in self.transfers.senders.clone() {
            let Some(held) = self.groups.get(&key) else {
                self.transfers.senders.remove(&(key, voter));
                continue;
            };
            let reaped = held.group.reaped();
            if held.senders.get(&voter).and_then(Sender::next_timer).is_some_and(|at| at <= now) {
                self.step_sender(env, key, voter, SenderInput::Tick { reaped });
            }
        }
        self.begin_pages(env);
    }

    pub(super) fn step_sender(&mut self, env: &mut Env, key: GroupKey, voter: VoterId, input: SenderInput) {
        let now = env.now();
        let sender = self.groups.get_mut(&key).and_then(|held| held.senders.get_mut(&voter));
        let Some(sender) = sender else { return };
        let mut outputs = Vec::new();
        sender.step(input, now, &mut outputs);
        self.carry_out_sent(env, key, voter, outputs);
    }

    fn carry_out_sent(&mut self, env: &mut Env, key: GroupKey, voter: VoterId, outputs: Vec<SenderOutput>) {
        for output in outputs {
            match output {
                SenderOutput::Send(message) => {
                    self.send_catch_up(env, key, voter.node, CatchUpContents::ToReceiver(message));
                }
                SenderOutput::Begun { base } => {
                    self.todo.push_front(Todo::Step(key, Input::CatchUpBegun { voter, base }));
                }
                SenderOutput::Fold { number, above, after } => {
                    self.want_page(env, key, (voter, number), above, after);
                }
                SenderOutput::CaughtUp { index, term } => {
                    self.todo.push_back(Todo::Step(key, Input::CaughtUp { voter, index, term }));
                }
                SenderOutput::Broken => {
                    self.end_catch_up(key, voter);
                    self.todo.push_back(Todo::Step(key, Input::CatchUpBroken { voter }));
                }
            }
        }
    }

    fn send_catch_up(&mut self, env: &mut Env, key: GroupKey, node: NodeId, contents: CatchUpContents) {
        let Some(held) = self.groups.get(&key) else { return };
        let Some(to) = endpoint_of(env, node, key.prefix) else { return };
        let message = CatchUpMessage { from: endpoint_here(env), to, group: held.id, contents };
        env.send(node, PeerMessage::CatchUp { to: ShardId(to.shard), message: message.encode() });
    }

    /// Takes a message of a catch-up.
    pub fn on_catch_up(&mut self, env: &mut Env, from: NodeId, message: Bytes) {
        let Ok(message) = CatchUpMessage::read(message) else {
            env.counters.consistent_malformed += 1;
            return;
        };
        let CatchUpMessage { from: sender, to, group, contents } = message;
        let is_known = env.agreement.processes.get(&from).is_some_and(|it| it.life == sender.life);
        let epoch = epoch_of(env, &group);
        let key = GroupKey { n_val: group.n_val, prefix: group.prefix };
        let is_ours = env.knobs.layout.shard_of(group.prefix) == env.knobs.id.0;
        if !is_known || to != endpoint_here(env) || epoch.is_none() || !is_ours {
            return;
        }
        if types_of(env, key.n_val).is_empty() {
            // Without the names of the bucket types no key is dropped or sent. The sender sends again.
            return;
        }
        if !self.open_in(env, key, epoch) || self.groups[&key].is_held() {
            // The sender sends again.
            return self.run(env);
        }

        let held = &self.groups[&key];
        let (applied, reaped) = (held.group.applied(), held.group.reaped());
        let is_unreadable = held.group.is_unreadable() || has_losses(env, key, held.dropped_at);
        match contents {
            CatchUpContents::ToReceiver(message) if !held.group.leads() => {
                self.groups.get_mut(&key).expect("it is open").sender = Some(from);
                self.receive(env, key, ReceiverInput::Message { message, applied, reaped, is_unreadable });
            }
            CatchUpContents::ToReceiver(_) => {}
            CatchUpContents::ToSender(message) => {
                if let Some(voter) = voter_of(env, from, key.prefix) {
                    self.on_receiver_answer(env, key, voter, message, (reaped, applied));
                }
            }
        }
        self.run(env);
    }

    fn on_receiver_answer(
        &mut self,
        env: &mut Env,
        key: GroupKey,
        voter: VoterId,
        message: ToSender,
        (reaped, applied): (u64, u64),
    ) {
        self.step_sender(env, key, voter, SenderInput::Message { message, reaped, applied });
    }

    /// Gives the receiving end of a group an input.
    pub(super) fn receive(&mut self, env: &mut Env, key: GroupKey, input: ReceiverInput) {
        let Some(held) = self.groups.get_mut(&key) else { return };
        let mut outputs = Vec::new();
        held.receiver.step(input, &mut outputs);
        self.carry_out_received(env, key, outputs);
    }

    /// Tells the receiving end how far entries are applied.
    pub(super) fn follow_receiver(&mut self, env: &mut Env, key: GroupKey) {
        let Some(held) = self.groups.get(&key).filter(|held| held.checkpoint.is_some()) else { return };
        let index = held.group.applied();
        self.receive(env, key, ReceiverInput::Applied { index });
    }

    pub(super) fn carry_out_received(&mut self, env: &mut Env, key: GroupKey, outputs: Vec<ReceiverOutput>) {
        for output in outputs {
            match output {
                ReceiverOutput::Receiving { is_incomplete } => {
                    self.step(env, key, Input::Receiving { is_incomplete });
                }
                ReceiverOutput::Write { drops, items, checkpoint } => {
                    if let Some(held) = self.groups.get_mut(&key) {
                        held.checkpoint = Some(checkpoint);
                    }
                    self.take_part(env, key, drops, items);
                }
                ReceiverOutput::Received { index, term } => {
                    self.todo.push_back(Todo::Step(key, Input::Received { index, term }));
                }
                ReceiverOutput::Send(message) => {
                    if let Some(sender) = self.groups.get(&key).and_then(|held| held.sender) {
                        self.send_catch_up(env, key, sender, CatchUpContents::ToSender(message));
                    }
                }
                ReceiverOutput::Forget => {
                    if let Some(held) = self.groups.get_mut(&key) {
                        held.checkpoint = None;
                    }
                    self.write_state(env, key);
                }
            }
        }
    }

    /// Drops the keys of a group whose record says that they are dropped, and of which no part is there.
    pub(super) fn drop_keys_again(&mut self, env: &mut Env, key: GroupKey) {
        let has_parts = self.groups[&key].checkpoint.as_ref().is_some_and(|it| it.place != Place::Begin);
        if has_parts {
            return;
        }
        match drop_keys(env, key) {
            Ok(seq) => self.groups.get_mut(&key).expect("it is open").dropped_at = seq,
            // Without the drop it must not be refilled. It is opened again with the next message.
            Err(_) => drop(self.groups.remove(&key)),
        }
    }

    /// The version with which this voter has dropped a group's keys last; 0 for never.
    pub(super) fn dropped_at(&self, key: GroupKey) -> Seq {
        self.groups.get(&key).map_or(Seq(0), |held| held.dropped_at)
    }

    /// Begins a scan of a group's keys; `None` if the store refuses it, whose damage is noted.
    pub(super) fn scan(
        &mut self,
        env: &mut Env,
        key: GroupKey,
        keys: Range<Bytes>,
        items_max: usize,
        visitor: impl FnMut(&[u8], &[u8]) -> Visit + Send + 'static,
    ) -> Option<ScanId> {
        let visitor = Box::new(visitor);
        let (start, end) = (keys.start, keys.end);
        let request = ScanRequest { start, end, items_max, visitor, past_losses: false };
        let begun = env.store.scan_since(request, self.dropped_at(key));
        // A store that lost keys refuses the scan. Without a request, no read would meet the loss.
        self.note_damage(key, &begun);

        let id = begun.ok()?;
        env.scan_owners.note(id, ScanOwner::ConsistentGroups);
        Some(id)
    }

    /// Has a group get its keys from another voter if one of them cannot be read.
    pub(super) fn note_damage<T>(&mut self, key: GroupKey, found: &Result<T, engine::Error>) {
        if is_damage(found) {
            self.todo.push_back(Todo::Step(key, Input::Unreadable));
        }
    }

    /// Takes a page of a scan.
    pub fn on_scan(&mut self, env: &mut Env, id: ScanId, page: Result<ScanPage, engine::Error>) {
        match (self.scans.remove(&id), page) {
            (Some(Scan::Part(wanted)), Ok(page)) => self.gather(env, wanted, &page),
            (Some(Scan::Part(wanted)), Err(error)) => {
                self.note_damage(wanted.key, &Err::<(), _>(error));
                self.break_catch_up(wanted.key, (wanted.voter, wanted.number));
            }
            (Some(Scan::Tombstones(search)), Ok(page)) => self.reap_page(env, search, page),
            // The next reaping removes the rest.
            (Some(Scan::Tombstones(_)) | None, _) => {}
        }
        self.run(env);
    }
}

/// Whether the store may have lost keys of a group, which it dropped last with the version `dropped_at`.
fn has_losses(env: &Env, key: GroupKey, dropped_at: Seq) -> bool {
    let is_lost =
        |range: &key::KeyRange| env.store.check_range_since(&range.start, &range.end, dropped_at).is_err();
    ranges_of(env, key).iter().any(is_lost)
}

/// Whether a lookup met damage, and not an error that passes.
fn is_damage<T>(found: &Result<T, engine::Error>) -> bool {
    matches!(found, Err(engine::Error::Damaged(_)))
}

/// Whether a ledger key is of one of these bucket types.
pub(super) fn is_of(types: &BTreeSet<Bytes>, ledger_key: &[u8]) -> bool {
    key::bucket_type_of(ledger_key).is_some_and(|name| types.contains(&*name))
}
