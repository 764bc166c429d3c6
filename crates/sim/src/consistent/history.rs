//! Histories of keys, and their checks: each is linearizable, also if a restore of all nodes cuts it.
//!
//! A restore sets each group back to the log of one copy. Promised is (`docs/operate/consistent-types.md`):
//!
//! * Operations that ended before the first backup began have had their effect, or none, as their clients were told.
//! * All others that began before the loss may have been undone, or done: reads of that time count for nothing. A
//!   write may have had its effect whatever its answer was, also *unavailable*: the copy may be of a moment when the
//!   write was not given up yet.
//! * No write of the time before the loss takes effect after it.
//!
//! So the part before the loss is linearizable up to some value, from which the part after it goes on.
//!
//! A context of the time before the loss may match or not, so a condition that fails by it says nothing. If it holds,
//! the object is the one that was read then.
//!
//! A version has one value, in all answers of a life.

use super::World;
use crate::check::{Verdict, Violation};
use base::Monotonic;
use bytes::Bytes;
use strong::linearizability::{Action, Operation, Outcome, Value, Verdict as Order, check};

/// States that the check of a history may visit: some 100 ms of work.
const STATES_MAX: usize = 300_000;

/// Operations before a broken one that are shown.
const SHOWN_MAX: usize = 40;

/// A key, and the operations on it.
pub(super) struct Key {
    pub(super) name: Bytes,
    pub(super) prefix: u16,
    pub(super) history: Vec<Operation>,
    /// The operations before the loss of all nodes, as a restore leaves them.
    past: Option<Vec<Operation>>,
}

impl Key {
    pub(super) fn new(name: Bytes, prefix: u16) -> Key {
        Key { name, prefix, history: Vec::new(), past: None }
    }

    /// Ends the part before the loss. Backups hold all that ended before `began`.
    fn cut(&mut self, began: Monotonic) {
        let mut past = std::mem::take(&mut self.history);
        past.retain_mut(|operation| {
            let is_certain = operation.end < began.0 && operation.outcome != Outcome::Timeout;
            let writes = !matches!(operation.outcome, Outcome::Read(_) | Outcome::Failed);
            if !is_certain {
                operation.outcome = Outcome::Timeout;
            }
            is_certain || writes && operation.action != Action::Get
        });
        self.past = Some(past);
    }

    /// Checks the history.
    fn order(&mut self) -> (Order, Vec<Operation>) {
        self.history.sort_by_key(|operation| operation.call);
        let Some(mut past) = self.past.take() else {
            return (check(&self.history, STATES_MAX), self.history.clone());
        };
        past.sort_by_key(|operation| operation.call);
        let (mut verdict, mut is_unknown) = (None, false);
        for value in values(&past) {
            let (before, after) = (ending_with(&past, value), beginning_with(&self.history, value));
            match (check(&after, STATES_MAX), check(&before, STATES_MAX)) {
                (Order::Linearizable, Order::Linearizable) => return (Order::Linearizable, after),
                (Order::Linearizable, worse @ Order::Violation(_)) => verdict = Some((worse, before)),
                (worse @ Order::Violation(_), _) => {
                    verdict.get_or_insert((worse, after));
                }
                (Order::Unknown, Order::Violation(_)) => {}
                (Order::Unknown, _) | (_, Order::Unknown) => is_unknown = true,
            }
        }
        match verdict.filter(|_| !is_unknown) {
            Some(verdict) => verdict,
            None => (Order::Unknown, past),
        }
    }
}

/// The values that a key may have after some operations.
fn values(past: &[Operation]) -> impl Iterator<Item = Option<Value>> {
    let written = past.iter().rev().filter_map(|operation| match operation.action {
        Action::Put(value) | Action::PutOnce(value) | Action::Cas { value, .. } => Some(value),
        Action::Get | Action::Delete | Action::DeleteIf { .. } => None,
    });
    std::iter::once(None).chain(written.map(Some))
}

/// The operations, and the value that is there after them.
fn ending_with(past: &[Operation], value: Option<Value>) -> Vec<Operation> {
    let end = past.iter().map(|operation| operation.end.max(operation.call)).max().unwrap_or_default() + 1;
    let read = Operation { call: end, end, action: Action::Get, outcome: Outcome::Read(value) };
    past.iter().copied().chain([read]).collect()
}

/// The operations, and the value that is there before them.
fn beginning_with(history: &[Operation], value: Option<Value>) -> Vec<Operation> {
    let action = value.map_or(Action::Delete, Action::Put);
    let first = history.first().map_or(1, |operation| operation.call);
    let (call, end) = (first.saturating_sub(2), first.saturating_sub(1));
    [Operation { call, end, action, outcome: Outcome::Done }]
        .into_iter()
        .chain(history.iter().copied())
        .collect()
}

impl World {
    /// Adds an operation to its key's history.
    pub(super) fn note(&mut self, key: usize, operation: Operation) {
        self.tally.count(operation.outcome);
        self.keys[key].history.push(operation);
    }

    /// Takes the version and the value of an answer.
    pub(super) fn note_version(&mut self, key: usize, context: Bytes, value: Value) -> Verdict {
        let known = *self.versions.entry((key, context.clone())).or_insert(value);
        if known == value {
            return Ok(());
        }
        let name = self.keys[key].name.escape_ascii();
        let what = format!("{name}: version {context:?} is {known} in one answer, and {value} in another");
        Err(Violation::new("a version has one value", what))
    }

    /// All nodes are set back to backups, of which the first one began at that time.
    pub(super) fn cut_histories(&mut self, began: Monotonic) {
        self.keys.iter_mut().for_each(|key| key.cut(began));
        // Terms of the lost time come again.
        self.leaders.clear();
        self.clients.iter_mut().for_each(super::clients::Client::age_contexts);
    }

    pub(super) fn check_histories(&mut self) -> Verdict {
        for key in &mut self.keys {
            let (verdict, history) = key.order();
            match verdict {
                Order::Linearizable => {}
                Order::Unknown => self.tally.unknown += 1,
                Order::Violation(violation) => {
                    let name = key.name.escape_ascii();
                    let operation = history[violation.operation];
                    let what = format!("{name}: {operation:?} has no place: {violation:?}");
                    let at = |operation: &Operation| format!("\n    {operation:?}");
                    let last = history.iter().filter(|it| it.call <= violation.window.1).map(at);
                    let all: Vec<String> = last.collect();
                    let shown = all[all.len().saturating_sub(SHOWN_MAX)..].concat();
                    return Err(Violation::new("keys are linearizable", format!("{what}{shown}")));
                }
            }
        }
        Ok(())
    }
}
