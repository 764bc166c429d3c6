//! Publications: the members and rings that shards go by, under one version.

use std::sync::Arc;

use ring::{Members, NodeId, Ring, RingVersion};

use super::State;
use super::size::size_of;
use super::step::Step;

/// A publication, which shards follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its version, which a report of adoption names.
    pub version: RingVersion,
    /// All members.
    pub members: Arc<Members>,
    /// The ring before, while some request may still go by it.
    pub before: Option<Arc<Ring>>,
    /// The ring in force.
    pub ring: Arc<Ring>,
    /// The ring that partitions move to. Its version stays as long as the target is the same.
    pub target: Option<Arc<Ring>>,
}

impl State {
    /// The publication of this state.
    pub fn published(&self) -> Published {
        self.publish(None)
    }

    /// The publication of this state behind `last`: only members and rings that are not in `last` are made anew.
    pub fn published_after(&self, last: &Published) -> Published {
        self.publish(Some(last))
    }

    fn publish(&self, last: Option<&Published>) -> Published {
        let now = || self.members.values().map(|record| &record.member);
        let members = match last.filter(|last| last.members.iter().eq(now())) {
            Some(last) => Arc::clone(&last.members),
            None => {
                let members = Members::new(now().cloned());
                Arc::new(members.expect("admission gives each member a number and a name of its own"))
            }
        };

        let known = || last.into_iter().flat_map(|it| it.before.iter().chain([&it.ring]).chain(&it.target));
        let ring_of = |version, owners: &[NodeId]| {
            let members = Arc::clone(&members);
            let ring = match known().find(|ring| ring.owners() == owners) {
                Some(ring) => ring.with_members(version, members),
                None => Ring::new(version, size_of(owners), members, owners.into()),
            };
            Arc::new(ring.expect("State::check holds owners to members that may own"))
        };
        let (before, target) = match &self.step {
            Step::AtRest => (None, None),
            Step::Copying { target, version, .. } => (None, Some(ring_of(*version, target))),
            Step::Switched { before } => (Some(ring_of(RingVersion(self.ring_version.0 - 1), before)), None),
        };
        let ring = ring_of(self.ring_version, &self.owners);
        Published { version: self.ring_version, members, before, ring, target }
    }

    /// The ring in force.
    pub fn ring(&self) -> Arc<Ring> {
        self.published().ring
    }
}
