//! The library, driven: its writes, messages, committed entries and role.
//!
//! 1. [`Group::drain`] hands out the library's writes, the messages that may leave and the committed entries, until
//!    there are no more.
//! 2. [`Group::on_persisted`] tells the library how far its writes are synced, and releases the messages that waited
//!    for it.
//! 3. [`Group::on_time`] begins elections and sends heartbeats.

use std::collections::BTreeSet;

use base::Monotonic;
use raft::{Ready, StateRole, eraftpb};

use super::entry::{Entry, Payload};
use super::identity::VoterId;
use super::message::{self, Message};
use super::state::HardState;
use super::{Batch, Group, Output};

impl Group {
    /// Does all that the library wants done.
    pub(super) fn drain(&mut self, now: Monotonic) {
        self.follow_role();
        while self.raw.has_ready() {
            let mut ready = self.raw.ready();
            let number = ready.number();
            let has_write = self.persist(&mut ready, now);
            self.send_all(ready.take_messages());
            let released = self.outbox.hold(number, has_write, ready.take_persisted_messages());
            self.send_all(released);

            let confirmed = ready.take_read_states();
            let committed = ready.take_committed_entries();
            self.raw.advance_append_async(ready);
            if !self.outbox.has_writes() {
                self.raw.on_persist_ready(number);
            }
            self.apply(&committed);
            for read in confirmed {
                self.on_confirmed(message::context_of(&read.request_ctx), read.index);
            }
            self.follow_role();
        }
        self.serve();
    }

    /// Hands out term, vote and entries to be written; whether there are any.
    fn persist(&mut self, ready: &mut Ready, now: Monotonic) -> bool {
        let before = self.raw.store().hard;
        let entries: Vec<Entry> = ready.take_entries().iter().map(Entry::of_library).collect();
        let reaped = entries.iter().map(|entry| entry.payload.reaps_through()).fold(before.reaped, u64::max);
        let (term, vote) =
            ready.hs().map_or((before.term, before.vote), |it| (it.term, VoterId::of_number(it.vote)));
        let hard = HardState { term, vote, reaped };
        if hard == before && entries.is_empty() {
            return false;
        }

        let log = self.raw.mut_store();
        log.hard = hard;
        entries.iter().for_each(|entry| log.push(entry.clone()));
        if hard != before && vote.is_some_and(|vote| vote != self.identity.voter) {
            // The candidate that has this vote is given the time to win.
            self.timers.postpone_election(now, &mut *self.rng);
        }
        let state = (hard != before).then(|| self.state()).map(|mut state| {
            state.hard.vote = state.hard.vote.filter(|_| !base::planted!(VoteNotDurable));
            state
        });
        self.out.push(Output::Persist(Batch { number: ready.number(), state, entries }));
        true
    }

    pub(super) fn on_persisted(&mut self, number: u64) {
        let released = self.outbox.on_synced(number);
        self.raw.on_persist_ready(self.outbox.synced());
        let persisted = self.raw.raft.raft_log.persisted;
        if self.suspect_through.is_some_and(|through| persisted >= through) {
            self.suspect_through = None;
        }
        self.send_all(released);
        if self.leads() && base::planted!(AckBeforeMajority) {
            self.answer_writes(persisted);
        }
    }

    /// Sends messages of the library.
    fn send_all(&mut self, messages: Vec<eraftpb::Message>) {
        for message in messages {
            let Some(to) = VoterId::of_number(message.to).filter(|to| !self.is_forgetful(*to)) else {
                continue;
            };
            let progress = self.raw.raft.prs().get(message.to);
            let matched = progress.filter(|_| self.leads()).map_or(0, |progress| progress.matched);
            let acknowledged = matched.min(self.raw.raft.raft_log.committed);
            if let Some(message) = Message::of_library(&message, acknowledged) {
                self.send(to, message);
            }
        }
    }

    pub(super) fn send(&mut self, to: VoterId, message: Message) {
        if let Some(message) = self.as_allowed(message) {
            self.out.push(Output::Send { to, message: message.encode() });
        }
    }

    /// Hands out committed entries.
    fn apply(&mut self, committed: &[eraftpb::Entry]) {
        let Some(last) = committed.last().map(|last| last.index) else { return };
        debug_assert_eq!(committed[0].index, self.applied + 1, "entries are applied in order");
        let entries: Vec<Entry> = committed.iter().map(Entry::of_library).collect();
        for entry in &entries {
            if let Payload::Write(write) = &entry.payload {
                self.overlay.on_applied(&write.key, entry.index);
            }
        }
        self.applied = last;
        self.raw.advance_apply_to(last);
        self.out.push(Output::Apply(entries));
        self.answer_writes(last);
    }

    /// Notes another term or role.
    fn follow_role(&mut self) {
        let (term, role) = (self.raw.raft.term, self.raw.raft.state);
        if self.role == (term, role) {
            return;
        }
        if self.role.1 == StateRole::Leader {
            self.on_leadership_lost();
        }
        self.role = (term, role);
    }

    /// Begins an election or sends heartbeats, if they are due.
    pub(super) fn on_time(&mut self, now: Monotonic) {
        if self.leads() {
            if self.timers.take_heartbeat(now) {
                self.send_heartbeats(now);
            }
        } else if self.may_campaign() && self.timers.take_election(now, &mut *self.rng) {
            // The library refuses only to a leader.
            drop(self.raw.campaign());
        }
    }

    /// Sends heartbeats to the voters that are due, and resigns if no majority is heard.
    ///
    /// Followers that hear a leader do not look for another one. So one that does not hear them has to tell them.
    fn send_heartbeats(&mut self, now: Monotonic) {
        self.raw.ping();
        let timers = &mut self.timers;
        let mut is_due = |to| VoterId::of_number(to).is_some_and(|to| timers.sends_heartbeat(to, now));
        self.raw.raft.msgs.retain(|message| is_due(message.to));
        if self.reaches_majority() {
            return;
        }
        let due: Vec<u64> = self.raw.raft.msgs.iter().map(|message| message.to).collect();
        let term = self.term();
        for to in due.into_iter().filter_map(VoterId::of_number) {
            self.send(to, Message::Resigned { term });
        }
    }

    /// Whether the voters that can be reached, this one included, are a majority.
    pub(super) fn reaches_majority(&self) -> bool {
        let configuration = &self.raw.store().configuration;
        let is_reached = |voter: &&VoterId| **voter == self.identity.voter || self.timers.reaches(**voter);
        let is_majority = |voters: &BTreeSet<VoterId>| {
            voters.is_empty() || voters.iter().filter(is_reached).count() > voters.len() / 2
        };
        is_majority(&configuration.voters) && is_majority(&configuration.outgoing)
    }

    /// Whether this voter may stand for election: it hears voters enough to win.
    ///
    /// A group's only voter wins at once, and the library demands that all its entries are written then.
    fn may_campaign(&self) -> bool {
        let is_alone = self.raw.store().configuration.voters.len() == 1;
        self.may_vote() && self.reaches_majority() && !(is_alone && self.outbox.has_writes())
    }

    /// Sets the timers by role.
    pub(super) fn set_timers(&mut self, now: Monotonic) {
        if self.leads() {
            let is_settled = self.is_settled();
            self.timers.lead(is_settled, now);
        } else if !self.may_campaign() || self.leader().is_some_and(|leader| self.timers.reaches(leader)) {
            self.timers.follow();
        } else {
            self.timers.seek_leader(self.identity.rank, now, &mut *self.rng);
        }
    }
}
