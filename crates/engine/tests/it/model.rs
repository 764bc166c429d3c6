//! The store beside a map, under random operations, options, restarts, kills and power cuts.
//!
//! One list of operations runs on eight stores that are told different things, some with jobs that run elsewhere; each
//! must answer as the map does, so all agree. Folds are made now and run later, when the store has gone on.
//! `ANNULET_MODEL_CASES` runs more lists.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::HandClock;
use crate::common::disk::MemoryDisk;
use crate::common::jobs::while_waiting;
use base::rng::SplitMix64;
use engine::fold::{Control, FoldRequest, JournalCheck, KeyRange, What};
use engine::{Codec, CompressAt, Durability, Embedded, Machine, Options, Snapshot, Want, Write};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Lists of operations in an ordinary run: some 200,000 operations on all stores together, in some ten seconds. With
/// 20, a fault that one list in hundreds meets went unseen in most runs.
const CASES: u32 = 200;

type Key = u16;

#[derive(Clone, Debug)]
enum Op {
    Put(Key, usize),
    PutFor(Key, usize, u64),
    Delete(Key),
    DropRange(Key, Key),
    Batch(Vec<(Key, Option<usize>)>),
    PutIf(Key, bool, usize),
    Get(Key),
    Many(Vec<Key>),
    Range(Key, Key, bool),
    Load(Key, u16),
    Snapshot,
    RunLater,
    Folds,
    Wait(u64),
    Flush,
    Churn(u16),
    Close,
    Kill,
    PowerCut,
}

fn ops() -> impl Strategy<Value = Op> {
    let key = || 0u16..60;
    let len = || prop_oneof![0usize..40, 60usize..400];
    prop_oneof![
        20 => (key(), len()).prop_map(|(key, len)| Op::Put(key, len)),
        4 => (key(), len(), 0u64..60).prop_map(|(key, len, ms)| Op::PutFor(key, len, ms)),
        6 => key().prop_map(Op::Delete),
        2 => (key(), key()).prop_map(|(from, to)| Op::DropRange(from, to)),
        5 => vec((key(), proptest::option::weighted(0.8, len())), 1..12).prop_map(Op::Batch),
        4 => (key(), any::<bool>(), len()).prop_map(|(key, right, len)| Op::PutIf(key, right, len)),
        10 => key().prop_map(Op::Get),
        3 => vec(key(), 0..30).prop_map(Op::Many),
        4 => (key(), key(), any::<bool>()).prop_map(|(from, to, back)| Op::Range(from, to, back)),
        1 => (key(), 1u16..80).prop_map(|(from, count)| Op::Load(from, count)),
        2 => Just(Op::Snapshot),
        2 => Just(Op::RunLater),
        2 => Just(Op::Folds),
        4 => (1u64..30).prop_map(Op::Wait),
        1 => Just(Op::Flush),
        3 => (20u16..120).prop_map(Op::Churn),
        1 => Just(Op::Close),
        2 => Just(Op::Kill),
        2 => Just(Op::PowerCut),
    ]
}

/// What a store may be told, from one extreme to the other.
fn options(number: u64) -> Options {
    let durability = [Durability::Sync, Durability::None, Durability::Interval][number as usize % 3];
    Options {
        durability,
        inline_value_bytes_max: [0, 64, 10_000][number as usize / 3 % 3],
        memtable_bytes_max: [2 << 10, 16 << 10, 8 << 10, 1 << 20][number as usize % 4],
        segment_bytes_target: [4 << 10, 64 << 10][number as usize % 2],
        table_bytes_target: [1 << 10, 8 << 10, 64 << 10][number as usize % 3],
        level0_tables_max: [1, 2, 4][number as usize % 3],
        leveled_bytes_target: [2 << 10, 32 << 10][number as usize / 2 % 2],
        block_cache_bytes: [8 << 10, 1 << 20][number as usize / 4 % 2],
        compression: [None, Some(Codec::Lz4)][number as usize / 2 % 2],
        compress_at: [CompressAt::Receipt, CompressAt::Compaction][number as usize % 2],
        ..Options::default()
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Version {
    head: Vec<u8>,
    value: Vec<u8>,
    expires_ms: Option<u64>,
}

type Model = BTreeMap<Vec<u8>, Version>;

struct World {
    disk: MemoryDisk,
    clock: HandClock,
    options: Options,
    store: Option<Embedded>,
    model: Model,
    writes: u64,
    /// A moment and what was there.
    kept: Vec<(Snapshot, u64, Model)>,
    elsewhere: bool,
}

fn key(number: Key) -> Vec<u8> {
    format!("b{}/key-{number:03}", number % 4).into_bytes()
}

impl World {
    /// The store has its jobs run within its calls, or, where they are `elsewhere`, while it waits for them.
    fn new(options: Options, elsewhere: bool) -> World {
        let (disk, clock) = (MemoryDisk::default(), HandClock::new());
        let (store, model) = (None, Model::new());
        let mut world = World { disk, clock, options, store, model, writes: 0, kept: Vec::new(), elsewhere };
        world.open();
        world
    }

    fn open(&mut self) {
        if self.writes > 0 {
            // Told something else at each start.
            self.options.compression = [None, Some(Codec::Lz4), Some(Codec::Lz4)][self.writes as usize % 3];
        }
        let disk = self.disk.clone();
        let jobs = disk.clone();
        let mut machine = Machine::new(move || disk.clone(), self.clock.clone(), SplitMix64::new(1));
        if self.elsewhere {
            machine = machine.with_jobs(move || Ok(while_waiting(jobs.clone())));
        }
        self.store = Some(Embedded::open(Path::new("/store"), self.options.clone(), machine).unwrap());
    }

    /// Goes on with what a crash has left of the disk.
    fn reopen(&mut self, disk: MemoryDisk) {
        self.store = None;
        self.kept.clear();
        self.disk = disk;
        self.open();
    }

    fn store(&mut self) -> &mut Embedded {
        self.store.as_mut().unwrap()
    }

    fn version(&mut self, len: usize, expires_ms: Option<u64>) -> Version {
        self.writes += 1;
        let head = self.writes.to_le_bytes().to_vec();
        Version { head, value: vec![self.writes as u8; len], expires_ms }
    }

    fn put(&mut self, number: Key, len: usize) {
        let version = self.version(len, None);
        self.store().put(&key(number), &version.head, &version.value).unwrap();
        self.model.insert(key(number), version);
    }

    fn live(model: &Model, now_ms: u64) -> Model {
        let live = |(_, version): &(&Vec<u8>, &Version)| version.expires_ms.is_none_or(|end| end > now_ms);
        model.iter().filter(live).map(|(key, version)| (key.clone(), version.clone())).collect()
    }

    fn now(&self) -> Model {
        World::live(&self.model, self.clock.ms())
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Put(number, len) => self.put(*number, *len),
            Op::PutFor(number, len, ms) => {
                let version = self.version(*len, Some(self.clock.ms() + ms));
                let (ttl, key) = (Duration::from_millis(*ms), key(*number));
                self.store().put_for(&key, &version.head, &version.value, ttl).unwrap();
                self.model.insert(key, version);
            }
            Op::Delete(number) => {
                self.store().delete(&key(*number)).unwrap();
                self.model.remove(&key(*number));
            }
            Op::DropRange(from, to) => {
                let (start, end) = (key(*from), key(*to));
                self.store().drop_range(&start, &end).unwrap();
                self.model.retain(|key, _| !(*key >= start && *key < end));
            }
            Op::Batch(writes) => self.batch(writes),
            Op::PutIf(number, right, len) => self.put_if(*number, *right, *len),
            Op::Get(number) => self.get(*number),
            Op::Many(numbers) => self.many(numbers),
            Op::Range(from, to, back) => self.range(*from, *to, *back),
            Op::Load(from, count) => self.load(*from, *count),
            Op::Snapshot => {
                let snapshot = self.store().snapshot();
                let (now_ms, model) = (self.clock.ms(), self.now());
                self.kept.push((snapshot, now_ms, model));
            }
            Op::RunLater => {
                for (snapshot, _, model) in self.kept.clone() {
                    self.fold_all(snapshot, &model);
                }
            }
            Op::Folds => {
                let (snapshot, model) = (self.store().snapshot(), self.now());
                self.fold_all(snapshot, &model);
            }
            Op::Wait(ms) => self.clock.advance_ms(*ms),
            Op::Flush => self.store().flush().unwrap(),
            Op::Churn(count) => (0..*count).for_each(|number| self.put(40 + number % 20, 50)),
            Op::Close => {
                self.store.take().unwrap().close().unwrap();
                let disk = self.disk.after_power_cut();
                self.reopen(disk);
                assert_eq!(self.store().report().replayed, 0);
            }
            Op::Kill => {
                let disk = self.disk.after_kill();
                self.reopen(disk);
            }
            // Only what was promised must survive one.
            Op::PowerCut if self.options.durability == Durability::Sync => {
                let disk = self.disk.after_power_cut();
                self.reopen(disk);
            }
            Op::PowerCut => self.step(&Op::Kill),
        }
    }

    fn batch(&mut self, writes: &[(Key, Option<usize>)]) {
        let made: Vec<_> = writes
            .iter()
            .map(|(number, len)| (key(*number), len.map(|len| self.version(len, None))))
            .collect();
        let values: Vec<[&[u8]; 2]> = made
            .iter()
            .map(|(_, version)| {
                version.as_ref().map_or([&b""[..]; 2], |v| v.value.split_at(v.value.len() / 2).into())
            })
            .collect();
        let batch: Vec<Write<'_>> = made
            .iter()
            .zip(&values)
            .map(|((key, version), value)| match version {
                Some(version) => Write::Put { key, head: &version.head, value },
                None => Write::Delete { key },
            })
            .collect();
        self.store.as_mut().unwrap().write(&batch).unwrap();
        for (key, version) in made {
            match version {
                Some(version) => drop(self.model.insert(key, version)),
                None => drop(self.model.remove(&key)),
            }
        }
    }

    fn put_if(&mut self, number: Key, right: bool, len: usize) {
        let key = key(number);
        let known = self.store().version(&key).unwrap();
        let wrong = if known.is_some() { None } else { Some(engine::Seq(1)) };
        let version = self.version(len, None);
        let expected = if right { known } else { wrong };
        let done = self.store().put_if(&key, expected, &version.head, &version.value).unwrap();
        assert_eq!(done.is_ok(), right);
        if right {
            self.model.insert(key, version);
        } else {
            assert_eq!(done, Err(known));
        }
    }

    fn get(&mut self, number: Key) {
        let expected = self.now().get(&key(number)).cloned();
        let of = |found: engine::store::Found| Version {
            head: found.head.to_vec(),
            value: found.value.unwrap().to_vec(),
            expires_ms: found.expires_ms,
        };
        let mut reader = self.store().reader();
        assert_eq!(self.store().get(&key(number)).unwrap().map(of), expected);
        assert_eq!(reader.get(&key(number)).unwrap().map(of), expected);
        let head = self.store().head(&key(number)).unwrap();
        assert_eq!(head.map(|found| found.head.to_vec()), expected.map(|version| version.head));
    }

    fn many(&mut self, numbers: &[Key]) {
        let keys: Vec<Vec<u8>> = numbers.iter().map(|&number| key(number)).collect();
        let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let model = self.now();
        for (key, found) in keys.iter().zip(self.store().get_many(&asked)) {
            let value = found.unwrap().map(|found| found.value.unwrap().to_vec());
            assert_eq!(value.as_ref(), model.get(key).map(|version| &version.value));
        }
    }

    fn range(&mut self, from: Key, to: Key, back: bool) {
        let (start, end) = (key(from), key(to));
        let mut expected: Vec<_> = self
            .now()
            .into_iter()
            .filter(|(key, _)| *key >= start && *key < end)
            .map(|(key, _)| key)
            .collect();
        let mut reader = self.store().reader();
        let range = reader.range(&start, &end, Want::Head).unwrap();
        let keys: Vec<Vec<u8>> = if back {
            expected.reverse();
            range.rev().map(|item| item.unwrap().key.to_vec()).collect()
        } else {
            range.map(|item| item.unwrap().key.to_vec()).collect()
        };
        assert_eq!(keys, expected);
    }

    fn load(&mut self, from: Key, count: u16) {
        let loaded: BTreeMap<Vec<u8>, Version> = (from..from + count)
            .map(|number| (key(number), self.version(usize::from(number) * 3, None)))
            .collect();
        let mut load = self.store().load().unwrap();
        for (key, version) in &loaded {
            load.put(key, &version.head, &version.value).unwrap();
        }
        load.finish().unwrap();
        self.model.extend(loaded);
    }

    fn fold_all(&mut self, snapshot: Snapshot, model: &Model) {
        let mut reader = self.store().reader_at(snapshot);
        let whats = [
            What::Heads(JournalCheck::None),
            What::Heads(JournalCheck::Checksum),
            What::Objects,
            What::ObjectsByJournal,
        ];
        for what in whats {
            let mut seen = BTreeMap::new();
            let mut visit = |item: &engine::fold::Visited<'_>| {
                let value = item.value.clone().unwrap_or_default();
                assert!(seen.insert(item.key.to_vec(), (item.head.to_vec(), value)).is_none());
                Control::Next
            };
            let end = reader.fold(FoldRequest::over(KeyRange::all(), what), &mut visit).unwrap();
            assert_eq!((end.damaged, end.next), (0, None));
            assert!(seen.keys().eq(model.keys()), "{what:?}");
            let values = matches!(what, What::Objects | What::ObjectsByJournal);
            for ((head, value), version) in seen.values().zip(model.values()) {
                assert_eq!(*head, version.head);
                assert!(!values || *value == version.value);
            }
        }
    }
}

fn cases() -> u32 {
    std::env::var("ANNULET_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES)
}

/// Runs the same operations on eight stores, told what numbers from `first` on say.
fn run(ops: &[Op], first: u64) {
    for number in first..first + 8 {
        let mut world = World::new(options(number), number % 5 < 2);
        for op in ops {
            world.step(op);
        }
        (0..60).for_each(|number| world.get(number));
        world.step(&Op::Folds);
        world.step(&Op::RunLater);
    }
}

/// A seal was half written that stands right behind where the replay begins: all that came after it was cut.
#[test]
fn a_kill_while_a_seal_is_written_behind_a_load() {
    let before = [
        Op::Put(0, 0),
        Op::Put(0, 0),
        Op::Put(0, 0),
        Op::Put(5, 0),
        Op::Load(0, 46),
        Op::Put(1, 0),
        Op::Churn(42),
    ];
    let closed = [Op::Put(0, 0), Op::Kill, Op::Delete(40), Op::Close, Op::Churn(103), Op::Snapshot];
    let lost = [Op::Load(0, 46), Op::Put(0, 0), Op::Batch(vec![(0, None)]), Op::Put(0, 0), Op::Kill];
    run(&[&before[..], &closed, &lost].concat(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn eight_stores_answer_as_a_map_does(ops in vec(ops(), 1..250), first in 0u64..36) {
        run(&ops, first);
    }
}
