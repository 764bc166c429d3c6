//! Waste: compacted segments are kept aside for as long as is wanted, and what level 0 hides is found in time.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use engine::{Durability, Embedded, Machine, Options};
use std::path::Path;
use std::time::Duration;

fn small() -> Options {
    Options {
        durability: Durability::None,
        inline_value_bytes_max: 32,
        memtable_bytes_max: 16 << 10,
        segment_bytes_target: 64 << 10,
        ..Options::default()
    }
}

fn open(dir: &Path, options: &Options) -> Embedded {
    let disks = os::OsDisk::blocking().blocking_handles();
    let machine = Machine::new(disks, os::OsClock::new(), os::OsRng::new());
    Embedded::open(dir, options.clone(), machine).unwrap()
}

fn write(store: &mut Embedded, keys: u64, times: u64) {
    for n in 0..keys * times {
        store.put(format!("key-{:06}", n % keys).as_bytes(), b"head", &[n as u8; 300]).unwrap();
    }
}

fn aside(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("waste")).map_or(0, Iterator::count)
}

#[test]
fn compacted_segments_are_kept_aside() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Options { waste_retention: Duration::from_secs(3600), ..small() };
    let mut store = open(folder.path(), &kept);
    write(&mut store, 100, 20);
    store.compact().unwrap();
    let compactions = store.store().stats().counters.compactions;
    assert!(compactions > 0);
    let files = aside(folder.path());
    assert!(files as u64 >= compactions, "{files} files of {compactions} compactions");
    store.close().unwrap();

    // The next start finds them, and leaves them.
    let mut store = open(folder.path(), &kept);
    write(&mut store, 1, 1);
    store.flush().unwrap();
    assert_eq!((store.store().stats().segments_aside, aside(folder.path())), (files, files));
    store.close().unwrap();

    // Without the option they go with the next segments that do.
    let mut store = open(folder.path(), &small());
    write(&mut store, 100, 20);
    store.compact().unwrap();
    assert!(store.store().stats().counters.compactions > 0);
    assert_eq!(aside(folder.path()), 0);
    for n in 0..100 {
        let found = store.get(format!("key-{n:06}").as_bytes()).unwrap().unwrap();
        assert_eq!(found.value.unwrap().len(), 300);
    }
    store.destroy().unwrap();
}

#[test]
fn a_destroyed_store_leaves_nothing_aside() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Options { waste_retention: Duration::from_secs(3600), ..small() };
    let mut store = open(folder.path(), &kept);
    write(&mut store, 100, 20);
    store.compact().unwrap();
    assert!(aside(folder.path()) > 0);
    store.destroy().unwrap();
    assert_eq!(aside(folder.path()), 0);
}

/// A level 0 of eight tables, and four runs behind it, would hide that nearly all of a small store's values are dead.
#[test]
fn overwrites_are_merged_before_level_0_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let never = Options { compaction: engine::CompactionSchedule::Never, ..small() };
    let mut store = open(folder.path(), &never);
    // Until the first merge nothing is known.
    write(&mut store, 200, 12);
    assert!(store.store().stats().counters.merges > 0);
    let record = (48u64 + 10 + 4 + 300).next_multiple_of(8);
    let mut most = (0, 0);
    for _ in 0..40 {
        write(&mut store, 200, 1);
        let stats = store.store().stats();
        let seeming = (stats.journal_bytes - stats.journal_dead_bytes) / record;
        most = (most.0.max(stats.levels[0].tables), most.1.max(seeming));
    }
    assert!(most.0 < never.level0_tables_max / 2, "{most:?}");
    // Eight tables and four runs would hide some 2,000.
    assert!(most.1 < 200 * 6, "{most:?}");

    // New keys hide nothing, so their tables wait until there are enough.
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), &never);
    for n in 0..1000u64 {
        store.put(format!("key-{n:06}").as_bytes(), b"head", &[n as u8; 300]).unwrap();
    }
    let stats = store.store().stats();
    assert_eq!((stats.counters.merges, stats.counters.flushes > 2), (0, true), "{stats:?}");
}
