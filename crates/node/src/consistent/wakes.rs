//! Groups that are to be told of changes of other nodes, at a pace.
//!
//! * A node that can be reached no more: groups that it led stand for election, those with waiting requests first. All
//!   others hear of it at once. Dormant groups that it led are woken.
//! * A node that is back: groups that settled without it are woken, and if its process is another one, all groups that
//!   this store leads with it.
//! * A store with another birth: its groups hear of it, and their leaders replace the voter. A group that is not in
//!   memory is opened for it by the first node of its list that can be reached and has a vote. So is one that was
//!   recovered without a node's store, when the node has another one.

use std::collections::BTreeSet;

use base::Monotonic;
use strong::group::{Configuration, Input, VoterId};
use strong::wake::{MarkedGroups, Urgency, WakeQueue};

use super::closed_groups::ClosedGroups;
use super::group::{GroupKey, HeldGroup};
use super::open_groups::OpenGroups;
use super::reach::Reachability;
use super::requests::GroupRequests;
use super::voters::{first_voters, is_here, is_lost, registered, voter_of, voters};
use super::work::GroupWork;
use crate::peer::NodeId;
use crate::shard::env::Env;

/// Groups that are to be woken.
#[derive(Default)]
pub(super) struct GroupWakes {
    marked: MarkedGroups<GroupKey>,
    leaderless: WakeQueue<GroupKey>,
    /// Groups with another voter than they know, or with one to be replaced.
    renewed: WakeQueue<GroupKey>,
}

impl GroupWakes {
    /// When the next groups are woken.
    pub fn next_timer(&self) -> Option<Monotonic> {
        let queues = [self.marked.next_timer(), self.leaderless.next_timer(), self.renewed.next_timer()];
        queues.into_iter().flatten().min()
    }

    /// Whether groups wait for an election.
    pub fn have_leaderless(&self) -> bool {
        self.leaderless.next_timer().is_some()
    }

    /// Whether a group waits for an election.
    pub fn is_leaderless(&self, key: GroupKey) -> bool {
        self.leaderless.has(key)
    }

    /// A group may have lost its leader.
    pub fn push_leaderless(&mut self, key: GroupKey, urgency: Urgency) {
        self.leaderless.push(key, urgency);
    }

    /// A group has a leader.
    pub fn on_leader(&mut self, key: GroupKey) {
        self.leaderless.remove(key);
    }

    /// Takes the groups without a leader whose turn it is.
    pub fn take_leaderless(&mut self, now: Monotonic) -> Vec<GroupKey> {
        self.leaderless.take(now)
    }

    /// Takes those with another voter.
    pub fn take_renewed(&mut self, now: Monotonic) -> Vec<GroupKey> {
        self.renewed.take(now)
    }

    /// Takes those that settled without a voter that is back.
    pub fn take_marked(&mut self, now: Monotonic) -> Vec<(GroupKey, VoterId)> {
        self.marked.take(now)
    }

    /// Whether a leader is marked for exactly the voters that are away: one that is back has not settled yet.
    pub fn are_settled(&self, key: GroupKey, held: &HeldGroup) -> bool {
        let mut others = held.voters.iter().copied().filter(|voter| *voter != held.voter);
        others.all(|voter| self.marked.is_marked(key, voter) != held.group.reaches(voter))
    }

    /// Marks a group that has settled for the voters that were away, and removes the marks of the others.
    pub fn mark_if_settled(&mut self, key: GroupKey, held: &HeldGroup) {
        if !held.group.leads() || !held.group.is_settled() {
            return;
        }
        for &voter in held.voters.iter().filter(|voter| **voter != held.voter) {
            match held.group.reaches(voter) {
                true => self.marked.unmark(key, voter),
                false => self.marked.mark(key, voter),
            }
        }
    }

    /// Queues groups in memory that do not know of a store's birth, and groups that are not in memory with a voter to
    /// be replaced.
    ///
    /// `closed`: the latter; none where this store takes part in no group.
    pub fn queue_renewed(
        &mut self,
        env: &Env,
        groups: &OpenGroups,
        closed: Option<&ClosedGroups>,
        reach: &Reachability,
        requests: &GroupRequests,
    ) {
        for (key, held) in groups.iter() {
            if held.voters.iter().any(|voter| is_lost(env, key, *voter)) {
                let urgency = if requests.wait_for(key) { Urgency::Waiting } else { Urgency::Recent };
                self.renewed.push(key, urgency);
            }
        }
        let Some(closed) = closed else { return };

        let prefixes = env.knobs.layout.prefixes.partitions();
        for (&n_val, founding) in env.agreement.foundings.iter() {
            let now = |node: &NodeId| env.agreement.processes.get(node).map(|process| &process.stores);
            if founding.stores.iter().all(|(node, stores)| now(node).is_none_or(|now| now == stores)) {
                continue;
            }
            for prefix in (0..prefixes).filter_map(|prefix| u16::try_from(prefix).ok()) {
                let key = GroupKey { n_val, prefix };
                if is_here(env, prefix) && !groups.has(key) && is_to_open(env, closed, reach, key) {
                    self.renewed.push(key, Urgency::Other);
                }
            }
        }
    }

    /// A node cannot be reached any more.
    pub fn on_away(
        &mut self,
        env: &Env,
        (groups, closed, requests): (&OpenGroups, &ClosedGroups, &GroupRequests),
        work: &mut GroupWork,
        node: NodeId,
    ) {
        self.wake_led_by(closed, node, None);
        let dormant: BTreeSet<VoterId> =
            closed.led_with(env, node).into_iter().map(|(_, voter)| voter).collect();
        dormant.into_iter().for_each(|voter| self.marked.on_away(voter));
        for (key, held) in groups.iter() {
            let Some(&voter) = held.voters.iter().find(|voter| voter.node == node) else { continue };
            self.marked.on_away(voter);
            if held.group.leader() == Some(voter) {
                let urgency = match held.log_bytes {
                    _ if requests.wait_for(key) => Urgency::Waiting,
                    0 => Urgency::Other,
                    _ => Urgency::Recent,
                };
                self.leaderless.push(key, urgency);
            } else {
                work.step(key, Input::Reachable { voter, is_up: false });
            }
        }
    }

    /// A node can be reached, and its process may be another one than before.
    pub fn on_back(
        &mut self,
        env: &Env,
        (groups, closed): (&OpenGroups, &ClosedGroups),
        work: &mut GroupWork,
        node: NodeId,
        is_another: bool,
    ) {
        let dormant = closed.led_with(env, node);
        let mut back: BTreeSet<VoterId> = dormant.iter().map(|(_, voter)| *voter).collect();
        for (key, held) in groups.iter() {
            let Some(&voter) = held.voters.iter().find(|voter| voter.node == node) else { continue };
            if voter_of(env, node, key.prefix) != Some(voter) {
                continue;
            }
            back.insert(voter);
            let leads = held.group.leads();
            if leads && is_another {
                self.marked.mark(key, voter);
            }
            if !leads || !self.marked.is_marked(key, voter) {
                if is_another {
                    work.step(key, Input::Restarted { voter });
                }
                work.step(key, Input::Reachable { voter, is_up: true });
            }
        }
        if is_another {
            let life = env.agreement.processes.get(&node).map(|process| process.life);
            self.wake_led_by(closed, node, life);
            dormant.into_iter().for_each(|(key, voter)| self.marked.mark(key, voter));
        }
        back.into_iter().for_each(|voter| self.marked.on_back(voter));
    }

    /// Queues the dormant groups that a node led in another life than a given one.
    fn wake_led_by(&mut self, closed: &ClosedGroups, node: NodeId, life: Option<u64>) {
        if base::planted!(DormantNotWoken) {
            return;
        }
        for key in closed.led_by(node, life) {
            self.leaderless.push(key, Urgency::Other);
        }
    }
}

/// Tells a group which voters its nodes have now.
pub(super) fn renew(
    env: &Env,
    groups: &mut OpenGroups,
    reach: &Reachability,
    work: &mut GroupWork,
    key: GroupKey,
) {
    let Some(held) = groups.get_mut(key) else { return };
    for voter in &mut held.voters {
        *voter = voter_of(env, voter.node, key.prefix).unwrap_or(*voter);
    }
    work.step(key, Input::Listed { voters: registered(env, key, &held.voters) });
    for &voter in held.voters.iter().filter(|voter| **voter != held.voter) {
        work.step(key, Input::Reachable { voter, is_up: reach.reaches(env, key, voter) });
    }
}

/// Whether a group that is not in memory lacks the voter that a node has now, and this node is the one to begin: its
/// leader, where one is known.
fn is_to_open(env: &Env, closed: &ClosedGroups, reach: &Reachability, key: GroupKey) -> bool {
    let known = closed.stored_state(env, key).map(|state| state.configuration);
    let first = || first_voters(env, key).map(Configuration::of_voters);
    let Some(known) = known.or_else(first) else { return false };
    let voters = voters(env, key).unwrap_or_default();
    let mut can_begin =
        voters.iter().filter(|voter| known.has_voter(**voter) && reach.reaches(env, key, **voter));
    let missing = registered(env, key, &voters).into_iter().any(|voter| !known.has_voter(voter));
    missing
        && match closed.record(key) {
            Some(record) => record.leader() == env.leases.tables.here(),
            None => can_begin.next().is_some_and(|it| it.node == env.peers.here()),
        }
}
