//! Loom's models of the publication: every interleaving, and every value an atomic load may return, of a tiny list.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::index::hash;
use super::skiplist::{Inserter, SkipList};

/// Inserts before the race. By the constant seed of heights the seventh insert, the first to race, has three levels.
const BEFORE: [&[u8]; 6] = [b"b", b"d", b"f", b"h", b"j", b"l"];

/// Room for every key of a model, in few buckets.
const INDEX_KEYS: usize = 10;

fn insert(inserter: &mut Inserter, key: &[u8], seq: u64, entry: &[u8]) {
    inserter.insert(key, hash(key), seq, &[entry]);
}

fn get<'a>(list: &'a SkipList, key: &[u8], seq_max: u64) -> Option<(u64, &'a [u8])> {
    list.get(key, hash(key), seq_max)
}

fn newest_seq(list: &SkipList, key: &[u8]) -> Option<u64> {
    get(list, key, u64::MAX).map(|(seq, _)| seq)
}

#[test]
fn a_reader_sees_whole_entries_in_order() {
    loom::model(|| {
        let mut inserter = Inserter::new(INDEX_KEYS);
        for key in BEFORE {
            insert(&mut inserter, key, 1, key);
        }
        let list = Arc::clone(inserter.list());
        let reader = thread::spawn(move || {
            // Reading a header that the link did not publish fails the model.
            let seen: Vec<_> = list.iter().collect();
            assert!(seen.is_sorted_by(|a, b| (a.0, std::cmp::Reverse(a.1)) < (b.0, std::cmp::Reverse(b.1))));
            assert!(seen.iter().all(|(key, _, entry)| key == entry));
            assert!(BEFORE.iter().all(|key| list.search(key, 1) == Some((1, key))));
            // What was seen once stays, on the searching path too.
            assert!(seen.iter().all(|(key, seq, entry)| list.search(key, *seq) == Some((*seq, entry))));
        });
        insert(&mut inserter, b"g", 2, b"g");
        insert(&mut inserter, b"d", 3, b"d");
        reader.join().unwrap();
        assert_eq!(inserter.list().iter().count(), BEFORE.len() + 2);
    });
}

#[test]
fn an_insert_that_happened_before_is_found_at_every_level() {
    loom::model(|| {
        let mut inserter = Inserter::new(INDEX_KEYS);
        insert(&mut inserter, b"x", 1, b""); // the second insert has three levels, and raises the list's height
        let list = Arc::clone(inserter.list());
        let done = Arc::new(AtomicBool::new(false));
        let reader = thread::spawn({
            let done = Arc::clone(&done);
            move || {
                let is_done = done.load(Ordering::Acquire);
                let found = list.search(b"a", 9);
                assert!(found.is_none_or(|found| found == (1, b"A")));
                assert!(found.is_some() || !is_done);
            }
        });
        insert(&mut inserter, b"a", 1, b"A");
        done.store(true, Ordering::Release);
        insert(&mut inserter, b"b", 2, b"B");
        reader.join().unwrap();
    });
}

#[test]
fn an_insert_that_happened_before_is_found_through_the_index() {
    loom::model(|| {
        let mut inserter = Inserter::new(INDEX_KEYS);
        let list = Arc::clone(inserter.list());
        let done = Arc::new(AtomicBool::new(false));
        let reader = thread::spawn({
            let done = Arc::clone(&done);
            move || {
                let is_done = done.load(Ordering::Acquire);
                // Reading a header that the slot did not publish fails the model.
                let found = get(&list, b"a", 9);
                assert!(found.is_none_or(|found| found == (1, b"A") || found == (2, b"B")));
                assert!(found.is_some() || !is_done);
            }
        });
        insert(&mut inserter, b"a", 1, b"A");
        done.store(true, Ordering::Release);
        insert(&mut inserter, b"a", 2, b"B");
        reader.join().unwrap();
    });
}

#[test]
fn what_the_list_shows_of_a_key_the_index_shows_too() {
    loom::model(|| {
        let mut inserter = Inserter::new(INDEX_KEYS);
        let list = Arc::clone(inserter.list());
        let reader = thread::spawn(move || {
            let walked = list.iter().map(|(_, seq, _)| seq).next();
            let found = newest_seq(&list, b"a");
            assert!(found >= walked, "found {found:?} after {walked:?} was seen");
        });
        insert(&mut inserter, b"a", 1, b"A"); // a new key, and then a new version of it
        insert(&mut inserter, b"a", 2, b"B");
        reader.join().unwrap();
    });
}

#[test]
fn what_the_index_shows_of_a_key_stays_and_the_list_shows_too() {
    loom::model(|| {
        let mut inserter = Inserter::new(INDEX_KEYS);
        insert(&mut inserter, b"a", 1, b"A");
        let list = Arc::clone(inserter.list());
        let reader = thread::spawn(move || {
            let found = newest_seq(&list, b"a");
            let walked = list.iter().map(|(_, seq, _)| seq).next();
            let found_again = newest_seq(&list, b"a");
            assert!(found.is_some() && found <= walked && walked <= found_again);
        });
        insert(&mut inserter, b"a", 3, b"C");
        insert(&mut inserter, b"a", 2, b"B"); // an older version: the newest stays what it is
        reader.join().unwrap();
        assert_eq!(newest_seq(inserter.list(), b"a"), Some(3));
    });
}

#[test]
fn keys_that_share_a_bucket_are_told_apart_while_they_come() {
    loom::model(|| {
        let mut inserter = Inserter::new(1); // one bucket for all
        insert(&mut inserter, b"b", 1, b"b");
        let list = Arc::clone(inserter.list());
        let reader = thread::spawn(move || {
            assert_eq!(newest_seq(&list, b"b"), Some(1));
            let found = get(&list, b"c", 9);
            assert!(found.is_none_or(|found| found == (2, b"c")));
            assert!(found.is_none() || newest_seq(&list, b"c") == Some(2));
        });
        insert(&mut inserter, b"c", 2, b"c");
        insert(&mut inserter, b"d", 3, b"d");
        reader.join().unwrap();
    });
}

#[test]
fn what_is_deferred_disturbs_nobody_who_keeps_to_what_is_linked() {
    loom::model(|| {
        let mut inserter = Inserter::new(INDEX_KEYS);
        for key in BEFORE {
            insert(&mut inserter, key, 1, key);
        }
        let list = Arc::clone(inserter.list());
        let reader = thread::spawn(move || {
            assert_eq!(get(&list, b"d", 1), Some((1, &b"d"[..])));
            let seen: Vec<_> = list.iter().collect();
            assert!(seen.is_sorted_by(|a, b| (a.0, std::cmp::Reverse(a.1)) < (b.0, std::cmp::Reverse(b.1))));
            assert!(seen.iter().all(|(key, _, entry)| key == entry));
            // What a walk has met is linked, and found by any seq.
            assert!(seen.iter().all(|(key, seq, entry)| get(&list, key, *seq) == Some((*seq, entry))));
        });
        inserter.defer(b"g", hash(b"g"), 2, &[b"g"]);
        inserter.defer(b"d", hash(b"d"), 3, &[b"d"]);
        inserter.link_deferred();
        reader.join().unwrap();
        assert_eq!(inserter.list().iter().count(), BEFORE.len() + 2);
    });
}
