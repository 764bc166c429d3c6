//! The work that each engine is given, and what it costs.

use crate::engine_alone::bed::{Cpu, RunQueue};
use crate::process::make_dir;
use crate::stats::Latencies;
use crate::workload::SplitMix;
use crate::{Result, proc};
use backends::{Backend, Durability, Item, Jobs, Kind, Machine, Settings, What};
use std::fs;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// About what a head of an object takes.
const HEAD: [u8; 64] = [7; 64];

/// What is measured of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// CPU of loads and overwrites, closing included.
    Put,
    /// CPU of reads of heads and values.
    Get,
    /// CPU of reads of heads.
    Head,
    /// CPU of reads of keys that are not there.
    Miss,
    /// CPU of reads and writes, half and half.
    Mixed,
    /// CPU of a fold over all heads, by key.
    Fold,
    /// Of 1,000 mixed operations 999 took no longer.
    Tail,
    /// The longest of the mixed operations.
    Stall,
    /// Bytes written to the disk for each of a client.
    Written,
    /// Bytes on the disk for each of a client.
    Space,
}

impl Measure {
    /// All.
    pub const ALL: [Measure; 10] = [
        Measure::Put,
        Measure::Get,
        Measure::Head,
        Measure::Miss,
        Measure::Mixed,
        Measure::Fold,
        Measure::Tail,
        Measure::Stall,
        Measure::Written,
        Measure::Space,
    ];

    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Put => "CPU per PUT",
            Measure::Get => "CPU per GET",
            Measure::Head => "CPU per HEAD",
            Measure::Miss => "CPU per miss",
            Measure::Mixed => "CPU per mixed operation",
            Measure::Fold => "CPU per key of a fold",
            Measure::Tail => "mixed, p99.9",
            Measure::Stall => "mixed, longest stall",
            Measure::Written => "bytes written",
            Measure::Space => "space",
        }
    }

    /// The unit of one engine's figure.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Stall => "ms",
            Measure::Written | Measure::Space => "B/B",
            _ => "us",
        }
    }

    /// Whether ours is to be first in it.
    pub fn is_raced(self) -> bool {
        !matches!(self, Measure::Tail | Measure::Stall | Measure::Written | Measure::Space)
    }
}

/// An engine as it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entrant {
    pub kind: Kind,
    /// Whether flushes, merges and compactions of ours run on a thread of the store's own, as those of most others do, and not
    /// within the call that causes them.
    pub has_jobs: bool,
}

impl Entrant {
    /// Its name beside others.
    pub fn name(self) -> &'static str {
        if self.has_jobs { "annulet-jobs" } else { self.kind.name() }
    }

    fn machine(self) -> Machine {
        let disks = os::OsDisk::blocking().blocking_handles();
        let machine = Machine::new(disks.clone(), os::OsClock::new(), os::OsRng::new());
        if !self.has_jobs {
            return machine;
        }
        machine.with_jobs(move || {
            let (spawn, ended) = os::JobThreads::awaited(1, &disks())?;
            Ok(Jobs { spawn: Arc::new(spawn), ended: Box::new(ended) })
        })
    }
}

/// Measures one engine on a fresh folder.
pub fn measure(
    home: &Path,
    entrant: Entrant,
    count: u64,
    value_bytes: usize,
    seed: u64,
) -> Result<Vec<(Measure, f64)>> {
    let folder = make_dir(home, entrant.name())?;
    let settings = Settings { durability: Durability::None, ..Settings::default() };
    let store = entrant.kind.open(&folder, &settings, entrant.machine())?;
    let measured = Work { store, count, rng: SplitMix::new(seed), value: vec![7; value_bytes] }.run(&folder);
    fs::remove_dir_all(&folder)?;
    measured
}

/// What operations took.
struct Timed {
    latencies: Latencies,
    longest: Duration,
}

struct Work {
    store: Box<dyn Backend>,
    count: u64,
    rng: SplitMix,
    value: Vec<u8>,
}

impl Work {
    fn run(mut self, folder: &Path) -> Result<Vec<(Measure, f64)>> {
        let (writing, written) = (Cpu::start()?, proc::written(std::process::id())?);
        self.puts()?;
        let put_us = writing.us_per(2 * self.count)?;
        let get_us = self.each(|store, key| Ok(store.get(key)?.is_some()), 0, true)?;
        let head_us = self.each(|store, key| Ok(store.head(key)?.is_some()), 0, true)?;
        let miss_us = self.each(|store, key| Ok(store.get(key)?.is_some()), self.count, false)?;
        let puts_written = proc::written(std::process::id())? - written;
        let (mixing, timed) = (Cpu::start()?, self.mixed()?);
        let mixed_us = mixing.us_per(self.count)?;
        let folding = Cpu::start()?;
        self.fold()?;
        let fold_us = folding.us_per(self.count)?;
        let (closing, written) = (Cpu::start()?, proc::written(std::process::id())?);
        self.store.close()?;
        let put_us = put_us + closing.us_per(2 * self.count)?;
        let written = puts_written + proc::written(std::process::id())? - written;
        let bytes = (self.count * (HEAD.len() + self.value.len()) as u64) as f64;
        Ok(vec![
            (Measure::Put, put_us),
            (Measure::Get, get_us),
            (Measure::Head, head_us),
            (Measure::Miss, miss_us),
            (Measure::Mixed, mixed_us),
            (Measure::Fold, fold_us),
            (Measure::Tail, timed.latencies.percentile_us(99.9)),
            (Measure::Stall, timed.longest.as_secs_f64() * 1e3),
            (Measure::Written, written as f64 / (2.0 * bytes)),
            (Measure::Space, folder_bytes(folder)? as f64 / bytes),
        ])
    }

    /// As many operations as there are objects, each timed: a read or a write of any of them.
    fn mixed(&mut self) -> Result<Timed> {
        let mut timed = Timed { latencies: Latencies::new(), longest: Duration::ZERO };
        let queue = RunQueue::open()?;
        for _ in 0..self.count {
            let (key, draw) = (key(self.rng.below(self.count)), self.rng.next());
            self.value[..8].copy_from_slice(&draw.to_le_bytes());
            let (waited, start) = (queue.waited()?, Instant::now());
            match draw & 1 {
                0 => self.store.put(&key, &HEAD, &self.value)?,
                _ => drop(self.store.get(&key)?.ok_or("a key that was written is not there")?),
            }
            let took = start.elapsed();
            let took = took.saturating_sub(queue.waited()?.saturating_sub(waited));
            timed.latencies.record(took);
            timed.longest = timed.longest.max(took);
        }
        Ok(timed)
    }

    fn fold(&mut self) -> Result<()> {
        let mut seen = 0;
        let mut visit = |item: Item<'_>| {
            seen += u64::from(item.head.len() == HEAD.len());
            ControlFlow::Continue(())
        };
        self.store.fold(&[], &[], What::Heads, &mut visit)?;
        if seen != self.count {
            return Err(format!("a fold has {seen} of {} keys", self.count).into());
        }
        Ok(())
    }

    /// Each key twice, in two orders; no two values are alike.
    fn puts(&mut self) -> Result<()> {
        for part in self.value.chunks_mut(8) {
            part.copy_from_slice(&self.rng.next().to_le_bytes()[..part.len()]);
        }
        for round in 0..2 {
            let offset = self.rng.below(self.count);
            for number in 0..self.count {
                self.value[..8].copy_from_slice(&self.rng.next().to_le_bytes());
                let key = key(scattered(number + round * offset, self.count));
                self.store.put(&key, &HEAD, &self.value)?;
            }
        }
        Ok(())
    }

    /// The CPU of as many reads as there are objects, of keys from a number on, all of which are there or none.
    fn each(
        &mut self,
        read: impl Fn(&mut dyn Backend, &[u8]) -> Result<bool>,
        from: u64,
        is_there: bool,
    ) -> Result<f64> {
        let cpu = Cpu::start()?;
        for _ in 0..self.count {
            let key = key(from + self.rng.below(self.count));
            if read(&mut *self.store, &key)? != is_there {
                let key = String::from_utf8_lossy(&key);
                return Err(format!("{key} is wrongly there, or not").into());
            }
        }
        cpu.us_per(self.count)
    }
}

/// A number's place in an order that is none.
fn scattered(number: u64, count: u64) -> u64 {
    // A prime: it has no factor in common with a count that is smaller.
    number * 7_368_787 % count
}

/// Twelve digits behind what all keys begin with: to make one is to cost little beside a look for it.
fn key(number: u64) -> [u8; 23] {
    let (mut key, mut rest) = (*b"bucket/key-000000000000", number);
    for digit in key[11..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// What the work itself takes of each operation: to draw a number, and to make a key of it.
pub fn generator_us(count: u64) -> Result<f64> {
    let (cpu, mut rng) = (Cpu::start()?, SplitMix::new(0));
    for _ in 0..count {
        black_box(key(rng.below(count)));
    }
    cpu.us_per(count)
}

/// What the files of a folder take on the disk.
fn folder_bytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let (entry, meta) = entry.and_then(|entry| entry.metadata().map(|meta| (entry, meta)))?;
        sum += if meta.is_dir() { folder_bytes(&entry.path())? } else { meta.blocks() * 512 };
    }
    Ok(sum)
}
