//! No acknowledged write is lost: in the end it is shown, or was replaced by a write that may have replaced it.
//!
//! * In a bucket with siblings that is a write whose context had seen it, or a delete without a context.
//! * In a bucket without, it is any write that it had not itself replaced (`siblings.rs` and `deletes.rs` see to
//!   that); and the version that is there remembers it.

use super::history::KeyHistory;
use crate::check::history::{KeyName, Kind};
use crate::check::siblings::Shown;
use crate::check::{Verdict, Violation};
use base::Monotonic;
use object::Context;
use std::collections::BTreeSet;

const CHECKER: &str = "no acknowledged write is lost";

/// Checks what all replicas have come to agree on.
pub(super) fn check(of_key: &KeyHistory, key: &KeyName, shown: &Shown, context: &Context) -> Verdict {
    let lost = |number: u64, how: &str| Err(Violation::new(CHECKER, format!("{key}: {number} {how}")));
    let acknowledged = of_key.writes.iter().filter(|write| write.acknowledged.is_some());
    let numbers: BTreeSet<u64> = acknowledged.filter_map(|write| write.number()).collect();
    for number in numbers.into_iter().filter(|number| !shown.shows(*number)) {
        if key.has_siblings() && !may_be_replaced(of_key, number) {
            return lost(number, "is gone");
        }
        if key.has_memory() && !is_remembered(of_key, number, context) {
            return lost(number, "is forgotten");
        }
        if !key.has_siblings() && shown.numbers.is_empty() && !of_key.has_deletes() {
            return lost(number, "is gone, and nothing came in its place");
        }
    }
    Ok(())
}

/// Whether some write may have taken `number` away. A context covers only what somebody was shown, so a number
/// whose dot nobody has seen can have been taken by a delete without a context only, or by an erase, whose fold tells
/// of what a single node has. Of a number that was written twice one dot is enough: the other may belong to the write
/// that failed.
fn may_be_replaced(of_key: &KeyHistory, number: u64) -> bool {
    let began = of_key.of(number).map(|write| write.started).min();
    let is_later = |at: Monotonic| Some(at) > began;
    let deletes = || of_key.writes.iter().filter(|write| write.kind == Kind::Delete);
    let by_delete = deletes()
        .filter(|write| write.context.is_none())
        .any(|write| write.acknowledged.is_none_or(|known| is_later(known.at)));
    let is_unseen = of_key.dots_of(number).count() < of_key.of(number).count();
    let by_erase = is_unseen && deletes().filter_map(|write| write.told).any(is_later);
    let by_context = some_or_all(of_key, number, |dot| of_key.writes.iter().any(|write| write.covers(dot)));
    by_delete || by_erase || by_context
}

/// Whether the version that is there came after `number`, as far as that can be told.
fn is_remembered(of_key: &KeyHistory, number: u64, context: &Context) -> bool {
    of_key.dots_of(number).next().is_none() || some_or_all(of_key, number, |dot| context.covers(dot))
}

/// Whether `is` holds for the dot of `number`, or, if it was written more than once, for one of its dots. False if
/// it has none.
fn some_or_all(of_key: &KeyHistory, number: u64, is: impl Fn(object::Dot) -> bool) -> bool {
    of_key.dots_of(number).any(is)
}
