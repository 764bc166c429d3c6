//! Room comes back on a nearly full disk, without a restart and without an operator. Deletions are taken, and the room
//! that they free lets values in again: for each size of values, reserve, memtable and durability.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::HandClock;
use crate::common::disk::MemoryDisk;
use base::disk::{self, DiskOp, OpenMode};
use base::rng::SplitMix64;
use bytes::Bytes;
use engine::store::{DiskRoom, StoreStats};
use engine::{CompactionSchedule, Durability, Embedded, Error, Machine, Options, Write};
use std::path::Path;
use std::time::Duration;

/// How soon a store looks for room again.
const LOOK_MS: u64 = 1000;

/// Room is to come back within so many looks.
const LOOKS_MAX: u64 = 4;

/// A store waits a look after an operation that found no room, so few do.
const REFUSED_MAX: u64 = 16;

const SPACE: u64 = 4 << 20;
const SEGMENT: u64 = 128 << 10;

/// What a disk is filled with.
#[derive(Clone, Copy, Debug)]
struct Filling {
    value_len: usize,
    head_len: usize,
    batch: u64,
}

const LARGE: Filling = Filling { value_len: 24 << 10, head_len: 100, batch: 1 };
const MIDDLE: Filling = Filling { value_len: 1 << 10, head_len: 100, batch: 8 };
/// Inline: they are in the ledger, and the journal's records are a log only.
const TINY: Filling = Filling { value_len: 10, head_len: 60, batch: 100 };
/// Nothing but keys and heads.
const KEYS: Filling = Filling { value_len: 0, head_len: 200, batch: 40 };

fn options() -> Options {
    Options {
        inline_value_bytes_max: 64,
        memtable_bytes_max: 64 << 10,
        segment_bytes_target: SEGMENT,
        table_bytes_target: 16 << 10,
        leveled_bytes_target: 512 << 10,
        block_cache_bytes: 64 << 10,
        reserve_bytes: 512 << 10,
        ..Options::default()
    }
}

/// A store on a bounded disk.
struct World {
    disk: MemoryDisk,
    clock: HandClock,
    store: Embedded,
    keys: u64,
}

fn key(number: u64) -> Vec<u8> {
    // Spread: deleted keys lie in all tables and segments.
    format!("{:05}-{number:06}", number.wrapping_mul(7919) % 10_007).into_bytes()
}

fn open(disk: &MemoryDisk, clock: &HandClock, dir: &str, options: &Options) -> Embedded {
    let (handle, options) = (disk.clone(), options.clone());
    let machine = Machine::new(move || handle.clone(), clock.clone(), SplitMix64::new(1));
    Embedded::open(Path::new(dir), options, machine).unwrap()
}

impl World {
    fn new(options: &Options) -> World {
        let (disk, clock) = (MemoryDisk::default(), HandClock::new());
        disk.bound(Some(SPACE));
        let store = open(&disk, &clock, "/store", options);
        World { disk, clock, store, keys: 0 }
    }

    fn put(&mut self, filling: Filling) -> Result<(), Error> {
        self.clock.advance_ms(3);
        let (head, value) = (vec![b'h'; filling.head_len], vec![self.keys as u8; filling.value_len]);
        let keys: Vec<Vec<u8>> = (self.keys..self.keys + filling.batch).map(key).collect();
        let parts: [&[u8]; 1] = [&value];
        let batch: Vec<Write<'_>> =
            keys.iter().map(|key| Write::Put { key, head: &head, value: &parts }).collect();
        self.store.write(&batch).map(drop)
    }

    /// Writes until a batch is refused three looks in a row.
    fn fill(&mut self, filling: Filling) {
        let mut refused = 0;
        while refused < 3 {
            match self.put(filling) {
                Ok(()) => (self.keys, refused) = (self.keys + filling.batch, 0),
                Err(Error::Exhausted(_)) => {
                    refused += 1;
                    self.pass();
                }
                Err(error) => panic!("{filling:?}: {error}"),
            }
            assert!(self.keys < 1_000_000, "the disk is never full");
        }
        assert!(self.keys > 0, "{filling:?}: nothing was written");
    }

    /// Lets a look's time pass.
    fn pass(&mut self) {
        self.clock.advance_ms(LOOK_MS);
        let (mut quiet, mut turns) = (0, 0);
        while quiet < 5 {
            // What may be done in a time goes by the clock.
            self.clock.advance_ms(1);
            let now = base::Clock::now(&self.clock);
            let store = self.store.store();
            store.turn(now, &mut Vec::new());
            quiet = if store.is_maintaining() { 0 } else { quiet + 1 };
            turns += 1;
            assert!(turns < 10_000, "it never comes to rest: {:?} {:#?}", store.unfinished(), store.stats());
        }
    }

    /// Deletes keys; one that is refused is tried again at the next looks.
    fn delete(&mut self, keys: impl Iterator<Item = u64>, batch: usize, what: &str) {
        let keys: Vec<Vec<u8>> = keys.map(key).collect();
        for some in keys.chunks(batch) {
            let deletions: Vec<Write<'_>> = some.iter().map(|key| Write::Delete { key }).collect();
            self.clock.advance_ms(3);
            let done = self.store.write(&deletions);
            let done = (0..LOOKS_MAX).fold(done, |done, _| match done {
                Err(Error::Exhausted(_)) => {
                    self.pass();
                    self.store.write(&deletions)
                }
                other => other,
            });
            if let Err(error) = done {
                panic!("{what}: a deletion is refused: {error}: {:#?}", self.stats());
            }
        }
    }

    /// Within a few looks a value is taken.
    fn comes_back(&mut self, filling: Filling, what: &str) {
        for _ in 0..LOOKS_MAX {
            self.pass();
            if self.put(filling).is_ok() {
                return;
            }
        }
        let error = self.store.store().refuses_writes();
        panic!("{what}: writes do not come back: {error:?}\n{:#?}", self.store.store().stats());
    }

    fn stats(&mut self) -> StoreStats {
        self.store.store().stats()
    }

    fn has(&mut self, number: u64) -> bool {
        self.store.get(&key(number)).unwrap().is_some()
    }
}

/// Fills a disk, deletes some of it, and sees that room comes back and all else is there.
fn room_comes_back(options: &Options, filling: Filling, each: u64, what: &str) {
    let mut world = World::new(options);
    world.fill(filling);
    let filled = world.keys;
    let batch = usize::try_from(filling.batch).unwrap();
    world.delete((0..filled).filter(|number| number.is_multiple_of(each)), batch, what);
    world.comes_back(filling, what);
    if filling.value_len > options.inline_value_bytes_max {
        let stats = world.stats();
        assert!(stats.counters.compactions > 0, "{what}: {stats:#?}");
    }
    for number in (0..filled).step_by(7) {
        assert_eq!(world.has(number), !number.is_multiple_of(each), "{what}: key {number}");
    }
    // One that found no room is tried again; a store that runs into it again and again would have many.
    let (_, refused) = world.disk.takes();
    assert!(refused <= REFUSED_MAX, "{what}: {refused} operations found no room");
    world.store.close().unwrap();
}

#[test]
fn deletions_bring_room_back_whatever_the_size_of_values() {
    for filling in [LARGE, MIDDLE, TINY, KEYS] {
        for each in [1, 2, 4] {
            room_comes_back(&options(), filling, each, &format!("{filling:?}, one in {each} is deleted"));
        }
    }
}

#[test]
fn deletions_bring_room_back_whatever_the_memory_reserve_and_durability() {
    for filling in [LARGE, TINY] {
        for (memtable_bytes_max, reserve_bytes, durability) in [
            (2 << 20, 512 << 10, Durability::Sync),
            (4 << 10, 512 << 10, Durability::Interval),
            (64 << 10, 16 << 10, Durability::Sync),
            (256 << 10, 16 << 10, Durability::None),
            (64 << 10, 0, Durability::Sync),
            (256 << 10, 0, Durability::Interval),
            (64 << 10, 1 << 20, Durability::None),
        ] {
            let options = Options { memtable_bytes_max, reserve_bytes, durability, ..options() };
            let what = format!(
                "{filling:?}, memtables of {memtable_bytes_max}, {reserve_bytes} kept, {durability:?}"
            );
            room_comes_back(&options, filling, 2, &what);
        }
    }
}

/// A schedule is for disks with room.
#[test]
fn room_comes_back_whatever_the_schedule_says() {
    let never = Options { compaction: CompactionSchedule::Never, ..options() };
    room_comes_back(&never, MIDDLE, 2, "compaction by command only");
}

/// Waste of the active segment goes, too; a nearly full disk would not end so small a segment.
#[test]
fn a_request_frees_all_waste_of_a_disk_with_room() {
    const KEYS: u64 = 40;
    let never = Options {
        compaction: CompactionSchedule::Never,
        segment_bytes_target: 64 << 20,
        memtable_bytes_max: 16 << 20,
        ..options()
    };
    let mut world = World::new(&never);
    for number in (0..KEYS).chain(0..KEYS) {
        world.keys = number;
        world.put(LARGE).unwrap();
    }
    world.store.store().reclaim().unwrap();
    assert!(world.store.store().reclaimed().is_running);
    (0..LOOKS_MAX).for_each(|_| world.pass());
    let told = world.store.store().reclaimed();
    assert_eq!((told.is_running, &told.failure), (false, &None), "{told:?}");
    assert!(told.bytes * 20 < told.bytes_before * 11, "half of it is overwritten: {told:?}");
    assert!((0..KEYS).all(|number| world.has(number)));
}

#[test]
fn a_request_ends_with_an_error_when_the_disk_fails() {
    let mut world = World::new(&options());
    (0..20).for_each(|_| world.put(LARGE).unwrap());
    world.store.store().reclaim().unwrap();
    world.disk.fail(world.disk.ops() + 1, u64::MAX);
    world.pass();
    let told = world.store.store().reclaimed();
    assert!(!told.is_running && told.failure.is_some(), "{told:?}");
    assert!(world.store.store().reclaim().is_err(), "it takes no more writes");
}

#[test]
fn a_mix_of_sizes_is_room_for_each_of_them() {
    let mut world = World::new(&options());
    let mut sizes = [LARGE, MIDDLE, TINY, KEYS].into_iter().cycle();
    while world.put(sizes.next().unwrap()).is_ok() {
        world.keys += 100;
    }
    let filled = world.keys;
    world.delete((0..filled).filter(|number| number % 100 < 60), 20, "a mix");
    world.comes_back(LARGE, "a mix");
}

/// Waste of overwrites that no merge had met when the disk was full.
#[test]
fn what_smaller_values_have_replaced_is_found_when_room_is_low() {
    let mut world = World::new(&options());
    let big = Filling { value_len: 8 << 10, ..LARGE };
    for number in 0..250 {
        world.keys = number;
        world.put(big).unwrap();
    }
    let small = Filling { value_len: 100, batch: 10, ..LARGE };
    for number in (0..240).step_by(10) {
        world.keys = number;
        world.put(small).unwrap();
    }
    world.keys = 1000;
    world.fill(big);
    let stats = world.stats();
    let live = stats.journal_bytes - stats.journal_dead_bytes;
    assert!(stats.journal_dead_bytes * 10 < live, "the waste was used for more: {stats:#?}");
    assert!(world.keys > 1000 + 280, "{} values in the place of 240", world.keys - 1000);
}

#[test]
fn a_dropped_range_brings_room_back() {
    for filling in [LARGE, TINY] {
        let mut world = World::new(&options());
        world.fill(filling);
        world.store.write(&[Write::DropRange { start: b"0", end: b"05" }]).unwrap();
        world.comes_back(filling, "half of all keys are dropped");
        assert!(world.stats().counters.compactions > 0);
    }
}

/// Versions end while nothing is written, a few at a time.
#[test]
fn versions_that_end_bring_room_back() {
    for filling in [LARGE, TINY] {
        let mut world = World::new(&options());
        let begun = world.clock.ms();
        let value = vec![1; filling.value_len];
        loop {
            world.clock.advance_ms(3);
            let lasts = if world.keys.is_multiple_of(2) { 600_000 } else { 100_000_000 };
            let expires_ms = begun + lasts;
            let done = world.store.write(&[Write::PutUntil {
                key: &key(world.keys),
                head: b"head",
                value: &[&value],
                expires_ms,
            }]);
            if done.is_err() {
                break;
            }
            world.keys += 1;
        }
        let filling = Filling { batch: 1, ..filling };
        world.fill(filling);
        world.clock.advance_ms(600_000);
        world.comes_back(filling, "half of all have ended");
    }
}

/// Each store makes room by itself, and together they do not use the reserve up.
#[test]
fn stores_of_one_disk_share_its_reserve() {
    for filling in [LARGE, MIDDLE, TINY] {
        let shared = Options { disk_room: DiskRoom::of(3), ..options() };
        let first = World::new(&shared);
        let (disk, clock) = (first.disk.clone(), first.clock.clone());
        let mut worlds = vec![first];
        for dir in ["/second", "/third"] {
            let store = open(&disk, &clock, dir, &shared);
            worlds.push(World { disk: disk.clone(), clock: clock.clone(), store, keys: 0 });
        }
        let mut refused = 0;
        while refused < 9 {
            refused += 1;
            for world in &mut worlds {
                if world.put(filling).is_ok() {
                    (world.keys, refused) = (world.keys + filling.batch, 0);
                }
            }
            if refused > 0 {
                worlds.iter_mut().for_each(World::pass);
            }
        }
        let what = format!("{filling:?} in three stores");
        let batch = usize::try_from(filling.batch).unwrap();
        let each: Vec<u64> = worlds.iter().map(|world| world.keys).collect();
        for from in 0..10 {
            for (world, keys) in worlds.iter_mut().zip(&each) {
                let some = (keys * from / 10..keys * (from + 1) / 10).filter(|number| number % 2 == 0);
                world.delete(some, batch, &what);
            }
            worlds.iter_mut().for_each(World::pass);
        }
        worlds.iter_mut().for_each(World::pass);
        for world in &mut worlds {
            world.comes_back(filling, &what);
        }
        let (_, refused) = disk.takes();
        assert!(refused <= 4, "{what}: {refused} operations found no room");
        worlds.into_iter().for_each(|world| world.store.close().unwrap());
    }
}

/// A program that shares the disk fills it, and goes.
#[test]
fn what_others_give_back_lets_writes_in_again() {
    let mut world = World::new(&options());
    (0..50).for_each(|_| world.put(MIDDLE).unwrap());
    let other = Path::new("/other");
    let free = disk::space(&mut world.disk, other).unwrap();
    let (file, _) = disk::open(&mut world.disk, other, OpenMode::Create).unwrap();
    let data = Bytes::from(vec![0; usize::try_from(free).unwrap()]);
    let fill = DiskOp::Write { file, offset: 0, data: data.into(), room: 0, sync: true };
    disk::run(&mut world.disk, fill).unwrap();
    world.pass();
    assert!(matches!(world.put(MIDDLE), Err(Error::Exhausted(_))));
    assert!(matches!(world.store.delete(&key(1)), Err(Error::Exhausted(_))));
    disk::run(&mut world.disk, DiskOp::Remove { path: other.to_path_buf() }).unwrap();
    world.comes_back(MIDDLE, "the other has gone");
    world.store.delete(&key(1)).unwrap();
}

/// Deletions that only the memtable had when the process was killed.
#[test]
fn a_restart_on_a_full_disk_makes_room() {
    for filling in [LARGE, TINY] {
        let options = Options { memtable_bytes_max: 1 << 20, ..options() };
        let mut world = World::new(&options);
        world.fill(filling);
        let filled = world.keys;
        let keys: Vec<Vec<u8>> = (0..filled / 2).map(key).collect();
        // No look, and so no flush, comes between.
        for some in keys.chunks(100) {
            let deletions: Vec<Write<'_>> = some.iter().map(|key| Write::Delete { key }).collect();
            if world.store.write(&deletions).is_err() {
                break;
            }
        }
        let disk = world.disk.after_kill();
        disk.bound(Some(SPACE));
        // The process that was killed has no memtables any more.
        let options = Options { disk_room: DiskRoom::default(), ..options };
        let store = open(&disk, &world.clock, "/store", &options);
        let mut world = World { disk, clock: world.clock.clone(), store, keys: filled };
        world.comes_back(filling, "after a kill");
        assert!(!world.has(0) && world.has(filled - filling.batch));
        let (_, refused) = world.disk.takes();
        assert!(refused <= 4, "{refused} operations found no room");
    }
}

/// Segments that are kept aside do not keep the room that is needed.
#[test]
fn what_is_kept_aside_goes_when_room_is_low() {
    let options = Options { waste_retention: Duration::from_secs(86_400), ..options() };
    room_comes_back(&options, MIDDLE, 2, "waste is kept for a day");
}

/// What a snapshot holds stays, is told, and goes with it.
#[test]
fn what_a_snapshot_holds_is_told_and_goes_with_it() {
    let mut world = World::new(&options());
    world.fill(MIDDLE);
    let snapshot = world.store.snapshot();
    // Less than the upper half of the reserve, as nothing comes back.
    world.delete(0..400, 8, "under a snapshot");
    (0..3).for_each(|_| world.pass());
    let held = world.stats().segments_held;
    assert!(held <= 2, "no segment is copied that a snapshot holds: {held}");
    drop(snapshot);
    world.comes_back(MIDDLE, "the snapshot has gone");
    assert_eq!(world.stats().segments_held, 0);
}

/// What an operator asks for: all that is waste goes, on a disk with room, in memory and in the ledger, too.
#[test]
fn what_is_asked_for_leaves_nothing_to_compact() {
    let never = Options { compaction: CompactionSchedule::Never, ..options() };
    let mut world = World::new(&never);
    world.disk.bound(None);
    for _ in 0..200 {
        world.put(MIDDLE).unwrap();
        world.keys += MIDDLE.batch;
    }
    let filled = world.keys;
    world.delete((0..filled).filter(|number| number % 4 != 0), 8, "three in four");
    world.store.store().reclaim().unwrap();
    assert!(world.store.store().reclaimed().is_running);
    (0..3).for_each(|_| world.pass());
    let done = world.store.store().reclaimed();
    assert!(!done.is_running && done.failure.is_none(), "{done:?}\n{:#?}", world.stats());
    assert!(done.bytes * 3 < done.bytes_before, "{done:?}");
    let stats = world.stats();
    assert!(stats.journal_dead_bytes * 20 <= stats.journal_bytes, "{stats:#?}");
    for number in 0..filled {
        assert_eq!(world.has(number), number % 4 == 0, "key {number}");
    }
    // Once more, there is nothing to do.
    world.store.store().reclaim().unwrap();
    (0..3).for_each(|_| world.pass());
    let again = world.store.store().reclaimed();
    assert!(!again.is_running && again.bytes == again.bytes_before, "{again:?}");
    world.store.close().unwrap();
}
