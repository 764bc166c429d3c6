//! Version tags: short texts that name one version of a value, for clients' `vtag` and `ETag` fields.
//!
//! A vtag is derived from the sibling's dot and time, so it is never stored. The 128 bits of the dot go through a
//! Feistel network, which loses nothing: at one time, two dots never share a vtag.

use std::fmt;

use base::rng::mix64;

use crate::context::Context;
use crate::dot::Dot;

/// Two halves of 64 bits, each 11 digits in base 62: as long as Riak's.
const VTAG_LEN: usize = 22;
/// Rounds after which every bit of the input has reached every bit of the output (three do; one to spare).
const ROUNDS: u64 = 4;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A version tag: 22 letters and digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Vtag([u8; VTAG_LEN]);

impl Vtag {
    /// The tag of the value that the write `dot` stored at `last_modified`.
    pub fn of_dot(dot: Dot, last_modified: u64) -> Vtag {
        Vtag::from_bits(scramble(dot.actor.0, dot.counter, last_modified))
    }

    /// The tag of an object with several siblings: a hash of its context.
    pub fn of_context(entries: impl Iterator<Item = (crate::Actor, u64)>) -> Vtag {
        Vtag::from_bits(
            entries
                .fold((0, 0), |(left, right), (actor, counter)| scramble(left ^ actor.0, right ^ counter, 0)),
        )
    }

    /// The tag as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("the digits are ASCII")
    }

    fn from_bits((left, right): (u64, u64)) -> Vtag {
        let mut text = [0; VTAG_LEN];
        for (half, mut bits) in text.chunks_exact_mut(VTAG_LEN / 2).zip([left, right]) {
            for digit in half.iter_mut().rev() {
                *digit = DIGITS[(bits % 62) as usize];
                bits /= 62;
            }
        }
        Vtag(text)
    }
}

impl From<&Context> for Vtag {
    fn from(context: &Context) -> Vtag {
        Vtag::of_context(context.entries().iter().copied())
    }
}

impl AsRef<[u8]> for Vtag {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Vtag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Vtag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vtag({self})")
    }
}

fn scramble(mut left: u64, mut right: u64, tweak: u64) -> (u64, u64) {
    let tweak = mix64(tweak);
    for round in 0..ROUNDS {
        (left, right) = (right, left ^ mix64(right.wrapping_add(tweak ^ round << 60)));
    }
    (left, right)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::dot::Actor;

    #[test]
    fn tags_are_stable_and_distinct() {
        let tag = Vtag::of_dot(Dot::new(Actor(7), 1), 1_700_000_000_000_000);
        assert_eq!(tag.as_str(), "C1TjKT8EfSX46rPKTjtgDq");
        assert!(tag.as_ref().iter().all(u8::is_ascii_alphanumeric));
        let tags: BTreeSet<String> = (1..100)
            .flat_map(|counter| (0..100).map(move |actor| Dot::new(Actor(actor), counter)))
            .map(|dot| Vtag::of_dot(dot, 5).to_string())
            .collect();
        assert_eq!(tags.len(), 99 * 100);
    }

    #[test]
    fn a_context_has_a_tag_of_its_own() {
        let one: Context = [Dot::new(Actor(1), 1)].into_iter().collect();
        let two: Context = [Dot::new(Actor(1), 1), Dot::new(Actor(2), 1)].into_iter().collect();
        assert_ne!(Vtag::from(&one), Vtag::from(&two));
        assert_ne!(Vtag::from(&one), Vtag::from(&Context::new()));
    }
}
