//! A disk that is full, at every point of a store's life: what was acknowledged is read, what is refused says why, and
//! writes come back by themselves when there is room, without a restart.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::HandClock;
use crate::common::disk::MemoryDisk;
use base::Rng;
use base::rng::SplitMix64;
use engine::check::{FindingKind, check_store};
use engine::{Durability, Embedded, Error, Machine, Options, Write};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const KEYS: u64 = 30;

/// How soon a store looks for room again.
const LOOK_MS: u64 = 1000;

fn options(reserve_bytes: u64) -> Options {
    Options {
        inline_value_bytes_max: 40,
        memtable_bytes_max: 6 << 10,
        segment_bytes_target: 16 << 10,
        table_bytes_target: 6 << 10,
        level0_tables_max: 2,
        leveled_bytes_target: 3 << 10,
        reserve_bytes,
        ..Options::default()
    }
}

fn open(disk: &MemoryDisk, clock: &HandClock, reserve_bytes: u64) -> Result<Embedded, Error> {
    let disk = disk.clone();
    let machine = Machine::new(move || disk.clone(), clock.clone(), SplitMix64::new(1));
    Embedded::open(Path::new("/store"), options(reserve_bytes), machine)
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:04}").into_bytes()
}

fn value(write: u64) -> Vec<u8> {
    let len = if write.is_multiple_of(3) { 20 } else { 60 + (write % 5) as usize * 40 };
    vec![write as u8; len]
}

/// What each key was acknowledged to be, and what it may be besides since writes failed.
#[derive(Default)]
struct Expected {
    acknowledged: BTreeMap<u64, Option<u64>>,
    in_doubt: BTreeMap<u64, BTreeSet<Option<u64>>>,
}

impl Expected {
    fn note(&mut self, number: u64, write: Option<u64>, done: &Result<engine::Seq, Error>) {
        match done {
            Ok(_) => {
                self.acknowledged.insert(number, write);
                self.in_doubt.remove(&number);
            }
            Err(Error::Exhausted(_)) => drop(self.in_doubt.entry(number).or_default().insert(write)),
            Err(error) => panic!("{error}"),
        }
    }

    /// Reads every key. An error is for what may be newer than what was acknowledged, and only while there is no room.
    fn check(&self, store: &mut Embedded, has_room: bool, what: &str) {
        for number in 0..KEYS {
            let doubted = self.in_doubt.get(&number);
            let found = match store.get(&key(number)) {
                Ok(found) => found.map(|found| found.value.unwrap().to_vec()),
                Err(Error::Exhausted(_)) if !has_room && doubted.is_some() => continue,
                Err(error) => panic!("key {number}, {what}: {error}"),
            };
            let last = self.acknowledged.get(&number).copied().flatten();
            let mut candidates = doubted.into_iter().flatten().copied().chain([last]);
            assert!(candidates.any(|write| write.map(value) == found), "key {number}, {what}: {found:?}");
        }
    }
}

/// Writes, deletions, reads, compactions and a stop. When the disk has been full for three writes, it is told to have
/// room.
fn live(disk: &MemoryDisk, expected: &mut Expected, what: &str) {
    let clock = HandClock::new();
    let mut store = match open(disk, &clock, 0) {
        Ok(store) => store,
        Err(Error::Exhausted(_)) => {
            disk.fill(0, 0);
            open(&disk.after_kill(), &clock, 0).unwrap_or_else(|error| panic!("{what}: {error}"));
            // A disk that was left by an owner keeps its lock.
            return;
        }
        Err(error) => panic!("{what}: {error}"),
    };
    let (mut rng, mut refused) = (SplitMix64::new(8), 0);
    for write in 0..130 {
        let number = rng.below(KEYS);
        let (done, outcome) = match write % 9 {
            4 => (store.delete(&key(number)), None),
            _ => (store.put(&key(number), b"", &value(write)), Some(write)),
        };
        expected.note(number, outcome, &done);
        if write % 40 == 39 {
            match store.compact() {
                Ok(()) | Err(Error::Exhausted(_)) => {}
                Err(error) => panic!("{what}: {error}"),
            }
        }
        refused += u64::from(done.is_err());
        if done.is_err() {
            expected.check(&mut store, false, what);
        }
        if refused == 3 {
            refused = 0;
            disk.fill(0, 0);
            clock.advance_ms(LOOK_MS);
            let done = store.put(&key(0), b"", &value(write));
            assert!(done.is_ok(), "{what}: {done:?}");
            expected.note(0, Some(write), &done);
            expected.check(&mut store, true, what);
        }
    }
    disk.fill(0, 0);
    clock.advance_ms(LOOK_MS);
    let done = store.put(&key(1), b"", &value(200));
    assert!(done.is_ok(), "{what}: {done:?}");
    expected.note(1, Some(200), &done);
    expected.check(&mut store, true, what);
    store.flush().unwrap_or_else(|error| panic!("{what}: {error}"));
    store.close().unwrap_or_else(|error| panic!("{what}: {error}"));
}

#[test]
fn a_full_disk_at_every_point_costs_no_acknowledged_write_and_no_restart() {
    let whole = MemoryDisk::default();
    live(&whole, &mut Expected::default(), "nothing");
    let (takes, _) = whole.takes();
    assert!(takes > 150, "{takes} operations need room");
    for count in [1, 2, u64::MAX] {
        for k in 1..=takes {
            let what = format!("{count} operations without room from {k} on");
            let (disk, mut expected) = (MemoryDisk::default(), Expected::default());
            disk.fill(k, count);
            live(&disk, &mut expected, &what);
            for disk in [disk.after_power_cut(), disk.after_kill()] {
                let mut store = open(&disk, &HandClock::new(), 0).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(store.report().damage.is_empty(), "{what}: {:?}", store.report());
                expected.check(&mut store, true, &what);
            }
        }
    }
}

/// A process that dies while the disk is full: whatever waited is in doubt, and nothing else.
#[test]
fn a_crash_of_a_full_disk_loses_nothing_that_was_acknowledged() {
    for k in (30..150).step_by(7) {
        let (disk, clock, mut expected) = (MemoryDisk::default(), HandClock::new(), Expected::default());
        disk.fill(k, u64::MAX);
        let mut store = open(&disk, &clock, 0).unwrap();
        let mut rng = SplitMix64::new(3);
        for write in 0..200 {
            let number = rng.below(KEYS);
            let done = store.put(&key(number), b"", &value(write));
            expected.note(number, Some(write), &done);
        }
        assert!(matches!(store.close(), Err(Error::Exhausted(_))));
        let what = format!("a crash after {k} operations");
        for disk in [disk.after_power_cut(), disk.after_kill()] {
            let mut store = open(&disk, &clock, 0).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(store.report().damage.is_empty(), "{what}: {:?}", store.report());
            expected.check(&mut store, true, &what);
        }
    }
}

/// What was written before the disk was full is synced within its interval, though what came behind it cannot be
/// written.
#[test]
fn what_was_written_is_synced_though_nothing_more_can_be() {
    let (disk, clock) = (MemoryDisk::default(), HandClock::new());
    let options = Options { durability: Durability::Interval, ..options(0) };
    let there = disk.clone();
    let machine = Machine::new(move || there.clone(), clock.clone(), SplitMix64::new(1));
    let mut store = Embedded::open(Path::new("/store"), options, machine).unwrap();
    store.put(b"a", b"", &[1; 300]).unwrap();
    disk.fill(0, u64::MAX);
    assert!(store.put(b"b", b"", &[2; 300]).is_err());
    clock.advance_ms(5 * LOOK_MS);
    assert!(store.put(b"c", b"", &[3; 300]).is_err());
    let mut later = open(&disk.after_power_cut(), &clock, 0).unwrap();
    assert!(later.get(b"a").unwrap().is_some(), "it was acknowledged seconds before");
    disk.fill(0, 0);
    clock.advance_ms(LOOK_MS);
    store.put(b"d", b"", &[4; 300]).unwrap();
    assert!(store.get(b"b").unwrap().is_some(), "it waited");
    store.close().unwrap();
}

/// The reserve keeps the disk from ever being full: writes are refused before, flushes, deletions and compactions go
/// on, and what they free lets writes in again.
#[test]
fn the_reserve_lets_finish_what_must_be_and_deletions_bring_writes_back() {
    const SPACE: u64 = 400 << 10;
    let (disk, clock) = (MemoryDisk::default(), HandClock::new());
    disk.bound(Some(SPACE));
    let mut store = open(&disk, &clock, 120 << 10).unwrap();
    let mut written = 0;
    let refused = loop {
        clock.advance_ms(LOOK_MS);
        match store.put(&key(written), b"", &[7; 500]) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 10_000, "the disk is never full");
    };
    assert!(matches!(&refused, Error::Exhausted(why) if why.contains("reserve")), "{refused}");
    assert!(written > 200, "{written} writes");
    store.flush().unwrap();
    for number in 0..written {
        assert!(store.get(&key(number)).unwrap().is_some(), "key {number}");
    }
    for number in 0..written {
        clock.advance_ms(LOOK_MS);
        store.delete(&key(number)).unwrap();
    }
    store.flush().unwrap();
    // It compacts of its own accord.
    let came_back = (0..100).any(|_| {
        clock.advance_ms(LOOK_MS);
        store.put(b"again", b"", &[7; 500]).is_ok()
    });
    assert!(came_back, "{:?}", store.store().stats());
    let (_, refused) = disk.takes();
    assert_eq!(refused, 0, "operations without room");
    store.close().unwrap();
}

/// A merge that found no room is tried again when there is some, though level 0 is full and no write comes.
#[test]
fn a_merge_without_room_is_tried_again_beside_a_full_level_0() {
    const LOOKS: u64 = 2;
    let mut full = 0;
    for at in 1..200 {
        let (disk, clock) = (MemoryDisk::default(), HandClock::new());
        disk.bound(Some(1 << 30));
        let mut store = open(&disk, &clock, 0).unwrap();
        disk.fill(disk.takes().0 + at, 1);
        // No time passes, so the store does not look for room.
        let refused = (0..100).find_map(|number| {
            let keys: Vec<Vec<u8>> = (0..40).map(|of| key(40 * number + of)).collect();
            let batch: Vec<Write<'_>> =
                keys.iter().map(|key| Write::Put { key, head: &[7; 100], value: &[] }).collect();
            store.write(&batch).err()
        });
        if !matches!(refused, Some(Error::Full { .. })) {
            continue;
        }
        full += 1;
        let is_taken = (0..LOOKS).any(|_| {
            clock.advance_ms(LOOK_MS);
            for _ in 0..100 {
                store.store().turn(base::Clock::now(&clock), &mut Vec::new());
            }
            store.put(b"again", b"", &[7; 100]).is_ok()
        });
        assert!(is_taken, "operation {at} has found no room: {:#?}", store.store().stats());
    }
    assert!(full > 0, "a merge has found no room");
}

/// Too few file handles are no damage, whoever meets them.
#[test]
fn too_few_file_handles_are_never_taken_for_damage() {
    let (disk, clock, mut expected) = (MemoryDisk::default(), HandClock::new(), Expected::default());
    live(&disk, &mut expected, "a life");
    let good = disk.after_kill();
    let (mut checked, mut served) = (0, 0);
    for handles in 0..40 {
        let disk = good.after_kill();
        disk.bound_handles(handles);
        let mut no_damage = |finding: engine::check::Finding| {
            assert!(finding.kind != FindingKind::Damage, "{handles} handles: {finding:?}");
        };
        match check_store(&mut disk.clone(), Path::new("/store"), &mut no_damage) {
            Ok(_) => checked += 1,
            Err(Error::Exhausted(_)) => {}
            Err(error) => panic!("{handles} handles: {error}"),
        }
        let disk = good.after_kill();
        disk.bound_handles(handles);
        match open(&disk, &clock, 0) {
            Ok(mut store) => {
                assert!(store.report().damage.is_empty(), "{handles}: {:?}", store.report());
                expected.check(&mut store, true, "few handles");
                served += 1;
            }
            Err(Error::Exhausted(_)) => {}
            Err(error) => panic!("{handles} handles: {error}"),
        }
    }
    assert!((1..40).contains(&checked) && (1..40).contains(&served), "{checked} checked, {served} served");
}
