//! What seeds have found in the store, told step by step on a simulated disk.

use base::disk::{self, OpenMode};
use base::rng::SplitMix64;
use base::{Monotonic, Progress};
use engine::store::{Event, Platform};
use engine::{Error, Lookup, Options, Store, Want, Write};
use sim::trace::Keep;
use sim::{DiskConfig, Seed, SimClock, SimDisk, SimSpawn, SimTime, Trace};
use std::path::Path;
use std::sync::Arc;

fn open(disk: &SimDisk, spawn: &SimSpawn) -> Store {
    let platform = Platform {
        disk: Box::new(disk.immediate()),
        startup: Box::new(disk.immediate()),
        spawn: Arc::new(spawn.clone()),
        rng: Box::new(SplitMix64::new(1)),
        clock: Arc::new(SimClock::new(SimTime::default(), 0)),
    };
    Store::open(Path::new("/data/store"), Options::default(), platform).expect("a sound disk").0
}

fn node() -> (SimDisk, SimSpawn) {
    let trace = Trace::new(SimTime::default(), Keep::Hash);
    let disk = SimDisk::new("disk", DiskConfig::sound("/data"), Seed(1).stream("disk", 0), trace);
    (disk, SimSpawn::new())
}

/// Ends a turn, and runs the jobs that it has started.
fn turn(store: &mut Store, disk: &SimDisk, spawn: &SimSpawn, events: &mut Vec<Event>) {
    store.turn(Monotonic(0), events);
    for job in spawn.take_started() {
        while spawn.slice(job, &mut disk.immediate()) == Progress::More {}
    }
}

fn put(store: &mut Store, key: &[u8]) -> Result<engine::Seq, Error> {
    store.write(&[Write::Put { key, head: b"head", value: &[b"value"] }])
}

fn close(mut store: Store, disk: &SimDisk, spawn: &SimSpawn) {
    let mut events = Vec::new();
    store.begin_close();
    (0..20).for_each(|_| turn(&mut store, disk, spawn, &mut events));
    assert!(matches!(events[..], [Event::Closed(Ok(()))]), "{events:?}");
}

#[test]
fn a_write_after_the_last_manifest_of_a_clean_stop_is_refused() {
    let (disk, spawn) = node();
    let mut store = open(&disk, &spawn);
    store.begin_close();
    // A shard that stops before the others is still asked by them.
    let (mut taken, mut events) = (Vec::new(), Vec::new());
    let refused = loop {
        let counter = store.next_counter().unwrap();
        match put(&mut store, &counter.to_be_bytes()) {
            Ok(_) => taken.push(counter),
            Err(error) => break error,
        }
        // One that keeps it busy for a while, and then none that it has to wait for.
        let turns = if taken.len() < 5 { 1 } else { 20 };
        (0..turns).for_each(|_| turn(&mut store, &disk, &spawn, &mut events));
    };
    assert_eq!(refused, Error::Closing);
    (0..20).for_each(|_| turn(&mut store, &disk, &spawn, &mut events));
    assert!(matches!(events[..], [Event::Closed(Ok(()))]), "{events:?}");
    assert_eq!(put(&mut store, b"late"), Err(Error::Closing));
    drop(store);
    spawn.clear();
    let mut store = open(&disk, &spawn);
    let next = store.next_counter().unwrap();
    assert!(taken.iter().all(|counter| *counter < next), "{taken:?} and again {next}");
}

#[test]
fn a_record_that_was_lost_with_its_key_is_not_forgotten_when_its_neighbours_are_in_tables() {
    let (disk, spawn) = node();
    let mut store = open(&disk, &spawn);
    for key in ["key-1", "key-2", "key-3", "key-4"] {
        put(&mut store, key.as_bytes()).unwrap();
        (0..4).for_each(|_| turn(&mut store, &disk, &spawn, &mut Vec::new()));
    }
    drop(store);
    spawn.clear();
    flip(&disk, b"key-2");
    // The start after the damage, one after a flush, and one more.
    for start in 0..3 {
        let mut store = open(&disk, &spawn);
        let lookup = |store: &mut Store, key: &[u8]| match store.lookup(key, Want::Head) {
            Lookup::Done(answer) => answer,
            Lookup::NeedsIo(_) => panic!("everything is in memory"),
        };
        assert!(matches!(lookup(&mut store, b"key-2"), Err(Error::Damaged(_))), "start {start}");
        assert!(matches!(lookup(&mut store, b"key-4"), Ok(Some(_))), "start {start}");
        close(store, &disk, &spawn);
        spawn.clear();
    }
}

/// Flips a bit of the one place in the journal that holds `text`.
fn flip(disk: &SimDisk, text: &[u8]) {
    let mut handle = disk.immediate();
    for (path, len) in
        disk.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "seg"))
    {
        let (file, _) = disk::open(&mut handle, &path, OpenMode::Read).expect("it was listed");
        let bytes = disk::read(&mut handle, file, 0, usize::try_from(len).expect("it is small"))
            .expect("a sound disk");
        if let Some(at) = bytes.windows(text.len()).position(|window| window == text) {
            return assert!(disk.flip_bit(&path, at as u64, 0));
        }
    }
    panic!("no segment holds it");
}
