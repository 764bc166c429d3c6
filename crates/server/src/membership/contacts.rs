//! A newcomer's search for the state that all agree on: it asks one member of its standing after the other.
//!
//! Invariant: nothing is asked, and nothing is due, once the node has heard of a state.

use super::standing::Standing;
use ::membership::{Input, Membership};
use base::Monotonic;
use ring::NodeId;
use std::time::Duration;

/// How often a newcomer asks the next member, until it has the state.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// The members that a newcomer asks.
pub(super) struct Contacts {
    /// The one that was asked last.
    last: Option<NodeId>,
    /// When the next one is asked.
    ask_at: Monotonic,
}

impl Contacts {
    /// Nobody is asked yet.
    pub(super) fn new(now: Monotonic) -> Contacts {
        Contacts { last: None, ask_at: now }
    }

    /// When the next member is asked.
    pub(super) fn next_timer(&self, membership: &Membership) -> Option<Monotonic> {
        membership.state().is_none().then_some(self.ask_at)
    }

    /// The question that is due to a member.
    pub(super) fn advance(
        &mut self,
        membership: &Membership,
        standing: &Standing,
        now: Monotonic,
    ) -> Option<Input> {
        if membership.state().is_some() || now < self.ask_at {
            return None;
        }
        self.last = member_after(standing, self.last);
        self.ask_at = now + ASK_EVERY;
        self.last.map(|contact| Input::Join { contact })
    }
}

/// The member after `last` in the order of their numbers, and after the last one the first; `None` without others.
fn member_after(standing: &Standing, last: Option<NodeId>) -> Option<NodeId> {
    let others = || standing.state.members().keys().copied().filter(|&node| node != standing.node);
    others().find(|&node| Some(node) > last).or_else(|| others().next())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use crate::membership::standing::AsOf;
    use ::membership::ClusterId;
    use ::membership::state::State;
    use ring::RingSize;

    fn standing(names: &[&str], node: u16) -> Standing {
        let size = (RingSize::new(8).unwrap(), RingSize::new(128).unwrap());
        let state = State::found_by(ClusterId(7), size, names.iter().map(|name| (*name, "", ""))).unwrap();
        Standing { node: NodeId(node), as_of: AsOf::default(), state }
    }

    #[test]
    fn members_are_asked_one_after_the_other_and_then_again() {
        let standing = standing(&["a@h", "b@h", "c@h"], 1);
        let (mut asked, mut last) = (Vec::new(), None);
        for _ in 0..4 {
            last = member_after(&standing, last);
            asked.extend(last);
        }
        assert_eq!(asked, [0, 2, 0, 2].map(NodeId));
    }

    #[test]
    fn a_node_without_others_asks_nobody() {
        assert_eq!(member_after(&standing(&["a@h"], 0), None), None);
    }
}
