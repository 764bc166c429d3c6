//! A voter whose store lacks keys: some are damaged, or all were dropped for a catch-up. Its log is sound.
//!
//! 1. The caller meets damage: [`super::Input::Unreadable`]. The voter goes on to vote and to acknowledge.
//! 2. A leader that lacks keys asks a reachable voter with all entries to lead. Until one does, a leader with damaged
//!    keys serves the others, and an incomplete one serves nothing.
//! 3. A follower that lacks keys tells its leader. The leader begins a catch-up, for which the store drops the keys.
//! 4. Until then this voter stands for election behind the others. It may be the only one with all entries, which
//!    another one, with the keys, gets from it.
//!
//! Invariants: a leader drops no keys. A leader that lacks keys refills no voter that still has some: two damaged
//! voters keep all that each can read.
//!
//! Left out: the record of the damage over a restart. The store meets it again.

use std::time::Duration;

use base::Monotonic;

use super::Group;
use super::identity::VoterId;
use super::message::Message;

/// Interval of a leader's questions to lead in its place: an election is long over.
pub const HAND_OVER_RETRY: Duration = Duration::from_secs(1);

impl Group {
    /// Notes that the store cannot read keys of the group.
    pub(super) fn on_unreadable(&mut self) {
        if self.lacks_keys() || self.has_forgotten {
            return;
        }
        self.is_unreadable = true;
        if let Some(leader) = self.leader().filter(|_| !self.leads()) {
            let term = self.term();
            self.send(leader, Message::Incomplete { term });
        }
    }

    /// Whether the store cannot read keys of the group that others may have.
    pub fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// Whether keys that are applied here are not in the store, or cannot be read.
    pub(super) fn lacks_keys(&self) -> bool {
        self.is_unreadable || self.is_incomplete
    }

    /// When the next voter is asked to lead in place of this one.
    pub(super) fn next_hand_over(&self) -> Option<Monotonic> {
        self.asked_to_lead.filter(|_| self.leads()).map(|(_, next)| next)
    }

    /// Asks a voter to lead in place of this one, if its store lacks keys. Several are asked in turn.
    pub(super) fn hand_over(&mut self, now: Monotonic) {
        if !self.leads() || !self.lacks_keys() {
            self.asked_to_lead = None;
            return;
        }
        if self.asked_to_lead.is_some_and(|(_, next)| now < next) {
            return;
        }
        let last = self.last().0;
        let has_all = |voter: &VoterId| {
            *voter != self.identity.voter
                && self.reaches(*voter)
                && !self.is_forgetful(*voter)
                && self.matched(*voter) == last
                && !self.catch_ups.receivers().any(|receiver| receiver == *voter)
        };
        let able: Vec<VoterId> = self.members().voters.iter().copied().filter(has_all).collect();
        let next = able.iter().find(|voter| self.asked_to_lead.is_some_and(|(before, _)| **voter > before));
        let next = next.or(able.first()).copied();
        self.asked_to_lead = next.map(|voter| (voter, now + HAND_OVER_RETRY));
        if let Some(voter) = next {
            let term = self.term();
            self.send(voter, Message::TimeoutNow { term });
        }
    }

    /// The places by which this voter waits longer than its rank before it stands for election.
    pub(super) fn places_behind(&self) -> u32 {
        let voters = u32::try_from(self.members().voters.len()).expect("a group has few voters");
        if self.lacks_keys() { voters } else { 0 }
    }
}
