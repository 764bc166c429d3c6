//! Facts about the metadata log that its caller looks at between steps.

use std::collections::BTreeSet;

use base::Monotonic;
use ring::NodeId;

use super::library;
use super::voter_manager::VoterManager;
use super::{Entry, Epoch, Identity, Log};
use crate::state::State;

impl Log {
    /// The state of the committed entries; none before this node has a history.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// The name of this log, and its address.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The history that this node follows.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether its folder was found to be an older copy, and it takes no part until it has seen itself without a vote.
    pub fn is_older_copy(&self) -> bool {
        self.restored.is_some()
    }

    /// The last committed entry.
    pub fn commit(&self) -> u64 {
        self.commit
    }

    /// Index and term of the last entry: of several survivors, the one with the highest term, then index, knows most.
    pub fn last(&self) -> (u64, u64) {
        self.store().last()
    }

    /// The present term.
    pub fn term(&self) -> u64 {
        self.raw.raft.term
    }

    /// The leader, as far as this node knows.
    pub fn leader(&self) -> Option<NodeId> {
        library::node_of(self.raw.raft.leader_id)
    }

    /// The voters, by the last committed entry.
    pub fn voters(&self) -> &BTreeSet<NodeId> {
        &self.store().conf.voters
    }

    /// Committed entries that are kept, in order.
    pub fn committed(&self) -> impl Iterator<Item = &Entry> {
        self.store().entries.iter().filter(|entry| entry.index <= self.commit)
    }

    /// Whether a node counts as reachable here.
    pub(crate) fn reaches(&self, node: NodeId) -> bool {
        self.up.contains(&node)
    }

    /// When the next [`super::Input::Tick`] is due.
    pub fn next_timer(&self) -> Monotonic {
        let proposals = self.waiters.next_timer();
        let tick = self.next_tick();
        let care = self.care.as_ref().map(VoterManager::next_timer);
        let news = self.tells_at().into_iter().chain(self.registers_at()).chain(self.hold_timer());
        proposals.into_iter().chain(tick).chain(care).chain(news).fold(self.poll_at, Monotonic::min)
    }
}
