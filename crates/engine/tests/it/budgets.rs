//! Large values and records within memory that several stores share.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::{HandClock, open, small};
use base::Budget;
use engine::{Error, Options};

const LARGE: usize = 100 << 10;

#[test]
fn a_value_takes_memory_until_its_last_slice_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let budget = Budget::new(LARGE + LARGE / 2);
    let options = Options { value_budget: Some(budget.clone()), segment_bytes_target: 1 << 20, ..small() };
    let mut store = open(dir.path(), &options, &HandClock::new());
    for key in [b"a", b"b"] {
        store.put(key, b"head", &vec![key[0]; LARGE]).unwrap();
    }
    store.put(b"small", b"head", &[1; 1000]).unwrap();
    let mut lookup = |key: &[u8]| store.get(key).map(|found| found.unwrap().value.unwrap());
    let first = lookup(b"a").unwrap();
    let slice = first.slice(10..20);
    assert!(budget.used() >= LARGE);
    assert!(matches!(lookup(b"b"), Err(Error::Full { what: "the memory for values", .. })));
    assert_eq!(lookup(b"small").unwrap().len(), 1000, "small values take none");
    drop(first);
    assert!(lookup(b"b").is_err(), "a slice holds all of it");
    drop(slice);
    assert_eq!(lookup(b"b").unwrap()[..], vec![b'b'; LARGE]);
    assert_eq!((budget.used(), budget.refused()), (0, 2));
}

#[test]
fn large_records_take_memory_until_the_disk_has_them() {
    const RECORD: usize = 300 << 10;
    let dir = tempfile::tempdir().unwrap();
    let budget = Budget::new(2 * RECORD);
    let options = Options {
        journal_budget: Some(budget.clone()),
        journal_queue_bytes_max: 64 << 10,
        segment_bytes_target: 4 << 20,
        ..small()
    };
    let mut store = open(dir.path(), &options, &HandClock::new());
    // Somebody else's records.
    let others = budget.reserve(2 * RECORD).unwrap();
    assert!(matches!(store.put(b"a", b"head", &vec![1; RECORD]), Err(Error::Full { .. })));
    store.put(b"small", b"head", &[1; 1000]).unwrap();
    drop(others);
    for round in 0..4 {
        store.put(b"a", b"head", &vec![round; RECORD]).unwrap();
    }
    assert_eq!(store.get(b"a").unwrap().unwrap().value.unwrap().len(), RECORD);
    store.close().unwrap();
    assert_eq!(budget.used(), 0);
}
