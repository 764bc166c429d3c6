//! How those who do not vote hear of what was committed, and whoever missed something catches up.
//!
//! Committed entries are the same everywhere, so anybody may hand them on. Who has something new tells a few; they pull
//! what they lack, and tell others. And everybody asks somebody now and then, in case that got lost.

use base::Monotonic;
use ring::NodeId;

use super::contradiction::Contradictions;
use super::entry::{Entry, Snapshot};
use super::file::Record;
use super::message::{ENTRIES_MAX, Envelope, Failed, Message};
use super::{Log, Output, POLL_EVERY, TELL_EVERY, TOLD_AT_ONCE};
use crate::state::State;

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

    /// There is news: if shards go by it or people wait for it, some are told at once, else soon.
    pub(super) fn tell(&mut self, is_urgent: bool, now: Monotonic) {
        self.has_untold = true;
        if is_urgent || self.tells_at().is_some_and(|at| now >= at) {
            self.tell_some(now);
        }
    }

    /// When some are told of news, if there is any.
    pub(super) fn tells_at(&self) -> Option<Monotonic> {
        self.has_untold.then(|| self.told_at.map_or(Monotonic(0), |told| told + TELL_EVERY))
    }

    pub(super) fn tell_some(&mut self, now: Monotonic) {
        (self.told_at, self.has_untold) = (Some(now), false);
        let commit = self.commit;
        for node in self.some_members(TOLD_AT_ONCE) {
            self.sends.push((node, Message::Have { commit }));
        }
    }

    /// Compares with one member.
    pub(super) fn poll(&mut self, now: Monotonic) {
        self.poll_at = now + POLL_EVERY;
        if let Some(state) = &self.state {
            self.up.retain(|node| state.members().contains_key(node));
            self.down_since.retain(|node, _| state.members().contains_key(node));
        }
        let commit = self.commit;
        for node in self.some_members(1) {
            self.sends.push((node, Message::Have { commit }));
        }
    }

    pub(super) fn on_have(&mut self, from: NodeId, commit: u64, now: Monotonic) {
        self.hear_commit(from, commit);
        let ours = self.commit;
        // Who hears a leader has it from there at once.
        if commit > ours && !self.hears_leader(now) {
            self.sends.push((from, Message::Pull { commit: ours }));
        } else if commit < ours {
            self.sends.push((from, Message::Have { commit: ours }));
        }
    }

    pub(super) fn on_pull(&mut self, from: NodeId, theirs: u64) {
        self.hear_commit(from, theirs);
        if theirs >= self.commit || self.is_contradicted() {
            return;
        }
        let store = self.store();
        let message = if store.entry(theirs + 1).is_some() {
            // With the last one that the other has, which it compares.
            let news =
                store.entries.iter().filter(|entry| entry.index >= theirs && entry.index <= self.commit);
            Message::News { commit: self.commit, entries: news.take(ENTRIES_MAX).cloned().collect() }
        } else {
            Message::Snapshot(self.snapshot())
        };
        self.sends.push((from, message));
    }

    pub(super) fn on_news(&mut self, from: NodeId, commit: u64, entries: Vec<Entry>, now: Monotonic) {
        self.hear_commit(from, commit);
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return };
        let (first, last) = (first.index, last.index);
        // A leader knows better, or is about to learn of its successor.
        if self.leads() || first > self.commit + 1 || last <= self.commit || last > commit {
            return;
        }
        if entries.iter().any(|entry| self.contradicts_entry(entry)) {
            return self.contradict(from, false, now);
        }
        self.take(entries);
        self.restart_consensus(now);
        self.caught_up(commit, now);
        if last < commit {
            self.sends.push((from, Message::Pull { commit: last }));
        }
    }

    /// Takes committed entries over. Uncommitted entries that they contradict never will be committed.
    fn take(&mut self, entries: Vec<Entry>) {
        let committed = self.commit;
        let store = self.raw.mut_store();
        if let Some(last) = entries.last()
            && store.term < last.term
        {
            // Before the entries: a torn write must not leave one of a later term.
            (store.term, store.voted) = (last.term, None);
            self.put_hard();
        }
        let store = self.raw.mut_store();
        for entry in entries.into_iter().filter(|entry| entry.index > committed) {
            let known = store.term_at(entry.index);
            store.commit = entry.index;
            if known != Some(entry.term) {
                Record::Entry(entry.clone()).put(&mut self.records);
                store.push(entry);
            }
        }
    }

    /// A folder that was found to be older takes part again once it knows that it was counted out.
    pub(super) fn caught_up(&mut self, commit: u64, now: Monotonic) {
        let here = self.identity.node;
        if self.restored.is_some_and(|since| self.commit >= since.max(commit))
            && !self.voters().contains(&here)
        {
            self.restored = None;
            self.end_hold(now);
        }
    }

    pub(super) fn on_snapshot(&mut self, from: NodeId, snapshot: Snapshot, now: Monotonic) {
        let index = snapshot.index;
        if self.contradicts_snapshot(&snapshot) {
            return self.contradict(from, false, now);
        }
        let is_newer = index > self.commit || base::planted!(StaleSnapshotAccepted);
        if self.leads() || is_newer && !self.install(snapshot, now) {
            return;
        }
        self.caught_up(index, now);
    }

    /// Replaces what is committed here by a snapshot of more; false if it is none of this cluster's.
    fn install(&mut self, snapshot: Snapshot, now: Monotonic) -> bool {
        let Some(state) = self.state_of(&snapshot) else { return false };
        self.raw.mut_store().install(snapshot);
        self.installed(state, now);
        self.restart_consensus(now);
        true
    }

    /// The state in a snapshot, if it is one of this cluster.
    pub(super) fn state_of(&self, snapshot: &Snapshot) -> Option<State> {
        let state = State::decode(snapshot.state.clone()).ok()?;
        let is_ours = state.cluster() == self.identity.cluster && !snapshot.conf.voters.is_empty();
        is_ours.then_some(state)
    }

    /// What follows when the store has another base.
    pub(super) fn installed(&mut self, state: State, now: Monotonic) {
        self.commit = self.store().base.index;
        self.state = Some(state);
        self.replace = true;
        self.fail_waiting();
        self.told.push(Output::Changed);
        self.tell_some(now);
    }

    /// Whoever waits for an entry that will not be seen one by one does not know what became of it.
    pub(super) fn fail_waiting(&mut self) {
        for waiter in self.waiters.take_waiting() {
            self.answer(waiter, Err(Failed::Unknown));
        }
    }

    /// What somebody of an earlier epoch says counts for nothing, but that there is a later one.
    pub(super) fn on_earlier_epoch(&mut self, from: NodeId, message: &Message) {
        match message {
            Message::Pull { .. } => {
                self.sends.push((from, Message::Snapshot(self.snapshot())));
            }
            Message::Refused(_) => {}
            _ => self.sends.push((from, Message::Have { commit: self.commit })),
        }
    }

    /// A later epoch is taken over as a whole.
    pub(super) fn on_later_epoch(&mut self, from: &Envelope, message: Message, now: Monotonic) {
        let Message::Snapshot(snapshot) = message else {
            return self.sends.push((from.from, Message::Pull { commit: self.commit }));
        };
        let Some(state) = self.state_of(&snapshot) else { return };
        if self.state.is_none() && !state.members().contains_key(&self.identity.node) {
            // Of one that has not heard yet that this newcomer was admitted. It asks the next.
            return;
        }
        // What was committed in the earlier epoch and is not in this one is lost, as its operator accepted.
        self.epoch = from.epoch;
        self.contradictions = Contradictions::default();
        if let Some(hold) = &mut self.hold {
            hold.begin_epoch();
        }
        let store = self.raw.mut_store();
        store.entries.clear();
        store.voted = None;
        store.install(snapshot);
        self.installed(state, now);
        self.restart_consensus(now);
        self.caught_up(self.commit, now);
    }
}
