//! Leaders that give their groups to others: at a clean stop, and to the voters that are preferred.
//!
//! * *Stop.* Each group here leaves: its leader asks another voter to lead, and takes no requests meanwhile. Requests
//!   of clients wait here, and then ask the next leader. When all shards have given their leases up, the process
//!   releases the promises of others, so that groups without a hand-over need not wait for their end.
//! * *Preferred.* The first voter of a group's list that can be reached is preferred, so each node leads its share.
//!   After a node was away its groups are led by others. Their leaders give them back when the node was up for
//!   [`PREFERRED_AFTER`], at a pace, and not while this node is busy.
//!
//! Invariant: while a group that is led here has a reachable voter that is preferred, the next look has its time. A
//! look goes over all groups, so a store at rest has none.
//!
//! Left out: the choice of another voter at a stop, and whether it has all entries, which the group knows.

use std::time::Duration;

use base::Monotonic;
use strong::group::{Input, LEAVE_PAUSE, VoterId};

use super::group::{GroupKey, HeldGroup};
use super::open_groups::OpenGroups;
use super::reach::Reachability;
use super::work::GroupWork;
use crate::shard::env::Env;

/// Time for which a node must have been reached before it gets its groups back: a node that starts has other work.
const PREFERRED_AFTER: Duration = Duration::from_secs(10);

/// Interval of the looks for groups that are to be given back.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Groups of a node that are given back in a look: each costs an election.
const PREFERRED_MAX: u16 = 20;

/// The hand-overs of a shard.
#[derive(Debug, Default)]
pub(super) struct HandOvers {
    /// The end of the time that a stop waits for the hand-overs.
    leaves_until: Option<Monotonic>,
    /// The next look for groups to be given back; none if the last one found that all are led by the preferred voter
    /// of those that can be reached, and nothing has changed since.
    look_at: Option<Monotonic>,
}

impl HandOvers {
    /// Notes that a group may have another preferred voter, or another leader.
    pub fn note_change(&mut self, now: Monotonic) {
        self.look_at.get_or_insert(now + LOOK_EVERY);
    }

    /// The process stops: all groups are to be led by others.
    pub fn begin_leave(&mut self, groups: &OpenGroups, work: &mut GroupWork, now: Monotonic) {
        self.leaves_until = Some(now + LEAVE_PAUSE);
        groups.keys().into_iter().for_each(|key| work.step(key, Input::Leave));
    }

    /// Whether a stop is to wait for the hand-over of a group.
    pub fn has_to_wait(&self, groups: &OpenGroups, now: Monotonic) -> bool {
        self.leaves_until.is_some_and(|until| now < until)
            && groups.iter().any(|(_, held)| held.group.has_to_hand_over())
    }

    /// Gives some groups to the voters that are preferred.
    pub fn give_back(
        &mut self,
        env: &Env,
        groups: &mut OpenGroups,
        reach: &Reachability,
        work: &mut GroupWork,
        now: Monotonic,
    ) {
        let is_due = self.look_at.is_some_and(|at| at <= now);
        if !is_due || env.gauges.is_stopping || env.gauges.queued() > 0 {
            return;
        }

        let (mut given, mut is_at_rest) = (Vec::new(), true);
        for (key, held) in groups.iter().filter(|(_, held)| held.group.leads()) {
            match preferred_of(env, reach, (key, held), now) {
                Preferred::Here => {}
                Preferred::Later => is_at_rest = false,
                Preferred::Now(voter) => given.push((key, voter)),
            }
        }
        // One that is given back may stay, so it is looked at again.
        self.look_at = (!is_at_rest || !given.is_empty()).then_some(now + LOOK_EVERY);

        let most = usize::from((PREFERRED_MAX / env.knobs.layout.shards).max(1));
        given.sort_unstable();
        given.truncate(most);
        for (key, voter) in given {
            if let Some(held) = groups.get_mut(key) {
                held.given_back = Some(now);
            }
            work.step(key, Input::HandOver { voter });
        }
    }
}

/// The voter that is preferred to this store as the leader of a group.
enum Preferred {
    /// None that can be reached.
    Here,
    /// One that is not to lead yet.
    Later,
    /// One that is to lead now.
    Now(VoterId),
}

/// The voter that is to lead a group in place of this store, unless it was away a moment ago.
fn preferred_of(
    env: &Env,
    reach: &Reachability,
    (key, held): (GroupKey, &HeldGroup),
    now: Monotonic,
) -> Preferred {
    let mut before = held.voters.iter().copied().take_while(|voter| *voter != held.voter);
    let Some(first) = before.find(|voter| reach.reaches(env, key, *voter)) else { return Preferred::Here };
    let is_back = reach.since(first.node).is_some_and(|since| now.since(since) >= PREFERRED_AFTER);
    let was_asked = held.given_back.is_some_and(|at| now.since(at) < PREFERRED_AFTER);
    let is_ready = is_back && !was_asked && env.peers.is_up(first.node) && held.group.is_settled();
    if is_ready { Preferred::Now(first) } else { Preferred::Later }
}
