//! Reports of a member on itself: they let the next step, or its departure, happen.
//!
//! 1. What the node's shards have made of what is published is asked for ([`Progress`]). When all have adopted or
//!    copied, that is proposed to the log, and again after `AGAIN_AFTER` until the state shows it: a proposal can be
//!    lost with a leader.
//! 2. A node that has given up everything stays for [`DRAIN`], so that balancers have turned away from it; when nobody
//!    goes by a ring that names it, nothing is left in its shards and it does not vote any more, it says that it goes.
//!
//! Invariant: in a cluster at rest nothing is proposed and nothing is due.
//!
//! Left out: how shards are told what to go by, which is their user's.

use std::time::Duration;

use base::Monotonic;
use ring::{MemberState, NodeId, RingVersion};

use crate::Membership;
use crate::state::{Command, Record, State, Step};

/// How long a report may take before it is proposed once more: some round trips, or an election.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long a node that has given up everything goes on serving: three looks of a balancer that looks every two
/// seconds, and some.
pub const DRAIN: Duration = Duration::from_secs(10);

/// How often a node that is to go looks whether it can.
const LOOK_EVERY: Duration = Duration::from_millis(250);

const _: () =
    assert!(LOOK_EVERY.as_nanos() < DRAIN.as_nanos(), "a node that drains looks before its time is over");

/// How far a node's shards are.
pub trait Progress {
    /// Whether all go by what was published under this version.
    fn all_adopted(&self, version: RingVersion) -> bool;
    /// Whether all have all for this target.
    fn all_copied(&self, target: RingVersion) -> bool;
    /// Whether none has anything left that the node is not to have.
    fn all_given(&self) -> bool;
}

/// What a node has reported.
pub struct Reporter {
    here: NodeId,
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
    /// Whether what waits to be in the state, if something does, is to be proposed at `now`; if so it counts as
    /// proposed.
    fn is_due(&mut self, waits: Option<RingVersion>, now: Monotonic) -> bool {
        let is_proposed = self.version == waits && self.again.is_some_and(|again| now < again);
        if waits.is_none() {
            self.again = None;
        } else if !is_proposed {
            (self.version, self.again) = (waits, Some(now + AGAIN_AFTER));
        }
        debug_assert!(
            self.again.is_none() || self.version == waits,
            "a report is repeated while it is waited for"
        );
        waits.is_some() && !is_proposed
    }
}

impl Reporter {
    /// Of a process that has reported nothing yet.
    pub fn new(here: NodeId) -> Reporter {
        let report = Report::default;
        Reporter { here, adopted: report(), copied: report(), exiting: None, gone: report() }
    }

    /// What is to be proposed now.
    pub fn advance(
        &mut self,
        membership: &Membership,
        progress: &impl Progress,
        now: Monotonic,
    ) -> Option<Command> {
        let state = membership.state()?;
        self.report(state, progress, now).or_else(|| self.go(membership, state, progress, now))
    }

    fn report(&mut self, state: &State, progress: &impl Progress, now: Monotonic) -> Option<Command> {
        let (node, version) = (self.here, state.ring_version());
        let all_adopted = !state.has_adopted(node) && progress.all_adopted(version);
        if self.adopted.is_due(all_adopted.then_some(version), now) {
            return Some(Command::Adopted { node, version });
        }
        let target = match state.step() {
            Step::Copying { version, target, .. } if !state.has_copied(node) => {
                (progress.all_copied(*version) && target.contains(&node)).then_some(*version)
            }
            _ => None,
        };
        let is_due = self.copied.is_due(target, now);
        target.filter(|_| is_due).map(|target| Command::Copied { node, target })
    }

    fn go(
        &mut self,
        membership: &Membership,
        state: &State,
        progress: &impl Progress,
        now: Monotonic,
    ) -> Option<Command> {
        let is_exiting = |it: &Record| it.member.state == MemberState::Exiting;
        if !state.members().get(&self.here).is_some_and(is_exiting) {
            self.exiting = None;
            return None;
        }
        let since = *self.exiting.get_or_insert(now);
        let may_go = now >= since + DRAIN
            && state.unadopted().next().is_none()
            && progress.all_given()
            && !membership.log().voters().contains(&self.here);
        let is_due = self.gone.is_due(may_go.then(|| state.ring_version()), now);
        is_due.then_some(Command::Gone { node: self.here })
    }

    /// Whether this node gives nothing away any more, and is about to go.
    pub fn is_draining(&self) -> bool {
        self.exiting.is_some()
    }

    /// Whether this node has said that it goes: then nobody misses it.
    pub fn has_gone(&self) -> bool {
        self.gone.version.is_some()
    }

    /// When something is due that nobody tells.
    pub fn next_timer(&self, now: Monotonic) -> Option<Monotonic> {
        let look = self.exiting.map(|_| now + LOOK_EVERY);
        [self.adopted.again, self.copied.again, look].into_iter().flatten().min()
    }
}
