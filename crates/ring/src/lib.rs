//! The ring: which partition a key lies in, and which nodes hold that partition.
//!
//! The ring is the 64-bit hash space, cut into a power of two of equal partitions. From a key to its nodes:
//!
//! 1. [`Position::of_key`] hashes (type, bucket, key).
//! 2. [`RingSize::partition`] takes the position's top bits.
//! 3. [`Ring::preflist`] names the owners clockwise from there, without walking or allocating.
//!
//! A [`Ring`] never changes; a later one has a higher version. [`shard_of`] spreads partitions over a node's shards.
//!
//! A ring's [`Members`] are numbered for life and have a state, a zone and a weight. A ring does not know which nodes
//! are up: [`Ring::preflist_with_fallbacks`] names all nodes, and a request skips the nodes that are down.
//!
//! Invariants: every partition has an owner, which is a member that may own; versions only grow. The hash, the
//! canonical bytes and the shard mix are part of the stored format and never change.
//!
//! [`Claimed::claim`] says who is to own what after members came or went: even by weight, copies of a key apart by node
//! and by zone, and with few moves.
//!
//! [`grown`] gives the owners of a larger ring, and [`Ring::cover`] finds few nodes that hold all keys.
//!
//! Left out: decisions and steps of a change of owners (membership), transfer of data (handoff), storage of a ring.
//!
//! Follows DeCandia et al., *Dynamo* (SOSP 2007), third partitioning strategy, as Riak does. Different from
//! Riak: a key lies in the partition that begins at or before its position, so that a partition is a prefix of
//! the position's bits.

mod birth;
mod claim;
mod coverage;
mod error;
mod member;
mod node_id;
mod nodes;
mod partition;
mod position;
mod preflist;
mod resize;
mod ring;
mod rows;
mod size;
mod target_n;

pub use birth::Birth;
pub use claim::{Claim, Claimed, Shortfall, TARGET_N_DEFAULT, shortfalls};
pub use error::Error;
pub use member::{Member, MemberState, Members, WEIGHT_DEFAULT};
pub use node_id::{NODES_MAX, NodeId};
pub use nodes::NodeSet;
pub use partition::{Partition, RING_SIZE_MAX, RING_SIZE_MIN};
pub use position::{Position, shard_of};
pub use preflist::{Preflist, PreflistEntry};
pub use resize::{DISTANCE_GROWN, Moved, grown, moved};
pub use ring::{Ring, RingVersion};
pub use size::{RING_SIZE_DEFAULT, RingSize};
pub use target_n::TARGET_N_MAX;
