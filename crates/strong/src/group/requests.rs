//! Requests of clients that wait for an answer.
//!
//! Invariants: a token is answered once; a request has left when its deadline has passed.

use std::collections::{BTreeMap, BTreeSet};

use base::Monotonic;

/// The event that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// A write, for the entry of that index and term.
    Write {
        /// Its index.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// A read, for its confirmation.
    Read,
    /// A write that failed its condition, for the confirmation of the version that it was compared with.
    Check {
        /// The entry of the version that it was compared with.
        index: u64,
    },
}

/// Requests by token.
#[derive(Default)]
pub(super) struct Requests {
    waiting: BTreeMap<u64, (Waiting, Monotonic)>,
    deadlines: BTreeSet<(Monotonic, u64)>,
    /// Tokens of writes by index and term.
    writes: BTreeMap<(u64, u64), u64>,
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a write waits.
    pub(super) fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Adds a request.
    pub(super) fn add(&mut self, token: u64, waiting: Waiting, deadline: Monotonic) {
        let replaced = self.waiting.insert(token, (waiting, deadline));
        assert!(replaced.is_none(), "a token names one request");
        self.deadlines.insert((deadline, token));
        if let Waiting::Write { index, term } = waiting {
            let replaced = self.writes.insert((index, term), token);
            assert!(replaced.is_none(), "an entry has one request");
        }
    }

    pub(super) fn get(&self, token: u64) -> Option<Waiting> {
        self.waiting.get(&token).map(|(waiting, _)| *waiting)
    }

    /// Removes a request that is answered.
    pub(super) fn remove(&mut self, token: u64) -> Option<Waiting> {
        let (waiting, deadline) = self.waiting.remove(&token)?;
        self.deadlines.remove(&(deadline, token));
        if let Waiting::Write { index, term } = waiting {
            self.writes.remove(&(index, term));
        }
        Some(waiting)
    }

    /// The first write that waits for an entry up to an index: its token, index and term.
    pub(super) fn first_write(&self, through: u64) -> Option<(u64, (u64, u64))> {
        let (&place, &token) = self.writes.first_key_value()?;
        (place.0 <= through).then_some((token, place))
    }

    /// Tokens of all requests for which a condition holds.
    pub(super) fn tokens(&self, is_chosen: impl Fn(&Waiting) -> bool) -> Vec<u64> {
        self.waiting.iter().filter(|(_, (waiting, _))| is_chosen(waiting)).map(|(&token, _)| token).collect()
    }

    /// The first deadline.
    pub(super) fn next_deadline(&self) -> Option<Monotonic> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// A request past its deadline.
    pub(super) fn expired(&self, now: Monotonic) -> Option<u64> {
        let &(deadline, token) = self.deadlines.first()?;
        (deadline <= now).then_some(token)
    }

    pub(super) fn invariants(&self) {
        debug_assert_eq!(self.waiting.len(), self.deadlines.len(), "each request has a deadline");
        debug_assert!(self.writes.len() <= self.waiting.len(), "writes are requests");
    }
}
