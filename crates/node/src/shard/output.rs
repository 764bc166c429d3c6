//! Output of a shard: replies, messages to other shards and nodes, and news for the control plane.

use crate::frontdoor::slow::SlowLine;
use crate::hop::{Hop, RequestId, ShardId};
use crate::peer::{NodeId, PeerMessage};
use crate::topology::Epoch;
use kv::{Error, Response};
use ring::{Birth, RingVersion};
use std::sync::Arc;

/// One output of a shard.
#[derive(Debug)]
pub enum Output {
    /// An answer for a client.
    Reply {
        /// The request.
        to: RequestId,
        /// The answer.
        result: Result<Response, Error>,
        /// Whether further answers follow, once the shell has called [`crate::Shard::proceed`].
        more: bool,
    },
    /// A message for another shard.
    Hop {
        /// Which.
        to: ShardId,
        /// The message.
        message: Hop,
    },
    /// A message for another node. If it cannot be sent, [`crate::Shard::bounce`] takes it back.
    Peer {
        /// Which.
        to: NodeId,
        /// The message.
        message: PeerMessage,
    },
    /// For the log: a request is slow.
    Slow(Arc<SlowLine>),
    /// For the control plane: this shard goes by that epoch, and none of its requests by an older one any more.
    Adopted(Epoch),
    /// For the control plane: this shard has, durably, all that the target of this version asks it to have. Told again
    /// after a restart, once it is known again.
    Copied(RingVersion),
    /// For the control plane: the store's birth is durable, so it may be registered.
    BirthKept(Birth),
    /// For the control plane: the store lacks entries that it has acknowledged, so it needs a new birth.
    Forgot,
    /// The clean stop is complete, or failed.
    Closed(Result<(), engine::Error>),
}
