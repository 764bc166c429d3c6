//! The library, driven: its writes, messages, committed entries and role.
//!
//! 1. [`Group::drain`] hands out the library's writes, the messages that may leave and the committed entries, until
//!    there are no more.
//! 2. [`Group::on_persisted`] tells the library how far its writes are synced, and releases the messages that waited
//!    for it.
//! 3. [`Group::on_time`] begins elections and sends heartbeats.

use std::time::Duration;

use base::Monotonic;
use raft::{ProgressState, Ready, StateRole, eraftpb};

use super::configuration::Configuration;
use super::entry::{Entry, Payload};
use super::identity::VoterId;
use super::message::{self, Message};
use super::state::{GroupState, HardState};
use super::{Batch, Group, Install, Output};

impl Group {
    /// Does all that the library wants done.
    pub(super) fn drain(&mut self, now: Monotonic) {
        self.follow_role(now);
        while self.raw.has_ready() {
            let mut ready = self.raw.ready();
            let number = ready.number();
            let appended = ready.take_entries();
            let entries: Vec<Entry> = appended.iter().map(Entry::of_library).collect();
            let has_configuration = entries.iter().any(|entry| entry.payload.configuration().is_some());
            let has_write = self.persist(&ready, entries, &appended, now);
            self.send_all(ready.take_messages(), now);
            let released = self.outbox.hold(number, has_write, ready.take_persisted_messages());
            self.send_all(released, now);

            let committed = ready.take_committed_entries();
            self.raw.advance_append_async(ready);
            self.follow_configuration(!appended.is_empty(), has_configuration);
            if !self.outbox.has_writes() {
                self.raw.on_persist_ready(number);
            }
            self.apply(&committed);
            self.follow_role(now);
        }
        self.want_catch_ups();
        self.note_commits(now);
    }

    /// Hands out term, vote and entries to be written; whether there are any. The library has the same entries.
    fn persist(
        &mut self,
        ready: &Ready,
        entries: Vec<Entry>,
        appended: &[eraftpb::Entry],
        now: Monotonic,
    ) -> bool {
        let before = self.raw.store().hard;
        let (install, reaped) = self.install(ready).unzip();
        let reaped = entries
            .iter()
            .map(|entry| entry.payload.reaps_through())
            .fold(reaped.unwrap_or(before.reaped), u64::max);
        let (term, vote) =
            ready.hs().map_or((before.term, before.vote), |it| (it.term, VoterId::of_number(it.vote)));
        let hard = HardState { term, vote, reaped };
        if hard == before && entries.is_empty() && install.is_none() {
            return false;
        }

        let log = self.raw.mut_store();
        log.hard = hard;
        for (entry, library) in entries.iter().zip(appended) {
            log.push_of_library(entry.clone(), library);
        }
        if hard != before && vote.is_some_and(|vote| vote != self.identity.voter) {
            // The candidate that has this vote is given the time to win.
            self.timers.postpone_election(now, &mut *self.rng);
        }
        let state = (hard != before || install.is_some()).then(|| self.state()).map(|mut state| {
            state.hard.vote = state.hard.vote.filter(|_| !base::planted!(VoteNotDurable));
            state
        });
        self.write(ready.number(), state, install, entries);
        true
    }

    /// Hands out a batch.
    pub(super) fn write(
        &mut self,
        number: u64,
        state: Option<GroupState>,
        install: Option<Install>,
        entries: Vec<Entry>,
    ) {
        let before = entries.first().map_or(u64::MAX, |first| first.index - 1);
        let commit = self.commit().min(before);
        self.out.push(Output::Persist(Batch { number, state, commit, install, entries }));
    }

    /// Puts a snapshot in the place of the log; it, and the index through which tombstones are reaped then.
    fn install(&mut self, ready: &Ready) -> Option<(Install, u64)> {
        let (number, snapshot) = (ready.number(), ready.snapshot());
        if snapshot.is_empty() {
            return None;
        }
        let metadata = snapshot.get_metadata();
        let (index, term) = (metadata.index, metadata.term);
        let configuration = Configuration::of_conf_state(metadata.get_conf_state())
            .expect("it was made of one that was read");
        let log = self.raw.mut_store();
        log.install((index, term), configuration);
        let reaped = message::context_of(&snapshot.data).max(log.hard.reaped);
        self.installing = Some((number, index));
        self.on_reconfigured();
        Some((Install { index, term }, reaped))
    }

    pub(super) fn on_persisted(&mut self, number: u64, now: Monotonic) {
        let released = self.outbox.on_synced(number);
        self.raw.on_persist_ready(self.outbox.synced());
        self.on_installed();
        let persisted = self.raw.raft.raft_log.persisted;
        if self.suspect_through.is_some_and(|through| persisted >= through) {
            self.suspect_through = None;
        }
        self.send_all(released, now);
        if self.leads() && base::planted!(AckBeforeMajority) {
            self.answer_writes(persisted);
        }
    }

    /// Sends messages of the library.
    fn send_all(&mut self, messages: Vec<eraftpb::Message>, now: Monotonic) {
        for message in messages {
            let Some(to) = VoterId::of_number(message.to).filter(|to| !self.is_forgetful(*to)) else {
                continue;
            };
            let progress = self.raw.raft.prs().get(message.to);
            let matched = progress.filter(|_| self.leads()).map_or(0, |progress| progress.matched);
            let acknowledged = matched.min(self.raw.raft.raft_log.committed);
            if let Some(message) = Message::of_library(&message, acknowledged) {
                match message {
                    Message::Snapshot { .. } => self.on_snapshot_sent(to, now),
                    Message::Append { commit, .. } => self.commit_notes.on_told(to, commit),
                    _ => {}
                }
                self.send(to, message);
            }
        }
    }

    pub(super) fn send(&mut self, to: VoterId, message: Message) {
        if let Some(message) = self.as_allowed(message) {
            let number = self.lease_of_message(to, &message);
            self.out.push(Output::Send { to, message: message.encode_promised(number) });
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
        self.keep_configuration(&entries);
        self.applied = last;
        self.raw.advance_apply_to(last);
        self.out.push(Output::Apply(entries));
        self.on_applied_received();
        self.answer_writes(last);
    }

    /// Notes another term or role.
    fn follow_role(&mut self, now: Monotonic) {
        let (term, role) = (self.raw.raft.term, self.raw.raft.state);
        if self.role == (term, role) {
            return;
        }
        if self.role.1 == StateRole::Leader {
            self.on_leadership_lost();
        } else {
            self.end_reads();
        }
        if role == StateRole::Leader {
            self.leads_since = now;
        }
        let before = self.role.0;
        self.role = (term, role);
        self.follow_role_of_lease((term, role), before);
    }

    /// Begins an election or sends heartbeats, if they are due; whether the library has something to do.
    pub(super) fn on_time(&mut self, now: Monotonic) -> bool {
        if self.calls_for_leader() {
            if self.timers.take_election(now, &mut *self.rng) {
                self.call_for_leader();
            }
            return false;
        }
        let is_due = if self.leads() {
            self.timers.take_heartbeat(now)
        } else {
            self.may_campaign()
                && self.timers.take_election(now, &mut *self.rng)
                && self.may_begin_candidacy(now)
        };
        if is_due && self.leads() {
            self.send_heartbeats(now);
        } else if is_due {
            // The library refuses only to a leader.
            drop(self.raw.campaign());
        }
        is_due
    }

    /// Sends heartbeats to the voters that are due, and resigns if no majority is heard.
    ///
    /// Followers that hear a leader do not look for another one. So one that does not hear them has to tell them.
    fn send_heartbeats(&mut self, now: Monotonic) {
        self.raw.ping();
        let (timers, raft) = (&mut self.timers, &mut self.raw.raft);
        let mut messages = std::mem::take(&mut raft.msgs);
        let is_skipped = |to| {
            let progress = raft.prs().get(to);
            base::planted!(ProbePaused) && progress.is_some_and(|it| it.state == ProgressState::Probe)
        };
        let mut is_due = |to| VoterId::of_number(to).is_some_and(|to| timers.sends_heartbeat(to, now));
        messages.retain(|message| is_due(message.to) && !is_skipped(message.to));
        raft.msgs = messages;
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
        self.is_majority(|voter| voter == self.identity.voter || self.reaches(voter))
    }

    /// Whether the voters that count are a majority of each half of the configuration.
    pub(super) fn is_majority(&self, counts: impl Fn(VoterId) -> bool) -> bool {
        self.members().is_majority(counts)
    }

    /// The voters of both halves of the configuration; one of both comes twice.
    pub(super) fn voters(&self) -> impl Iterator<Item = VoterId> {
        let configuration = self.members();
        configuration.voters.iter().chain(&configuration.outgoing).copied()
    }

    /// Whether this voter may stand for election: it hears voters enough to win.
    ///
    /// A group's only voter wins at once, and the library demands that all its entries are written then.
    fn may_campaign(&self) -> bool {
        let is_alone = self.members().voters.len() == 1;
        let is_left_to_others = self.is_leaving() && !is_alone;
        self.may_lead()
            && self.reaches_majority()
            && !is_left_to_others
            && !(is_alone && self.outbox.has_writes())
    }

    /// Has this voter stand for election now, unless another one leads or its store lacks keys.
    pub(super) fn on_wanted(&mut self, now: Monotonic) {
        if self.leader().is_none() && !self.lacks_keys() {
            self.timers.stand_at(now);
        }
    }

    /// Sets the timers by role.
    pub(super) fn set_timers(&mut self, now: Monotonic) {
        self.is_settled = self.settles();
        if self.leads() {
            self.timers.lead(self.is_settled, now);
        } else if self.calls_for_leader() {
            // The others need no call if they stand for election by themselves.
            let place = self.identity.rank + u32::try_from(self.members().voters.len()).unwrap_or(u32::MAX);
            self.timers.seek_leader(place, now, &mut *self.rng);
        } else if self.leader().is_some_and(|leader| self.reaches(leader)) || !self.may_campaign() {
            self.timers.follow();
        } else {
            // Places count from the end of the promise: else a voter with a later one may come first.
            let wait = if self.timers.seeks_leader() { Duration::ZERO } else { self.wait_of_promise() };
            self.timers.seek_leader(self.place(), now + wait, &mut *self.rng);
        }
    }
}
