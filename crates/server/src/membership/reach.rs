//! How many members and voters this node reaches: a majority, or too few.
//!
//! A node without a majority goes on serving clients. What it acknowledges is seen by nobody else until it reaches
//! them, so it says so: in the log ([`MajorityLog`]), in `/stats`, in `/admin/cluster` and in `/health/ready`.
//!
//! A member counts if it owns data or is about to: not one that waits to join, and not one that an operator declared
//! down. A node alone reaches itself, which is all.
//!
//! Invariant: a lost majority is logged at the next look, and then once in [`AGAIN_EVERY`] for as long as it is lost. A
//! node that has just started is given [`START_MAX`] to hear of the others first.

use super::board::Board;
use super::held_log;
use ::membership::Membership;
use ::membership::state::{MemberDecision, Record, State};
use base::Monotonic;
use ring::{MemberState, NodeId};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long after a start a missing majority is not logged: as long as links and the first probes take.
const START_MAX: Duration = Duration::from_secs(2);

/// How often a missing majority is logged again.
const AGAIN_EVERY: Duration = Duration::from_secs(60);

/// How many there are of a kind, and how many of them are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// All of them, this node included if it is one.
    pub all: usize,
    /// Those that this node reaches, itself included if it is one.
    pub reached: usize,
}

impl Reached {
    fn of(nodes: &BTreeSet<NodeId>, is_reached: impl Fn(NodeId) -> bool) -> Reached {
        Reached { all: nodes.len(), reached: nodes.iter().filter(|&&node| is_reached(node)).count() }
    }

    /// Whether more than half are reached, or there are none.
    pub fn is_majority(self) -> bool {
        self.all == 0 || 2 * self.reached > self.all
    }
}

/// Whom a node reaches, as of the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The members that own data.
    pub members: Reached,
    /// The voters of the metadata log.
    pub voters: Reached,
    /// The names of members that are not reached.
    pub lost: Vec<String>,
    /// Whether the node has heard what its cluster agrees on: a newcomer has to ask for it first.
    pub has_heard: bool,
    /// The names of members that its restored metadata log waits for.
    pub awaited: Vec<String>,
    /// Whether a leader or most voters have committed other entries of the metadata log.
    pub is_contradicted: bool,
}

impl Reach {
    /// Whom the node of `membership` reaches: those that its failure detector and all of its shards reach.
    pub(super) fn look(membership: &Membership, state: &State, board: &Board) -> Reach {
        let log = membership.log();
        let up = membership.detector().up();
        let of_shards = board.reached();
        let is_reached =
            |node: NodeId| up.contains(&node) && of_shards.as_ref().is_none_or(|it| it.contains(&node));
        let voters = log.voters().iter().copied().collect();
        let (awaited, is_contradicted) = (held_log::awaited(membership), log.is_contradicted());
        let reach = Reach::of(state, &voters, log.identity().node, is_reached, membership.state().is_some());
        Reach { awaited, is_contradicted, ..reach }
    }

    fn of(
        state: &State,
        voters: &BTreeSet<NodeId>,
        here: NodeId,
        is_reached: impl Fn(NodeId) -> bool,
        has_heard: bool,
    ) -> Reach {
        let is_reached = |node| node == here || is_reached(node);
        let counted = state.members().iter().filter(|(_, record)| counts(record));
        let members: BTreeSet<NodeId> = counted.map(|(&node, _)| node).collect();
        let name = |node: &NodeId| state.members()[node].member.name.to_string();
        Reach {
            members: Reached::of(&members, is_reached),
            voters: Reached::of(voters, is_reached),
            lost: members.iter().filter(|&&node| !is_reached(node)).map(name).collect(),
            has_heard,
            ..Reach::default()
        }
    }

    /// Whether a majority of the members and one of the voters is reached.
    pub fn has_majority(&self) -> bool {
        self.members.is_majority() && self.voters.is_majority()
    }

    /// What is missing; empty with a majority.
    pub fn missing(&self) -> Vec<String> {
        let text = |kind: &str, it: Reached| {
            (!it.is_majority())
                .then(|| format!("this node reaches {} of {} {kind}: no majority", it.reached, it.all))
        };
        [text("members", self.members), text("voters", self.voters)].into_iter().flatten().collect()
    }
}

fn counts(record: &Record) -> bool {
    let is_owner = !matches!(record.member.state, MemberState::Joining | MemberState::Down);
    is_owner && record.fate != MemberDecision::Forgotten
}

/// What is to be logged of a majority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It is not reached.
    Lost(String),
    /// It is reached again.
    Regained,
}

/// When the loss of the majority was logged.
#[derive(Debug)]
pub(super) struct MajorityLog {
    began: Monotonic,
    had_majority: bool,
    lost: bool,
    said: Option<Monotonic>,
}

impl MajorityLog {
    pub(super) fn new(now: Monotonic) -> MajorityLog {
        MajorityLog { began: now, had_majority: false, lost: false, said: None }
    }

    /// What is to be logged now.
    pub(super) fn look(&mut self, reach: &Reach, now: Monotonic) -> Option<Said> {
        self.lost = !reach.has_majority();
        if !self.lost {
            self.had_majority = true;
            return self.said.take().map(|_| Said::Regained);
        }
        if self.next_timer().is_some_and(|at| now < at) {
            return None;
        }
        self.said = Some(now);
        Some(Said::Lost(format!(
            "{} (not reached: {}). Clients are served; the other nodes get writes of this node when they are reached",
            reach.missing().join("; "),
            reach.lost.join(", ")
        )))
    }

    /// When it is to be looked at next; `None` with a majority.
    pub(super) fn next_timer(&self) -> Option<Monotonic> {
        let first = if self.had_majority { self.began } else { self.began + START_MAX };
        self.lost.then(|| self.said.map_or(first, |said| said + AGAIN_EVERY))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use ::membership::ClusterId;
    use ring::RingSize;

    fn state(names: &[&str]) -> State {
        let nodes = names.iter().map(|name| (*name, "", ""));
        State::found_by(ClusterId(7), (RingSize::new(8).unwrap(), RingSize::new(128).unwrap()), nodes)
            .unwrap()
    }

    fn reach(names: &[&str], voters: &[u16], up: &[u16]) -> Reach {
        let voters = voters.iter().copied().map(NodeId).collect();
        Reach::of(&state(names), &voters, NodeId(0), |node| up.contains(&node.0), true)
    }

    #[test]
    fn more_than_half_of_members_and_voters_is_a_majority() {
        assert!(reach(&["a@h"], &[0], &[]).has_majority(), "a node alone");
        assert!(!reach(&["a@h", "b@h"], &[0], &[]).has_majority());
        assert!(reach(&["a@h", "b@h"], &[0], &[1]).has_majority());
        let one = reach(&["a@h", "b@h", "c@h"], &[0, 1, 2], &[]);
        assert_eq!(
            (one.members, &one.lost[..]),
            (Reached { all: 3, reached: 1 }, &["b@h".to_owned(), "c@h".to_owned()][..])
        );
        assert_eq!(
            one.missing(),
            ["this node reaches 1 of 3 members: no majority", "this node reaches 1 of 3 voters: no majority"]
        );
        assert!(reach(&["a@h", "b@h", "c@h"], &[0, 1, 2], &[2]).missing().is_empty());
        // The majority of the members is there, and that of the voters is not.
        let five = ["a@h", "b@h", "c@h", "d@h", "e@h"];
        assert!(!reach(&five, &[2, 3, 4], &[1, 2]).has_majority());
        assert!(reach(&five, &[], &[1, 2]).has_majority(), "not known who votes");
    }

    #[test]
    fn a_lost_majority_is_logged_at_once_and_every_minute() {
        let at = |seconds: u64| Monotonic(0) + Duration::from_secs(seconds);
        let names = ["a@h", "b@h", "c@h"];
        let (alone, all) = (reach(&names, &[0, 1, 2], &[]), reach(&names, &[0, 1, 2], &[1, 2]));
        let mut log = MajorityLog::new(at(0));
        assert_eq!(log.look(&alone, at(1)), None, "it has just started");
        assert_eq!(log.next_timer(), Some(at(2)));
        assert!(
            matches!(log.look(&alone, at(2)), Some(Said::Lost(text)) if text.contains("1 of 3 members") && text.contains("b@h, c@h"))
        );
        assert_eq!((log.look(&alone, at(61)), log.next_timer()), (None, Some(at(62))));
        assert!(matches!(log.look(&alone, at(62)), Some(Said::Lost(_))));
        assert_eq!(log.look(&all, at(63)), Some(Said::Regained));
        assert_eq!((log.look(&all, at(64)), log.next_timer()), (None, None));
        assert!(matches!(log.look(&alone, at(65)), Some(Said::Lost(_))), "lost again");

        let mut quick = MajorityLog::new(at(0));
        assert_eq!(quick.look(&all, at(0)), None);
        assert!(matches!(quick.look(&alone, at(1)), Some(Said::Lost(_))), "it had one");
    }
}
