//! Versions that end: by their time, and with their range. What is gone stays gone through flushes, merges, clean
//! stops and kills, and what came later stays.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::{HandClock, open, small};
use base::Rng;
use base::rng::SplitMix64;
use engine::store::StoreStats;
use engine::{Embedded, Error, Options, Write};
use std::collections::BTreeMap;
use std::time::Duration;

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

/// Enough writes of other keys that everything before them has been flushed, and merged more than once.
fn churn(store: &mut Embedded, writes: u64) {
    for number in 0..writes {
        store.put(format!("other-{:04}", number % 500).as_bytes(), b"head", &[7; 100]).unwrap();
    }
}

#[test]
fn a_version_ends_at_its_time_and_never_shows_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let mut store = open(folder.path(), &small(), &clock);
    for (number, value_len) in (0..200).zip([10, 300].into_iter().cycle()) {
        store.put(&key(number), b"old", &vec![1; value_len]).unwrap();
    }
    churn(&mut store, 2000);
    for (number, value_len) in (0..200).zip([10, 300].into_iter().cycle()) {
        let seq = store
            .put_for(&key(number), b"new", &vec![2; value_len], Duration::from_millis(500 + number))
            .unwrap();
        let found = store.get(&key(number)).unwrap().unwrap();
        assert_eq!((found.seq, found.expires_ms), (seq, Some(clock.ms() + 500 + number)));
    }
    let begun = clock.ms();
    let check = |store: &mut Embedded| {
        let passed = clock.ms() - begun;
        for number in 0..200 {
            let found = store.get(&key(number)).unwrap();
            let head = store.head(&key(number)).unwrap();
            let expected = (passed < 500 + number).then_some(&b"new"[..]);
            assert_eq!(found.as_ref().map(|found| &found.head[..]), expected, "{number} after {passed} ms");
            assert_eq!(head.map(|found| found.head), found.map(|found| found.head));
        }
    };
    check(&mut store);
    clock.advance_ms(599);
    check(&mut store);
    churn(&mut store, 3000);
    check(&mut store);
    drop(store);
    let mut store = open(folder.path(), &small(), &clock);
    check(&mut store);
    clock.advance_ms(50);
    churn(&mut store, 3000);
    check(&mut store);
    store.close().unwrap();
    let mut store = open(folder.path(), &small(), &clock);
    check(&mut store);
    clock.advance_ms(1000);
    check(&mut store);
    churn(&mut store, 6000);
    check(&mut store);
    // What has ended can be written again, with an end or without one.
    store.put(&key(3), b"again", b"").unwrap();
    assert_eq!(store.get(&key(3)).unwrap().unwrap().expires_ms, None);
}

#[test]
fn a_range_is_dropped_at_once_and_can_come_back_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let options = Options { level0_tables_max: 2, ..small() };
    let mut store = open(folder.path(), &options, &clock);
    let mut rng = SplitMix64::new(5);
    let mut model = BTreeMap::new();
    for round in 0..30u64 {
        for _ in 0..200 {
            let (key, head) = (key(rng.below(1000)), format!("{round}").into_bytes());
            store.put(&key, &head, &vec![1; rng.below(120) as usize]).unwrap();
            model.insert(key, head);
        }
        let (from, to) = (rng.below(1000), rng.below(1200));
        let end = if to > 1100 { Vec::new() } else { key(to) };
        let batch = [
            Write::DropRange { start: &key(from), end: &end },
            Write::Put { key: &key(from), head: b"back", value: &[] },
        ];
        store.write(&batch).unwrap();
        model.retain(|other, _| *other < key(from) || (!end.is_empty() && *other >= end));
        model.insert(key(from), b"back".to_vec());
        match round % 7 {
            3 => {
                store = {
                    drop(store);
                    open(folder.path(), &options, &clock)
                }
            }
            5 => {
                store = {
                    store.close().unwrap();
                    open(folder.path(), &options, &clock)
                }
            }
            _ => {}
        }
        for number in 0..1000 {
            let head = store.head(&key(number)).unwrap().map(|found| found.head.to_vec());
            assert_eq!(head.as_ref(), model.get(&key(number)), "{number} in round {round}");
        }
    }
}

/// Tables inside a dropped range go without being read; the drop itself is forgotten when nothing is left to cut.
#[test]
fn what_was_dropped_leaves_the_tables() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let mut store = open(folder.path(), &small(), &clock);
    for number in 0..4000 {
        store.put(&key(number * 7919 % 4000), b"a head of some length", b"").unwrap();
    }
    let before = store.store().stats();
    store.drop_range(&key(100), &key(3900)).unwrap();
    churn(&mut store, 3000);
    let after = store.store().stats();
    assert!(after.counters.tables_cut > 3, "{after:?}");
    let entries = |stats: StoreStats| stats.levels.iter().map(|level| level.entries).sum::<u64>();
    assert!(entries(after) < entries(before), "{after:?}");
    assert_eq!(store.head(&key(99)).unwrap().unwrap().head, "a head of some length");
    assert_eq!(store.head(&key(100)).unwrap(), None);
    assert_eq!(store.store().drops(), 0, "nothing needs the drop any more");
    drop(store);
    let mut store = open(folder.path(), &small(), &clock);
    assert_eq!(store.head(&key(2000)).unwrap(), None);
    assert_eq!(store.head(&key(3900)).unwrap().unwrap().head, "a head of some length");
}

#[test]
fn drops_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let mut store =
        open(folder.path(), &Options { memtable_bytes_max: 1 << 20, ..small() }, &HandClock::new());
    store.put(b"a", b"", b"").unwrap();
    for _ in 0..engine::drops::DROPS_MAX {
        store.drop_range(b"a", b"b").unwrap();
    }
    assert!(matches!(store.drop_range(b"a", b"b"), Err(Error::Full { .. })));
    store.put(b"a", b"1", b"").unwrap();
    assert_eq!(store.head(b"a").unwrap().unwrap().head, "1");
}
