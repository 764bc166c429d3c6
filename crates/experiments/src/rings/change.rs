//! A change of a ring's members, and the claim that comes of it.

use super::{Shape, timed, unusable};
use bench::Error;
use ring::{Claim, Claimed, Members, NodeId, RingSize, TARGET_N_DEFAULT};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The node that leaves, if one does.
const LEAVES: u16 = 0;

/// What changes.
#[derive(Clone, Copy)]
pub(super) struct Change {
    pub zones: u16,
    pub joins: bool,
    pub leaves: bool,
    /// Whether nothing is owned before.
    pub is_first: bool,
}

pub(super) const ANEW: Change = Change { zones: 1, joins: false, leaves: false, is_first: true };
pub(super) const JOIN: Change = Change { joins: true, is_first: false, ..ANEW };
pub(super) const LEAVE: Change = Change { leaves: true, is_first: false, ..ANEW };
pub(super) const REPLACE: Change = Change { joins: true, ..LEAVE };

/// What came of it.
pub(super) struct Changed {
    pub took_s: f64,
    pub shortfalls: usize,
    moved: usize,
    /// How many each node has that owns some.
    shares: BTreeMap<NodeId, usize>,
    /// How many the node has that has joined.
    joined: usize,
}

impl Change {
    /// The members when it is done.
    pub fn after(self, shape: Shape) -> Result<Arc<Members>, Error> {
        let leave = if self.leaves { &[LEAVES][..] } else { &[] };
        shape.members(self.joins.into(), self.zones, leave)
    }

    pub fn claim(self, shape: Shape) -> Result<Changed, Error> {
        let before = claim(shape.partitions, &*shape.members(0, self.zones, &[])?, None)?;
        let after = self.after(shape)?;
        let owners = (!self.is_first).then_some(&*before.owners);
        let (claimed, took) = timed(|| claim(shape.partitions, &after, owners));
        let claimed = claimed?;
        let mut shares = BTreeMap::new();
        claimed.owners.iter().for_each(|owner| *shares.entry(*owner).or_default() += 1);
        Ok(Changed {
            took_s: took.as_secs_f64(),
            shortfalls: claimed.shortfalls.len(),
            moved: claimed.moved,
            joined: shares.get(&NodeId(shape.nodes)).copied().unwrap_or(0),
            shares,
        })
    }
}

impl Changed {
    /// What moves, over what whoever has joined is to have: that has to come from others.
    pub fn moved_over_least(&self) -> f64 {
        self.moved as f64 / self.joined.max(1) as f64
    }

    pub fn uneven(&self) -> f64 {
        let (least, most) = (self.shares.values().min(), self.shares.values().max());
        (most.unwrap_or(&0) - least.unwrap_or(&0)) as f64
    }
}

pub(super) fn claim(size: RingSize, members: &Members, owners: Option<&[NodeId]>) -> Result<Claim, Error> {
    Claimed { size, members, owners, target_n: TARGET_N_DEFAULT }.claim().map_err(unusable)
}
