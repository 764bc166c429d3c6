//! Outputs of the metadata log.

use bytes::Bytes;
use protocol::peer::Malformed;
use ring::NodeId;

use super::{Envelope, Outcome, Refusal, Write};

/// Work or news of a log, in order: outputs behind a write wait until it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Write to the log's file. If that fails, the log must not be used any more.
    Write(Write),
    /// Send to a node, as best as one can.
    Send {
        /// The receiver.
        to: NodeId,
        /// The message.
        message: Bytes,
    },
    /// Send to the sender of the message.
    Reply(Bytes),
    /// A proposal's end.
    Answer {
        /// The proposal.
        token: u64,
        /// Its outcome.
        outcome: Outcome,
    },
    /// The state is another: look at [`super::Log::state`].
    Changed,
    /// The data folder is an older copy, and counts so many starts once nothing rests on what it has lost: see
    /// [`crate::Output::Starts`].
    Starts(u32),
    /// A sender was refused here.
    Refused {
        /// The sender.
        from: Envelope,
        /// The reason.
        refusal: Refusal,
    },
    /// Another node refuses this one.
    Told {
        /// The other node.
        by: Envelope,
        /// The reason.
        refusal: Refusal,
    },
    /// A node has other committed entries than this one; told once of each node.
    Contradicted {
        /// That node.
        by: NodeId,
    },
    /// A message that makes no sense.
    Junk(Malformed),
}
