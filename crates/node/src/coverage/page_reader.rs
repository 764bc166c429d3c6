//! The receiver of a page.

use crate::hop::ShardId;
use crate::peer::{AskId, NodeId};

/// The receiver of a page, with its question.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PageReader {
    /// A shard of this node.
    Shard(ShardId, u64),
    /// Another node.
    Node(NodeId, AskId),
}
