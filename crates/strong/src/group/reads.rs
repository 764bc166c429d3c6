//! Confirmed reads: a leader asks a majority whether it still leads.
//!
//! Requests that came since the last round share the next one, so each round begins after its requests came. A round
//! has a context that no other round of this process had: an answer to one round never confirms another.
//!
//! 1. A request is added; it waits for a round.
//! 2. A round begins: its heartbeats carry its context.
//! 3. A majority has answered: the round is confirmed, and names the commit index of its begin.
//! 4. That entry is applied: the requests are answered.

use std::collections::{BTreeMap, BTreeSet};

/// Rounds under way at once. More only wait for the answers to the last one's heartbeats.
const ROUNDS_MAX: usize = 8;

/// Reads of one group.
#[derive(Default)]
pub(super) struct Reads {
    /// Requests that wait for a round.
    pending: Vec<u64>,
    /// Requests by the context of their round.
    rounds: BTreeMap<u64, Vec<u64>>,
    /// Requests of confirmed rounds, each behind the index that must be applied first.
    confirmed: BTreeSet<(u64, u64)>,
    /// The context of the last round.
    context: u64,
}

impl Reads {
    /// Adds a request.
    pub(super) fn add(&mut self, token: u64) {
        self.pending.push(token);
    }

    /// Begins a round for the requests that wait for one; its context.
    pub(super) fn begin(&mut self) -> Option<u64> {
        if self.pending.is_empty() || self.rounds.len() >= ROUNDS_MAX {
            return None;
        }
        self.context = if base::planted!(ReadIndexReused) { 1 } else { self.context + 1 };
        self.rounds.entry(self.context).or_default().append(&mut self.pending);
        Some(self.context)
    }

    /// Ends a round that is confirmed; its requests.
    pub(super) fn confirm(&mut self, context: u64) -> Vec<u64> {
        self.rounds.remove(&context).unwrap_or_default()
    }

    /// Lets a request of a confirmed round wait for an entry.
    pub(super) fn wait_for(&mut self, index: u64, token: u64) {
        self.confirmed.insert((index, token));
    }

    /// Takes a request with an applied entry.
    pub(super) fn take(&mut self, applied: u64) -> Option<u64> {
        let &(index, token) = self.confirmed.first().filter(|(index, _)| *index <= applied)?;
        self.confirmed.remove(&(index, token));
        Some(token)
    }

    /// Forgets all requests: the leadership is lost.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.rounds.clear();
        self.confirmed.clear();
    }

    pub(super) fn invariants(&self, applied: u64) {
        debug_assert!(self.rounds.len() <= ROUNDS_MAX, "rounds are bounded");
        debug_assert!(self.confirmed.first().is_none_or(|(index, _)| *index > applied), "reads are served");
    }
}
