//! Each request is answered once and by its deadline, unless the process ends first; and an error needs a
//! cause.

use super::{Verdict, Violation};
use base::Monotonic;
use kv::Error;
use std::collections::BTreeMap;
use std::fmt;

const CHECKER: &str = "each request is answered";
const DAMAGE: &str = "no damage without a cause";

/// What has gone wrong since the process began, as far as an error may come of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Causes {
    /// The disk has failed an operation.
    pub disk_failed: bool,
    /// Something stored was silently damaged, now or earlier.
    pub rotten: bool,
    /// The process has begun to stop.
    pub closing: bool,
}

/// The requests that wait for an answer, and their deadlines.
#[derive(Debug, Default)]
pub struct Answers(BTreeMap<u64, Monotonic>);

impl Answers {
    pub(super) fn on_request(&mut self, id: u64, deadline: Monotonic) {
        self.0.insert(id, deadline);
    }

    pub(super) fn on_answer(&mut self, id: u64, more: bool) -> Verdict {
        let waited = if more { self.0.get(&id).copied() } else { self.0.remove(&id) };
        match waited {
            Some(_) => Ok(()),
            None => Err(mismatch(format_args!("request {id} is answered twice"))),
        }
    }

    /// Nobody waits for this any more.
    pub(super) fn on_given_up(&mut self, id: u64) {
        self.0.remove(&id);
    }

    pub(super) fn on_death(&mut self) {
        self.0.clear();
    }

    /// Whoever could answer stood still until now: what was due meanwhile is due at `deadline`.
    pub(super) fn put_off(&mut self, deadline: Monotonic) {
        self.0.values_mut().for_each(|due| *due = deadline.max(*due));
    }

    pub(super) fn is_idle(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn check_deadlines(&self, now: Monotonic) -> Verdict {
        match self.0.iter().find(|(_, deadline)| **deadline < now) {
            Some((id, _)) => Err(mismatch(format_args!("request {id} is past its deadline"))),
            None => Ok(()),
        }
    }
}

/// An answer that makes no sense.
pub(super) fn mismatch(what: fmt::Arguments<'_>) -> Violation {
    Violation::new(CHECKER, what.to_string())
}

/// Whether the error says that the write was not taken.
pub(super) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Overload | Error::TooManySiblings { .. } | Error::Damaged(_))
}

/// Whether an error of a node alone has a cause. Deadlines are far longer than anything the world does to a disk, so
/// none may pass; and clients send nothing that a node may refuse but too many siblings.
pub(super) fn judge(error: &Error, causes: Causes) -> Verdict {
    let excused = match error {
        Error::Overload | Error::TooManySiblings { .. } => true,
        Error::Exhausted(_) => causes.disk_failed,
        Error::Fenced(_) | Error::Store(_) => causes.disk_failed || causes.rotten || causes.closing,
        Error::Damaged(_) => causes.rotten,
        _ => false,
    };
    let checker = if matches!(error, Error::Damaged(_)) { DAMAGE } else { CHECKER };
    if excused { Ok(()) } else { Err(Violation::new(checker, format!("an answer without a cause: {error}"))) }
}
