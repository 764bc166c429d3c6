//! The groups of a user: those that the user is in, those that these are in, and so on.
//!
//! Concurrent changes of two groups can close a cycle, so a cycle has to be harmless: each group counts once. A group
//! that does not exist gives nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::name::Name;
use crate::slot::{Group, Slot, SlotKey};
use crate::slots::Slots;

/// Groups in a row from a user on: more nesting than anybody can follow. Groups that are deeper give nothing.
pub const GROUP_DEPTH_MAX: usize = 16;

/// Groups of a user in all. Those that are further away give nothing. So a check, and the memory of a user, is bounded.
pub const EFFECTIVE_GROUPS_MAX: usize = 256;

/// The groups that count for a member of `direct`, the nearest first, and by name where they are as near.
pub(super) fn effective<'a>(
    direct: &'a BTreeSet<Name>,
    groups: &BTreeMap<&'a Name, &'a Group>,
) -> Vec<&'a Name> {
    let hangs = base::planted!(GroupCycleHangs);
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    let mut level: BTreeSet<&Name> = direct.iter().collect();
    let mut depth = 0;
    while !level.is_empty() && (depth < GROUP_DEPTH_MAX || hangs) {
        depth += 1;
        assert!(depth <= groups.len() + 1, "the walk over groups ends");
        let mut next = BTreeSet::new();
        for name in level {
            let Some(group) = groups.get(name) else { continue };
            if !seen.insert(name) && !hangs {
                continue;
            }
            if found.len() == EFFECTIVE_GROUPS_MAX {
                return found;
            }
            found.push(name);
            next.extend(&group.groups);
        }
        level = next;
    }
    found
}

/// The same, of records that are not compiled.
pub(crate) fn effective_groups(slots: &Slots, direct: &BTreeSet<Name>) -> Vec<Name> {
    let groups = slots.iter().filter_map(|slot| match slot {
        Slot::Group(group) => Some((&group.name, group)),
        _ => None,
    });
    effective(direct, &groups.collect()).into_iter().cloned().collect()
}

/// Whether all groups that a member of `direct` is in, count: none is too deep, and they are not too many.
pub(crate) fn is_within_bounds(slots: &Slots, direct: &BTreeSet<Name>) -> bool {
    let mut seen = BTreeSet::new();
    let mut level: Vec<&Name> = direct.iter().collect();
    for _ in 0..GROUP_DEPTH_MAX {
        let mut next = Vec::new();
        for name in level {
            if let Some(Slot::Group(group)) = slots.get(&SlotKey::Group(name.clone()))
                && seen.insert(name)
            {
                next.extend(&group.groups);
            }
        }
        level = next;
    }
    let is_new = |name: &&Name| !seen.contains(name) && slots.get(&SlotKey::Group((*name).clone())).is_some();
    seen.len() <= EFFECTIVE_GROUPS_MAX && !level.iter().any(is_new)
}
