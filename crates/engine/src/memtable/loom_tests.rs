//! Loom's models of the publication: every interleaving, and every value an atomic load may return, of a tiny list.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::filter::{Filter, hash};
use super::skiplist::Inserter;

/// Inserts before the race. By the constant seed of heights the seventh insert, the first to race, has three levels.
const BEFORE: [&[u8]; 6] = [b"b", b"d", b"f", b"h", b"j", b"l"];

#[test]
fn a_reader_sees_whole_entries_in_order() {
    loom::model(|| {
        let mut inserter = Inserter::new();
        for key in BEFORE {
            inserter.insert(key, 1, &[key]);
        }
        let list = Arc::clone(inserter.list());
        let reader = thread::spawn(move || {
            // Reading a header that the link did not publish fails the model.
            let seen: Vec<_> = list.iter().collect();
            assert!(seen.is_sorted_by(|a, b| (a.0, std::cmp::Reverse(a.1)) < (b.0, std::cmp::Reverse(b.1))));
            assert!(seen.iter().all(|(key, _, entry)| key == entry));
            assert!(BEFORE.iter().all(|key| list.get(key, 1) == Some((1, key))));
            // What was seen once stays, on the searching path too.
            assert!(seen.iter().all(|(key, seq, entry)| list.get(key, *seq) == Some((*seq, entry))));
        });
        inserter.insert(b"g", 2, &[b"g"]);
        inserter.insert(b"d", 3, &[b"d"]);
        reader.join().unwrap();
        assert_eq!(inserter.list().iter().count(), BEFORE.len() + 2);
    });
}

#[test]
fn an_insert_that_happened_before_is_found_at_every_level() {
    loom::model(|| {
        let mut inserter = Inserter::new();
        inserter.insert(b"x", 1, &[]); // the second insert has three levels, and raises the list's height
        let list = Arc::clone(inserter.list());
        let done = Arc::new(AtomicBool::new(false));
        let reader = thread::spawn({
            let done = Arc::clone(&done);
            move || {
                let is_done = done.load(Ordering::Acquire);
                let found = list.get(b"a", 9);
                assert!(found.is_none_or(|found| found == (1, b"A")));
                assert!(found.is_some() || !is_done);
            }
        });
        inserter.insert(b"a", 1, &[b"A"]);
        done.store(true, Ordering::Release);
        inserter.insert(b"b", 2, &[b"B"]);
        reader.join().unwrap();
    });
}

#[test]
fn a_key_seen_in_the_list_is_in_the_filter() {
    loom::model(|| {
        let mut inserter = Inserter::new();
        let filter = Arc::new(Filter::new(1));
        let (list, filter_read) = (Arc::clone(inserter.list()), Arc::clone(&filter));
        let reader = thread::spawn(move || {
            for (key, ..) in list.iter() {
                assert!(filter_read.contains(hash(key)));
            }
        });
        // The memtable's order: first the filter, then the list.
        filter.insert(hash(b"a"));
        inserter.insert(b"a", 1, &[]);
        reader.join().unwrap();
    });
}
