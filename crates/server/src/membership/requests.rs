//! Requests that wait for the log: of operators, of newcomers, of activated bucket types, and about security.
//!
//! 1. A request is taken by the component of its kind, which answers it at once or proposes a command for it.
//! 2. Components propose again what was not decided on, until a deadline.
//! 3. The end of a proposal goes to the component with its token.
//!
//! Invariant: the tokens of two components are never the same; each component has a range of its own.
//!
//! * `operator.rs`: changes of members and of the ring, and their pages. `admission.rs`: newcomers at the door.
//! * `founding.rs`: groups to be founded, and `loss.rs`: stores that are declared lost.
//! * `policy.rs`: commands about security, and the policy in force.

use super::admission::{Admissions, Admitted, Newcomer};
use super::board::Board;
use super::enforced_policy::EnforcedPolicy;
use super::files::FilesError;
use super::founding::{Foundings, Wanted};
use super::loss::Loss;
use super::operator::{Answered, Operators};
use super::policy::{PolicyChanges, PolicyCommand};
use super::ready::Speaks;
use super::standing::AsOf;
use ::membership::log::Outcome;
use ::membership::state::State;
use ::membership::{Input, Membership};
use base::Monotonic;
use bytes::Bytes;
use node::http::ClusterPage;
use os::OsRng;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A request, and the channel for its answer.
pub(super) enum Request {
    /// An operator's question.
    Page { page: ClusterPage, body: Bytes, answer: oneshot::Sender<Answered> },
    /// A node wants to become a member.
    Newcomer { newcomer: Newcomer, answer: oneshot::Sender<Admitted> },
    /// Groups of consistent bucket types are wanted, of so many voters.
    Found { n_val: u32, answer: oneshot::Sender<Answered> },
    /// An operator has a command about security.
    Policy { asked: Box<PolicyCommand>, answer: oneshot::Sender<Answered> },
}

/// The requests that wait, by kind.
pub(super) struct Requests {
    operators: Operators,
    admissions: Admissions,
    foundings: Foundings,
    policy: PolicyChanges,
}

impl Requests {
    /// Without a request.
    pub(super) fn new(board: Arc<Board>, policy: EnforcedPolicy) -> Requests {
        Requests {
            operators: Operators::new(board),
            admissions: Admissions::default(),
            foundings: Foundings::new(Box::new(OsRng::new())),
            policy: PolicyChanges::new(policy),
        }
    }

    /// Takes a request, at a node whose log is kept or not. The input is the next step for it.
    #[must_use]
    pub(super) fn ask(
        &mut self,
        request: Request,
        membership: &Membership,
        is_log_kept: bool,
        now: Monotonic,
    ) -> Option<Input> {
        match request {
            Request::Page { page: ClusterPage::DeclareLost, body, answer } => {
                self.declare_lost(&body, answer, membership, now);
            }
            Request::Page { page, body, answer } => {
                return self.operators.ask(page, &body, answer, membership);
            }
            Request::Newcomer { newcomer, answer } => self.admissions.ask(newcomer, answer, now),
            Request::Found { answer, .. } | Request::Policy { answer, .. } if !is_log_kept => {
                let why = "this node does not keep its metadata log: see its log for the reason";
                // The caller may have gone.
                answer.send(Answered::wrong(409, why)).ok();
            }
            Request::Found { n_val, answer } => self.foundings.ask(Wanted::Groups(n_val), answer, now),
            Request::Policy { asked, answer } => self.policy.ask(*asked, answer, now),
        }
        None
    }

    /// Takes an operator's word that stores are lost.
    fn declare_lost(
        &mut self,
        body: &Bytes,
        answer: oneshot::Sender<Answered>,
        membership: &Membership,
        now: Monotonic,
    ) {
        match Loss::of(body, membership) {
            Ok(loss) => self.foundings.ask(Wanted::Loss(loss), answer, now),
            // The caller may have gone.
            Err(answered) => drop(answer.send(answered)),
        }
    }

    /// Answers those whose end is known, and returns the next steps for others.
    pub(super) fn advance(
        &mut self,
        membership: &Membership,
        as_of: AsOf,
        speaks: Speaks<'_>,
        now: Monotonic,
    ) -> Vec<Input> {
        let mut inputs = self.admissions.advance(membership, as_of, now);
        inputs.extend(self.foundings.advance(membership, speaks, now));
        inputs.extend(self.policy.advance(membership, speaks, now));
        inputs
    }

    /// When [`Requests::advance`] has something to do that nobody tells.
    pub(super) fn next_timer(&self) -> Option<Monotonic> {
        let timers = [self.admissions.next_timer(), self.foundings.next_timer(), self.policy.next_timer()];
        timers.into_iter().flatten().min()
    }

    /// Takes a proposal's end. True if it was a change of the policy: then the mark of the data folder may count no
    /// longer.
    #[must_use]
    pub(super) fn end(
        &mut self,
        token: u64,
        outcome: Outcome,
        membership: &Membership,
        now: Monotonic,
    ) -> bool {
        if self.policy.answer(token, outcome, now) {
            return true;
        }
        let is_answered =
            self.foundings.answer(token, outcome, now) || self.admissions.answer(token, outcome, now);
        if !is_answered {
            self.operators.answer(token, outcome, membership);
        }
        false
    }

    /// Has the doors go by the security policy of a state, and marks the data folder.
    pub(super) fn follow_policy(&mut self, state: &State) -> Result<(), FilesError> {
        self.policy.follow(state)
    }
}
