//! What the tests of whole stores share.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

pub mod disk;
pub mod groups;
pub mod jobs;
pub mod strain;

use base::{Clock, Monotonic, Wall};
use engine::{Durability, Embedded, Machine, Options};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock that stands until it is moved; clones are the same clock. It begins at 1,000 s.
#[derive(Clone)]
pub struct HandClock(Arc<AtomicU64>);

impl HandClock {
    pub fn new() -> HandClock {
        HandClock(Arc::new(AtomicU64::new(1_000_000)))
    }

    pub fn ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn advance_ms(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Monotonic {
        Monotonic(self.ms() * 1_000_000)
    }

    fn wall(&self) -> Wall {
        Wall(self.ms() * 1000)
    }

    fn lease(&self) -> Monotonic {
        self.now()
    }
}

/// Real files, and a clock that is moved by hand.
pub fn machine(clock: &HandClock) -> Machine {
    Machine::new(os::OsDisk::blocking().blocking_handles(), clock.clone(), os::OsRng::new())
}

pub fn open(dir: &Path, options: &Options, clock: &HandClock) -> Embedded {
    Embedded::open(dir, options.clone(), machine(clock)).unwrap()
}

/// Small enough that a few thousand writes make several segments, tables and levels.
pub fn small() -> Options {
    Options {
        durability: Durability::None,
        inline_value_bytes_max: 64,
        memtable_bytes_max: 16 << 10,
        segment_bytes_target: 64 << 10,
        table_bytes_target: 16 << 10,
        leveled_bytes_target: 64 << 10,
        block_cache_bytes: 16 << 10,
        ..Options::default()
    }
}
