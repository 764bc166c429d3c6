//! Leases of a group: the guard of its votes, the answers that make a lease, and the reads that rest on it.
//!
//! The rules are those of [`crate::promise`]; here they meet the messages of the group:
//!
//! 1. A vote request is refused before the library sees it, which would take its term over. A leader refuses while it
//!    has a lease or heard a majority within [`PROMISE`], unless it has given its lease up; a follower while its
//!    promise stands.
//! 2. A candidacy passes the same guard twice: when it begins, and in the step of an answer that may make this voter a
//!    candidate.
//! 3. An answer to a leader carries the number of this process's open promise to it, read when the answer is handed
//!    out. It is that of an answer made then: this voter is in the leader's term, and follows it.
//! 4. A leader notes the answers of its term. [`Group::serves_read`] compares the clock with the end that they make.
//!    The tables must have all that is committed: followers serve reads, too.
//! 5. Before a question to lead and before a resignation leave, the lease is given up for the rest of the term.
//!
//! A group without tables ([`Group::use_leases`]) has none of this, and confirms each read.

use std::collections::BTreeSet;
use std::time::Duration;

use base::Monotonic;
use raft::StateRole;

use super::configuration::Configuration;
use super::identity::VoterId;
use super::message::Message;
use super::{Group, RANK_DELAY};
use crate::promise::{
    Ballot, Grants, Lease, PROMISE, Process, Refusal, SharedTables, VoteGuard, reading_of_read,
};

/// The way in which a leader confirms reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StrongReads {
    /// It asks a majority. No answer rests on a clock.
    #[default]
    Ask,
    /// It has a lease, or asks a majority.
    Lease,
}

/// The leases of one group at one voter.
pub(super) struct Leasing {
    tables: SharedTables,
    reads: StrongReads,
    guard: VoteGuard,
    lease: Lease<VoterId>,
    /// The voters of which `halves` are.
    configuration: Configuration,
    /// The other voters of each half of the configuration, and whether it has this one; the second half may be empty.
    halves: Halves,
}

impl Leasing {
    /// Whether this leader has a lease at a reading of the clock.
    fn holds(&mut self, here: VoterId, configuration: &Configuration, now: Monotonic) -> bool {
        if self.configuration != *configuration {
            self.halves = halves_of(here, configuration);
            self.configuration = configuration.clone();
            self.lease.on_configuration();
        }
        if self.lease.is_known(now) {
            return true;
        }
        let (lease, halves) = (&mut self.lease, &self.halves);
        self.tables.with(|tables| holds(lease, halves, now, &tables.grants))
    }
}

/// The other voters of each half of a configuration, and whether it has this one.
type Halves = [(Vec<VoterId>, bool); 2];

fn halves_of(here: VoterId, configuration: &Configuration) -> Halves {
    let half = |voters: &BTreeSet<VoterId>| {
        (voters.iter().copied().filter(|it| *it != here).collect(), voters.contains(&here))
    };
    [half(&configuration.voters), half(&configuration.outgoing)]
}

fn holds(lease: &mut Lease<VoterId>, halves: &Halves, now: Monotonic, grants: &Grants) -> bool {
    let [(voters, votes), (outgoing, votes_outgoing)] = halves;
    let both = [(&voters[..], *votes), (&outgoing[..], *votes_outgoing)];
    let is_joint = !outgoing.is_empty() || *votes_outgoing;
    lease.holds(now, grants, if is_joint { &both[..] } else { &both[..1] })
}

impl Group {
    /// Takes part in promises from now on, before the first input; reads as `reads` says.
    ///
    /// Messages have to come as [`super::Input::MessageOf`].
    pub fn use_leases(&mut self, tables: SharedTables, reads: StrongReads) {
        self.leasing = Some(Leasing {
            tables,
            reads,
            guard: VoteGuard::default(),
            lease: Lease::new(),
            configuration: Configuration::default(),
            halves: Default::default(),
        });
    }

    /// Whether a read that has come may be answered from the tables as they are now. If not, it goes the way of
    /// [`super::Input::Read`].
    ///
    /// `turn` is a reading of the clock that may be older than the read; `clock` takes one now.
    pub fn serves_read(&mut self, turn: Monotonic, clock: impl FnOnce() -> Monotonic) -> bool {
        let is_wanted = self.leasing.as_ref().is_some_and(|leasing| leasing.reads == StrongReads::Lease);
        // A majority commits entries that are not synced here yet. A follower may have shown them to a reader.
        let has_committed = self.applied >= self.commit() || base::planted!(LeaseBehindCommit);
        let may_serve = is_wanted && self.is_ready() && has_committed && !self.has_forgotten;
        may_serve && self.has_lease(reading_of_read(turn, clock))
    }

    /// Whether this voter leads and has a lease, by the newest reading that its process brought: for operators.
    pub fn is_leased(&self) -> bool {
        let Some(leasing) = self.leasing.as_ref().filter(|_| self.leads()) else { return false };
        let halves = halves_of(self.identity.voter, &self.raw.store().in_force);
        let mut lease = leasing.lease.clone();
        lease.on_configuration();
        leasing.tables.with(|tables| holds(&mut lease, &halves, tables.now, &tables.grants))
    }

    /// Whether this voter leads and has a lease at a reading of the clock.
    pub(super) fn has_lease(&mut self, now: Monotonic) -> bool {
        let (here, leads) = (self.identity.voter, self.leads());
        let configuration = &self.raw.store().in_force;
        self.leasing.as_mut().is_some_and(|leasing| leads && leasing.holds(here, configuration, now))
    }

    /// The guard before the library: whether a message passes. One that does not is answered.
    pub(super) fn passes_guard(
        &mut self,
        from: VoterId,
        process: Process,
        message: &Message,
        now: Monotonic,
    ) -> bool {
        let Some(leasing) = &self.leasing else { return true };
        let here = leasing.tables.here();
        match *message {
            Message::VoteRequest { term, .. } if term < self.term() => true,
            Message::VoteRequest { is_pre: false, is_transfer: true, .. } => true,
            Message::VoteRequest { .. } if self.leads() => {
                // Of the lease clock, which is not that of the timers.
                let reading = leasing.tables.now();
                // One that has given its lease up said that it resigns: others are to lead.
                let is_given_up = leasing.lease.is_given_up();
                let refuses = !is_given_up && (self.has_lease(reading) || self.hears_majority(now));
                if refuses {
                    self.refuse(from, here, self.term(), PROMISE);
                    // A settled leader sends none, and the other one does not know that it leads.
                    self.send_heartbeat(from, 0);
                }
                !refuses
            }
            Message::VoteRequest { is_pre, .. } => {
                let ballot = if is_pre { Ballot::Question } else { Ballot::Vote };
                match self.permit(ballot, process) {
                    Ok(()) => true,
                    Err(refusal) => {
                        let (leader, term, left) = match refusal {
                            // It may follow a leader without a record of it.
                            Refusal::Started { left } => (here, self.term(), left),
                            Refusal::Promised { leader, term, left } => (leader, term, left),
                        };
                        self.refuse(from, leader, term, left);
                        if matches!(refusal, Refusal::Promised { .. }) {
                            self.ask_to_release(leader, term, left);
                        }
                        false
                    }
                }
            }
            // The answer may make this voter a candidate, which votes for itself.
            Message::VoteReply { is_pre: true, is_rejected: false, .. }
                if self.raw.raft.state == StateRole::PreCandidate =>
            {
                self.permit(Ballot::Vote, here).is_ok()
            }
            _ => true,
        }
    }

    /// Takes what a message that passed the guard says of leases; the library has seen it.
    pub(super) fn on_leases(
        &mut self,
        from: VoterId,
        process: Process,
        message: &Message,
        number: Option<u64>,
    ) {
        let (own_term, leader) = (self.term(), self.leader());
        let Some(leasing) = &mut self.leasing else { return };
        match *message {
            Message::Append { term, .. }
            | Message::Heartbeat { term, .. }
            | Message::Snapshot { term, .. }
                if term == own_term && leader == Some(from) =>
            {
                leasing.guard.follow(process, term);
            }
            Message::AppendReply { term, .. } | Message::HeartbeatReply { term, .. } => {
                if let Some(number) = number.filter(|_| term == own_term) {
                    leasing.lease.on_answer(from, process, number, term);
                }
            }
            Message::Resigned { term } => leasing.guard.release(process, term),
            _ => {}
        }
    }

    /// Whether the registered process of a leader has led this term: its start was before that, and is heard of late.
    /// The process renews the promise of this voter, which so would never stand for election.
    pub(super) fn follows_present_process(&self, leader: VoterId) -> bool {
        let followed = self.leasing.as_ref().and_then(|leasing| Some((leasing, leasing.guard.followed()?)));
        followed.is_some_and(|(leasing, (process, term))| {
            let is_of_term = process.node == leader.node && term == self.term();
            is_of_term && leasing.tables.with(|tables| tables.promises.is_registered(process))
        })
    }

    /// The process that leads the present term as far as the vote guard knows, unless it has given up its lease.
    pub(super) fn followed_process(&self) -> Option<Process> {
        self.leasing.as_ref()?.guard.followed_in(self.term())
    }

    /// Puts the leader of a dormant group's record into the vote guard.
    pub(super) fn follow_of_record(&mut self, leader: Process, term: u64) {
        if let Some(leasing) = &mut self.leasing {
            leasing.guard.follow(leader, term);
        }
    }

    /// Whether a process is this one.
    pub(super) fn is_here(&self, process: Process) -> bool {
        self.leasing.as_ref().is_some_and(|leasing| leasing.tables.here() == process)
    }

    /// Asks the leader to which a promise holds whether it leads that term yet. Traffic of other groups renews the
    /// promise to its process, so a voter that follows a leader of the past would never vote.
    fn ask_to_release(&mut self, leader: Process, term: u64, left: Duration) {
        // A store that was replaced while its process went on is another voter now.
        let of_node = || self.voters().find(|voter| voter.node == leader.node);
        let voter = self.listed.get(&leader.node).copied().or_else(of_node);
        if let Some(voter) =
            voter.filter(|it| *it != self.identity.voter && !base::planted!(PastLeaderFollowed))
        {
            self.refuse(voter, leader, term, left);
        }
    }

    /// Answers a voter whose promise is to this process as the leader of a term.
    ///
    /// One that has a later term never leads that one again. One that has not led it is of another birth than the voter
    /// that has: that one's groups were left before this one began, and a term has one leader.
    pub(super) fn on_asked_to_release(&mut self, from: VoterId, term: u64) {
        let has_led = self.leasing.as_ref().is_some_and(|leasing| leasing.lease.has_led(term));
        if self.leads() {
            // That one does not know that this voter leads.
            self.send_heartbeat(from, 0);
        } else if self.term() > term || !has_led {
            self.send(from, Message::Resigned { term });
        }
    }

    /// Waits as long as a voter refused to vote, and takes over the term of the leader that it named.
    pub(super) fn on_refused(&mut self, term: u64, left_ms: u64, now: Monotonic) {
        if !self.leads() {
            if term > self.term() {
                self.raw.raft.become_follower(term, 0);
            }
            let left = Duration::from_millis(left_ms).min(PROMISE);
            self.wait_for_promise(left, now);
        }
    }

    /// Whether a candidacy of this voter passes the guard; if not, it waits.
    pub(super) fn may_begin_candidacy(&mut self, now: Monotonic) -> bool {
        let Some(here) = self.leasing.as_ref().map(|leasing| leasing.tables.here()) else { return true };
        let permitted = self.permit(Ballot::Vote, here);
        match permitted {
            Ok(()) => {}
            Err(Refusal::Started { left }) => self.wait_for_promise(left, now),
            Err(Refusal::Promised { leader, term, left }) => {
                self.ask_to_release(leader, term, left);
                self.wait_for_promise(left, now);
            }
        }
        permitted.is_ok()
    }

    /// The time for which a promise keeps this voter from an election that it begins to wait for. The leader is asked
    /// to release it, since that may be one of the past.
    pub(super) fn wait_of_promise(&mut self) -> Duration {
        let Some(here) = self.leasing.as_ref().map(|leasing| leasing.tables.here()) else {
            return Duration::ZERO;
        };
        match self.permit(Ballot::Question, here) {
            Ok(()) => Duration::ZERO,
            Err(Refusal::Started { left }) => left,
            Err(Refusal::Promised { leader, term, left }) => {
                self.ask_to_release(leader, term, left);
                left
            }
        }
    }

    /// Lets the next candidacy wait for the end of a promise, and then for this voter's place on the list.
    fn wait_for_promise(&mut self, left: Duration, now: Monotonic) {
        let at = now + left + RANK_DELAY * self.place();
        // Votes of others may be on their way.
        let goes_on = self.raw.raft.state == StateRole::Candidate;
        self.timers.postpone_election_until(at, goes_on, &mut *self.rng);
    }

    /// Notes another term or role of the library.
    pub(super) fn follow_role_of_lease(&mut self, (term, role): (u64, StateRole), before: u64) {
        let is_leaving = self.is_leaving();
        let Some(leasing) = &mut self.leasing else { return };
        if role == StateRole::Leader {
            leasing.lease.lead(term);
            // No leader of an earlier term has a lease any more. So nothing rests on the record of one.
            leasing.guard.follow(leasing.tables.here(), term);
            if is_leaving {
                leasing.lease.give_up();
            }
        } else if term > before {
            leasing.guard.on_higher_term();
        }
    }

    /// Gives the lease up for the rest of the term.
    pub(super) fn give_up_lease(&mut self) {
        if let Some(leasing) = &mut self.leasing {
            leasing.lease.give_up();
        }
    }

    /// Prepares a message that leaves: the lease is given up before others may vote; the number that an answer carries.
    pub(super) fn lease_of_message(&mut self, to: VoterId, message: &Message) -> Option<u64> {
        let own_term = self.term();
        let leasing = self.leasing.as_mut()?;
        match *message {
            Message::TimeoutNow { .. } | Message::Resigned { .. } => {
                leasing.lease.give_up();
                None
            }
            Message::AppendReply { term, .. } | Message::HeartbeatReply { term, .. } => {
                // An answer of an earlier term may wait for its sync; it says nothing of this one.
                let (leader, followed) = leasing.guard.followed()?;
                let is_of_leader = leader.node == to.node && followed == own_term && term == own_term;
                is_of_leader.then(|| leasing.tables.with(|tables| tables.promises.number(leader))).flatten()
            }
            _ => None,
        }
    }

    fn permit(&mut self, ballot: Ballot, candidate: Process) -> Result<(), Refusal> {
        let Some(leasing) = &self.leasing else { return Ok(()) };
        let guard = &leasing.guard;
        leasing.tables.with(|tables| guard.permit(ballot, candidate, &mut tables.promises, tables.now))
    }

    fn refuse(&mut self, to: VoterId, leader: Process, term: u64, left: Duration) {
        // Rounded up: a candidate that comes earlier is refused again.
        let left_ms = u64::try_from(left.as_micros().div_ceil(1_000)).expect("a promise is short");
        let (node, life) = (leader.node, leader.life);
        self.send(to, Message::Refused { term, node, life, left_ms });
    }

    /// Whether a majority of each half was heard within the time of a promise.
    fn hears_majority(&self, now: Monotonic) -> bool {
        let here = self.identity.voter;
        let hears = |voter: VoterId| {
            voter == here || self.timers.heard_at(voter).is_some_and(|heard| now.since(heard) < PROMISE)
        };
        self.is_majority(hears)
    }
}
