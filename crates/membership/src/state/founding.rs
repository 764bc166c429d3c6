//! Foundings: the first voters of the groups of consistent bucket types.
//!
//! All groups of an n_val are founded at once. A group is that of a prefix and an n_val; its first voters are the
//! stores of the nodes on the prefix's list, each node once. They follow from two parts of the founding: the owners of
//! the ring then, and the births of their stores then. Both may be others later.
//!
//! Invariants: the owners of a founding are those of a ring, and it has the stores of each owner.
//!
//! Left out: the commands that found groups and recover them (`groups.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ring::{Birth, NodeId, RingSize};

use super::births::{Registration, StoreBirths};
use super::bounds::FOUNDED_N_VAL_MAX;
use super::record::Record;

/// The agreement that consistent bucket types need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Consistent {
    /// The stores that each member's process has registered last.
    pub(super) registrations: BTreeMap<NodeId, Registration>,
    /// By n_val.
    pub(super) foundings: BTreeMap<u8, Founding>,
}

/// The founding of all groups of an n_val.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founding {
    /// Drawn at random: a group's state of another founding is refused.
    pub number: u64,
    /// Grows when an operator recovers groups without their majority.
    pub epoch: u16,
    /// The owner of each partition then.
    pub owners: Arc<[NodeId]>,
    /// The stores of each owner then.
    pub stores: Arc<BTreeMap<NodeId, StoreBirths>>,
}

impl Founding {
    /// The first voters of the group of a prefix, of as many as there are prefixes in the cluster: at most `n_val`, in
    /// the order of the prefix's list.
    pub fn voters(&self, n_val: u8, prefix: u16, prefixes: RingSize) -> Vec<(NodeId, Birth)> {
        let size =
            RingSize::of_owners(&self.owners).expect("Founding::flaw holds owners to be those of a ring");
        let first = usize::from(prefix >> (prefixes.bits() - size.bits()));
        let count = usize::from(n_val).min(self.stores.len());
        let mut nodes: Vec<NodeId> = Vec::with_capacity(count);
        for owner in self.owners.iter().cycle().skip(first).take(self.owners.len()) {
            if nodes.len() == count {
                break;
            }
            if !nodes.contains(owner) {
                nodes.push(*owner);
            }
        }
        nodes.into_iter().map(|node| (node, self.stores[&node].of_prefix(prefix, prefixes))).collect()
    }

    /// Whether it is `before` in the same or a later epoch.
    pub(super) fn follows(&self, before: &Founding) -> bool {
        let is_same =
            (self.number, &self.owners, &self.stores) == (before.number, &before.owners, &before.stores);
        is_same && self.epoch >= before.epoch
    }

    /// Which relation does not hold, in a cluster of so many prefixes.
    fn flaw(&self, founded: RingSize, prefixes: RingSize) -> Option<&'static str> {
        let size = RingSize::of_owners(&self.owners).filter(|size| (founded..=prefixes).contains(size));
        let owners: BTreeSet<&NodeId> = self.owners.iter().collect();
        let flaws = [
            (size.is_some(), "a founding on a ring that cannot be"),
            (owners.into_iter().eq(self.stores.keys()), "a founding with the stores of others"),
            (self.stores.values().all(|it| it.are_possible(prefixes)), "a founding with impossible stores"),
        ];
        flaws.into_iter().find(|(holds, _)| !holds).map(|(_, flaw)| flaw)
    }
}

impl Consistent {
    /// The relation to the rest of a state that does not hold: to its members, and to the sizes of its ring.
    pub(super) fn flaw(
        &self,
        members: &BTreeMap<NodeId, Record>,
        (founded, prefixes): (RingSize, RingSize),
    ) -> Option<&'static str> {
        let is_n_val = |n_val: &u8| (1..=FOUNDED_N_VAL_MAX).contains(n_val);
        let are_possible = |it: &Registration| it.stores.are_possible(prefixes);
        let flaws = [
            (self.registrations.keys().all(|node| members.contains_key(node)), "stores of no member"),
            (self.registrations.values().all(are_possible), "impossible stores"),
            (self.foundings.keys().all(is_n_val), "a founding of no n_val"),
        ];
        let flaw = flaws.into_iter().find(|(holds, _)| !holds).map(|(_, flaw)| flaw);
        flaw.or_else(|| self.foundings.values().find_map(|it| it.flaw(founded, prefixes)))
    }
}
