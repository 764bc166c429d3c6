//! The voters and learners of a group.

use std::collections::BTreeSet;

use bytes::{BufMut, BytesMut};
use protocol::peer::{Malformed, Reader, put_varint};
use raft::eraftpb::ConfState;

use super::identity::VoterId;

/// Voters of one half of a configuration, at most; n_val is at most 7 for consistent types.
pub const VOTERS_MAX: usize = 7;

/// Voters and learners of a group.
///
/// While voters change, both halves of a joint configuration decide: `voters` and `outgoing`. `members.rs` has the
/// changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The voters.
    pub voters: BTreeSet<VoterId>,
    /// The voters before the change that is under way; empty without a change.
    pub outgoing: BTreeSet<VoterId>,
    /// Receivers of entries without a vote.
    pub learners: BTreeSet<VoterId>,
}

impl Configuration {
    /// A configuration of voters alone.
    pub fn of_voters(voters: impl IntoIterator<Item = VoterId>) -> Configuration {
        Configuration { voters: voters.into_iter().collect(), ..Configuration::default() }
    }

    /// Whether a member votes in one half.
    pub fn has_voter(&self, voter: VoterId) -> bool {
        self.voters.contains(&voter) || self.outgoing.contains(&voter)
    }

    /// Whether a voter is a member.
    pub fn has(&self, voter: VoterId) -> bool {
        self.has_voter(voter) || self.learners.contains(&voter)
    }

    /// Whether the voters that count are a majority of each half.
    pub fn is_majority(&self, counts: impl Fn(VoterId) -> bool) -> bool {
        let is_majority = |voters: &BTreeSet<VoterId>| {
            voters.is_empty() || voters.iter().filter(|voter| counts(**voter)).count() > voters.len() / 2
        };
        is_majority(&self.voters) && is_majority(&self.outgoing)
    }

    /// Adds a store without a vote, unless it is a member.
    #[must_use]
    pub fn with_learner(mut self, learner: VoterId) -> Configuration {
        if !self.has(learner) {
            self.learners.insert(learner);
        }
        self
    }

    /// Bytes of its encoding. Each number of voters takes one.
    pub(super) fn len(&self) -> usize {
        3 + 8 * (self.voters.len() + self.outgoing.len() + self.learners.len())
    }

    /// All members but one. While members change, a voter may come twice.
    pub fn others(&self, here: VoterId) -> impl Iterator<Item = VoterId> {
        let all = [&self.voters, &self.outgoing, &self.learners];
        all.into_iter().flatten().copied().filter(move |voter| *voter != here)
    }

    /// As the library has it.
    pub(super) fn conf_state(&self) -> ConfState {
        let numbers =
            |voters: &BTreeSet<VoterId>| -> Vec<u64> { voters.iter().map(|voter| voter.number()).collect() };
        let mut state: ConfState = (numbers(&self.voters), numbers(&self.learners)).into();
        state.voters_outgoing = numbers(&self.outgoing);
        state
    }

    /// Of the library's form; none if it has a number of no voter.
    pub(super) fn of_conf_state(state: &ConfState) -> Option<Configuration> {
        let voters = |numbers: &[u64]| -> Option<BTreeSet<VoterId>> {
            numbers.iter().map(|number| VoterId::of_number(*number)).collect()
        };
        let (incoming, outgoing) = (voters(&state.voters)?, voters(&state.voters_outgoing)?);
        Some(Configuration { voters: incoming, outgoing, learners: voters(&state.learners)? })
    }

    pub(super) fn put(&self, out: &mut BytesMut) {
        for voters in [&self.voters, &self.outgoing, &self.learners] {
            put_varint(out, voters.len() as u64);
            voters.iter().for_each(|voter| out.put_u64_le(voter.number()));
        }
    }

    pub(super) fn read(fields: &mut Reader) -> Result<Configuration, Malformed> {
        let (voters, outgoing, learners) = (voters(fields)?, voters(fields)?, voters(fields)?);
        if voters.is_empty() {
            return Err(Malformed("a configuration without voters"));
        }
        if !learners.is_disjoint(&voters) || !learners.is_disjoint(&outgoing) {
            return Err(Malformed("a learner votes"));
        }
        Ok(Configuration { voters, outgoing, learners })
    }
}

fn voters(fields: &mut Reader) -> Result<BTreeSet<VoterId>, Malformed> {
    let count = fields.count()?;
    if count > VOTERS_MAX {
        return Err(Malformed("too many voters"));
    }
    let voters: BTreeSet<VoterId> = (0..count)
        .map(|_| VoterId::of_number(fields.u64()?).ok_or(Malformed("a voter without a birth")))
        .collect::<Result<_, Malformed>>()?;
    if voters.len() < count { Err(Malformed("a voter stands twice")) } else { Ok(voters) }
}
