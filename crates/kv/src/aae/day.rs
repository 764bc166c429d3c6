//! The days on which keys end, by which trees are told apart.
//!
//! A key that ends leaves no trace: nobody writes, so no tree would change, and a tree that is made anew from heads
//! would be another than one that was kept. So the keys that end on one day (of Universal Time) have a tree of their
//! own. Before the day nothing is missing in it; from its beginning on it is not compared any more, and when it is over
//! the tree goes.
//!
//! Invariant: what is compared has ended for no node whose clock is right by [`ends_soon`]. Whoever begins an exchange
//! judges by its clock, and whoever is asked by its own as well: where they disagree nothing is compared.
//!
//! Left out: keys that end within the day on which they are written. A read, or a hint, repairs them.

use super::TreeId;
use crate::get::ends_soon;
use base::Wall;
use object::HeadView;

const DAY_MS: u64 = 86_400_000;

/// The last day that is told from others: far beyond any time to live, and small enough to stand beside the number of
/// replicas.
pub const DAY_MAX: u32 = (1 << 24) - 1;

/// The day on which a key with this head ends, counted from 1 at the beginning of 1970; 0 if it does not.
#[inline]
pub fn day_of(head: &[u8]) -> u32 {
    let day = |ends_ms: u64| u32::try_from(ends_ms / DAY_MS + 1).unwrap_or(DAY_MAX).min(DAY_MAX);
    HeadView::expiry_of(head).map_or(0, day)
}

impl TreeId {
    /// Whether none of its keys has ended, or may have for another node.
    pub fn is_comparable(&self, now: Wall) -> bool {
        self.day == 0 || !ends_soon(u64::from(self.day - 1) * DAY_MS, now)
    }

    /// Whether all of its keys have ended.
    pub fn is_over(&self, now: Wall) -> bool {
        self.day != 0 && u64::from(self.day) * DAY_MS <= now.millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use object::{Actor, Dot, Metadata, Policy, Put};

    fn head(expires_ms: Option<u64>) -> Vec<u8> {
        let metadata = Metadata { expires_ms, ..Metadata::default() };
        let put = Put { context: None, metadata, value: Bytes::from_static(b"v") };
        let object = object::update(None, put, Dot::new(Actor(1), 1), Policy::AllowMult).unwrap();
        let mut head = Vec::new();
        object.head().encode(&mut head);
        head
    }

    #[test]
    fn a_tree_is_compared_before_its_day_and_goes_after_it() {
        let of = |expires_ms| day_of(&head(expires_ms));
        assert_eq!(of(None), 0);
        assert_eq!([0, DAY_MS - 1, DAY_MS, u64::MAX].map(|ends_ms| of(Some(ends_ms))), [1, 1, 2, DAY_MAX]);
        let tree = |day| TreeId { first: 0, n_val: 3, day };
        let at =
            |day, ms: u64| (tree(day).is_comparable(Wall(ms * 1000)), tree(day).is_over(Wall(ms * 1000)));
        assert_eq!(at(0, 100 * DAY_MS), (true, false));
        let minute = 60_000;
        assert_eq!(at(3, 2 * DAY_MS - minute - 1), (true, false));
        assert_eq!(at(3, 2 * DAY_MS - minute), (false, false));
        assert_eq!(at(3, 3 * DAY_MS - 1), (false, false));
        assert_eq!(at(3, 3 * DAY_MS), (false, true));
    }
}
