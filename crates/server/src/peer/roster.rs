//! The peers of a node: the members and their addresses at a moment.
//!
//! A roster is replaced, never changed. The path of messages does not look at it: each shard's links are told of
//! another one ([`Peers::subscribe`](super::Peers::subscribe)).

use crate::membership::AsOf;
use ::membership::state::State;
use node::Members;
use os::Address;
use ring::NodeId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The members as of a moment, and where each is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Roster {
    members: Arc<Members>,
    addresses: BTreeMap<NodeId, Address>,
    /// The process of each member that the metadata log has.
    registered: BTreeMap<NodeId, u64>,
    /// When that was.
    pub as_of: AsOf,
}

impl Roster {
    /// That of what all nodes agree on; `None` unless `here` is a member.
    pub fn of(here: NodeId, state: &State, as_of: AsOf) -> Option<Roster> {
        let members = state.members().values().map(|record| record.member.clone());
        let members = ring::Members::new(members).expect("the state holds numbers and names to differ");
        let members = Arc::new(Members::of(here, Arc::new(members))?);
        let address = |(&node, record): (&NodeId, &::membership::state::Record)| {
            Some((node, record.address.parse().ok()?))
        };
        let addresses = state.members().iter().filter_map(address).collect();
        let registered = state.members().iter().map(|(&node, record)| (node, record.start)).collect();
        Some(Roster { members, addresses, registered, as_of })
    }

    /// The process of a member that the metadata log has; 0 if it has none.
    pub(super) fn registered(&self, node: NodeId) -> u64 {
        self.registered.get(&node).copied().unwrap_or_default()
    }

    /// The members.
    pub fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// Where a member is reached; `None` for one that has said nothing of use.
    pub(super) fn address(&self, node: NodeId) -> Option<&Address> {
        self.addresses.get(&node)
    }

    /// The member of this name.
    pub(super) fn named(&self, name: &str) -> Option<NodeId> {
        self.members.of_ring().iter().find(|member| *member.name == *name).map(|member| member.id)
    }

    /// Whether a member is reached there, by its number.
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.values().filter_map(Address::number).any(|member| member.ip() == address)
    }

    /// Whether links are the same by both.
    pub(super) fn is_like(&self, other: &Roster) -> bool {
        let names = |roster: &Roster| -> Vec<_> {
            roster.members.of_ring().iter().map(|member| (member.id, Arc::clone(&member.name))).collect()
        };
        self.addresses == other.addresses && names(self) == names(other)
    }
}
