//! Requests that groups of this store execute.

use std::collections::BTreeMap;

use bytes::Bytes;
use kv::consistent::Plan;

use crate::consistent::group::GroupKey;
use crate::consistent::pending::Pending;

/// A request that its group has.
pub struct ServedRequest {
    pub pending: Pending,
    /// The plan of a write, and the object that was proposed.
    pub write: Option<Box<(Plan, Bytes, Bytes)>>,
}

/// Requests that groups of this store have, by their tokens.
#[derive(Default)]
pub struct ServedRequests {
    requests: BTreeMap<u64, ServedRequest>,
    last: u64,
}

impl ServedRequests {
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Adds a request; tells its token.
    pub fn add(&mut self, serving: ServedRequest) -> u64 {
        self.last += 1;
        self.requests.insert(self.last, serving);
        self.last
    }

    pub fn take(&mut self, token: u64) -> Option<ServedRequest> {
        self.requests.remove(&token)
    }

    pub fn take_all(&mut self) -> Vec<ServedRequest> {
        std::mem::take(&mut self.requests).into_values().collect()
    }

    /// The request of a token.
    pub fn pending_mut(&mut self, token: u64) -> Option<&mut Pending> {
        self.requests.get_mut(&token).map(|serving| &mut serving.pending)
    }

    /// Whether a group has a request.
    pub fn has_one_of(&self, key: GroupKey) -> bool {
        self.requests.values().any(|serving| serving.pending.group == key)
    }

    /// All requests.
    pub fn pendings_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.requests.values_mut().map(|serving| &mut serving.pending)
    }
}
