//! Histories by hand, and random ones beside a checker that tries all orders.

use base::Rng;
use base::rng::SplitMix64;
use proptest::prelude::*;

use super::*;

const BUDGET: usize = 100_000;

fn operation(call: u64, end: u64, action: Action, outcome: Outcome) -> Operation {
    Operation { call, end, action, outcome }
}

fn put(call: u64, end: u64, value: Value) -> Operation {
    operation(call, end, Action::Put(value), Outcome::Done)
}

fn get(call: u64, end: u64, value: impl Into<Option<Value>>) -> Operation {
    operation(call, end, Action::Get, Outcome::Read(value.into()))
}

fn cas(call: u64, end: u64, expected: Value, value: Value, outcome: Outcome) -> Operation {
    operation(call, end, Action::Cas { expected, value }, outcome)
}

fn is_linearizable(history: &[Operation]) -> bool {
    match check(history, BUDGET) {
        Verdict::Linearizable => true,
        Verdict::Violation(_) => false,
        Verdict::Unknown => panic!("a history of a few operations is searched to the end"),
    }
}

#[test]
fn an_empty_history_is_linearizable() {
    assert!(is_linearizable(&[]));
}

#[test]
fn a_read_that_overlaps_a_write_may_see_either_value() {
    assert!(is_linearizable(&[put(1, 10, 7), get(2, 3, None)]));
    assert!(is_linearizable(&[put(1, 10, 7), get(2, 3, 7)]));
    assert!(is_linearizable(&[put(1, 10, 7), get(2, 3, None), get(4, 5, 7)]));
    assert!(!is_linearizable(&[put(1, 10, 7), get(2, 3, 7), get(4, 5, None)]), "the value goes away again");
}

#[test]
fn a_stale_read_is_found_and_named() {
    let history = [put(1, 2, 7), put(3, 4, 8), get(5, 6, 7), get(7, 8, 8)];
    let Verdict::Violation(violation) = check(&history, BUDGET) else { panic!("a stale read") };
    assert_eq!((violation.operation, violation.window), (2, (5, 6)));
    assert_eq!((violation.concurrent, violation.states), (vec![], vec![Some(8)]));
}

#[test]
fn an_explanation_names_the_operations_that_overlap() {
    let history = [put(1, 2, 7), put(3, 9, 8), get(5, 6, 9)];
    let Verdict::Violation(violation) = check(&history, BUDGET) else { panic!("a value from nowhere") };
    assert_eq!((violation.operation, violation.concurrent), (2, vec![1]));
    assert_eq!(violation.states, [Some(8), Some(7)]);
}

/// Each timeout may take effect at any time, so the orders are 2^60 and more.
#[test]
fn histories_with_many_timeouts_are_searched_to_the_end() {
    let open = |number: u64| {
        let action = match number % 3 {
            0 => Action::Delete,
            1 => Action::PutOnce(100 + number),
            _ => Action::Cas { expected: 7, value: 100 + number },
        };
        operation(number, number, action, Outcome::Timeout)
    };
    let reads = (0..20).map(|number| get(61 + 2 * number, 104, None));
    let mut history: Vec<Operation> = (1..=60).map(open).chain(reads).collect();
    history.push(put(62, 103, 7));
    history.push(get(105, 106, 7));
    assert!(is_linearizable(&history));
    history.push(get(107, 108, 9));
    assert!(!is_linearizable(&history), "nobody wrote this value");
}

#[test]
fn a_lost_update_is_found() {
    let both = [put(1, 2, 1), cas(3, 9, 1, 2, Outcome::Done), cas(4, 8, 1, 3, Outcome::Done)];
    assert!(!is_linearizable(&both));
    let one = [put(1, 2, 1), cas(3, 9, 1, 2, Outcome::Done), cas(4, 8, 1, 3, Outcome::Failed)];
    assert!(is_linearizable(&one));
}

#[test]
fn a_failed_condition_is_a_read() {
    assert!(!is_linearizable(&[put(1, 2, 1), cas(3, 4, 1, 2, Outcome::Failed)]), "the condition held");
    assert!(is_linearizable(&[put(1, 2, 1), cas(3, 4, 5, 2, Outcome::Failed)]));
    let once = |outcome| operation(3, 4, Action::PutOnce(2), outcome);
    assert!(!is_linearizable(&[put(1, 2, 1), once(Outcome::Done)]));
    assert!(is_linearizable(&[put(1, 2, 1), once(Outcome::Failed)]));
    assert!(!is_linearizable(&[once(Outcome::Failed)]));
    let delete_if = |expected, outcome| operation(3, 4, Action::DeleteIf { expected }, outcome);
    assert!(!is_linearizable(&[put(1, 2, 1), delete_if(2, Outcome::Done)]));
    assert!(is_linearizable(&[put(1, 2, 1), delete_if(1, Outcome::Done), get(5, 6, None)]));
}

#[test]
fn a_timeout_takes_effect_late_or_never() {
    let late = |outcome| operation(1, 2, Action::Put(7), outcome);
    let reads = [get(3, 4, None), get(5, 6, 7)];
    let with = |first| [&[first][..], &reads].concat();
    assert!(is_linearizable(&with(late(Outcome::Timeout))));
    assert!(!is_linearizable(&with(late(Outcome::Done))));
    assert!(!is_linearizable(&with(late(Outcome::Unavailable))), "unavailable never takes effect");
    assert!(is_linearizable(&[late(Outcome::Timeout), get(3, 4, None)]));
    assert!(!is_linearizable(&[late(Outcome::Timeout), get(3, 4, 7), get(5, 6, None)]));
    assert!(!is_linearizable(&[get(0, 0, 7), late(Outcome::Timeout)]), "no effect before its call");
}

#[test]
fn a_small_budget_ends_in_unknown() {
    let writes = (0..20).map(|value| put(1, 2, value));
    let history: Vec<Operation> = writes.chain([get(3, 4, 99)]).collect();
    assert_eq!(check(&history, 1_000), Verdict::Unknown);
}

#[test]
fn keys_are_independent() {
    let good = vec![put(1, 2, 7), get(3, 4, 7)];
    let bad = vec![get(3, 4, 7)];
    let keys = [(Bytes::from_static(b"a"), good), (Bytes::from_static(b"b"), bad)].into();
    let (key, verdict) = check_keys(&keys, BUDGET).unwrap_err();
    assert_eq!(key, "b");
    assert!(matches!(verdict, Verdict::Violation(_)));
}

/// A history of an atomic register: each operation has its effect at one instant within its window.
fn register_history(seed: u64, length: u64) -> Vec<Operation> {
    let mut rng = SplitMix64::new(seed);
    let (mut state, mut history) = (None, Vec::new());
    for number in 1..=length {
        let instant = 1_000 * number;
        let (call, end) = (instant - rng.below(1_000 * 4).min(instant), instant + rng.below(1_000 * 4));
        let expected = if rng.chance(2, 3) { state.unwrap_or(0) } else { rng.below(length) };
        let action = match rng.below(7) {
            0 => Action::Put(number),
            1 => Action::PutOnce(number),
            2 | 3 => Action::Cas { expected, value: number },
            4 => Action::Delete,
            5 => Action::DeleteIf { expected },
            _ => Action::Get,
        };

        let done = operation(call, end, action, Outcome::Done).apply(state);
        let mut outcome = match done {
            _ if action == Action::Get => Outcome::Read(state),
            Some(_) => Outcome::Done,
            None => Outcome::Failed,
        };
        if rng.chance(1, 8) && action != Action::Get {
            // The client does not learn the outcome, or the request was refused before it took effect.
            let refused = rng.chance(1, 2);
            outcome = if refused { Outcome::Unavailable } else { Outcome::Timeout };
            if !refused && rng.chance(1, 2) {
                state = done.unwrap_or(state);
            }
        } else if let Some(after) = done {
            state = after;
        }
        history.push(operation(call, end, action, outcome));
    }
    history
}

/// Whether some order of the operations explains their outcomes, found by trying all of them.
fn has_order(history: &[Operation], placed: u32, state: Option<Value>) -> bool {
    let open = |number: &usize| placed & 1 << number == 0;
    let definite = |number: &usize| history[*number].is_definite();
    let first_end = (0..history.len()).filter(open).filter(definite).map(|at| history[at].end).min();
    let Some(first_end) = first_end else { return true };
    (0..history.len()).filter(open).any(|number| {
        let operation = &history[number];
        operation.is_possible()
            && operation.call <= first_end
            && operation.apply(state).is_some_and(|after| has_order(history, placed | 1 << number, after))
    })
}

proptest! {
    #[test]
    fn histories_of_a_register_are_accepted(seed: u64, length in 1_u64..60) {
        let verdict = check(&register_history(seed, length), STATES_MAX);
        prop_assert_eq!(verdict, Verdict::Linearizable);
    }

    #[test]
    fn verdicts_of_short_histories_are_those_of_all_orders(seed: u64, length in 1_u64..8, changes in 0_u64..3) {
        let mut history = register_history(seed, length);
        let mut rng = SplitMix64::new(!seed);
        for _ in 0..changes {
            let at = usize::try_from(rng.below(length)).unwrap();
            history[at].outcome = match history[at].outcome {
                Outcome::Read(_) => Outcome::Read(Some(rng.below(length + 1)).filter(|value| *value > 0)),
                Outcome::Done => Outcome::Failed,
                Outcome::Failed => Outcome::Done,
                Outcome::Timeout => Outcome::Unavailable,
                Outcome::Unavailable => Outcome::Done,
            };
        }
        let expected = has_order(&history, 0, None);
        let verdict = check(&history, STATES_MAX);
        prop_assert_eq!(verdict == Verdict::Linearizable, expected, "{:?}", history);
    }

    #[test]
    fn a_value_that_was_never_written_is_refused(seed: u64, length in 1_u64..40) {
        let mut history = register_history(seed, length);
        let reads = history.iter_mut().filter(|operation| operation.action == Action::Get);
        if let Some(read) = reads.last() {
            read.outcome = Outcome::Read(Some(length + 1));
            prop_assert!(matches!(check(&history, STATES_MAX), Verdict::Violation(_)));
        }
    }
}
