//! The verdict on a history: each key is judged alone, piece by piece.
//!
//! A key may have a value from before the run. If a request shows it, it was there from the start. If none does, the
//! key was absent, or it had a value that was replaced or deleted unseen: both are tried.
//!
//! Invariant: a key is a violation only if no order explains its answers. Memory of one search is bounded by
//! [`MEMORY_MAX`]; a search that needs more is *unknown*.

use super::pieces::{Piece, pieces};
use super::read::{History, Request};
use strong::linearizability::{self, Action, Operation, Outcome, Value, Verdict};

/// Bytes that one search may remember, about: a machine that runs a load has that much.
const MEMORY_MAX: usize = 1 << 30;

/// Bytes of a remembered state beside its set of operations: the value, the set's place, and room of the table.
const STATE_LEN: usize = 64;

/// A value from before the run that no request shows: greater than all that a run writes or reads.
pub(super) const UNSEEN: Value = u64::MAX;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests.
    pub operations: usize,
    /// Keys.
    pub keys: usize,
    /// Keys whose search was given up.
    pub unknown: Vec<String>,
    /// Keys that no order explains.
    pub violations: Vec<Offence>,
}

/// A key that no order explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offence {
    /// Bucket and key, as in the file.
    pub key: String,
    /// The first request without a place in any order.
    pub request: Request,
    /// The requests that overlap it.
    pub concurrent: Vec<Request>,
    /// The requests before it, in the order of their calls.
    pub earlier: Vec<Request>,
    /// Some of the values that the key could have then; none for an absent one.
    pub states: Vec<Option<Value>>,
}

/// Judges a history; a search visits `states_max` states at most, fewer where memory would not do.
pub fn check(history: &History, states_max: usize) -> Report {
    let mut report = Report { keys: history.keys.len(), ..Report::default() };
    for (key, requests) in &history.keys {
        report.operations += requests.len();
        match check_key(key, requests, states_max) {
            Ok(true) => {}
            Ok(false) => report.unknown.push(key.clone()),
            Err(offence) => report.violations.push(*offence),
        }
    }
    report
}

/// Whether an order was found.
fn check_key(key: &str, requests: &[Request], states_max: usize) -> Result<bool, Box<Offence>> {
    let operations: Vec<Operation> = requests.iter().map(|it| it.operation).collect();
    for piece in pieces(&operations) {
        match search(&piece, &operations, states_max) {
            Verdict::Linearizable => {}
            Verdict::Unknown => return Ok(false),
            Verdict::Violation(violation) => {
                let number = |at: usize| at.checked_sub(usize::from(piece.before.is_some()));
                let request = |at| Some(requests[piece.operations[number(at)?]]);
                let at = number(violation.operation).map_or(0, |at| piece.operations[at]);
                return Err(Box::new(Offence {
                    key: key.to_owned(),
                    request: requests[at],
                    concurrent: violation.concurrent.into_iter().filter_map(request).collect(),
                    earlier: requests[..at].to_vec(),
                    states: violation.states,
                }));
            }
        }
    }
    Ok(true)
}

/// The verdict on a piece.
fn search(piece: &Piece, operations: &[Operation], states_max: usize) -> Verdict {
    let states_max = states_max.min(MEMORY_MAX / (STATE_LEN + piece.operations.len() / 8));
    let verdict = linearizability::check(&searched(piece, operations), states_max);
    let is_first = piece.operations.first() == Some(&0);
    if !(matches!(verdict, Verdict::Violation(_)) && is_first && piece.before.is_none()) {
        return verdict;
    }
    let replaced = Piece { before: Some(UNSEEN), operations: piece.operations.clone() };
    match linearizability::check(&searched(&replaced, operations), states_max) {
        Verdict::Violation(_) => verdict,
        other => other,
    }
}

/// The operations of a piece, behind the write of the value before it.
fn searched(piece: &Piece, operations: &[Operation]) -> Vec<Operation> {
    let before = |value| Operation { call: 0, end: 0, action: Action::Put(value), outcome: Outcome::Done };
    // One nanosecond later, so that none overlaps that write.
    let later = |at: &usize| {
        let it = operations[*at];
        Operation { call: it.call.saturating_add(1), end: it.end.saturating_add(1), ..it }
    };
    piece.before.map(before).into_iter().chain(piece.operations.iter().map(later)).collect()
}
