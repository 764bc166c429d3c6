//! A leader's part of a group: the answers of its voters in this term, and the end of the lease that they make.
//!
//! A read compares one reading of the clock with one stored end. The end is found anew only when it has passed, by a
//! lookup for each voter.

use base::Monotonic;

use super::{Grants, Process};

/// The answer of a voter in this term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Answer<V> {
    voter: V,
    process: Process,
    number: u64,
}

/// The lease of one group's leader. `V` names a voter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease<V> {
    term: u64,
    is_given_up: bool,
    /// The last answer of each voter, at most.
    answers: Vec<Answer<V>>,
    /// The end that was found last. It stays true for this term and this configuration.
    until: Monotonic,
}

/// The reading of the clock by which a read is judged. It is taken after the read has come: that of the turn's begin
/// may be older than the read, and than another leader.
pub fn reading_of_read(turn: Monotonic, clock: impl FnOnce() -> Monotonic) -> Monotonic {
    if base::planted!(LeaseByOldClock) { turn } else { clock() }
}

impl<V: Copy + PartialEq> Lease<V> {
    /// No lease.
    pub fn new() -> Lease<V> {
        Lease { term: 0, is_given_up: false, answers: Vec::new(), until: Monotonic(0) }
    }

    /// Begins a leadership. Answers of earlier terms count no more.
    pub fn lead(&mut self, term: u64) {
        debug_assert!(term > self.term, "a term is led once");
        (self.term, self.is_given_up) = (term, false);
        if base::planted!(LeaseWithoutTerm) {
            return;
        }
        self.until = Monotonic(0);
        self.answers.clear();
    }

    /// Notes the answer of a voter to an append or a heartbeat of a term, and the number of its promise when it was
    /// made.
    pub fn on_answer(&mut self, voter: V, process: Process, number: u64, term: u64) {
        if term != self.term {
            return;
        }
        let answer = Answer { voter, process, number };
        match self.answers.iter_mut().find(|it| it.voter == voter) {
            // Answers come late: a lower number is of an earlier promise.
            Some(before) if before.process == process && before.number > number => {}
            Some(before) => *before = answer,
            None => self.answers.push(answer),
        }
    }

    /// Gives the lease up for the rest of the term: before a release of it, or a question to another voter to lead.
    pub fn give_up(&mut self) {
        self.is_given_up = !base::planted!(LeaseAfterHandOver);
    }

    /// Whether a term is the last one that was led.
    pub fn has_led(&self, term: u64) -> bool {
        self.term == term
    }

    /// Whether the lease was given up in this term.
    pub fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// Forgets the end that was found: the voters have changed.
    pub fn on_configuration(&mut self) {
        self.until = Monotonic(0);
    }

    /// Whether the end that was found last is later than a reading of the clock.
    pub fn is_known(&self, now: Monotonic) -> bool {
        !self.is_given_up && now < self.until
    }

    /// Whether the leader has a lease at a reading of its clock. `halves` are the voters of each half of the
    /// configuration, without this one; a half that has this one says so.
    ///
    /// The caller leads, in this term.
    pub fn holds(&mut self, now: Monotonic, grants: &Grants, halves: &[(&[V], bool)]) -> bool {
        if self.is_given_up {
            return false;
        }
        if now >= self.until {
            let ends = halves.iter().map(|(others, has_here)| self.end_of(grants, others, *has_here));
            self.until = ends.min().unwrap_or_default();
        }
        now < self.until
    }

    /// The end of the lease of one half: that of the promise that completes a majority, the longest ones first.
    fn end_of(&self, grants: &Grants, others: &[V], has_here: bool) -> Monotonic {
        let majority = (others.len() + usize::from(has_here)) / 2 + 1;
        let Some(needed) = majority.checked_sub(usize::from(has_here)).filter(|needed| *needed > 0) else {
            return Monotonic(u64::MAX);
        };
        // The end that at least `needed` promises reach; a half has few voters, so nothing is allocated or sorted.
        let ends = || others.iter().filter_map(|voter| self.end_of_voter(grants, *voter));
        ends().filter(|end| ends().filter(|other| other >= end).count() >= needed).max().unwrap_or_default()
    }

    fn end_of_voter(&self, grants: &Grants, voter: V) -> Option<Monotonic> {
        let answer = self.answers.iter().find(|answer| answer.voter == voter)?;
        grants.until(answer.process, answer.number)
    }
}

impl<V: Copy + PartialEq> Default for Lease<V> {
    fn default() -> Lease<V> {
        Lease::new()
    }
}
