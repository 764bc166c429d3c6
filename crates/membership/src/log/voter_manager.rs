//! A leader's record of the voters: when each was heard last, and the voters that lost acknowledged entries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::Monotonic;
use ring::NodeId;

use super::entry::Conf;
use super::voters::VOTER_DOWN_MAX;

/// Interval of a leader's looks at the voters.
const CARE_EVERY: Duration = Duration::from_secs(5);

/// A leader's record of the voters.
pub(super) struct VoterManager {
    /// Voters that lost acknowledged entries. They count for nothing until they vote no more.
    lost: BTreeSet<NodeId>,
    /// When each voter was heard last.
    heard: BTreeMap<NodeId, Monotonic>,
    /// Time of the last change of the voters or the learner.
    learns_since: Monotonic,
    /// Time of the next look.
    at: Monotonic,
}

impl VoterManager {
    pub(super) fn new(conf: &Conf, now: Monotonic) -> VoterManager {
        let heard = conf.voters.iter().map(|&voter| (voter, now)).collect();
        VoterManager { lost: BTreeSet::new(), heard, learns_since: now, at: now + CARE_EVERY }
    }

    /// Time of the next look at the voters.
    pub(super) fn next_timer(&self) -> Monotonic {
        self.at
    }

    /// Makes a look due now.
    pub(super) fn look_now(&mut self, now: Monotonic) {
        self.at = now;
    }

    /// Makes a look due after the interval.
    pub(super) fn look_later(&mut self, now: Monotonic) {
        self.at = now + CARE_EVERY;
    }

    /// Time of the last change of the voters or the learner.
    pub(super) fn learns_since(&self) -> Monotonic {
        self.learns_since
    }

    /// Counts out a voter that lost acknowledged entries.
    pub(super) fn lose(&mut self, voter: NodeId) {
        self.lost.insert(voter);
    }

    pub(super) fn is_lost(&self, node: NodeId) -> bool {
        self.lost.contains(&node)
    }

    pub(super) fn hear(&mut self, from: NodeId, now: Monotonic) {
        if let Some(heard) = self.heard.get_mut(&from) {
            *heard = now;
        }
    }

    /// Follows a change of the voters.
    pub(super) fn follow(&mut self, conf: &Conf, now: Monotonic) {
        self.lost.retain(|node| conf.voters.contains(node));
        let heard = |&voter| (voter, self.heard.get(&voter).copied().unwrap_or(now));
        self.heard = conf.voters.iter().map(heard).collect();
        self.learns_since = now;
    }

    /// Relations to the present voters.
    pub(super) fn invariants(&self, conf: &Conf) {
        debug_assert!(self.heard.keys().eq(&conf.voters), "a leader listens to its voters");
        debug_assert!(self.lost.is_subset(&conf.voters), "nodes that are counted out are voters");
    }

    /// Voters that should vote no more, regardless of the failure detector.
    pub(super) fn bad(&self, here: NodeId, now: Monotonic) -> BTreeSet<NodeId> {
        let silent =
            self.heard.iter().filter(|(node, at)| **node != here && now.since(**at) >= VOTER_DOWN_MAX);
        silent.map(|(&node, _)| node).chain(self.lost.iter().copied()).collect()
    }
}
