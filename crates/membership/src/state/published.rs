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
        let members = Members::new(self.members.values().map(|record| record.member.clone()));
        let members = Arc::new(members.expect("admission gives each member a number and a name of its own"));
        let ring_of = |version, owners: &[NodeId]| {
            let ring = Ring::new(version, size_of(owners), Arc::clone(&members), owners.into());
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
