//! Errors of a requested ring.

use crate::node_id::{NODES_MAX, NodeId};
use crate::partition::{Partition, RING_SIZE_MAX, RING_SIZE_MIN};
use crate::target_n::TARGET_N_MAX;

/// Why a ring was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The number of partitions is not a power of two in bounds.
    #[error("ring size {0:?} is not a power of two from {RING_SIZE_MIN} to {RING_SIZE_MAX}")]
    Size(String),
    /// The number of nodes is not in bounds.
    #[error("a ring of {partitions} partitions takes 1 to {} nodes, not {nodes}", NODES_MAX.min(*partitions))]
    Nodes {
        /// Nodes asked for.
        nodes: u32,
        /// Partitions there are.
        partitions: u32,
    },
    /// Two members are alike, or a number is too high.
    #[error("member {0} has a number or a name that another has too, or none that a ring takes")]
    Member(NodeId),
    /// There are more or fewer owners than partitions.
    #[error("{owners} owners are told for {partitions} partitions")]
    Owners {
        /// Owners told.
        owners: usize,
        /// Partitions there are.
        partitions: u32,
    },
    /// An owner is no member, or one that is yet to join or has left.
    #[error("node {0} is no member that may own a partition")]
    Owner(NodeId),
    /// A distance that no claim keeps was asked for.
    #[error("copies can be kept apart over 1 to {TARGET_N_MAX} partitions, not {0}")]
    Target(usize),
    /// No member is in a state in which it claims, or none has a weight.
    #[error("no member claims partitions")]
    NoClaimant,
    /// A ring is to have fewer partitions than before.
    #[error("a ring of {0} partitions does not shrink to {1}")]
    Sizes(u32, u32),
    /// No node may be asked for a partition: there is no covering set.
    #[error("no node can be asked for partition {0}")]
    NotCovered(Partition),
}
