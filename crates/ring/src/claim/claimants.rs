//! Members that claim partitions, and counts of their nodes and zones in a run of neighbours.

use super::board::NOBODY;
use crate::member::Members;
use crate::node_id::NodeId;
use std::collections::BTreeMap;

/// The members that claim, numbered without gaps.
pub(super) struct Claimants {
    pub(super) ids: Vec<NodeId>,
    pub(super) weights: Vec<u16>,
    pub(super) zones: Vec<u16>,
}

impl Claimants {
    pub(super) fn of(members: &Members) -> Claimants {
        let zones = zone_numbers(members);
        let claims = || members.iter().filter(|member| member.state.claims() && member.weight > 0);
        Claimants {
            ids: claims().map(|member| member.id).collect(),
            weights: claims().map(|member| member.weight).collect(),
            zones: claims().map(|member| zones[&*member.zone]).collect(),
        }
    }

    /// A claimant's number; [`NOBODY`] for others.
    pub(super) fn number(&self, id: NodeId) -> u16 {
        let found = self.ids.binary_search(&id).ok();
        found.map_or(NOBODY, |at| u16::try_from(at).expect("there are fewer claimants than numbers"))
    }
}

/// How many different ones there are among the first few.
pub(super) fn distinct<T: PartialEq + Copy>(run: impl Iterator<Item = T> + Clone, n: usize) -> usize {
    (0..n)
        .filter(|&at| run.clone().nth(at).is_some_and(|it| !run.clone().take(at).any(|other| other == it)))
        .count()
}

/// Numbers for the zones, in the order of their names.
pub(super) fn zone_numbers(members: &Members) -> BTreeMap<&str, u16> {
    let mut zones: BTreeMap<&str, u16> = members.iter().map(|member| (&*member.zone, 0)).collect();
    for (number, zone) in zones.values_mut().enumerate() {
        *zone = u16::try_from(number).expect("there are no more zones than members");
    }
    zones
}

pub(super) fn zone_count(zones: impl Iterator<Item = u16>) -> usize {
    zones.collect::<std::collections::BTreeSet<u16>>().len()
}
