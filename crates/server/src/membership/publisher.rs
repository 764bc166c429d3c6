//! Has this node's shards go by what all nodes have agreed on, and reports what they have made of it.
//!
//! 1. When what is published is another, it is put down for all shards ([`Mail::Topology`]).
//! 2. Shards note on the [`Board`] what they have adopted and copied. When all have, that is proposed to the log, and again after
//!    [`AGAIN_AFTER`] until the state shows it: a proposal can be lost with a leader.
//! 3. A node that has given up everything stays for [`DRAIN`], so that balancers have turned away from it; when nobody goes by
//!    a ring that names it, nothing is left in its shards and it does not vote any more, it says that it goes, and ends.
//!
//! Invariant: in a cluster at rest nothing is sent and nothing is due.
//!
//! Left out: what the steps are, and who must report, which the state knows.

use super::board::Board;
use super::limits;
use crate::mailbox::{Mail, Mailboxes};
use ::membership::state::{Command, Fate, Published, Record, State, Step};
use ::membership::{Input, Membership};
use base::Monotonic;
use node::{Budget, Epoch, Members, Topology};
use ring::{MemberState, NodeId, RingVersion};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a report may take before it is proposed once more: some round trips, or an election.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long a node that has given up everything goes on serving: three looks of a balancer that looks every two seconds, and some.
const DRAIN: Duration = Duration::from_secs(10);

/// How often a node that is to go looks whether it can.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Names reports in their answers, which nobody waits for: the state tells.
const TOKEN: u64 = u64::MAX;

/// What a node has its shards go by, and has reported.
pub(super) struct Publisher {
    here: NodeId,
    board: Arc<Board>,
    published: RingVersion,
    budget: Budget,
    adopted: Report,
    copied: Report,
    /// Since when this node has nothing, and may go.
    exiting: Option<Monotonic>,
    gone: Report,
}

/// The last report of its kind.
#[derive(Default)]
struct Report {
    version: Option<RingVersion>,
    /// When it is proposed again; none if nothing waits.
    again: Option<Monotonic>,
}

impl Report {
    /// Whether what waits to be in the state, if something does, is to be proposed at `now`; if so it counts as proposed.
    fn is_due(&mut self, waits: Option<RingVersion>, now: Monotonic) -> bool {
        let is_proposed = self.version == waits && self.again.is_some_and(|again| now < again);
        if waits.is_none() {
            self.again = None;
        } else if !is_proposed {
            (self.version, self.again) = (waits, Some(now + AGAIN_AFTER));
        }
        waits.is_some() && !is_proposed
    }
}

impl Publisher {
    /// For shards that begin with what `state` publishes.
    pub(super) fn new(here: NodeId, state: &State, board: Arc<Board>) -> Publisher {
        Publisher {
            here,
            board,
            published: state.ring_version(),
            budget: limits::of(state),
            adopted: Report::default(),
            copied: Report::default(),
            exiting: None,
            gone: Report::default(),
        }
    }

    /// Where shards put their reports down.
    #[cfg(test)]
    pub(super) fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Puts down what is published, if that is another thing than before. False if this node is no member any more.
    pub(super) fn publish(&mut self, state: &State, mailboxes: &Mailboxes) -> bool {
        let Some(record) = state.members().get(&self.here) else { return false };
        if record.fate == Fate::Forgotten {
            return false;
        }
        let is_leaving = matches!(record.member.state, MemberState::Leaving | MemberState::Exiting);
        self.board.is_leaving.store(is_leaving, Ordering::Relaxed);
        if state.ring_version() != self.published {
            let Some(topology) = topology(self.here, state) else { return false };
            self.published = state.ring_version();
            tracing::info!(
                version = self.published.0,
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
        let state = membership.state()?;
        let command = self.report(state, now).or_else(|| self.go(membership, state, now))?;
        Some(Input::Propose { token: TOKEN, command })
    }

    fn report(&mut self, state: &State, now: Monotonic) -> Option<Command> {
        let (node, version) = (self.here, state.ring_version());
        let all_adopted = !state.has_adopted(node) && self.board.all_adopted(Epoch(version.0));
        if self.adopted.is_due(all_adopted.then_some(version), now) {
            return Some(Command::Adopted { node, version });
        }
        let target = match state.step() {
            Step::Copying { version, target, .. } if !state.has_copied(node) => {
                (self.board.all_copied(*version) && target.contains(&node)).then_some(*version)
            }
            _ => None,
        };
        let is_due = self.copied.is_due(target, now);
        target.filter(|_| is_due).map(|target| Command::Copied { node, target })
    }

    fn go(&mut self, membership: &Membership, state: &State, now: Monotonic) -> Option<Command> {
        let is_exiting = |it: &Record| it.member.state == MemberState::Exiting;
        if !state.members().get(&self.here).is_some_and(is_exiting) {
            self.exiting = None;
            return None;
        }
        let since = *self.exiting.get_or_insert_with(|| {
            tracing::info!(
                "this node has given up all that it had, and goes on forwarding for {} s",
                DRAIN.as_secs()
            );
            now
        });
        let may_go = now >= since + DRAIN
            && state.unadopted().next().is_none()
            && self.board.all_given()
            && !membership.log().voters().contains(&self.here);
        let is_due = self.gone.is_due(may_go.then(|| state.ring_version()), now);
        is_due.then_some(Command::Gone { node: self.here })
    }

    /// Whether this node has said that it goes: then nobody misses it.
    pub(super) fn has_gone(&self) -> bool {
        self.gone.version.is_some()
    }

    /// When something is due that nobody tells.
    pub(super) fn next_timer(&self, now: Monotonic) -> Option<Monotonic> {
        let look = self.exiting.map(|_| now + LOOK_EVERY);
        [self.adopted.again, self.copied.again, look].into_iter().flatten().min()
    }
}

/// What shards go by; `None` if this node is no member.
pub(crate) fn topology(here: NodeId, state: &State) -> Option<Topology> {
    let Published { version, members, before, ring, target } = state.published();
    let members = Arc::new(Members::of(here, members)?);
    let rest = Topology::at_rest(members, ring);
    Some(Topology { epoch: Epoch(version.0), before, target, budget: limits::of(state), ..rest })
}
