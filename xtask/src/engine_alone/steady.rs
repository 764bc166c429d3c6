//! Stalls: a load at full speed and a pareto overwrite behind it, each write timed.
//!
//! A write's latency is from when it is handed over to the end of the turn that it is in, when a shard's answers leave: all writes
//! of a turn wait for its end, not only the last. What the calls themselves take stands beside it. The time that the thread waited for
//! a processor within the turn is taken off: it is the machine's, not the engine's. A write that came late in its turn is
//! relieved of what was waited before it, too, so the percentiles are a little too low where turns were disturbed; the longest is
//! of a turn's first write mostly, and exact there.

use super::Context;
use super::bed::RunQueue;
use super::objects::{Objects, Shape};
use super::size::levels;
use crate::Result;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::Latencies;
use crate::workload::SplitMix;
use engine::{Durability, Options};
use std::time::{Duration, Instant};

/// Of a pareto distribution in which a fifth of the objects gets four fifths of the writes.
const PARETO_SHAPE: f64 = 1.16;

/// Tenths of a run, for its throughput.
const PARTS: u64 = 10;

/// Bytes on the disk for each of a user's, at most: the load, overwrites that are not compacted yet, a compaction's output.
const BYTES_ON_DISK: f64 = 2.5;

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    phases().into_iter().flat_map(|phase| [phase.stall(), phase.tail(), phase.throughput()]).collect()
}

struct Phase {
    name: &'static str,
    overwrites: bool,
}

fn phases() -> [Phase; 2] {
    [Phase { name: "load", overwrites: false }, Phase { name: "pareto overwrite", overwrites: true }]
}

impl Phase {
    fn stall(&self) -> Spec {
        Spec::new(format!("steady/{}, longest stall", self.name), "ms", Some(Bar::Below(20.0)))
    }

    fn tail(&self) -> Spec {
        Spec::new(format!("steady/{}, put p99.9 over median", self.name), "ratio", Some(Bar::AtMost(5.0)))
    }

    fn throughput(&self) -> Spec {
        let row = format!("steady/{}, last tenth's throughput over the first's", self.name);
        Spec::new(row, "ratio", Some(Bar::AtLeast(0.8)))
    }
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let dir = context.folder("steady")?;
    let mut objects = Objects::new(Shape::of_value(1 << 10));
    let bytes = objects.shape.user_bytes() as f64 * BYTES_ON_DISK;
    let count = context.affordable("steady", context.plan.steady, bytes, report)?;
    let mut bed = context.open(&dir, Options { durability: Durability::None, ..Options::default() })?;
    for phase in phases() {
        let mut rng = SplitMix::new(5);
        let mut turn = Turn::new()?;
        let mut calls = Latencies::new();
        let mut tenths = Vec::new();
        for part in 0..PARTS {
            let begin = Instant::now();
            let (from, to) = (count * part / PARTS, count * (part + 1) / PARTS);
            for number in from..to {
                let number = if phase.overwrites { pareto(&mut rng, count) } else { number };
                let start = turn.begin_write();
                bed.put(&mut objects, number, u64::from(phase.overwrites))?;
                calls.record(start.elapsed());
                if bed.is_between_turns() {
                    turn.end()?;
                }
            }
            tenths.push((to - from) as f64 / begin.elapsed().as_secs_f64());
        }
        let (p50, p999) = (turn.latencies.p50_us(), turn.latencies.percentile_us(99.9));
        let noise = format!("{count} writes");
        report.push(phase.stall().valued(turn.longest.as_secs_f64() * 1e3, &*noise))?;
        let row = phase.tail().valued(p999 / p50, &*noise);
        let row = row.also("p50_us", Some(p50)).also("p99.9_us", Some(p999));
        let row = row.also("call_p50_us", Some(calls.p50_us()));
        report.push(row.also("call_p99.9_us", Some(calls.percentile_us(99.9))))?;
        let ratio = tenths[PARTS as usize - 1] / tenths[0];
        report.push(phase.throughput().valued(ratio, &*noise).also("first_per_s", Some(tenths[0])))?;
        report.remark(format!(
            "steady, {}: {}; {} refusals, {:?} waited",
            phase.name,
            levels(&bed.stats()),
            bed.refused,
            bed.paced
        ));
    }
    bed.rest()?;
    bed.close()
}

/// The writes of the turn that goes on, and the latencies of those before it.
struct Turn {
    writes: Vec<Instant>,
    latencies: Latencies,
    longest: Duration,
    queue: RunQueue,
    /// How long the thread had waited for a processor when the turn began.
    waited: Duration,
}

impl Turn {
    fn new() -> Result<Turn> {
        let queue = RunQueue::open()?;
        let waited = queue.waited()?;
        Ok(Turn { writes: Vec::new(), latencies: Latencies::new(), longest: Duration::ZERO, queue, waited })
    }

    fn begin_write(&mut self) -> Instant {
        let start = Instant::now();
        self.writes.push(start);
        start
    }

    fn end(&mut self) -> Result<()> {
        let end = Instant::now();
        let waited = self.queue.waited()?;
        let machine = waited.saturating_sub(self.waited);
        self.waited = waited;
        for start in self.writes.drain(..) {
            let took = (end - start).saturating_sub(machine);
            self.latencies.record(took);
            self.longest = self.longest.max(took);
        }
        Ok(())
    }
}

/// One of `count` numbers, small ones far more often.
pub fn pareto(rng: &mut SplitMix, count: u64) -> u64 {
    let uniform = (rng.next() >> 11) as f64 / (1u64 << 53) as f64;
    let drawn = (1.0 - uniform).powf(-1.0 / PARETO_SHAPE) - 1.0;
    // The tail beyond `count` folds back; a factor spreads the head over a hundredth of the objects.
    (drawn * count as f64 / 100.0) as u64 % count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_numbers_get_most_of_a_pareto() {
        let mut rng = SplitMix::new(1);
        let drawn: Vec<u64> = (0..10_000).map(|_| pareto(&mut rng, 1000)).collect();
        assert!(drawn.iter().all(|&number| number < 1000));
        let head = drawn.iter().filter(|&&number| number < 200).count();
        assert!((7_000..10_000).contains(&head), "{head}");
    }
}
