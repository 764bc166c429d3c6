//! How large the journal gets: under overwrites, when compaction has come to rest, and after it was asked for.
//!
//! What is of use is counted here, not by the store: one record for each object. What there is is the length of the
//! journal's files, so that heads and indexes of segments, and segments that are not gone yet, count as well.

use super::bed::Bed;
use super::objects::{Objects, Shape};
use super::small::folder_bytes;
use super::steady::pareto;
use super::{Context, size};
use crate::Result;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::workload::SplitMix;
use engine::{Durability, Options};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// A record's header, before key, head and value.
const RECORD_HEADER_BYTES: u64 = 48;

/// Writes between two looks at the schedule: what a shard takes in a turn.
const BATCH: u64 = 32;

/// Samples of the journal's length in a run of overwrites.
const SAMPLES: u64 = 200;

const STEADY: (&str, f64) = ("space/under pareto overwrite at half its maximum rate, most", 1.5);
/// The same at half the rate of a load, which is a burst of a few seconds into empty memtables and the page cache, and no rate that can be kept up.
const BURST: &str = "space/under pareto overwrite at half the rate of the load, most";
const TRAFFIC: (&str, f64) = ("space/compaction bytes per user byte meanwhile", 2.0);
const DEFAULT: (&str, f64) = ("space/once compaction rests", 1.3);
const COMMAND: (&str, f64) = ("space/by command", 1.1);

fn spec((row, bar): (&str, f64)) -> Spec {
    Spec::new(row, "ratio", Some(Bar::AtMost(bar)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let [steady, traffic, rest @ ..] = [STEADY, TRAFFIC, DEFAULT, COMMAND].map(spec);
    [steady, traffic, burst()].into_iter().chain(rest).collect()
}

fn burst() -> Spec {
    Spec::new(BURST, "ratio", None)
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let (dir, count) = (context.folder("space")?, context.plan.overwritten);
    let shape = Shape::of_value(1 << 10);
    let mut objects = Objects::new(shape);
    let used = count * (RECORD_HEADER_BYTES + shape.user_bytes()).next_multiple_of(8);
    let journal = dir.join("journal");
    let ratio = |path: &Path| -> Result<f64> { Ok(folder_bytes(path)? as f64 / used as f64) };
    let mut bed = context.open(&dir, Options { durability: Durability::None, ..Options::default() })?;
    let (mut rng, begin) = (SplitMix::new(6), Instant::now());
    for number in 0..count {
        bed.put(&mut objects, number, 0)?;
    }
    let load_rate = count as f64 / begin.elapsed().as_secs_f64();
    bed.settle()?;

    let mut overwrite = |bed: &mut Bed, rate: f64| -> Result<f64> {
        let (mut most, begin) = (0f64, Instant::now());
        for done in 0..count {
            bed.put(&mut objects, pareto(&mut rng, count), 1)?;
            if done % BATCH == 0 {
                wait_until(bed, begin + Duration::from_secs_f64(done as f64 / rate))?;
            }
            if done % (count / SAMPLES).max(1) == 0 {
                most = most.max(ratio(&journal)?);
            }
        }
        Ok(most)
    };
    let begin = Instant::now();
    let at_full_speed = overwrite(&mut bed, f64::INFINITY)?;
    let half_rate = count as f64 / begin.elapsed().as_secs_f64() / 2.0;
    bed.settle()?;
    let burst_most = overwrite(&mut bed, load_rate / 2.0)?;
    let noise = format!("{count} overwrites at {:.0}/s", load_rate / 2.0);
    report.push(burst().valued(burst_most, &*noise).also("at_full_speed", Some(at_full_speed)))?;
    bed.settle()?;

    let before = bed.stats().counters;
    let most = overwrite(&mut bed, half_rate)?;
    let after = bed.stats();
    let noise = format!("{count} overwrites at {half_rate:.0}/s");
    report.push(spec(STEADY).valued(most, &*noise).also("at_the_end", Some(ratio(&journal)?)))?;
    let counters = after.counters;
    let moved = counters.compaction_bytes_read + counters.compaction_bytes_written
        - before.compaction_bytes_read
        - before.compaction_bytes_written;
    let user = counters.user_bytes - before.user_bytes;
    let row = spec(TRAFFIC).valued(moved as f64 / user as f64, &*noise);
    report.push(row.also("compactions", Some((counters.compactions - before.compactions) as f64)))?;
    report.remark(format!("space: {}", size::levels(&after)));

    bed.settle()?;
    let known = bed.stats().amplification().of_space();
    report.push(
        spec(DEFAULT).valued(ratio(&journal)?, "the journal's files").also("as_counted", Some(known)),
    )?;
    bed.store.compact();
    bed.settle()?;
    let row = spec(COMMAND).valued(ratio(&journal)?, "the journal's files");
    report.push(row.also("all_files", Some(ratio(&dir)?)))?;
    bed.close()
}

/// Turns until a moment has come.
pub fn wait_until(bed: &mut Bed, due: Instant) -> Result<()> {
    while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        bed.turn()?;
        thread::sleep(left.min(Duration::from_millis(1)));
    }
    Ok(())
}
