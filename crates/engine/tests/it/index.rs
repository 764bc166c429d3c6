//! Index entries beside a map: whatever is written, dropped, ended, killed, lost and made again, the entries are those
//! of the live heads. `ANNULET_MODEL_CASES` runs more lists.
//!
//! An object's key is `o` and a name, its head is its terms, a byte each; an entry is `x`, the term, a number of dots,
//! and the name. So an entry is as long as a test wants it to be, and pages of a few objects can be had.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::HandClock;
use crate::common::disk::MemoryDisk;
use base::rng::SplitMix64;
use bytes::Bytes;
use engine::check::{Finding, check_index};
use engine::fold::{ScanRequest, Visit};
use engine::recovery::{in_turn, repair_store};
use engine::{Durability, Embedded, Indexing, Machine, Options, Write};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const DIR: &str = "/store";

/// Lists of operations in an ordinary run.
const CASES: u32 = 24;

fn indexing<const DOTS: usize>() -> Indexing {
    Indexing {
        may_have: |head| !head.is_empty(),
        entries_of: |key, head, each| {
            let Some(name) = key.strip_prefix(b"o") else { return };
            head.iter().for_each(|&term| each(&entry::<DOTS>(term, name)));
        },
        object_of: |entry| Some([b"o", entry.strip_prefix(b"x")?.get(1 + DOTS..)?].concat()),
        objects: (b"o", b"p"),
        entries: (b"x", b"y"),
    }
}

fn entry<const DOTS: usize>(term: u8, name: &[u8]) -> Vec<u8> {
    [&[b'x', term], &[b'.'; DOTS][..], name].concat()
}

type Key = u16;

fn name(number: Key) -> Vec<u8> {
    format!("{number:03}").into_bytes()
}

fn object(number: Key) -> Vec<u8> {
    [b"o", &name(number)[..]].concat()
}

#[derive(Clone, Debug)]
enum Op {
    Put(Key, Vec<u8>, usize),
    PutFor(Key, Vec<u8>, u64),
    Delete(Key),
    DropRange(Key, Key),
    Other(Key),
    Wait(u64),
    Flush,
    Churn(u16),
    Compact,
    Close,
    Kill,
    PowerCut,
    Unmark,
    Lose,
}

fn terms() -> impl Strategy<Value = Vec<u8>> {
    vec(b'a'..b'g', 0..4)
}

fn ops() -> impl Strategy<Value = Op> {
    let key = || 0u16..40;
    prop_oneof![
        24 => (key(), terms(), prop_oneof![0usize..40, 60usize..300]).prop_map(|(k, t, l)| Op::Put(k, t, l)),
        4 => (key(), terms(), 0u64..60).prop_map(|(key, terms, ms)| Op::PutFor(key, terms, ms)),
        8 => key().prop_map(Op::Delete),
        3 => (key(), key()).prop_map(|(from, to)| Op::DropRange(from, to)),
        3 => key().prop_map(Op::Other),
        4 => (1u64..30).prop_map(Op::Wait),
        2 => Just(Op::Flush),
        3 => (20u16..80).prop_map(Op::Churn),
        1 => Just(Op::Compact),
        2 => Just(Op::Close),
        2 => Just(Op::Kill),
        2 => Just(Op::PowerCut),
        1 => Just(Op::Unmark),
        1 => Just(Op::Lose),
    ]
}

fn options(number: u64, indexing: Indexing) -> Options {
    Options {
        durability: [Durability::Sync, Durability::None][number as usize % 2],
        inline_value_bytes_max: [0, 64, 10_000][number as usize % 3],
        memtable_bytes_max: [2 << 10, 16 << 10, 1 << 20][number as usize % 3],
        segment_bytes_target: [4 << 10, 64 << 10][number as usize / 2 % 2],
        table_bytes_target: [1 << 10, 8 << 10][number as usize % 2],
        level0_tables_max: [1, 2, 4][number as usize % 3],
        leveled_bytes_target: [2 << 10, 32 << 10][number as usize / 2 % 2],
        block_cache_bytes: 8 << 10,
        indexing: Some(indexing),
        ..Options::default()
    }
}

struct Object {
    terms: Vec<u8>,
    expires_ms: Option<u64>,
}

struct World<const DOTS: usize> {
    disk: MemoryDisk,
    clock: HandClock,
    options: Options,
    store: Option<Embedded>,
    model: BTreeMap<Key, Object>,
    writes: u64,
}

impl<const DOTS: usize> World<DOTS> {
    fn new(number: u64) -> World<DOTS> {
        let (disk, clock, options) =
            (MemoryDisk::default(), HandClock::new(), options(number, indexing::<DOTS>()));
        let mut world = World { disk, clock, options, store: None, model: BTreeMap::new(), writes: 0 };
        world.open();
        world
    }

    fn machine(&self) -> Machine {
        let disk = self.disk.clone();
        Machine::new(move || disk.clone(), self.clock.clone(), SplitMix64::new(1))
    }

    fn open(&mut self) {
        self.store = Some(Embedded::open(Path::new(DIR), self.options.clone(), self.machine()).unwrap());
    }

    fn reopen(&mut self, disk: MemoryDisk) {
        self.store = None;
        self.disk = disk;
        self.open();
    }

    fn store(&mut self) -> &mut Embedded {
        self.store.as_mut().unwrap()
    }

    fn put(&mut self, number: Key, terms: &[u8], len: usize) {
        self.writes += 1;
        let value = vec![self.writes as u8; len];
        self.store().put_indexed(&object(number), terms, &value).unwrap();
        self.model.insert(number, Object { terms: terms.to_vec(), expires_ms: None });
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Put(number, terms, len) => self.put(*number, terms, *len),
            Op::PutFor(number, terms, ms) => {
                let (key, expires_ms) = (object(*number), self.clock.ms() + ms);
                let write = Write::PutUntil { key: &key, head: terms, value: &[b"value"], expires_ms };
                self.store().write_indexed(&[write], &key).unwrap();
                self.model.insert(*number, Object { terms: terms.clone(), expires_ms: Some(expires_ms) });
            }
            Op::Delete(number) => {
                self.store().delete_indexed(&object(*number)).unwrap();
                self.model.remove(number);
            }
            Op::DropRange(from, to) => {
                self.store().drop_range(&object(*from), &object(*to)).unwrap();
                self.model.retain(|number, _| !(number >= from && number < to));
            }
            Op::Other(number) => drop(self.store().put(&name(*number), b"head", b"value").unwrap()),
            Op::Wait(ms) => self.clock.advance_ms(*ms),
            Op::Flush => self.store().flush().unwrap(),
            Op::Churn(count) => (0..*count).for_each(|at| self.put(at % 40, &[b'a' + (at % 5) as u8], 50)),
            Op::Compact => self.store().compact().unwrap(),
            Op::Close => {
                self.store.take().unwrap().close().unwrap();
                self.reopen(self.disk.after_power_cut());
            }
            Op::Kill => self.reopen(self.disk.after_kill()),
            Op::PowerCut if self.options.durability == Durability::Sync => {
                self.reopen(self.disk.after_power_cut());
            }
            Op::PowerCut => self.step(&Op::Kill),
            // As in a folder of an older program, which has no entries; here it has some.
            Op::Unmark => {
                self.store().delete(b"x").unwrap();
                self.step(&Op::Kill);
            }
            Op::Lose => self.lose_ledger(),
        }
    }

    /// All tables are lost, and the ledger is made again from the journal.
    fn lose_ledger(&mut self) {
        // What was written while the index was made anew is not all that it has.
        self.store().build_index().unwrap();
        self.store.take().unwrap().close().unwrap();
        self.disk = self.disk.after_kill();
        let tables: Vec<_> =
            self.disk.names().into_iter().filter(|path| path.starts_with(format!("{DIR}/tables"))).collect();
        tables.iter().for_each(|path| self.disk.remove(path));
        let mut disk = self.disk.clone();
        let report = repair_store(
            &mut disk,
            Path::new(DIR),
            &self.options,
            &mut SplitMix64::new(7),
            &mut in_turn,
            &Arc::default(),
        );
        let lost = report.unwrap().lost;
        self.reopen(self.disk.after_kill());
        if !lost.is_empty() {
            // Values that only tables had, of which nothing is known any more.
            self.forget_lost();
        }
    }

    fn forget_lost(&mut self) {
        let numbers: Vec<Key> = self.model.keys().copied().collect();
        for number in numbers {
            if self.store().head(&object(number)).is_err() {
                self.model.remove(&number);
            }
        }
        self.store().store().accept_losses();
        // So that all of them are known to be gone.
        for number in 0..40 {
            if self.store().head(&object(number)).unwrap().is_none() {
                self.model.remove(&number);
            }
        }
    }

    /// The entries that there are.
    fn entries(&mut self) -> BTreeSet<Vec<u8>> {
        let mut seen = BTreeSet::new();
        let mut start = Some(Bytes::from_static(b"x\0"));
        while let Some(from) = start {
            let visitor = Box::new(|_: &[u8], head: &[u8]| {
                assert!(head.is_empty());
                Visit::Take
            });
            let (end, items_max) = (Bytes::from_static(b"y"), 1000);
            let request = ScanRequest { start: from, end, items_max, visitor, past_losses: true };
            let page = self.store().scan(request).unwrap();
            seen.extend(page.items.into_iter().map(|(key, _)| key.to_vec()));
            start = page.next;
        }
        seen
    }

    /// Those that there should be.
    fn expected(&self) -> BTreeSet<Vec<u8>> {
        let now = self.clock.ms();
        let live = |object: &Object| object.expires_ms.is_none_or(|at| at > now);
        let entries = |(&number, object): (&Key, &Object)| -> Vec<Vec<u8>> {
            object.terms.iter().map(|&term| entry::<DOTS>(term, &name(number))).collect()
        };
        self.model.iter().filter(|(_, object)| live(object)).flat_map(entries).collect()
    }

    /// What the check of a stopped store finds.
    fn findings(&mut self) -> Vec<String> {
        self.store().build_index().unwrap();
        self.store.take().unwrap().close().unwrap();
        self.disk = self.disk.after_kill();
        let (mut disk, mut findings) = (self.disk.clone(), Vec::new());
        let indexing = self.options.indexing.unwrap();
        let mut find = |finding: Finding| findings.push(finding.what);
        let checked = check_index(&mut disk, Path::new(DIR), &indexing, self.clock.ms(), &mut find).unwrap();
        assert!(checked.is_some(), "it was stopped cleanly");
        self.reopen(self.disk.after_kill());
        findings
    }

    fn check(&mut self) {
        if self.store().store().is_indexed() {
            assert_eq!(self.entries(), self.expected());
        }
    }

    fn check_whole(&mut self) {
        self.store().build_index().unwrap();
        assert!(self.store().store().is_indexed());
        self.check();
    }
}

fn cases() -> u32 {
    std::env::var("ANNULET_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn entries_are_those_of_the_live_objects(ops in vec(ops(), 1..120), first in 0u64..12) {
        for number in first..first + 3 {
            let mut world = World::<1>::new(number);
            for (at, op) in ops.iter().enumerate() {
                world.step(op);
                if at % 4 == 0 {
                    world.check();
                }
            }
            world.check_whole();
            if world.store().store().check_range(b"", b"").is_ok() {
                assert_eq!(world.findings(), [""; 0]);
            }
        }
    }
}

#[test]
fn a_check_names_what_is_wrong() {
    let mut world = World::<1>::new(1);
    (0..10).for_each(|number| world.put(number, b"ab", 20));
    assert_eq!(world.findings(), [""; 0]);
    // Behind the index's back.
    world.store().delete(&entry::<1>(b'a', &name(3))).unwrap();
    world.store().put(&entry::<1>(b'q', &name(4)), b"", b"").unwrap();
    world.store().delete(&object(9)).unwrap();
    let expected = [
        "an object's index entry is missing: \"xa.003\"",
        "an index entry of no object: \"xa.009\"",
        "an index entry of no object: \"xb.009\"",
        "an index entry of no object: \"xq.004\"",
    ];
    assert_eq!(world.findings(), expected);
}

/// Entries of some kilobytes: a page has few objects.
const LONG: usize = 4000;

#[test]
fn a_folder_without_entries_gets_them_while_it_is_written_to() {
    for seed in 0..6 {
        let mut world = World::<LONG>::new(2 * seed);
        world.store.take().unwrap().close().unwrap();
        (world.options.segment_bytes_target, world.options.memtable_bytes_max) = (1 << 20, 64 << 10);
        let indexing = world.options.indexing.take();
        world.disk = world.disk.after_kill();
        world.disk.names().iter().for_each(|path| world.disk.remove(path));
        world.open();
        for number in 0..200 {
            let terms = [b'a' + (number % 7) as u8, b'k'];
            world.store().put(&object(number), &terms, b"value").unwrap();
            world.model.insert(number, Object { terms: terms.to_vec(), expires_ms: None });
        }
        world.store.take().unwrap().close().unwrap();
        world.options.indexing = indexing;
        world.reopen(world.disk.after_kill());
        let mut rng = SplitMix64::new(seed);
        let mut turns = 0;
        while !world.store().store().is_indexed() {
            turns += 1;
            assert!(turns < 1000);
            let number = base::Rng::below(&mut rng, 200) as Key;
            match base::Rng::below(&mut rng, 8) {
                0 => world.step(&Op::Delete(number)),
                1 => world.step(&Op::PutFor(number, vec![b'b', b'z'], 5)),
                2 => world.step(&Op::DropRange(number, number + 5)),
                3 if turns < 40 => world.step(&Op::Kill),
                4 => world.step(&Op::Wait(1)),
                _ => world.put(number, &[b'm', b'a' + (turns % 7) as u8], 3),
            }
        }
        assert!(turns > 5, "{turns} writes came between its pages");
        world.check_whole();
        // It stays so.
        world.step(&Op::Kill);
        assert!(world.store().store().is_indexed());
        world.check();
    }
}

#[test]
fn a_damaged_table_costs_no_entry() {
    let mut shown = 0;
    for seed in 0..8 {
        let mut world = World::<1>::new(2 * seed);
        for number in 0..40 {
            world.put(number, &[b'a' + (number % 5) as u8, b'f'], 20);
        }
        world.check_whole();
        world.store.take().unwrap().close().unwrap();
        world.disk = world.disk.after_kill();
        let tables: Vec<_> =
            world.disk.names().into_iter().filter(|path| path.starts_with(format!("{DIR}/tables"))).collect();
        let lost = &tables[seed as usize % tables.len()];
        world.disk.remove(lost);
        // Where it was the only one there is nothing to open.
        let opened = Embedded::open(Path::new(DIR), world.options.clone(), world.machine());
        let Ok(opened) = opened else { continue };
        world.store = Some(opened);
        // As another replica heals what this one has lost.
        for number in 0..40 {
            if world.store().head(&object(number)).is_err() {
                shown += 1;
                world.put(number, b"g", 20);
            }
        }
        world.check_whole();
        world.store().store().accept_losses();
        world.check_whole();
    }
    assert!(shown > 10, "{shown} heads were lost");
}

#[test]
fn a_table_of_entries_is_no_loss_to_a_repair() {
    let mut world = World::<1>::new(1);
    for round in 0..6 {
        (0..40).for_each(|number| world.put(number, &[b'a' + round, b'f'], 100));
        world.store().flush().unwrap();
        world.store().compact().unwrap();
    }
    world.clock.advance_ms(Duration::from_secs(3600).as_millis() as u64);
    world.lose_ledger();
    assert_eq!(world.model.len(), 40, "no value was in tables only");
    assert!(!world.store().store().is_indexed());
    world.check_whole();
}

#[cfg(feature = "planted")]
mod planted {
    use super::*;
    use base::planted::{Planted, plant};

    fn wrong() -> bool {
        let mut world = World::<1>::new(1);
        for number in 0..40 {
            world.put(number, b"ab", 20);
            world.put(number, b"bc", 20);
            if number % 3 == 0 {
                world.step(&Op::Delete(number));
            }
        }
        world.store().build_index().unwrap();
        world.entries() != world.expected()
    }

    #[test]
    fn entries_that_stay_are_noticed() {
        assert!(!wrong());
        for bug in [Planted::StaleIndexEntry, Planted::EntryOfDeleted] {
            plant(Some(bug));
            let noticed = wrong();
            plant(None);
            assert!(noticed, "{bug:?}");
        }
    }
}
