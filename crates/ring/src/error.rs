//! What can be wrong with a ring that someone asks for.

use crate::ring::NODES_MAX;
use crate::size::{RING_SIZE_MAX, RING_SIZE_MIN};

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
}
