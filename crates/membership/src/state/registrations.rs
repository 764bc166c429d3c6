//! Registrations: the stores that each member has registered.
//!
//! A first consistent bucket type needs to know the stores of all members: [`Command::PrepareStores`] asks for them,
//! and each process then registers its own ([`Command::RegisterStores`]). Without a consistent type there is nothing of
//! this, and the state has the bytes of a program before.
//!
//! Invariant: a registration of an earlier process counts for nothing.
//!
//! [`Command::PrepareStores`]: super::Command::PrepareStores
//! [`Command::RegisterStores`]: super::Command::RegisterStores

use ring::NodeId;

use super::State;
use super::births::{Registration, StoreBirths};
use super::command::Rejected;
use super::record::Record;

impl State {
    /// Whether members register their stores, since a first consistent bucket type is wanted.
    pub fn registers_stores(&self) -> bool {
        self.consistent.is_some()
    }

    /// The stores that a member's process has registered; none before it has, also if an earlier process of the member
    /// had.
    pub fn registration(&self, node: NodeId) -> Option<&Registration> {
        let registration = self.consistent.as_ref()?.registrations.get(&node)?;
        let is_of =
            |record: &&Record| (record.starts, record.start) == (registration.starts, registration.start);
        self.members.get(&node).filter(is_of).map(|_| registration)
    }

    /// The stores that a member has registered last, by whichever process.
    pub fn last_registration(&self, node: NodeId) -> Option<&Registration> {
        self.consistent.as_ref()?.registrations.get(&node)
    }

    /// Idempotent: it cannot be taken back.
    pub(super) fn prepare_stores(&mut self) {
        self.consistent.get_or_insert_default();
    }

    pub(super) fn register_stores(
        &mut self,
        node: NodeId,
        (starts, start): (u32, u64),
        stores: &StoreBirths,
    ) -> Result<(), Rejected> {
        let prefixes = self.prefixes;
        let record = self.record(node)?;
        if (record.starts, record.start) != (starts, start) {
            return Err(Rejected::Life);
        }
        let consistent = self.consistent.as_mut().ok_or(Rejected::Unprepared)?;
        if !stores.are_possible(prefixes) {
            return Err(Rejected::Stores);
        }
        consistent.registrations.insert(node, Registration { starts, start, stores: stores.clone() });
        Ok(())
    }
}
