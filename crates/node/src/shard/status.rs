//! The state of a shard, for operators and the control plane.

use super::Shard;
use super::counters::ShardCounters;
use crate::anti_entropy::status::TreesStatus;
use crate::consistent::adopt::CopyReport;
use crate::consistent::report::{GroupCounts, GroupReport};
use crate::handoff::receiver::TransferStatus;
use crate::peer::NodeId;
use crate::request::place::placement;
use bytes::Bytes;
use engine::store::StoreStats;
use kv::TypeStatus;
use ring::Position;
use std::collections::BTreeSet;
use std::time::Duration;

/// Counters and gauges of a shard, for operators.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardStats {
    /// Its counters.
    pub counters: ShardCounters,
    /// Its store.
    pub store: StoreStats,
    /// Requests under way.
    pub work: usize,
    /// Bytes of values that they hold.
    pub work_bytes: usize,
    /// Other nodes that can be reached.
    pub peers_up: usize,
    /// Partitions of the ring that it goes by.
    pub partitions: u32,
    /// Tombstones that are remembered since they were reaped, or nearly.
    pub graves: usize,
    /// Times of versions that were too far ahead of this node's clock for the shard's to follow.
    pub times_ahead: u64,
    /// Writes that are held back, as the store asks for.
    pub writes_held: usize,
    /// How long writes were made to wait for one another, in all.
    pub paced: Duration,
    /// Partitions whose trees are yet to be made, or made anew; none of a node alone.
    pub trees_due: usize,
    /// Bytes of memory that trees take.
    pub tree_bytes: usize,
    /// Keys in them.
    pub tree_keys: u64,
    /// Resets of bucket properties that are remembered.
    pub resets: usize,
    /// Groups of consistent bucket types.
    pub groups: GroupCounts,
    /// Whether the store takes no writes, for now or at all.
    pub refuses_writes: bool,
}

/// The state of a shard, as it is read.
#[derive(Clone, Copy)]
pub struct ShardStatus<'a> {
    shard: &'a Shard,
}

impl<'a> ShardStatus<'a> {
    pub(super) fn new(shard: &'a Shard) -> ShardStatus<'a> {
        ShardStatus { shard }
    }

    /// The error for which the store takes no more writes, if a write has failed.
    pub fn fenced(&self) -> Option<engine::Error> {
        self.shard.env.store.fenced()
    }

    /// Its counters and gauges.
    pub fn stats(&self) -> ShardStats {
        let (tree_bytes, tree_keys) = self.shard.anti_entropy.sizes();
        ShardStats {
            counters: self.shard.env.counters,
            store: self.shard.env.store.stats(),
            work: self.shard.env.gauges.requests(),
            work_bytes: self.shard.env.gauges.bytes(),
            peers_up: self.shard.env.peers.up().count(),
            partitions: self.shard.env.topology.ring.size().partitions(),
            graves: self.shard.requests.graves(),
            times_ahead: self.shard.env.version_clock.refused(),
            writes_held: self.shard.env.gauges.held,
            paced: self.shard.frontdoor.pacer.owed,
            trees_due: self.shard.anti_entropy.due(),
            tree_bytes,
            tree_keys,
            resets: self.shard.env.props.resets(),
            groups: self.shard.consistent.status(&self.shard.env).counts(),
            refuses_writes: self.refuses_writes().is_some(),
        }
    }

    /// A member's name; the number of one that is forgotten.
    pub fn name_of(&self, node: NodeId) -> String {
        let members = &self.shard.env.topology.members;
        if members.has(node) { members.name(node).to_string() } else { node.to_string() }
    }

    /// The state of the last compaction.
    pub fn reclaimed(&self) -> engine::store::Reclaimed {
        self.shard.env.store.reclaimed()
    }

    /// Why the store takes no writes for now, or at all.
    pub fn refuses_writes(&self) -> Option<engine::Error> {
        self.shard.env.store.refuses_writes()
    }

    /// Other nodes that it reaches.
    pub fn reached(&self) -> BTreeSet<NodeId> {
        self.shard.env.peers.up().collect()
    }

    /// How it stands with the trees of each partition that this shard compares; of none where nothing is compared.
    pub fn trees(&self) -> Vec<TreesStatus> {
        self.shard.anti_entropy.statuses(&self.shard.env)
    }

    /// The number of nodes that take part in a request for the keys at `at`, of `n` replicas, by a sloppy quorum.
    pub fn participants(&self, at: Position, n: u32) -> usize {
        let env = &self.shard.env;
        let placement = placement(&env.topology.ring, &env.peers, at, n, true, env.can_write(false));
        placement.replies().count()
    }

    /// Whether partitions may move, as far as this shard has been told.
    pub fn is_changing(&self) -> bool {
        !self.shard.env.topology.is_at_rest()
    }

    /// The numbers of replicas that buckets have, as far as this shard knows.
    pub fn n_vals(&self) -> BTreeSet<u32> {
        self.shard.env.props.n_vals()
    }

    /// Whether this shard has dropped all that this node is not to have: nothing moves, no hint is kept of it, and
    /// nothing is left to be looked for. A node that owns nothing may go then.
    pub fn has_given_all(&self) -> bool {
        self.shard.handoff.has_given_all(&self.shard.env)
    }

    /// Whether this node is to have nothing, and nothing is left here that others may lack, nor any request: it may go.
    pub fn is_vacated(&self) -> bool {
        self.shard.handoff.orphans.is_vacated(&self.shard.env) && self.shard.is_idle()
    }

    /// Nodes that this shard keeps hints for which hold up what it is to drop, as of its last look. They go home when
    /// these can be reached.
    pub fn kept_for(&self) -> Vec<NodeId> {
        self.shard.handoff.orphans.kept_for()
    }

    /// The number of replicas of a consistent bucket type that is not active yet; `None` of any other.
    pub fn inactive_consistent(&self, bucket_type: &Bytes) -> Option<u32> {
        let types = self.shard.env.props.types(true);
        let (_, status, props) = types.iter().find(|(name, ..)| name == bucket_type)?;
        (props.consistent && *status != TypeStatus::Active).then_some(props.n_val)
    }

    /// The state of each group at this shard's store; none before its node has a consistent bucket type.
    pub fn groups(&self) -> Vec<GroupReport> {
        self.shard.consistent.status(&self.shard.env).reports()
    }

    /// Groups that have a leader, and of which this shard's store lacks entries or keys.
    pub fn groups_behind(&self) -> usize {
        self.shard.consistent.status(&self.shard.env).behind()
    }

    /// The copy of each group that this shard's store has, or should have.
    pub fn copies(&self) -> Vec<CopyReport> {
        self.shard.consistent.status(&self.shard.env).copies()
    }

    /// How far inbound transfers are.
    pub fn transfers(&self) -> Vec<TransferStatus> {
        self.shard.handoff.inbound.transfers(&self.shard.env)
    }
}
