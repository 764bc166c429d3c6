//! The newest proposed version of each key of which a proposal is not applied yet.
//!
//! A leader decides conditions against it, so that writes of one key follow each other without waiting. It holds
//! proposals of the present term alone: all earlier entries are applied before the first condition is decided.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::entry::Version;

/// A key's version, and the entry that makes it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The version; none if the key is absent or deleted.
    pub(super) version: Option<Version>,
    /// The entry that must be applied before a client may learn of it.
    pub(super) index: u64,
}

/// Versions that are proposed and not applied.
#[derive(Default)]
pub(super) struct Overlay {
    heads: BTreeMap<Bytes, Head>,
}

impl Overlay {
    /// The newest head of a key, given the applied one.
    pub(super) fn newest(&self, key: &Bytes, applied: Option<Version>) -> Head {
        let proposed = self.heads.get(key).filter(|_| !base::planted!(CasBesideProposal));
        proposed.copied().unwrap_or(Head { version: applied, index: 0 })
    }

    /// Notes a proposal.
    pub(super) fn propose(&mut self, key: Bytes, head: Head) {
        self.heads.insert(key, head);
    }

    /// Notes that the entry of an index, which writes a key, is applied.
    pub(super) fn on_applied(&mut self, key: &Bytes, index: u64) {
        if self.heads.get(key).is_some_and(|head| head.index <= index) {
            self.heads.remove(key);
        }
    }

    /// Forgets all proposals: another leader may have dropped them.
    pub(super) fn clear(&mut self) {
        self.heads.clear();
    }

    pub(super) fn invariants(&self, applied: u64) {
        debug_assert!(self.heads.values().all(|head| head.index > applied), "applied proposals have left");
    }
}
