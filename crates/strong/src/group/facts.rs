//! Facts about a group that its caller looks at between steps.

use base::Monotonic;
use raft::StateRole;

use super::{Group, GroupState, NUMBER_MAX, Progress, Survivor, Version, VoterId};

impl Group {
    /// When the next [`super::Input::Tick`] is due; none for a group at rest.
    pub fn next_timer(&self) -> Option<Monotonic> {
        let requests = [self.requests.next_deadline(), self.reads.next_retry(), self.next_hand_over()];
        let notes = self.commit_notes.next();
        self.timers.next().into_iter().chain(notes).chain(requests.into_iter().flatten()).min()
    }

    /// Whether this voter leads.
    pub fn leads(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    /// Whether it leads, has applied the first entry of its term, and was not refilled half-way: it decides conditions
    /// and serves reads.
    pub fn is_ready(&self) -> bool {
        self.leads() && self.raw.raft.apply_to_current_term() && !self.is_incomplete
    }

    /// Whether a request may be served here: this voter is ready, and a majority can be reached as far as it knows.
    pub fn can_serve(&self) -> bool {
        self.is_ready() && self.reaches_majority() && !self.is_pausing()
    }

    /// Whether all voters that can be reached have all that this leader has, and no write is under way.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The same in the middle of a step.
    pub(super) fn settles(&self) -> bool {
        let last = self.raw.store().last().0;
        let has_all = |voter: VoterId| {
            let progress = self.raw.raft.prs().get(voter.number());
            !self.timers.is_restarted(voter)
                && progress.is_some_and(|it| {
                    it.matched == last && (it.committed_index == last || base::planted!(CommitNoteLost))
                })
        };
        let mut reached = self.members().others(self.identity.voter);
        self.is_ready()
            && self.applied == last
            && !self.requests.has_writes()
            && !self.outbox.has_writes()
            && self.catch_ups.receivers().all(|voter| !self.reaches(voter))
            && self.reaches_majority()
            && !self.has_change_due()
            && reached.all(|voter| !self.reaches(voter) || self.is_forgetful(voter) || has_all(voter))
    }

    /// The leader, as far as this voter knows.
    pub fn leader(&self) -> Option<VoterId> {
        VoterId::of_number(self.raw.raft.leader_id).filter(|_| !self.timers.is_leaderless(self.term()))
    }

    /// The version that a write gets if it is proposed now; none on a voter that does not lead.
    pub fn next_version(&self) -> Option<Version> {
        let next = self.last().0 + 1;
        (self.leads() && next < NUMBER_MAX).then(|| self.version(next))
    }

    /// Recoveries by an operator so far; part of versions.
    pub fn epoch(&self) -> u16 {
        self.epoch
    }

    /// The present term.
    pub fn term(&self) -> u64 {
        self.raw.raft.term
    }

    /// The last entry that was handed out to be applied.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Index and term of the last entry that was handed out to be applied; none while a snapshot is installed.
    pub fn applied_entry(&self) -> Option<(u64, u64)> {
        Some((self.applied, self.raw.store().term_at(self.applied)?))
    }

    /// The highest index through which an entry that was here reaps tombstones, applied or not.
    pub fn reaped(&self) -> u64 {
        self.raw.store().hard.reaped
    }

    /// Whether the store has dropped the group's keys, and does not have all parts of a catch-up yet.
    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// The last entry that is known to be committed.
    pub fn commit(&self) -> u64 {
        self.raw.raft.raft_log.committed
    }

    /// Bytes of the log in memory.
    pub fn log_bytes(&self) -> usize {
        self.raw.store().bytes()
    }

    /// Drops the oldest applied entries from memory until at most `bytes` of the log are left there.
    ///
    /// A voter that needs a dropped entry needs catch-up.
    pub fn trim(&mut self, bytes: usize) {
        let applied = self.applied;
        self.raw.mut_store().trim(applied, bytes);
    }

    /// Whether the group has no entry, as far as this voter knows: it never had a leader.
    pub fn is_new(&self) -> bool {
        self.last().0 == Progress::FOUNDED.applied.0
    }

    /// Index and term of the last entry.
    pub fn last(&self) -> (u64, u64) {
        self.raw.store().last()
    }

    /// Whether this store lost entries that it had acknowledged, and takes no part any more.
    pub fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }

    /// Whether an entry that this store may have acknowledged is damaged or missing.
    pub fn is_suspect(&self) -> bool {
        self.suspect_through.is_some()
    }

    /// The facts of this voter for an operator before a recovery.
    pub fn survivor(&self) -> Survivor {
        Survivor { voter: self.identity.voter, last: self.last(), commit: self.commit() }
    }

    /// The state as it is to be stored.
    ///
    /// It names this voter in any case: a state that does not is one of an earlier birth of the store, and is dropped.
    /// A learner has applied configurations from before it was added.
    pub fn state(&self) -> GroupState {
        let log = self.raw.store();
        GroupState {
            founding: self.identity.founding,
            epoch: self.epoch,
            hard: log.hard,
            leader: self.leader(),
            configuration: log.configuration.clone().with_learner(self.identity.voter),
            is_removed: false,
        }
    }
}
