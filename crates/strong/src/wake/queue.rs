//! Groups that lost their leader with its node.

use std::collections::{BTreeMap, BTreeSet};

use base::Monotonic;

use super::Pace;

/// The order of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A request waits for the group.
    Waiting,
    /// It was used a short while ago.
    Recent,
    /// All others.
    Other,
}

/// Groups by urgency, and of the same urgency in order of coming.
pub struct WakeQueue<G> {
    queue: BTreeSet<(Urgency, u64, G)>,
    /// The place of each group in the queue.
    places: BTreeMap<G, (Urgency, u64)>,
    pushed: u64,
    pace: Pace,
}

impl<G: Ord + Copy> Default for WakeQueue<G> {
    fn default() -> WakeQueue<G> {
        WakeQueue { queue: BTreeSet::new(), places: BTreeMap::new(), pushed: 0, pace: Pace::default() }
    }
}

impl<G: Ord + Copy> WakeQueue<G> {
    /// Adds a group, or makes one that is here more urgent.
    pub fn push(&mut self, group: G, urgency: Urgency) {
        if self.places.get(&group).is_some_and(|(known, _)| *known <= urgency) {
            return;
        }
        self.remove(group);
        self.pushed += 1;
        self.places.insert(group, (urgency, self.pushed));
        self.queue.insert((urgency, self.pushed, group));
    }

    /// Whether a group is to be woken.
    pub fn has(&self, group: G) -> bool {
        self.places.contains_key(&group)
    }

    /// Removes a group that need not be woken any more.
    pub fn remove(&mut self, group: G) {
        if let Some((urgency, number)) = self.places.remove(&group) {
            self.queue.remove(&(urgency, number, group));
        }
    }

    /// Takes groups to be woken now, the most urgent first.
    pub fn take(&mut self, now: Monotonic) -> Vec<G> {
        self.pace.take(now, || {
            let (_, _, group) = self.queue.pop_first()?;
            self.places.remove(&group);
            Some(group)
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
    fn groups_with_waiting_requests_are_woken_first() {
        let mut queue = WakeQueue::default();
        let urgencies = [Urgency::Other, Urgency::Recent, Urgency::Waiting];
        for group in 0..30 {
            queue.push(group, urgencies[group % 3]);
        }
        queue.push(0, Urgency::Waiting);
        queue.push(2, Urgency::Other);
        queue.remove(1);
        let now = Monotonic(1_000);
        let first = queue.take(now);
        assert_eq!(first.len(), WAKES_AT_ONCE);
        assert_eq!(first[..11], [2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 0]);
        assert_eq!(first[11..], [4, 7, 10, 13, 16, 19, 22, 25, 28]);
        assert_eq!((queue.take(now), queue.next_timer()), (vec![], Some(now + WAKE_EVERY)));
        assert_eq!(queue.take(now + WAKE_EVERY), [3, 6, 9, 12, 15, 18, 21, 24, 27]);
        assert_eq!(queue.next_timer(), None);
    }
}
