//! Journal compaction on real files: space comes back, nothing is lost, and damage stays damage.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use base::Rng;
use base::rng::SplitMix64;
use engine::{Durability, Embedded, Error, Machine, Options, Write};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn open(dir: &Path, options: &Options) -> Embedded {
    let disks = os::OsDisk::blocking().blocking_handles();
    let machine = Machine::new(disks, os::OsClock::new(), os::OsRng::new());
    Embedded::open(dir, options.clone(), machine).unwrap()
}

fn small() -> Options {
    Options {
        durability: Durability::None,
        inline_value_bytes_max: 32,
        memtable_bytes_max: 16 << 10,
        segment_bytes_target: 64 << 10,
        table_bytes_target: 16 << 10,
        // What waits in level 0 for its merge is not yet known to be dead.
        level0_tables_max: 2,
        leveled_bytes_target: 64 << 10,
        block_cache_bytes: 16 << 10,
        ..Options::default()
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn check(store: &mut Embedded, model: &Model, keys: u64) {
    for n in 0..keys {
        let key = format!("key-{n:06}").into_bytes();
        let found = store.get(&key).unwrap().map(|found| found.value.unwrap().to_vec());
        assert_eq!(found.as_ref(), model.get(&key), "{n}");
    }
}

fn compact(store: &mut Embedded) {
    store.compact().unwrap();
}

/// Values that tables have are a log only in the journal, and leave it though nothing is overwritten or deleted.
#[test]
fn a_load_of_small_values_leaves_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { compaction_bytes_per_second: 1 << 40, ..small() };
    let mut store = open(folder.path(), &options);
    let (keys, mut model) = (20_000u64, Model::new());
    for n in 0..keys {
        let (key, value) = (format!("key-{n:06}").into_bytes(), n.to_be_bytes().to_vec());
        store.put(&key, b"", &value).unwrap();
        model.insert(key, value);
    }
    store.flush().unwrap();
    let stats = store.store().stats();
    let written = keys * 64;
    assert!(stats.journal_bytes * 3 < written, "{} bytes of some {written} are there", stats.journal_bytes);
    check(&mut store, &model, keys);
    store.close().unwrap();
    check(&mut open(folder.path(), &options), &model, keys);
}

/// Overwrites, deletions, inline values and batches, over several lives; the journal stays within its target.
#[test]
fn space_comes_back_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (mut rng, mut model, keys) = (SplitMix64::new(3), Model::new(), 400);
    let mut compactions = 0;
    for life in 0..5u64 {
        let mut store = open(folder.path(), &small());
        check(&mut store, &model, keys);
        for n in 0..3000u64 {
            let key = format!("key-{:06}", rng.below(keys)).into_bytes();
            let value = vec![(n + life) as u8; usize::try_from(rng.below(400)).unwrap()];
            match rng.below(8) {
                0 => {
                    store.delete(&key).unwrap();
                    model.remove(&key);
                }
                _ => {
                    store.put(&key, b"head", &value).unwrap();
                    model.insert(key, value);
                }
            }
        }
        check(&mut store, &model, keys);
        let stats = store.store().stats();
        compactions += stats.counters.compactions;
        let live: usize = model.values().map(|value| value.len() + 64).sum();
        let allowed = 3 * live as u64 + 4 * small().segment_bytes_target;
        assert!(stats.journal_bytes < allowed, "{stats:?} for {live} bytes");
        if life % 2 == 0 {
            store.close().unwrap();
        }
    }
    assert!(compactions > 10, "{compactions}");
    let mut store = open(folder.path(), &small());
    compact(&mut store);
    check(&mut store, &model, keys);
    let stats = store.store().stats();
    let live: u64 =
        model.iter().filter(|(_, v)| v.len() > 32).map(|(k, v)| 48 + (k.len() + 4 + v.len()) as u64).sum();
    assert!(
        stats.journal_bytes * 10 <= live * 11 + 10 * small().segment_bytes_target,
        "{stats:?} for {live}"
    );
    store.close().unwrap();
    check(&mut open(folder.path(), &small()), &model, keys);
}

/// What a store knows of dead bytes is exact once every version but the newest has left the ledger.
#[test]
fn accounts_are_exact() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        compaction: engine::CompactionSchedule::Never,
        // Everything goes down to the level where each key is there once.
        level0_tables_max: 1,
        runs_max: 1,
        inline_value_bytes_max: 0,
        ..small()
    };
    let mut store = open(folder.path(), &options);
    let record = |value: usize| (48 + 10 + 4 + value).next_multiple_of(8) as u64;
    let (mut written, mut live) = (0, BTreeMap::new());
    let mut rng = SplitMix64::new(9);
    for n in 0..2000u64 {
        let (key, len) = (rng.below(100), usize::try_from(200 + n % 300).unwrap());
        store.put(format!("key-{key:06}").as_bytes(), b"head", &vec![1; len]).unwrap();
        written += record(len);
        live.insert(key, record(len));
        if n == 1000 {
            // Uncleanly: what was counted is in the manifest, and what was not is counted again.
            drop(store);
            store = open(folder.path(), &options);
        }
    }
    store.close().unwrap();
    let mut store = open(folder.path(), &options);
    // The last merge runs beside these.
    for _ in 0..5 {
        store.put(b"other", b"", b"").unwrap();
    }
    let stats = store.store().stats();
    let used: u64 = live.values().sum();
    assert!(stats.tables <= 3, "{stats:?}");
    assert_eq!(stats.journal_bytes - 5 * 56, written);
    assert_eq!(stats.journal_dead_bytes, written - used, "{stats:?}");
}

/// Large values fill many segments before their entries fill a memtable: these are flushed all the same, or neither
/// would a compaction touch them nor a start do without them.
#[test]
fn a_memtable_pins_few_segments() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { memtable_bytes_max: 1 << 20, ..small() };
    let (keys, mut model) = (20u64, Model::new());
    let mut store = open(folder.path(), &options);
    for n in 0..4_000u64 {
        let (key, value) = (format!("key-{:06}", n % keys).into_bytes(), vec![n as u8; 8 << 10]);
        store.put(&key, b"", &value).unwrap();
        model.insert(key, value);
    }
    let segment = options.segment_bytes_target;
    let journal = store.store().stats().journal_bytes;
    assert!(journal < 10 * segment, "{} segments of some 500 are there", journal / segment);
    // Without a clean stop: a start reads what no table has.
    drop(store);
    let mut store = open(folder.path(), &options);
    let unflushed = store.report().replayed * (8 << 10);
    assert!(unflushed <= 5 * segment, "{} segments were in no table", unflushed / segment);
    check(&mut store, &model, keys);
}

/// Deletions and values that are inline leave nothing behind in the journal once they are in tables.
#[test]
fn a_log_without_values_goes() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), &small());
    for n in 0..5000u64 {
        let key = format!("key-{:06}", n % 1000);
        match n % 3 {
            0 => store.delete(key.as_bytes()).unwrap(),
            _ => store.put(key.as_bytes(), b"", &n.to_le_bytes()).unwrap(),
        };
    }
    compact(&mut store);
    let stats = store.store().stats();
    assert!(stats.journal_bytes < 3 * small().segment_bytes_target, "{stats:?}");
    assert_eq!(store.get(b"key-000004").unwrap().unwrap().value.unwrap().len(), 8);
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        std::fs::read_dir(dir.join("journal")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// A damaged value is reported when it is moved, and stays an error that is neither "not found" nor an older value.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test breaks files behind the disk's back")]
fn damage_moves_with_its_value() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { compaction: engine::CompactionSchedule::Never, ..small() };
    let mut store = open(folder.path(), &options);
    for n in 0..200u64 {
        store.put(format!("key-{n:06}").as_bytes(), b"head", &vec![n as u8; 300]).unwrap();
    }
    store.put(b"key-000007", b"head", b"unmistakable: a value that will be damaged on the disk").unwrap();
    for n in (0..200u64).filter(|n| n % 2 == 0) {
        store.put(format!("key-{n:06}").as_bytes(), b"head", &vec![n as u8; 300]).unwrap();
    }
    store.close().unwrap();
    let (path, mut bytes, at) = segments(folder.path())
        .into_iter()
        .find_map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            let at = bytes.windows(12).position(|window| window == b"unmistakable")?;
            Some((path, bytes, at))
        })
        .unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
    for _ in 0..2 {
        let mut store = open(folder.path(), &options);
        compact(&mut store);
        assert!(matches!(store.get(b"key-000007"), Err(Error::Damaged(_))));
        assert_eq!(store.head(b"key-000007").unwrap().unwrap().head, "head");
        for n in (0..200u64).filter(|n| *n != 7) {
            let found = store.get(format!("key-{n:06}").as_bytes()).unwrap().unwrap();
            assert_eq!(found.value.unwrap(), vec![n as u8; 300]);
        }
        store.close().unwrap();
    }
    let mut store = open(folder.path(), &options);
    store.put(b"key-000007", b"head", &[1; 200]).unwrap();
    assert_eq!(store.get(b"key-000007").unwrap().unwrap().value.unwrap(), vec![1; 200]);
}

/// A batch that was moved is read like any other records.
#[test]
fn batches_are_moved_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), &small());
    for n in 0..300u64 {
        let (one, two) = (format!("a-{n}"), format!("b-{}", n % 20));
        let value = vec![n as u8; 200];
        store
            .write(&[
                Write::Put { key: one.as_bytes(), head: b"1", value: &[&value] },
                Write::Put { key: two.as_bytes(), head: b"2", value: &[&value] },
            ])
            .unwrap();
    }
    compact(&mut store);
    store.close().unwrap();
    let mut store = open(folder.path(), &small());
    for n in 0..300u64 {
        assert_eq!(
            store.get(format!("a-{n}").as_bytes()).unwrap().unwrap().value.unwrap(),
            vec![n as u8; 200]
        );
    }
}
