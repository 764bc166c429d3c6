//! Operations on one register: action, outcome, and their effect on its value.

/// A written value; each write of a history has one of its own.
pub type Value = u64;

/// The request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Reads the value.
    Get,
    /// Writes a value without a condition.
    Put(Value),
    /// Writes a value if there is none.
    PutOnce(Value),
    /// Writes a value if another is there.
    Cas {
        /// The value of the context that the write carries.
        expected: Value,
        /// The value written.
        value: Value,
    },
    /// Deletes without a condition.
    Delete,
    /// Deletes if a value is there.
    DeleteIf {
        /// The value of the context that the delete carries.
        expected: Value,
    },
}

/// The answer that the client got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A read's value.
    Read(Option<Value>),
    /// The write took effect.
    Done,
    /// The condition did not hold.
    Failed,
    /// The request did not take effect, and never will.
    Unavailable,
    /// The request may take effect at any time after its call, or never.
    Timeout,
}

/// One request and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Time of the call.
    pub call: u64,
    /// Time of the answer. A timeout's is not used.
    pub end: u64,
    /// The request.
    pub action: Action,
    /// The answer.
    pub outcome: Outcome,
}

impl Operation {
    /// Whether it must have a place in the order.
    pub(super) fn is_definite(&self) -> bool {
        matches!(self.outcome, Outcome::Read(_) | Outcome::Done | Outcome::Failed)
    }

    /// Whether it may have a place in the order.
    pub(super) fn is_possible(&self) -> bool {
        match self.outcome {
            Outcome::Unavailable => false,
            Outcome::Timeout => self.action != Action::Get,
            _ => true,
        }
    }

    /// Whether it never changes the value.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.outcome, Outcome::Read(_) | Outcome::Failed)
    }

    /// The state after it; none if its outcome contradicts the state before.
    ///
    /// A timeout that fails its condition has no effect, so it has no place either.
    pub(super) fn apply(&self, before: Option<Value>) -> Option<Option<Value>> {
        let (holds, after) = match self.action {
            Action::Get => (true, before),
            Action::Put(value) => (true, Some(value)),
            Action::PutOnce(value) => (before.is_none(), Some(value)),
            Action::Cas { expected, value } => (before == Some(expected), Some(value)),
            Action::Delete => (true, None),
            Action::DeleteIf { expected } => (before == Some(expected), None),
        };
        match self.outcome {
            Outcome::Read(value) => (self.action == Action::Get && value == before).then_some(before),
            Outcome::Done | Outcome::Timeout => (self.action != Action::Get && holds).then_some(after),
            Outcome::Failed => (!holds).then_some(before),
            Outcome::Unavailable => None,
        }
    }
}
