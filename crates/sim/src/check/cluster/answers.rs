//! Errors are of known kinds. Between nodes that lose messages and die, some requests rightly fail; none may fail
//! as if it had been wrong, or as if stored data were.

use crate::check::answers::Causes;
use crate::check::{Verdict, Violation};
use kv::Error;

const CHECKER: &str = "each request is answered";

/// Whether an error may come of what goes wrong in a cluster, or of a condition that the client has set.
pub(super) fn judge(error: &Error, causes: Causes, is_conditional: bool) -> Verdict {
    let excused = match error {
        Error::MatchFound | Error::Modified | Error::NotFoundCondition => is_conditional,
        Error::Timeout | Error::Overload | Error::TooManySiblings { .. } => true,
        Error::Unsatisfied { .. } | Error::NoRoom { .. } | Error::InsufficientVnodes { .. } => true,
        Error::Unreachable | Error::NotCovered => true,
        Error::Exhausted(_) => causes.disk_failed,
        Error::Fenced(_) | Error::Store(_) => causes.disk_failed || causes.rotten || causes.closing,
        Error::Damaged(_) => causes.rotten,
        _ => false,
    };
    if excused { Ok(()) } else { Err(Violation::new(CHECKER, format!("an answer without a cause: {error}"))) }
}
