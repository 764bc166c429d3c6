//! The marks of groups: as many as a start needs to tell damage from a torn tail, and few where nobody waits for syncs.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::HandClock;
use crate::common::disk::MemoryDisk;
use base::disk::OpenMode;
use base::rng::SplitMix64;
use engine::journal::scan::Scanned;
use engine::journal::segment::{SEGMENT_HEADER_BYTES, parse_durable_mark, parse_file_name};
use engine::journal::{Kind, Position, Scanner};
use engine::{Durability, Embedded, Machine, Options, Write};
use std::path::{Path, PathBuf};

const VALUE: [u8; 100] = [7; 100];

/// What a disk may damage at once.
const BLOCK: usize = 4096;

fn open(disk: &MemoryDisk, durability: Durability) -> Embedded {
    let disk = disk.clone();
    let machine = Machine::new(move || disk.clone(), HandClock::new(), SplitMix64::new(1));
    let options = Options { durability, reserve_bytes: 0, ..Options::default() };
    Embedded::open(Path::new("/store"), options, machine).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn put(store: &mut Embedded, number: u64, durability: Durability) {
    let write = Write::Put { key: &key(number), head: b"head", value: &[&VALUE] };
    store.write_with(&[write], durability).unwrap();
}

/// The segment that was written to, where its marks stand and what they say, and where its records end.
fn marks(disk: &MemoryDisk) -> (PathBuf, Vec<(Position, Position)>, u64) {
    let longest = |path: &PathBuf| disk.bytes(path).len();
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "seg");
    let path = disk.names().into_iter().filter(is_segment).max_by_key(longest).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let segment = parse_file_name(name).unwrap();
    let mut disk = disk.after_kill();
    let (file, len) = base::disk::open(&mut disk, &path, OpenMode::Read).unwrap();
    let mut scanner = Scanner::new(file, len, segment, SEGMENT_HEADER_BYTES as u64);
    let mut marks = Vec::new();
    let mut end = 0;
    while let Some(scanned) = scanner.next(&mut disk).unwrap() {
        let Scanned::Record(found) = scanned else { break };
        let at = Position { segment, offset: found.offset };
        if found.header().kind == Kind::GroupMark {
            marks.push((at, parse_durable_mark(found.record().head).unwrap()));
        }
        end = (found.offset + found.len() as u64).next_multiple_of(8);
    }
    (path, marks, end)
}

/// A mark for each doubling of what lies behind what is durable.
#[test]
fn groups_that_nobody_syncs_have_few_marks() {
    let disk = MemoryDisk::default();
    let mut store = open(&disk, Durability::Interval);
    for number in 0..1000 {
        put(&mut store, number, Durability::Interval);
    }
    assert_eq!(store.store().stats().journal.groups, 1000, "each put is a group");
    let (_, marks, end) = marks(&disk);
    assert!((5..=20).contains(&marks.len()), "{marks:?}");
    let mut from = SEGMENT_HEADER_BYTES as u64;
    for (at, stated) in marks {
        assert_eq!(stated.offset, SEGMENT_HEADER_BYTES as u64, "nothing was synced");
        assert!(at.offset <= 2 * from + 400, "a mark at {from}, the next one only at {}", at.offset);
        from = at.offset;
    }
    assert!(end <= 2 * from, "{end} bytes, and the last mark at {from}");
}

/// Where each group is synced, each says that the one before it was.
#[test]
fn groups_that_are_synced_vouch_for_one_another() {
    let disk = MemoryDisk::default();
    let mut store = open(&disk, Durability::Sync);
    let mut last = SEGMENT_HEADER_BYTES as u64;
    for number in 0..100 {
        put(&mut store, number, Durability::Sync);
        let (_, marks, end) = marks(&disk);
        let (at, stated) = marks.last().unwrap();
        assert_eq!((marks.len() as u64, at.offset, stated.offset), (number + 1, last, last));
        last = end;
    }
}

/// What is durable by a sync in between is stated by the next group, also if nobody asks for that one's sync.
#[test]
fn a_sync_in_between_is_stated_at_once() {
    let disk = MemoryDisk::default();
    let mut store = open(&disk, Durability::Interval);
    for number in 0..200 {
        let syncs = number % 20 == 19;
        put(&mut store, number, if syncs { Durability::Sync } else { Durability::Interval });
        let (_, before, end) = marks(&disk);
        if syncs {
            put(&mut store, 1000 + number, Durability::Interval);
            let (_, marks, _) = marks(&disk);
            assert_eq!(marks.len(), before.len() + 1);
            assert_eq!(marks.last().map(|(_, stated)| stated.offset), Some(end));
        }
    }
}

/// A block that takes the end of what was synced, and the first marks behind it that say so, is damage up to that end:
/// a key whose write was promised is an error, not missing.
#[test]
fn a_block_with_the_first_mark_is_damage() {
    let disk = MemoryDisk::default();
    let mut store = open(&disk, Durability::Interval);
    put(&mut store, 0, Durability::Interval);
    put(&mut store, 1, Durability::Sync);
    let (path, _, durable) = marks(&disk);
    for number in 2..100 {
        put(&mut store, number, Durability::Interval);
    }
    drop(store);
    let durable = usize::try_from(durable).unwrap();
    let (from, to) = (durable - 50, durable - 50 + BLOCK);
    let (_, marks, end) = marks(&disk);
    let spared =
        marks.iter().filter(|(at, stated)| stated.offset == durable as u64 && at.offset >= to as u64);
    assert!(spared.count() >= 1 && end as usize > 2 * BLOCK, "{marks:?}, {end} bytes");
    let disk = disk.after_kill();
    disk.damage(&path, |bytes| bytes[from..to].fill(0xA5));
    let mut store = open(&disk, Durability::Interval);
    let torn: Vec<u64> = store.report().torn.iter().map(|torn| torn.offset).collect();
    assert_eq!(torn, [durable as u64], "what stands behind was promised to nobody");
    assert!(!store.report().damage.is_empty());
    assert!(store.get(&key(0)).unwrap().is_some());
    assert!(store.get(&key(1)).is_err(), "it was synced, and is damaged");
}
