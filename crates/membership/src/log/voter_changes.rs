//! Changes of the voters: a leader replaces voters that are gone or forgot, one at a time.
//!
//! [`voters`] says which change is due. A newcomer first gets the log without a vote, and votes when it has all of it:
//! while it catches up, nothing waits for it.

use std::collections::BTreeSet;
use std::time::Duration;

use base::Monotonic;
use raft::{ProgressState, SnapshotStatus};
use ring::NodeId;

use super::Log;
use super::entry::VoterChange;
use super::library::{self, id_of, node_of};
use super::voters::{self, Step};

/// Time limit for a learner to catch up with the log.
const CATCH_UP_MAX: Duration = Duration::from_secs(15);

impl Log {
    /// The next change of the voters that is due, as far as this node sees; `None` if there is none. The leader makes
    /// it, and knows more: a voter that forgot, or that was silent for long.
    pub fn voter_step(&self, now: Monotonic) -> Option<Step> {
        voters::next(&voters::View {
            here: self.leader().unwrap_or(self.identity.node),
            voters: self.voters(),
            members: self.state.as_ref()?.members(),
            up: &self.reached_with_self(),
            down_since: &self.down_since,
            lost: &BTreeSet::new(),
            now,
        })
    }

    /// The nodes that this one reaches, itself included.
    fn reached_with_self(&self) -> BTreeSet<NodeId> {
        self.up.iter().copied().chain([self.identity.node]).collect()
    }

    /// Counts out a voter that lost acknowledged entries.
    pub(super) fn count_out(&mut self, node: NodeId) {
        let (Some(care), true) = (&mut self.care, self.raw.store().conf.voters.contains(&node)) else {
            return;
        };
        care.lose(node);
        if let Some(progress) = self.raw.raft.mut_prs().get_mut(id_of(node)) {
            progress.matched = 0;
            progress.become_probe();
        }
    }

    /// Looks at the voters and begins a change that is due.
    pub(super) fn care(&mut self, now: Monotonic) {
        self.send_lost_snapshots_again();
        let may_change = self.may_change_voters();
        let Some(care) = &mut self.care else { return };
        care.look_later(now);
        if !may_change {
            return;
        }
        let (learns_since, lost) = (care.learns_since(), care.bad(self.identity.node, now));
        if let Some(&learner) = self.store().conf.learners.first() {
            if now.since(learns_since) >= CATCH_UP_MAX {
                self.change_voters(VoterChange::Remove(learner), now);
            }
            return self.admit_voter(now);
        }
        // A voter that was never reached counts as down from now on.
        for &node in self.raw.store().conf.voters.difference(&self.up) {
            self.down_since.entry(node).or_insert(now);
        }
        let Some(state) = &self.state else { return };
        let step = voters::next(&voters::View {
            here: self.identity.node,
            voters: self.voters(),
            members: state.members(),
            up: &self.up,
            down_since: &self.down_since,
            lost: &lost,
            now,
        });
        match step {
            Some(Step::Add(node)) => self.change_voters(VoterChange::Learn(node), now),
            Some(Step::Remove(node)) => self.change_voters(VoterChange::Remove(node), now),
            None => {}
        }
    }

    /// Lets the learner vote once it has the log.
    pub(super) fn admit_voter(&mut self, now: Monotonic) {
        let Some(&learner) = self.store().conf.learners.first().filter(|_| self.leads()) else { return };
        let matched = self.raw.raft.prs().get(id_of(learner)).map_or(0, |progress| progress.matched);
        if matched >= self.commit && self.may_change_voters() {
            self.change_voters(VoterChange::Vote(learner), now);
        }
    }

    fn change_voters(&mut self, change: VoterChange, now: Monotonic) {
        // The library refuses only when this node leads no more. Then the next leader makes the change.
        drop(self.raw.propose_conf_change(Vec::new(), library::change_of(change)));
        self.drain(now);
    }

    /// Whether the voters may be changed: no other change is under way, and a leader's own entry is committed.
    fn may_change_voters(&self) -> bool {
        let raft = &self.raw.raft;
        self.leads() && !raft.has_pending_conf() && raft.commit_to_current_term()
    }

    /// Sends unanswered snapshots again, since the library waits for their answers without limit.
    fn send_lost_snapshots_again(&mut self) {
        let progress = self.raw.raft.prs().iter();
        let waits = progress.filter(|(_, progress)| progress.state == ProgressState::Snapshot);
        let waits: Vec<u64> = waits.map(|(&id, _)| id).filter(|id| node_of(*id).is_some()).collect();
        waits.into_iter().for_each(|id| self.raw.report_snapshot(id, SnapshotStatus::Failure));
    }
}
