//! Calls of the embedded store that the model tests do not make: conditions, durability of a batch, many keys, sorted
//! loads, stores of heads only, and the end of a store.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::jobs::while_waiting;
use crate::common::{HandClock, machine, open, small};
use engine::{Condition, Durability, Embedded, Error, Machine, Options, Write};
use std::path::Path;

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

#[test]
fn a_condition_is_held_against_the_newest_version() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let mut store = open(folder.path(), &small(), &clock);
    let first = store.put_if(b"a", None, b"1", b"").unwrap().unwrap();
    assert_eq!(store.put_if(b"a", None, b"2", b"").unwrap(), Err(Some(first)));
    let second = store.put_if(b"a", Some(first), b"2", b"").unwrap().unwrap();
    assert_eq!(store.put_if(b"a", Some(first), b"3", b"").unwrap(), Err(Some(second)));
    // In tables, far from the memtable.
    for number in 0..3000 {
        store.put(&key(number), b"head", &[1; 100]).unwrap();
    }
    let conditions = [Condition { key: b"a", version: Some(second) }, Condition { key: b"b", version: None }];
    let batch = [Write::Delete { key: b"a" }, Write::Put { key: b"b", head: b"1", value: &[] }];
    let written = store.write_if(&conditions, &batch).unwrap().unwrap();
    assert_eq!(store.write_if(&conditions, &batch).unwrap(), Err((0, None)));
    let conditions = [Condition { key: b"a", version: None }, Condition { key: b"b", version: None }];
    assert_eq!(store.write_if(&conditions, &batch).unwrap(), Err((1, Some(written))));
    // What was dropped or has ended is not there.
    store.drop_range(b"b", b"c").unwrap();
    store.put_for(b"b", b"2", b"", std::time::Duration::from_millis(5)).unwrap();
    assert!(store.put_if(b"b", None, b"3", b"").unwrap().is_err());
    clock.advance_ms(5);
    assert!(store.put_if(b"b", None, b"3", b"").unwrap().is_ok());
}

#[test]
fn a_batch_has_a_durability_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), &small(), &HandClock::new());
    let syncs = store.store().stats().journal.syncs;
    store.put(b"a", b"", b"").unwrap();
    assert_eq!(store.store().stats().journal.syncs, syncs);
    let batch = [Write::Put { key: b"b", head: b"", value: &[] }];
    let seq = store.write_with(&batch, Durability::Sync).unwrap();
    assert!(store.store().reached(Durability::Sync) >= seq);
    assert_eq!(store.store().stats().journal.syncs, syncs + 1);
    let seq = store.write_with(&batch, Durability::None).unwrap();
    assert!(store.store().reached(Durability::Sync) < seq);
}

#[test]
fn many_keys_come_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), &small(), &HandClock::new());
    for number in 0..2000 {
        store.put(&key(number), &number.to_le_bytes(), &vec![1; (number % 150) as usize]).unwrap();
    }
    let keys: Vec<Vec<u8>> = (0..5000).map(|n| key(n * 7919 % 2500)).collect();
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    for (key, many) in keys.iter().zip(store.get_many(&asked)) {
        assert_eq!(many.unwrap(), store.get(key).unwrap());
    }
    for (key, many) in keys.iter().zip(store.head_many(&asked)) {
        assert_eq!(many.unwrap(), store.head(key).unwrap());
    }
    assert!(matches!(store.reader().get_many(&asked), Err(Error::TooLarge { .. })));
}

fn load(store: &mut Embedded, numbers: impl Iterator<Item = u64>, head: &[u8]) {
    let mut load = store.load().unwrap();
    for number in numbers {
        load.put(&key(number), head, &vec![number as u8; (number % 200) as usize]).unwrap();
    }
    load.finish().unwrap();
}

fn check(store: &mut Embedded, number: u64, head: Option<&[u8]>) {
    let found = store.get(&key(number)).unwrap();
    let expected = head.map(|head| (head.to_vec(), vec![number as u8; (number % 200) as usize]));
    assert_eq!(found.map(|f| (f.head.to_vec(), f.value.unwrap().to_vec())), expected, "{number}");
}

#[test]
fn a_sorted_load_is_as_if_written() {
    let folder = tempfile::tempdir().unwrap();
    let options = small();
    let mut store = open(folder.path(), &options, &HandClock::new());
    store.put(b"before", b"1", b"").unwrap();
    load(&mut store, (0..6000).step_by(2), b"loaded");
    let stats = store.store().stats();
    assert!(stats.tables > 5 && stats.levels[0].tables <= 1, "{stats:?}");
    // Over what is there: the load is the newest.
    for number in 1000..1500 {
        store.put(&key(number), b"written", &vec![number as u8; (number % 200) as usize]).unwrap();
    }
    load(&mut store, (1200..2000).step_by(3), b"again");
    let expected = |number: u64| match number {
        1200..2000 if number.is_multiple_of(3) => Some(&b"again"[..]),
        1000..1500 => Some(&b"written"[..]),
        0..6000 if number.is_multiple_of(2) => Some(&b"loaded"[..]),
        _ => None,
    };
    for life in 0..3 {
        for number in 0..6001 {
            check(&mut store, number, expected(number));
        }
        assert!(store.head(b"before").unwrap().is_some());
        if life == 0 {
            drop(store);
        } else {
            store.close().unwrap();
        }
        store = open(folder.path(), &options, &HandClock::new());
        assert_eq!(store.report().replayed, 0, "the load left nothing to replay");
    }
    // Disorder is refused, and what was given up leaves no table behind.
    let tables = store.store().stats().tables;
    let mut given_up = store.load().unwrap();
    given_up.put(b"x", b"", b"").unwrap();
    assert!(matches!(given_up.put(b"x", b"", b""), Err(Error::Refused(_))));
    drop(given_up);
    assert_eq!(store.store().stats().tables, tables);
    let files = std::fs::read_dir(folder.path().join("tables")).unwrap().count();
    assert_eq!(files, tables);
}

#[test]
fn a_store_of_heads_only_takes_no_value() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { heads_only: true, ..small() };
    let mut store = open(folder.path(), &options, &HandClock::new());
    for number in 0..3000 {
        store.put(&key(number), &number.to_le_bytes(), b"").unwrap();
    }
    assert!(matches!(store.put(b"a", b"", b"v"), Err(Error::Refused(_))));
    drop(store);
    let mut store = open(folder.path(), &options, &HandClock::new());
    assert_eq!(store.head(&key(7)).unwrap().unwrap().head[..], 7u64.to_le_bytes());
    assert_eq!(store.store().stats().counters.journal_reads_wanted, 0);
}

fn files_below(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries.map(|entry| if entry.path().is_dir() { files_below(&entry.path()) } else { 1 }).sum()
}

#[test]
fn a_destroyed_store_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let mut store = Embedded::open(folder.path(), small(), machine(&clock)).unwrap();
    assert!(store.is_empty().unwrap());
    for number in 0..3000 {
        store.put(&key(number), b"", &[1; 100]).unwrap();
    }
    assert!(!store.is_empty().unwrap());
    store.drop_range(b"", b"").unwrap();
    assert!(store.is_empty().unwrap());
    store.put(b"a", b"", b"").unwrap();
    store.destroy().unwrap();
    assert_eq!(files_below(folder.path()), 0);
    let mut store = open(folder.path(), &small(), &clock);
    assert!(store.report().created && store.head(b"a").unwrap().is_none());
}

#[test]
fn jobs_elsewhere_are_waited_for_where_there_is_no_room_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let disks = os::OsDisk::blocking().blocking_handles();
    let machine = Machine::new(disks.clone(), HandClock::new(), os::OsRng::new())
        .with_jobs(move || Ok(while_waiting(disks())));
    let mut store = Embedded::open(folder.path(), small(), machine).unwrap();
    let mut written = 0;
    while store.store().pressure() < 400 {
        store.put(&key(written), b"head", &[1; 100]).unwrap();
        written += 1;
    }
    // A memtable is full by now, and its flush under way.
    assert!(store.store().is_maintaining());
    assert_eq!(store.store().stats().counters.flushes, 0);
    for number in written..5000 {
        store.put(&key(number), b"head", &[1; 100]).unwrap();
        assert!(store.store().pressure() <= 1000);
    }
    assert!(store.store().stats().counters.flushes > 0);
    store.flush().unwrap();
    store.compact().unwrap();
    assert!((0..5000).all(|number| store.head(&key(number)).unwrap().is_some()));
    store.close().unwrap();
    let mut store = open(folder.path(), &small(), &HandClock::new());
    assert_eq!(store.report().replayed, 0);
    assert!((0..5000).all(|number| store.get(&key(number)).unwrap().is_some()));
}

#[test]
fn a_store_whose_jobs_nobody_runs_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(&HandClock::new()).with_jobs(|| Err(std::io::ErrorKind::WouldBlock.into()));
    let opened = Embedded::open(folder.path(), small(), machine);
    assert!(matches!(opened.map(drop), Err(Error::Exhausted(what)) if what.contains("jobs")));
}
