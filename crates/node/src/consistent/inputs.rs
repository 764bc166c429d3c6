//! Inputs of the groups: messages of other nodes, requests, answers of the store, changes of nodes and of the
//! agreement, and those of operators.
//!
//! A message of a process that is not the registered one of its node is dropped. So is one of a store that the node has
//! not registered, and one to another process or shard than this one.

use base::Monotonic;
use bytes::Bytes;
use engine::fold::{ScanId, ScanPage};
use engine::store::LookupId;
use engine::{Error, Found};
use kv::Request;
use strong::Endpoint;
use strong::catch_up::{CatchUpContents, CatchUpMessage, ReceiverInput, SenderInput};
use strong::envelope::Envelope;
use strong::group::{Birth, Input};
use strong::promise::{Block, Process};
use strong::wake::Urgency;

use super::ConsistentGroups;
use super::adopt::{self, AdoptError, AdoptedGroups, Adoption};
use super::group::GroupKey;
use super::journal::{GroupJournal, index_of};
use super::keys::{has_losses, types_of};
use super::lookups::WaitingLookup;
use super::pending::Pending;
use super::reaping::reap_key;
use super::registration::RegistrationChange;
use super::voters::{endpoint_here, epoch_of, is_here, is_of_another_store, is_registered, voter_of};
use crate::liveness::promises;
use crate::peer::{AskId, LeaderAnswer, NodeId};
use crate::request::place::Ready;
use crate::shard::env::Env;

impl ConsistentGroups {
    /// Begins a client's request on a key of a consistent type.
    pub fn begin(&mut self, env: &mut Env, ready: Ready) {
        let Ready { reply_to, coordinator, prefix, props, times } = ready;
        let request = coordinator.into_request();
        match &request {
            Request::Get(_) => env.counters.consistent_gets += 1,
            _ => env.counters.consistent_puts += 1,
        }
        let pending = Pending::begin(env, reply_to, request, prefix, props, times);
        self.accept(env, pending);
    }

    /// Takes a request of another node, which takes this one for the leader's.
    pub fn on_ask_leader(
        &mut self,
        env: &mut Env,
        of: (NodeId, AskId),
        (ttl_ms, life): (u32, u64),
        number: Option<(Endpoint, u64)>,
        request: Request,
    ) {
        if let Some(pending) = self.requests.admit(env, of, (ttl_ms, life), number, request) {
            self.accept(env, pending);
        }
    }

    fn accept(&mut self, env: &mut Env, pending: Pending) {
        env.activity.note_client(pending.begun);
        env.deadlines.note(pending.times.deadline);
        self.dispatch(env, pending);
        self.run(env);
    }

    /// Takes the answer of a node that was asked.
    pub fn on_leader_answer(&mut self, env: &mut Env, from: NodeId, name: u64, answer: LeaderAnswer) {
        if self.requests.on_answer(&mut self.shared.with(env), from, name, answer) {
            self.run(env);
        }
    }

    /// A node has lost the questions that it was asked.
    pub fn on_questions_lost(&mut self, env: &mut Env, node: NodeId) {
        self.requests.on_lost(env, &mut self.shared.work, node);
        self.run(env);
    }

    /// Ends requests past their deadline.
    pub fn expire(&mut self, env: &mut Env, now: Monotonic) {
        if self.requests.expire(env, now) {
            self.run(env);
        }
    }

    /// Takes an envelope of a store of another node. Its birth is missing if the node's program is older.
    pub fn on_envelope(
        &mut self,
        env: &mut Env,
        (from, birth): (NodeId, Option<Birth>),
        block: Option<Block>,
        envelope: Bytes,
    ) {
        let Ok(envelope) = Envelope::read(envelope) else {
            env.counters.consistent_malformed += 1;
            return;
        };
        let life = envelope.from.life;
        if !is_registered(env, from, life) || envelope.to != endpoint_here(env) {
            return;
        }
        // First of all: the answers of groups name the promise that the envelope renews.
        if let Some(block) = block {
            promises::hear(env, Process { node: from, life }, &block);
        }
        for (id, message) in envelope.messages {
            let key = GroupKey { n_val: id.n_val, prefix: id.prefix };
            let epoch = epoch_of(env, &id);
            let is_foreign = is_of_another_store(env, (from, birth), id.prefix);
            if epoch.is_none() || !is_here(env, id.prefix) || is_foreign {
                continue;
            }
            if !self.open_in(env, key, epoch) {
                self.closed.answer(env, &mut self.links, (from, id), key, message);
                continue;
            }
            if let Some(from) = voter_of(env, from, id.prefix) {
                self.shared.work.step(key, Input::MessageOf { from, life, message });
            }
        }
        self.run(env);
    }

    /// Tells groups that messages to a peer did not leave.
    pub fn on_bounced(&mut self, env: &mut Env, to: NodeId, envelope: Bytes) {
        let Ok(envelope) = Envelope::read(envelope) else { return };
        for (id, _) in envelope.messages {
            let key = GroupKey { n_val: id.n_val, prefix: id.prefix };
            let Some(voter) = voter_of(env, to, id.prefix) else { continue };
            // The library sends lost messages again.
            for is_up in [false, self.reach.reaches(env, key, voter)] {
                self.shared.work.step(key, Input::Reachable { voter, is_up });
            }
        }
        self.run(env);
    }

    /// Takes a message of a catch-up. A sender whose message is dropped sends it again.
    pub fn on_catch_up(&mut self, env: &mut Env, from: NodeId, message: Bytes) {
        let Ok(message) = CatchUpMessage::read(message) else {
            env.counters.consistent_malformed += 1;
            return;
        };
        let CatchUpMessage { from: sender, to, group, contents } = message;
        let epoch = epoch_of(env, &group);
        let key = GroupKey { n_val: group.n_val, prefix: group.prefix };
        let is_addressed = to == endpoint_here(env) && epoch.is_some() && is_here(env, group.prefix);
        if !is_registered(env, from, sender.life) || !is_addressed {
            return;
        }
        if types_of(env, key.n_val).is_empty() {
            // Without the names of the bucket types no key is dropped or sent.
            return;
        }
        let is_open = self.open_in(env, key, epoch);
        let held = self.shared.groups.get_mut(key).filter(|held| is_open && !held.is_held());
        let Some(held) = held else { return self.run(env) };

        let (applied, reaped) = (held.group.applied(), held.group.reaped());
        match contents {
            CatchUpContents::ToReceiver(message) if !held.group.leads() => {
                held.sender = Some(from);
                let is_unreadable = held.group.is_unreadable() || has_losses(env, key, held.dropped_at);
                self.receive(env, key, ReceiverInput::Message { message, applied, reaped, is_unreadable });
            }
            CatchUpContents::ToReceiver(_) => {}
            CatchUpContents::ToSender(message) => {
                if let Some(voter) = voter_of(env, from, key.prefix) {
                    let input = SenderInput::Message { message, reaped, applied };
                    self.catch_ups.step(&mut self.shared.with(env), key, voter, input);
                }
            }
        }
        self.run(env);
    }

    /// Handles an answer of the store to a lookup, if a request or a group of a consistent type waits for it.
    pub fn on_lookup(
        &mut self,
        env: &mut Env,
        id: LookupId,
        answer: Result<Option<Found>, Error>,
    ) -> Option<Result<Option<Found>, Error>> {
        if self.shared.lookups.is_empty() {
            return Some(answer);
        }
        let Some(lookup) = self.shared.lookups.take(id) else { return Some(answer) };
        let cx = &mut self.shared.with(env);
        match lookup {
            WaitingLookup::Read { pending, epoch } => self.requests.end_read(cx, *pending, epoch, answer),
            WaitingLookup::Write { pending, plan, applied } => {
                self.requests.on_write_found(cx, pending, *plan, applied, answer);
            }
            WaitingLookup::Apply { group, key } => {
                let version = answer.ok().flatten().map(|found| index_of(&found.head));
                if let Some(held) = cx.groups.get_mut(group) {
                    held.known.insert(key, version);
                    self.resume(env, group);
                }
            }
            WaitingLookup::Part { part, key } => self.catch_ups.on_found(cx, part, key, answer),
            WaitingLookup::Incoming { group, key } => {
                if cx.groups.get_mut(group).is_some_and(|held| held.part.on_late(&key, answer)) {
                    self.journal.write_part(env, &mut self.shared.groups, group);
                }
            }
            WaitingLookup::Reap { key, through } => reap_key(cx, key, through, true),
            WaitingLookup::Nobody => {}
        }
        self.run(env);
        None
    }

    /// Takes a page of a scan.
    pub fn on_scan(&mut self, env: &mut Env, id: ScanId, page: Result<ScanPage, Error>) {
        let cx = &mut self.shared.with(env);
        match self.catch_ups.take_scan(id) {
            Some(wanted) => self.catch_ups.on_page(cx, &wanted, page),
            None => self.reapings.on_page(cx, id, page),
        }
        self.run(env);
    }

    /// Takes another agreement.
    pub fn on_agreement(&mut self, env: &mut Env) {
        promises::register(env);
        match self.registration.follow(env) {
            Some(RegistrationChange::Ends) => {
                // The store is another voter from now on. It leaves all groups.
                debug_assert!(self.shared.work.is_empty(), "work is done before the next input");
                self.closed.leave_all(self.shared.groups.take_all());
                self.reapings.forget_all();
                self.journal = GroupJournal::default();
                self.links.clear();
                self.requests.end_unknown(env);
            }
            Some(RegistrationChange::Begins) => {
                for key in self.closed.found_with_entries() {
                    self.wakes.push_leaderless(key, Urgency::Other);
                }
            }
            None => {}
        }
        self.hand_overs.note_change(env.now());
        self.follow_peers(env, &env.peers.all().collect::<Vec<_>>());
        let closed = self.registration.is_in_force().then_some(&self.closed);
        self.wakes.queue_renewed(env, &self.shared.groups, closed, &self.reach, &self.requests);
        self.requests.look_for_leaders(&mut self.shared.work);
        self.run(env);
    }

    /// A node can be reached, or cannot any more.
    pub fn on_peer(&mut self, env: &mut Env, node: NodeId) {
        self.follow_peers(env, &[node]);
        self.run(env);
    }

    /// The process stops: all groups are to be led by others.
    pub fn begin_leave(&mut self, env: &mut Env) {
        let now = env.now();
        self.hand_overs.begin_leave(&self.shared.groups, &mut self.shared.work, now);
        self.run(env);
        if self.shared.groups.iter().all(|(_, held)| !held.is_held()) {
            // All have given their leases up. A group that is opened from now on does so before it leads.
            env.leases.tables.release(env.knobs.id.0);
        }
        self.links.send_envelopes(env, self.registration.birth(), now);
    }

    /// Makes this restored store the only voter of groups that were chosen for it: of the next piece of them, behind
    /// those that are written.
    pub fn adopt(
        &mut self,
        env: &mut Env,
        adoption: &Adoption,
        written: usize,
        has_birth: bool,
    ) -> Result<AdoptedGroups, AdoptError> {
        if has_birth || self.registration.is_in_force() {
            return Err(AdoptError::NotHeld);
        }
        adopt::adopt(env, &mut self.closed, adoption, written)
    }
}
