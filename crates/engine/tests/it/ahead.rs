//! The room that the active segment is given ahead of its records: syncs that make no new length durable, and files
//! that are as long as what was written as soon as nothing more is.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::HandClock;
use crate::common::disk::MemoryDisk;
use base::rng::SplitMix64;
use engine::check::check_store;
use engine::{Durability, Embedded, Error, Machine, Options};
use std::path::{Path, PathBuf};

const SEGMENT: u64 = 64 << 10;

fn options(durability: Durability) -> Options {
    Options { durability, segment_bytes_target: SEGMENT, reserve_bytes: 0, ..Options::default() }
}

fn open_with(disk: &MemoryDisk, durability: Durability) -> Embedded {
    let disk = disk.clone();
    let machine = Machine::new(move || disk.clone(), HandClock::new(), SplitMix64::new(1));
    Embedded::open(Path::new("/store"), options(durability), machine).unwrap()
}

fn open(disk: &MemoryDisk) -> Embedded {
    open_with(disk, Durability::Sync)
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:04}").into_bytes()
}

fn put(store: &mut Embedded, number: u64) -> Result<(), Error> {
    store.put(&key(number), b"head", &[number as u8 | 1; 1000]).map(drop)
}

fn all_there(store: &mut Embedded, count: u64) {
    for number in 0..count {
        let found = store.get(&key(number)).unwrap().unwrap_or_else(|| panic!("{number} is lost"));
        assert_eq!(found.value.unwrap(), vec![number as u8 | 1; 1000]);
    }
    assert_eq!(store.report().damage, []);
    assert_eq!(store.report().torn, []);
}

/// Segments with a record, each with its length and how many zeros it ends with.
fn segments(disk: &MemoryDisk) -> Vec<(PathBuf, usize, usize)> {
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "seg");
    let segments = disk.names().into_iter().filter(is_segment).map(|path| {
        let bytes = disk.bytes(&path);
        let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
        (path, bytes.len(), zeros)
    });
    segments.filter(|(_, len, _)| *len > 64).collect()
}

/// Nothing that `check` finds.
fn is_sound(disk: &MemoryDisk) {
    let mut findings = Vec::new();
    check_store(&mut disk.after_kill(), Path::new("/store"), &mut |finding| findings.push(finding)).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn a_write_that_is_synced_finds_its_room_there() {
    let disk = MemoryDisk::default();
    let mut store = open(&disk);
    put(&mut store, 0).unwrap();
    let before = disk.lengthened();
    for number in 1..50 {
        put(&mut store, number).unwrap();
    }
    assert_eq!(disk.lengthened(), before, "all of them are in the first segment");
    let [(_, len, zeros)] = segments(&disk)[..] else { panic!("{:?}", segments(&disk)) };
    assert!(len as u64 == SEGMENT && zeros > 1000, "{zeros} zeros of {len}");
}

/// Who does not wait for a sync gains nothing by room.
#[test]
fn room_is_made_for_syncs_alone() {
    for durability in [Durability::None, Durability::Interval] {
        let disk = MemoryDisk::default();
        let mut store = open_with(&disk, durability);
        (0..50).for_each(|number| put(&mut store, number).unwrap());
        store.flush().unwrap();
        assert!(segments(&disk).iter().all(|(_, _, zeros)| *zeros < 8), "{:?}", segments(&disk));
    }
}

/// Sealed, closed or opened again: no file is longer than what was written to it.
#[test]
fn what_is_not_written_any_more_is_cut_to_its_length() {
    let disk = MemoryDisk::default();
    let mut store = open(&disk);
    (0..200).for_each(|number| put(&mut store, number).unwrap());
    let (there, mut crashed) = (segments(&disk), disk.after_power_cut());
    assert_eq!(there.len(), 4);
    let (active, sealed) = there.split_last().unwrap();
    assert!(active.2 > 1000, "{there:?}");
    assert!(sealed.iter().all(|(_, _, zeros)| *zeros < 8), "{there:?}");
    store.close().unwrap();
    assert!(segments(&disk).iter().all(|(_, _, zeros)| *zeros < 8), "{:?}", segments(&disk));
    is_sound(&disk);
    all_there(&mut open(&disk.after_power_cut()), 200);

    is_sound(&crashed);
    for _ in 0..2 {
        all_there(&mut open(&crashed), 200);
        assert!(segments(&crashed).iter().all(|(_, _, zeros)| *zeros < 8), "{:?}", segments(&crashed));
        crashed = crashed.after_power_cut();
        is_sound(&crashed);
    }
}

/// A store that dies again and again leaves no room behind.
#[test]
fn crashes_do_not_add_up() {
    let mut disk = MemoryDisk::default();
    for life in 0..10 {
        let mut store = open(&disk);
        all_there(&mut store, life);
        put(&mut store, life).unwrap();
        disk = if life % 2 == 0 { disk.after_kill() } else { disk.after_power_cut() };
    }
    let spare: usize = segments(&disk).iter().map(|(_, _, zeros)| zeros).sum();
    assert!(spare < SEGMENT as usize, "{:?}", segments(&disk));
}

/// Where there is none, records take what there is, to the last of it.
#[test]
fn a_disk_without_room_ahead_takes_writes_until_it_is_full() {
    for spare in [10 << 10, 30 << 10, 100 << 10] {
        let disk = MemoryDisk::default();
        let mut store = open(&disk);
        put(&mut store, 0).unwrap();
        store.close().unwrap();
        let disk = disk.after_kill();
        let taken: usize = disk.names().iter().map(|path| disk.bytes(path).len()).sum();
        // A store that knows how little is left keeps some of it back.
        disk.hide_space();
        let mut store = open(&disk);
        disk.bound(Some((taken + spare) as u64));
        let written = (1..200).take_while(|number| put(&mut store, *number).is_ok()).count();
        // A record has some 1,100 bytes, and a segment is sealed on the way.
        assert!((spare / 1300..=spare / 1000).contains(&written), "{written} writes into {spare} bytes");
        disk.bound(None);
        all_there(&mut open(&disk.after_power_cut()), written as u64);
    }
}
