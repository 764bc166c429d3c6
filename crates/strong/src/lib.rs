//! Consistent bucket types: the pure part.
//!
//! * [`catch_up`]: the two ends of the catch-up of a voter that fell far behind.
//! * [`dormant`]: groups at rest that are not in memory.
//! * [`envelope`]: messages of many groups from one shard to another.
//! * [`forward`]: the window against requests of other nodes that come twice.
//! * [`group`]: one replicated group, the voters of one prefix, on TiKV's Raft library. It decides conditions, orders
//!   writes and confirms reads.
//! * [`linearizability`]: a checker for histories of clients' operations.
//! * [`promise`]: promises between processes, and the leases of leaders that rest on them.
//! * [`survey`]: the choice of one copy of each group after a restore from backups.
//! * [`wake`]: groups at rest that have to be woken, in order and at a pace.
//!
//! Neither has a clock, a socket, a disk or randomness of its own. Time comes with each call, random numbers from
//! [`base::Rng`]. Decisions 101 and 105 have the argument for the guarantees.
//!
//! Left out: links, journals, founding and routing, which belong to the node; changes of a group's nodes.

pub mod catch_up;
pub mod dormant;
pub mod envelope;
pub mod forward;
pub mod group;
pub mod linearizability;
pub mod promise;
pub mod survey;
pub mod wake;

mod endpoint;

pub use self::endpoint::Endpoint;
