//! A steady load, alone and beside background work: half writes, half reads, on a schedule at half the rate of a load at
//! full speed, each operation timed.
//!
//! The time that the thread waited for a processor is taken off, as with stalls ([`super::steady`]). An operation is not
//! timed from when it was due: one that comes late because of another would count twice.

use super::Context;
use super::bed::{Bed, RunQueue};
use super::objects::{Objects, Shape};
use super::size::all_heads;
use super::space::wait_until;
use super::steady::pareto;
use crate::Result;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::Latencies;
use crate::workload::SplitMix;
use engine::fold::ScanId;
use engine::{CompactionSchedule, Durability, Options, Want};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Operations between two looks at the schedule and at the background work.
const BATCH: u64 = 32;

const FOLD: &str = "beside/p99 of a steady load beside a full fold, over alone";
const COMPACTION: &str = "beside/p99 of a steady load beside a compaction, over alone";

fn spec(row: &str) -> Spec {
    Spec::new(row, "ratio", Some(Bar::AtMost(1.5)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![spec(FOLD), spec(COMPACTION)]
}

/// What runs beside the load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Nothing,
    Fold,
    Compaction,
}

/// What a stretch of load saw.
struct Seen {
    p99_us: f64,
    operations: u64,
    /// Folds that ended, or compactions.
    works: u64,
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let (dir, count) = (context.folder("beside")?, context.plan.overwritten);
    let mut objects = Objects::new(Shape::of_value(1 << 10));
    // It compacts when it is told to.
    let compaction = CompactionSchedule::Never;
    let options = Options { durability: Durability::None, compaction, ..Options::default() };
    let mut bed = context.open(&dir, options)?;
    let begin = Instant::now();
    for number in 0..count {
        bed.put(&mut objects, number, 0)?;
    }
    let rate = count as f64 / begin.elapsed().as_secs_f64() / 2.0;
    // Waste for the compaction, in all segments.
    let mut rng = SplitMix::new(3);
    for _ in 0..count / 2 {
        bed.put(&mut objects, rng.below(count), 1)?;
    }
    bed.settle()?;
    let mut load = |work| stretch(&mut bed, &mut objects, count, rate, context.plan.beside, work);
    load(Work::Nothing)?;
    let (alone, fold, compaction) = (load(Work::Nothing)?, load(Work::Fold)?, load(Work::Compaction)?);
    for (row, seen) in [(FOLD, fold), (COMPACTION, compaction)] {
        if seen.works == 0 {
            report.push(spec(row).failed("the background work did not end within the stretch"))?;
            continue;
        }
        let noise = format!("{} operations at {rate:.0}/s", seen.operations);
        let row = spec(row).valued(seen.p99_us / alone.p99_us, noise);
        let row = row.also("alone_us", Some(alone.p99_us)).also("beside_us", Some(seen.p99_us));
        report.push(row.also("ended", Some(seen.works as f64)))?;
    }
    bed.settle()?;
    bed.close()
}

/// The load for so long as folds go on beside it or nothing does, or for as long as a compaction does, and until the first
/// background work has ended; but not for more than twelve times as long.
fn stretch(
    bed: &mut Bed,
    objects: &mut Objects,
    count: u64,
    rate: f64,
    time: Duration,
    work: Work,
) -> Result<Seen> {
    let (mut latencies, queue, mut rng) = (Latencies::new(), RunQueue::open()?, SplitMix::new(8));
    let before = bed.stats().counters.compactions;
    let (mut fold, mut folds, mut done): (Option<ScanId>, u64, u64) = (None, 0, 0);
    if work == Work::Compaction {
        bed.store.compact();
    }
    let begin = Instant::now();
    loop {
        for _ in 0..BATCH {
            let number = pareto(&mut rng, count);
            let (waited, start) = (queue.waited()?, Instant::now());
            if done % 2 == 0 {
                bed.put(objects, number, 2)?;
            } else if bed.lookup(objects.key(number), Want::Value)?.is_none() {
                return Err(format!("object {number} is not there").into());
            }
            let took = start.elapsed();
            latencies.record(took.saturating_sub(queue.waited()?.saturating_sub(waited)));
            done += 1;
        }
        if work == Work::Fold {
            let ended = match fold {
                Some(id) => bed.ended_scan(id)?.is_some(),
                None => true,
            };
            if ended {
                folds += u64::from(fold.is_some());
                fold = Some(bed.begin_scan(all_heads(&Arc::new(AtomicU64::new(0))))?);
            }
        }
        let works = match work {
            Work::Nothing => 1,
            Work::Fold => folds,
            Work::Compaction => bed.stats().counters.compactions - before,
        };
        let over = match work {
            // What comes behind it would hide it.
            Work::Compaction => !bed.store.is_compacting(),
            Work::Nothing | Work::Fold => begin.elapsed() >= time,
        };
        if (over && works > 0) || begin.elapsed() >= time * 12 {
            if let Some(id) = fold {
                while bed.ended_scan(id)?.is_none() {
                    bed.turn()?;
                }
            }
            return Ok(Seen { p99_us: latencies.percentile_us(99.0), operations: done, works });
        }
        wait_until(bed, begin + Duration::from_secs_f64(done as f64 / rate))?;
    }
}
