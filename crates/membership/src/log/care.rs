//! A leader's care for who votes: those who are gone or forgot are replaced, one at a time.
//!
//! [`voters`] says which change is due. A newcomer first gets the log without a vote, and votes when it has all of it: while it
//! catches up, nothing waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::Monotonic;
use raft::{ProgressState, SnapshotStatus};
use ring::NodeId;

use super::Log;
use super::entry::{Conf, VoterChange};
use super::library::{id_of, node_of};
use super::voters::{self, Step, VOTER_DOWN_MAX};

/// How often a leader looks whether other members should vote.
const CARE_EVERY: Duration = Duration::from_secs(5);

/// How long a member that is to vote may take to have the log.
const CATCH_UP_MAX: Duration = Duration::from_secs(15);

/// What a leader remembers of the voters.
pub(super) struct Care {
    /// They lost what they had acknowledged: they count for nothing until they vote no more.
    lost: BTreeSet<NodeId>,
    heard: BTreeMap<NodeId, Monotonic>,
    learns_since: Monotonic,
    /// When it looks next.
    pub(super) at: Monotonic,
}

impl Care {
    pub(super) fn new(conf: &Conf, now: Monotonic) -> Care {
        let heard = conf.voters.iter().map(|&voter| (voter, now)).collect();
        Care { lost: BTreeSet::new(), heard, learns_since: now, at: now + CARE_EVERY }
    }

    pub(super) fn is_lost(&self, node: NodeId) -> bool {
        self.lost.contains(&node)
    }

    pub(super) fn hear(&mut self, from: NodeId, now: Monotonic) {
        if let Some(heard) = self.heard.get_mut(&from) {
            *heard = now;
        }
    }

    /// Takes note of who votes now.
    pub(super) fn follow(&mut self, conf: &Conf, now: Monotonic) {
        self.lost.retain(|node| conf.voters.contains(node));
        let heard = |&voter| (voter, self.heard.get(&voter).copied().unwrap_or(now));
        self.heard = conf.voters.iter().map(heard).collect();
        self.learns_since = now;
    }

    /// Who should vote no more, whatever the failure detector says.
    fn bad(&self, here: NodeId, now: Monotonic) -> BTreeSet<NodeId> {
        let silent =
            self.heard.iter().filter(|(node, at)| **node != here && now.since(**at) >= VOTER_DOWN_MAX);
        silent.map(|(&node, _)| node).chain(self.lost.iter().copied()).collect()
    }
}

impl Log {
    /// Counts a voter out: what it acknowledged is not there any more.
    pub(super) fn count_out(&mut self, node: NodeId) {
        let (Some(care), true) = (&mut self.care, self.raw.store().conf.voters.contains(&node)) else {
            return;
        };
        care.lost.insert(node);
        if let Some(progress) = self.raw.raft.mut_prs().get_mut(id_of(node)) {
            progress.matched = 0;
            progress.become_probe();
        }
    }

    /// Looks whether others should vote.
    pub(super) fn care(&mut self, now: Monotonic) {
        self.send_lost_snapshots_again();
        let may_change = self.may_change_voters();
        let Some(care) = &mut self.care else { return };
        care.at = now + CARE_EVERY;
        if !may_change {
            return;
        }
        let (learns_since, lost) = (care.learns_since, care.bad(self.identity.node, now));
        if let Some(&learner) = self.store().conf.learners.first() {
            if now.since(learns_since) >= CATCH_UP_MAX {
                self.change_voters(VoterChange::Remove(learner), now);
            }
            return self.admit_voter(now);
        }
        // One that was never reached is not reached since now.
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

    /// Lets the member vote that was to, once it has the log.
    pub(super) fn admit_voter(&mut self, now: Monotonic) {
        let Some(&learner) = self.store().conf.learners.first().filter(|_| self.leads()) else { return };
        let matched = self.raw.raft.prs().get(id_of(learner)).map_or(0, |progress| progress.matched);
        if matched >= self.commit && self.may_change_voters() {
            self.change_voters(VoterChange::Vote(learner), now);
        }
    }

    /// Whether the voters may be changed: no other change is under way, and a leader's own entry is committed.
    fn may_change_voters(&self) -> bool {
        let raft = &self.raw.raft;
        self.leads() && !raft.has_pending_conf() && raft.commit_to_current_term()
    }

    /// The library waits for ever for the answer to a snapshot: who has not answered by now gets it again.
    fn send_lost_snapshots_again(&mut self) {
        let progress = self.raw.raft.prs().iter();
        let waits = progress.filter(|(_, progress)| progress.state == ProgressState::Snapshot);
        let waits: Vec<u64> = waits.map(|(&id, _)| id).filter(|id| node_of(*id).is_some()).collect();
        waits.into_iter().for_each(|id| self.raw.report_snapshot(id, SnapshotStatus::Failure));
    }
}
