//! Quorum numbers as clients write them: plain integers, with the top of the range kept for words.

/// A quorum parameter (r, w, pr, pw, dw, rw, node_confirms), not yet resolved against an n_val.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quorum {
    /// What the bucket's properties say.
    #[default]
    Default,
    /// One reply.
    One,
    /// More than half of the replicas.
    Quorum,
    /// Every replica.
    All,
    /// This many replies.
    Exactly(u32),
}

const ONE: u32 = 0xFFFF_FFFE;
const QUORUM: u32 = 0xFFFF_FFFD;
const ALL: u32 = 0xFFFF_FFFC;
const DEFAULT: u32 = 0xFFFF_FFFB;

impl Quorum {
    /// Reads a number off the wire.
    pub fn from_wire(number: u32) -> Quorum {
        match number {
            ONE => Quorum::One,
            QUORUM => Quorum::Quorum,
            ALL => Quorum::All,
            DEFAULT => Quorum::Default,
            n => Quorum::Exactly(n),
        }
    }

    /// Reads an optional field: one that is absent asks for the default.
    pub fn from_field(field: Option<u32>) -> Quorum {
        field.map_or(Quorum::Default, Quorum::from_wire)
    }

    /// The number that stands for this quorum on the wire.
    pub fn to_wire(self) -> u32 {
        match self {
            Quorum::One => ONE,
            Quorum::Quorum => QUORUM,
            Quorum::All => ALL,
            Quorum::Default => DEFAULT,
            Quorum::Exactly(n) => n,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_round_trip() {
        for number in [0, 1, 3, 0xFFFF_FFFA, DEFAULT, ALL, QUORUM, ONE, u32::MAX] {
            assert_eq!(Quorum::from_wire(number).to_wire(), number);
        }
        assert_eq!(Quorum::from_wire(0xFFFF_FFFD), Quorum::Quorum);
        assert_eq!(Quorum::from_field(None), Quorum::Default);
        assert_eq!(Quorum::from_field(Some(2)), Quorum::Exactly(2));
    }
}
