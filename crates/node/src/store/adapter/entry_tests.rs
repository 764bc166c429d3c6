//! Index entries of a store of another backend: under any writes, restarts and losses they are those of its objects.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use super::tests::World;
use super::*;
use crate::store::check_entries;
use engine::fold::Visit;
use object::{Actor, Dot, IndexEntry, Metadata, Policy, Put, key};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Where the clock of these tests stands.
const NOW_MS: u64 = 1_700_000_000_000;

fn key_of(number: u16) -> Vec<u8> {
    let mut out = Vec::new();
    key::encode_object_key(number % 4, b"default", b"b", &number.to_be_bytes(), &mut out);
    out
}

fn head_of(terms: &[String], expires_ms: Option<u64>) -> Vec<u8> {
    let indexes = terms.iter().map(|term| IndexEntry { field: "t_bin".into(), value: term.clone().into() });
    let metadata = Metadata { indexes: indexes.collect(), expires_ms, ..Metadata::default() };
    let put = Put { context: None, metadata, value: Bytes::new() };
    let object = object::update(None, put, Dot::new(Actor(7), 1), Policy::AllowMult).unwrap();
    let mut out = Vec::new();
    object.head().encode(&mut out);
    out
}

/// A version's head, and when it ends.
type Version = (Vec<u8>, Option<u64>);

/// A store, and what its objects are.
struct Indexed {
    world: World,
    objects: BTreeMap<u16, Version>,
}

impl Indexed {
    fn new() -> Indexed {
        Indexed { world: World::new(Kind::Bitcask), objects: BTreeMap::new() }
    }

    /// Sets an object, or deletes it; with `is_lost` as somebody who cannot read what was there.
    fn write(&mut self, number: u16, version: Option<Version>, is_lost: bool) {
        let key = key_of(number);
        let before = match self.objects.get(&number) {
            _ if is_lost => Before::Unknown,
            // Whoever reads it is told that nothing is there.
            Some((_, Some(end))) if *end <= NOW_MS => Before::Nothing,
            Some((head, expires_ms)) => Before::Version { head, expires_ms: *expires_ms },
            None => Before::Nothing,
        };
        let write = match &version {
            None => Write::Delete { key: &key },
            Some((head, None)) => Write::Put { key: &key, head, value: &[] },
            Some((head, Some(expires_ms))) => {
                Write::PutUntil { key: &key, head, value: &[], expires_ms: *expires_ms }
            }
        };
        self.world.store.write_over(&[write], before).unwrap();
        match version {
            Some(version) => drop(self.objects.insert(number, version)),
            None => drop(self.objects.remove(&number)),
        }
    }

    fn put(&mut self, number: u16, term: &str) {
        self.write(number, Some((head_of(&[term.to_owned()], None), None)), false);
    }

    fn drop_prefix(&mut self, prefix: u16) {
        let range = key::objects_at(prefix);
        self.world.store.write(&[Write::DropRange { start: &range.start, end: &range.end }]).unwrap();
        self.objects.retain(|number, _| number % 4 != prefix);
    }

    fn turn(&mut self) {
        self.world.store.turn(&mut self.world.events);
        self.world.jobs.run();
    }

    /// Leaves the store as a program does that keeps no entries.
    fn forget(&mut self) {
        self.world.settle();
        let backend = self.world.store.backend.as_deref_mut().unwrap();
        let mut keys = Vec::new();
        let (start, end) = INDEXING.entries;
        let mut visit = |item: Item<'_>| {
            keys.push(item.key.to_vec());
            ControlFlow::Continue(())
        };
        backend.fold(start, end, What::Heads, &mut visit).unwrap();
        keys.iter().for_each(|key| backend.delete(key).unwrap());
        self.world.restart();
    }

    fn are_whole(&self) -> bool {
        self.world.store.entries().unwrap().are_whole()
    }

    fn check(&mut self) {
        self.world.settle();
        assert!(self.are_whole());
        let backend = self.world.store.backend.as_deref_mut().unwrap();
        assert_eq!(check_entries(backend, NOW_MS), Ok(Some(Vec::new())));
        // What the check goes by is what was written.
        let mut objects = BTreeMap::new();
        let mut visit = |item: Item<'_>| {
            objects.insert(item.key.to_vec(), item.head.to_vec());
            ControlFlow::Continue(())
        };
        backend.fold(INDEXING.objects.0, INDEXING.objects.1, What::Heads, &mut visit).unwrap();
        let expected = self.objects.iter().map(|(&number, (head, _))| (key_of(number), head.clone()));
        assert_eq!(objects, expected.collect());
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(u16, Vec<u8>, Option<u64>, bool),
    Delete(u16),
    DropPrefix(u16),
    Turn,
    Restart,
    Forget,
}

fn ops() -> impl Strategy<Value = Op> {
    let terms = || prop::collection::vec(b'a'..b'f', 0..4);
    let end = prop_oneof![4 => Just(None), 1 => Just(Some(NOW_MS - 1)), 1 => Just(Some(NOW_MS + 1))];
    prop_oneof![
        12 => (0u16..12, terms(), end, prop::bool::weighted(0.1)).prop_map(|(a, b, c, d)| Op::Put(a, b, c, d)),
        3 => (0u16..12).prop_map(Op::Delete),
        1 => (0u16..4).prop_map(Op::DropPrefix),
        6 => Just(Op::Turn),
        1 => Just(Op::Restart),
        1 => Just(Op::Forget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn entries_are_those_of_the_objects(ops in prop::collection::vec(ops(), 1..60)) {
        let mut it = Indexed::new();
        for op in ops {
            match op {
                Op::Put(number, terms, end, is_lost) => {
                    let terms: Vec<String> = terms.into_iter().map(|term| char::from(term).into()).collect();
                    it.write(number, Some((head_of(&terms, end), end)), is_lost);
                }
                Op::Delete(number) => it.write(number, None, false),
                Op::DropPrefix(prefix) => it.drop_prefix(prefix),
                Op::Turn => it.turn(),
                Op::Restart => it.world.restart(),
                Op::Forget => it.forget(),
            }
        }
        it.check();
    }
}

/// As many as some calls go through, and whose entries are too many for one.
const MANY: u16 = 600;

fn long_term(number: u16) -> String {
    format!("{number:04}{}", "x".repeat(1000))
}

#[test]
fn entries_are_made_anew_while_the_store_is_written() {
    let mut it = Indexed::new();
    (0..MANY).for_each(|number| it.put(number, &long_term(number)));
    it.check();
    it.forget();
    assert!(!it.are_whole(), "nobody may ask until they are made");
    let mut turns = 0;
    while !it.are_whole() {
        let number = turns * 97 % MANY;
        match turns % 3 {
            0 => it.put(number, "changed"),
            1 => it.write(number, None, false),
            _ => it.put(MANY + turns, "new"),
        }
        it.turn();
        turns += 1;
    }
    assert!(turns > 5, "a part at a time: {turns}");
    it.check();
}

#[test]
fn a_stop_leaves_entries_to_be_made_by_the_next_start() {
    let mut it = Indexed::new();
    (0..MANY).for_each(|number| it.put(number, &long_term(number)));
    it.forget();
    (0..4).for_each(|_| it.turn());
    assert!(!it.are_whole());
    it.world.restart();
    assert!(!it.are_whole());
    it.check();
}

#[test]
fn a_version_that_cannot_be_read_leaves_no_entry() {
    let mut it = Indexed::new();
    it.put(1, "a");
    it.put(2, "b");
    it.write(1, Some((head_of(&["c".to_owned()], None), None)), true);
    assert!(!it.are_whole());
    it.check();
    let range = key::index_entries(b"default", b"b", b"t_bin");
    let (start, end) = (range.start.into(), range.end.into());
    let visitor = Box::new(|_: &[u8], _: &[u8]| Visit::Take);
    let page = it.world.page(ScanRequest { start, end, items_max: 9, visitor, past_losses: false });
    let terms = page.items.iter().map(|(entry, _)| key::decode_index_key(entry).unwrap().term.into_owned());
    assert_eq!(terms.collect::<Vec<_>>(), [b"b", b"c"]);
}

#[test]
fn a_page_that_is_read_while_entries_are_dropped_is_an_error() {
    let mut it = Indexed::new();
    // More than one call visits.
    (0..5000).for_each(|number| it.put(number, "a"));
    it.check();
    let (start, end) = (Bytes::from_static(INDEXING.entries.0), Bytes::from_static(INDEXING.entries.1));
    let visitor = Box::new(|_: &[u8], _: &[u8]| Visit::Take);
    let request = ScanRequest { start, end, items_max: 9000, visitor, past_losses: false };
    let id = it.world.store.scan(request).unwrap();
    it.turn();
    it.write(1, None, true);
    it.check();
    assert!(matches!(it.world.events.pop(), Some(Event::Scan(of, Err(_))) if of == id));
}

#[test]
fn an_entry_that_has_ended_is_not_shown() {
    let mut it = Indexed::new();
    for (number, end) in [(1, None), (2, Some(NOW_MS)), (3, Some(NOW_MS + 1))] {
        it.write(number, Some((head_of(&[format!("t{number}")], end), end)), false);
    }
    it.check();
    let range = key::index_entries(b"default", b"b", b"t_bin");
    let (start, end) = (range.start.into(), range.end.into());
    let visitor = Box::new(|_: &[u8], _: &[u8]| Visit::Take);
    let page = it.world.page(ScanRequest { start, end, items_max: 9, visitor, past_losses: false });
    assert_eq!(page.items.len(), 2);
}

#[test]
fn a_backend_whose_ranges_cost_a_pass_keeps_none() {
    let mut world = World::new(Kind::Hash);
    let head = head_of(&["a".to_owned()], None);
    let write = Write::Put { key: &key_of(1), head: &head, value: &[] };
    world.store.write_over(&[write], Before::Unknown).unwrap();
    world.settle();
    assert!(world.store.entries().is_none());
    let found = world.store.backend.as_deref_mut().unwrap();
    let mut count = 0;
    let mut visit = |_: Item<'_>| {
        count += 1;
        ControlFlow::Continue(())
    };
    found.fold(&[], &[], What::Heads, &mut visit).unwrap();
    assert_eq!(count, 1);
}
