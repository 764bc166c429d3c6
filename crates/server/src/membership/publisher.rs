//! Publishes the agreed state to this node's shards, and reports their progress.
//!
//! 1. When what is published is another, it is put down for all shards ([`Mail::Topology`]).
//! 2. Shards note on the [`Board`] what they have adopted and copied. What comes of that is proposed to the log, until
//!    the node says that it goes ([`Reporter`]).
//!
//! Invariant: in a cluster at rest nothing is sent and nothing is due.
//!
//! Left out: what the steps are, and who must report, which the state knows; when that is, which the reporter does.

use super::board::Board;
use super::{limits, n_vals};
use crate::mailbox::{Mail, Mailboxes};
use ::membership::reporter::{DRAIN, Reporter};
use ::membership::state::{MemberDecision, Published, State};
use ::membership::{Input, Membership};
use base::Monotonic;
use node::{Budget, Epoch, Members, Topology};
use ring::{MemberState, NodeId};
use std::sync::Arc;

/// Names reports in their answers, which nobody waits for: the state tells.
const TOKEN: u64 = u64::MAX;

/// What a node has its shards go by, and has reported.
pub(super) struct Publisher {
    here: NodeId,
    board: Arc<Board>,
    published: Published,
    budget: Budget,
    reporter: Reporter,
}

impl Publisher {
    /// For shards that begin with what `state` publishes.
    pub(super) fn new(here: NodeId, state: &State, board: Arc<Board>) -> Publisher {
        Publisher {
            here,
            board,
            published: state.published(),
            budget: limits::of(state),
            reporter: Reporter::new(here),
        }
    }

    /// Puts down what is published, if that is another thing than before. False if this node is no member any more.
    pub(super) fn publish(&mut self, state: &State, mailboxes: &Mailboxes) -> bool {
        let Some(record) = state.members().get(&self.here) else { return false };
        if record.fate == MemberDecision::Forgotten {
            return false;
        }
        let is_leaving = matches!(record.member.state, MemberState::Leaving | MemberState::Exiting);
        self.board.set_leaving(is_leaving);
        if state.ring_version() != self.published.version {
            self.published = state.published_after(&self.published);
            let Some(topology) = topology(self.here, state, self.published.clone()) else { return false };
            tracing::info!(
                version = self.published.version.0,
                step = state.step().name(),
                "members or owners have changed"
            );
            let topology = Arc::new(topology);
            mailboxes.put_all(|| Mail::Topology(Arc::clone(&topology)));
        }
        let budget = limits::of(state);
        if budget != self.budget {
            self.budget = budget;
            mailboxes.put_all(|| Mail::Budget(budget));
        }
        true
    }

    /// What is to be proposed now.
    pub(super) fn advance(&mut self, membership: &Membership, now: Monotonic) -> Option<Input> {
        let was_draining = self.reporter.is_draining();
        let command = self.reporter.advance(membership, &*self.board, now);
        if self.reporter.is_draining() && !was_draining {
            tracing::info!(
                "this node has given up all that it had, and goes on forwarding for {} s",
                DRAIN.as_secs()
            );
        }
        command.map(|command| Input::Propose { token: TOKEN, command })
    }

    /// Whether this node has said that it goes: then nobody misses it.
    pub(super) fn has_gone(&self) -> bool {
        self.reporter.has_gone()
    }

    /// When something is due that nobody tells.
    pub(super) fn next_timer(&self, now: Monotonic) -> Option<Monotonic> {
        self.reporter.next_timer(now)
    }
}

/// The topology of a publication of this state; `None` if this node is no member.
pub(crate) fn topology(here: NodeId, state: &State, published: Published) -> Option<Topology> {
    let Published { version, members, before, ring, target } = published;
    let members = Arc::new(Members::of(here, members)?);
    let rest = Topology::at_rest(members, ring);
    let (budget, n_vals) = (limits::of(state), n_vals::of(state).into_iter().collect());
    Some(Topology { epoch: Epoch(version.0), before, target, budget, n_vals, ..rest })
}
