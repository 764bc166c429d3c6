//! Who is in a cluster, who owns what, and who can be reached.
//!
//! Two questions, answered apart from each other:
//! * **Who is alive?** [`detector`]: SWIM, by gossip. Its answer may be wrong for a while, differs from node to node, and
//!   nothing that must be right depends on it.
//!
//! Both are state machines without clock, socket, disk or randomness of their own: `step(input, now)`, and what came
//! of it.
//!
//! Left out: links, files and threads, which are their user's.

mod cluster;
pub mod detector;

pub use cluster::ClusterId;
pub use ring::NodeId;
