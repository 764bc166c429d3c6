//! Waiters: nodes and callers that wait for the outcome of a proposal.
//!
//! At a leader they wait for an entry, by its index and term. At another node they wait for the leader's answer, by the
//! number under which the proposal was passed on, and for a bounded time.

use std::collections::BTreeMap;

use base::Monotonic;
use ring::NodeId;

/// Proposals that wait at once: people and programs that change a cluster are few.
const PROPOSALS_MAX: usize = 256;

/// A waiter, by the way on which its outcome goes.
#[derive(Clone, Copy)]
pub(super) enum Waiter {
    /// A caller of this node, by its token.
    Here(u64),
    /// Another node, by its number of the proposal.
    Node { node: NodeId, id: u64 },
    /// No outcome is wanted.
    Nobody,
}

/// The waiters of a log.
#[derive(Default)]
pub(super) struct Waiters {
    /// By index and term of the entry that they wait for.
    waiting: BTreeMap<(u64, u64), Waiter>,
    /// Proposals passed on, by number, each with the end of its wait.
    asked: BTreeMap<u64, (Waiter, Monotonic)>,
    /// The number of the last proposal that was passed on.
    last_id: u64,
}

impl Waiters {
    /// Whether no more may wait.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() + self.asked.len() >= PROPOSALS_MAX
    }

    /// Adds a waiter for the entry at an index, of a term.
    pub(super) fn wait_for(&mut self, place: (u64, u64), waiter: Waiter) {
        let replaced = self.waiting.insert(place, waiter);
        debug_assert!(replaced.is_none(), "an entry has one waiter");
    }

    /// Adds a waiter for the answer of another node; returns the number of the proposal there.
    pub(super) fn pass_on(&mut self, waiter: Waiter, until: Monotonic) -> u64 {
        self.last_id += 1;
        self.asked.insert(self.last_id, (waiter, until));
        self.last_id
    }

    /// Removes the waiter for an answer that has come.
    pub(super) fn answered(&mut self, id: u64) -> Option<Waiter> {
        self.asked.remove(&id).map(|(waiter, _)| waiter)
    }

    /// Removes a waiter for an answer whose time is over.
    pub(super) fn expire(&mut self, now: Monotonic) -> Option<Waiter> {
        let (&id, _) = self.asked.iter().find(|(_, (_, until))| now >= *until)?;
        self.answered(id)
    }

    /// Removes the first waiter for an entry up to `index`, with the index and term of its entry.
    pub(super) fn take_up_to(&mut self, index: u64) -> Option<((u64, u64), Waiter)> {
        let first = self.waiting.first_entry().filter(|first| first.key().0 <= index)?;
        Some(first.remove_entry())
    }

    /// Removes all waiters for entries.
    pub(super) fn take_waiting(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        std::mem::take(&mut self.waiting).into_values()
    }

    /// Index and term of the first entry that is waited for.
    pub(super) fn first(&self) -> Option<(u64, u64)> {
        self.waiting.first_key_value().map(|(&place, _)| place)
    }

    /// When the first wait for an answer ends.
    pub(super) fn next_timer(&self) -> Option<Monotonic> {
        self.asked.values().map(|(_, until)| *until).min()
    }

    /// Relations that hold after each step.
    pub(super) fn invariants(&self) {
        debug_assert!(
            self.waiting.len() + self.asked.len() <= PROPOSALS_MAX,
            "waiters of both kinds are bounded"
        );
        debug_assert!(
            self.asked.last_key_value().is_none_or(|(&id, _)| id <= self.last_id),
            "numbers of proposals are given in order"
        );
    }
}
