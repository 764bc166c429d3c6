//! Foundings: the first voters of the groups of consistent bucket types.
//!
//! All groups of an n_val are founded at once ([`Command::FoundGroups`]). A group is that of a prefix and an n_val; its
//! first voters are the stores of the nodes on the prefix's list, each node once. They follow from two parts of
//! the founding: the owners of the ring then, and the births of their stores then. Both may be others later.
//!
//! While there is a founding, partitions do not move: the voters of a group do not follow them yet.
//!
//! Invariants: an n_val is founded once; the epoch of a founding only grows.
//!
//! [`Command::FoundGroups`]: super::Command::FoundGroups

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ring::{Birth, NodeId, RingSize};

use super::State;
use super::births::{Registration, StoreBirths};
use super::command::Rejected;
use super::size::size_of;

/// The largest n_val of a consistent bucket type: voters of a group.
pub const FOUNDED_N_VAL_MAX: u8 = 7;

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
        let first = usize::from(prefix >> (prefixes.bits() - size_of(&self.owners).bits()));
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
    /// Which relation to the rest of a state does not hold.
    pub(super) fn flaw(&self, state: &State) -> Option<&'static str> {
        let is_n_val = |n_val: &u8| (1..=FOUNDED_N_VAL_MAX).contains(n_val);
        let are_possible = |it: &Registration| it.stores.are_possible(state.prefixes);
        let flaws = [
            (self.registrations.keys().all(|node| state.members.contains_key(node)), "stores of no member"),
            (self.registrations.values().all(are_possible), "impossible stores"),
            (self.foundings.keys().all(is_n_val), "a founding of no n_val"),
        ];
        let flaw = flaws.into_iter().find(|(holds, _)| !holds).map(|(_, flaw)| flaw);
        flaw.or_else(|| self.foundings.values().find_map(|it| it.flaw(state.founded, state.prefixes)))
    }
}

impl State {
    /// The founding of the groups of an n_val, if they are founded.
    pub fn founding(&self, n_val: u8) -> Option<&Founding> {
        self.consistent.as_ref()?.foundings.get(&n_val)
    }

    /// All foundings, by n_val.
    pub fn foundings(&self) -> impl Iterator<Item = (u8, &Founding)> {
        self.consistent.iter().flat_map(|it| &it.foundings).map(|(&n_val, founding)| (n_val, founding))
    }

    /// The first voters of the group of a prefix and an n_val, if the n_val is founded.
    pub fn first_voters(&self, n_val: u8, prefix: u16) -> Option<Vec<(NodeId, Birth)>> {
        self.founding(n_val).map(|founding| founding.voters(n_val, prefix, self.prefixes))
    }

    /// Whether partitions stay with their owners.
    pub(super) fn is_pinned(&self) -> bool {
        self.foundings().next().is_some()
    }

    /// Founds the groups of an n_val on the ring in force. A second founding changes nothing.
    pub(super) fn found_groups(&mut self, expected: u64, n_val: u8, number: u64) -> Result<(), Rejected> {
        if self.founding(n_val).is_some() {
            return Ok(());
        }
        self.expect(expected)?;
        if !(1..=FOUNDED_N_VAL_MAX).contains(&n_val) {
            return Err(Rejected::NVal);
        }
        if !self.registers_stores() {
            return Err(Rejected::Unprepared);
        }
        if !self.is_settled() {
            return Err(Rejected::Moving);
        }

        let owners: BTreeSet<NodeId> = self.owners.iter().copied().collect();
        let stores_of = |node: NodeId| {
            let registration = self.registration(node).ok_or(Rejected::Unregistered(node))?;
            Ok((node, registration.stores.clone()))
        };
        let stores = owners.into_iter().map(stores_of).collect::<Result<BTreeMap<_, _>, Rejected>>()?;
        let (owners, stores) = (Arc::from(&*self.owners), Arc::new(stores));
        let consistent = self.consistent.get_or_insert_default();
        consistent.foundings.insert(n_val, Founding { number, epoch: 0, owners, stores });
        Ok(())
    }

    /// Begins the next epoch of a founding, if it has the expected one.
    pub(super) fn raise_epoch(&mut self, n_val: u8, expected: u16) -> Result<(), Rejected> {
        let foundings = self.consistent.as_mut().map(|it| &mut it.foundings);
        let founding = foundings.and_then(|it| it.get_mut(&n_val)).ok_or(Rejected::Unfounded)?;
        if founding.epoch != expected {
            return Err(Rejected::Stale);
        }
        founding.epoch = expected.checked_add(1).ok_or(Rejected::Full)?;
        Ok(())
    }
}
