//! Lookups of the store that wait for the disk, each with its purpose.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::store::LookupId;
use kv::consistent::Plan;

use super::group::GroupKey;
use super::pending::Pending;

/// A lookup that waits for the disk.
pub(super) enum WaitingLookup {
    /// Of a confirmed read; with the epoch of its group then.
    Read { pending: Box<Pending>, epoch: u16 },
    /// Of a write that is not proposed; with the applied index of its group then.
    Write { pending: Box<Pending>, plan: Box<Plan>, applied: u64 },
    /// Of a key whose entry is to be applied.
    Apply { group: GroupKey, key: Bytes },
    /// Of a key of a catch-up's part.
    Part { part: u64, key: Bytes },
    /// Of a key of the part that a group receives.
    Incoming { group: GroupKey, key: Bytes },
    /// Of a tombstone that is to be reaped.
    Reap { key: Bytes, through: u64 },
    /// Of nothing any more.
    Nobody,
}

/// Lookups under way.
#[derive(Default)]
pub(super) struct Lookups {
    waiting: BTreeMap<LookupId, WaitingLookup>,
    /// Those of requests.
    of_requests: usize,
}

impl Lookups {
    /// Requests that wait for a lookup.
    pub fn requests(&self) -> usize {
        self.of_requests
    }

    /// Whether none is under way.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn add(&mut self, id: LookupId, lookup: WaitingLookup) {
        self.of_requests += usize::from(lookup.is_of_request());
        self.waiting.insert(id, lookup);
    }

    pub fn take(&mut self, id: LookupId) -> Option<WaitingLookup> {
        let lookup = self.waiting.remove(&id)?;
        self.of_requests -= usize::from(lookup.is_of_request());
        Some(lookup)
    }

    /// Whether a request of a group, or an entry or a part of it, waits for one.
    pub fn has_one_of(&self, key: GroupKey) -> bool {
        self.waiting.values().any(|lookup| match lookup {
            WaitingLookup::Read { pending, .. } | WaitingLookup::Write { pending, .. } => {
                pending.group == key
            }
            WaitingLookup::Apply { group, .. } | WaitingLookup::Incoming { group, .. } => *group == key,
            WaitingLookup::Part { .. } | WaitingLookup::Reap { .. } | WaitingLookup::Nobody => false,
        })
    }

    /// All requests that wait for one.
    pub fn pendings_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.waiting.values_mut().filter_map(|lookup| match lookup {
            WaitingLookup::Read { pending, .. } | WaitingLookup::Write { pending, .. } => {
                Some(&mut **pending)
            }
            _ => None,
        })
    }

    pub fn invariants(&self) {
        debug_assert_eq!(
            self.waiting.values().filter(|lookup| lookup.is_of_request()).count(),
            self.of_requests,
            "lookups of requests are counted"
        );
    }
}

impl WaitingLookup {
    fn is_of_request(&self) -> bool {
        matches!(self, WaitingLookup::Read { .. } | WaitingLookup::Write { .. })
    }
}
