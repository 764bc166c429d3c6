//! Once a node has stopped cleanly, the index entries of each of its stores are those of its objects. On a quiet
//! cluster, a query tells exactly the rows of the objects that all replicas have; it may tell those of siblings that
//! have ended beside a tombstone (decision 62).

use super::answers::Causes;
use super::cluster::Told;
use super::{Verdict, Violation};
use std::collections::BTreeMap;

const CHECKER: &str = "index entries are those of the objects";

/// Checks what was found wrong in a node's stores; silent damage may have been anywhere.
pub fn check_stopped(findings: &[String], causes: Causes) -> Verdict {
    match findings.first() {
        Some(first) if !causes.rotten => Err(Violation::new(CHECKER, first.clone())),
        _ => Ok(()),
    }
}

/// Compares the rows that a query over a field of a bucket has told with those that are there, in the same order; with
/// each, whether it has to be told.
pub fn check_told(bucket: &[u8], field: &[u8], there: &[(Told, bool)], told: &[Told]) -> Verdict {
    let expected = expected(there, told);
    if told == expected {
        return Ok(());
    }
    let (bucket, field) = (bucket.escape_ascii(), field.escape_ascii());
    Err(Violation::new(CHECKER, format!("{bucket}, {field}: {told:?} was told, and {expected:?} is there")))
}

/// The rows that have to be told, and of the others those that were: rows without terms may be equal.
fn expected(there: &[(Told, bool)], told: &[Told]) -> Vec<Told> {
    let mut optional = BTreeMap::<&Told, i64>::new();
    told.iter().for_each(|row| *optional.entry(row).or_default() += 1);
    there.iter().filter(|(_, must)| *must).for_each(|(row, _)| *optional.entry(row).or_default() -= 1);
    let mut is_told = |row: &Told| {
        let left = optional.get_mut(row).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    };
    let mut expected = Vec::new();
    for (row, must) in there {
        if *must || is_told(row) {
            expected.push(row.clone());
        }
    }
    expected
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_row_that_may_be_told_need_not_be_and_no_other_is() {
        let row = |key: &'static str| (None, Bytes::from(key));
        let there = [(row("k"), false), (row("l"), true), (row("k"), true), (row("m"), false)];
        let check = |told: &[&'static str]| {
            let told: Vec<Told> = told.iter().map(|key| row(key)).collect();
            check_told(b"b", b"f", &there, &told)
        };
        for told in [&["l", "k"][..], &["k", "l", "k"], &["l", "k", "m"], &["k", "l", "k", "m"]] {
            assert_eq!(check(told), Ok(()), "{told:?}");
        }
        for told in [&["k"][..], &["l"], &["l", "k", "m", "m"], &["k", "k", "l"], &["l", "k", "n"]] {
            assert!(check(told).is_err(), "{told:?}");
        }
    }
}
