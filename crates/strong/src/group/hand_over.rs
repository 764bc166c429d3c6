//! Hand-overs of the leadership: a leader asks a voter with all entries to stand for election at once.
//!
//! 1. The leader's store lacks keys (`lacking.rs`), or its process stops ([`super::Input::Leave`]): able voters are
//!    asked in turn until one leads. The caller prefers another voter ([`super::Input::HandOver`]): that one is asked
//!    once, if it is able.
//! 2. Before the question leaves, the lease is given up for the rest of the term (`leasing.rs`).
//! 3. The voter's requests for votes are marked, and pass promises.
//!
//! A leader that leaves takes no requests for [`LEAVE_PAUSE`], so that a voter can have all entries. They wait at the
//! caller. So does one that has asked a preferred voter, for [`PREFERENCE_PAUSE`]: a write that it proposed meanwhile
//! would let the election of that voter fail. A voter that leaves does not stand for election. So a leader that slept,
//! and that is loaded while its process stops, resigns at once: its followers elect another one.
//!
//! Invariant: a question that is lost costs a lease, and nothing else. The leader goes on to lead.

use std::time::Duration;

use base::Monotonic;
use raft::StateRole;

use super::Group;
use super::identity::VoterId;
use super::message::Message;
use super::timers::ELECTION_RETRY;

/// Interval of a leader's questions to lead in its place: an election is long over.
pub const HAND_OVER_RETRY: Duration = Duration::from_secs(1);

/// Time for which a leader that leaves takes no requests: two questions to lead.
pub const LEAVE_PAUSE: Duration = Duration::from_secs(2);

/// Time for which a leader takes no requests after a preferred voter was asked to lead. A candidacy that has not won by
/// then would begin anew.
pub const PREFERENCE_PAUSE: Duration = ELECTION_RETRY;

/// The departure of a voter whose process stops, or that a preferred one replaces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Departure {
    /// The end of the pause in which a leader takes no requests.
    pauses_until: Option<Monotonic>,
    /// The pause lasts.
    is_paused: bool,
    /// The end of the pause after a preferred voter was asked to lead.
    prefers_until: Option<Monotonic>,
}

impl Group {
    /// Notes that the process stops.
    pub(super) fn on_leave(&mut self, now: Monotonic) {
        let pause = if base::planted!(TransferNeverAborted) { LEAVE_PAUSE * 1_000 } else { LEAVE_PAUSE };
        self.departure.pauses_until.get_or_insert(now + pause);
        self.give_up_lease();
        if self.has_slept_as_leader() {
            let term = self.term();
            for voter in self.others().collect::<Vec<_>>() {
                self.send(voter, Message::Resigned { term });
            }
        }
    }

    /// Whether others follow this voter in the present term, which it does not lead any more: it was unloaded.
    fn has_slept_as_leader(&self) -> bool {
        !self.leads() && self.followed_process().is_some_and(|process| self.is_here(process))
    }

    /// Whether the process stops.
    pub fn is_leaving(&self) -> bool {
        self.departure.pauses_until.is_some()
    }

    /// Whether this voter leads, and waits for another one to lead in its place.
    pub(super) fn is_pausing(&self) -> bool {
        (self.departure.is_paused || self.departure.prefers_until.is_some()) && self.leads()
    }

    /// Whether this voter leads a group that another one can lead.
    pub fn has_to_hand_over(&self) -> bool {
        self.leads() && self.others().any(|voter| self.reaches(voter) && !self.is_forgetful(voter))
    }

    /// When the next voter is asked to lead in place of this one, or the pause ends.
    pub(super) fn next_hand_over(&self) -> Option<Monotonic> {
        let asks = self.asked_to_lead.map(|(_, next)| next);
        let resumes = self.departure.pauses_until.filter(|_| self.departure.is_paused);
        let prefers = self.departure.prefers_until;
        asks.into_iter().chain(resumes).chain(prefers).min().filter(|_| self.leads())
    }

    /// Asks a voter to lead in place of this one, if its store lacks keys or its process stops. Several are asked in
    /// turn.
    pub(super) fn hand_over(&mut self, now: Monotonic) {
        let leads = self.leads();
        self.departure.prefers_until.take_if(|until| *until <= now || !leads);
        let ends = self.departure.pauses_until;
        self.departure.is_paused = ends.is_some_and(|ends| now < ends) && self.has_to_hand_over();
        if !self.leads() || !self.lacks_keys() && !self.is_leaving() {
            self.asked_to_lead = None;
            return;
        }
        if self.asked_to_lead.is_some_and(|(_, next)| now < next) {
            return;
        }
        let able: Vec<VoterId> = self.others().filter(|voter| self.can_take_over(*voter)).collect();
        let next = able.iter().find(|voter| self.asked_to_lead.is_some_and(|(before, _)| **voter > before));
        let next = next.or(able.first()).copied();
        self.asked_to_lead = next.map(|voter| (voter, now + HAND_OVER_RETRY));
        if let Some(voter) = next {
            self.ask_to_lead(voter);
        }
    }

    /// Asks the voter that the caller prefers to lead, if this one leads and that one is able.
    pub(super) fn prefer(&mut self, voter: VoterId, now: Monotonic) {
        if self.settles() && self.members().has_voter(voter) && self.can_take_over(voter) {
            self.ask_to_lead(voter);
            self.departure.prefers_until = Some(now + PREFERENCE_PAUSE);
        }
    }

    /// Notes that a leader's question to lead has come, which the library has seen: it stands for election by now, or
    /// refused to.
    pub(super) fn note_asked_to_lead(&mut self) {
        if self.raw.raft.state != StateRole::Follower {
            self.handed_over_term = self.term();
        }
    }

    /// Whether this voter leads because the leader before asked it to. Otherwise its election had another cause.
    pub fn is_handed_over(&self) -> bool {
        self.leads() && self.handed_over_term == self.term()
    }

    fn ask_to_lead(&mut self, voter: VoterId) {
        let term = self.term();
        self.send(voter, Message::TimeoutNow { term });
    }

    /// Whether another voter has all that this leader has, and can be reached.
    fn can_take_over(&self, voter: VoterId) -> bool {
        voter != self.identity.voter
            && self.reaches(voter)
            && !self.is_forgetful(voter)
            && self.matched(voter) == self.last().0
            && !self.catch_ups.receivers().any(|receiver| receiver == voter)
    }

    /// The other voters.
    fn others(&self) -> impl Iterator<Item = VoterId> {
        self.members().voters.iter().copied().filter(|voter| *voter != self.identity.voter)
    }
}
