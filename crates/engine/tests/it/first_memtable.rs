//! The first memtable since a start, which may be smaller than those after it.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::HandClock;
use crate::common::disk::MemoryDisk;
use base::rng::SplitMix64;
use engine::{Durability, Embedded, Machine, Options};
use std::path::Path;

const MEMTABLE: usize = 64 << 10;

/// Bytes of a few entries: a flush may end some writes after its memtable was full.
const SOME_ENTRIES: usize = 1 << 10;

fn open(disk: &MemoryDisk, first_memtable_percent: u8) -> Embedded {
    let options = Options {
        durability: Durability::None,
        memtable_bytes_max: MEMTABLE,
        first_memtable_percent,
        ..Options::default()
    };
    let disk = disk.clone();
    let machine = Machine::new(move || disk.clone(), HandClock::new(), SplitMix64::new(1));
    Embedded::open(Path::new("/store"), options, machine).unwrap()
}

/// Writes keys from `next` on until the memtable is put aside. The bytes that it had.
fn fill(store: &mut Embedded, next: &mut u32) -> usize {
    let bytes = |store: &mut Embedded| store.store().stats().memtable_bytes;
    loop {
        let before = bytes(store);
        store.put(&next.to_be_bytes(), &[7; 100], b"").unwrap();
        *next += 1;
        if bytes(store) < before {
            return before;
        }
    }
}

#[test]
fn the_first_memtable_since_a_start_takes_its_part() {
    let mut disk = MemoryDisk::default();
    let mut next = 0;
    for percent in [25, 60, 100] {
        let mut store = open(&disk, percent);
        let first = fill(&mut store, &mut next);
        let bound = MEMTABLE * usize::from(percent) / 100;
        assert!(first.abs_diff(bound) < SOME_ENTRIES, "{first} bytes of {bound}");
        for _ in 0..2 {
            let later = fill(&mut store, &mut next);
            assert!(later.abs_diff(MEMTABLE) < SOME_ENTRIES, "{later} bytes");
        }
        store.close().unwrap();
        disk = disk.after_kill();
    }
    let mut store = open(&disk, 25);
    for key in 0..next {
        assert!(store.get(&key.to_be_bytes()).unwrap().is_some(), "key {key}");
    }
}
