//! The state of a group as its store keeps it: `docs/formats/strong.md`.
//!
//! Invariants: no input makes [`GroupState::read`] panic; a state that was read is consistent with itself.

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_varint};

use super::configuration::Configuration;
use super::entry::number;
use super::identity::VoterId;

/// The version of the encoding that is written, and the only one read.
pub const STATE_VERSION: u8 = 1;

/// Term and vote: written before entries of the term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardState {
    /// The present term.
    pub term: u64,
    /// The candidate that got the vote of this term.
    pub vote: Option<VoterId>,
}

/// The state of a group in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupState {
    /// Number of the founding: a state of another founding is refused.
    pub founding: u64,
    /// Term and vote.
    pub hard: HardState,
    /// The leader that was known.
    pub leader: Option<VoterId>,
    /// An index up to which entries are committed; later ones may be.
    pub commit: u64,
    /// The last entry that the tables have.
    pub applied: u64,
    /// Index and term of the entry before the first one kept.
    pub base: (u64, u64),
    /// Voters and learners.
    pub configuration: Configuration,
    /// This store was removed from the group; the state stays so that it does not vote twice in a term.
    pub is_removed: bool,
}

impl GroupState {
    /// The state of a new group. Its log begins behind (1, 1), which all founders agree on.
    pub fn found(founding: u64, configuration: Configuration) -> GroupState {
        GroupState {
            founding,
            hard: HardState { term: 1, vote: None },
            leader: None,
            commit: 1,
            applied: 1,
            base: (1, 1),
            configuration,
            is_removed: false,
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(STATE_VERSION);
        out.put_u64_le(self.founding);
        put_varint(&mut out, self.hard.term);
        for voter in [self.hard.vote, self.leader] {
            out.put_u64_le(voter.map_or(0, VoterId::number));
        }
        for number in [self.commit, self.applied, self.base.0, self.base.1] {
            put_varint(&mut out, number);
        }
        self.configuration.put(&mut out);
        out.put_u8(self.is_removed.into());
        out.freeze()
    }

    /// The state in bytes.
    ///
    /// # Errors
    /// [`Malformed`], also for a state that contradicts itself.
    pub fn read(bytes: Bytes) -> Result<GroupState, Malformed> {
        let mut fields = Reader::new(bytes);
        let fields = &mut fields;
        if fields.u8()? != STATE_VERSION {
            return Err(Malformed("an unknown version of a group state"));
        }
        let founding = fields.u64()?;
        let term = number(fields)?;
        let (vote, leader) = (voter(fields)?, voter(fields)?);
        let (commit, applied) = (number(fields)?, number(fields)?);
        let base = (number(fields)?, number(fields)?);
        let configuration = Configuration::read(fields)?;
        let is_removed = match fields.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed("a flag is neither 0 nor 1")),
        };
        fields.end()?;

        if base.0 == 0 || base.1 == 0 || base.1 > term {
            return Err(Malformed("a base of no log, or of a later term"));
        }
        if !(base.0 <= applied && applied <= commit) {
            return Err(Malformed("base, applied and commit are out of order"));
        }
        let hard = HardState { term, vote };
        Ok(GroupState { founding, hard, leader, commit, applied, base, configuration, is_removed })
    }
}

/// A voter, or none for zero.
fn voter(fields: &mut Reader) -> Result<Option<VoterId>, Malformed> {
    match fields.u64()? {
        0 => Ok(None),
        number => VoterId::of_number(number).map(Some).ok_or(Malformed("a voter without a birth")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    fn voters() -> [VoterId; 3] {
        [0x1_0000_0000_0007, 0x2_0000_0000_0008, 0x3_0000_0000_0009].map(|it| VoterId::of_number(it).unwrap())
    }

    fn state() -> GroupState {
        let [first, second, _] = voters();
        GroupState {
            founding: 0xF00D,
            hard: HardState { term: 300, vote: Some(first) },
            leader: Some(second),
            commit: 12,
            applied: 11,
            base: (10, 299),
            configuration: Configuration::of_voters(voters()),
            is_removed: true,
        }
    }

    #[test]
    fn golden_bytes() {
        let expected: [&[u8]; 10] = [
            b"\x01\x0D\xF0\0\0\0\0\0\0",
            b"\xAC\x02",
            b"\x07\0\0\0\0\0\x01\0",
            b"\x08\0\0\0\0\0\x02\0",
            b"\x0C\x0B\x0A\xAB\x02",
            b"\x03\x07\0\0\0\0\0\x01\0",
            b"\x08\0\0\0\0\0\x02\0",
            b"\x09\0\0\0\0\0\x03\0",
            b"\0\0",
            b"\x01",
        ];
        assert_eq!(state().encode(), expected.concat());
    }

    #[test]
    fn encoded_states_are_read() {
        let [first, second, third] = voters();
        let joint = Configuration {
            voters: [first, second].into(),
            outgoing: [second].into(),
            learners: [third].into(),
        };
        let joint = GroupState { configuration: joint, is_removed: false, ..state() };
        for state in [state(), joint, GroupState::found(7, Configuration::of_voters(voters()))] {
            let bytes = state.encode();
            for length in 0..bytes.len() {
                assert!(GroupState::read(bytes.slice(..length)).is_err(), "{length} bytes");
            }
            assert_eq!(GroupState::read(bytes), Ok(state));
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = |change: fn(&mut GroupState)| {
            let mut state = state();
            change(&mut state);
            GroupState::read(state.encode()).unwrap_err().0
        };
        assert_eq!(refused(|it| it.base = (10, 301)), "a base of no log, or of a later term");
        assert_eq!(refused(|it| it.base = (0, 1)), "a base of no log, or of a later term");
        assert_eq!(refused(|it| it.applied = 9), "base, applied and commit are out of order");
        assert_eq!(refused(|it| it.commit = 10), "base, applied and commit are out of order");
        assert_eq!(refused(|it| it.commit = 1 << 48), "a term or an index is out of range");
        assert_eq!(refused(|it| it.configuration.voters.clear()), "a configuration without voters");
        assert_eq!(
            refused(|it| it.configuration.learners = it.configuration.voters.clone()),
            "a learner votes"
        );
    }

    #[test]
    fn random_bytes_make_no_panic() {
        let mut rng = SplitMix64::new(3);
        let good = state().encode();
        for _ in 0..50_000 {
            let mut bad = good.to_vec();
            for _ in 0..=rng.below(4) {
                let at = usize::try_from(rng.below(bad.len() as u64)).unwrap();
                bad[at] = u8::try_from(rng.below(256)).unwrap();
            }
            if let Ok(state) = GroupState::read(bad.into()) {
                assert_eq!(GroupState::read(state.encode()), Ok(state));
            }
        }
    }
}
