//! Unloading a group at rest, and loading it again.
//!
//! 1. [`Group::dormant`] gives the record of a group at rest. Its caller compares the group with that of the store, and
//!    drops it. A leader's caller has marked it for each voter that is away, and wakes it when that one is back.
//! 2. [`Group::wake`] puts the record's leader into the vote guard of a group that was opened from its store again.
//!    A follower follows that leader. A leader that slept stands for election at once: its term is over for it.
//!
//! Invariant: the vote guard of a loaded group is that of the unloaded one.
//!
//! Left out: inputs, outputs and records of the caller that are on their way; a group with some is not unloaded.

use raft::StateRole;

use super::identity::VoterId;
use super::{Group, GroupState};
use crate::dormant::DormantGroup;
use crate::promise::Process;

impl Group {
    /// The record of this group, if it is at rest and may be unloaded. Its caller has no input and no output of it.
    pub fn dormant(&self) -> Option<DormantGroup> {
        let (last, _) = self.last();
        let is_whole = self.is_registered && !self.has_forgotten && !self.is_suspect() && !self.lacks_keys();
        let has_applied = self.applied == last && self.commit() == last && !self.outbox.has_writes();
        let is_quiet = self.requests.len() == 0 && self.next_timer().is_none() && !self.is_leaving();
        let has_catch_up = self.catch_ups.receivers().next().is_some()
            || self.installing.is_some()
            || self.received.is_some();
        if !is_whole || !has_applied || !is_quiet || has_catch_up || !self.has_plain_members() {
            return None;
        }
        let followed = self.followed_at_rest()?;
        Some(DormantGroup::new(followed, self.term(), last))
    }

    /// Whether the configuration is of voters alone, this one among them, and none is to be replaced.
    fn has_plain_members(&self) -> bool {
        let members = self.members();
        !self.is_changing && self.forgetful.is_empty() && members.has_voter(self.identity.voter)
    }

    /// The process that leads the present term, of a settled leader, or of a follower that reaches it.
    fn followed_at_rest(&self) -> Option<Process> {
        let process = self.followed_process()?;
        let is_at_rest = match self.raw.raft.state {
            StateRole::Leader => self.is_settled(),
            StateRole::Follower => {
                let leader = self.leader().filter(|leader| self.reaches(*leader));
                leader.is_some_and(|leader| leader.node == process.node)
            }
            StateRole::Candidate | StateRole::PreCandidate => false,
        };
        is_at_rest.then_some(process)
    }

    /// Whether a state of the store is that of this group, but for the leader that it names.
    pub fn is_kept(&self, stored: &GroupState) -> bool {
        let state = self.state();
        GroupState { leader: state.leader, ..stored.clone() } == state
    }

    /// Loads a group at rest: to be called before its first input, and behind [`Group::use_leases`]. `leader` is the
    /// voter of the record's process; none if the cluster has registered another process of its node.
    pub fn wake(&mut self, record: &DormantGroup, leader: Option<VoterId>) {
        debug_assert_eq!(
            (self.term(), self.last().0),
            (record.term(), record.last()),
            "it slept in this state"
        );
        if !base::planted!(DormantForgotLeader) {
            self.follow_of_record(record.leader(), record.term());
        }
        match leader.filter(|leader| self.members().has_voter(*leader)) {
            Some(leader) if leader == self.identity.voter => self.timers.seek_at_once(),
            Some(leader) => self.raw.raft.leader_id = leader.number(),
            None => {}
        }
    }
}
