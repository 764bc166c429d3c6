//! This node's part in the groups of consistent bucket types: the births of its stores, and its copies.
//!
//! 1. Its stores get their births, which are registered (`births.rs`).
//! 2. Its shards are told of the agreement on groups (`agreement.rs`).
//! 3. Operators see it (`strong.rs`), and release the groups of a restored node (`restored.rs`).
//! 4. The progress of its groups since the start is watched (`caught_up.rs`).
//!
//! Invariant: a question is answered at once, from the state that this node has.
//!
//! Left out: the founding of groups and the loss of stores, which wait for the log (`requests.rs`).

use super::agreement::AgreementPublisher;
use super::births::{BirthSteps, Births};
use super::board::Board;
use super::caught_up::GroupWatch;
use super::operator::Answered;
use super::restored::Restored;
use super::strong;
use crate::mailbox::{Mail, Mailboxes};
use ::membership::Membership;
use ::membership::log::Identity;
use ::membership::state::{Command, State};
use base::Monotonic;
use bytes::Bytes;
use node::{Adoption, FoundBirth};
use os::OsRng;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A question of an operator about this node's groups.
pub(super) enum GroupQuestion {
    /// The agreement on groups.
    Show { answer: oneshot::Sender<Answered> },
    /// The copies of groups at this node.
    Survey { answer: oneshot::Sender<Answered> },
    /// The groups that this restored node goes on with.
    Release { body: Bytes, answer: oneshot::Sender<Result<(u64, Adoption), Answered>> },
    /// The shards have adopted the groups of that survey.
    Adopted { survey: u64, adoption: Arc<Adoption>, answer: oneshot::Sender<Answered> },
}

/// The groups of this node.
pub(super) struct ConsistentGroups {
    births: Births,
    restored: Restored,
    agreement: AgreementPublisher,
    watch: GroupWatch,
}

impl ConsistentGroups {
    /// Of a node whose stores were found like this; none for a node without births. The nodes find a shard by so many
    /// bits of a prefix.
    pub(super) fn new(found: Vec<FoundBirth>, ring_bits: u8) -> ConsistentGroups {
        ConsistentGroups {
            births: Births::new(found, ring_bits, Box::new(OsRng::new())),
            restored: Restored::default(),
            agreement: AgreementPublisher::default(),
            watch: GroupWatch::default(),
        }
    }

    /// The number of stores with births.
    #[cfg(test)]
    pub(super) fn births_count(&self) -> usize {
        self.births.count()
    }

    /// Answers a question. The caller may have gone.
    pub(super) fn answer(&mut self, question: GroupQuestion, membership: &Membership) {
        match question {
            GroupQuestion::Show { answer } => drop(answer.send(strong::show(membership, &self.births))),
            GroupQuestion::Survey { answer } => {
                let rng = &mut OsRng::new();
                drop(answer.send(self.restored.survey(membership, &self.births, rng)));
            }
            GroupQuestion::Release { body, answer } => {
                drop(answer.send(self.restored.begin(&body, membership, &mut self.births)));
            }
            GroupQuestion::Adopted { survey, adoption, answer } => {
                drop(answer.send(self.restored.end(survey, &adoption, membership, &mut self.births)));
            }
        }
    }

    /// The data folder was found to be an older copy: all stores get new births.
    pub(super) fn renew_births(&mut self) {
        self.births.renew();
    }

    /// Whether no store of an older copy waits for its new birth.
    pub(super) fn are_births_renewed(&self, state: &State, board: &Board) -> bool {
        self.births.are_renewed(state, board)
    }

    /// Has the shards go by the agreement of a state.
    pub(super) fn publish(&mut self, state: &State, own: &Identity, mailboxes: &Mailboxes) {
        self.agreement.publish(state, own, mailboxes);
    }

    /// Gives stores their births, and returns their registration, which is to be proposed.
    pub(super) fn advance(
        &mut self,
        membership: &Membership,
        board: &Board,
        mailboxes: &Mailboxes,
        now: Monotonic,
    ) -> Option<Command> {
        let state = membership.state()?;
        if let Some(text) = self.restored.warning(self.births.are_held(state)) {
            tracing::warn!("{text}");
        }
        let own = membership.log().identity();
        let BirthSteps { given, proposed } = self.births.advance(state, own, board, now);
        for (shard, birth) in given {
            mailboxes.of(shard).put(&mut vec![Mail::KeepBirth(birth)]);
        }
        proposed
    }

    /// When something is due that nobody tells.
    pub(super) fn next_timer(&self) -> Option<Monotonic> {
        self.births.next_timer().into_iter().chain(self.watch.next_timer()).min()
    }

    /// Whether the end of a wait for leaders makes a look at the progress due.
    pub(super) fn is_look_due(&self, now: Monotonic) -> bool {
        self.watch.next_timer().is_some_and(|at| now >= at)
    }

    /// Puts the groups' progress down for the other threads.
    pub(super) fn look(&mut self, membership: &Membership, board: &Board, now: Monotonic) {
        let Some(state) = membership.state() else { return };
        let own = membership.log().identity();
        board.set_groups(self.watch.look(state, own, &self.births, board.groups_behind(), now));
    }
}
