//! Once a second: figures of the servers' processes, their disks and the machine.

use super::control::Control;
use super::servers::Watched;
use crate::proc::{self, Cores, Disk, Usage};
use results::{Counters, DiskSecond, ServerSecond};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Folders are walked so often: thousands of files cost milliseconds.
const FOLDERS_EVERY: u64 = 5;

/// Servers are asked for their counters so often: each costs them some hundred microseconds.
const COUNTERS_EVERY: u64 = 2;

/// The end is looked for so often.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A second of everything but the operations.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub second: u64,
    pub servers: Vec<ServerSecond>,
    pub disks: Vec<DiskSecond>,
    pub counters: Vec<Counters>,
    pub stolen: f64,
    pub busy: f64,
    pub rss_bytes: u64,
}

/// Takes samples.
pub struct Sampler<'a> {
    watched: &'a [Watched],
    usage: Vec<Option<Usage>>,
    folders: Vec<Option<u64>>,
    disks: BTreeMap<String, Disk>,
    cores: Cores,
}

impl<'a> Sampler<'a> {
    /// Of these servers.
    pub fn new(watched: &'a [Watched]) -> Sampler<'a> {
        let names = watched.iter().filter_map(|it| it.device.clone());
        let disks = names.filter_map(|name| proc::disk(&name).map(|disk| (name, disk))).collect();
        Sampler {
            watched,
            usage: watched.iter().map(|it| proc::usage(it.pid()?)).collect(),
            folders: watched.iter().map(|_| None).collect(),
            disks,
            cores: proc::cores(),
        }
    }

    /// Takes a sample at the end of each second until `ended`.
    pub fn run(
        mut self,
        begin: Instant,
        ended: &AtomicBool,
        control: &Control,
        mut take: impl FnMut(Sample),
    ) {
        for second in 0.. {
            let until = begin + Duration::from_secs(second + 1);
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(left.min(LOOK_EVERY));
            }
            // What is asked of servers in the last second could only disturb what is measured.
            let asks = second.is_multiple_of(COUNTERS_EVERY) && !control.is_stopped();
            take(self.sample(second, asks));
        }
    }

    fn sample(&mut self, second: u64, asks: bool) -> Sample {
        let servers = (0..self.watched.len()).filter_map(|at| self.server(at, second)).collect();
        let disks = self.disks.iter_mut().filter_map(|(name, before)| disk(name, before)).collect();
        let (now, before) = (proc::cores(), self.cores);
        self.cores = now;
        let total = now.total.saturating_sub(before.total).max(1) as f64;
        let counters = if asks { self.counters(second) } else { Vec::new() };
        Sample {
            second,
            servers,
            disks,
            counters,
            stolen: now.stolen.saturating_sub(before.stolen) as f64 / total,
            busy: now.busy.saturating_sub(before.busy) as f64 / total,
            rss_bytes: proc::usage(std::process::id()).map_or(0, |it| it.rss_bytes),
        }
    }

    fn server(&mut self, at: usize, second: u64) -> Option<ServerSecond> {
        let watched = &self.watched[at];
        // A server that has been restarted has another process at the same address.
        let now = watched.pid().and_then(proc::usage).or_else(|| proc::usage(watched.find_again()?));
        let before = std::mem::replace(&mut self.usage[at], now);
        if second.is_multiple_of(FOLDERS_EVERY) {
            self.folders[at] = watched.data.as_deref().and_then(proc::folder_bytes);
        }
        let Some(now) = now else {
            let server =
                ServerSecond { server: at as u32, disk_bytes: self.folders[at], ..ServerSecond::default() };
            return watched.is_local.then_some(server);
        };
        let before = before.filter(|before| before.started == now.started).unwrap_or_default();
        Some(ServerSecond {
            server: at as u32,
            up: true,
            cpu_us: now.cpu_us.saturating_sub(before.cpu_us),
            rss_bytes: now.rss_bytes,
            read_bytes: now.read_bytes.saturating_sub(before.read_bytes),
            write_bytes: now.write_bytes.saturating_sub(before.write_bytes),
            threads: now.threads,
            disk_bytes: self.folders[at],
        })
    }

    fn counters(&self, second: u64) -> Vec<Counters> {
        let all = self.watched.iter().enumerate();
        let told =
            all.filter_map(|(at, it)| Some(Counters { second, server: at as u32, values: it.counters()? }));
        told.collect()
    }
}

fn disk(name: &str, before: &mut Disk) -> Option<DiskSecond> {
    let now = proc::disk(name)?;
    let then = std::mem::replace(before, now.clone());
    let mean = |ms: u64, count: u64| if count == 0 { 0.0 } else { ms as f64 / count as f64 };
    let (reads, writes) = (now.reads.saturating_sub(then.reads), now.writes.saturating_sub(then.writes));
    Some(DiskSecond {
        device: name.to_owned(),
        utilisation: (now.busy_ms.saturating_sub(then.busy_ms) as f64 / 1000.0).min(1.0),
        reads,
        writes,
        read_bytes: now.read_bytes.saturating_sub(then.read_bytes),
        write_bytes: now.write_bytes.saturating_sub(then.write_bytes),
        read_await_ms: mean(now.read_ms.saturating_sub(then.read_ms), reads),
        write_await_ms: mean(now.write_ms.saturating_sub(then.write_ms), writes),
    })
}
