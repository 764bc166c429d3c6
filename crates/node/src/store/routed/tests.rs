//! What a shard sees of several stores, whose jobs run when the test says, beside a map.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use super::super::testing::{Jobs, open, take_found};
use super::*;
use backends::Kind;
use bytes::Bytes;
use engine::fold::Visit;
use proptest::prelude::*;
use std::sync::Arc;

/// The first is of all other types; of the others two are lost with the process.
const TYPES: [(&str, Kind); 4] =
    [("rest", Kind::Bitcask), ("archive", Kind::Bitcask), ("cache", Kind::Memory), ("hashed", Kind::Hash)];

struct World {
    store: Routed,
    jobs: Arc<Jobs>,
    events: Vec<Event>,
    folder: tempfile::TempDir,
    /// What the stores should have.
    model: BTreeMap<Vec<u8>, u8>,
    last: Seq,
}

fn open_all(folder: &tempfile::TempDir, jobs: &Arc<Jobs>) -> Routed {
    let open = |(name, kind)| (String::from(name), open(kind, &folder.path().join(name), jobs).0);
    let mut stores = TYPES.map(open).into_iter();
    let first = stores.next().unwrap().1;
    Routed::new(first.into(), stores)
}

/// Keys of few positions, so that the stores' keys lie between each other's.
fn key_of(number: u8) -> Vec<u8> {
    let (bucket_type, _) = TYPES[usize::from(number % 4)];
    let mut key = Vec::new();
    key::encode_object_key(u16::from(number / 16), bucket_type.as_bytes(), b"b", &[number], &mut key);
    key
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let jobs = Arc::new(Jobs::default());
        let store = open_all(&folder, &jobs);
        World { store, jobs, events: Vec::new(), folder, model: BTreeMap::new(), last: Seq(0) }
    }

    fn turn(&mut self) {
        self.store.turn(Monotonic(0), &mut self.events);
    }

    fn settle(&mut self) {
        while {
            self.turn();
            self.jobs.run() > 0
        } {}
    }

    fn wrote(&mut self, seq: Seq) {
        assert_eq!(seq.0, self.last.0 + 1, "one number a write, whatever the store");
        self.last = seq;
        assert_eq!(self.store.last_written(), seq);
    }

    fn put(&mut self, number: u8, value: u8) {
        let key = key_of(number);
        let hint = key::hint(3, &key);
        let object = Write::Put { key: &key, head: b"head", value: &[&[value]] };
        let seq = self
            .store
            .write_over(&[object, Write::Put { key: &hint, head: b"", value: &[] }], Before::Nothing);
        self.wrote(seq.unwrap());
        self.model.insert(key, value);
        self.model.insert(hint, 0);
    }

    fn delete(&mut self, number: u8) {
        let key = key_of(number);
        let seq = self.store.write(&[Write::Delete { key: &key }]).unwrap();
        self.wrote(seq);
        self.model.remove(&key);
    }

    fn drop_range(&mut self, first: u16, last: u16) {
        let (start, end) = (key::objects_at(first).start, key::objects_at(last).end);
        let seq = self.store.write(&[Write::DropRange { start: &start, end: &end }]).unwrap();
        self.wrote(seq);
        self.model.retain(|key, _| !(&start..&end).contains(&key));
    }

    fn get(&mut self, key: &[u8]) -> Option<u8> {
        let found = match self.store.lookup(key, Want::Value) {
            Lookup::Done(found) => found,
            Lookup::NeedsIo(id) => {
                self.settle();
                Ok(take_found(&mut self.events, id))
            }
        };
        let found = found.unwrap()?;
        assert!(found.seq <= self.last);
        Some(found.value.unwrap().first().copied().unwrap_or(0))
    }

    /// All keys of a range, page by page.
    fn keys(&mut self, range: key::KeyRange, items_max: usize) -> Vec<Vec<u8>> {
        let (mut keys, mut start, end) = (Vec::new(), Bytes::from(range.start), Bytes::from(range.end));
        loop {
            let visitor = Box::new(|_: &[u8], _: &[u8]| Visit::Take);
            let request = ScanRequest { start, end: end.clone(), items_max, visitor, past_losses: false };
            let id = self.store.scan(request).unwrap();
            self.settle();
            let page = match self.events.pop() {
                Some(Event::Scan(of, page)) if of == id => page.unwrap(),
                other => panic!("{other:?}"),
            };
            assert!(page.items.len() == items_max || page.next.is_none());
            keys.extend(page.items.into_iter().map(|(key, _)| key.to_vec()));
            match page.next {
                Some(next) => start = next,
                None => return keys,
            }
        }
    }

    fn check(&mut self, items_max: usize) {
        self.settle();
        assert!(self.events.is_empty(), "{:?}", self.events);
        assert_eq!(self.store.acknowledged(), self.store.last_written());
        for range in [key::objects(), key::all_hints(), key::objects_at(1)] {
            let expected: Vec<Vec<u8>> =
                self.model.keys().filter(|key| range.contains(key)).cloned().collect();
            assert_eq!(self.keys(range, items_max), expected);
        }
        for number in 0..64 {
            let key = key_of(number);
            assert_eq!(self.get(&key), self.model.get(&key).copied());
        }
        assert!(self.store.merges.is_empty() && self.store.parts.is_empty());
    }

    fn restart(&mut self) {
        self.store.begin_close();
        self.settle();
        assert!(matches!(self.events.pop(), Some(Event::Closed(Ok(())))));
        assert!(self.events.is_empty(), "the stop is told once");
        self.store = open_all(&self.folder, &self.jobs);
        self.last = Seq(0);
        let is_kept = |key: &[u8]| key::bucket_type_of(key).is_none_or(|name| *name != b"cache"[..]);
        self.model.retain(|key, _| is_kept(key));
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Get(u8),
    Drop(u16, u16),
    Turn,
    Run,
    Check(usize),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 0u8..64;
    prop_oneof![
        12 => (number(), 1u8..).prop_map(|(number, value)| Step::Put(number, value)),
        4 => number().prop_map(Step::Delete),
        4 => number().prop_map(Step::Get),
        1 => (0u16..4, 0u16..4).prop_map(|(a, b)| Step::Drop(a.min(b), a.max(b))),
        6 => Just(Step::Turn),
        6 => Just(Step::Run),
        1 => (1usize..40).prop_map(Step::Check),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn they_are_as_one_map(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Put(number, value) => world.put(number, value),
                Step::Delete(number) => world.delete(number),
                Step::Get(number) => {
                    let key = key_of(number);
                    prop_assert_eq!(world.get(&key), world.model.get(&key).copied());
                }
                Step::Drop(first, last) => world.drop_range(first, last),
                Step::Turn => world.turn(),
                Step::Run => drop(world.jobs.run()),
                Step::Check(items_max) => world.check(items_max),
                Step::Restart => world.restart(),
            }
            prop_assert!(world.store.acknowledged() <= world.store.last_written());
        }
        world.check(7);
    }
}

#[test]
fn a_write_is_acknowledged_when_all_before_it_are() {
    let mut world = World::new();
    // To bitcask, and then to the map that has it at once.
    world.put(1, 1);
    world.put(2, 2);
    assert_eq!(world.store.acknowledged(), Seq(0));
    let Lookup::Done(Ok(Some(found))) = world.store.lookup(&key_of(2), Want::Head) else { panic!() };
    assert_eq!(found.seq, Seq(0), "it may be shown");
    let Lookup::Done(Ok(Some(found))) = world.store.lookup(&key_of(1), Want::Head) else { panic!() };
    assert_eq!(found.seq, Seq(1), "it may not");
    world.settle();
    assert_eq!(world.store.acknowledged(), Seq(2));
}

#[test]
fn what_is_of_two_stores_is_not_written_together() {
    let mut world = World::new();
    let (one, other) = (key_of(1), key_of(2));
    let put = |key| Write::Put { key, head: b"", value: &[] };
    assert_eq!(world.store.write(&[put(&one), put(&other)]), Err(MIXED));
    let key::KeyRange { start, end } = key::objects();
    assert_eq!(world.store.write(&[put(&one), Write::DropRange { start: &start, end: &end }]), Err(MIXED));
    world.check(9);
}
