//! What tests of shards need: a clock that stands, and a store on a real disk that does everything at once.

pub mod cluster;

use base::disk::{Completion, DiskError, DiskErrorKind, DiskOp, FileId, Token};
use base::rng::SplitMix64;
use base::{Clock, Disk, Monotonic, Wall};
use engine::embedded::RunAtOnce;
use engine::store::Platform;
use engine::{Options, Store};
use kv::BucketTable;
use node::{Layout, layout};
use os::OsDisk;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A clock that stands until it is moved, or moves by the second number of nanoseconds whenever it is read.
#[derive(Default)]
pub struct HandClock(pub Arc<AtomicU64>, pub AtomicU64);

impl Clock for HandClock {
    fn now(&self) -> Monotonic {
        Monotonic(self.0.fetch_add(self.1.load(Ordering::Relaxed), Ordering::Relaxed))
    }

    fn wall(&self) -> Wall {
        Wall(1_000_000 + self.0.load(Ordering::Relaxed) / 1000)
    }

    fn lease(&self) -> Monotonic {
        self.now()
    }
}

/// How a disk's reads are held up, or its writes fail.
#[derive(Default)]
pub struct Hold {
    /// Whether none is answered.
    pub on: AtomicBool,
    /// How many have been asked for meanwhile.
    pub waiting: AtomicUsize,
    /// Whether writes fail.
    pub fails: AtomicBool,
}

/// A disk whose reads can be held up.
struct Held {
    disk: OsDisk,
    hold: Arc<Hold>,
    reads: Vec<(DiskOp, Token)>,
    failed: Vec<Token>,
}

impl Disk for Held {
    fn submit(&mut self, op: DiskOp, token: Token) {
        match op {
            DiskOp::Read { .. } if self.hold.on.load(Ordering::Relaxed) => {
                self.hold.waiting.fetch_add(1, Ordering::Relaxed);
                self.reads.push((op, token));
            }
            DiskOp::Write { .. } if self.hold.fails.load(Ordering::Relaxed) => self.failed.push(token),
            op => self.disk.submit(op, token),
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        if !self.hold.on.load(Ordering::Relaxed) {
            self.reads.drain(..).for_each(|(op, token)| self.disk.submit(op, token));
        }
        let failed = |token| {
            let (path, message) = ("a file".to_owned(), "the write failed".to_owned());
            Completion { token, result: Err(DiskError { kind: DiskErrorKind::Io, path, message }) }
        };
        completions.extend(self.failed.drain(..).map(failed));
        self.disk.poll(completions);
    }

    fn wait(&mut self) {
        self.disk.wait();
    }

    fn try_read(&mut self, file: FileId, offset: u64, buf: &mut [u8]) -> Option<usize> {
        if self.hold.on.load(Ordering::Relaxed) { None } else { self.disk.try_read(file, offset, buf) }
    }
}

/// The store of a shard, and the bucket properties in it. Other handles of the disk have the same open files.
#[allow(clippy::too_many_arguments, reason = "a store has all of them")]
pub fn open_store(
    disk: &OsDisk,
    data: &Path,
    layout: &Layout,
    shard: u16,
    seed: u64,
    clock: &HandClock,
    hold: Arc<Hold>,
    options: Options,
) -> (Store, BucketTable) {
    let mut startup = disk.blocking_handle();
    let platform = Platform {
        spawn: Arc::new(RunAtOnce::new(Box::new(disk.blocking_handle()))),
        startup: Box::new(disk.blocking_handle()),
        disk: Box::new(Held { disk: disk.blocking_handle(), hold, reads: Vec::new(), failed: Vec::new() }),
        rng: Box::new(SplitMix64::new(seed)),
        clock: Arc::new(HandClock(Arc::clone(&clock.0), AtomicU64::default())),
    };
    let (metadata, indexing) = (layout.metadata(shard), Some(node::INDEXING));
    let options = Options { metadata, indexing, groups: Some(node::GROUPS), ..options };
    let (mut store, _) = Store::open(&layout::shard_dir(data, shard), options, platform).unwrap();
    let table = node::read_props(&mut store, &mut startup).unwrap();
    (store, table)
}
