//! A follower's part of a group: the leader to which its promise holds.
//!
//! The record is apart from the consensus library, which forgets its leader with each higher term and each reload. It
//! changes only when another leader is followed, or when this voter leads. It is lost only with the process, which then
//! waits for [`super::PROMISE`].

use std::time::Duration;

use base::Monotonic;

use super::{Process, Promises};

/// A vote or a candidacy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ballot {
    /// The question whether a vote would be given.
    Question,
    /// A vote for another one, or a candidacy of this voter.
    Vote,
    /// One that the leader has asked for. The leader gave its lease up before.
    Transfer,
}

/// The reason why a vote must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This process has started within the time of a promise, and may have made one before.
    Started {
        /// The time that is left.
        left: Duration,
    },
    /// The promise to a leader stands.
    Promised {
        /// The process of the leader.
        leader: Process,
        /// The leader's term.
        term: u64,
        /// The time that is left.
        left: Duration,
    },
}

/// The last leader followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Followed {
    leader: Process,
    term: u64,
    /// The leader has given up the lease of this term.
    is_released: bool,
}

/// The guard of a voter's votes in one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VoteGuard {
    followed: Option<Followed>,
}

impl VoteGuard {
    /// Notes that this voter has taken a message of a leader of its present term, or leads it.
    pub fn follow(&mut self, leader: Process, term: u64) {
        if self.followed.is_none_or(|it| it.term < term) {
            self.followed = Some(Followed { leader, term, is_released: false });
        }
    }

    /// Notes that a leader has given up its lease for the rest of a term. The promise between the processes stands.
    pub fn release(&mut self, leader: Process, term: u64) {
        if let Some(followed) = &mut self.followed
            && (followed.leader, followed.term) == (leader, term)
        {
            followed.is_released = true;
        }
    }

    /// The library has taken over a higher term without a leader. The promise to the last leader holds.
    pub fn on_higher_term(&mut self) {
        if base::planted!(FollowerForgotLeader) {
            self.followed = None;
        }
    }

    /// The process of the leader that is followed, and its term.
    pub fn followed(&self) -> Option<(Process, u64)> {
        self.followed.map(|followed| (followed.leader, followed.term))
    }

    /// The process that leads a term, if this voter follows it and it has not given up its lease.
    pub fn followed_in(&self, term: u64) -> Option<Process> {
        self.followed.filter(|it| it.term == term && !it.is_released).map(|it| it.leader)
    }

    /// Permits a ballot for a candidate, in the step that casts it. A vote closes the promise to the leader.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn permit(
        &self,
        ballot: Ballot,
        candidate: Process,
        promises: &mut Promises,
        now: Monotonic,
    ) -> Result<(), Refusal> {
        if ballot == Ballot::Transfer {
            return Ok(());
        }
        if let Some(left) = promises.is_new(now) {
            return Err(Refusal::Started { left });
        }
        let Some(Followed { leader, term, is_released }) = self.followed else { return Ok(()) };
        if is_released || leader == candidate {
            return Ok(());
        }
        let closed = match ballot {
            Ballot::Question => promises.left(leader, now).map_or(Ok(()), Err),
            _ => promises.close(leader, now),
        };
        closed.map_err(|left| Refusal::Promised { leader, term, left })
    }
}
