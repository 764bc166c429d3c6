//! Power cuts and kills at any operation of any disk, under the backends that are ours.
//!
//! A store lives on the simulator's disk, which keeps what was synced and of everything else what the seed picks,
//! blocks in part included. Each life ends at an operation that the seed chose, of opening as of writing; the next one
//! must have what was acknowledged, and the batch that was under way as a whole or not at all. At durability `none` a
//! power cut may take what came after the store was last closed, and each key then has a content that it once had
//! since; a kill takes nothing. `ANNULET_BACKEND_LIVES` runs more seeds.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use backends::{Backend, Durability, Error, Item, Kind, Machine, Settings, What, Write};
use base::Rng;
use base::rng::SplitMix64;
use sim::disk::Armed;
use sim::trace::Keep;
use sim::{DiskConfig, DiskOdds, Odds, Seed, SimClock, SimDisk, SimTime, Trace};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

/// Seeds in an ordinary run.
const SEEDS: u64 = 12;

/// Times that a store of one seed is opened.
const LIVES: usize = 8;

/// Batches of a life at most: enough for blocks and segments to be merged.
const BATCHES: u64 = 250;

const KEYS: u64 = 40;

type Content = Option<(Vec<u8>, Vec<u8>)>;

type Model = BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)>;

type Batch = Vec<(Vec<u8>, Content)>;

struct World {
    kind: Kind,
    durability: Durability,
    disk: SimDisk,
    seed: Seed,
    rng: SplitMix64,
    /// What was acknowledged.
    model: Model,
    /// What was under way when a life ended.
    doubtful: Batch,
    /// What each key has had since all was last durable, where it has been written since.
    had: BTreeMap<Vec<u8>, BTreeSet<Content>>,
}

impl World {
    fn new(kind: Kind, durability: Durability, seed: u64) -> World {
        let seed = Seed(seed);
        let mut config = DiskConfig::sound("/data");
        config.odds = DiskOdds { torn: Odds::one_in(4), ..DiskOdds::SOUND };
        let trace = Trace::new(SimTime::default(), Keep::Hash);
        let disk = SimDisk::new("disk", config, seed.stream("disk", 0), trace);
        let (model, had) = (Model::new(), BTreeMap::new());
        World {
            kind,
            durability,
            disk,
            seed,
            rng: seed.stream("world", 0),
            model,
            doubtful: Batch::new(),
            had,
        }
    }

    fn open(&self) -> Result<Box<dyn Backend>, Error> {
        let disk = self.disk.clone();
        let clock = SimClock::new(SimTime::default(), 0);
        let machine =
            Machine::new(move || disk.immediate(), clock, self.seed.stream("machine", self.disk.deaths()));
        let settings = Settings {
            durability: self.durability,
            cache_bytes: 1 << 20,
            segment_bytes: 16 << 10,
            ..Settings::default()
        };
        self.kind.open(Path::new("/data/store"), &settings, machine)
    }

    /// Checks what a start has found, and goes on from there.
    fn check(&mut self, store: &mut dyn Backend, may_lose: bool) {
        let mut found = all(store);
        let mut after = self.model.clone();
        apply(&mut after, &self.doubtful);
        let name = self.kind.name();
        if may_lose {
            for (key, contents) in &self.had {
                assert!(contents.contains(&found.remove(key)), "{name}: {key:?} has what it never had");
            }
            after.retain(|key, _| !self.had.contains_key(key));
            assert_eq!(found, after, "{name}: what was durable");
            // What a power cut has left is durable.
            found = all(store);
            self.had.clear();
        } else {
            let is_known = found == self.model || found == after;
            assert!(
                is_known,
                "{name} at {:?}, seed {}: of the batch in doubt {:?}, otherwise wrong {:?}",
                self.durability,
                self.seed,
                self.doubtful.iter().map(|(key, _)| key).collect::<Vec<_>>(),
                found
                    .iter()
                    .filter(|(key, it)| after.get(*key) != Some(it))
                    .map(|(key, _)| key)
                    .chain(after.keys().filter(|key| !found.contains_key(*key)))
                    .collect::<Vec<_>>(),
            );
        }
        self.doubtful.clear();
        self.model = found;
    }

    /// A batch, which is applied to the model once it is acknowledged.
    fn batch(&mut self) -> Batch {
        let count = if self.rng.chance(1, 3) { 1 + self.rng.below(6) } else { 1 };
        let mut change = |_| {
            let key = self.rng.below(KEYS);
            let key = [&key.to_be_bytes()[..], &vec![b'k'; key as usize % 7 * 5]].concat();
            let byte = self.rng.next_u64() as u8;
            let value = vec![byte; self.rng.below(5000) as usize];
            (key, (!byte.is_multiple_of(4)).then(|| (vec![byte; usize::from(byte % 90)], value)))
        };
        (0..count).map(&mut change).collect()
    }

    /// Whether the store lived through it.
    fn write(&mut self, store: &mut dyn Backend) -> bool {
        let batch = self.batch();
        for (key, content) in &batch {
            let before = self.model.get(key).cloned();
            let had = self.had.entry(key.clone()).or_insert_with(|| BTreeSet::from([before]));
            had.insert(content.clone());
        }
        let writes: Vec<Write<'_>> = batch
            .iter()
            .map(|(key, content)| match content {
                Some((head, value)) => Write::Put { key, head, value },
                None => Write::Delete { key },
            })
            .collect();
        match store.write(&writes) {
            Ok(()) => apply(&mut self.model, &batch),
            Err(_) => {
                self.doubtful = batch;
                return false;
            }
        }
        true
    }

    /// One life, which may end at any operation.
    fn live(&mut self, how: Armed, may_lose: &mut bool) {
        let deaths = self.disk.deaths();
        let operation = if self.rng.chance(1, 3) { self.rng.below(30) } else { self.rng.below(600) };
        self.disk.arm(1 + operation, how);
        // At `none` a power cut in this life, or in one that found nothing out, may have taken something.
        let loses = self.durability == Durability::None && matches!(how, Armed::PowerCut);
        let opened = self.open();
        if let Err(error) = &opened {
            assert!(
                self.disk.deaths() > deaths,
                "{} at {:?}, seed {}: {error}",
                self.kind.name(),
                self.durability,
                self.seed
            );
        }
        if let Ok(mut store) = opened {
            // What reads find is no matter of when the power is cut.
            self.disk.disarm();
            self.check(&mut *store, *may_lose);
            *may_lose = false;
            self.disk.arm(1 + operation, how);
            let count = self.rng.below(BATCHES);
            let lived = (0..count).all(|_| self.write(&mut *store));
            if lived && self.rng.chance(1, 2) && store.close().is_ok() {
                self.had.clear();
            }
        }
        self.disk.disarm();
        if self.disk.deaths() == deaths {
            match how {
                Armed::PowerCut => self.disk.power_cut(),
                _ => self.disk.kill(),
            }
        }
        *may_lose |= loses;
        if self.durability == Durability::Sync {
            self.had.clear();
        }
    }
}

fn all(store: &mut dyn Backend) -> Model {
    let mut all = Model::new();
    let mut visit = |item: Item<'_>| {
        all.insert(item.key.to_vec(), (item.head.to_vec(), item.value.to_vec()));
        ControlFlow::Continue(())
    };
    store.fold(&[], &[], What::Objects, &mut visit).unwrap();
    all
}

fn apply(model: &mut Model, batch: &Batch) {
    for (key, content) in batch {
        match content {
            Some(content) => drop(model.insert(key.clone(), content.clone())),
            None => drop(model.remove(key)),
        }
    }
}

fn seeds() -> u64 {
    std::env::var("ANNULET_BACKEND_LIVES").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS)
}

fn run(kind: Kind) {
    for seed in 0..seeds() {
        for durability in [Durability::Sync, Durability::None] {
            let mut world = World::new(kind, durability, seed);
            let mut may_lose = false;
            for _ in 0..LIVES {
                let how = if world.rng.chance(2, 3) { Armed::PowerCut } else { Armed::Kill };
                world.live(how, &mut may_lose);
            }
            world.disk.disarm();
            let mut store = world.open().unwrap();
            world.check(&mut *store, may_lose);
        }
    }
}

#[test]
fn ours_keeps_what_it_has_acknowledged() {
    run(Kind::Annulet);
}

#[test]
fn a_log_with_its_keys_in_memory_keeps_what_it_has_acknowledged() {
    run(Kind::Bitcask);
}

#[test]
fn blocks_with_a_hash_index_keep_what_they_have_acknowledged() {
    run(Kind::Hash);
}

/// The end of a block may be in the system's buffers alone, from a process that was killed before its sync.
#[test]
fn an_end_that_a_killed_process_left_is_synced_by_the_next_start() {
    for seed in 0..100 {
        let mut world = World::new(Kind::Hash, Durability::None, seed);
        let mut store = world.open().unwrap();
        assert!((0..3).all(|_| world.write(&mut *store)));
        // A sync of the block, then its end.
        world.disk.arm(2, Armed::Kill);
        store.close().unwrap_err();
        world.disk.disarm();

        let mut store = world.open().unwrap();
        assert!(world.write(&mut *store));
        world.disk.power_cut();
        drop(store);
        world.open().unwrap();
    }
}
