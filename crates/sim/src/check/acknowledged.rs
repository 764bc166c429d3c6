//! What was acknowledged is there until something may have replaced it, and so is what a reader was shown.
//!
//! * In a bucket with siblings only a later write whose context covers a sibling takes it away, or a delete
//!   without a context.
//! * In a bucket without, a read shows a write than which no later one is known for certain.

use super::history::{History, KeyHistory, KeyName, Kind, Moment, Write};
use super::siblings::Shown;
use super::{Verdict, Violation};
use std::collections::BTreeSet;

const ACKNOWLEDGED: &str = "what was acknowledged is kept";
const SHOWN: &str = "what was shown is kept";

/// Checks what was shown to a reader whose request came at `started`.
pub(super) fn check(history: &History, key: &KeyName, shown: &Shown, started: Moment) -> Verdict {
    let Some(of_key) = history.key(key) else { return Ok(()) };
    match key.has_siblings() {
        true => check_siblings(history, key, shown, started),
        false => check_newest(of_key, key, shown, started),
    }
}

fn check_siblings(history: &History, key: &KeyName, shown: &Shown, started: Moment) -> Verdict {
    let Some(of_key) = history.key(key) else { return Ok(()) };
    let numbers: BTreeSet<u64> = of_key.writes.iter().filter_map(number_of).collect();
    for number in numbers.into_iter().filter(|number| !shown.shows(*number)) {
        let told = of_key.of(number).find(|write| write.acknowledged.is_some_and(|known| known.at < started));
        let observed = of_key.observed.get(&number).is_some_and(|known| known.at < started);
        if (told.is_some() || observed) && !may_be_replaced(of_key, number, history.is_lossy()) {
            let checker = if told.is_some() { ACKNOWLEDGED } else { SHOWN };
            return Err(Violation::new(checker, format!("{key}: {number} is gone")));
        }
    }
    Ok(())
}

fn number_of(write: &Write) -> Option<u64> {
    match write.kind {
        Kind::Put(number) => Some(number),
        Kind::Delete => None,
    }
}

/// Whether some write may have taken `number` away. A context covers only what some reader was shown, so a
/// number whose dot nobody has seen can have been taken by a delete without a context only. A number that was
/// written twice has two dots, both to be taken, unless a death may have taken one.
fn may_be_replaced(of_key: &KeyHistory, number: u64, lossy: bool) -> bool {
    let began = of_key.of(number).map(|write| write.started).min();
    let others = || of_key.writes.iter().filter(|write| !write.refused);
    let by_delete =
        others().filter(|write| write.covers_all()).any(|write| write.ended.is_none_or(|e| Some(e) > began));
    let by_context = of_key.dots.get(&number).is_some_and(|dots| {
        let mut covered = dots.iter().map(|dot| others().any(|write| write.covers(*dot)));
        if lossy { covered.any(|covered| covered) } else { covered.all(|covered| covered) }
    });
    by_delete || by_context
}

fn check_newest(of_key: &KeyHistory, key: &KeyName, shown: &Shown, started: Moment) -> Verdict {
    let candidates: Vec<&Write> = match shown.numbers.first() {
        Some((_, number)) => of_key.of(*number).filter(|write| !write.refused).collect(),
        None => of_key.writes.iter().filter(|write| write.kind == Kind::Delete && !write.refused).collect(),
    };
    let initial = shown.numbers.is_empty().then_some(Moment::default());
    let ends = candidates.iter().map(|write| of_key.ended(write)).chain(initial.map(Some));
    // Of each candidate, a later write that is known to have taken effect; `None` if there is none.
    let mut later = None;
    for end in ends {
        let Some(end) = end else { return Ok(()) };
        let Some(write) = known_after(of_key, key, end, started) else { return Ok(()) };
        later = Some(write);
    }
    let what = match shown.numbers.first() {
        Some((_, number)) => format!("{number}"),
        None => "nothing".to_owned(),
    };
    let Some(later) = later else {
        return Err(Violation::new(ACKNOWLEDGED, format!("{key} shows {what}, which nobody wrote")));
    };
    let checker = if later.acknowledged.is_some() { ACKNOWLEDGED } else { SHOWN };
    Err(Violation::new(checker, format!("{key} shows {what}, though {:?} came later", later.kind)))
}

/// A write that began after `end` and is known to have taken effect before `started`.
fn known_after<'a>(of_key: &'a KeyHistory, key: &KeyName, end: Moment, started: Moment) -> Option<&'a Write> {
    // A change of properties is in force at once, and acknowledged later: seeing it promises nothing.
    let known = |write: &Write| match key.is_props() {
        true => write.acknowledged.map(|known| known.at),
        false => of_key.known(write),
    };
    of_key
        .writes
        .iter()
        .find(|write| write.started > end && known(write).is_some_and(|known| known < started))
}
