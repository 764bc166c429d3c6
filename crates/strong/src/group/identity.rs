//! Identities of voters: a node, and the birth of its store.

use base::Rng;
use ring::NodeId;

/// Bits of a birth; the node has the others.
const BIRTH_BITS: u32 = 48;

/// A random number that a store draws when it begins to exist; never zero.
///
/// A store that may have lost a promise draws a new one. To all groups it is another voter from then on, which
/// no configuration names, so it neither votes nor acknowledges in the old one's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Birth(u64);

impl Birth {
    /// A birth of that number, if it is one: above zero, below 2^48.
    pub fn of(number: u64) -> Option<Birth> {
        (number > 0 && number >> BIRTH_BITS == 0).then_some(Birth(number))
    }

    /// Draws a birth.
    pub fn draw(rng: &mut dyn Rng) -> Birth {
        Birth(1 + rng.below((1 << BIRTH_BITS) - 1))
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
        match stored.filter(|_| is_same && is_complete) {
            Some(birth) => birth,
            None => registered.filter(|_| base::planted!(LostDiskVotes)).unwrap_or_else(|| Birth::draw(rng)),
        }
    }

    /// Its number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A voter of groups: the store of a node, from one birth to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VoterId {
    /// Its node.
    pub node: NodeId,
    /// The birth of its store.
    pub birth: Birth,
}

impl VoterId {
    /// As one number: the node in the upper 16 bits, the birth in the lower 48. Never zero.
    pub fn number(self) -> u64 {
        u64::from(self.node.0) << BIRTH_BITS | self.birth.0
    }

    /// The voter of a number, if it is one.
    pub fn of_number(number: u64) -> Option<VoterId> {
        let node = u16::try_from(number >> BIRTH_BITS).expect("16 bits are left");
        let birth = Birth::of(number & ((1 << BIRTH_BITS) - 1))?;
        Some(VoterId { node: NodeId(node), birth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::SplitMix64;

    #[test]
    fn a_voter_is_a_node_and_a_birth() {
        let voter = VoterId { node: NodeId(0x1234), birth: Birth::of(0x56).unwrap() };
        assert_eq!(voter.number(), 0x1234_0000_0000_0056);
        assert_eq!(VoterId::of_number(voter.number()), Some(voter));
        assert_eq!(VoterId::of_number(0x1234 << 48), None, "no birth is zero");
        assert_eq!(Birth::of(1 << 48), None);
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
