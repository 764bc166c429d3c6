//! A small store of several levels under every single fault: each block of each file flipped, zeroed or swapped with
//! another; the journal's tail cut at every byte; the k-th operation of the disk failing, once or for good, for every
//! k. What is asked for is never a wrong answer: the right one, or an error.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::HandClock;
use crate::common::disk::MemoryDisk;
use base::Rng;
use base::rng::SplitMix64;
use bytes::Bytes;
use engine::fold::{ScanRequest, Visit};
use engine::{Durability, Embedded, Error, Machine, Options, Write};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const BLOCK: usize = 4096;

/// So far into the room behind the records a tail is cut.
const BEYOND: usize = 100;

fn options() -> Options {
    Options {
        durability: Durability::Sync,
        inline_value_bytes_max: 40,
        memtable_bytes_max: 6 << 10,
        segment_bytes_target: 24 << 10,
        table_bytes_target: 6 << 10,
        level0_tables_max: 2,
        leveled_bytes_target: 3 << 10,
        ..Options::default()
    }
}

fn open(disk: &MemoryDisk) -> Result<Embedded, Error> {
    open_with(disk, options())
}

fn open_with(disk: &MemoryDisk, options: Options) -> Result<Embedded, Error> {
    let disk = disk.clone();
    let machine = Machine::new(move || disk.clone(), HandClock::new(), SplitMix64::new(1));
    Embedded::open(Path::new("/store"), options, machine)
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:04}").into_bytes()
}

/// Head and value of a version; every one is different.
fn version(number: u64, write: u64) -> (Vec<u8>, Vec<u8>) {
    let head = [number.to_le_bytes(), write.to_le_bytes()].concat();
    let len = if write.is_multiple_of(3) { 20 } else { 60 + (write % 5) as usize * 40 };
    (head, vec![write as u8; len])
}

type Model = BTreeMap<u64, Option<u64>>;

const KEYS: u64 = 150;

/// A store of at least three levels that was stopped cleanly, and the write that each key has last.
fn built() -> (MemoryDisk, Model) {
    let disk = MemoryDisk::default();
    let mut store = open(&disk).unwrap();
    let (mut model, mut rng) = (Model::new(), SplitMix64::new(4));
    for write in 0..1500 {
        let number = rng.below(KEYS);
        if rng.chance(1, 8) {
            store.delete(&key(number)).unwrap();
            model.insert(number, None);
        } else {
            let (head, value) = version(number, write);
            store.put(&key(number), &head, &value).unwrap();
            model.insert(number, Some(write));
        }
    }
    let levels = store.store().stats().levels.iter().filter(|level| level.tables > 0).count();
    assert!(levels >= 2, "{levels} levels");
    store.close().unwrap();
    (disk.after_kill(), model)
}

/// Reads every key by each way there is, and tells how many answers were errors.
fn no_wrong_answer(store: &mut Embedded, model: &Model, what: &str) -> usize {
    let mut errors = 0;
    let mut reader = store.reader();
    for number in 0..KEYS {
        let expected = model.get(&number).copied().flatten().map(|write| version(number, write));
        for answer in [store.get(&key(number)), reader.get(&key(number))] {
            match answer {
                Ok(found) => {
                    let found = found.map(|f| (f.head.to_vec(), f.value.unwrap().to_vec()));
                    assert_eq!(found, expected, "key {number} after {what}");
                }
                Err(_) => errors += 1,
            }
        }
        match store.head(&key(number)) {
            Ok(found) => assert_eq!(found.map(|f| f.head.to_vec()), expected.map(|(head, _)| head), "{what}"),
            Err(_) => errors += 1,
        }
    }
    errors
}

#[test]
fn no_damaged_block_gives_a_wrong_answer() {
    let (good, model) = built();
    let (mut refused, mut errors, mut harmless) = (0, 0, 0);
    let mut rng = SplitMix64::new(9);
    for path in good.names() {
        let mut len = 0;
        good.damage(&path, |bytes| len = bytes.len());
        for block in 0..len.div_ceil(BLOCK) {
            for kind in 0..3 {
                let disk = good.after_kill();
                disk.damage(&path, |bytes| damage(bytes, block, kind, &mut rng));
                let what =
                    format!("{} of block {block} of {}", ["flip", "zero", "swap"][kind], path.display());
                match open(&disk) {
                    Err(Error::Disk(error)) => panic!("{what}: {error}"),
                    Err(_) => refused += 1,
                    Ok(mut store) => match no_wrong_answer(&mut store, &model, &what) {
                        0 => harmless += 1,
                        some => errors += some,
                    },
                }
            }
        }
    }
    assert!(
        refused == 0 && errors > 100,
        "{refused} stores refused, {errors} errors, {harmless} without effect"
    );
}

/// A table with a damaged block, or without its file, costs its own keys and nothing else: writes go on, merges go past
/// it, and what was lost stays an error over restarts, until it is written again.
#[test]
fn a_damaged_table_is_a_loss_of_its_own_keys() {
    let (good, model) = built();
    let (mut lost, mut served) = (0, 0);
    let tables = good.names().into_iter().filter(|path| path.extension().is_some_and(|e| e == "tbl"));
    for path in tables {
        let mut len = 0;
        good.damage(&path, |bytes| len = bytes.len());
        let places = (0..len).step_by(BLOCK).map(Some).chain([None]);
        for place in places {
            let disk = good.after_kill();
            match place {
                Some(at) => disk.damage(&path, |bytes| bytes[at + 5] ^= 1),
                None => disk.remove(&path),
            }
            let what = format!("damage at {place:?} of {}", path.display());
            let Ok(mut store) = open(&disk) else { continue };
            let mut model = model.clone();
            for write in 2000..2300 {
                let number = write * 7 % KEYS;
                // A third of the keys stays as it was.
                if !number.is_multiple_of(3) {
                    let (head, value) = version(number, write);
                    store.put(&key(number), &head, &value).unwrap_or_else(|error| panic!("{what}: {error}"));
                    model.insert(number, Some(write));
                }
            }
            store.flush().unwrap_or_else(|error| panic!("{what}: {error}"));
            let errors = no_wrong_answer(&mut store, &model, &what);
            let rewritten = (0..KEYS).filter(|number| !number.is_multiple_of(3));
            rewritten
                .for_each(|number| assert!(store.get(&key(number)).is_ok(), "key {number} after {what}"));
            store.close().unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut store = open(&disk.after_kill()).unwrap();
            let later = no_wrong_answer(&mut store, &model, &what);
            assert!(later >= errors, "{what}: {errors} errors, then {later}, {:?}", store.report());
            lost += errors;
            served += usize::from(errors < 3 * KEYS as usize / 3);
            // What was dropped as a range is known to be gone.
            store.drop_range(b"", b"").unwrap();
            store.flush().unwrap();
            assert_eq!(no_wrong_answer(&mut store, &Model::new(), &what), 0);
        }
    }
    assert!(lost > 100 && served > 3, "{lost} errors, {served} stores that served most keys");
}

/// What an operator has accepted is no error any more, over restarts either.
#[test]
fn an_accepted_loss_is_no_error() {
    let (good, model) = built();
    let tables = good.names().into_iter().filter(|path| path.extension().is_some_and(|e| e == "tbl"));
    let mut accepted = 0;
    for path in tables {
        let disk = good.after_kill();
        disk.remove(&path);
        let Ok(mut store) = open(&disk) else { continue };
        if no_wrong_answer(&mut store, &model, "a loss") == 0 {
            continue;
        }
        let ranges = store.store().accept_losses();
        assert!(!ranges.is_empty());
        store.close().unwrap();
        let mut store = open(&disk.after_kill()).unwrap();
        for number in 0..KEYS {
            store.head(&key(number)).unwrap();
            // Of an older version that shows now, compaction may have let go of the value.
            if let Err(error) = store.get(&key(number)) {
                assert!(matches!(&error, Error::Damaged(damage) if damage.file == "journal"), "{error}");
            }
        }
        assert!(store.store().accept_losses().is_empty());
        accepted += 1;
    }
    assert!(accepted > 0);
}

fn damage(bytes: &mut [u8], block: usize, kind: usize, rng: &mut SplitMix64) {
    let (from, to) = (block * BLOCK, bytes.len().min((block + 1) * BLOCK));
    match kind {
        0 => {
            let at = from + rng.below((to - from) as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
        1 => bytes[from..to].fill(0),
        _ => {
            let other = rng.below(bytes.len().div_ceil(BLOCK) as u64) as usize * BLOCK;
            let len = (to - from).min(bytes.len() - other);
            for at in 0..len {
                bytes.swap(from + at, other + at);
            }
        }
    }
}

/// A tail that is cut at any byte, or is zeros from there on as far as the file had room, or anything, costs the end of
/// what was written, never the middle without an error.
#[test]
fn a_cut_tail_costs_the_end_and_nothing_else() {
    let disk = MemoryDisk::default();
    let mut store = open(&disk).unwrap();
    let keys = 12u64;
    for number in 0..keys {
        let (head, value) = version(number, number);
        store.put(&key(number), &head, &value).unwrap();
    }
    drop(store);
    let good = disk.after_kill();
    let is_segment = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "seg");
    let segment = good
        .names()
        .iter()
        .filter(is_segment)
        .max_by_key(|path| {
            let mut len = 0;
            good.damage(path, |bytes| len = bytes.len());
            len
        })
        .unwrap()
        .clone();
    let (mut len, mut room) = (0, 0);
    good.damage(&segment, |bytes| {
        len = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        room = bytes.len();
    });
    let end = len + BEYOND;
    assert!(end < room, "{len} of {room} bytes");
    let (mut wholes, mut errors) = (0, 0);
    for cut in 0..=end {
        let tails = [(cut, 0), (room, 0), (end, 0xA5), (room, 0xA5)];
        for (to, byte) in tails {
            let disk = good.after_kill();
            disk.damage(&segment, |bytes| {
                bytes.truncate(cut);
                bytes.resize(to, byte);
            });
            let mut store = match open(&disk) {
                Ok(store) => store,
                Err(error) => panic!("cut to {cut}: {error}"),
            };
            let mut ended = false;
            for number in 0..keys {
                match store.get(&key(number)) {
                    Ok(Some(found)) => {
                        assert!(!ended, "cut to {cut}: {number} is there, and one before it is not");
                        let (head, value) = version(number, number);
                        assert_eq!((&found.head[..], &found.value.unwrap()[..]), (&head[..], &value[..]));
                    }
                    Ok(None) => ended = true,
                    Err(_) => errors += 1,
                }
            }
            wholes += usize::from(!ended);
        }
    }
    // A record ends with zeros up to a multiple of 8.
    assert!(wholes >= 4 * (BEYOND - 8) && errors < len, "{wholes} whole, {errors} errors");
}

/// Without durability a write is acknowledged at once. If it fails later, its key is an error: for who reads it, and
/// for who lists all.
#[test]
fn what_was_acknowledged_and_not_written_is_missing_from_no_scan() {
    let disk = MemoryDisk::default();
    let mut store = open_with(&disk, Options { durability: Durability::None, ..options() }).unwrap();
    let scan = |store: &mut Embedded, past_losses| {
        let visitor = Box::new(|_: &[u8], _: &[u8]| Visit::Take);
        let (start, end) = (Bytes::new(), Bytes::from_static(b"\xFF"));
        let page = store.scan(ScanRequest { start, end, items_max: 10, visitor, past_losses })?;
        Ok::<_, Error>(page.items.len())
    };
    store.put(&key(0), b"head", b"value").unwrap();
    disk.fail(disk.ops() + 1, u64::MAX);
    let write = Write::Put { key: &key(1), head: b"head", value: &[b"value"] };
    let seq = store.store().write(&[write]).unwrap();
    assert_eq!(store.store().acknowledged(), seq);
    // The turn that answers this hands the write to the disk, too.
    assert_eq!(scan(&mut store, false).unwrap(), 2);
    assert!(store.get(&key(0)).unwrap().is_some());
    let missing = store.get(&key(1));
    assert!(matches!(missing, Err(Error::Fenced(_))), "{missing:?}");
    assert!(matches!(scan(&mut store, false), Err(Error::Fenced(_))));
    assert_eq!(scan(&mut store, true).unwrap(), 1);
}

/// Runs a life of a store; what was acknowledged is in `acknowledged`, what failed in `in_doubt`, by key.
fn live(disk: &MemoryDisk, acknowledged: &mut Model, in_doubt: &mut BTreeMap<u64, BTreeSet<Option<u64>>>) {
    let Ok(mut store) = open(disk) else { return };
    let mut rng = SplitMix64::new(8);
    for write in 0..130 {
        let number = rng.below(30);
        let (head, value) = version(number, write);
        let (done, outcome) = match write % 9 {
            4 => (store.delete(&key(number)), None),
            _ => (store.put(&key(number), &head, &value), Some(write)),
        };
        match done {
            Ok(_) => {
                acknowledged.insert(number, outcome);
                in_doubt.remove(&number);
            }
            Err(_) => drop(in_doubt.entry(number).or_default().insert(outcome)),
        }
        let asked = rng.below(30);
        if let Ok(found) = store.get(&key(asked)) {
            allowed(found.map(|found| found.head.to_vec()), asked, acknowledged, in_doubt);
        }
    }
    // A stop that fails is a crash.
    store.close().ok();
}

/// Panics unless `head` is what was acknowledged last, or what is in doubt since.
fn allowed(
    head: Option<Vec<u8>>,
    number: u64,
    acknowledged: &Model,
    in_doubt: &BTreeMap<u64, BTreeSet<Option<u64>>>,
) {
    let head_of = |write: Option<u64>| write.map(|write| version(number, write).0);
    let last = acknowledged.get(&number).copied().flatten();
    let doubted = in_doubt.get(&number).into_iter().flatten();
    let mut candidates = doubted.copied().chain([last]);
    assert!(candidates.any(|write| head_of(write) == head), "key {number}: {head:?}");
}

#[test]
fn no_failed_operation_loses_what_was_acknowledged() {
    let whole = MemoryDisk::default();
    live(&whole, &mut Model::new(), &mut BTreeMap::new());
    let ops = whole.ops();
    assert!(ops > 200, "{ops} operations");
    for count in [1, u64::MAX] {
        for k in 1..=ops {
            let disk = MemoryDisk::default();
            let (mut acknowledged, mut in_doubt) = (Model::new(), BTreeMap::new());
            disk.fail(k, count);
            live(&disk, &mut acknowledged, &mut in_doubt);
            // After the failed sync nothing is known of what was not synced before: the worst that may be.
            for disk in [disk.after_power_cut(), disk.after_kill()] {
                let mut store = match open(&disk) {
                    Ok(store) => store,
                    Err(error) => panic!("operation {k} failed, and then opening: {error}"),
                };
                for number in 0..30 {
                    let found = store.get(&key(number)).unwrap().map(|found| found.head.to_vec());
                    allowed(found, number, &acknowledged, &in_doubt);
                }
            }
        }
    }
}
