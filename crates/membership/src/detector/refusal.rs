//! Refusals of datagrams: the reasons, as text.

use ring::NodeId;

use crate::ClusterId;

/// Reason to refuse a datagram. Both sides are told its text; "ours" is the refuser's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another version of the format.
    #[error("format {theirs} of the failure detector is offered, {ours} is spoken here")]
    Version {
        /// The refuser's version.
        ours: u8,
        /// The offered version.
        theirs: u8,
    },
    /// A node of another cluster.
    #[error("another cluster: {theirs} there, {ours} here")]
    Cluster {
        /// The refuser's cluster.
        ours: ClusterId,
        /// The refused sender's cluster.
        theirs: ClusterId,
    },
    /// No member: removed, or not admitted yet.
    #[error("node {node} is not a member")]
    NotMember {
        /// The refused sender.
        node: NodeId,
    },
    /// A copy of a data folder whose original is alive. The process refused must stop.
    #[error("a copy of a data folder: its original is alive (process {original:016x})")]
    Copy {
        /// The original's process.
        original: u64,
    },
    /// Another process of the node has spoken: an earlier one, or a copy. The process refused introduces itself anew.
    #[error("another process of the node ({start:016x}, generation {generation}) has spoken")]
    Superseded {
        /// The other process; zero if it is known by hearsay only.
        start: u64,
        /// Its generation, which must be exceeded.
        generation: u64,
    },
}
