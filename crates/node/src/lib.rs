//! A node's shards: inputs to `kv`, to `engine`, to outputs.
//!
//! A [`Shard`] owns one store and everything that belongs to its part of the keys, and is driven from one thread:
//! requests and messages of other shards come in by [`Shard::request`] and [`Shard::hop`], and when a batch of
//! them is in, [`Shard::turn`] ends the turn. What is to be sent comes out as [`Output`]s. It holds no socket,
//! clock or thread, so the server and the simulation run the same code.
//!
//! * `shard/`: the router of a shard, its environment, and the effects that its components raise.
//! * `frontdoor/`, `request/`, `coverage/`, `metadata/`, `liveness/`, `handoff/`, `anti_entropy/`, `reap/`: its
//!   components.
//! * `consistent/`: the groups of consistent bucket types.
//! * `hop.rs`: what shards of a node say to each other.
//! * `peer/`: what nodes say to each other.
//! * `members.rs`: the nodes of the cluster. `topology.rs`: who holds what, and how that changes.
//! * `layout.rs`: what a data folder was made with. `indexing.rs`: which index entries its stores keep.
//! * `trees.rs`: trees of hashes, as both of these answer them.
//! * `store/`: what a shard keeps its objects in: the engine, or another backend.
//! * `riak/`, `http/`: Riak's protocol buffers and its HTTP in front of it.

mod anti_entropy;
pub mod consistent;
mod contents;
mod coverage;
mod frontdoor;
mod handoff;
pub mod hop;
pub mod http;
pub mod indexing;
pub mod layout;
mod liveness;
pub mod members;
mod metadata;
pub mod peer;
mod reap;
mod request;
pub mod riak;
#[cfg(test)]
mod round_trip_tests;
pub mod shard;
pub mod store;
pub mod topology;
mod trees;

pub use consistent::GROUPS;
pub use consistent::adopt::{AdoptError, AdoptedGroups, Adoption, CopyReport};
pub use consistent::agreement::{Agreement, RegisteredProcess};
pub use consistent::birth::{FoundBirth, read_birth};
pub use consistent::recover::{KnownCluster, RecoverGroupError, RecoverableGroup, Recovery, recoveries};
pub use consistent::report::{GroupCounts, GroupReport, GroupRole};
pub use hop::{Hop, ShardId};
pub use indexing::INDEXING;
pub use layout::Layout;
pub use liveness::lease_config::LeaseConfig;
pub use members::Members;
pub use metadata::keeper::{read_props, read_props_of};
pub use peer::{AskId, CopyPart, Lane, Load, PeerMessage, RefusedMessage};
pub use shard::{
    Histogram, LatencyRead, Output, Reaping, Rebuilding, RequestId, Shard, ShardConfig, ShardControl,
    ShardStats, ShardStatus, SlowKeys, SlowLine, SlowRequests, SlowStage, TimesRead, TransferStatus,
    TreesStatus, Turns,
};
pub use store::{Adapter, Store};
pub use strong::group::{Configuration, RecoverError, StrongReads, VoterId};
pub use strong::survey;
pub use strong::wake::WAKES_PER_SECOND;
pub use topology::{Budget, Epoch, Topology};
