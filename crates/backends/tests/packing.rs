//! Packed arrays over every backend, beside a map, under random writes and restarts; and writers that share one.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use backends::packed::{Layout, Packed};
use backends::{Backend, Durability, Error, Kind, Machine, Settings};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

const CASES: u32 = 12;
const ENTRY_BYTES: u16 = 16;

#[derive(Clone, Debug)]
enum Op {
    Write(Vec<(u64, bool)>),
    Get(u64),
    Range(u64, u64, usize),
    Reopen,
}

/// Entries of a few packs, and of some far away.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..60, 2 => 0u64..3000, 1 => (u64::MAX - 9)..u64::MAX]
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => vec((number(), prop::bool::weighted(0.7)), 0..8).prop_map(Op::Write),
        4 => number().prop_map(Op::Get),
        4 => (number(), number(), 1usize..50).prop_map(|(from, to, most)| Op::Range(from, to, most)),
        1 => Just(Op::Reopen),
    ]
}

fn open(kind: Kind, folder: &Path) -> Box<dyn Backend> {
    let machine =
        Machine::new(os::OsDisk::blocking().blocking_handles(), os::OsClock::new(), os::OsRng::new());
    let settings = Settings {
        durability: Durability::None,
        cache_bytes: 1 << 20,
        segment_bytes: 16 << 10,
        ..Settings::default()
    };
    kind.open(folder, &settings, machine).unwrap()
}

fn built() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| kind.is_built())
}

fn run(kind: Kind, slots: u16, ops: &[Op]) {
    let (folder, name) = (tempfile::tempdir().unwrap(), kind.name());
    let layout = Layout::new(b"array/", slots, ENTRY_BYTES).unwrap();
    let mut store = open(kind, folder.path());
    // Neighbours on both sides of its keys.
    store.put(b"array", b"", b"before").unwrap();
    store.put(b"array0", b"", b"behind").unwrap();
    let mut model: BTreeMap<u64, [u8; 16]> = BTreeMap::new();
    for (round, op) in ops.iter().enumerate() {
        let mut array = Packed::new(&mut *store, layout.clone());
        match op {
            Op::Write(changes) => {
                let entries = changes.iter().enumerate().map(|(at, (number, is_set))| {
                    let entry = [round as u8, at as u8].repeat(8);
                    (*number, is_set.then(|| <[u8; 16]>::try_from(entry).unwrap()))
                });
                let entries: Vec<(u64, Option<[u8; 16]>)> = entries.collect();
                let written =
                    entries.iter().map(|(number, entry)| (*number, entry.as_ref().map(|it| &it[..])));
                array.write(&written.collect::<Vec<_>>()).unwrap();
                for (number, entry) in entries {
                    match entry {
                        Some(entry) => drop(model.insert(number, entry)),
                        None => drop(model.remove(&number)),
                    }
                }
            }
            Op::Get(number) => {
                let found = array.get(*number).unwrap();
                assert_eq!(found.as_deref(), model.get(number).map(|it| &it[..]), "{name}: {number}");
            }
            Op::Range(from, to, most) => {
                let mut seen = Vec::new();
                let mut visit = |number: u64, entry: &[u8]| {
                    seen.push((number, entry.to_vec()));
                    if seen.len() == *most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                array.range(*from, *to, &mut visit).unwrap();
                let expected = model.iter().filter(|(number, _)| (*from..*to).contains(number)).take(*most);
                assert!(
                    seen.iter()
                        .map(|(number, entry)| (number, &entry[..]))
                        .eq(expected.map(|(n, e)| (n, &e[..]))),
                    "{name}: {from} to {to}"
                );
            }
            Op::Reopen if kind.is_kept() => {
                store.close().unwrap();
                store = open(kind, folder.path());
            }
            Op::Reopen => {}
        }
    }
    // A pack without entries is not there.
    let packs: std::collections::BTreeSet<u64> =
        model.keys().map(|number| number / u64::from(slots)).collect();
    let mut keys = 0;
    let mut count = |_: backends::Item<'_>| {
        keys += 1;
        ControlFlow::Continue(())
    };
    store.fold(b"array/", b"array0", backends::What::Heads, &mut count).unwrap();
    assert_eq!(keys, packs.len(), "{name}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn an_array_is_as_a_map(slots in prop_oneof![Just(1u16), Just(7), Just(64)], ops in vec(ops(), 1..60)) {
        built().for_each(|kind| run(kind, slots, &ops));
    }
}

#[test]
fn entries_of_one_pack_that_several_set_all_survive() {
    const WRITERS: u64 = 4;
    const EACH: u64 = 64;
    for kind in built() {
        let folder = tempfile::tempdir().unwrap();
        let store = Mutex::new(open(kind, folder.path()));
        let layout = Layout::new(b"array/", 64, ENTRY_BYTES).unwrap();
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (store, layout) = (&store, layout.clone());
                scope.spawn(move || {
                    // Each has every fourth slot of the same packs.
                    for number in (0..EACH).map(|at| at * WRITERS + writer) {
                        let mut store = store.lock().unwrap();
                        Packed::new(&mut **store, layout.clone())
                            .set(number, &[writer as u8 + 1; 16])
                            .unwrap();
                    }
                });
            }
        });
        let mut store = store.into_inner().unwrap();
        let mut array = Packed::new(&mut *store, layout);
        for number in 0..WRITERS * EACH {
            let expected = [(number % WRITERS) as u8 + 1; 16];
            assert_eq!(
                array.get(number).unwrap().as_deref(),
                Some(&expected[..]),
                "{}: {number}",
                kind.name()
            );
        }
        assert!(matches!(array.set(1, b"short"), Err(Error::Refused(_))));
    }
}
