//! Stores that many threads use, of every engine that the tests were built with.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use backends::packed::Layout;
use backends::shared::{Handle, Shared, Sharing, options};
use backends::{Durability, Error, Jobs, Kind, Machine, Settings};
use std::sync::Arc;

const THREADS: usize = 4;
const KEYS: u32 = 300;
const SHARING: Sharing = Sharing { threads: THREADS, stores: 2 };

fn machine() -> Machine {
    Machine::new(os::OsDisk::blocking().blocking_handles(), os::OsClock::new(), os::OsRng::new())
}

fn settings() -> Settings {
    Settings { durability: Durability::None, cache_bytes: 1 << 20, ..Settings::default() }
}

/// The same with a thread for the jobs of each store.
fn machine_with_jobs() -> Machine {
    let disks = os::OsDisk::blocking().blocking_handles();
    Machine::new(disks.clone(), os::OsClock::new(), os::OsRng::new()).with_jobs(move || {
        let (spawn, ended) = os::JobThreads::awaited(1, &disks())?;
        Ok(Jobs { spawn: Arc::new(spawn), ended: Box::new(ended) })
    })
}

#[test]
fn a_store_of_ours_takes_sizes_that_fit_its_share_of_the_memory() {
    let told = |memory_bytes| {
        let settings = Settings { memory_bytes, ..settings() };
        options(Kind::Annulet, &settings, SHARING)["engine"].clone()
    };
    for part in ["memtable_bytes_max: 4194304,", "segment_bytes_target: 16777216,"] {
        assert!(told(Some(384 << 20)).contains(part), "{}", told(Some(384 << 20)));
    }
    for part in ["memtable_bytes_max: 16777216,", "segment_bytes_target: 134217728,"] {
        assert!(told(None).contains(part), "{}", told(None));
    }
}

#[test]
fn what_threads_write_at_once_is_read_by_all_and_after_a_restart() {
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_built()) {
        check_threads(kind, machine);
    }
    check_threads(Kind::Annulet, machine_with_jobs);
}

/// A folder stays locked while its machine is there, so each opening has one of its own.
fn check_threads(kind: Kind, machine: fn() -> Machine) {
    let folder = tempfile::tempdir().unwrap();
    let open = || Shared::open(kind, folder.path(), &settings(), &machine(), SHARING).unwrap();
    let key = |thread: usize, at: u32| format!("key-{thread}-{at}").into_bytes();
    let shared = open();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut handle = shared.handle();
            scope.spawn(move || {
                for at in 0..KEYS {
                    let key = key(thread, at);
                    handle.put(&key, b"head", &at.to_le_bytes()).unwrap();
                    assert_eq!(handle.get(&key).unwrap().unwrap().value, &at.to_le_bytes()[..]);
                    if at % 3 == 0 {
                        handle.delete(&key).unwrap();
                    }
                }
            });
        }
    });
    let check = |shared: &Shared| {
        let mut handle = shared.handle();
        for thread in 0..THREADS {
            for at in 0..KEYS {
                let there = (at % 3 != 0).then_some(&b"head"[..]);
                let head = handle.head(&key(thread, at)).unwrap();
                assert_eq!(head.as_deref(), there, "{}: {thread}, {at}", kind.name());
            }
        }
    };
    check(&shared);
    shared.close().unwrap();
    if kind.is_kept() {
        let again = open();
        check(&again);
        again.close().unwrap();
    }
}

#[test]
fn entries_of_one_pack_that_threads_set_and_remove_at_once_all_survive() {
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_built()) {
        check_packs(kind, machine);
    }
    check_packs(Kind::Annulet, machine_with_jobs);
}

fn check_packs(kind: Kind, machine: fn() -> Machine) {
    const SLOTS: u16 = 64;
    const ENTRIES: u64 = 10 * SLOTS as u64;
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::new(b"array/", SLOTS, 16).unwrap();
    let shared = Shared::open(kind, folder.path(), &settings(), &machine(), SHARING).unwrap();
    let entry = |number: u64, round: u8| [number.to_le_bytes(), [round; 8]].concat();
    // Each has every fourth slot of the same packs, sets it twice, and removes a third of its own.
    let work = |mut handle: Handle, thread: usize| {
        for round in [1, 2] {
            for number in (thread as u64..ENTRIES).step_by(THREADS) {
                handle.set_entry(&layout, number, Some(&entry(number, round))).unwrap();
                let own = handle.entry(&layout, number).unwrap();
                assert_eq!(own.as_deref(), Some(&*entry(number, round)), "{}: {number}", kind.name());
            }
        }
        for number in (thread as u64..ENTRIES).step_by(3 * THREADS) {
            handle.set_entry(&layout, number, None).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (handle, work) = (shared.handle(), &work);
            scope.spawn(move || work(handle, thread));
        }
    });
    let mut handle = shared.handle();
    for number in 0..ENTRIES {
        let is_removed = number % (3 * THREADS as u64) < THREADS as u64;
        let expected = (!is_removed).then(|| entry(number, 2));
        let found = handle.entry(&layout, number).unwrap();
        assert_eq!(found.as_deref(), expected.as_deref(), "{}: {number}", kind.name());
        assert_eq!(
            handle.has_entry(&layout, number).unwrap(),
            expected.is_some(),
            "{}: {number}",
            kind.name()
        );
    }
    assert!(matches!(handle.set_entry(&layout, 0, Some(b"short")), Err(Error::Refused(_))));
    let other = Layout::new(b"array/", SLOTS, 8).unwrap();
    assert!(matches!(handle.set_entry(&other, 5, None), Err(Error::Refused(_))));
    drop(handle);
    shared.close().unwrap();
}

#[test]
fn a_store_is_not_closed_while_a_thread_uses_it() {
    let folder = tempfile::tempdir().unwrap();
    let shared = Shared::open(Kind::Bitcask, folder.path(), &settings(), &machine(), SHARING).unwrap();
    let _handle = shared.handle();
    assert!(matches!(shared.close(), Err(Error::Refused(_))));
}

#[test]
fn an_engine_can_what_is_said_of_it() {
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_built()) {
        let folder = tempfile::tempdir().unwrap();
        let mut store = kind.open(folder.path(), &settings(), machine()).unwrap();
        assert_eq!(store.another().is_some(), kind.has_handles(), "{}", kind.name());
        assert_eq!(store.reader().is_some(), kind.has_readers(), "{}", kind.name());
        store.close().unwrap();
    }
}

#[test]
fn what_stands_behind_a_handle_is_said() {
    let told = |kind| options(kind, &settings(), SHARING);
    assert_eq!(told(Kind::Bitcask)["shared"], "2 stores, each behind a lock, with a queue of writes");
    assert_eq!(told(Kind::Annulet)["shared"], "2 stores, each with a queue of writes and 4 readers");
    assert_eq!(told(Kind::RocksDb)["shared"], "one store, 4 handles");
    // A megabyte by two stores, whose readers share.
    assert_eq!(told(Kind::Annulet)["cache_bytes"], (1_048_576 / 2).to_string());
    assert_eq!(told(Kind::RocksDb)["cache_bytes"], "1048576");
}
