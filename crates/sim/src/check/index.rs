//! Once a node has stopped cleanly, the index entries of each of its stores are those of its objects. On a quiet cluster, a query
//! tells exactly the rows of the objects that all replicas have.

use super::answers::Causes;
use super::cluster::Told;
use super::{Verdict, Violation};

const CHECKER: &str = "index entries are those of the objects";

/// Checks what was found wrong in a node's stores; silent damage may have been anywhere.
pub fn check_stopped(findings: &[String], causes: Causes) -> Verdict {
    match findings.first() {
        Some(first) if !causes.rotten => Err(Violation::new(CHECKER, first.clone())),
        _ => Ok(()),
    }
}

/// Compares the rows that a query over a field of a bucket has told with those that are there.
pub fn check_told(bucket: &[u8], field: &[u8], there: &[Told], told: &[Told]) -> Verdict {
    if told == there {
        return Ok(());
    }
    let (bucket, field) = (bucket.escape_ascii(), field.escape_ascii());
    Err(Violation::new(CHECKER, format!("{bucket}, {field}: {told:?} was told, and {there:?} is there")))
}
