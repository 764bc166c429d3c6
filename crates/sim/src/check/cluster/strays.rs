//! In the end a partition is where the ring says, and nowhere else.

use super::NodeAt;
use crate::check::history::KeyName;
use crate::check::{Verdict, Violation};
use bytes::Bytes;

const CHECKER: &str = "a partition is where the ring says";

/// Checks what a node has of a key of which it is no primary.
pub fn check(node: NodeAt, key: &KeyName, head: Option<&Bytes>) -> Verdict {
    match head {
        None => Ok(()),
        Some(_) => Err(Violation::new(CHECKER, format!("{key}: n{node} has it, and is not to have it"))),
    }
}
