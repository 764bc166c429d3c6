//! Identities of voters: a node, and the birth of its store.

use ring::NodeId;

pub use ring::Birth;

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
        u64::from(self.node.0) << Birth::BITS | self.birth.number()
    }

    /// The voter of a number, if it is one.
    pub fn of_number(number: u64) -> Option<VoterId> {
        let node = u16::try_from(number >> Birth::BITS).expect("16 bits are left");
        let birth = Birth::of(number & ((1 << Birth::BITS) - 1))?;
        Some(VoterId { node: NodeId(node), birth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voter_is_a_node_and_a_birth() {
        let voter = VoterId { node: NodeId(0x1234), birth: Birth::of(0x56).unwrap() };
        assert_eq!(voter.number(), 0x1234_0000_0000_0056);
        assert_eq!(VoterId::of_number(voter.number()), Some(voter));
        assert_eq!(VoterId::of_number(0x1234 << 48), None, "no birth is zero");
        assert_eq!(Birth::of(1 << 48), None);
    }
}
