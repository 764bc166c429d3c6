//! The state of a group as its store keeps it: `docs/formats/strong.md`.
//!
//! Invariant: no input makes [`GroupState::read`] panic.

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_varint};

use super::configuration::Configuration;
use super::entry::number;
use super::identity::VoterId;

/// The version of the encoding that is written, and the only one read.
pub const STATE_VERSION: u8 = 1;

/// The part of a group's state that is written before entries of its term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardState {
    /// The present term.
    pub term: u64,
    /// The candidate that got the vote of this term.
    pub vote: Option<VoterId>,
    /// The highest index through which an entry that was here reaps tombstones, applied or not; zero for none.
    pub reaped: u64,
}

/// The state of a group in a store. The engine has the rest: [`Progress`], and the entries that are not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupState {
    /// Number of the founding: a state of another founding is refused.
    pub founding: u64,
    /// Grows with each recovery by an operator; part of the versions of objects.
    pub epoch: u16,
    /// Term, vote and reaping.
    pub hard: HardState,
    /// The leader that was known.
    pub leader: Option<VoterId>,
    /// Voters and learners.
    pub configuration: Configuration,
    /// This store was removed from the group; the state stays so that it does not vote twice in a term.
    pub is_removed: bool,
}

/// The progress of a group as the engine keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Index and term of the last entry that the tables have.
    pub applied: (u64, u64),
    /// An index up to which entries are committed; later ones may be.
    pub commit: u64,
}

impl Progress {
    /// The progress of a new group. Its log begins behind (1, 1), which all founders agree on.
    pub const FOUNDED: Progress = Progress { applied: (1, 1), commit: 1 };
}

impl GroupState {
    /// The state of a new group.
    pub fn found(founding: u64, configuration: Configuration) -> GroupState {
        let hard = HardState { term: 1, vote: None, reaped: 0 };
        GroupState { founding, epoch: 0, hard, leader: None, configuration, is_removed: false }
    }

    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(STATE_VERSION);
        out.put_u64_le(self.founding);
        out.put_u16_le(self.epoch);
        put_varint(&mut out, self.hard.term);
        for voter in [self.hard.vote, self.leader] {
            out.put_u64_le(voter.map_or(0, VoterId::number));
        }
        put_varint(&mut out, self.hard.reaped);
        self.configuration.put(&mut out);
        out.put_u8(self.is_removed.into());
        out.freeze()
    }

    /// The epoch of the state in bytes, which are read no further; none of another version.
    pub fn epoch_of(bytes: &[u8]) -> Option<u16> {
        let (&version, rest) = bytes.split_first()?;
        let (_, rest) = rest.split_first_chunk::<{ size_of::<u64>() }>()?;
        let (&epoch, _) = rest.split_first_chunk()?;
        (version == STATE_VERSION).then(|| u16::from_le_bytes(epoch))
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
        let (founding, epoch) = (fields.u64()?, fields.u16()?);
        let term = number(fields)?;
        let (vote, leader) = (voter(fields)?, voter(fields)?);
        let reaped = number(fields)?;
        let configuration = Configuration::read(fields)?;
        let is_removed = match fields.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed("a flag is neither 0 nor 1")),
        };
        fields.end()?;

        if term == 0 {
            return Err(Malformed("a state of no term"));
        }
        let hard = HardState { term, vote, reaped };
        Ok(GroupState { founding, epoch, hard, leader, configuration, is_removed })
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
            epoch: 2,
            hard: HardState { term: 300, vote: Some(first), reaped: 12 },
            leader: Some(second),
            configuration: Configuration::of_voters(voters()),
            is_removed: true,
        }
    }

    #[test]
    fn golden_bytes() {
        let expected: [&[u8]; 11] = [
            b"\x01\x0D\xF0\0\0\0\0\0\0",
            b"\x02\0",
            b"\xAC\x02",
            b"\x07\0\0\0\0\0\x01\0",
            b"\x08\0\0\0\0\0\x02\0",
            b"\x0C",
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
            assert_eq!(GroupState::epoch_of(&bytes), Some(state.epoch));
            assert_eq!(GroupState::read(bytes), Ok(state));
        }
        assert_eq!(GroupState::epoch_of(&[STATE_VERSION; 10]), None, "it is cut off");
        assert_eq!(GroupState::epoch_of(&[STATE_VERSION + 1; 20]), None, "of another version");
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = |change: fn(&mut GroupState)| {
            let mut state = state();
            change(&mut state);
            GroupState::read(state.encode()).unwrap_err().0
        };
        assert_eq!(refused(|it| it.hard.term = 0), "a state of no term");
        assert_eq!(refused(|it| it.hard.reaped = 1 << 48), "a term or an index is out of range");
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
