//! A voter whose store lacks keys: some are damaged, or all were dropped for a catch-up. Its log is sound.
//!
//! 1. The caller meets damage: [`super::Input::Unreadable`]. The voter goes on to vote and to acknowledge.
//! 2. A leader that lacks keys asks a reachable voter with all entries to lead (`hand_over.rs`). Until one does, a
//!    leader with damaged keys serves the others, and an incomplete one serves nothing.
//! 3. A follower that lacks keys tells its leader. The leader begins a catch-up, for which the store drops the keys.
//! 4. Until then this voter stands for election behind the others. It may be the only one with all entries, which
//!    another one, with the keys, gets from it.
//!
//! Invariants: a leader drops no keys. A leader that lacks keys refills no voter that still has some: two damaged
//! voters keep all that each can read.
//!
//! Left out: the record of the damage over a restart. The store meets it again.

use super::Group;
use super::message::Message;

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

    /// The place of this voter among those that stand for election: its rank, behind all others if it lacks keys.
    pub(super) fn place(&self) -> u32 {
        let voters = u32::try_from(self.members().voters.len()).expect("a group has few voters");
        self.identity.rank + if self.lacks_keys() { voters } else { 0 }
    }
}
