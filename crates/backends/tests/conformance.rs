//! Every backend beside a map, under random operations and restarts: what is true of one is true of all.
//!
//! One list of operations runs on each backend that the tests were built with
//! (`--features fjall,lmdb,mdbx,redb,rocksdb,wiredtiger` for all). A store at durability `sync` is also left without
//! being closed; one that keeps nothing is opened anew only where that is not asked for. `ANNULET_BACKEND_CASES` runs
//! more lists.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use backends::{Backend, Durability, Error, Item, Kind, Machine, Settings, What, Write};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

/// Lists of operations in an ordinary run.
const CASES: u32 = 12;

/// Longer than the keys of some engines may be.
const LONG_KEY_BYTES: usize = 100_000;

/// A head and a value.
type Content = (Vec<u8>, Vec<u8>);

type Model = BTreeMap<Vec<u8>, Content>;

/// A key's number, and the lengths of head and value; `None` is a delete.
type Change = (u16, Option<(usize, usize)>);

#[derive(Clone, Debug)]
enum Op {
    Put(u16, usize, usize),
    Delete(u16),
    Batch(Vec<Change>),
    /// A batch whose last key is too long for some.
    LongBatch(Vec<Change>),
    Get(u16),
    Fold(Option<u16>, Option<u16>, bool, usize),
    Churn(u16),
    Close,
    Leave,
}

fn ops() -> impl Strategy<Value = Op> {
    let key = || 0u16..80;
    let head = || prop_oneof![Just(0usize), 1usize..100];
    let value = || prop_oneof![4 => 0usize..300, 1 => 900usize..9000];
    let change = move || (key(), proptest::option::weighted(0.8, (head(), value())));
    prop_oneof![
        20 => (key(), head(), value()).prop_map(|(key, head, value)| Op::Put(key, head, value)),
        6 => key().prop_map(Op::Delete),
        6 => vec(change(), 0..12).prop_map(Op::Batch),
        1 => vec(change(), 0..12).prop_map(Op::LongBatch),
        15 => key().prop_map(Op::Get),
        5 => (proptest::option::of(key()), proptest::option::of(key()), any::<bool>(), 1usize..100)
            .prop_map(|(from, to, heads, most)| Op::Fold(from, to, heads, most)),
        1 => (20u16..100).prop_map(Op::Churn),
        2 => Just(Op::Close),
        1 => Just(Op::Leave),
    ]
}

/// Keys of several lengths, with bytes from both ends, some the beginning of others.
fn key(number: u16) -> Vec<u8> {
    let mut key = vec![[0, b'b', 0xff][usize::from(number) % 3]];
    key.extend_from_slice(&(number / 6).to_be_bytes());
    key.extend(std::iter::repeat_n(0xff, usize::from(number) / 3 % 2 * usize::from(number)));
    key
}

fn open(kind: Kind, folder: &Path, durability: Durability) -> Box<dyn Backend> {
    let machine =
        Machine::new(os::OsDisk::blocking().blocking_handles(), os::OsClock::new(), os::OsRng::new());
    let settings =
        Settings { durability, cache_bytes: 1 << 20, segment_bytes: 16 << 10, ..Settings::default() };
    kind.open(folder, &settings, machine).unwrap()
}

struct World {
    kind: Kind,
    durability: Durability,
    /// Goes before its folder does.
    store: Option<Box<dyn Backend>>,
    folder: tempfile::TempDir,
    model: Model,
    writes: u8,
}

impl World {
    fn new(kind: Kind, durability: Durability) -> World {
        let folder = tempfile::tempdir().unwrap();
        let store = Some(open(kind, folder.path(), durability));
        World { kind, durability, store, folder, model: Model::new(), writes: 0 }
    }

    fn store(&mut self) -> &mut dyn Backend {
        &mut **self.store.as_mut().unwrap()
    }

    /// What each part of a batch writes: bytes that tell the writes apart.
    fn contents(&mut self, changes: &[Change]) -> Vec<(Vec<u8>, Option<Content>)> {
        let mut content = |(number, lens): &Change| {
            self.writes = self.writes.wrapping_add(1);
            let of = |(head, value): (usize, usize)| (vec![self.writes; head], vec![!self.writes; value]);
            (key(*number), lens.map(of))
        };
        changes.iter().map(&mut content).collect()
    }

    fn write(&mut self, changes: &[Change], long: Option<&[u8]>) {
        let contents = self.contents(changes);
        let mut batch: Vec<Write<'_>> = contents
            .iter()
            .map(|(key, content)| match content {
                Some((head, value)) => Write::Put { key, head, value },
                None => Write::Delete { key },
            })
            .collect();
        batch.extend(long.map(|key| Write::Put { key, head: b"long", value: b"long" }));
        match self.store().write(&batch) {
            Ok(()) => {
                let long = long.map(|key| (key.to_vec(), Some((b"long".to_vec(), b"long".to_vec()))));
                for (key, content) in contents.into_iter().chain(long) {
                    match content {
                        Some(content) => drop(self.model.insert(key, content)),
                        None => drop(self.model.remove(&key)),
                    }
                }
            }
            Err(error) => {
                assert!(long.is_some(), "{error}");
                assert!(matches!(error, Error::TooLarge { .. }), "{error:?}");
            }
        }
    }

    fn check_key(&mut self, key: &[u8]) {
        let name = self.kind.name();
        let expected = self.model.get(key).cloned();
        let found = self.store().get(key).unwrap();
        let found = found.map(|found| (found.head.to_vec(), found.value.to_vec()));
        assert_eq!(found, expected, "{name}: get {key:?}");
        let head = self.store().head(key).unwrap();
        assert_eq!(head.as_deref(), expected.as_ref().map(|(head, _)| &head[..]), "{name}: head {key:?}");
    }

    fn check_fold(&mut self, from: &[u8], to: &[u8], what: What, most: usize) {
        let name = self.kind.name();
        let mut seen: Vec<(Vec<u8>, Content)> = Vec::new();
        let mut visit = |item: Item<'_>| {
            seen.push((item.key.to_vec(), (item.head.to_vec(), item.value.to_vec())));
            if seen.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        self.store().fold(from, to, what, &mut visit).unwrap();
        let is_in = |key: &[u8]| key >= from && (to.is_empty() || key < to);
        let expected = self.model.iter().filter(|(key, _)| is_in(key)).take(most);
        let expected = expected.map(|(key, (head, value))| {
            let value = if what == What::Objects { value.clone() } else { Vec::new() };
            (key.clone(), (head.clone(), value))
        });
        assert_eq!(seen, expected.collect::<Vec<_>>(), "{name}: {what:?} from {from:?} to {to:?}");
    }

    fn reopen(&mut self, is_closed: bool) {
        if !self.kind.is_kept() {
            return;
        }
        let store = self.store.take().unwrap();
        if is_closed {
            store.close().unwrap()
        } else {
            drop(store)
        }
        self.store = Some(open(self.kind, self.folder.path(), self.durability));
        self.check_fold(&[], &[], What::Objects, usize::MAX);
    }

    fn run(&mut self, op: &Op) {
        let bound = |number: Option<u16>| number.map(key).unwrap_or_default();
        match op {
            Op::Put(number, head, value) => {
                let content = self.contents(&[(*number, Some((*head, *value)))]).pop().unwrap();
                let (key, content) = (content.0, content.1.unwrap());
                self.store().put(&key, &content.0, &content.1).unwrap();
                self.model.insert(key, content);
            }
            Op::Delete(number) => {
                self.store().delete(&key(*number)).unwrap();
                self.model.remove(&key(*number));
            }
            Op::Batch(changes) => self.write(changes, None),
            Op::LongBatch(changes) => {
                let long = vec![b'l'; LONG_KEY_BYTES];
                self.write(changes, Some(&long));
                self.check_fold(&[], &[], What::Heads, usize::MAX);
                self.check_key(&long);
                self.check_fold(&long, &[], What::Heads, usize::MAX);
                self.check_fold(&[], &long, What::Heads, usize::MAX);
            }
            Op::Get(number) => self.check_key(&key(*number)),
            Op::Fold(from, to, is_heads, most) => {
                let what = if *is_heads { What::Heads } else { What::Objects };
                self.check_fold(&bound(*from), &bound(*to), what, *most);
            }
            Op::Churn(count) => {
                for number in 0..*count {
                    self.write(&[(number % 80, (number % 7 > 0).then_some((8, 2000)))], None);
                }
            }
            Op::Close => self.reopen(true),
            Op::Leave => self.reopen(self.durability != Durability::Sync),
        }
    }
}

fn cases() -> u32 {
    std::env::var("ANNULET_BACKEND_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn every_backend_is_as_a_map(ops in vec(ops(), 1..150), is_synced in prop::bool::weighted(0.2)) {
        let durability = if is_synced { Durability::Sync } else { Durability::None };
        // A sync takes its time.
        let count = if is_synced { ops.len().min(25) } else { ops.len() };
        for kind in Kind::ALL.into_iter().filter(|kind| kind.is_built()) {
            let mut world = World::new(kind, durability);
            ops[..count].iter().for_each(|op| world.run(op));
            world.reopen(true);
            world.check_fold(&[], &[], What::Objects, usize::MAX);
        }
    }
}

#[test]
fn what_a_program_or_an_engine_has_not_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for kind in Kind::ALL {
        let machine =
            Machine::new(os::OsDisk::blocking().blocking_handles(), os::OsClock::new(), os::OsRng::new());
        let settings = Settings { durability: Durability::Interval, ..Settings::default() };
        let opened = kind.open(&folder.path().join(kind.name()), &settings, machine);
        match opened.map(drop) {
            Ok(()) => assert_eq!(kind, Kind::Annulet),
            Err(Error::Refused(what)) => assert!(what.contains(kind.name()), "{what}"),
            Err(other) => panic!("{other}"),
        }
        assert_eq!(kind.options(&Settings::default())["backend"], kind.name());
    }
}

#[test]
fn a_value_is_shared_and_outlives_the_store() {
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_built()) {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(kind, folder.path(), Durability::None);
        store.put(b"key", b"head", &[7; 5000]).unwrap();
        let object = store.get(b"key").unwrap().unwrap();
        store.put(b"key", b"later", &[8; 5000]).unwrap();
        store.close().unwrap();
        assert_eq!(object.head, Bytes::from_static(b"head"), "{}", kind.name());
        assert_eq!(object.value, Bytes::from(vec![7; 5000]), "{}", kind.name());
    }
}

#[test]
fn a_batch_that_keeps_to_the_limits_is_taken() {
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_built()) {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(kind, folder.path(), Durability::None);
        let limits = store.limits();
        let long = vec![b'l'; limits.key_bytes.min(LONG_KEY_BYTES)];
        let put = Write::Put { key: &long, head: b"", value: b"" };
        if limits.check(&put).is_ok() {
            store.write(&[put]).unwrap();
        }
        // A larger one would say more of this machine's memory.
        if limits.batch_bytes > 16 << 20 {
            continue;
        }
        let value = vec![7; limits.batch_bytes - limits.write_bytes - 3];
        let put = Write::Put { key: b"key", head: b"", value: &value };
        assert_eq!(limits.check(&put), Ok(limits.batch_bytes), "{}", kind.name());
        store.write(&[put]).unwrap();
        let small = Write::Put { key: b"k", head: b"", value: b"" };
        let count = limits.batch_bytes / limits.check(&small).unwrap();
        store.write(&vec![small; count]).unwrap();
        let larger = [&value[..], &[7; 100]].concat();
        let put = Write::Put { key: b"key", head: b"", value: &larger };
        assert!(matches!(limits.check(&put), Err(Error::TooLarge { .. })), "{}", kind.name());
        assert!(matches!(store.write(&[put]), Err(Error::TooLarge { .. })), "{}", kind.name());
    }
}
