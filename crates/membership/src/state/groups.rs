//! The groups of consistent bucket types, as the state has them: founded, and recovered.
//!
//! [`Command::FoundGroups`] founds all groups of an n_val at once; [`Command::RaiseEpoch`] begins the next epoch of
//! groups that an operator recovers. While there is a founding, partitions do not move: the voters of a group do not
//! follow them yet.
//!
//! Invariants: an n_val is founded once; the epoch of a founding only grows.
//!
//! [`Command::FoundGroups`]: super::Command::FoundGroups
//! [`Command::RaiseEpoch`]: super::Command::RaiseEpoch

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ring::{Birth, NodeId};

use super::State;
use super::bounds::FOUNDED_N_VAL_MAX;
use super::command::Rejected;
use super::founding::Founding;

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
