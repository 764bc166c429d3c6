//! A suspect voter without a leader: entries of its log are damaged, so it neither votes nor stands for election.
//!
//! Only a leader brings the entries back. But a group at rest has none after all of its processes have started anew:
//! its other voters may not even be in memory, and nothing wakes them until a request comes. So a suspect voter calls
//! for a leader, as long as the others could elect one.
//!
//! The call is a refusal to vote without a request for a vote. Programs of all versions take it, and it changes nothing
//! where it comes late or twice: the others count it as no vote, and a leader drops it.

use super::Group;
use super::message::Message;

impl Group {
    /// Whether this store lacks entries, knows no leader, and the other voters that can be reached are a majority.
    pub(super) fn calls_for_leader(&self) -> bool {
        self.is_registered
            && self.is_suspect()
            && !self.has_forgotten
            && self.leader().is_none_or(|leader| !self.reaches(leader))
            && self.is_majority(|voter| voter != self.identity.voter && self.reaches(voter))
    }

    /// Has the other voters stand for election.
    pub(super) fn call_for_leader(&mut self) {
        let here = self.identity.voter;
        let others: Vec<_> = self.voters().filter(|voter| *voter != here && self.reaches(*voter)).collect();
        let term = self.term();
        for voter in others {
            let refusal = Message::VoteReply { term, commit: (0, 0), is_pre: true, is_rejected: true };
            self.send(voter, refusal);
        }
    }
}
