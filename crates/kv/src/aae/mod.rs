//! Active anti-entropy: replicas find their differences without client requests.
//!
//! A node keeps a [`Tree`] of hashes for each partition and number of replicas: of what the keys' heads are, by the first bits of
//! their hashes. Two primaries of a partition that hold the same have the same root; if not, an [`Exchange`] goes down
//! from branches to segments to keys, and says which keys are to be read and repaired.
//!
//! * `tree.rs`: trees, kept with every write. `day.rs`: which of them a key is in.
//! * `checkpoint.rs`: trees on disk, which outlive a process.
//! * `exchange.rs`: how the keys are found that two nodes differ in.
//!
//! Invariants: nothing is repaired by an exchange itself: a key that differs is read with all of its replicas asked,
//! which joins what they have ([`crate::Get`]). So a version is never replaced by an older one, and what was reaped
//! stays so. A tree that is wrong costs time, and finds nothing that is not there.
//!
//! Keys that end are in trees of their own, one for each *day* on which some do (`day.rs`): such a tree goes as a whole
//! when the day is over, and is compared only while none of its keys has ended.
//!
//! Follows Riak's `aae_exchange` (leveled's TicTac trees).

mod checkpoint;
mod day;
mod exchange;
mod tree;

pub use checkpoint::{Checkpoint, Delta, RecordWriter, Scope, join};
pub use day::{DAY_MAX, day_of};
pub use exchange::{
    CONFIRM_AFTER, Exchange, Input, KEYS_MAX, KeyHash, KeyPage, Outcome, Output, ROOTS_MAX, Range,
    SEGMENTS_MAX,
};
pub use tree::{Axis, BITS_MAX, BITS_MIN, Grouping, Tree, leaf};

use bytes::Bytes;

/// Names a tree: of the keys of one partition whose buckets have so many replicas, and that end on one day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId {
    /// The first prefix of the partition.
    pub first: u16,
    /// The number of replicas.
    pub n_val: u32,
    /// The day on which the keys end ([`day_of`]); 0 for those that do not.
    pub day: u32,
}

/// What a node asks another about trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeAsk {
    /// Which of these have another root there?
    Roots {
        /// At most [`ROOTS_MAX`].
        roots: Vec<(TreeId, u32)>,
    },
    /// Which of these groups of a tree have another hash there?
    Groups {
        /// The tree.
        tree: TreeId,
        /// What a group is.
        by: Grouping,
        /// Groups and their hashes.
        groups: Vec<(u32, u32)>,
    },
    /// Which keys are in these segments?
    Keys {
        /// The tree.
        tree: TreeId,
        /// A segment is what begins with so many bits.
        bits: u32,
        /// At most [`SEGMENTS_MAX`].
        segments: Vec<u32>,
        /// The first ledger key that is wanted; `None` for all.
        from: Option<Bytes>,
    },
}

/// What it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeAnswer {
    /// Of the roots.
    Roots {
        /// Those that differ.
        differ: Vec<TreeId>,
        /// Those that another shard of the same node can tell of.
        others: Vec<TreeId>,
    },
    /// Of the groups of a tree.
    Groups {
        /// How many bits the answerer's tree tells apart.
        bits: u32,
        /// The groups that differ.
        differ: Vec<u32>,
    },
    /// Keys, ascending.
    Keys(KeyPage),
}

impl TreeAsk {
    /// The partition that decides which shard is asked.
    pub fn first(&self) -> Option<u16> {
        match self {
            TreeAsk::Roots { roots } => roots.first().map(|(tree, _)| tree.first),
            TreeAsk::Groups { tree, .. } | TreeAsk::Keys { tree, .. } => Some(tree.first),
        }
    }
}
