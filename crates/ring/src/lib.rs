//! The ring: which partition a key lies in, and which nodes hold that partition.
//!
//! The ring is the 64-bit hash space, cut into a power of two of equal partitions. From a key to its nodes:
//!
//! 1. [`Position::of_key`] hashes (type, bucket, key).
//! 2. [`RingSize::partition`] takes the position's top bits.
//! 3. [`Ring::preflist`] walks clockwise from there and names the owners, without allocating.
//!
//! A [`Ring`] never changes; a new one with a higher version is published through [`RingHandle`], and readers see
//! it at their next look, without a lock on their way. [`shard_of`] spreads partitions over a node's shards.
//!
//! Invariants: every partition has an owner below the number of nodes; versions only grow. The hash, the
//! canonical bytes and the shard mix are part of the stored format and never change.
//!
//! Left out so far: weights, changes of membership and their plans, transfers, coverage.
//!
//! Follows DeCandia et al., *Dynamo* (SOSP 2007), third partitioning strategy, as Riak does. Different from
//! Riak: a key lies in the partition that begins at or before its position, so that a partition is a prefix of
//! the position's bits.

mod error;
mod handle;
mod position;
mod ring;
mod size;

pub use error::Error;
pub use handle::{RingHandle, RingReader};
pub use position::{Position, shard_of};
pub use ring::{NODES_MAX, NodeId, Preflist, PreflistEntry, Ring, RingVersion};
pub use size::{Partition, RING_SIZE_DEFAULT, RING_SIZE_MAX, RING_SIZE_MIN, RingSize};
