//! Siblings are exact: each was written, is there no more often than it was asked for, and is not there together
//! with a write that had seen it.

use super::history::KeyHistory;
use crate::check::history::KeyName;
use crate::check::siblings::Shown;
use crate::check::{Verdict, Violation};
use std::collections::BTreeMap;

const CHECKER: &str = "siblings are exact";

/// Checks a version that was seen somewhere, at any time.
pub(super) fn check(of_key: Option<&KeyHistory>, key: &KeyName, shown: &Shown) -> Verdict {
    let broken = |what: String| Err(Violation::new(CHECKER, format!("{key}: {what}")));
    let empty = KeyHistory::default();
    let of_key = of_key.unwrap_or(&empty);
    let mut times = BTreeMap::<u64, usize>::new();
    for (dot, number) in &shown.numbers {
        let asked = of_key.of(*number).count();
        let seen = times.entry(*number).or_default();
        *seen += 1;
        if *seen > asked {
            return broken(format!("{number} is there {seen} times and was written {asked} times"));
        }
        let Some(dot) = *dot else { continue };
        let replaced = |by: &u64| by != number && of_key.of(*by).all(|write| write.covers(dot));
        let mut others = shown.numbers.iter().map(|(_, by)| by);
        if let Some(by) = others.find(|by| key.has_memory() && replaced(by)) {
            return broken(format!("{number} is there beside {by}, which had replaced it"));
        }
    }
    Ok(())
}

/// Checks what all replicas have come to agree on.
pub(super) fn check_end(of_key: &KeyHistory, key: &KeyName, shown: &Shown) -> Verdict {
    for (dot, number) in shown.numbers.iter().filter_map(|(dot, number)| dot.map(|dot| (dot, *number))) {
        if let Some(by) = of_key.replaced_by(key, (dot, number), true) {
            let what = format!("{key}: {number} is back, though {:?} had replaced it", by.kind);
            return Err(Violation::new(CHECKER, what));
        }
    }
    Ok(())
}
