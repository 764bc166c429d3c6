//! The choice of voters: pure, one member at a time.
//!
//! One voter for one or two members, three for up to six, five for more: an even number, which outlives no more losses than
//! the odd one below it, votes only while nobody else can be reached. Zones first: a zone with no voter before one with some.
//! A voter that is no member in good standing, has lost what it acknowledged, or was not reached for [`VOTER_DOWN_MAX`]
//! is replaced: the newcomer first, as long as one can be reached, then the old one goes.

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
pub enum Step {
    /// A member is to vote.
    Add(NodeId),
    /// A voter is to vote no more.
    Remove(NodeId),
}

/// How many of so many members should vote.
pub const fn wanted(members: usize) -> usize {
    match members {
        0..=2 => 1,
        3..=6 => 3,
        _ => 5,
    }
}

const _: () = assert!(wanted(usize::MAX) < VOTERS_MAX, "a newcomer votes beside the voter that it replaces");

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

#[cfg(test)]
mod tests {
    use super::*;
    use ring::Member;
    use std::sync::Arc;

    struct Cluster {
        voters: BTreeSet<NodeId>,
        members: BTreeMap<NodeId, Record>,
        up: BTreeSet<NodeId>,
        down_since: BTreeMap<NodeId, Monotonic>,
        lost: BTreeSet<NodeId>,
    }

    const NOW: Monotonic = Monotonic(1_000_000_000_000);

    impl Cluster {
        /// Members in these zones, all up; the first votes.
        fn new(zones: &[&str]) -> Cluster {
            let record = |(at, zone): (u16, &&str)| {
                let mut member = Member::new(NodeId(at), &at.to_string());
                member.zone = Arc::from(*zone);
                (member.id, Record::new(member, ""))
            };
            let members: BTreeMap<NodeId, Record> = (0..).zip(zones).map(record).collect();
            let up = members.keys().copied().collect();
            let voters = BTreeSet::from([NodeId(0)]);
            Cluster { voters, members, up, down_since: BTreeMap::new(), lost: BTreeSet::new() }
        }

        fn step(&self) -> Option<Step> {
            next(&View {
                here: NodeId(0),
                voters: &self.voters,
                members: &self.members,
                up: &self.up,
                down_since: &self.down_since,
                lost: &self.lost,
                now: NOW,
            })
        }

        /// Follows the steps to their end.
        fn settle(&mut self) -> Vec<u16> {
            for _ in 0..20 {
                match self.step() {
                    Some(Step::Add(node)) => {
                        assert!(self.voters.insert(node) && self.voters.len() <= VOTERS_MAX)
                    }
                    Some(Step::Remove(node)) => assert!(self.voters.remove(&node)),
                    None => return self.voters.iter().map(|node| node.0).collect(),
                }
            }
            panic!("the choice goes in circles: {:?}", self.voters);
        }

        fn lose(&mut self, node: u16, seconds: u64) {
            self.up.remove(&NodeId(node));
            self.down_since.insert(NodeId(node), Monotonic(NOW.0 - seconds * 1_000_000_000));
        }
    }

    #[test]
    fn an_odd_number_votes_from_as_many_zones_as_there_are() {
        assert_eq!(Cluster::new(&["a"]).settle(), [0]);
        assert_eq!(Cluster::new(&["a", "b"]).settle(), [0]);
        assert_eq!(Cluster::new(&["a", "a", "a"]).settle(), [0, 1, 2]);
        assert_eq!(Cluster::new(&["a", "a", "b", "c"]).settle(), [0, 2, 3]);
        assert_eq!(Cluster::new(&["a", "a", "a", "b", "b", "c", "c"]).settle(), [0, 1, 3, 4, 5]);
    }

    #[test]
    fn a_zone_that_comes_later_gets_a_voter() {
        let mut cluster = Cluster::new(&["a", "a", "a", "b"]);
        cluster.voters = [0, 1, 2].map(NodeId).into();
        assert_eq!(cluster.step(), Some(Step::Add(NodeId(3))));
        assert_eq!(cluster.settle(), [0, 1, 3]);
    }

    #[test]
    fn a_newcomer_votes_before_the_lost_one_goes() {
        let mut cluster = Cluster::new(&["a", "b", "c", "c"]);
        cluster.settle();
        cluster.lose(2, VOTER_DOWN_MAX.as_secs() - 1);
        assert_eq!(cluster.step(), None, "it may come back");
        cluster.lose(2, VOTER_DOWN_MAX.as_secs());
        assert_eq!(cluster.step(), Some(Step::Add(NodeId(3))));
        assert_eq!(cluster.settle(), [0, 1, 3]);
    }

    #[test]
    fn those_who_leave_or_forgot_vote_no_more() {
        let mut cluster = Cluster::new(&["a", "b", "c", "d", "e"]);
        assert_eq!(cluster.settle(), [0, 1, 2]);
        cluster.lost.insert(NodeId(1));
        cluster.members.get_mut(&NodeId(2)).unwrap().member.state = MemberState::Leaving;
        assert_eq!(cluster.settle(), [0, 3, 4]);
        // The leader itself goes last, when others can lead; a third is waited for.
        cluster.members.get_mut(&NodeId(0)).unwrap().member.state = MemberState::Leaving;
        assert_eq!(cluster.settle(), [3, 4]);
    }

    #[test]
    fn fewer_members_have_fewer_voters() {
        let mut cluster = Cluster::new(&["a", "b", "c"]);
        cluster.settle();
        cluster.members.remove(&NodeId(2));
        assert_eq!(cluster.settle(), [0]);
    }
}
