//! What a shard sees of a backend whose calls come when the test says.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use super::super::testing::{Jobs, Standing, open, take_found, three_of_ten};
use super::*;
use backends::Visit as Visitor;
use engine::fold::{ScanPage, Visit};
use std::sync::atomic::{AtomicBool, Ordering};

const KINDS: [Kind; 3] = [Kind::Memory, Kind::Bitcask, Kind::Hash];

pub(super) struct World {
    pub(super) store: Adapter,
    pub(super) jobs: Arc<Jobs>,
    pub(super) events: Vec<Event>,
    folder: tempfile::TempDir,
}

impl World {
    pub(super) fn new(kind: Kind) -> World {
        let folder = tempfile::tempdir().unwrap();
        let jobs = Arc::new(Jobs::default());
        let (store, report) = open(kind, &folder.path().join("store"), &jobs);
        assert!(report.created && report.clean);
        World { store, jobs, events: Vec::new(), folder }
    }

    /// Stops the store, which does nothing, and opens it again.
    pub(super) fn restart(&mut self) {
        self.store.begin_close();
        self.settle();
        assert!(matches!(self.events.pop(), Some(Event::Closed(Ok(())))));
        self.store = open(self.store.kind, &self.folder.path().join("store"), &self.jobs).0;
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Seq {
        self.store.write(&[Write::Put { key, head: b"head", value: &[value] }]).unwrap()
    }

    /// Ends turns until nothing is under way any more.
    pub(super) fn settle(&mut self) {
        while {
            self.store.turn(&mut self.events);
            self.jobs.run() > 0
        } {}
    }

    fn get(&mut self, key: &[u8]) -> Option<Bytes> {
        let found = match self.store.lookup(key, Want::Value) {
            Lookup::Done(found) => found,
            Lookup::NeedsIo(id) => {
                self.settle();
                Ok(take_found(&mut self.events, id))
            }
        };
        found.unwrap().map(|found| found.value.unwrap())
    }

    pub(super) fn page(&mut self, request: ScanRequest) -> ScanPage {
        let id = self.store.scan(request).unwrap();
        self.settle();
        match self.events.pop() {
            Some(Event::Scan(of, page)) if of == id => page.unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_comes_while_a_call_writes_is_written_together_by_the_next() {
    for kind in [Kind::Bitcask, Kind::Hash] {
        let mut world = World::new(kind);
        let first = world.put(b"a", b"1");
        world.store.turn(&mut world.events);
        let last = [b"b", b"c", b"d"].map(|key| world.put(key, b"2"))[2];
        assert_eq!((world.store.acknowledged(), world.store.last_written()), (Seq(0), last));
        world.store.turn(&mut world.events);
        assert_eq!(world.jobs.run(), 1, "one call at a time");
        world.store.turn(&mut world.events);
        assert_eq!((world.store.acknowledged(), world.jobs.run()), (first, 1));
        world.store.turn(&mut world.events);
        assert_eq!((world.store.acknowledged(), world.jobs.run()), (last, 0));
        assert_eq!(world.store.stats().memtable_bytes, 0);
    }
}

#[test]
fn a_lookup_finds_what_was_written_while_it_waited() {
    let mut world = World::new(Kind::Bitcask);
    world.put(b"a", b"1");
    assert_eq!(world.get(b"a"), Some("1".into()), "what waits is found");
    world.settle();
    let Lookup::NeedsIo(id) = world.store.lookup(b"a", Want::Head) else { panic!("it waits") };
    world.store.turn(&mut world.events);
    let seq = world.put(b"a", b"2");
    world.settle();
    match world.events.pop() {
        Some(Event::Lookup(of, Ok(Some(found)))) if of == id => {
            assert_eq!((found.seq, found.value, found.head), (seq, None, "head".into()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(world.get(b"a"), Some("2".into()));
}

#[test]
fn a_backend_that_waits_for_nothing_is_called_at_once() {
    let mut world = World::new(Kind::Memory);
    let seq = world.put(b"a", b"1");
    assert_eq!(world.store.acknowledged(), seq);
    assert!(matches!(world.store.lookup(b"a", Want::Value), Lookup::Done(Ok(Some(_)))));
    assert!(matches!(world.store.lookup(b"b", Want::Value), Lookup::Done(Ok(None))));
    assert_eq!(world.jobs.run(), 0);
    // But while a scan has it.
    let visitor = Box::new(|_: &[u8], _: &[u8]| Visit::Take);
    let (start, end) = (Bytes::new(), Bytes::from_static(b"z"));
    world.store.scan(ScanRequest { start, end, items_max: 9, visitor, past_losses: false }).unwrap();
    world.store.turn(&mut world.events);
    let seq = world.put(b"b", b"2");
    assert!(world.store.acknowledged() < seq);
    assert_eq!(world.get(b"b"), Some("2".into()));
    world.settle();
    assert_eq!(world.store.acknowledged(), seq);
}

#[test]
fn pages_have_what_their_visitor_takes_and_nothing_twice() {
    for kind in KINDS {
        let mut world = World::new(kind);
        for number in 0..1000 {
            world.put(format!("{number:04}").as_bytes(), b"v");
        }
        world.settle();
        let (mut start, end) = (Bytes::from_static(b"0001"), Bytes::from_static(b"0951"));
        let (mut seen, mut pages) = (Vec::new(), 0);
        loop {
            let visitor = Box::new(|key: &[u8], _: &[u8]| three_of_ten(key));
            let request = ScanRequest { start, end: end.clone(), items_max: 7, visitor, past_losses: false };
            let page = world.page(request);
            assert!(page.items.len() == 7 || page.next.is_none(), "{}", kind.name());
            seen.extend(page.items.into_iter().map(|(key, _)| key));
            pages += 1;
            match page.next {
                Some(next) => start = next,
                None => break,
            }
        }
        let is_seen = |number: &u32| number % 10 < 3;
        let expected = (1..951).filter(is_seen).map(|number| Bytes::from(format!("{number:04}")));
        assert_eq!(seen, expected.collect::<Vec<_>>(), "{}", kind.name());
        assert_eq!(pages, seen.len().div_ceil(7), "{}: no page is empty", kind.name());
    }
}

#[test]
fn a_range_is_dropped_and_written_again() {
    for kind in KINDS {
        let mut world = World::new(kind);
        for number in 0..3000 {
            world.put(format!("{number:04}").as_bytes(), b"v");
        }
        world.settle();
        let drop = Write::DropRange { start: b"0100", end: b"2900" };
        world.store.write(&[drop]).unwrap();
        world.put(b"0200", b"again");
        let found = |world: &mut World| {
            ["0100", "0200", "2899", "0099", "2900"].map(|key| world.get(key.as_bytes()).is_some())
        };
        let expected = [false, true, false, true, true];
        assert_eq!(found(&mut world), expected, "{}: while it waits", kind.name());
        world.settle();
        assert_eq!(found(&mut world), expected, "{}", kind.name());
        let visitor = Box::new(|_: &[u8], _: &[u8]| Visit::Take);
        let (start, end) = (Bytes::from_static(b"0"), Bytes::from_static(b"9"));
        let page = world.page(ScanRequest { start, end, items_max: 9999, visitor, past_losses: false });
        assert_eq!(page.items.len(), 201, "{}", kind.name());
        assert_eq!(world.store.acknowledged(), world.store.last_written());
    }
}

/// One that takes no writes once it is told so.
struct Failing(Box<dyn Backend>, Arc<AtomicBool>);

impl Backend for Failing {
    fn write(&mut self, batch: &[backends::Write<'_>]) -> Result<(), backends::Error> {
        if self.1.load(Ordering::Relaxed) {
            return Err(backends::Error::Failed { engine: "test", what: "it burns".to_owned() });
        }
        self.0.write(batch)
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, backends::Error> {
        self.0.get(key)
    }

    fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, backends::Error> {
        self.0.head(key)
    }

    fn fold(
        &mut self,
        from: &[u8],
        to: &[u8],
        what: What,
        visit: &mut Visitor<'_>,
    ) -> Result<(), backends::Error> {
        self.0.fold(from, to, what, visit)
    }

    fn close(self: Box<Self>) -> Result<(), backends::Error> {
        self.0.close()
    }
}

#[test]
fn after_a_failed_write_none_is_taken_and_what_is_safe_is_read() {
    let mut world = World::new(Kind::Bitcask);
    let burns = Arc::new(AtomicBool::new(false));
    let backend = Box::new(Failing(world.store.backend.take().unwrap(), Arc::clone(&burns)));
    let platform = (Arc::clone(&world.jobs) as Arc<dyn Spawn>, Arc::new(Standing) as Arc<dyn Clock>);
    world.store = Adapter::over((Kind::Bitcask, backend), Durability::Sync, Life::first(1), platform);
    let safe = world.put(b"a", b"1");
    world.settle();
    burns.store(true, Ordering::Relaxed);
    world.put(b"b", b"2");
    world.settle();
    assert_eq!(world.store.acknowledged(), safe);
    let fenced = world.store.fenced().unwrap();
    assert!(fenced.to_string().contains("it burns"), "{fenced}");
    assert_eq!(world.store.write(&[Write::Delete { key: b"a" }]), Err(fenced.clone()));
    assert_eq!(world.get(b"a"), Some("1".into()));
    assert!(matches!(world.store.lookup(b"b", Want::Head), Lookup::Done(Err(error)) if error == fenced));
    world.store.begin_close();
    world.settle();
    assert!(matches!(world.events.pop(), Some(Event::Closed(Err(error))) if error == fenced));
}

#[test]
fn a_stop_writes_what_waits_and_takes_nothing_more() {
    for kind in KINDS {
        let mut world = World::new(kind);
        let last = world.put(b"a", b"1");
        world.store.begin_close();
        world.settle();
        assert_eq!(world.store.acknowledged(), last);
        assert!(matches!(world.events.pop(), Some(Event::Closed(Ok(())))), "{}", kind.name());
        assert_eq!(world.store.write(&[Write::Delete { key: b"a" }]), Err(Error::Closing));
    }
}

#[test]
fn what_has_no_room_is_refused() {
    let mut world = World::new(Kind::Bitcask);
    let value = vec![0; 48 << 20];
    world.put(b"a", &value);
    world.put(b"b", &value);
    let refused = world.store.write(&[Write::Put { key: b"c", head: b"", value: &[&value] }]);
    assert!(matches!(refused, Err(Error::Full { limit: UNWRITTEN_BYTES_MAX, .. })));
    world.settle();
    world.put(b"c", &value);
    let mut world = World::new(Kind::Hash);
    let refused = world.store.write(&[Write::Put { key: b"c", head: b"", value: &[&value] }]);
    assert!(matches!(refused, Err(Error::TooLarge { what: "a batch", .. })), "{refused:?}");
}
