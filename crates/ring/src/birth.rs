//! Births: random numbers that tell a store from earlier stores in its place.

use base::Rng;

/// A random number that a store draws when it begins to exist; never zero.
///
/// A store that may have lost a promise draws a new one. To all groups it is another voter from then on, which
/// no configuration names, so it neither votes nor acknowledges in the old one's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Birth(u64);

impl Birth {
    /// Bits of a birth; beside it a word has room for a node.
    pub const BITS: u32 = 48;

    /// A birth of that number, if it is one: above zero, below 2^48.
    pub fn of(number: u64) -> Option<Birth> {
        (number > 0 && number >> Birth::BITS == 0).then_some(Birth(number))
    }

    /// Draws a birth.
    pub fn draw(rng: &mut dyn Rng) -> Birth {
        Birth(1 + rng.below((1 << Birth::BITS) - 1))
    }

    /// The birth of a store at a start of its process.
    ///
    /// `stored` is the birth found in the store, `registered` that of the cluster's record of it. A store keeps its
    /// birth only if the two agree and nothing is missing that the store may have promised.
    pub fn at_start(
        stored: Option<Birth>,
        registered: Option<Birth>,
        is_complete: bool,
        rng: &mut dyn Rng,
    ) -> Birth {
        let is_same = registered.is_none() || stored == registered;
        let is_complete = is_complete || base::planted!(DamagedStateVotes);
        match stored.filter(|_| is_same && is_complete) {
            Some(birth) => birth,
            None => {
                let keeps = [base::planted!(LostDiskVotes), base::planted!(HoldIgnored)].contains(&true);
                registered.filter(|_| keeps).unwrap_or_else(|| Birth::draw(rng))
            }
        }
    }

    /// Its number.
    pub fn number(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::SplitMix64;

    #[test]
    fn a_birth_has_48_bits_and_is_not_zero() {
        let numbers = [0, 1, (1 << 48) - 1, 1 << 48].map(|number| Birth::of(number).map(Birth::number));
        assert_eq!(numbers, [None, Some(1), Some((1 << 48) - 1), None]);
    }

    #[test]
    fn a_store_that_may_have_forgotten_draws_a_new_birth() {
        let mut rng = SplitMix64::new(1);
        let [old, other] = [5, 6].map(Birth::of);
        let mut birth = |stored, registered, is_complete| {
            Some(Birth::at_start(stored, registered, is_complete, &mut rng))
        };
        assert_eq!(birth(old, old, true), old);
        assert_eq!(birth(old, None, true), old, "it is not registered yet");
        assert_ne!(birth(None, old, true), old, "a lost store");
        assert_ne!(birth(other, old, true), other, "another store than the cluster knows");
        assert_ne!(birth(old, old, false), old, "a store that lost a range");
    }
}
