//! Inputs of the metadata log.

use bytes::Bytes;
use ring::NodeId;

use crate::state::Command;

/// An event for a log.
#[derive(Clone, Debug)]
pub enum Input {
    /// A message has come.
    Message(Bytes),
    /// A node can be reached, or cannot any more, as far as the failure detector knows.
    Reachable {
        /// The node.
        node: NodeId,
        /// Whether it can be reached.
        is_up: bool,
    },
    /// A caller wants a change; [`super::Output::Answer`] comes with the same token.
    Propose {
        /// Names the proposal in its answer.
        token: u64,
        /// The change.
        command: Command,
    },
    /// This node is a member of a cluster whose log it does not have: it asks another for it.
    Join {
        /// The other node.
        contact: NodeId,
    },
    /// An operator says that the majority of the voters is lost for good. The cluster goes on with this log.
    Recover {
        /// [`super::Log::safety_word`], as the operator read it.
        word: String,
    },
    /// Time has passed; due at [`super::Log::next_timer`].
    Tick,
}
