//! Live groups in the order in which they are looked at: a clock with a second chance for those in use.
//!
//! The use of a group costs its owner one flag, and no search. A group that was used since the last look goes to the
//! end.

use std::collections::VecDeque;

/// Groups looked at in one call: a search among groups that are all in use stays short.
const LOOKS_MAX: usize = 8;

/// The state of a group that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It stays live.
    Keeps,
    /// It is unloaded, or was before.
    Leaves,
}

/// Live groups of a shard.
pub struct LiveGroups<G> {
    order: VecDeque<G>,
}

impl<G> Default for LiveGroups<G> {
    fn default() -> LiveGroups<G> {
        LiveGroups { order: VecDeque::new() }
    }
}

impl<G: Copy> LiveGroups<G> {
    /// Adds a group that was loaded.
    pub fn add(&mut self, group: G) {
        self.order.push_back(group);
    }

    /// Removes a group that was left.
    pub fn remove(&mut self, group: G)
    where
        G: PartialEq,
    {
        self.order.retain(|other| *other != group);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.order.clear();
    }

    /// Looks at the next groups, some at most, until `excess` of them have left.
    pub fn look(&mut self, mut excess: usize, mut look: impl FnMut(G) -> Look) {
        for _ in 0..self.order.len().min(LOOKS_MAX) {
            let Some(group) = (excess > 0).then(|| self.order.pop_front()).flatten() else { return };
            match look(group) {
                Look::Keeps => self.order.push_back(group),
                Look::Leaves => excess -= 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_least_recently_used_ones_leave() {
        let mut live = LiveGroups::default();
        (0..6).for_each(|group| live.add(group));
        let mut used = BTreeSet::from([0, 1, 3]);
        let mut left = Vec::new();
        live.look(2, |group| {
            if used.remove(&group) {
                return Look::Keeps;
            }
            left.push(group);
            Look::Leaves
        });
        assert_eq!(left, [2, 4], "those in use get a second chance");
        assert_eq!(live.order, [5, 0, 1, 3]);
        live.remove(0);
        assert_eq!(live.order, [5, 1, 3]);
        live.look(0, |_| panic!("none has to leave"));
    }

    #[test]
    fn a_look_is_short() {
        let mut live = LiveGroups::default();
        (0..100).for_each(|group| live.add(group));
        let mut looks = 0;
        live.look(1, |_| {
            looks += 1;
            Look::Keeps
        });
        assert_eq!(looks, LOOKS_MAX);
        assert_eq!(live.order.front(), Some(&LOOKS_MAX), "the next look goes on");
    }
}
