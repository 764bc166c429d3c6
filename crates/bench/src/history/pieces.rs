//! A key's history cut where its value is known, so that each part is searched alone.
//!
//! The search remembers sets of operations, so a history of a hundred thousand operations would not fit into memory. A
//! cut is behind an operation with these properties:
//!
//! 1. It overlaps no other operation, and the value after it is known: it read or wrote that value, or it deleted.
//! 2. No earlier operation that timed out can take effect after it.
//!
//! A write that timed out has taken effect if its value was seen; each value is written once. It never takes effect if
//! it waits for a value that cannot come back. An unconditional delete that timed out may take effect for ever, and so
//! ends all cuts.
//!
//! Invariant: the history is linearizable if and only if each piece is, from the value before it.

use super::EARLIER_FROM;
use base::{FastMap, FastSet};
use strong::linearizability::{Action, Operation, Outcome, Value};

/// A part of a key's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The value before it.
    pub before: Option<Value>,
    /// Numbers of its operations.
    pub operations: Vec<usize>,
}

/// The pieces of a history, which is in the order of its calls.
pub fn pieces(history: &[Operation]) -> Vec<Piece> {
    let mut cutter = Cutter::of(history);
    let mut piece = Piece { before: value_at_first(history), operations: Vec::new() };
    let mut pieces = Vec::new();
    for at in 0..history.len() {
        piece.operations.push(at);
        cutter.take(at);
        if let Some(after) = cutter.value_behind(at) {
            let next = Piece { before: after, operations: Vec::new() };
            pieces.push(std::mem::replace(&mut piece, next));
        }
    }
    if !piece.operations.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// The value from before the run, if one was seen: nobody wrote it since.
fn value_at_first(history: &[Operation]) -> Option<Value> {
    let seen = history.iter().flat_map(|it| [read_value(it), expected(it.action)]).flatten();
    seen.into_iter().find(|value| *value >= EARLIER_FROM)
}

fn read_value(operation: &Operation) -> Option<Value> {
    if let Outcome::Read(value) = operation.outcome { value } else { None }
}

fn expected(action: Action) -> Option<Value> {
    match action {
        Action::Cas { expected, .. } | Action::DeleteIf { expected } => Some(expected),
        _ => None,
    }
}

fn written(action: Action) -> Option<Value> {
    match action {
        Action::Put(value) | Action::PutOnce(value) | Action::Cas { value, .. } => Some(value),
        _ => None,
    }
}

/// The value after an operation, where its outcome says it.
fn known_after(operation: &Operation) -> Option<Option<Value>> {
    match operation.outcome {
        Outcome::Read(value) => Some(value),
        Outcome::Done => Some(written(operation.action)),
        _ => None,
    }
}

/// Whether it may have an effect on others.
fn is_possible(operation: &Operation) -> bool {
    operation.outcome != Outcome::Unavailable
}

struct Cutter<'a> {
    history: &'a [Operation],
    /// The operation that wrote each value.
    writers: FastMap<Value, usize>,
    /// The last operation that may delete.
    last_delete: Option<usize>,
    /// When the operations so far had ended, those that timed out apart, without the newest one.
    ended: Option<u64>,
    /// The same with the newest one.
    ends: Option<u64>,
    /// Operations that timed out and may take effect.
    pending: Vec<usize>,
    /// Values that were there at some time.
    seen: FastSet<Value>,
}

impl<'a> Cutter<'a> {
    fn of(history: &'a [Operation]) -> Cutter<'a> {
        let writers = history.iter().enumerate();
        let writers = writers.filter_map(|(at, it)| Some((written(it.action)?, at))).collect();
        let deletes =
            |it: &Operation| is_possible(it) && matches!(it.action, Action::Delete | Action::DeleteIf { .. });
        Cutter {
            history,
            writers,
            last_delete: history.iter().rposition(deletes),
            ended: None,
            ends: None,
            pending: Vec::new(),
            seen: FastSet::default(),
        }
    }

    /// Takes the next operation.
    fn take(&mut self, at: usize) {
        let operation = &self.history[at];
        self.ended = self.ends;
        match operation.outcome {
            Outcome::Unavailable => return,
            Outcome::Timeout if operation.action == Action::Get => return,
            Outcome::Timeout => return self.pending.push(at),
            Outcome::Failed => {}
            Outcome::Read(_) | Outcome::Done => {
                self.seen.extend(known_after(operation).flatten());
                self.seen.extend(expected(operation.action));
            }
        }
        self.ends = self.ends.max(Some(operation.end));
    }

    /// The value behind the operation that was taken last, if the history can be cut there.
    fn value_behind(&mut self, at: usize) -> Option<Option<Value>> {
        let operation = &self.history[at];
        let after = known_after(operation)?;
        // Calls ascend, so the next one is the first of all later ones.
        let next = self.history.get(at + 1).map(|it| it.call);
        let is_alone =
            self.ended.is_none_or(|end| end < operation.call) && next.is_none_or(|call| operation.end < call);
        if !is_alone || self.pending.iter().any(|&it| self.may_come(it, at, after)) {
            return None;
        }
        self.pending.clear();
        Some(after)
    }

    /// Whether an operation that timed out may take effect behind a cut with this value.
    fn may_come(&self, pending: usize, cut: usize, after: Option<Value>) -> bool {
        let action = self.history[pending].action;
        if written(action).is_some_and(|value| self.seen.contains(&value)) {
            return false;
        }
        match action {
            Action::Get => false,
            Action::Put(_) | Action::Delete => true,
            Action::PutOnce(_) => after.is_none() || self.last_delete.is_some_and(|last| last > cut),
            Action::Cas { expected, .. } | Action::DeleteIf { expected } => {
                after == Some(expected) || self.value_may_come(expected, cut)
            }
        }
    }

    /// Whether a value that is not there at a cut is written later. A writer that timed out before is pending itself.
    fn value_may_come(&self, value: Value, cut: usize) -> bool {
        self.writers.get(&value).is_some_and(|writer| *writer > cut)
    }
}
