//! Messages of peers, and the checks that stand before the library.
//!
//! The library ends the process where a message contradicts its state. A peer could send, or a lost disk cause:
//! * an acknowledgment of entries that this leader does not have: dropped, since it would count for later entries;
//! * a heartbeat that commits entries that are not here: this store forgot, and says so;
//! * an answer to a vote request that did not leave yet: dropped, since the library demands that all entries are
//!   written when it begins to lead;
//! * a snapshot of which the store here does not have exactly the parts: dropped;
//! * entries behind an unknown one, numbers without bounds: refused by the reader ([`super::message`]).
//!
//! A store that is not registered hears nothing, one that forgot only says so. A suspect one neither votes nor
//! acknowledges until a leader has brought it past all that it may have acknowledged.

use base::Monotonic;
use bytes::Bytes;

use super::identity::VoterId;
use super::message::Message;
use super::{Group, Output, UNAPPLIED_BYTES_MAX, UNAPPLIED_ENTRIES_MAX};
use crate::promise::Process;

impl Group {
    /// Takes a peer's message.
    ///
    /// The life is that of its process; a group with leases needs it.
    pub(super) fn on_message(&mut self, from: VoterId, life: Option<u64>, bytes: Bytes, now: Monotonic) {
        let (message, number) = match Message::read_promised(bytes) {
            Ok(read) => read,
            Err(error) => return self.out.push(Output::Malformed { from, error }),
        };
        if !self.is_registered || !self.is_peer(from) || self.is_forgetful(from) {
            return;
        }
        if self.has_forgotten {
            return self.say_forgotten(from, &message);
        }
        if message == Message::Forgot {
            return self.on_forgot(from);
        }
        self.timers.on_heard(from);
        if self.leads() {
            self.timers.on_heard_at(from, now);
        }
        if matches!(message, Message::AppendReply { .. } | Message::HeartbeatReply { .. }) {
            self.timers.on_answer(from);
        }
        if self.lacks_acknowledged(&message) {
            if base::planted!(ForgotUnnoticed) {
                return;
            }
            self.has_forgotten = true;
            self.out.push(Output::Forgot);
            return self.say_forgotten(from, &message);
        }

        if !self.is_sane(from, &message) {
            return;
        }
        let process = Process { node: from.node, life: life.unwrap_or_default() };
        if !self.passes_guard(from, process, &message, now) {
            return;
        }
        if let Message::Refused { term, node, life, left_ms } = message {
            return match self.is_here(Process { node, life }) {
                true => self.on_asked_to_release(from, term),
                false => self.on_refused(term, left_ms, now),
            };
        }
        let message = self.within_room(message);
        if let Message::Resigned { term } = message {
            self.on_leases(from, process, &message, number);
            if term == self.term() && self.leader() == Some(from) {
                self.timers.on_resigned(term);
            }
            return;
        }
        if let Message::Incomplete { term } = message {
            return self.on_incomplete(from, term);
        }
        self.on_catch_up_answer(from, &message, now);
        if self.takes_beside(from, &message) {
            self.note_led(from, &message);
            return self.on_leases(from, process, &message, number);
        }
        if let Some(mut message) = message.to_library() {
            (message.from, message.to) = (from.number(), self.identity.voter.number());
            // The library's error says that it has no use for the message.
            drop(self.raw.step(message));
        }
        if let Message::TimeoutNow { .. } = message {
            self.note_asked_to_lead();
        }
        self.note_led(from, &message);
        self.on_leases(from, process, &message, number);
        let is_leaders = matches!(message, Message::Append { .. } | Message::Heartbeat { .. });
        if self.lacks_keys() && is_leaders && message.term() == Some(self.term()) {
            let term = self.term();
            self.send(from, Message::Incomplete { term });
        }
    }

    /// Notes a message of the leader of this term. A start of its process that was heard of late may be one before it
    /// was elected.
    fn note_led(&mut self, from: VoterId, message: &Message) {
        let is_leaders =
            matches!(message, Message::Append { .. } | Message::Heartbeat { .. } | Message::Snapshot { .. });
        if is_leaders && message.term() == Some(self.term()) && self.raw.raft.leader_id == from.number() {
            self.timers.on_led(self.term());
        }
    }

    /// Tells a leader that it must not count on this store, for as long as the store is taken for this voter.
    fn say_forgotten(&mut self, from: VoterId, message: &Message) {
        if matches!(message, Message::Append { .. } | Message::Heartbeat { .. }) {
            self.out.push(Output::Send { to: from, message: Message::Forgot.encode() });
        }
    }

    /// Whether a leader knows of an acknowledgment by this store of entries that are not here.
    ///
    /// It says so in heartbeats and appends, of its own term; no later term can have removed entries since, because
    /// they are committed. An answer to such a message is never judged: answers come late and twice.
    fn lacks_acknowledged(&self, message: &Message) -> bool {
        let (term, acknowledged) = match *message {
            Message::Heartbeat { term, commit, .. } => (term, commit),
            Message::Append { term, acknowledged, .. } => (term, acknowledged),
            _ => return false,
        };
        term >= self.term() && acknowledged > self.last().0
    }

    /// Whether the library may believe a message that a peer could send otherwise.
    fn is_sane(&self, from: VoterId, message: &Message) -> bool {
        match *message {
            // The library would go back for a late rejection, to entries that are not kept any more.
            Message::AppendReply { term, index, rejected: Some(_), .. } => {
                term != self.term() || index > self.matched(from)
            }
            Message::AppendReply { index, rejected: None, .. } => index <= self.last().0,
            Message::VoteRequest { .. } => self.may_vote(),
            Message::VoteReply { .. } => self.may_lead() && !self.outbox.has_writes(),
            Message::TimeoutNow { term } => {
                self.may_lead()
                    && !self.lacks_keys()
                    && !self.is_leaving()
                    && term == self.term()
                    && self.leader() == Some(from)
            }
            // One that is committed here is only acknowledged again.
            Message::Snapshot { last, ref configuration, .. } => {
                let is_known = last.0 < self.commit() || self.raw.store().term_at(last.0) == Some(last.1);
                (is_known && last.0 <= self.commit() || self.received == Some(last))
                    && self.installing.is_none()
                    && configuration.has(self.identity.voter)
            }
            _ => true,
        }
    }

    /// The last entry that a voter is known to have, as far as this leader knows.
    pub(super) fn matched(&self, voter: VoterId) -> u64 {
        self.raw.raft.prs().get(voter.number()).map_or(0, |progress| progress.matched)
    }

    /// An append without its entries, if there would be more unapplied ones than the bounds allow.
    ///
    /// Entries that it replaces do not count, so a voter that is full of another leader's entries takes the new ones.
    /// The message itself is never dropped. A new leader learns by the answer how far this voter is, and without it
    /// would send the same entries for ever.
    fn within_room(&self, mut message: Message) -> Message {
        if let Message::Append { previous: (previous, _), entries, .. } = &mut message {
            let unapplied = previous.saturating_sub(self.applied);
            let is_full =
                unapplied >= UNAPPLIED_ENTRIES_MAX || self.unapplied_bytes(*previous) >= UNAPPLIED_BYTES_MAX;
            if is_full {
                entries.clear();
            }
        }
        message
    }

    /// Bytes of the entries up to an index that are not applied.
    pub(super) fn unapplied_bytes(&self, through: u64) -> usize {
        self.raw.store().range(self.applied, through).map(|entry| entry.size()).sum()
    }

    /// Counts out a peer that forgot. It never takes part again under its birth, so this may be heard late or twice.
    fn on_forgot(&mut self, from: VoterId) {
        self.forgetful.insert(from);
        self.end_catch_up(from);
        if let Some(progress) = self.raw.raft.mut_prs().get_mut(from.number()) {
            progress.matched = 0;
            progress.become_probe();
        }
    }

    pub(super) fn on_reachable(&mut self, voter: VoterId, is_up: bool) {
        if is_up {
            return self.timers.on_up(voter);
        }
        self.timers.on_down(voter);
        if self.leads() {
            self.raw.report_unreachable(voter.number());
            self.on_snapshot_lost(voter);
        }
    }

    pub(super) fn on_restarted(&mut self, voter: VoterId) {
        self.timers.on_restarted(voter);
        self.on_snapshot_lost(voter);
        if self.leader() == Some(voter) && !self.follows_present_process(voter) {
            self.timers.on_leader_restarted(self.term());
        }
    }

    /// A message as this store may send it; none if it must not.
    pub(super) fn as_allowed(&self, message: Message) -> Option<Message> {
        if self.has_forgotten {
            return None;
        }
        let suspect_through = self.suspect_through.filter(|_| !base::planted!(DamagedProposalVotes));
        let Some(through) = suspect_through else { return Some(message) };
        match message {
            Message::AppendReply { index, rejected: None, .. } if index < through => None,
            Message::HeartbeatReply { term, commit, .. } => {
                Some(Message::HeartbeatReply { term, commit, context: 0 })
            }
            message => Some(message),
        }
    }
}
