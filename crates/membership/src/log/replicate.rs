//! A leader's part, and what a follower does with what a leader sends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::Monotonic;
use ring::NodeId;

use super::entry::{Entry, Payload, Snapshot};
use super::message::{Append, ENTRIES_MAX, Message};
use super::voters::{self, Step};
use super::{ELECTION_AFTER, HEARTBEAT_EVERY, Log, Role};
use crate::planted::{Planted, planted};

/// How often a leader looks whether other members should vote.
const HEAL_EVERY: Duration = Duration::from_secs(5);

/// How long a member that is to vote may take to have the log.
const CATCH_UP_MAX: Duration = Duration::from_secs(15);

/// What a leader knows of one that it sends entries to.
pub(super) struct Progress {
    next: u64,
    /// Up to here it has what the leader has.
    matched: u64,
    heard: Monotonic,
    /// Whether an answer is awaited.
    waits: bool,
    /// The last round that it agreed in.
    agreed_round: u64,
    /// Whether it lost what it had acknowledged: it counts for nothing until it votes no more.
    lost: bool,
}

pub(super) struct Leader {
    peers: BTreeMap<NodeId, Progress>,
    /// Numbers what is sent, so that an old answer is known as such.
    round: u64,
    /// A member that is to vote once it has the log, and since when.
    joining: Option<(NodeId, Monotonic)>,
    heal_at: Monotonic,
}

impl Leader {
    pub(super) fn new(now: Monotonic) -> Leader {
        Leader { peers: BTreeMap::new(), round: 0, joining: None, heal_at: now + HEAL_EVERY }
    }

    pub(super) fn lose(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            (peer.lost, peer.matched) = (true, 0);
        }
    }
}

impl Log {
    /// Sends to those who vote, and to the one that is to.
    pub(super) fn track_voters(&mut self, now: Monotonic) {
        let (here, next) = (self.identity.node, self.last().0);
        let voters = self.voters().clone();
        let Role::Leader(leader) = &mut self.role else { return };
        let mut tracked = voters;
        tracked.extend(leader.joining.map(|(node, _)| node));
        leader.peers.retain(|node, _| tracked.contains(node));
        for node in tracked.into_iter().filter(|node| *node != here) {
            let new =
                || Progress { next, matched: 0, heard: now, waits: false, agreed_round: 0, lost: false };
            leader.peers.entry(node).or_insert_with(new);
        }
    }

    pub(super) fn replicate_all(&mut self, even_if_waiting: bool) {
        let Role::Leader(leader) = &self.role else { return };
        let peers = leader.peers.iter().filter(|(_, peer)| even_if_waiting || !peer.waits);
        let peers: Vec<NodeId> = peers.map(|(&node, _)| node).collect();
        peers.into_iter().for_each(|node| self.replicate(node));
    }

    fn replicate(&mut self, node: NodeId) {
        let Role::Leader(leader) = &mut self.role else { return };
        leader.round += 1;
        let round = leader.round;
        let Some(peer) = leader.peers.get_mut(&node) else { return };
        peer.waits = true;
        let (prev_index, term, commit) = (peer.next - 1, self.term, self.commit);
        let message = match self.term_at(prev_index) {
            Some(prev_term) => {
                let entries = self.entries_after(prev_index);
                Message::Append(Append { term, round, prev_index, prev_term, commit, entries })
            }
            None => Message::Snapshot { term, round, snapshot: self.snapshot() },
        };
        self.sends.push((node, message));
    }

    /// The entries after `index`, as many as go into a message.
    pub(super) fn entries_after(&self, index: u64) -> Vec<Entry> {
        let from = self.entries.partition_point(|entry| entry.index <= index);
        self.entries.range(from..).take(ENTRIES_MAX).cloned().collect()
    }

    /// The state as it is.
    pub(super) fn snapshot(&self) -> Snapshot {
        let Some(state) = &self.state else { return self.base.clone() };
        let term = self.term_at(self.commit).expect("the last committed entry is known");
        Snapshot {
            index: self.commit,
            term,
            voters: self.voters_at(self.commit).clone(),
            state: state.encode(),
        }
    }

    pub(super) fn heartbeat(&mut self, now: Monotonic) {
        self.deadline = now + HEARTBEAT_EVERY;
        let Role::Leader(leader) = &self.role else { return };
        let heard =
            leader.peers.iter().filter(|(_, peer)| !peer.lost && now.since(peer.heard) < 2 * ELECTION_AFTER);
        let mut heard: BTreeSet<NodeId> = heard.map(|(&node, _)| node).collect();
        heard.insert(self.identity.node);
        if !self.is_majority(&heard) {
            self.role = Role::Follower;
            self.leader = None;
            return self.wait_for_leader(now);
        }
        self.heal(now);
        self.replicate_all(true);
    }

    pub(super) fn on_append(&mut self, from: NodeId, append: Append, now: Monotonic) {
        let Append { term, round, prev_index, prev_term, commit, entries } = append;
        if self.restored.is_some() || !self.heed(from, term, round, prev_index, now) {
            return;
        }
        let reply = |log: &mut Log, agreed, index| {
            let message = Message::Appended { term, round, agreed, prev_index, index };
            log.sends.push((from, message));
        };
        let known = prev_index <= self.commit || self.term_at(prev_index) == Some(prev_term);
        if !known {
            let may_agree = self.last().0.min(prev_index - 1).max(self.commit);
            return reply(self, false, may_agree);
        }
        if entries.first().is_some_and(|first| first.index != prev_index + 1) {
            return;
        }
        let last = prev_index + entries.len() as u64;
        if !self.take(entries) {
            return;
        }
        self.advance(commit.min(last), now);
        reply(self, true, last);
    }

    /// Whether `from` leads the present term or a later one; it is followed then.
    pub(super) fn heed(
        &mut self,
        from: NodeId,
        term: u64,
        round: u64,
        prev_index: u64,
        now: Monotonic,
    ) -> bool {
        if term < self.term {
            let (term, index) = (self.term, self.last().0);
            self.sends.push((from, Message::Appended { term, round, agreed: false, prev_index, index }));
            return false;
        }
        if matches!(self.role, Role::Leader(_)) && term == self.term {
            // A term has one leader; a foreign one comes of a data folder that forgot its vote.
            return false;
        }
        self.follow(term, Some(from), now);
        self.leader_heard = now;
        self.wait_for_leader(now);
        true
    }

    /// Takes entries over where they differ from what is here; false if they contradict what is committed.
    pub(super) fn take(&mut self, entries: Vec<Entry>) -> bool {
        for entry in entries {
            if entry.index <= self.commit || self.term_at(entry.index) == Some(entry.term) {
                if self.term_at(entry.index).is_some_and(|term| term != entry.term) {
                    return false;
                }
                continue;
            }
            while self.entries.back().is_some_and(|last| last.index >= entry.index) {
                self.entries.pop_back();
            }
            self.push(entry);
        }
        true
    }

    pub(super) fn on_appended(
        &mut self,
        from: NodeId,
        term: u64,
        round: u64,
        agreed: bool,
        index: u64,
        now: Monotonic,
    ) {
        if term > self.term {
            return self.follow(term, None, now);
        }
        let last = self.last().0;
        let Role::Leader(leader) = &mut self.role else { return };
        let Some(peer) = leader.peers.get_mut(&from).filter(|_| term == self.term) else { return };
        if peer.lost || index > last {
            return;
        }
        peer.heard = now;
        peer.waits = false;
        if agreed {
            peer.agreed_round = peer.agreed_round.max(round);
            peer.matched = peer.matched.max(index);
            peer.next = peer.next.max(peer.matched + 1);
        } else if round > peer.agreed_round && index < peer.matched {
            // What it had acknowledged is durable, unless its disk is another.
            return leader.lose(from);
        } else {
            peer.next = peer.next.min(index + 1).max(peer.matched + 1);
        }
        if !agreed || peer.next <= last {
            self.replicate(from);
        }
        self.commit_what_most_have(now);
        self.admit_voter(now);
    }

    /// Commits what a majority of the voters has, if it is of this term: what is before it is committed with it.
    pub(super) fn commit_what_most_have(&mut self, now: Monotonic) {
        let (here, last) = (self.identity.node, self.last().0);
        let Role::Leader(leader) = &self.role else { return };
        let voters = self.voters();
        let matched = |node: &NodeId| match leader.peers.get(node) {
            Some(peer) => peer.matched,
            None => {
                if *node == here {
                    last
                } else {
                    0
                }
            }
        };
        let mut have: Vec<u64> = voters.iter().map(matched).collect();
        have.sort_unstable_by(|a, b| b.cmp(a));
        let enough = if planted(Planted::CommittedEntryLost) { 0 } else { voters.len() / 2 };
        let Some(&index) = have.get(enough) else { return };
        if index > self.commit && self.term_at(index) == Some(self.term) {
            self.advance(index, now);
        }
    }

    /// What a leader does when entries were committed.
    pub(super) fn after_commit(&mut self, now: Monotonic) {
        let here = self.identity.node;
        if !matches!(self.role, Role::Leader(_)) {
            return;
        }
        if !self.voters_at(self.commit).contains(&here) && !self.voters().contains(&here) {
            self.role = Role::Follower;
            return self.wait_for_leader(now);
        }
        // The others learn at once what they may apply.
        self.replicate_all(false);
    }

    /// Whether the voters may be changed: no other change is under way, and a leader's own entry is committed.
    fn may_change_voters(&self) -> bool {
        self.term_at(self.commit) == Some(self.term) && self.voters_at(self.commit) == self.voters()
    }

    /// Looks whether others should vote.
    fn heal(&mut self, now: Monotonic) {
        let may_change = self.may_change_voters();
        let Role::Leader(leader) = &mut self.role else { return };
        if now < leader.heal_at || !may_change {
            return;
        }
        leader.heal_at = now + HEAL_EVERY;
        if leader.joining.is_some_and(|(_, since)| now.since(since) < CATCH_UP_MAX) {
            return;
        }
        leader.joining = None;
        let lost = leader.peers.iter().filter(|(_, peer)| peer.lost).map(|(&node, _)| node).collect();
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
            Some(Step::Add(node)) => {
                if let Role::Leader(leader) = &mut self.role {
                    leader.joining = Some((node, now));
                }
                self.track_voters(now);
            }
            Some(Step::Remove(node)) => {
                let mut voters = self.voters().clone();
                voters.remove(&node);
                self.change_voters(voters, now);
            }
            None => self.track_voters(now),
        }
    }

    /// Lets the member vote that was to, once it has the log.
    fn admit_voter(&mut self, now: Monotonic) {
        let may_change = self.may_change_voters();
        let Role::Leader(leader) = &mut self.role else { return };
        let Some((node, _)) = leader.joining else { return };
        if may_change && leader.peers.get(&node).is_some_and(|peer| !peer.lost && peer.matched >= self.commit)
        {
            leader.joining = None;
            let mut voters = self.voters().clone();
            voters.insert(node);
            self.change_voters(voters, now);
        }
    }

    fn change_voters(&mut self, voters: BTreeSet<NodeId>, now: Monotonic) {
        self.append(Payload::Voters(voters));
        self.track_voters(now);
        self.replicate_all(true);
        self.commit_what_most_have(now);
    }
}
