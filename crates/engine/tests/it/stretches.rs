//! Folds, and lookups of many keys, read what lies close together in the journal by one operation, and lose nothing
//! where that fails.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::HandClock;
use crate::common::disk::MemoryDisk;
use base::rng::SplitMix64;
use engine::fold::{Control, FoldEnd, FoldRequest, JournalCheck, KeyRange, What};
use engine::{Embedded, Machine, Options};
use std::path::Path;

const OBJECTS: u64 = 500;

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:04}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; 1000]
}

fn open(disk: &MemoryDisk) -> Embedded {
    let disk = disk.clone();
    let machine = Machine::new(move || disk.clone(), HandClock::new(), SplitMix64::new(1));
    let options = Options { reserve_bytes: 0, ..Options::default() };
    Embedded::open(Path::new("/store"), options, machine).unwrap()
}

/// A store of [`OBJECTS`] of some 1,100 bytes in one stretch.
fn store() -> (MemoryDisk, Embedded) {
    let disk = MemoryDisk::default();
    let mut store = open(&disk);
    for number in 0..OBJECTS {
        store.put(&key(number), b"head", &value(number)).unwrap();
    }
    (disk, store)
}

/// Folds, and checks each object that comes; how it ended, and with how many operations.
fn fold(disk: &MemoryDisk, store: &mut Embedded, what: What) -> (FoldEnd, u64) {
    let mut reader = store.reader();
    let before = disk.ops();
    let with_values = !matches!(what, What::Heads(_));
    let end = reader.fold(FoldRequest::over(KeyRange::all(), what), &mut |object| {
        let number: u64 = std::str::from_utf8(&object.key[4..]).unwrap().parse().unwrap();
        assert_eq!(object.value.as_deref(), with_values.then(|| value(number)).as_deref());
        Control::Next
    });
    (end.unwrap(), disk.ops() - before)
}

const KINDS: [What; 3] = [What::Objects, What::ObjectsByJournal, What::Heads(JournalCheck::Checksum)];

/// 550 KB in stretches of 256 KiB, of which every third is not in memory.
#[test]
fn neighbours_are_read_at_once() {
    for what in KINDS {
        let (disk, mut store) = store();
        let (end, ops) = fold(&disk, &mut store, what);
        assert_eq!((end.visited, end.damaged), (OBJECTS, 0));
        assert!((1..3).contains(&ops), "{ops} operations");
        assert!((1..600_000).contains(&disk.announced()), "{} bytes announced", disk.announced());
    }
}

/// A hole of more than what may lie between two records ends a stretch: of ten large values every other is gone.
#[test]
fn what_lies_apart_is_not_read() {
    let (disk, mut store) = store();
    for number in 0..10 {
        store.put(format!("large-{number}").as_bytes(), b"head", &[1; 100_000]).unwrap();
    }
    for number in (0..10).step_by(2) {
        store.delete(format!("large-{number}").as_bytes()).unwrap();
    }
    let before = disk.ops();
    let mut reader = store.reader();
    let mut bytes = 0;
    let range = KeyRange::prefix(&b"large-"[..]);
    let end = reader.fold(FoldRequest::over(range, What::Objects), &mut |object| {
        bytes += object.value.as_ref().map_or(0, |value| value.len());
        Control::Next
    });
    assert_eq!((end.unwrap().visited, bytes), (5, 500_000));
    assert!((1..5).contains(&(disk.ops() - before)) && disk.announced() <= 501_000);
}

/// Each record of a stretch that cannot be read is read by itself, and one that cannot is one object less.
#[test]
fn what_cannot_be_read_costs_itself() {
    for (failures, lost) in [(1, 0), (2, 1)] {
        for what in KINDS {
            let (disk, mut store) = store();
            disk.fail(disk.ops() + 1, failures);
            let (end, ops) = fold(&disk, &mut store, what);
            assert_eq!((end.visited, end.damaged), (OBJECTS - lost, lost));
            assert!((30..300).contains(&ops), "{ops} operations: a stretch, and its records one by one");
        }
    }
}

/// What is kept of a lookup of many keys keeps nothing else in memory.
#[test]
fn many_keys_are_looked_up_at_once() {
    let (disk, mut store) = store();
    let keys: Vec<Vec<u8>> = (0..OBJECTS).rev().map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut reader = store.reader();
    let before = disk.ops();
    let found = reader.get_many(&keys).unwrap();
    assert!(disk.ops() - before <= 3, "stretches of 256 KiB, of which some are in memory");
    for (found, number) in found.into_iter().zip((0..OBJECTS).rev()) {
        let found = found.unwrap().unwrap();
        assert_eq!((&found.head[..], &found.value.as_ref().unwrap()[..]), (&b"head"[..], &value(number)[..]));
        drop(found.head);
        assert!(found.value.unwrap().is_unique());
    }
    disk.fail(disk.ops() + 1, 2);
    let failed = reader.get_many(&keys).unwrap().into_iter().filter(|found| found.is_err()).count();
    assert_eq!(failed, 1, "a stretch, and the first of its records by itself");
}

/// A start that replays a segment, and a compaction that copies of one, announce what they will read next.
#[test]
fn who_reads_in_order_announces() {
    let (disk, mut store) = store();
    for round in 0..8 {
        for number in 0..OBJECTS {
            store.put(&key(number + round * OBJECTS), b"head", &value(number)).unwrap();
        }
    }
    drop(store);
    let disk = disk.after_kill();
    let mut store = open(&disk);
    let replayed = disk.announced();
    // A start goes through the journal more than once.
    assert!((1 << 20..15 << 20).contains(&replayed), "{replayed} bytes where 5 MB are");
    for number in (0..8 * OBJECTS).step_by(2) {
        store.put(&key(number), b"head", &value(number)).unwrap();
    }
    store.flush().unwrap();
    let before = disk.announced();
    store.compact().unwrap();
    assert!(disk.announced() > before);
}
