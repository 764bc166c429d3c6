//! Who should vote: a pure choice, one member at a time.
//!
//! One voter for one or two members, three for up to six, five for more: so that an even number never votes for long, since it
//! outlives no more losses than the odd number below it. Zones first: a zone with no voter before one with some. A voter that
//! is no member in good standing, has lost what it acknowledged, or was not reached for [`VOTER_DOWN_MAX`] is replaced: the
//! newcomer first, as long as one can be reached, then the old one goes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::Monotonic;
use ring::{MemberState, NodeId};

use super::entry::VOTERS_MAX;
use crate::state::Record;

/// How long a voter may be out of reach before another takes its place: longer than a restart.
pub const VOTER_DOWN_MAX: Duration = Duration::from_secs(60);

/// What a choice is made from.
pub(super) struct View<'a> {
    pub(super) here: NodeId,
    pub(super) voters: &'a BTreeSet<NodeId>,
    pub(super) members: &'a BTreeMap<NodeId, Record>,
    pub(super) up: &'a BTreeSet<NodeId>,
    pub(super) down_since: &'a BTreeMap<NodeId, Monotonic>,
    pub(super) lost: &'a BTreeSet<NodeId>,
    pub(super) now: Monotonic,
}

/// One change of the voters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Add(NodeId),
    Remove(NodeId),
}

/// How many of so many members should vote.
pub fn wanted(members: usize) -> usize {
    match members {
        0..=2 => 1,
        3..=6 => 3,
        _ => 5,
    }
}

/// The next change, if one is due.
pub(super) fn next(view: &View<'_>) -> Option<Step> {
    let (good, bad): (Vec<NodeId>, Vec<NodeId>) =
        view.voters.iter().partition(|&&voter| is_good(view, voter));
    let valid = view.members.values().filter(|record| record.member.state == MemberState::Valid).count();
    let wanted = wanted(valid);
    let in_zone = |node: NodeId| good.iter().filter(|&&voter| zone(view, voter) == zone(view, node)).count();
    let candidates = view.members.keys().copied().filter(|node| {
        view.up.contains(node)
            && !view.voters.contains(node)
            && !view.lost.contains(node)
            && is_valid(view, *node)
    });
    let candidate = candidates.min_by_key(|&node| (in_zone(node), node));
    let crowded = good.iter().any(|&voter| in_zone(voter) > 1);
    if let Some(node) = candidate
        && view.voters.len() < VOTERS_MAX
        && (good.len() < wanted || good.len() == wanted && crowded && in_zone(node) == 0)
    {
        return Some(Step::Add(node));
    }
    if let Some(&node) =
        bad.iter().find(|node| **node != view.here).or(bad.first()).filter(|_| !good.is_empty())
    {
        return Some(Step::Remove(node));
    }
    let extra = good.iter().copied().filter(|node| *node != view.here);
    extra.max_by_key(|&node| (in_zone(node), node)).filter(|_| good.len() > wanted).map(Step::Remove)
}

fn is_valid(view: &View<'_>, node: NodeId) -> bool {
    view.members.get(&node).is_some_and(|record| record.member.state == MemberState::Valid)
}

fn is_good(view: &View<'_>, voter: NodeId) -> bool {
    let is_gone = view.down_since.get(&voter).is_some_and(|&since| view.now.since(since) >= VOTER_DOWN_MAX);
    is_valid(view, voter) && !view.lost.contains(&voter) && (voter == view.here || !is_gone)
}

fn zone<'a>(view: &View<'a>, node: NodeId) -> Option<&'a str> {
    view.members.get(&node).map(|record| &*record.member.zone)
}
