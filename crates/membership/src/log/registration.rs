//! Registration: the state is to name this process as the node's last start.
//!
//! It is proposed as soon as a leader or a voter takes proposals, and again until the state shows it. Consistent groups
//! wait for it.

use std::time::Duration;

use base::Monotonic;

use super::waiters::Waiter;
use super::{Identity, Log};
use crate::state::Command;

/// When a registration is proposed again: after some round trips, or an election.
pub(super) const REGISTER_AGAIN: Duration = Duration::from_secs(1);

impl Log {
    /// Whether the state knows of an earlier start only. A folder that is an older copy sees its later starts first.
    fn is_unregistered(&self) -> bool {
        let own = self.state.as_ref().and_then(|state| state.members().get(&self.identity.node));
        own.is_some_and(|record| record.starts < self.identity.starts) && self.restored.is_none()
    }

    /// Whether this node leads, or knows a node that takes proposals.
    fn can_propose(&self) -> bool {
        let votes = self.voters().contains(&self.identity.node);
        self.leads() || if votes { self.leader().is_some() } else { !self.voters().is_disjoint(&self.up) }
    }

    /// When this start is to be registered, if that is to be done.
    pub(super) fn registers_at(&self) -> Option<Monotonic> {
        (self.is_unregistered() && self.can_propose()).then_some(self.register_at)
    }

    /// Proposes that this start be registered.
    pub(super) fn register(&mut self, now: Monotonic) {
        self.register_at = now + REGISTER_AGAIN;
        let Identity { node, starts, start, address, .. } = self.identity.clone();
        self.propose(Waiter::Nobody, Command::Started { node, starts, start, address }, now);
    }
}
