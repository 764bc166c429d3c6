//! How those who do not vote hear of what was committed, and whoever missed something catches up.
//!
//! Committed entries are the same everywhere, so anybody may hand them on. Who has something new tells a few; they pull what
//! they lack, and tell others. And everybody asks somebody now and then, in case that got lost.

use base::Monotonic;
use ring::NodeId;

use super::entry::{Entry, Snapshot};
use super::message::{Envelope, Message};
use super::{Log, POLL_EVERY, Role, TOLD_AT_ONCE, Waiter};
use crate::planted::{Planted, planted};
use crate::state::{Command, State};

impl Log {
    /// Members that can be reached, chosen at random.
    fn some_members(&mut self, count: usize) -> Vec<NodeId> {
        let Some(state) = &self.state else { return Vec::new() };
        let here = self.identity.node;
        let can_be_told = |node: &&NodeId| **node != here && state.members().contains_key(node);
        let mut members: Vec<NodeId> = self.up.iter().filter(can_be_told).copied().collect();
        let mut chosen = Vec::new();
        while chosen.len() < count && !members.is_empty() {
            let at = usize::try_from(self.rng.below(members.len() as u64)).expect("below a length");
            chosen.push(members.swap_remove(at));
        }
        chosen
    }

    pub(super) fn tell_some(&mut self) {
        let commit = self.commit;
        for node in self.some_members(TOLD_AT_ONCE) {
            self.sends.push((node, Message::Have { commit }));
        }
    }

    /// Compares with one member, and sees to it that this start is registered.
    pub(super) fn poll(&mut self, now: Monotonic) {
        self.poll_at = now + POLL_EVERY;
        let commit = self.commit;
        for node in self.some_members(1) {
            self.sends.push((node, Message::Have { commit }));
        }
        let node = self.identity.node;
        let registered =
            self.state.as_ref().and_then(|state| state.members().get(&node)).map(|record| record.starts);
        if registered.is_some_and(|starts| starts < self.identity.starts) && self.restored.is_none() {
            let super::Identity { starts, start, address, .. } = self.identity.clone();
            self.propose(Waiter::Nobody, Command::Started { node, starts, start, address }, now);
        }
    }

    pub(super) fn on_have(&mut self, from: NodeId, commit: u64) {
        let ours = self.commit;
        if commit > ours {
            self.sends.push((from, Message::Pull { commit: ours }));
        } else if commit < ours {
            self.sends.push((from, Message::Have { commit: ours }));
        }
    }

    pub(super) fn on_pull(&mut self, from: NodeId, theirs: u64) {
        if theirs >= self.commit {
            return;
        }
        let is_kept = self.entry(theirs + 1).is_some();
        let message = if is_kept {
            let mut entries = self.entries_after(theirs);
            entries.retain(|entry| entry.index <= self.commit);
            Message::News { commit: self.commit, entries }
        } else {
            Message::Snapshot { term: 0, round: 0, snapshot: self.snapshot() }
        };
        self.sends.push((from, message));
    }

    pub(super) fn on_news(&mut self, from: NodeId, commit: u64, entries: Vec<Entry>, now: Monotonic) {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return };
        let (first, last) = (first.index, last.index);
        // A leader knows better, or is about to learn of its successor.
        if matches!(self.role, Role::Leader(_))
            || first > self.commit + 1
            || last <= self.commit
            || last > commit
        {
            return;
        }
        if !self.take(entries) {
            return;
        }
        self.advance(last, now);
        self.caught_up(commit);
        if last < commit {
            self.sends.push((from, Message::Pull { commit: last }));
        }
    }

    /// A folder that was found to be older takes part again once it knows that it was counted out.
    fn caught_up(&mut self, commit: u64) {
        let here = self.identity.node;
        if self.restored.is_some_and(|since| self.commit >= since.max(commit))
            && !self.voters().contains(&here)
        {
            self.restored = None;
        }
    }

    pub(super) fn on_snapshot(
        &mut self,
        from: NodeId,
        term: u64,
        round: u64,
        snapshot: Snapshot,
        now: Monotonic,
    ) {
        let is_leaders = term > 0;
        if is_leaders && (self.restored.is_some() || !self.heed(from, term, round, snapshot.index, now)) {
            return;
        }
        if !is_leaders && matches!(self.role, Role::Leader(_)) {
            return;
        }
        let index = snapshot.index;
        let is_newer = index > self.commit || planted(Planted::StaleRingAccepted);
        if is_newer && !self.install(snapshot, now) {
            return;
        }
        self.caught_up(index);
        if is_leaders {
            let message = Message::Appended { term, round, agreed: true, prev_index: index, index };
            self.sends.push((from, message));
        }
    }

    /// Replaces what is committed here by a snapshot of more; false if it is none of this cluster's.
    fn install(&mut self, snapshot: Snapshot, now: Monotonic) -> bool {
        let Some(state) = State::decode(snapshot.state.clone()).ok() else { return false };
        if state.cluster() != self.identity.cluster {
            return false;
        }
        if self.term_at(snapshot.index) == Some(snapshot.term) {
            self.entries.retain(|entry| entry.index > snapshot.index);
        } else {
            self.entries.clear();
        }
        self.commit = snapshot.index;
        self.base = snapshot;
        self.state = Some(state);
        self.replace = true;
        self.fail_waiting();
        self.told.push(super::Output::Changed);
        self.tell_some();
        self.after_commit(now);
        true
    }

    /// Whoever waits for an entry that will not be seen one by one does not know what became of it.
    pub(super) fn fail_waiting(&mut self) {
        for waiter in std::mem::take(&mut self.waiting).into_values() {
            self.answer(waiter, Err(super::Failed::Unknown));
        }
    }

    /// What somebody of an earlier epoch says counts for nothing, but that there is a later one.
    pub(super) fn on_earlier_epoch(&mut self, from: NodeId, message: &Message) {
        match message {
            Message::Pull { .. } => {
                self.sends.push((from, Message::Snapshot { term: 0, round: 0, snapshot: self.snapshot() }));
            }
            Message::Refused(_) => {}
            _ => self.sends.push((from, Message::Have { commit: self.commit })),
        }
    }

    /// A later epoch is taken over as a whole.
    pub(super) fn on_later_epoch(&mut self, from: &Envelope, message: Message, now: Monotonic) {
        let Message::Snapshot { term: 0, snapshot, .. } = message else {
            return self.sends.push((from.from, Message::Pull { commit: self.commit }));
        };
        let (epoch, commit) = (self.epoch, self.commit);
        // What was committed in the earlier epoch and is not in this one is lost, as its operator accepted.
        (self.epoch, self.commit) = (from.epoch, 0);
        if !self.install(snapshot, now) {
            (self.epoch, self.commit) = (epoch, commit);
            return;
        }
        self.term = self.term.max(self.base.term);
        self.voted = None;
        self.role = Role::Follower;
        self.leader = None;
        self.wait_for_leader(now);
        self.caught_up(self.commit);
    }
}
