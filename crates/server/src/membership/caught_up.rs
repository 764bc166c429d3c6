//! Whether this node's groups of consistent types have caught up since its start.
//!
//! 1. The stores are registered: before that, no group counts on them.
//! 2. Leaders have had the time to wake the groups that settled without this node.
//! 3. No group that has a leader lacks entries or keys here.
//!
//! A node that has caught up once stays so until its next start: under load a voter may lag for a moment at any time,
//! and that is no reason to keep clients away. A rolling restart waits for this. Else two voters of
//! a group would be away at once.
//!
//! Groups without a leader are not waited for. They may have lost their majority for good. Nor are those of a restored
//! node, which holds them back until an operator has chosen among their copies.

use super::births::Births;
use ::membership::log::Identity;
use ::membership::state::State;
use base::Monotonic;
use node::WAKES_PER_SECOND;
use std::time::Duration;

/// The time from a registration until all leaders know of it and have begun to wake groups: a second in which the new
/// process does not vote, and a round of pings.
const HEARD_MAX: Duration = Duration::from_secs(2);

/// The progress of a node's groups since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GroupProgress {
    /// All are caught up, or there are none.
    #[default]
    CaughtUp,
    /// The stores are not registered yet.
    Unregistered,
    /// Leaders may not have told of all entries yet.
    Waking,
    /// So many groups lack entries or keys.
    Behind(u64),
    /// The node was restored, and its groups are held back.
    Held,
}

/// The facts of one look.
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// Groups are founded that this node takes part in.
    has_groups: bool,
    is_held: bool,
    is_registered: bool,
    /// Groups of the node, at most.
    groups: u64,
    /// Groups that lack entries or keys.
    behind: u64,
}

/// The watch over this node's groups.
#[derive(Debug, Default)]
pub(super) struct GroupWatch {
    registered_at: Option<Monotonic>,
    has_caught_up: bool,
    /// When the wait for leaders is over.
    due: Option<Monotonic>,
}

impl GroupWatch {
    /// The progress now, with the number of groups that lack something.
    pub(super) fn look(
        &mut self,
        state: &State,
        own: &Identity,
        births: &Births,
        behind: u64,
        now: Monotonic,
    ) -> GroupProgress {
        let foundings = || state.foundings().filter(|(_, founding)| founding.stores.contains_key(&own.node));
        self.judge(
            Facts {
                has_groups: foundings().next().is_some(),
                is_held: births.are_held(state),
                is_registered: state.registration(own.node).is_some_and(|it| it.start == own.start),
                groups: u64::from(state.prefixes().partitions()) * foundings().count() as u64,
                behind,
            },
            now,
        )
    }

    /// When it is to be looked again though nothing is told.
    pub(super) fn next_timer(&self) -> Option<Monotonic> {
        self.due
    }

    fn judge(&mut self, facts: Facts, now: Monotonic) -> GroupProgress {
        self.due = None;
        if facts.is_held {
            return GroupProgress::Held;
        }
        if self.has_caught_up || !facts.has_groups {
            return GroupProgress::CaughtUp;
        }
        if !facts.is_registered {
            return GroupProgress::Unregistered;
        }
        let registered_at = *self.registered_at.get_or_insert(now);
        let told_at =
            registered_at + HEARD_MAX + Duration::from_millis(facts.groups * 1_000 / WAKES_PER_SECOND as u64);
        if now < told_at {
            self.due = Some(told_at);
            return GroupProgress::Waking;
        }
        if facts.behind > 0 {
            return GroupProgress::Behind(facts.behind);
        }
        self.has_caught_up = true;
        GroupProgress::CaughtUp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Facts =
        Facts { has_groups: true, is_held: false, is_registered: true, groups: 1_000, behind: 0 };

    fn at(millis: u64) -> Monotonic {
        Monotonic(0) + Duration::from_millis(millis)
    }

    #[test]
    fn a_node_has_caught_up_when_leaders_have_told_it_of_all_groups() {
        let mut watch = GroupWatch::default();
        let unregistered = Facts { is_registered: false, ..WELL };
        assert_eq!(watch.judge(unregistered, at(0)), GroupProgress::Unregistered);
        assert_eq!(
            (watch.judge(WELL, at(1_000)), watch.next_timer()),
            (GroupProgress::Waking, Some(at(3_500)))
        );
        let behind = Facts { behind: 7, ..WELL };
        assert_eq!((watch.judge(behind, at(3_500)), watch.next_timer()), (GroupProgress::Behind(7), None));
        assert_eq!(watch.judge(WELL, at(3_600)), GroupProgress::CaughtUp);
        assert_eq!(watch.judge(behind, at(3_700)), GroupProgress::CaughtUp, "it stays so");
    }

    #[test]
    fn nodes_without_groups_or_with_held_ones_wait_for_nothing() {
        let mut watch = GroupWatch::default();
        let without = Facts { has_groups: false, is_registered: false, ..WELL };
        assert_eq!(watch.judge(without, at(0)), GroupProgress::CaughtUp);
        let held = Facts { is_held: true, is_registered: false, ..WELL };
        assert_eq!(watch.judge(held, at(0)), GroupProgress::Held);
        assert_eq!(watch.judge(WELL, at(9)), GroupProgress::Waking, "its groups are to be refilled then");
    }
}
