//! What tests of shards need: a clock that stands, and a store on a real disk that does everything at once.

use base::rng::SplitMix64;
use base::{Clock, Monotonic, Wall};
use engine::embedded::RunAtOnce;
use engine::store::Platform;
use engine::{Options, Store};
use kv::BucketTable;
use node::{Layout, Shard, layout};
use os::OsDisk;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock that stands until it is moved, or moves by the second number of nanoseconds whenever it is read.
#[derive(Default)]
pub struct HandClock(pub AtomicU64, pub AtomicU64);

impl Clock for HandClock {
    fn now(&self) -> Monotonic {
        Monotonic(self.0.fetch_add(self.1.load(Ordering::Relaxed), Ordering::Relaxed))
    }

    fn wall(&self) -> Wall {
        Wall(1_000_000 + self.0.load(Ordering::Relaxed) / 1000)
    }
}

/// The store of a shard, and the bucket properties in it.
pub fn open_store(
    data: &Path,
    layout: &Layout,
    shard: u16,
    seed: u64,
    clock: &HandClock,
) -> (Store, BucketTable) {
    let disk = OsDisk::blocking();
    let mut startup = disk.blocking_handle();
    let platform = Platform {
        spawn: Arc::new(RunAtOnce::new(Box::new(disk.blocking_handle()))),
        startup: Box::new(disk.blocking_handle()),
        disk: Box::new(disk),
        rng: Box::new(SplitMix64::new(seed)),
        now: clock.now(),
    };
    let options = Options { metadata: layout.metadata(shard), ..Options::default() };
    let (store, _) = Store::open(&layout::shard_dir(data, shard), options, platform).unwrap();
    let table = Shard::read_props(&store, &mut startup).unwrap();
    (store, table)
}
