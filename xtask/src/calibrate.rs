//! What the machine does without any server: the yardsticks that rows are divided by.
//!
//! Each runs for the time it is given and is meant to be run between the rows it stands beside, because a
//! shared machine is not the same machine ten minutes later. Whatever the time, each does its work at least once.

use crate::Result;
use crate::load::VALUE_LEN;
use crate::rows::{Row, Spec};
use crate::stats::record;
use crate::sys::thread_cpu;
use base::Rng;
use base::checksum::crc32c;
use base::rng::SplitMix64;
use histogram::{Histogram, Recorder};
use std::fs::File;
use std::hint::black_box;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

/// What is sent in a ping-pong: about a PUT of [`VALUE_LEN`] bytes, and its answer.
const PING_LEN: usize = VALUE_LEN + 64;
const PONG_LEN: usize = 5;

/// The file that is read in blocks: far larger than the processor's caches, far smaller than memory.
const BLOCKS: u64 = 8192;
const BLOCK_LEN: usize = 8192;

/// Places in the chain of dependent loads; 8 bytes each make 64 MiB, beyond any cache here.
const CHAIN_LEN: usize = 8 << 20;

/// How many loads between two looks at the clock.
const CHAIN_STEPS: u32 = 10_000;

/// Busy time of a side before it sends: about that of a disk.
const ELSEWHERE: Duration = Duration::from_micros(100);

/// A ping-pong's figures.
pub struct PingPong {
    /// User and system time of both ends for one round trip, in microseconds.
    pub cpu_us: f64,
    /// How long round trips took.
    pub latencies: Histogram,
}

/// Two threads on a loopback connection, blocking calls: a request of 1 KB, an answer of 5 bytes.
pub fn ping_pong(time: Duration) -> Result<PingPong> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let echo = thread::spawn(move || -> Result<Duration> {
        let mut request = [0; PING_LEN];
        loop {
            match far.read_exact(&mut request) {
                Ok(()) => far.write_all(&[0; PONG_LEN])?,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(thread_cpu()),
                Err(error) => return Err(error.into()),
            }
        }
    });
    let (cpu, begin) = (thread_cpu(), Instant::now());
    let mut latencies = Recorder::default();
    let (request, mut answer, mut trips) = ([0; PING_LEN], [0; PONG_LEN], 0u32);
    while trips == 0 || begin.elapsed() < time {
        let sent = Instant::now();
        near.write_all(&request)?;
        near.read_exact(&mut answer)?;
        record(&mut latencies, sent.elapsed());
        trips += 1;
    }
    drop(near);
    let far_cpu = echo.join().map_err(|_| "the echo has panicked")??;
    let cpu = thread_cpu() - cpu + far_cpu;
    Ok(PingPong { cpu_us: cpu.as_secs_f64() * 1e6 / f64::from(trips), latencies: latencies.take() })
}

/// A message to another thread and one back: two wake-ups of a thread that sleeps.
///
/// Each side does something that takes its time before it sends, as a disk and a network do. Without that the other
/// side has not gone to sleep yet, and what is measured, half a microsecond, is not a wake-up.
pub fn two_wake_ups(time: Duration) -> Result<Histogram> {
    let ((to_far, from_near), (to_near, from_far)) = (sync_channel::<Instant>(1), sync_channel(1));
    let far = thread::spawn(move || {
        while let Ok(sent) = from_near.recv() {
            let took = sent.elapsed();
            thread::sleep(ELSEWHERE);
            // The other side has ended, and so does this one.
            to_near.send((Instant::now(), took)).ok();
        }
    });
    let (mut latencies, begin) = (Recorder::default(), Instant::now());
    while latencies.is_empty() || begin.elapsed() < time {
        thread::sleep(ELSEWHERE);
        to_far.send(Instant::now())?;
        let (sent, took_before): (Instant, Duration) = from_far.recv()?;
        record(&mut latencies, took_before + sent.elapsed());
    }
    drop(to_far);
    far.join().map_err(|_| "the other side has panicked")?;
    Ok(latencies.take())
}

/// Appends of a value to a file, each with its fdatasync.
pub fn append_and_sync(dir: &Path, time: Duration) -> Result<Histogram> {
    let path = dir.join("appended");
    let mut file = File::options().create(true).append(true).open(&path)?;
    let (value, begin) = ([0x5a; VALUE_LEN], Instant::now());
    let mut latencies = Recorder::default();
    while latencies.is_empty() || begin.elapsed() < time {
        let start = Instant::now();
        file.write_all(&value)?;
        file.sync_data()?;
        record(&mut latencies, start.elapsed());
    }
    Ok(latencies.take())
}

/// What the yardsticks said in one round.
#[derive(Clone, Copy, Debug)]
pub struct Yardstick {
    /// CPU of both ends of a loopback ping-pong, in microseconds.
    pub ping_pong_us: f64,
    /// CPU of a read of 8 KB from the page cache with its CRC, in microseconds.
    pub pread_crc_us: f64,
    /// CPU of a dependent load from memory, in nanoseconds.
    pub load_ns: f64,
}

impl Yardstick {
    /// Their rows before they are measured.
    pub fn specs() -> [Spec; 3] {
        [
            ("calibration/ping-pong cpu", "us"),
            ("calibration/pread 8 KB and crc", "us"),
            ("calibration/dependent load", "ns"),
        ]
        .map(|(row, unit)| Spec::new(row, unit, None))
    }

    /// Their rows.
    pub fn rows(rounds: &[Yardstick]) -> [Row; 3] {
        let values = |field: fn(&Yardstick) -> f64| rounds.iter().map(field).collect::<Vec<f64>>();
        let [ping_pong, pread_crc, load] = Yardstick::specs();
        [
            ping_pong.measured(&values(|round| round.ping_pong_us)),
            pread_crc.measured(&values(|round| round.pread_crc_us)),
            load.measured(&values(|round| round.load_ns)),
        ]
    }
}

/// A file in the page cache and a chain through memory, made once.
pub struct Yardsticks {
    file: File,
    chain: Vec<usize>,
    rng: SplitMix64,
}

impl Yardsticks {
    /// Makes the file in `dir`, and the chain.
    pub fn new(dir: &Path) -> Result<Yardsticks> {
        let path = dir.join("blocks");
        let mut file = File::options().create(true).truncate(true).read(true).write(true).open(path)?;
        for block in 0..BLOCKS {
            file.write_all(&[block as u8; BLOCK_LEN])?;
        }
        let mut rng = SplitMix64::new(1);
        let chain = cycle(CHAIN_LEN, &mut rng);
        Ok(Yardsticks { file, chain, rng })
    }

    /// Each of them once, for so long.
    pub fn round(&mut self, time: Duration) -> Result<Yardstick> {
        Ok(Yardstick {
            ping_pong_us: ping_pong(time)?.cpu_us,
            pread_crc_us: self.pread_crc_us(time)?,
            load_ns: self.dependent_load_ns(time)?,
        })
    }

    /// CPU of a read of 8 KB from the page cache with its CRC, in microseconds.
    fn pread_crc_us(&mut self, time: Duration) -> Result<f64> {
        let (cpu, begin, mut reads) = (thread_cpu(), Instant::now(), 0u32);
        let mut block = [0; BLOCK_LEN];
        while reads == 0 || begin.elapsed() < time {
            self.file.read_exact_at(&mut block, self.rng.below(BLOCKS) * BLOCK_LEN as u64)?;
            black_box(crc32c(&block));
            reads += 1;
        }
        Ok((thread_cpu() - cpu).as_secs_f64() * 1e6 / f64::from(reads))
    }

    /// CPU of one load from memory whose address is the result of the one before, in nanoseconds.
    fn dependent_load_ns(&self, time: Duration) -> Result<f64> {
        let (cpu, begin, mut steps, mut place) = (thread_cpu(), Instant::now(), 0u32, 0);
        while steps == 0 || begin.elapsed() < time {
            for _ in 0..CHAIN_STEPS {
                place = self.chain[place];
            }
            steps += CHAIN_STEPS;
        }
        black_box(place);
        Ok((thread_cpu() - cpu).as_secs_f64() * 1e9 / f64::from(steps))
    }
}

/// A random permutation of `0..len` that is one cycle (Sattolo's shuffle).
fn cycle(len: usize, rng: &mut SplitMix64) -> Vec<usize> {
    let mut chain: Vec<usize> = (0..len).collect();
    for last in (1..len).rev() {
        let other = rng.below(last as u64) as usize;
        chain.swap(last, other);
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(5);

    #[test]
    fn a_cycle_visits_every_place() {
        let chain = cycle(1000, &mut SplitMix64::new(7));
        let (mut place, mut steps) = (chain[0], 1);
        while place != 0 {
            (place, steps) = (chain[place], steps + 1);
        }
        assert_eq!(steps, 1000);
    }

    #[test]
    fn every_yardstick_measures_something() {
        let dir = tempfile::tempdir().unwrap();
        assert!(ping_pong(SHORT).unwrap().latencies.count() > 0);
        assert!(two_wake_ups(Duration::from_millis(50)).unwrap().count() > 0);
        assert!(append_and_sync(dir.path(), SHORT).unwrap().count() > 0);
        let mut yardsticks = Yardsticks::new(dir.path()).unwrap();
        let round = yardsticks.round(SHORT).unwrap();
        assert!(round.ping_pong_us > 0.0 && round.pread_crc_us > 0.0 && round.load_ns > 0.0);
        assert_eq!(Yardstick::rows(&[round]).map(|row| row.value.unwrap() > 0.0), [true; 3]);
    }
}
