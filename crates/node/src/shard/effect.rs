//! Effects: the wishes of one component of a shard to another.
//!
//! A component raises effects while it takes a step. The router gives each to its receiver, first in, first out, until
//! none is left; only then does the next input come. So no component calls another, and none is entered while it is
//! taking a step.
//!
//! Order: changes of trees are raised in the order of their writes, and a hint that is kept comes before the wish to
//! bring the hints of its node.

use crate::anti_entropy::head_change::HeadChange;
use crate::peer::NodeId;
use crate::request::task::Task;
use bytes::Bytes;
use kv::Error;
use kv::props::PropsSums;

/// One effect.
pub(crate) enum Effect {
    /// A task is to begin.
    Start(Box<Task>),
    /// Nobody waits for the tasks of this outbound transfer any more.
    CancelTransfer(u64),
    /// The delivery of a hint to this node is over.
    HintDelivered(NodeId),
    /// A key of an outbound transfer is at its receiver, with so many bytes, or is not.
    KeyTransferred { transfer: u64, key: Bytes, result: Result<u64, Error> },
    /// A reaping of a tombstone is over.
    Reaped { key: Bytes, is_agreed: bool },
    /// A fold of a causal context is over.
    ContextFolded { key: Bytes, is_agreed: bool },
    /// A key that an exchange has found to differ was read with its replicas.
    KeyRead,
    /// Its task is over, and its replicas were sent all that they lacked.
    KeyRepaired,
    /// A tombstone that a sweep has found was read.
    TombstoneRead,
    /// Hints about a key with this prefix are kept for these nodes.
    HintsKept { prefix: u16, nodes: Vec<NodeId> },
    /// The hints for this node are to be brought home.
    BringHints(NodeId),
    /// All primaries have this tombstone.
    ProposeReap { key: Bytes, tombstone: Bytes },
    /// The causal context of this key has many entries.
    ProposeContextFold { key: Bytes },
    /// A write has replaced a head.
    HeadChanged(HeadChange),
    /// Another node can be reached, or its new process. One that `compares_props` finds missing properties
    /// by itself.
    PeerUp { node: NodeId, compares_props: bool },
    /// Another node cannot be reached any more.
    PeerDown(NodeId),
    /// Another node has forgotten its questions: it is down, was started again, or has left the cluster.
    QuestionsLost(NodeId),
    /// Another node has told the sums of its bucket properties.
    PropsKnown { node: NodeId, sums: Option<PropsSums> },
    /// Ranges of keys that are not this node's to keep were dropped.
    RangesDropped,
}
