//! An honest store is never accused, and a lying one of each kind is caught.
//!
//! The store is a list of the writes that have taken effect. Operations begin, take effect at some moment between their
//! beginning and their end, and end; histories are random.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const KEY: Key = 42;

fn table() -> Table {
    Table::new(1 << 20, 1)
}

fn write(table: &Table) -> u32 {
    let ticket = table.begin_write(KEY, false);
    table.end_write(KEY, ticket, Outcome::Acknowledged);
    ticket.sequence
}

fn read(table: &Table, found: Found) -> Judgement {
    table.end_read(KEY, table.begin_read(KEY), found)
}

fn suspicion(judgement: Judgement) -> Suspicion {
    match judgement {
        Judgement::Suspect(suspicion) => suspicion,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_dropped_write_is_lost() {
    let table = table();
    let (old, _dropped) = (write(&table), write(&table));
    let suspicion = suspicion(read(&table, Found::Version(old)));
    assert_eq!(suspicion.explain(Found::Version(old)), None);
    assert!(table.tolerate(KEY, Found::Version(old)) && !table.tolerate(KEY, Found::Version(old)));
    assert_eq!(read(&table, Found::Version(old)), Judgement::Right);
    assert_eq!(suspicion.conclude(&table), Resolution::Cause(Cause::Lost));
    assert_eq!(suspicion.conclude(&table), Resolution::Known, "it is counted once");
}

#[test]
fn a_first_write_that_was_dropped_is_lost() {
    let table = table();
    write(&table);
    let suspicion = suspicion(read(&table, Found::Nothing));
    assert_eq!(suspicion.explain(Found::Nothing), None);
    assert_eq!(suspicion.conclude(&table), Resolution::Cause(Cause::Lost));
    assert!(table.tolerate(KEY, Found::Nothing));
    assert_eq!(read(&table, Found::Nothing), Judgement::Right);
}

#[test]
fn an_older_answer_is_stale() {
    let table = table();
    let (old, new) = (write(&table), write(&table));
    let suspicion = suspicion(read(&table, Found::Version(old)));
    assert_eq!(suspicion.explain(Found::Version(new)), Some(Resolution::Cause(Cause::Stale)));
    let newer = write(&table);
    assert_eq!(suspicion.explain(Found::Version(newer)), Some(Resolution::Unresolved));
    assert!(matches!(read(&table, Found::Earlier), Judgement::Suspect(_)));
}

#[test]
fn what_was_deleted_and_comes_back_is_resurrected() {
    let table = table();
    let old = write(&table);
    let delete = table.begin_write(KEY, true);
    assert_eq!(read(&table, Found::Nothing), Judgement::Right);
    assert_eq!(read(&table, Found::Version(old)), Judgement::Right);
    table.end_write(KEY, delete, Outcome::Acknowledged);
    assert_eq!(read(&table, Found::Nothing), Judgement::Right);
    let suspicion = suspicion(read(&table, Found::Version(old)));
    assert_eq!(suspicion.explain(Found::Version(old)), None);
    assert_eq!(suspicion.explain(Found::Nothing), Some(Resolution::Cause(Cause::Resurrected)));
    assert_eq!(suspicion.conclude(&table), Resolution::Cause(Cause::Resurrected));
}

#[test]
fn a_version_that_nobody_wrote_is_corrupt() {
    let table = table();
    let last = write(&table);
    assert_eq!(read(&table, Found::Version(last + 1)), Judgement::Corrupt);
    assert_eq!(read(&table, Found::Version(0)), Judgement::Corrupt);
}

#[test]
fn writes_in_doubt_may_show_at_any_time() {
    let table = table();
    let ticket = table.begin_write(KEY, false);
    table.end_write(KEY, ticket, Outcome::InDoubt);
    let (next, newest) = (write(&table), write(&table));
    assert_eq!(read(&table, Found::Version(ticket.sequence)), Judgement::Right);
    assert_eq!(read(&table, Found::Version(newest)), Judgement::Right);
    assert!(matches!(read(&table, Found::Version(next)), Judgement::Suspect(_)));
    let delete = table.begin_write(KEY, true);
    table.end_write(KEY, delete, Outcome::InDoubt);
    write(&table);
    assert_eq!(read(&table, Found::Nothing), Judgement::Right);
}

#[test]
fn with_too_much_in_doubt_nothing_is_compared() {
    let table = table();
    for _ in 0..17 {
        let ticket = table.begin_write(KEY, false);
        table.end_write(KEY, ticket, Outcome::InDoubt);
    }
    assert_eq!(read(&table, Found::Nothing), Judgement::NotCompared);
}

#[test]
fn a_full_table_says_so_and_a_sample_is_one() {
    let table = Table::new(1, 1);
    for key in 0..100_000 {
        let ticket = table.begin_write(key, false);
        table.end_write(key, ticket, Outcome::Acknowledged);
    }
    let keys = table.written(usize::MAX >> 11);
    assert_eq!(keys.len(), 1024);
    let outside = (0..100_000).find(|key| !keys.contains(key)).unwrap();
    assert_eq!(table.end_read(outside, table.begin_read(outside), Found::Nothing), Judgement::NotCompared);
    let sampled = Table::new(1 << 20, 10);
    for key in 0..10_000 {
        let ticket = sampled.begin_write(key, false);
        sampled.end_write(key, ticket, Outcome::Acknowledged);
    }
    assert!((800..1200).contains(&sampled.written(10_000).len()));
}

/// What a lying store does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    None,
    /// The write with this number takes no effect, and is acknowledged.
    Drop(u32),
    /// Reads answer what was there before the last effect.
    Older,
    /// Deletes take no effect.
    Undelete,
}

/// A store of one key, in which an operation takes effect at the moment it is told to.
struct Store {
    effects: Vec<Option<u32>>,
    lie: Lie,
}

impl Store {
    fn apply(&mut self, sequence: u32, is_delete: bool) {
        match self.lie {
            Lie::Drop(dropped) if dropped == sequence => {}
            Lie::Undelete if is_delete => {}
            _ => self.effects.push((!is_delete).then_some(sequence)),
        }
    }

    fn read(&self) -> Found {
        let back = if self.lie == Lie::Older { 2 } else { 1 };
        let version = self.effects.len().checked_sub(back).and_then(|at| self.effects[at]);
        version.map_or(Found::Nothing, Found::Version)
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin { kind: u8 },
    Effect { which: usize },
    End { which: usize, doubt: bool },
}

enum Running {
    Write { ticket: WriteTicket, is_delete: bool, done: bool },
    Read { ticket: ReadTicket, found: Option<Found> },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u8..6).prop_map(|kind| Step::Begin { kind }),
        any::<usize>().prop_map(|which| Step::Effect { which }),
        (any::<usize>(), prop::bool::weighted(0.1)).prop_map(|(which, doubt)| Step::End { which, doubt }),
    ]
}

/// Runs a history; what was suspected.
fn history(steps: &[Step], lie: Lie) -> Vec<Judgement> {
    let (table, mut store) = (table(), Store { effects: Vec::new(), lie });
    let (mut running, mut next, mut judgements) = (BTreeMap::new(), 0, Vec::new());
    for step in steps {
        let pick = |which: usize, running: &BTreeMap<i32, Running>| {
            running.keys().nth(which % running.len().max(1)).copied()
        };
        match *step {
            Step::Begin { kind } => {
                let operation = match kind {
                    0 | 1 => Running::Write {
                        ticket: table.begin_write(KEY, false),
                        is_delete: false,
                        done: false,
                    },
                    2 => {
                        Running::Write { ticket: table.begin_write(KEY, true), is_delete: true, done: false }
                    }
                    _ => Running::Read { ticket: table.begin_read(KEY), found: None },
                };
                running.insert(next, operation);
                next += 1;
            }
            Step::Effect { which } => {
                let Some(id) = pick(which, &running) else { continue };
                match running.get_mut(&id).unwrap() {
                    Running::Write { done: true, .. } => {}
                    Running::Write { ticket, is_delete, done } => {
                        store.apply(ticket.sequence, *is_delete);
                        *done = true;
                    }
                    Running::Read { found, .. } => *found = Some(store.read()),
                }
            }
            Step::End { which, doubt } => {
                let Some(id) = pick(which, &running) else { continue };
                match running.remove(&id).unwrap() {
                    Running::Write { ticket, done, is_delete } => {
                        // In doubt it may have been done, be done at once after the client has given up, or never.
                        let outcome = match (doubt, done) {
                            (true, _) => Outcome::InDoubt,
                            (false, true) => Outcome::Acknowledged,
                            (false, false) => {
                                store.apply(ticket.sequence, is_delete);
                                Outcome::Acknowledged
                            }
                        };
                        table.end_write(KEY, ticket, outcome);
                    }
                    Running::Read { ticket, found } => {
                        judgements.push(table.end_read(KEY, ticket, found.unwrap_or_else(|| store.read())));
                    }
                }
            }
        }
    }
    judgements
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn an_honest_store_is_never_accused(steps in prop::collection::vec(step(), 0..80)) {
        for judgement in history(&steps, Lie::None) {
            prop_assert!(matches!(judgement, Judgement::Right | Judgement::NotCompared), "{:?}", judgement);
        }
    }
}

/// Operations one after the other, so that every lie must show.
fn one_by_one(kinds: &[u8]) -> Vec<Step> {
    kinds.iter().flat_map(|&kind| [Step::Begin { kind }, Step::End { which: 0, doubt: false }]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_lie_is_caught_when_nothing_overlaps(writes in 2u32..20) {
        let mut kinds = vec![0u8; writes as usize];
        kinds.push(3);
        for lie in [Lie::Drop(writes), Lie::Older] {
            let last = history(&one_by_one(&kinds), lie).pop().unwrap();
            prop_assert!(matches!(last, Judgement::Suspect(_)), "{lie:?}: {last:?}");
        }
        kinds.insert(writes as usize, 2);
        let last = history(&one_by_one(&kinds), Lie::Undelete).pop().unwrap();
        let is_caught = matches!(last, Judgement::Suspect(Suspicion { from_before_delete: true, .. }));
        prop_assert!(is_caught);
    }
}
