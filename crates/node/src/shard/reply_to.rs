//! Where the result of a task goes.

use crate::hop::{RequestId, ShardId};
use crate::peer::{AskId, NodeId};

/// The receiver of a task's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyTo {
    /// A client of this shard.
    Client(RequestId),
    /// A client of another shard.
    Shard(ShardId, RequestId),
    /// Another node, which has passed its client's request on.
    Coordinator(NodeId, AskId),
    /// Another node, which has asked this one as the leader of a consistent group.
    Leader(NodeId, AskId),
    /// Another node, which asks this replica.
    Replica(NodeId, AskId),
    /// Another task of this shard, which waits until its write is on the nodes that take over.
    DualWrite(u64),
    /// An exchange with another node, which has found that the key differs.
    Exchange,
    /// A sweep, which has found a tombstone.
    Sweep,
    /// Nobody.
    Nobody,
}
