//! The stash beside a list, and its findings of losses.

use super::record::StateHead;
use super::stash::{Stash, Stashed};
use super::{FoundContents, FoundGroup, GroupNumber, LogPlace};
use crate::entry::Jsn;
use crate::journal::segment::{Position, SegmentId};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

const GROUP: GroupNumber = GroupNumber(7);

fn entry(term: u64, jsn: u64) -> Stashed {
    let at = Position { segment: SegmentId(1), offset: jsn * 8 };
    let contents = FoundContents::Other(Bytes::copy_from_slice(&jsn.to_le_bytes()));
    Stashed { term, jsn: Jsn(jsn), at, len: 60, is_inline: false, contents }
}

/// A stash of one group that has entries of these places.
fn stash(places: &[(u64, u64)]) -> Stash {
    let mut stash = Stash::default();
    stash.set_state(GROUP, b"state");
    for (jsn, &(index, term)) in (1..).zip(places) {
        push(&mut stash, index, entry(term, jsn));
    }
    stash
}

/// As a store does; returns the fields of the record.
fn push(stash: &mut Stash, index: u64, entry: Stashed) -> bool {
    let replaces = stash.replaces(GROUP, LogPlace { index, term: entry.term });
    stash.push(GROUP, index, replaces, entry);
    replaces
}

fn found(mut stash: Stash) -> (Vec<(u64, u64)>, Option<u64>) {
    let [FoundGroup { entries, suspect_through, .. }] = &stash.settle()[..] else { panic!("one group") };
    (entries.iter().map(|entry| (entry.place.index, entry.place.term)).collect(), *suspect_through)
}

#[test]
fn an_entry_replaces_itself_alone_or_all_above() {
    let log = [(2, 1), (3, 1), (4, 1)];
    assert_eq!(found(stash(&log)), (log.to_vec(), None));
    assert_eq!(found(stash(&[&log[..], &[(3, 1)]].concat())), (log.to_vec(), None));
    assert_eq!(found(stash(&[&log[..], &[(3, 2)]].concat())), (vec![(2, 1), (3, 2)], None));
    let mut replaced = stash(&[&log[..], &[(3, 1)]].concat());
    assert_eq!(replaced.get(GROUP).unwrap().entries[&3].jsn, Jsn(4));
    assert!(replaced.take_dead().is_empty(), "entries without a key are log only");
}

#[test]
fn what_stands_behind_a_gap_is_dropped_and_makes_suspect() {
    assert_eq!(found(stash(&[(2, 1), (4, 1), (6, 1)])), (vec![(2, 1)], Some(6)));
    let mut lost = stash(&[(2, 1), (3, 1), (4, 1)]);
    lost.lose(GROUP, 3, false);
    assert_eq!(found(lost.clone()), (vec![(2, 1)], Some(4)));
    // The owner does not know of what stands behind the gap, so the next entry must say that it is gone.
    lost.settle();
    assert!(push(&mut lost, 3, entry(2, 9)) && !lost.replaces(GROUP, LogPlace { index: 4, term: 2 }));
    assert_eq!(found(lost), (vec![(2, 1), (3, 2)], Some(4)), "what was above was not written again");
    let mut other = stash(&[(2, 1), (3, 1), (4, 1)]);
    other.lose(GROUP, 3, true);
    push(&mut other, 3, entry(2, 9));
    push(&mut other, 4, entry(2, 10));
    assert_eq!(found(other), (vec![(2, 1), (3, 2), (4, 2)], None), "all is there again");
}

#[test]
fn a_loss_of_unknown_records_leaves_nothing_before_it() {
    let mut lost = stash(&[(2, 1), (3, 1)]);
    lost.lose_all();
    lost.push(GROUP, 4, false, entry(1, 9));
    assert_eq!(found(lost.clone()), (vec![], Some(4)));
    push(&mut lost, 2, entry(2, 10));
    push(&mut lost, 3, entry(2, 11));
    assert_eq!(found(lost), (vec![(2, 2), (3, 2)], None), "what was acknowledged is there again");
}

#[test]
fn a_mark_behind_a_loss_ends_the_suspicion_that_it_answers() {
    let mut lost = stash(&[(2, 1), (3, 1)]);
    lost.lose_any_mark();
    assert_eq!(lost.get(GROUP).unwrap().suspect_through, Some(3));
    for index in [2, 3] {
        assert_eq!(lost.apply_next(GROUP).unwrap().0, index);
    }
    assert_eq!(found(lost), (vec![], None), "all that it may have acknowledged is applied");

    let mut behind = stash(&[(2, 1), (3, 1)]);
    behind.lose_mark(GROUP, 4);
    assert_eq!(found(behind), (vec![(2, 1), (3, 1)], Some(4)), "entry 4 is missing");
}

#[test]
fn a_commit_index_tells_of_entries_that_are_missing() {
    let mut short = stash(&[(2, 1), (3, 1)]);
    short.note_commit(GROUP, 5);
    assert_eq!(found(short), (vec![(2, 1), (3, 1)], Some(5)));
    let mut stateless = Stash::default();
    push(&mut stateless, 2, entry(1, 1));
    assert_eq!(found(stateless), (vec![(2, 1)], Some(2)));
    let mut known = Stash::default();
    let applied = LogPlace { index: 4, term: 1 };
    let head = StateHead { installed: false, applied, commit: 4, suspect_through: 9, state: b"" };
    known.know(GROUP, &head);
    push(&mut known, 3, entry(1, 1));
    push(&mut known, 5, entry(1, 2));
    assert_eq!(found(known), (vec![(5, 1)], Some(9)));
}

#[derive(Clone, Debug)]
enum Step {
    /// So many entries of this term, from so many below the last one on.
    Push(u64, u64, u64),
    Apply(u64),
    Install(u64),
    Again,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0u64..4, 1u64..4, 0u64..2).prop_map(|(below, count, newer)| Step::Push(below, count, newer)),
        3 => (1u64..4).prop_map(Step::Apply),
        1 => (1u64..9).prop_map(Step::Install),
        2 => Just(Step::Again),
    ];
    vec(step, 1..60)
}

/// Number and index of a record, and term and flag of an entry.
type Written = (u64, u64, Option<(u64, bool)>);

proptest! {
    #[test]
    fn a_stash_is_a_log(steps in steps()) {
        let (mut stash, mut jsn, mut term, mut applied) = (stash(&[]), 0, 1, LogPlace::FOUNDED);
        // Term and number of the entries behind the last one applied.
        let mut log: Vec<(u64, u64)> = Vec::new();
        // All that was written: number, index, term and what the record says; nothing of a snapshot.
        let mut written: Vec<Written> = Vec::new();
        for step in steps {
            match step {
                Step::Push(below, count, newer) => {
                    let from = (log.len() as u64).saturating_sub(below);
                    term += newer;
                    for at in from..from + count {
                        jsn += 1;
                        let at_usize = usize::try_from(at).unwrap();
                        match log.get_mut(at_usize).filter(|(old, ..)| *old == term) {
                            Some((_, number)) => *number = jsn,
                            None => {
                                log.truncate(at_usize);
                                log.push((term, jsn));
                            }
                        }
                        let replaces = push(&mut stash, applied.index + 1 + at, entry(term, jsn));
                        written.push((jsn, applied.index + 1 + at, Some((term, replaces))));
                    }
                }
                Step::Apply(count) => {
                    for (term, jsn) in log.drain(..log.len().min(usize::try_from(count).unwrap())) {
                        let (index, entry) = stash.apply_next(GROUP).unwrap();
                        prop_assert_eq!((index, entry.term, entry.jsn.0), (applied.index + 1, term, jsn));
                        applied = LogPlace { index, term };
                    }
                }
                Step::Install(ahead) => {
                    let index = applied.index + log.len() as u64 + ahead;
                    applied = LogPlace { index, term };
                    jsn += 1;
                    written.push((jsn, index, None));
                    stash.install(GROUP, applied);
                    log.clear();
                }
                // As entries that are too old are written again.
                Step::Again => {
                    for (at, (term, number)) in (0..).zip(&mut log) {
                        jsn += 1;
                        *number = jsn;
                        written.push((jsn, applied.index + 1 + at, Some((*term, false))));
                        stash.push(GROUP, applied.index + 1 + at, false, entry(*term, jsn));
                    }
                }
            }
            let known = stash.get(GROUP).unwrap();
            prop_assert_eq!(known.applied, applied);
            let there: Vec<_> = known.entries.iter().map(|(&index, e)| (index, e.term, e.jsn.0)).collect();
            let expected = (applied.index + 1..).zip(&log).map(|(index, (term, jsn))| (index, *term, *jsn));
            prop_assert_eq!(&there, &expected.collect::<Vec<_>>());
            let oldest = log.iter().map(|(_, jsn)| Jsn(*jsn)).min();
            prop_assert_eq!(stash.oldest().map(|(_, _, jsn)| jsn), oldest);
            // The findings of a start that reads on from there.
            let mut again = Stash::default();
            let commit = applied.index;
            again.know(GROUP, &StateHead { installed: false, applied, commit, suspect_through: 0, state: b"" });
            for &(jsn, index, term) in written.iter().filter(|(jsn, ..)| oldest.is_some_and(|it| it.0 <= *jsn)) {
                match term {
                    Some((term, replaces)) => again.push(GROUP, index, replaces, entry(term, jsn)),
                    None => again.clear(GROUP),
                }
            }
            let found: Vec<_> =
                again.get(GROUP).unwrap().entries.iter().map(|(&index, e)| (index, e.term, e.jsn.0)).collect();
            prop_assert_eq!(found, there);
            prop_assert_eq!(stash.bytes() == 0, log.is_empty());
        }
        let whole = stash.settle();
        prop_assert_eq!((whole[0].entries.len(), whole[0].suspect_through), (log.len(), None));
    }
}
