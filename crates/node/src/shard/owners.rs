//! Owners of the scans and folds under way: the component that began one gets its end.
//!
//! Invariant: a scan or fold has one owner from its beginning until the store's event of its end, which comes for each,
//! also for one that was cancelled or whose owner does not need it any more. So the tables are as small as the store's.

use engine::fold::{FoldId, ScanId};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The owner of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanOwner {
    /// A page of a listing or a cluster fold.
    KeyPage,
    /// A page of an index query.
    IndexPage,
    /// A part of a pass of the tombstone sweeper.
    Sweep,
    /// Keys of an outbound transfer.
    OutboundTransfer,
    /// Checkpoints of inbound transfers.
    InboundCheckpoints,
    /// A round of hints to one node.
    HintRound,
    /// The search for ranges that this node is not to have.
    OrphanedRanges,
    /// A part of a catch-up, or tombstones, of consistent groups.
    ConsistentGroups,
}

/// The owner of a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoldOwner {
    /// The changes that complete trees that were kept on disk.
    TreeReplay,
    /// A part of trees that are made anew.
    TreeRebuild,
    /// The keys of a branch that differs.
    BranchKeys,
}

/// The owners of all scans, or of all folds.
#[derive(Debug)]
pub(crate) struct Owners<I, O>(BTreeMap<I, O>);

/// The owners of scans.
pub(crate) type ScanOwners = Owners<ScanId, ScanOwner>;

/// The owners of folds.
pub(crate) type FoldOwners = Owners<FoldId, FoldOwner>;

impl<I, O> Default for Owners<I, O> {
    fn default() -> Owners<I, O> {
        Owners(BTreeMap::new())
    }
}

impl<I: Ord + Copy + Debug, O: Debug> Owners<I, O> {
    /// Notes the owner of a scan or fold that has begun.
    pub fn note(&mut self, id: I, owner: O) {
        let before = self.0.insert(id, owner);
        debug_assert!(before.is_none(), "{id:?} begins once, and was of {before:?}");
    }

    /// Takes the owner of a scan or fold that has ended.
    pub fn take(&mut self, id: I) -> Option<O> {
        self.0.remove(&id)
    }

    /// The owner of a scan or fold under way.
    pub fn of(&self, id: I) -> Option<&O> {
        self.0.get(&id)
    }
}
