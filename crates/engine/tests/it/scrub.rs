//! The scrub finds damage that nobody would read, within its period and over restarts, and reads nothing twice.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::HandClock;
use crate::common::disk::MemoryDisk;
use base::Monotonic;
use base::rng::SplitMix64;
use engine::{Durability, Embedded, Machine, Options};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PERIOD_MS: u64 = 100_000;

fn open(disk: &MemoryDisk, clock: &HandClock) -> Embedded {
    let disk = disk.clone();
    let options = Options {
        durability: Durability::None,
        memtable_bytes_max: 16 << 10,
        segment_bytes_target: 64 << 10,
        table_bytes_target: 16 << 10,
        leveled_bytes_target: 64 << 10,
        scrub_period: Duration::from_millis(PERIOD_MS),
        ..Options::default()
    };
    let machine = Machine::new(move || disk.clone(), clock.clone(), SplitMix64::new(1));
    Embedded::open(Path::new("/store"), options, machine).unwrap()
}

/// A store of several segments and tables, stopped cleanly.
fn built(clock: &HandClock) -> MemoryDisk {
    let disk = MemoryDisk::default();
    let mut store = open(&disk, clock);
    for number in 0..1200_u64 {
        let len = if number.is_multiple_of(3) { 30 } else { 400 };
        store.put(format!("{:06}", number * 7919 % 1200).as_bytes(), b"head", &vec![1; len]).unwrap();
    }
    store.close().unwrap();
    disk.after_kill()
}

fn pass_time(store: &mut Embedded, clock: &HandClock, ms: u64) {
    let ends = clock.ms() + ms;
    while clock.ms() < ends {
        clock.advance_ms(100);
        store.store().turn(Monotonic(clock.ms() * 1_000_000), &mut Vec::new());
    }
}

fn files(disk: &MemoryDisk) -> Vec<PathBuf> {
    let is_data = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "seg" || kind == "tbl");
    disk.names().into_iter().filter(is_data).collect()
}

#[test]
fn a_latent_flip_anywhere_is_found_within_the_period() {
    let clock = HandClock::new();
    let good = built(&clock);
    let files = files(&good);
    // What a start replays is not scrubbed: the segment that was written last, and the one that was made ahead.
    let mut segments: Vec<_> = files.iter().filter(|path| path.extension().unwrap() == "seg").collect();
    segments.sort();
    let last = segments.split_off(segments.len() - 2);
    let mut planted = 0;
    for path in files.iter().filter(|path| !last.contains(path)) {
        for part in 1..6 {
            let disk = good.after_kill();
            let mut store = open(&disk, &clock);
            pass_time(&mut store, &clock, 300);
            // A pass that is past the file does not see what comes now; the next one does.
            disk.damage(path, |bytes| {
                let at = bytes.len() * part / 6;
                bytes[at] ^= 4;
            });
            pass_time(&mut store, &clock, 2 * PERIOD_MS);
            let found = store.store().take_damage();
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(found.iter().any(|damage| damage.file.ends_with(name)), "{name}, part {part}: {found:?}");
            assert!(found.iter().all(|damage| damage.file.ends_with(name)), "{name}, part {part}: {found:?}");
            assert!(store.store().stats().counters.scrub_damage > 0);
            planted += 1;
        }
    }
    assert!(planted > 30, "{planted} flips");
}

/// The keys of values that cannot be read are told, those of others are not.
#[test]
fn the_keys_of_damaged_values_are_told() {
    let clock = HandClock::new();
    let disk = built(&clock);
    let mut segments: Vec<_> =
        files(&disk).into_iter().filter(|path| path.extension().unwrap() == "seg").collect();
    segments.sort();
    // Values are of 400 equal bytes.
    disk.damage(&segments[1], |bytes| {
        let value = bytes.windows(100).position(|bytes| bytes.iter().all(|&byte| byte == 1)).unwrap();
        bytes[value + 50] ^= 4;
    });
    let mut store = open(&disk, &clock);
    pass_time(&mut store, &clock, 2 * PERIOD_MS);
    let mut keys = store.store().take_damaged_keys();
    keys.sort();
    keys.dedup();
    let [key] = &keys[..] else { panic!("one value was damaged: {keys:?}") };
    assert!(matches!(store.get(key), Err(engine::Error::Damaged(_))));
    assert!(store.store().take_damaged_keys().is_empty());
}

#[test]
fn a_pass_goes_on_over_restarts_and_ends_in_time() {
    let clock = HandClock::new();
    let mut disk = built(&clock);
    let mut lens = 0;
    files(&disk).iter().for_each(|path| disk.damage(path, |bytes| lens += bytes.len() as u64));
    // The first pass was over when there was nothing yet.
    clock.advance_ms(PERIOD_MS);
    let (mut read, mut passes) = (0, 0);
    for _ in 0..20 {
        let mut store = open(&disk, &clock);
        pass_time(&mut store, &clock, PERIOD_MS / 20);
        let counters = store.store().stats().counters;
        (read, passes) = (read + counters.scrub_bytes, passes + counters.scrub_passes);
        disk = disk.after_kill();
    }
    assert_eq!(passes, 1, "{read} of {lens} bytes");
    assert!(read > lens / 2 && read < lens + lens / 3, "{read} of {lens} bytes");
}

#[test]
fn it_can_be_turned_off() {
    let clock = HandClock::new();
    let disk = built(&clock);
    let options = Options { scrub_period: Duration::ZERO, ..Options::default() };
    let machine = Machine::new(move || disk.clone(), clock.clone(), SplitMix64::new(1));
    let mut store = Embedded::open(Path::new("/store"), options, machine).unwrap();
    pass_time(&mut store, &clock, PERIOD_MS);
    assert_eq!(store.store().stats().counters.scrub_bytes, 0);
}
