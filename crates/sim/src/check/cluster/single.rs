//! The promises of a single replica, checked at every read.
//!
//! * A read shows only writes that were requested, each at most as often as requested, and none that is known to be
//!   replaced.
//! * An acknowledged write stays until another write may have replaced it. At durability `sync` so does a write that
//!   was shown. In a bucket with siblings, only a write with a context that covers a sibling replaces it, or a delete
//!   without a context. In a bucket without siblings, a read shows a write that no other write is known to follow.
//!
//! A request that the network doubled is two requests.

use super::history::{History, KeyHistory, Write};
use crate::check::history::{KeyName, Kind};
use crate::check::siblings::Shown;
use crate::check::{Verdict, Violation};
use base::Monotonic;
use std::collections::{BTreeMap, BTreeSet};

const WRITTEN: &str = "reads return only written values";
const ACKNOWLEDGED: &str = "acknowledged writes are kept";
const SHOWN: &str = "values once read are kept";

/// Checks an answer to a request that came at `began`.
pub(super) fn check(history: &History, key: &KeyName, shown: &Shown, began: Monotonic) -> Verdict {
    let empty = KeyHistory::default();
    let of_key = history.key(key).unwrap_or(&empty);
    check_written(of_key, key, shown, began)?;
    match key.has_siblings() {
        true => check_siblings(of_key, key, shown, began, history.is_lossy),
        false => check_newest(of_key, key, shown, began),
    }
}

fn check_written(of_key: &KeyHistory, key: &KeyName, shown: &Shown, began: Monotonic) -> Verdict {
    let broken = |what: String| Err(Violation::new(WRITTEN, format!("{key}: {what}")));
    let mut times = BTreeMap::<u64, usize>::new();
    for (dot, number) in &shown.numbers {
        let asked = of_key.of(*number).filter(|write| !write.refused).count();
        let seen = times.entry(*number).or_default();
        *seen += 1;
        if *seen > asked {
            return broken(format!("{number} is shown {seen} times and was written {asked} times"));
        }
        if !key.has_siblings() {
            continue;
        }
        let replaced = |by: &&Write| {
            of_key.known(by).is_some_and(|known| known < began)
                && (dot.is_some_and(|dot| by.covers(dot))
                    || by.covers_all() && all_before(of_key, *number, by))
        };
        if let Some(by) = of_key.writes.iter().find(replaced) {
            return broken(format!("{number} is back, though {:?} had replaced it", by.kind));
        }
    }
    let siblings = shown.numbers.len() + shown.tombstones.len();
    if !key.has_siblings() && siblings > 1 {
        return broken(format!("{siblings} siblings in a bucket without siblings"));
    }
    Ok(())
}

/// Whether every write of `number` was over when `by` began.
fn all_before(of_key: &KeyHistory, number: u64, by: &Write) -> bool {
    of_key.of(number).all(|write| write.over.is_some_and(|over| over < by.started))
}

fn check_siblings(
    of_key: &KeyHistory,
    key: &KeyName,
    shown: &Shown,
    began: Monotonic,
    is_lossy: bool,
) -> Verdict {
    let is_acknowledged = |write: &&Write| write.acknowledged.is_some_and(|known| known.at < began);
    let acknowledged: BTreeSet<u64> =
        of_key.writes.iter().filter(is_acknowledged).filter_map(Write::number).collect();
    let observed = of_key.observed.iter().filter(|(_, at)| **at < began).map(|(number, _)| *number);
    let observed = observed.filter(|number| !acknowledged.contains(number));
    for number in acknowledged.iter().copied().chain(observed).filter(|number| !shown.shows(*number)) {
        if !may_be_replaced(of_key, number, is_lossy) {
            let checker = if acknowledged.contains(&number) { ACKNOWLEDGED } else { SHOWN };
            return Err(Violation::new(checker, format!("{key}: {number} is gone")));
        }
    }
    Ok(())
}

/// Whether some write may have taken `number` away. A context covers only what some reader was shown, so a
/// number whose dot nobody has seen can have been taken by a delete without a context only. A number that was
/// written twice has two dots, both to be taken, unless a death may have taken one.
fn may_be_replaced(of_key: &KeyHistory, number: u64, is_lossy: bool) -> bool {
    let began = of_key.of(number).map(|write| write.started).min();
    let others = || of_key.writes.iter().filter(|write| !write.refused);
    let by_delete = others()
        .filter(|write| write.covers_all())
        .any(|write| write.over.is_none_or(|over| Some(over) >= began));
    let by_context = of_key.dots.get(&number).is_some_and(|dots| {
        let mut covered = dots.iter().map(|dot| others().any(|write| write.covers(*dot)));
        if is_lossy { covered.any(|covered| covered) } else { covered.all(|covered| covered) }
    });
    by_delete || by_context
}

/// Checks an answer about a key without siblings, or about properties.
pub(super) fn check_newest(of_key: &KeyHistory, key: &KeyName, shown: &Shown, began: Monotonic) -> Verdict {
    let candidates: Vec<&Write> = match shown.numbers.first() {
        Some((_, number)) => of_key.of(*number).filter(|write| !write.refused).collect(),
        None => of_key.writes.iter().filter(|write| write.kind == Kind::Delete && !write.refused).collect(),
    };
    let initial = shown.numbers.is_empty().then_some(Monotonic(0));
    let ends = candidates.iter().map(|write| of_key.over(write)).chain(initial.map(Some));
    // Of each candidate, a later write that is known to have taken effect; `None` if there is none.
    let mut later = None;
    for end in ends {
        let Some(end) = end else { return Ok(()) };
        let Some(write) = known_after(of_key, key, end, began) else { return Ok(()) };
        later = Some(write);
    }
    let what = match shown.numbers.first() {
        Some((_, number)) => format!("{number}"),
        None => "nothing".to_owned(),
    };
    let Some(later) = later else {
        return Err(Violation::new(ACKNOWLEDGED, format!("{key} shows {what}, which was never written")));
    };
    let checker = if later.acknowledged.is_some() { ACKNOWLEDGED } else { SHOWN };
    Err(Violation::new(checker, format!("{key} shows {what}, though {:?} came later", later.kind)))
}

/// A write that began after `end` and is known to have taken effect before `began`.
fn known_after<'a>(
    of_key: &'a KeyHistory,
    key: &KeyName,
    end: Monotonic,
    began: Monotonic,
) -> Option<&'a Write> {
    // A change of properties is in force at once, and acknowledged later: seeing it promises nothing.
    let known = |write: &Write| match key.is_props() {
        true => write.acknowledged.map(|known| known.at),
        false => of_key.known(write),
    };
    let mut writes = of_key.writes.iter();
    writes.find(|write| write.started > end && known(write).is_some_and(|known| known < began))
}
