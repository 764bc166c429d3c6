//! The members of a cluster, the owners of partitions, and the reachability of nodes.
//!
//! Two questions, answered apart from each other:
//! * **Who is alive?** [`detector`]: SWIM, by gossip. Its answer may be wrong for a while, differs from node to node,
//!   and nothing that must be right depends on it.
//! * **Who is a member, and who owns what?** [`state`], the same at all nodes, by the order that [`log`] gives its
//!   commands. Reading and writing data does not wait for it.
//!
//! [`Membership`] is both in one, as a node runs them. All are state machines without clock, socket, disk or randomness
//! of their own: `step(input, now)`, and what came of it. [`reporter`] says what a node reports of itself.
//!
//! Left out: links, files and threads, which are their user's.

mod cluster;
pub mod detector;
pub mod log;
mod member;
pub mod reporter;
pub mod state;

pub use cluster::ClusterId;
pub use member::{Input, Membership, Output, Stop};
pub use ring::NodeId;
