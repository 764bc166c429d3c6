//! What senders of copies have lost, and who is asked to make up for it.
//!
//! A sender that has lost something of a partition sends what is left, and says so. Every other node that holds the
//! partition and lives is then asked for all of it, too: what was confirmed, two or more of them have. So a damaged
//! table does not stop a change, and what a quorum confirmed comes over in spite of it. Only what the sender alone had
//! is lost, as it would be if nothing moved.
//!
//! Invariant: a copy is complete when all that are asked have sent what they have; whom it asks more is in the same
//! batch as the checkpoint of the part that told of the loss, so a restart does not forget it.
//!
//! Left out: which keys of a partition are concerned. Merges of what is there already write nothing.

use crate::peer::NodeId;
use ring::Partition;
use std::collections::{BTreeMap, BTreeSet};

/// What a sender has lost, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyLoss {
    /// Who has lost something.
    pub from: NodeId,
    /// Of which partition of the ring in force.
    pub partition: Partition,
    /// Who is asked for it, or has been. If there is nobody, what was lost stays lost.
    pub others: Vec<NodeId>,
}

/// What has been lost for the target.
#[derive(Default)]
pub(crate) struct Losses {
    /// Who has lost something, by prefix.
    by: BTreeMap<u16, BTreeSet<NodeId>>,
    /// What is to be told.
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
