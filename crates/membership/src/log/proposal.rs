//! Proposals: changes that somebody wants, on their way to the leader and to the log.

use std::time::Duration;

use base::Monotonic;
use ring::NodeId;

use super::message::{Failed, Message, Outcome};
use super::waiters::Waiter;
use super::{Log, Output};
use crate::state::{Command, Rejected};

/// How long a proposal that was passed on may take.
pub const PROPOSAL_MAX: Duration = Duration::from_secs(10);

impl Log {
    pub(super) fn propose(&mut self, waiter: Waiter, command: Command, now: Monotonic) {
        if self.waiters.is_full() {
            return self.answer(waiter, Err(Failed::Busy));
        }
        // What is not within bounds could be read by nobody, this node's library included.
        if !command.is_readable() {
            return self.answer(waiter, Err(Failed::Rejected(Rejected::Text)));
        }
        if self.leads() {
            return match self.append(&command) {
                Some(place) => self.waiters.wait_for(place, waiter),
                None => self.answer(waiter, Err(Failed::Busy)),
            };
        }
        // A voter passes on what others ask it, to whom it follows; nobody else does, so nothing goes in circles.
        let may_pass_on = match waiter {
            Waiter::Here(_) | Waiter::Nobody => true,
            Waiter::Node { node, .. } => !self.voters().contains(&node),
        };
        let via = self
            .leader()
            .filter(|_| self.voters().contains(&self.identity.node))
            .or_else(|| self.some_voter());
        let Some(via) = via.filter(|_| may_pass_on) else {
            return self.answer(waiter, Err(Failed::NoLeader));
        };
        let id = self.waiters.pass_on(waiter, now + PROPOSAL_MAX);
        self.sends.push((via, Message::Propose { id, command }));
    }

    /// Who does not vote does not hear who leads, but a voter knows.
    fn some_voter(&mut self) -> Option<NodeId> {
        let here = self.identity.node;
        if self.voters().contains(&here) {
            return None;
        }
        let reached: Vec<NodeId> = self.voters().intersection(&self.up).copied().collect();
        let at = self.rng.below(reached.len().max(1) as u64);
        reached.get(usize::try_from(at).expect("below a length")).copied()
    }

    pub(super) fn answer(&mut self, waiter: Waiter, outcome: Outcome) {
        match waiter {
            Waiter::Here(token) => self.told.push(Output::Answer { token, outcome }),
            Waiter::Node { node, id } => self.sends.push((node, Message::Proposed { id, outcome })),
            Waiter::Nobody => {}
        }
    }
}
