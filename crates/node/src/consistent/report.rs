//! Reports on groups, for operators.
//!
//! * [`GroupReport`] is of one group, [`GroupCounts`] of all groups of a store. Those that a start has to catch up with
//!   are counted by [`crate::ShardStatus::groups_behind`].
//!
//! Left out: which member has which store, which the agreement tells.

use strong::dormant::DormantGroup;

use super::adopt::{CopyReport, copies};
use super::closed_groups::ClosedGroups;
use super::group::{GroupKey, HeldGroup};
use super::hand_overs::HandOvers;
use super::open_groups::OpenGroups;
use super::reach::Reachability;
use super::voters::voter_of_process;
use super::wakes::GroupWakes;
use crate::peer::NodeId;
use crate::shard::env::Env;

/// Entries that a voter may lack and still count as caught up: those on their way in a round trip of a busy group.
const BEHIND_MAX: u64 = 64;

/// The part of a store in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRole {
    /// It decides on requests.
    Leader,
    /// It asks others for their votes.
    Candidate,
    /// It follows a leader, or waits for one.
    Follower,
    /// It takes entries and does not vote.
    Learner,
}

impl GroupRole {
    /// Its name, for people and programs.
    pub fn name(self) -> &'static str {
        match self {
            GroupRole::Leader => "leader",
            GroupRole::Candidate => "candidate",
            GroupRole::Follower => "follower",
            GroupRole::Learner => "learner",
        }
    }
}

/// The state of a group at one of its voters, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupReport {
    /// The number of voters that the founding names.
    pub n_val: u8,
    /// The prefix of its keys.
    pub prefix: u16,
    /// The part of this store in it.
    pub role: GroupRole,
    /// The term.
    pub term: u64,
    /// The leader, as far as this store knows.
    pub leader: Option<NodeId>,
    /// Whether requests have somewhere to go: this store leads and is ready, or it reaches the leader.
    pub has_leader: bool,
    /// The index of the last applied entry.
    pub applied: u64,
    /// The index of the last entry that this store knows to be committed.
    pub commit: u64,
    /// The index of the last entry of this store's log.
    pub last: u64,
    /// Whether the group is at rest. At a leader: all reachable voters have all entries, and know it. At another voter:
    /// it has applied all of its log.
    pub is_settled: bool,
    /// Whether entries of this store are damaged or missing: it neither votes nor acknowledges until it has them again.
    pub is_suspect: bool,
    /// Whether this store has found that it lacks acknowledged entries: it takes no part any more.
    pub has_forgotten: bool,
    /// Whether this store is refilled by a catch-up, and serves nothing until then.
    pub is_incomplete: bool,
    /// Whether keys are damaged here: another voter is to lead, and to send all keys.
    pub is_unreadable: bool,
    /// Whether this store leads, and a majority has promised not to vote for another leader.
    pub is_leased: bool,
    /// Whether the group is at rest and not in memory. A leader stands for election when it is asked next.
    pub is_dormant: bool,
}

/// Groups at a store, by their state. Gauges: a group counts in each state that it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// All of them.
    pub held: usize,
    /// Those that this store leads.
    pub led: usize,
    /// Those without a leader that this store reaches: requests on their keys wait.
    pub without_leader: usize,
    /// Those whose entries are damaged or missing here.
    pub suspect: usize,
    /// Those that have lost acknowledged entries here.
    pub forgotten: usize,
    /// Those that a catch-up refills.
    pub incomplete: usize,
    /// Those with damaged keys here, which no catch-up refills yet.
    pub unreadable: usize,
    /// Those in which this store has no vote yet: a new store, which is brought up to date first.
    pub without_vote: usize,
    /// Those at rest that are not in memory.
    pub dormant: usize,
}

impl GroupCounts {
    /// Counts a group.
    pub fn add(&mut self, report: &GroupReport) {
        self.held += 1;
        self.led += usize::from(report.role == GroupRole::Leader);
        self.without_leader += usize::from(!report.has_leader);
        self.suspect += usize::from(report.is_suspect);
        self.forgotten += usize::from(report.has_forgotten);
        self.incomplete += usize::from(report.is_incomplete);
        self.unreadable += usize::from(report.is_unreadable);
        self.without_vote += usize::from(report.role == GroupRole::Learner);
        self.dormant += usize::from(report.is_dormant);
    }
}

/// The state of a shard's groups.
pub(crate) struct GroupsStatus<'a> {
    pub(super) env: &'a Env,
    pub(super) groups: &'a OpenGroups,
    pub(super) closed: &'a ClosedGroups,
    pub(super) reach: &'a Reachability,
    pub(super) wakes: &'a GroupWakes,
    pub(super) hand_overs: &'a HandOvers,
}

impl<'a> GroupsStatus<'a> {
    /// Reports of all groups, in order.
    pub fn reports(&self) -> Vec<GroupReport> {
        let mut reports: Vec<GroupReport> = self.each_report().collect();
        reports.sort_unstable_by_key(|report| (report.n_val, report.prefix));
        reports
    }

    /// How many groups are in each state.
    pub fn counts(&self) -> GroupCounts {
        let mut counts = GroupCounts::default();
        self.each_report().for_each(|report| counts.add(&report));
        counts
    }

    /// Reports of all groups: of those in memory, and of the dormant ones.
    fn each_report(&self) -> impl Iterator<Item = GroupReport> {
        let live = self.groups.iter().map(|(key, held)| live_report(key, held));
        live.chain(self.closed.records().map(|(key, record)| self.dormant_report(key, record)))
    }

    fn dormant_report(&self, key: GroupKey, record: &DormantGroup) -> GroupReport {
        let env = self.env;
        let (leader, last) = (record.leader(), record.last());
        let leads = leader == env.leases.tables.here();
        let voter = voter_of_process(env, leader, key);
        GroupReport {
            n_val: key.n_val,
            prefix: key.prefix,
            role: if leads { GroupRole::Leader } else { GroupRole::Follower },
            term: record.term(),
            leader: Some(leader.node),
            has_leader: voter.is_some_and(|voter| self.reach.reaches(env, key, voter)),
            applied: last,
            commit: last,
            last,
            is_settled: true,
            is_suspect: false,
            has_forgotten: false,
            is_incomplete: false,
            is_unreadable: false,
            is_leased: false,
            is_dormant: true,
        }
    }

    /// Groups that have a leader, and of which this store lacks entries or keys; and those that are yet to be opened
    /// since the start. Without a leader a group may have lost its majority for good, so nobody is to wait for it.
    pub fn behind(&self) -> usize {
        let lacks = |held: &HeldGroup| {
            let group = &held.group;
            let is_whole = group.members().has_voter(held.voter)
                && held.checkpoint.is_none()
                && !(group.is_incomplete() || group.is_suspect() || group.has_forgotten());
            !is_whole || group.applied() + BEHIND_MAX < group.commit()
        };
        let behind = self
            .groups
            .iter()
            .filter(|(key, held)| lacks(held) && self.reach.reaches_leader(self.env, *key, held));
        behind.count() + usize::from(self.wakes.have_leaderless())
    }

    /// The copy of each group that this store has, or should have by its founding.
    pub fn copies(&self) -> Vec<CopyReport> {
        copies(self.env, self.groups, self.closed)
    }

    /// Whether a stop is to wait for the hand-over of a group.
    pub fn has_to_hand_over(&self) -> bool {
        self.hand_overs.has_to_wait(self.groups, self.env.now())
    }
}

fn live_report(key: GroupKey, held: &HeldGroup) -> GroupReport {
    let group = &held.group;
    GroupReport {
        n_val: key.n_val,
        prefix: key.prefix,
        role: match group.leads() {
            true => GroupRole::Leader,
            false if group.members().has_voter(held.voter) => GroupRole::Follower,
            false => GroupRole::Learner,
        },
        term: group.term(),
        leader: group.leader().map(|voter| voter.node),
        has_leader: held.has_leader(),
        applied: group.applied(),
        commit: group.commit(),
        last: group.last().0,
        // A follower does not know of the others; it is at rest if it has applied all.
        is_settled: match group.leads() {
            true => group.is_settled(),
            false => group.applied() == group.last().0,
        },
        is_suspect: group.is_suspect(),
        has_forgotten: group.has_forgotten(),
        is_incomplete: group.is_incomplete(),
        is_unreadable: group.is_unreadable(),
        is_leased: group.is_leased(),
        is_dormant: false,
    }
}
