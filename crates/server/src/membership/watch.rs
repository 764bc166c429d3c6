//! Says in the log what an operator may have to do something about: copies that do not go on, and what keeps a node
//! that is to go.
//!
//! Invariant: what stands still is said within [`STUCK_AFTER`] and [`LOOK_EVERY`], and then every [`SAY_EVERY`] for as
//! long as it does. Nothing is looked at while nothing changes.
//!
//! Left out: what goes on, however slowly; `annulet admin transfers` shows it.

use super::board::Board;
use ::membership::Membership;
use ::membership::state::State;
use base::Monotonic;
use node::TransferStatus;
use ring::{MemberState, NodeId};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often it is looked; the thread wakes so often anyway.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long something stands still until it is said: longer than the longest pause between two tries (10 s), and half
/// of the minute in which an operator is to know.
const STUCK_AFTER: Duration = Duration::from_secs(30);

/// How often the same is said again.
const SAY_EVERY: Duration = Duration::from_secs(300);

/// What was said, and when it is looked at again.
#[derive(Default)]
pub(super) struct Watch {
    next: Monotonic,
    /// Since when this node is to go, and waits.
    going: Option<Monotonic>,
    said: BTreeMap<Matter, Monotonic>,
}

/// What stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Matter {
    /// What this node is to send.
    Copy(NodeId),
    /// This node itself.
    Going,
}

impl Watch {
    /// What is to be said now.
    pub(super) fn look(&mut self, membership: &Membership, board: &Board, now: Monotonic) -> Vec<String> {
        let Some(state) = membership.state() else { return Vec::new() };
        if now < self.next {
            return Vec::new();
        }
        self.next = now + LOOK_EVERY;
        let here = membership.log().identity().node;
        let votes = membership.log().voters().contains(&here);
        let mut matters = stuck_copies(state, &board.transfers(), now);
        let going = is_going(state, here).then(|| *self.going.get_or_insert(now));
        self.going = going;
        if going.is_some_and(|since| now.since(since) >= STUCK_AFTER) {
            matters.insert(Matter::Going, keeps(state, here, &board.kept_for(), votes));
        }
        self.said.retain(|matter, _| matters.contains_key(matter));
        let Watch { said, .. } = self;
        let is_news = |matter: &Matter| said.get(matter).is_none_or(|at| now.since(*at) >= SAY_EVERY);
        matters.retain(|matter, _| is_news(matter));
        said.extend(matters.keys().map(|&matter| (matter, now)));
        matters.into_values().collect()
    }
}

fn is_going(state: &State, here: NodeId) -> bool {
    state.members().get(&here).is_some_and(|record| record.member.state == MemberState::Exiting)
}

fn name(state: &State, node: NodeId) -> String {
    state.members().get(&node).map_or_else(|| node.to_string(), |record| record.member.name.to_string())
}

fn names(state: &State, nodes: impl IntoIterator<Item = NodeId>) -> String {
    nodes.into_iter().map(|node| name(state, node)).collect::<Vec<_>>().join(", ")
}

/// Copies that have not gone on, by who sends them.
fn stuck_copies(
    state: &State,
    transfers: &[(usize, TransferStatus)],
    now: Monotonic,
) -> BTreeMap<Matter, String> {
    let is_stuck = |it: &&TransferStatus| it.partitions_left > 0 && now.since(it.moved) >= STUCK_AFTER;
    let mut by_sender: BTreeMap<NodeId, Vec<&TransferStatus>> = BTreeMap::new();
    transfers.iter().map(|(_, it)| it).filter(is_stuck).for_each(|it| {
        by_sender.entry(it.from).or_default().push(it);
    });
    let text = |from: NodeId, stuck: &[&TransferStatus]| {
        let left: usize = stuck.iter().map(|it| it.partitions_left).sum();
        let still = stuck.iter().map(|it| now.since(it.moved)).max().unwrap_or_default();
        let reason = stuck.iter().find_map(|it| it.reason.as_ref());
        let reason = reason.map_or_else(|| "no answer has come".to_owned(), ToString::to_string);
        format!(
            "no data from {} for {} s, with {left} partitions left to copy: {reason}",
            name(state, from),
            still.as_secs()
        )
    };
    by_sender.into_iter().map(|(from, stuck)| (Matter::Copy(from), text(from, &stuck))).collect()
}

/// What keeps this node from going.
fn keeps(state: &State, here: NodeId, kept_for: &[NodeId], votes: bool) -> String {
    let mut reasons = Vec::new();
    let unadopted: Vec<NodeId> = state.unadopted().collect();
    if !unadopted.is_empty() {
        reasons.push(format!("{} may still use a ring with this node", names(state, unadopted)));
    }
    if !kept_for.is_empty() {
        reasons.push(format!("it keeps hints for {}", names(state, kept_for.iter().copied())));
    }
    if votes {
        reasons.push("it votes until another node replaces it as a voter".to_owned());
    }
    if reasons.is_empty() {
        reasons.push("it has unfinished requests or copies".to_owned());
    }
    format!("{} leaves, and waits: {}", name(state, here), reasons.join("; "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use ::membership::ClusterId;
    use kv::Error;
    use ring::{RingSize, RingVersion};

    fn state() -> State {
        let nodes = [("a@h", "h:1", ""), ("b@h", "h:2", "")];
        State::found_by(ClusterId(7), (RingSize::new(8).unwrap(), RingSize::new(128).unwrap()), nodes)
            .unwrap()
    }

    fn transfer(from: u16, left: usize, moved: u64, reason: Option<Error>) -> (usize, TransferStatus) {
        let moved = Monotonic(0) + Duration::from_secs(moved);
        let status = TransferStatus {
            target: RingVersion(2),
            from: NodeId(from),
            partitions_left: left,
            running: false,
            since: Monotonic(0),
            moved,
            next: moved,
            failures: 3,
            reason,
            objects: 0,
            bytes: 0,
            lossy: 0,
        };
        (0, status)
    }

    #[test]
    fn a_copy_that_stands_still_is_told() {
        let now = Monotonic(0) + Duration::from_secs(100);
        let transfers = [
            transfer(1, 3, 60, None),
            transfer(1, 2, 70, Some(Error::Timeout)),
            transfer(0, 0, 10, None),
            transfer(0, 5, 71, None),
        ];
        let told = stuck_copies(&state(), &transfers, now);
        assert_eq!(told.len(), 1);
        let text = &told[&Matter::Copy(NodeId(1))];
        assert!(text.contains("b@h for 40 s") && text.contains("5 partitions"), "{text}");
        assert!(text.ends_with(&Error::Timeout.to_string()), "{text}");
    }

    #[test]
    fn what_keeps_a_node_from_going_is_told() {
        let state = state();
        let text = keeps(&state, NodeId(0), &[NodeId(1)], false);
        assert_eq!(text, "a@h leaves, and waits: it keeps hints for b@h");
        assert!(keeps(&state, NodeId(0), &[], true).contains("votes"));
        assert!(keeps(&state, NodeId(0), &[], false).contains("unfinished requests"));
    }
}
