//! The parts that the components of consistent groups share: the open groups, lookups under way, and work that is left.
//!
//! A component gets them for a step, in a [`GroupContext`]. None keeps a part of another one.

use std::ops::Range;

use bytes::Bytes;
use engine::fold::{ScanId, ScanRequest, Visit};

use super::group::GroupKey;
use super::lookups::Lookups;
use super::open_groups::OpenGroups;
use super::work::GroupWork;
use crate::shard::env::Env;
use crate::shard::owners::ScanOwner;

/// The shared parts.
#[derive(Default)]
pub(super) struct SharedParts {
    pub groups: OpenGroups,
    pub lookups: Lookups,
    pub work: GroupWork,
}

impl SharedParts {
    /// Gives them to a step.
    pub fn with<'a>(&'a mut self, env: &'a mut Env) -> GroupContext<'a> {
        let SharedParts { groups, lookups, work } = self;
        GroupContext { env, groups, lookups, work }
    }
}

/// The surroundings of a step.
pub(super) struct GroupContext<'a> {
    pub env: &'a mut Env,
    pub groups: &'a mut OpenGroups,
    pub lookups: &'a mut Lookups,
    pub work: &'a mut GroupWork,
}

impl GroupContext<'_> {
    /// Begins a scan of a group's keys; `None` if the store refuses it, whose damage is noted.
    pub fn scan(
        &mut self,
        key: GroupKey,
        keys: Range<Bytes>,
        items_max: usize,
        visitor: impl FnMut(&[u8], &[u8]) -> Visit + Send + 'static,
    ) -> Option<ScanId> {
        let visitor = Box::new(visitor);
        let (start, end) = (keys.start, keys.end);
        let request = ScanRequest { start, end, items_max, visitor, past_losses: false };
        let begun = self.env.store.scan_since(request, self.groups.dropped_at(key));
        // A store that lost keys refuses the scan. Without a request, no read would meet the loss.
        self.work.note_damage(key, &begun);

        let id = begun.ok()?;
        self.env.scan_owners.note(id, ScanOwner::ConsistentGroups);
        Some(id)
    }
}
