//! Elections: how a term gets its leader, or none.

use std::collections::BTreeSet;
use std::time::Duration;

use base::Monotonic;
use ring::NodeId;

use super::message::Message;
use super::replicate::Leader;
use super::{ELECTION_AFTER, HEARTBEAT_EVERY, Log, Payload, Role};

impl Log {
    /// Gives the leader, or a candidate, a while before this node stands for election.
    pub(super) fn wait_for_leader(&mut self, now: Monotonic) {
        let after = u64::try_from(ELECTION_AFTER.as_nanos()).expect("seconds");
        self.deadline = now + ELECTION_AFTER + Duration::from_nanos(self.rng.below(after));
    }

    /// Whether this node may vote and lead.
    fn takes_part(&self) -> bool {
        self.restored.is_none() && self.voters().contains(&self.identity.node)
    }

    pub(super) fn is_majority(&self, of: &BTreeSet<NodeId>) -> bool {
        let voters = self.voters();
        of.intersection(voters).count() > voters.len() / 2
    }

    /// Nothing was heard of a leader: asks whether an election could be won, without disturbing one that cannot be reached.
    pub(super) fn stand(&mut self, now: Monotonic) {
        self.wait_for_leader(now);
        self.leader = None;
        if self.takes_part() {
            self.ask_for_votes(true, now);
        }
    }

    fn ask_for_votes(&mut self, pre: bool, now: Monotonic) {
        let here = self.identity.node;
        if !pre {
            self.term += 1;
            self.voted = Some(here);
            self.put_hard();
        }
        let votes = BTreeSet::from([here]);
        let is_won = self.is_majority(&votes);
        self.role = Role::Candidate { pre, votes };
        if is_won {
            return self.on_won(pre, now);
        }
        let term = if pre { self.term + 1 } else { self.term };
        let (last_index, last_term) = self.last();
        for &voter in &self.voters().clone() {
            self.sends.push((voter, Message::Vote { pre, term, last_index, last_term }));
        }
    }

    fn on_won(&mut self, pre: bool, now: Monotonic) {
        if pre {
            return self.ask_for_votes(false, now);
        }
        self.role = Role::Leader(Leader::new(now));
        self.deadline = now + HEARTBEAT_EVERY;
        // An entry of its own term, with which those of earlier ones are committed.
        self.append(Payload::Nothing);
        self.track_voters(now);
        self.replicate_all(true);
        self.commit_what_most_have(now);
    }

    pub(super) fn follow(&mut self, term: u64, leader: Option<NodeId>, now: Monotonic) {
        if term > self.term {
            (self.term, self.voted) = (term, None);
            self.put_hard();
        }
        if !matches!(self.role, Role::Follower) {
            self.role = Role::Follower;
            self.wait_for_leader(now);
        }
        self.leader = leader;
    }

    pub(super) fn on_vote(&mut self, from: NodeId, pre: bool, term: u64, last: (u64, u64), now: Monotonic) {
        let led = match self.role {
            Role::Leader(_) => true,
            _ => self.leader.is_some() && now.since(self.leader_heard) < ELECTION_AFTER,
        };
        if self.restored.is_some() || led && self.leader() != Some(from) {
            return;
        }
        if !pre && term > self.term {
            self.follow(term, None, now);
        }
        let (index, our_term) = self.last();
        let knows_enough = last >= (our_term, index);
        let granted = knows_enough
            && match pre {
                true => term > self.term,
                false => term == self.term && self.voted.is_none_or(|voted| voted == from),
            };
        if granted && !pre {
            if self.voted.is_none() {
                self.voted = Some(from);
                self.put_hard();
            }
            self.wait_for_leader(now);
        }
        let term = if pre && granted { term } else { self.term };
        self.sends.push((from, Message::Voted { pre, term, granted }));
    }

    pub(super) fn on_voted(&mut self, from: NodeId, pre: bool, term: u64, granted: bool, now: Monotonic) {
        if !granted {
            if term > self.term {
                self.follow(term, None, now);
            }
            return;
        }
        let expected = if pre { self.term + 1 } else { self.term };
        let Role::Candidate { pre: asked, votes } = &mut self.role else { return };
        if *asked != pre || term != expected {
            return;
        }
        votes.insert(from);
        let votes = votes.clone();
        if self.is_majority(&votes) {
            self.on_won(pre, now);
        }
    }
}
