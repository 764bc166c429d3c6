//! Steps of the ring on its way to the owners of a commit.

use std::collections::BTreeSet;

use ring::{NodeId, RingVersion};

/// A step of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing moves.
    AtRest,
    /// Future owners copy their partitions.
    Copying {
        /// The future owners.
        target: Vec<NodeId>,
        /// The target's version, which its copies name.
        version: RingVersion,
        /// Members that have copied all their partitions.
        copied: BTreeSet<NodeId>,
    },
    /// The new ring is in force, and requests may still go by the one before.
    Switched {
        /// The owners before.
        before: Vec<NodeId>,
    },
}

impl Step {
    /// Its name, for people and for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Step::AtRest => "at rest",
            Step::Copying { .. } => "copying",
            Step::Switched { .. } => "switched",
        }
    }
}
