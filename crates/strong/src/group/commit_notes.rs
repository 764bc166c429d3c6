//! Notes of a leader that entries are committed, for voters that nothing else has told it.
//!
//! An append carries the commit index, so a busy group needs no notes. A note is a heartbeat without a context. It
//! leaves [`COMMIT_NOTE_AFTER`] the commit if no append has left meanwhile. A follower that waits for the entry of a
//! read is told at once (`confirm.rs`). Notes may be lost: heartbeats of a group that is not settled repeat them.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Monotonic;

use super::configuration::Configuration;
use super::identity::VoterId;
use super::{Group, HEARTBEAT_EVERY};

/// Delay of a note: some writes of a group that has ten a second, and half of the interval of heartbeats.
pub const COMMIT_NOTE_AFTER: Duration = Duration::from_millis(100);

const _: () =
    assert!(COMMIT_NOTE_AFTER.as_nanos() < HEARTBEAT_EVERY.as_nanos(), "heartbeats repeat lost notes");

/// The commit index that a leader has told each voter last.
#[derive(Default)]
pub(super) struct CommitNotes {
    told: BTreeMap<VoterId, u64>,
    /// When voters that lack one get a note.
    due: Option<Monotonic>,
}

impl CommitNotes {
    /// Notes that a message with a commit index has left.
    pub(super) fn on_told(&mut self, voter: VoterId, commit: u64) {
        let told = self.told.entry(voter).or_default();
        *told = commit.max(*told);
    }

    /// Forgets those that are no members any more.
    pub(super) fn keep(&mut self, members: &Configuration) {
        self.told.retain(|voter, _| members.has(*voter));
    }

    /// When the next note is due.
    pub(super) fn next(&self) -> Option<Monotonic> {
        self.due
    }

    fn told(&self, voter: VoterId) -> u64 {
        self.told.get(&voter).copied().unwrap_or_default()
    }

    /// Whether notes leave now, of which there are some.
    fn take_due(&mut self, now: Monotonic) -> bool {
        let is_due = *self.due.get_or_insert(now + COMMIT_NOTE_AFTER) <= now;
        if is_due {
            self.due = None;
        }
        is_due
    }
}

impl Group {
    /// Tells voters that entries which they have are committed, if that is due.
    pub(super) fn note_commits(&mut self, now: Monotonic) {
        if !self.leads() {
            return self.commit_notes = CommitNotes::default();
        }
        let commit = self.commit();
        let lacks = |voter: &VoterId| {
            let progress = self.raw.raft.prs().get(voter.number());
            let is_told = |known: u64, confirmed: u64| known <= confirmed.max(self.commit_notes.told(*voter));
            progress.is_some_and(|it| !is_told(it.matched.min(commit), it.committed_index))
        };
        let lacking: Vec<VoterId> = self.members().others(self.identity.voter).filter(lacks).collect();
        if lacking.is_empty() {
            self.commit_notes.due = None;
        } else if self.commit_notes.take_due(now) {
            lacking.into_iter().for_each(|voter| self.send_heartbeat(voter, 0));
        }
    }
}
