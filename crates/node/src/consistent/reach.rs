//! The reachability of other nodes, as groups know it.
//!
//! A voter can be reached if its node's link is up, and the process behind it is the one that the cluster has
//! registered with the voter's store. A store that is stalled reaches nobody: its groups let others lead.

use std::collections::BTreeMap;

use base::Monotonic;
use strong::group::VoterId;

use super::group::{GroupKey, HeldGroup};
use super::voters::{is_registered, voter_of};
use crate::peer::NodeId;
use crate::shard::env::Env;

/// The reachability of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reach {
    /// The process that was reached last; zero for none.
    life: u64,
    is_up: bool,
    /// When it could be reached last, or not any more.
    since: Monotonic,
}

/// A change of a node's reachability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReachChange {
    /// It cannot be reached any more.
    Away,
    /// It can be reached, and whether its process is another one than before.
    Back { is_another: bool },
}

/// The reachability of all nodes, as groups were told.
#[derive(Default)]
pub(super) struct Reachability {
    nodes: BTreeMap<NodeId, Reach>,
    /// The oldest batch has waited too long for its sync, or the store takes no writes.
    is_stalled: bool,
}

impl Reachability {
    /// Whether a voter of a group can be reached.
    pub fn reaches(&self, env: &Env, key: GroupKey, voter: VoterId) -> bool {
        voter.node == env.peers.here()
            || !self.is_stalled
                && reach_of(env, voter.node).is_up
                && voter_of(env, voter.node, key.prefix) == Some(voter)
    }

    /// Whether requests of a group have somewhere to go. A group that waits to be told of its leader's loss still takes
    /// it for reached.
    pub fn reaches_leader(&self, env: &Env, key: GroupKey, held: &HeldGroup) -> bool {
        held.has_leader() && held.group.leader().is_some_and(|leader| self.reaches(env, key, leader))
    }

    /// Notes whether the store is stalled; tells whether that is a change.
    pub fn set_stalled(&mut self, is_stalled: bool) -> bool {
        is_stalled != std::mem::replace(&mut self.is_stalled, is_stalled)
    }

    /// Compares a node's reachability with that which groups know.
    pub fn follow(&mut self, env: &Env, node: NodeId) -> Option<ReachChange> {
        let now = match self.is_stalled {
            true => Reach::default(),
            false => reach_of(env, node),
        };
        let before = self.nodes.get(&node).copied().unwrap_or_default();
        if now.is_up == before.is_up && (!now.is_up || now.life == before.life) {
            return None;
        }
        // The last life stays known while the node is away.
        let life = if now.is_up { now.life } else { before.life };
        self.nodes.insert(node, Reach { life, ..now });
        Some(match now.is_up {
            true => ReachChange::Back { is_another: now.life != before.life },
            false => ReachChange::Away,
        })
    }

    /// When a node could be reached last, or not any more.
    pub fn since(&self, node: NodeId) -> Option<Monotonic> {
        self.nodes.get(&node).map(|reach| reach.since)
    }
}

/// The reachability of a node now.
fn reach_of(env: &Env, node: NodeId) -> Reach {
    match env.peers.life_if_up(node) {
        Some(life) if is_registered(env, node, life) => Reach { life, is_up: true, since: env.now() },
        _ => Reach::default(),
    }
}
