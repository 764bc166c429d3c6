//! The one number that decides a world, and the independent streams drawn from it.

use base::checksum::crc32c;
use base::rng::{SplitMix64, mix64};
use base::{Monotonic, Rng};
use std::fmt;
use std::time::Duration;

/// What decides a world's whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seed(pub u64);

impl Seed {
    /// The generator of one part of the world, named by what it is and its number. Each part has a stream of
    /// its own, so that a change in what one part draws does not reshuffle the others.
    pub fn stream(self, part: &str, number: u64) -> SplitMix64 {
        let name = u64::from(crc32c(part.as_bytes()));
        SplitMix64::new(mix64(mix64(self.0 ^ mix64(name)) ^ number))
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A uniform draw from `[min, max]`.
pub fn between(rng: &mut SplitMix64, min: u64, max: u64) -> u64 {
    assert!(min <= max, "an empty range");
    min + rng.below((max - min).saturating_add(1))
}

/// A uniform draw from `[min, max]`, to the nanosecond.
pub fn duration_between(rng: &mut SplitMix64, min: Duration, max: Duration) -> Duration {
    let nanos = |d: Duration| (Monotonic::default() + d).0;
    Duration::from_nanos(between(rng, nanos(min), nanos(max)))
}

/// A draw below `bound` as an index.
pub fn index_below(rng: &mut SplitMix64, bound: usize) -> usize {
    let bound = u64::try_from(bound).expect("a length fits 64 bits");
    usize::try_from(rng.below(bound)).expect("a draw below a usize fits one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_part_number_and_seed() {
        let first = |seed, part, number| Seed(seed).stream(part, number).next_u64();
        assert_eq!(first(1, "disk", 0), first(1, "disk", 0));
        assert_ne!(first(1, "disk", 0), first(1, "disk", 1));
        assert_ne!(first(1, "disk", 0), first(1, "clock", 0));
        assert_ne!(first(1, "disk", 0), first(2, "disk", 0));
    }

    #[test]
    fn draws_stay_in_range() {
        let mut rng = Seed(3).stream("test", 0);
        for _ in 0..1000 {
            assert!((5..=7).contains(&between(&mut rng, 5, 7)));
            assert!(index_below(&mut rng, 3) < 3);
        }
        let second = Duration::from_secs(1);
        assert_eq!(duration_between(&mut rng, second, second), second);
    }
}
