//! Requests that wait for a leader of their group.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::Monotonic;

use crate::consistent::group::GroupKey;
use crate::consistent::pending::Pending;

/// Interval at which requests without a leader look for one again: the first election of a group takes as long.
const RETRY_EVERY: Duration = Duration::from_millis(50);

/// Requests without a leader.
#[derive(Default)]
pub struct WaitingRequests {
    groups: BTreeMap<GroupKey, VecDeque<Pending>>,
    len: usize,
    retry_at: Option<Monotonic>,
}

impl WaitingRequests {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn has(&self, key: GroupKey) -> bool {
        self.groups.contains_key(&key)
    }

    pub fn next_timer(&self) -> Option<Monotonic> {
        self.retry_at
    }

    /// All requests.
    pub fn pendings_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.groups.values_mut().flatten()
    }

    /// Takes the requests of a group, in order.
    pub fn take(&mut self, key: GroupKey) -> VecDeque<Pending> {
        let taken = self.groups.remove(&key).unwrap_or_default();
        self.len -= taken.len();
        taken
    }

    /// Takes all.
    pub fn take_all(&mut self) -> Vec<Pending> {
        (self.len, self.retry_at) = (0, None);
        std::mem::take(&mut self.groups).into_values().flatten().collect()
    }

    pub fn push(&mut self, pending: Pending, now: Monotonic) {
        self.len += 1;
        self.retry_at.get_or_insert(now + RETRY_EVERY);
        self.groups.entry(pending.group).or_default().push_back(pending);
    }
}
