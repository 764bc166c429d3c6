//! A whole store on real files: what goes in comes out, before and after flushes, merges and restarts.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use base::Rng;
use base::rng::SplitMix64;
use bytes::Bytes;
use engine::fold::{ScanRequest, Visit};
use engine::{Durability, Embedded, Machine, Options, Write};
use std::collections::BTreeMap;
use std::path::Path;

fn machine() -> Machine {
    Machine::new(os::OsDisk::blocking().blocking_handles(), os::OsClock::new(), os::OsRng::new())
}

fn open(dir: &Path, options: &Options) -> Embedded {
    Embedded::open(dir, options.clone(), machine()).unwrap()
}

/// Small enough that a few thousand writes make several segments, tables and levels.
fn small() -> Options {
    Options {
        durability: Durability::None,
        inline_value_bytes_max: 64,
        memtable_bytes_max: 16 << 10,
        segment_bytes_target: 64 << 10,
        table_bytes_target: 16 << 10,
        leveled_bytes_target: 64 << 10,
        block_cache_bytes: 16 << 10,
        ..Options::default()
    }
}

type Model = BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)>;

fn check(store: &mut Embedded, model: &Model, keys: u64) {
    for n in 0..keys {
        let key = format!("key-{n:06}").into_bytes();
        let found = store.get(&key).unwrap();
        let expected = model.get(&key);
        assert_eq!(found.as_ref().map(|f| f.head.to_vec()), expected.map(|(head, _)| head.clone()), "{n}");
        assert_eq!(found.and_then(|f| f.value).map(|v| v.to_vec()), expected.map(|(_, v)| v.clone()), "{n}");
        let head = store.head(&key).unwrap();
        assert_eq!(head.map(|f| f.head.to_vec()), expected.map(|(head, _)| head.clone()));
    }
}

fn scan_all(store: &mut Embedded) -> Vec<(Bytes, Bytes)> {
    let mut items = Vec::new();
    let mut start = Bytes::new();
    loop {
        let request = ScanRequest {
            start,
            end: Bytes::from_static(b"\xFF"),
            items_max: 100,
            visitor: Box::new(|_, _| Visit::Take),
            past_losses: false,
        };
        let page = store.scan(request).unwrap();
        items.extend(page.items);
        match page.next {
            Some(next) => start = next,
            None => return items,
        }
    }
}

#[test]
fn it_agrees_with_a_map_through_flushes_merges_and_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let options = small();
    let mut rng = SplitMix64::new(7);
    let mut model = Model::new();
    let keys = 700;
    for life in 0..6 {
        let mut store = open(folder.path(), &options);
        assert_eq!((store.report().created, store.report().clean), (life == 0, life % 2 == 1));
        check(&mut store, &model, keys);
        for n in 0..1500 {
            let key = format!("key-{:06}", rng.below(keys)).into_bytes();
            if rng.chance(1, 5) {
                store.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let head = format!("head {life} {n}").into_bytes();
                let len = usize::try_from(rng.below(200)).unwrap();
                let value = vec![n as u8; len];
                store.put(&key, &head, &value).unwrap();
                model.insert(key, (head, value));
            }
        }
        check(&mut store, &model, keys);
        let listed: Vec<(Vec<u8>, Vec<u8>)> =
            scan_all(&mut store).into_iter().map(|(k, h)| (k.to_vec(), h.to_vec())).collect();
        let expected: Vec<_> = model.iter().map(|(k, (h, _))| (k.clone(), h.clone())).collect();
        assert_eq!(listed, expected);
        let stats = store.store().stats();
        assert!(stats.counters.flushes > 2 && stats.segments > 2, "{stats:?}");
        if life % 2 == 0 {
            store.close().unwrap();
        }
    }
}

#[test]
fn a_batch_is_whole_after_a_restart_and_numbers_are_never_given_twice() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Sync, ..small() };
    let mut store = open(folder.path(), &options);
    let (incarnation, counter) = (store.store().incarnation(), store.store().next_counter().unwrap());
    let batch = [
        Write::Put { key: b"a", head: b"1", value: &[b"in ", b"parts"] },
        Write::Put { key: b"b", head: b"2", value: &[&[9; 500]] },
        Write::Delete { key: b"c" },
    ];
    let seq = store.write(&batch).unwrap();
    drop(store);
    let mut store = open(folder.path(), &options);
    assert_eq!(store.report().replayed, 3);
    assert_eq!(store.get(b"a").unwrap().unwrap().value.unwrap(), "in parts");
    assert_eq!(store.get(b"b").unwrap().unwrap().value.unwrap(), vec![9; 500]);
    assert_eq!(store.get(b"c").unwrap(), None);
    assert_eq!(store.store().incarnation(), incarnation);
    assert!(
        store.store().next_counter().unwrap() > counter + 1_000_000,
        "an unclean start leaps over the lease"
    );
    let counter = store.store().next_counter().unwrap();
    assert!(store.put(b"d", b"", b"").unwrap() > seq);
    store.close().unwrap();
    let mut store = open(folder.path(), &options);
    assert_eq!(store.store().next_counter().unwrap(), counter + 1, "a clean one goes on");
}

#[test]
fn a_folder_has_one_owner() {
    let folder = tempfile::tempdir().unwrap();
    let _store = open(folder.path(), &small());
    let second = Embedded::open(folder.path(), small(), machine());
    let error = second.err().expect("the folder is locked").to_string();
    assert!(error.contains("LOCK"), "{error}");
}

/// It ended there, so hints behind a damaged block stayed where they were until a merge came upon it.
#[test]
#[allow(clippy::disallowed_methods, reason = "it damages a file behind the store's back")]
fn a_scan_past_losses_goes_on_behind_a_damaged_block() {
    let folder = tempfile::tempdir().unwrap();
    let options = small();
    let mut store = open(folder.path(), &options);
    for n in 0..1500 {
        store.put(format!("key-{n:06}").as_bytes(), b"head", &[1; 20]).unwrap();
    }
    store.close().unwrap();
    let tables = std::fs::read_dir(folder.path().join("tables")).unwrap();
    let len = |path: &std::path::PathBuf| std::fs::metadata(path).unwrap().len();
    let largest = tables.map(|entry| entry.unwrap().path()).max_by_key(len).unwrap();
    let mut bytes = std::fs::read(&largest).unwrap();
    let at = bytes.len() / 3;
    bytes[at] ^= 1;
    std::fs::write(&largest, bytes).unwrap();

    let mut store = open(folder.path(), &options);
    let all = |past_losses| ScanRequest {
        start: Bytes::new(),
        end: Bytes::from_static(b"\xFF"),
        items_max: usize::MAX,
        visitor: Box::new(|_, _| Visit::Take),
        past_losses,
    };
    assert!(matches!(store.scan(all(false)), Err(engine::Error::Damaged(_))));
    let page = store.scan(all(true)).unwrap();
    assert!(page.has_left_out && page.next.is_none());
    assert!((1000..1500).contains(&page.items.len()), "{}", page.items.len());
    assert_eq!(page.items.iter().last().unwrap().0, &b"key-001499"[..]);
}
