//! Confirmations of reads, between a leader and the other voters. None of them needs the library.
//!
//! * A leader sends heartbeats with a context to the voters behind it in the order of their numbers, as many as make a
//!   majority with it. If the answers are late, all voters are asked.
//! * A follower asks its leader ([`Message::ReadQuestion`]). The question says that its sender had accepted no later
//!   term. If sender and leader are a majority, the leader answers with its commit index at once.
//! * An answer to a heartbeat that tells the leader nothing new does not reach the library, nor does a heartbeat that
//!   tells a follower nothing new.
//!
//! Decision 101 has the argument.

use base::Monotonic;
use raft::{ProgressState, StateRole};

use super::identity::VoterId;
use super::message::Message;
use super::requests::Waiting;
use super::{Answer, Cause, Group, HEARTBEAT_EVERY};

impl Group {
    /// Whether a read may be confirmed by the leader's answer to this follower. A learner serves no reads.
    pub fn can_ask_leader(&self) -> bool {
        let Some(leader) = self.leader().filter(|leader| *leader != self.identity.voter) else {
            return false;
        };
        self.role.1 == StateRole::Follower
            && self.may_lead()
            && !self.is_incomplete
            && self.reaches(leader)
            && self.is_majority(|voter| voter == self.identity.voter || voter == leader)
    }

    /// Asks for the confirmation of the reads that wait.
    pub(super) fn confirm_reads(&mut self, now: Monotonic) {
        if !self.reads.can_begin() {
            return;
        }
        if self.is_ready() {
            let context = self.reads.begin(self.commit(), now);
            self.ask_majority(context);
            self.take_confirmed();
        } else if let Some(leader) = self.leader().filter(|_| self.can_ask_leader()) {
            let context = self.reads.begin(0, now);
            self.send(leader, Message::ReadQuestion { term: self.term(), context });
        }
    }

    /// Asks voters that are a majority together with this one; those behind it come first, so that each node asks
    /// another one.
    fn ask_majority(&mut self, context: u64) {
        let here = self.identity.voter;
        let mut others: Vec<VoterId> = self.voters().filter(|voter| *voter != here).collect();
        let behind = others.iter().filter(|voter| **voter < here).count();
        others.rotate_left(behind);
        let mut asked = vec![here];
        for voter in others {
            if self.is_majority(|voter| asked.contains(&voter)) {
                return;
            }
            if !asked.contains(&voter) && self.reaches(voter) {
                self.send_heartbeat(voter, context);
                asked.push(voter);
            }
        }
    }

    /// Sends a heartbeat: with the context of a read, or with zero a note of the commit index.
    pub(super) fn send_heartbeat(&mut self, voter: VoterId, context: u64) {
        if self.is_forgetful(voter) {
            return;
        }
        let matched = self.raw.raft.prs().get(voter.number()).map_or(0, |progress| progress.matched);
        let commit = matched.min(self.commit());
        self.commit_notes.on_told(voter, commit);
        self.send(voter, Message::Heartbeat { term: self.term(), commit, context });
    }

    /// Asks all voters whose answer is late. A follower gives up, also if it lacks an entry that the leader has: its
    /// requests find another way.
    pub(super) fn ask_again(&mut self, now: Monotonic) {
        if !self.reads.take_late(now) {
            return;
        }
        if !self.leads() {
            return self.end_reads();
        }
        let Some((context, answered)) = self.reads.newest() else { return };
        let here = self.identity.voter;
        let is_asked = |voter: &VoterId| *voter != here && !answered.contains(voter);
        let late: Vec<VoterId> = self.voters().filter(is_asked).collect();
        late.into_iter().for_each(|voter| self.send_heartbeat(voter, context));
        self.reads.postpone(now + HEARTBEAT_EVERY);
    }

    /// Ends all reads of this voter: they may be decided anew.
    pub(super) fn end_reads(&mut self) {
        self.reads.clear();
        for token in self.requests.tokens(|waiting| !matches!(waiting, Waiting::Write { .. })) {
            self.requests.remove(token);
            self.answer(token, Answer::Unavailable(Cause::LeaderChanged));
        }
    }

    /// Takes a message about reads, or one that tells nothing new; whether the library has no need of it.
    pub(super) fn takes_beside(&mut self, from: VoterId, message: &Message) -> bool {
        match *message {
            Message::Heartbeat { term, commit, context } if self.knows_all(from, term, commit) => {
                self.send(from, Message::HeartbeatReply { term, commit: self.commit(), context });
            }
            Message::HeartbeatReply { term, commit, context } if self.leads() && term == self.term() => {
                if context > 0 {
                    self.reads.on_answer(context, from);
                    self.take_confirmed();
                }
                if !self.note_commit(from, commit) {
                    return false;
                }
            }
            Message::ReadQuestion { term, context } => self.answer_question(from, term, context),
            Message::ReadReply { term, context, index } => {
                if term == self.term() && self.leader() == Some(from) && !self.leads() {
                    self.on_read_reply(context, index);
                }
            }
            _ => return false,
        }
        self.needs_drain = false;
        true
    }

    /// Whether a heartbeat of its leader tells this follower nothing new, and its answer waits for no sync.
    fn knows_all(&self, from: VoterId, term: u64, commit: u64) -> bool {
        self.role == (term, StateRole::Follower)
            && self.term() == term
            && self.raw.raft.leader_id == from.number()
            && commit <= self.commit()
            && !self.outbox.has_writes()
            && !self.lacks_keys()
            && self.installing.is_none()
    }

    /// Notes how far a voter knows entries to be committed; whether it lacks nothing that the library would send.
    fn note_commit(&mut self, voter: VoterId, commit: u64) -> bool {
        let last = self.last().0;
        let Some(progress) = self.raw.raft.mut_prs().get_mut(voter.number()) else { return false };
        let has_all = progress.state == ProgressState::Replicate
            && progress.matched == last
            && !progress.ins.full()
            && progress.pending_request_snapshot == raft::INVALID_INDEX;
        if has_all {
            progress.committed_index = progress.committed_index.max(commit);
            progress.recent_active = true;
        }
        has_all
    }

    /// Answers a follower that asks for the index of a read; with zero if this voter cannot confirm it.
    fn answer_question(&mut self, from: VoterId, term: u64, context: u64) {
        let here = self.identity.voter;
        let confirms = self.is_ready()
            && term == self.term()
            && self.is_majority(|voter| voter == here || voter == from);
        let index = if confirms { self.commit() } else { 0 };
        let known = self.raw.raft.prs().get(from.number()).map_or(0, |progress| progress.committed_index);
        if confirms && known < index {
            // It applies the entry as soon as it knows that it is committed.
            self.send_heartbeat(from, 0);
        }
        self.send(from, Message::ReadReply { term, context, index });
    }

    fn on_read_reply(&mut self, context: u64, index: u64) {
        if index == 0 {
            return self.end_reads();
        }
        for round in self.reads.take_through(context) {
            self.on_confirmed(&round.tokens, index);
        }
    }

    /// Takes the rounds that a majority has answered.
    fn take_confirmed(&mut self) {
        let configuration = &self.raw.store().in_force;
        let here = self.identity.voter;
        let mut confirmed = Vec::new();
        while let Some(round) = self.reads.take_confirmed(|round| {
            configuration.is_majority(|voter| voter == here || round.voters.contains(&voter))
        }) {
            confirmed.push(round);
        }
        for round in confirmed {
            self.on_confirmed(&round.tokens, round.index);
        }
    }

    /// Notes that a read index was confirmed for requests: they wait for its entry.
    fn on_confirmed(&mut self, tokens: &[u64], index: u64) {
        for &token in tokens {
            let compared = match self.requests.get(token) {
                Some(Waiting::Check { index }) => index,
                Some(_) => 0,
                None => continue,
            };
            self.reads.wait_for(index.max(compared), token);
        }
    }
}
