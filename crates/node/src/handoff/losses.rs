//! Losses of senders of transfers, and the nodes that are asked to make up for them.
//!
//! A sender that has lost a part of a partition sends the rest, and says so. Every other living node that holds the
//! partition is then asked for all of it, too, since two or more of them have each confirmed version. So a damaged
//! table does not stop a change of owners, and every version that a quorum confirmed comes over in spite of it. Only
//! versions that the sender alone had are lost, as they would be if nothing moved.
//!
//! Invariant: a transfer is complete when all that are asked have sent their part. Nodes that are asked more are in the
//! same batch as the checkpoint of the part that told of the loss, so a restart does not forget them.
//!
//! Left out: the lost keys themselves. Merges of known versions write nothing.

use crate::peer::NodeId;
use ring::Partition;
use std::collections::{BTreeMap, BTreeSet};

/// The loss of a sender, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyLoss {
    /// The sender.
    pub from: NodeId,
    /// The partition of the ring in force.
    pub partition: Partition,
    /// Nodes that are asked for it, or have been. Without any, the loss is final.
    pub others: Vec<NodeId>,
}

/// All losses for the target.
#[derive(Default)]
pub(crate) struct Losses {
    /// Senders that have lost something, by prefix.
    by: BTreeMap<u16, BTreeSet<NodeId>>,
    /// Losses that people are to be told.
    told: Vec<CopyLoss>,
}

impl Losses {
    /// Of which prefixes this node has lost something.
    pub fn of(&self, node: NodeId) -> impl Iterator<Item = &u16> {
        self.by.iter().filter(move |(_, nodes)| nodes.contains(&node)).map(|(prefix, _)| prefix)
    }

    pub fn take_told(&mut self) -> Vec<CopyLoss> {
        std::mem::take(&mut self.told)
    }

    /// Notes it. False if it is known already.
    pub fn note(&mut self, node: NodeId, prefix: u16) -> bool {
        self.by.entry(prefix).or_default().insert(node)
    }

    /// How many nodes have lost something of a prefix.
    pub fn count(&self, prefix: u16) -> usize {
        self.by.get(&prefix).map_or(0, BTreeSet::len)
    }

    /// Whether a node has lost something of a prefix.
    pub fn has(&self, node: NodeId, prefix: u16) -> bool {
        self.by.get(&prefix).is_some_and(|nodes| nodes.contains(&node))
    }

    /// To be told to people; of a partition once.
    pub fn tell(&mut self, loss: CopyLoss) {
        if self.told.last() != Some(&loss) {
            self.told.push(loss);
        }
    }
}
