//! Once a node has stopped cleanly, the index entries of each of its stores are those of its objects.

use super::answers::Causes;
use super::{Verdict, Violation};

const CHECKER: &str = "index entries are those of the objects";

/// Checks what was found wrong in a node's stores; silent damage may have been anywhere.
pub fn check_stopped(findings: &[String], causes: Causes) -> Verdict {
    match findings.first() {
        Some(first) if !causes.rotten => Err(Violation::new(CHECKER, first.clone())),
        _ => Ok(()),
    }
}
