//! No deleted value comes back: in the end nothing is shown that an acknowledged delete had seen.

use super::history::KeyHistory;
use crate::check::history::KeyName;
use crate::check::siblings::Shown;
use crate::check::{Verdict, Violation};

const CHECKER: &str = "no delete is undone";

/// Checks what all replicas have come to agree on.
pub(super) fn check(of_key: &KeyHistory, key: &KeyName, shown: &Shown) -> Verdict {
    for (dot, number) in shown.numbers.iter().filter_map(|(dot, number)| dot.map(|dot| (dot, *number))) {
        if of_key.replaced_by(key, (dot, number), false).is_some() {
            return Err(Violation::new(CHECKER, format!("{key}: {number} is back, though it was deleted")));
        }
    }
    Ok(())
}
