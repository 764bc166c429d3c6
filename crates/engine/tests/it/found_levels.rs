//! Lookups are counted by where their key was found.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::{HandClock, open};
use engine::{Embedded, Options};

#[test]
fn a_lookup_counts_where_its_key_was_found_and_nowhere_if_it_was_not() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), HandClock::new());
    let found = |store: &mut Embedded| {
        let counters = store.store().stats().counters;
        (counters.found_in_memtable, counters.found_in_level.iter().sum::<u64>(), counters.found_in_level[0])
    };
    let mut store = open(folder.path(), &Options::default(), &clock);
    store.put(b"a", b"head", &[7; 1000]).unwrap();
    store.put(b"b", b"head", b"inline").unwrap();
    store.delete(b"b").unwrap();
    for key in [b"a", b"b", b"c"] {
        store.get(key).unwrap();
        store.head(key).unwrap();
    }
    assert_eq!(found(&mut store), (2, 0, 0));
    store.close().unwrap();
    // A clean stop has flushed the memtable.
    let mut store = open(folder.path(), &Options::default(), &clock);
    for key in [b"a", b"b", b"c"] {
        store.get(key).unwrap();
    }
    assert_eq!(found(&mut store), (0, 1, 1));
}
