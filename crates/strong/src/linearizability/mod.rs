//! A checker of linearizability for histories of one register per key.
//!
//! A history is linearizable when each operation seems to happen at one instant between its call and its return. The
//! checker searches for such an order, by the algorithm of Wing and Gong with Lowe's memo: a set of placed operations
//! together with the state that they led to is never searched twice.
//!
//! 1. Calls and returns are sorted by time. At equal times a call comes before a return, so both overlap.
//! 2. The search places an operation that was called before the first open return. If it fits the state, both of its
//!    events leave the list.
//! 3. If the first event left is a return, its operation cannot be placed any more, and the last placement is undone.
//!
//! Searches grow with the operations that overlap, so some are not made: a read that fits is placed at once, and of
//! timeouts with the same effect only the first.
//!
//! Meanings of outcomes: *failed* is a read by which the condition did not hold; *unavailable* never takes effect;
//! *timeout* may take effect at any time after its call, or never.
//!
//! Invariant: the verdict *violation* is never given for a linearizable history; a search beyond its budget is
//! *unknown*. Keys are independent of each other, so each is searched alone.
//!
//! After J. Wing and C. Gong, "Testing and verifying concurrent objects" (1993), and G. Lowe, "Testing for
//! linearizability" (2017).

mod operation;
mod search;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;

pub use self::operation::{Action, Operation, Outcome, Value};
pub use self::search::check;

/// States that one search may visit by default: some 200 MB for a history of 1,000 operations.
pub const STATES_MAX: usize = 1_000_000;

/// States that an explanation lists, at most.
pub const STATES_SHOWN_MAX: usize = 8;

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order that explains all outcomes.
    Linearizable,
    /// The budget of states was used up before the search ended.
    Unknown,
    /// There is no such order.
    Violation(Violation),
}

/// The first operation that has no place in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number in the history.
    pub operation: usize,
    /// Times of its call and return.
    pub window: (u64, u64),
    /// Numbers of the operations that overlap it.
    pub concurrent: Vec<usize>,
    /// Some of the states in which the search had to place it, at most [`STATES_SHOWN_MAX`].
    pub states: Vec<Option<Value>>,
}

/// Checks the history of each key; the first key that is not *linearizable*, with its verdict.
pub fn check_keys(
    histories: &BTreeMap<Bytes, Vec<Operation>>,
    states_max: usize,
) -> Result<(), (Bytes, Verdict)> {
    for (key, history) in histories {
        match check(history, states_max) {
            Verdict::Linearizable => {}
            verdict => return Err((key.clone(), verdict)),
        }
    }
    Ok(())
}
