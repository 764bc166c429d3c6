//! The window against doubled forwards.
//!
//! A node passes a write on to the node that leads. Messages between nodes may come twice and late, and a write that is
//! executed twice may undo another one between. So each forward has a number of its origin, and a leader's shard drops
//! those that it has seen or may have seen.
//!
//! Invariant: of all copies of a forward at most one is let through.
//!
//! Needs: an origin gives each number once; a forward names the life of the process that it is sent to, and another
//! life drops it, so a window may be lost with its process; an origin is retired only when its life is over and
//! messages of it are dropped.

use std::collections::BTreeMap;

use base::Monotonic;

use crate::endpoint::Endpoint;

/// Numbers behind the highest one of an origin that are told apart: more than a shard has under way to one other.
pub const FORWARDS_MAX: u64 = 4_096;

/// Endpoints at once: the shards of all peers. A window takes half a KiB.
pub const ORIGINS_MAX: usize = 8_192;

/// The reason why a forward is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// It was seen, or it is so far behind that it may have been.
    #[error("the forwarded request may have come before")]
    Seen,
    /// Its deadline has passed.
    #[error("the deadline of the forwarded request has passed")]
    Late,
    /// There are too many origins. It was not seen before.
    #[error("too many nodes forward requests")]
    Full,
}

/// Numbers of one origin.
struct Numbers {
    highest: u64,
    /// A bit for each of the last numbers, by its remainder.
    seen: Box<[u64; BITS]>,
}

/// Words of bits.
const BITS: usize = (FORWARDS_MAX / 64) as usize;

/// Numbers of all origins, as one shard has seen them.
#[derive(Default)]
pub struct ForwardWindow {
    origins: BTreeMap<Endpoint, Numbers>,
}

impl ForwardWindow {
    /// Notes a forward; whether it is to be executed. Its deadline is in the clock of this node.
    ///
    /// # Errors
    /// [`ForwardError`], if it is to be dropped.
    pub fn admit(
        &mut self,
        origin: Endpoint,
        number: u64,
        deadline: Monotonic,
        now: Monotonic,
    ) -> Result<(), ForwardError> {
        if deadline <= now {
            return Err(ForwardError::Late);
        }
        if self.origins.len() >= ORIGINS_MAX && !self.origins.contains_key(&origin) {
            return Err(ForwardError::Full);
        }
        let numbers = self.origins.entry(origin).or_insert_with(Numbers::new);
        if numbers.add(number) || base::planted!(ForwardExecutedTwice) {
            Ok(())
        } else {
            Err(ForwardError::Seen)
        }
    }

    /// Forgets the origins of a life that is over.
    pub fn retire(&mut self, life: u64) {
        self.origins.retain(|origin, _| origin.life != life);
    }
}

impl Numbers {
    fn new() -> Numbers {
        Numbers { highest: 0, seen: Box::new([0; BITS]) }
    }

    /// Adds a number; whether it is new for certain.
    fn add(&mut self, number: u64) -> bool {
        if self.highest.saturating_sub(number) >= FORWARDS_MAX {
            return false;
        }
        if number > self.highest {
            let passed = (number - self.highest).min(FORWARDS_MAX);
            for skipped in number - passed + 1..=number {
                let (word, bit) = place(skipped);
                self.seen[word] &= !bit;
            }
            self.highest = number;
        }
        let (word, bit) = place(number);
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }
}

/// The word and the bit of a number.
fn place(number: u64) -> (usize, u64) {
    let at = number % FORWARDS_MAX;
    (usize::try_from(at / 64).expect("it is below the number of words"), 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    const ORIGIN: Endpoint = Endpoint { life: 7, shard: 1 };
    const NOW: Monotonic = Monotonic(10);

    fn admit(window: &mut ForwardWindow, origin: Endpoint, number: u64) -> Result<(), ForwardError> {
        window.admit(origin, number, Monotonic(11), NOW)
    }

    #[test]
    fn each_number_is_let_through_once() {
        let mut rng = SplitMix64::new(1);
        for spread in [10, FORWARDS_MAX, 3 * FORWARDS_MAX] {
            let (mut window, mut seen, mut highest) = (ForwardWindow::default(), BTreeSet::new(), 0);
            for step in 0..30_000 {
                let number = 1 + step / 4 + rng.below(spread);
                let is_new = seen.insert(number);
                let is_inside = number + FORWARDS_MAX > highest;
                highest = highest.max(number);
                let admitted = admit(&mut window, ORIGIN, number);
                assert_eq!(admitted.is_ok(), is_new && is_inside, "{number} of {highest}");
            }
        }
    }

    #[test]
    fn late_forwards_and_too_many_origins_are_dropped() {
        let mut window = ForwardWindow::default();
        assert_eq!(window.admit(ORIGIN, 1, NOW, NOW), Err(ForwardError::Late));
        assert_eq!(admit(&mut window, ORIGIN, 1), Ok(()));
        for life in 8..8 + ORIGINS_MAX as u64 - 1 {
            assert_eq!(admit(&mut window, Endpoint { life, shard: 1 }, u64::MAX), Ok(()));
        }
        let another = Endpoint { life: 9, shard: 2 };
        assert_eq!(admit(&mut window, another, 1), Err(ForwardError::Full));
        assert_eq!(admit(&mut window, ORIGIN, 2), Ok(()), "a known one");
        window.retire(8);
        assert_eq!(admit(&mut window, another, 1), Ok(()));
    }
}
