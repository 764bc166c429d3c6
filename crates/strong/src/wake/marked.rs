//! Groups that settled while a voter was away.
//!
//! Invariant: a group of which a reachable voter may lack something is awake, or is queued here.
//!
//! Needs: the leader's node marks a group that settles for each voter that is away then, and all groups that it leads
//! with a voter that started anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Monotonic;

use super::Pace;
use crate::group::VoterId;

/// Groups by the voter that they settled without.
pub struct MarkedGroups<G> {
    marks: BTreeMap<VoterId, BTreeSet<G>>,
    /// Groups to be woken, in order; each is marked.
    queue: VecDeque<(VoterId, G)>,
    /// The same ones.
    queued: BTreeSet<(VoterId, G)>,
    pace: Pace,
}

impl<G: Ord + Copy> Default for MarkedGroups<G> {
    fn default() -> MarkedGroups<G> {
        MarkedGroups {
            marks: BTreeMap::new(),
            queue: VecDeque::new(),
            queued: BTreeSet::new(),
            pace: Pace::default(),
        }
    }
}

impl<G: Ord + Copy> MarkedGroups<G> {
    /// Marks a group that settled while a voter was away.
    pub fn mark(&mut self, group: G, voter: VoterId) {
        self.marks.entry(voter).or_default().insert(group);
    }

    /// Removes the mark of a group that settled with a voter, unless it is still to be woken for it.
    pub fn unmark(&mut self, group: G, voter: VoterId) {
        if self.queued.contains(&(voter, group)) {
            return;
        }
        if let Some(groups) = self.marks.get_mut(&voter)
            && groups.remove(&group)
            && groups.is_empty()
        {
            self.marks.remove(&voter);
        }
    }

    /// Whether a group is marked for a voter.
    pub fn is_marked(&self, group: G, voter: VoterId) -> bool {
        self.marks.get(&voter).is_some_and(|groups| groups.contains(&group))
    }

    /// Queues the groups of a voter that has come back. They stay marked until they are settled with it.
    pub fn on_back(&mut self, voter: VoterId) {
        self.on_away(voter);
        if let Some(groups) = self.marks.get(&voter).filter(|_| !base::planted!(SleeperNotWoken)) {
            self.queue.extend(groups.iter().map(|&group| (voter, group)));
            self.queued.extend(groups.iter().map(|&group| (voter, group)));
        }
    }

    /// Drops the queued groups of a voter that has gone away again.
    pub fn on_away(&mut self, voter: VoterId) {
        self.queue.retain(|(queued, _)| *queued != voter);
        self.queued.retain(|(queued, _)| *queued != voter);
    }

    /// Takes groups to be woken now, and the voter that each is woken for: the group is to be stepped with
    /// [`crate::group::Input::Restarted`] and [`crate::group::Input::Reachable`].
    pub fn take(&mut self, now: Monotonic) -> Vec<(G, VoterId)> {
        self.pace.take(now, || {
            let (voter, group) = self.queue.pop_front()?;
            self.queued.remove(&(voter, group));
            Some((group, voter))
        })
    }

    /// When the next groups may be taken.
    pub fn next_timer(&self) -> Option<Monotonic> {
        (!self.queue.is_empty()).then_some(self.pace.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wake::{WAKE_EVERY, WAKES_AT_ONCE};

    #[test]
    fn marked_groups_are_woken_at_a_pace_until_they_are_settled() {
        let [here, there] = [7, 8].map(|number| VoterId::of_number(number).unwrap());
        let mut marked = MarkedGroups::default();
        let count = 2 * WAKES_AT_ONCE + 3;
        (0..count).for_each(|group| marked.mark(group, here));
        marked.mark(0, there);
        assert_eq!(marked.next_timer(), None);
        marked.unmark(0, here);
        marked.on_back(here);
        marked.unmark(1, here);
        let mut now = Monotonic(1_000);
        let mut woken = Vec::new();
        while marked.next_timer().is_some() {
            woken.extend(marked.take(now));
            assert_eq!(marked.take(now), [], "the others later");
            now = now + WAKE_EVERY;
        }
        let expected: Vec<_> = (1..count).map(|group| (group, here)).collect();
        assert_eq!(woken, expected);
        assert_eq!(now, Monotonic(1_000) + 3 * WAKE_EVERY);

        marked.on_back(here);
        marked.on_away(here);
        assert_eq!(marked.next_timer(), None);
        assert!(marked.is_marked(1, here), "it has not settled with it");
        assert!(marked.is_marked(0, there) && !marked.is_marked(0, here));
    }
}
