//! Compressed values on real files: they are answered whole, whatever a store is told from one start to the next, and
//! what they take is counted as it is stored. With every codec that is built: Zstandard needs `--features zstd`.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use engine::check::check_store;
use engine::fold::{Control, FoldRequest, KeyRange, What};
use engine::{Codec, CompactionSchedule, CompressAt, Durability, Embedded, Error, Machine, Options};
use std::path::Path;

const KEYS: u64 = 300;

fn built() -> impl Iterator<Item = Codec> {
    [Codec::Lz4, Codec::Zstd].into_iter().filter(|codec| codec.is_built())
}

fn options(compression: Option<Codec>, compress_at: CompressAt) -> Options {
    Options {
        durability: Durability::None,
        memtable_bytes_max: 16 << 10,
        segment_bytes_target: 64 << 10,
        level0_tables_max: 1,
        compaction: CompactionSchedule::Never,
        compression,
        compress_at,
        ..Options::default()
    }
}

fn open(dir: &Path, options: &Options) -> Embedded {
    let disks = os::OsDisk::blocking().blocking_handles();
    let machine = Machine::new(disks, os::OsClock::new(), os::OsRng::new());
    Embedded::open(dir, options.clone(), machine).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

/// Text of 400 to 1,400 bytes; one value of four is noise, which does not shrink.
fn value(number: u64, version: u64) -> Vec<u8> {
    use base::Rng;
    let mut rng = base::rng::SplitMix64::new(number ^ version << 32);
    let len = 400 + (number * 37 + version * 11) % 1000;
    if number.is_multiple_of(4) {
        return (0..len).map(|_| rng.next_u64() as u8).collect();
    }
    format!("value {number} of version {version}, ")
        .into_bytes()
        .into_iter()
        .cycle()
        .take(len as usize)
        .collect()
}

fn write(store: &mut Embedded, numbers: impl Iterator<Item = u64>, version: u64) {
    for number in numbers {
        store.put(&key(number), b"head", &value(number, version)).unwrap();
    }
}

/// Every key has the value of the version that `of` says: by itself, with others, and in folds.
fn check(store: &mut Embedded, of: impl Fn(u64) -> u64) {
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let together = store.get_many(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>());
    for (number, found) in (0..KEYS).zip(together) {
        let expected = value(number, of(number));
        assert_eq!(found.unwrap().unwrap().value.unwrap(), expected, "{number}");
        assert_eq!(store.get(&key(number)).unwrap().unwrap().value.unwrap(), expected, "{number}");
    }
    for what in [What::Objects, What::ObjectsByJournal] {
        let mut seen = 0;
        let mut visit = |item: &engine::fold::Visited<'_>| {
            let number = std::str::from_utf8(&item.key[4..]).unwrap().parse().unwrap();
            assert_eq!(*item.value.as_ref().unwrap(), value(number, of(number)));
            seen += 1;
            Control::Next
        };
        let end = store.reader().fold(FoldRequest::over(KeyRange::all(), what), &mut visit).unwrap();
        assert_eq!((end.damaged, seen), (0, KEYS));
    }
}

fn no_findings(dir: &Path) {
    let mut findings = Vec::new();
    check_store(&mut os::OsDisk::blocking(), dir, &mut |finding| findings.push(format!("{finding:?}")))
        .unwrap();
    assert_eq!(findings, Vec::<String>::new());
}

#[test]
fn values_are_compressed_when_they_are_written() {
    built().for_each(written_by);
}

fn written_by(codec: Codec) {
    let folder = tempfile::tempdir().unwrap();
    let compressing = options(Some(codec), CompressAt::Receipt);
    let mut store = open(folder.path(), &compressing);
    write(&mut store, 0..KEYS, 1);
    check(&mut store, |_| 1);
    let stats = store.store().stats();
    let compressed = stats.counters.compressed;
    assert_eq!(compressed.values, KEYS * 3 / 4, "{stats:?}");
    assert!(compressed.bytes_after * 4 < compressed.bytes_before, "{stats:?}");
    let all: usize = (0..KEYS).map(|number| value(number, 1).len()).sum();
    assert!(stats.journal_bytes < all as u64 / 2, "{stats:?}");
    store.close().unwrap();
    no_findings(folder.path());
    // Uncleanly: the replay reads compressed records.
    let mut store = open(folder.path(), &compressing);
    write(&mut store, 0..50, 2);
    drop(store);
    let mut store = open(folder.path(), &options(None, CompressAt::Receipt));
    check(&mut store, |number| 1 + u64::from(number < 50));
    store.close().unwrap();
}

/// A ledger entry goes on to say how long its record was, so where and how long it is now is the segment's to know.
#[test]
fn values_are_compressed_when_they_are_moved() {
    built().for_each(moved_by);
}

fn moved_by(codec: Codec) {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), &options(None, CompressAt::Receipt));
    write(&mut store, 0..KEYS, 1);
    write(&mut store, (0..KEYS).filter(|number| number % 3 == 0), 2);
    store.close().unwrap();
    let version = |number: u64| 1 + u64::from(number.is_multiple_of(3));
    let late = options(Some(codec), CompressAt::Compaction);
    let mut store = open(folder.path(), &late);
    let before = store.store().stats();
    assert_eq!(before.counters.compressed.values, 0);
    store.compact().unwrap();
    let stats = store.store().stats();
    assert!(stats.counters.compressed.values > KEYS / 2, "{stats:?}");
    assert!(stats.journal_bytes * 2 < before.journal_bytes, "{stats:?}");
    check(&mut store, version);
    store.close().unwrap();
    no_findings(folder.path());
    // Told to compress nothing, it leaves what is compressed as it is.
    let mut store = open(folder.path(), &options(None, CompressAt::Receipt));
    check(&mut store, version);
    write(&mut store, 0..KEYS, 3);
    check(&mut store, |_| 3);
    store.flush().unwrap();
    let stats = store.store().stats();
    // All that was moved is dead, and no more than it takes.
    assert!(stats.journal_dead_bytes < stats.journal_bytes, "{stats:?}");
    store.compact().unwrap();
    check(&mut store, |_| 3);
    let after = store.store().stats();
    let all: usize = (0..KEYS).map(|number| 48 + 10 + 4 + value(number, 3).len() + 8).sum();
    assert!(after.journal_bytes <= all as u64, "{after:?}");
    assert_eq!(after.counters.compressed.values, 0);
    store.close().unwrap();
    no_findings(folder.path());
}

/// A store is told something else at every start, ends cleanly or not, and compacts now and then: values of all kinds
/// stand beside each other, in one segment and in one compaction's output.
#[test]
fn a_store_that_is_told_something_else_at_each_start_has_all_values() {
    let folder = tempfile::tempdir().unwrap();
    let codecs = std::iter::once(None).chain(built().map(Some));
    let mut told: Vec<_> = codecs
        .flat_map(|codec| [CompressAt::Receipt, CompressAt::Compaction].map(|at| options(codec, at)))
        .collect();
    let zstd: Vec<_> = told.iter().filter(|o| o.compression == Some(Codec::Zstd)).cloned().collect();
    told.extend(zstd.into_iter().map(|options| Options { zstd_level: 19, ..options }));
    let mut versions = vec![0; KEYS as usize];
    for round in 1..=12u64 {
        // Every kind comes behind every other: 5 is prime to 4 and 8 kinds.
        let mut store = open(folder.path(), &told[(round * 5) as usize % told.len()]);
        if round > 1 {
            check(&mut store, |number| versions[number as usize]);
        }
        let written = (0..KEYS).filter(|number| round == 1 || number % 5 == round % 5);
        write(&mut store, written.clone(), round);
        written.for_each(|number| versions[number as usize] = round);
        if round % 4 == 0 {
            store.flush().unwrap();
            store.compact().unwrap();
        }
        check(&mut store, |number| versions[number as usize]);
        if round % 3 == 0 { drop(store) } else { store.close().unwrap() }
    }
    let store = open(folder.path(), &told[0]);
    store.close().unwrap();
    no_findings(folder.path());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test breaks files behind the disk's back")]
fn a_damaged_value_is_an_error_wherever_it_is_damaged() {
    for codec in built() {
        let folder = tempfile::tempdir().unwrap();
        let compressing = options(Some(codec), CompressAt::Receipt);
        let mut store = open(folder.path(), &compressing);
        let whole = format!("unmistakable head of {codec:?}");
        store.put(&key(1), whole.as_bytes(), &b"unmistakable ".repeat(50)).unwrap();
        write(&mut store, 2..KEYS, 1);
        store.close().unwrap();
        let path = folder.path().join("journal").join(format!("{:016x}.seg", 1));
        let bytes = std::fs::read(&path).unwrap();
        // The record's value begins behind its head: the length, then the block or frame.
        let head = bytes.windows(whole.len()).position(|window| window == whole.as_bytes()).unwrap();
        let at = head + whole.len();
        for place in at..at + 20 {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            let mut store = open(folder.path(), &compressing);
            assert!(matches!(store.get(&key(1)), Err(Error::Damaged(_))), "{codec:?} at {place}");
            assert_eq!(store.head(&key(1)).unwrap().unwrap().head, whole);
            assert_eq!(store.get(&key(2)).unwrap().unwrap().value.unwrap(), value(2, 1));
            let end = store
                .reader()
                .fold(FoldRequest::over(KeyRange::all(), What::Objects), &mut |_| Control::Next)
                .unwrap();
            assert_eq!((end.damaged, end.visited), (1, KEYS - 2));
        }
    }
}

/// A higher level is smaller, and one that there is not is refused.
#[test]
fn zstandard_compresses_at_the_level_it_is_told() {
    let stored_at = |zstd_level: i32| {
        let folder = tempfile::tempdir().unwrap();
        let mut store =
            open(folder.path(), &Options { zstd_level, ..options(Some(Codec::Zstd), CompressAt::Receipt) });
        // Words in random order: a text that takes a search to compress well.
        let mut rng = base::rng::SplitMix64::new(5);
        let words =
            ["annulet", "journal", "ledger", "memtable", "ring", "vnode", "sibling", "a", "of", "the"];
        let text: Vec<&str> =
            (0..4000).map(|_| words[base::Rng::below(&mut rng, words.len() as u64) as usize]).collect();
        let text = text.join(" ");
        store.put(b"key", b"head", text.as_bytes()).unwrap();
        assert_eq!(store.get(b"key").unwrap().unwrap().value.unwrap(), text);
        store.store().stats().counters.compressed.bytes_after
    };
    if Codec::Zstd.is_built() {
        let (fast, thorough) = (stored_at(1), stored_at(19));
        assert!(thorough * 20 < fast * 19, "{thorough} bytes of {fast}");
    }
    for zstd_level in [i32::MIN, 0, 20] {
        let folder = tempfile::tempdir().unwrap();
        let disks = os::OsDisk::blocking().blocking_handles();
        let machine = Machine::new(disks, os::OsClock::new(), os::OsRng::new());
        let options = Options { zstd_level, ..Options::default() };
        let opened = Embedded::open(&folder.path().join("store"), options, machine);
        assert!(matches!(opened.map(|_| ()), Err(Error::Refused(_))), "{zstd_level}");
    }
}

#[test]
fn a_codec_that_is_not_built_is_refused_before_anything_is_touched() {
    if Codec::Zstd.is_built() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let disks = os::OsDisk::blocking().blocking_handles();
    let machine = Machine::new(disks, os::OsClock::new(), os::OsRng::new());
    let zstd = options(Some(Codec::Zstd), CompressAt::Receipt);
    let opened = Embedded::open(&folder.path().join("store"), zstd, machine);
    assert!(matches!(opened.map(|_| ()), Err(Error::Refused(_))));
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
}
