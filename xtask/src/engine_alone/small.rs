//! Tiny objects, many of them: keys of 8 bytes, no head, values of 16 bytes that the ledger keeps.

use super::Context;
use super::bed::Cpu;
use super::objects::{Objects, Shape};
use super::size::{levels, of_machine};
use crate::Result;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::workload::SplitMix;
use engine::Want;
use std::fs;
use std::path::Path;

const SHAPE: Shape = Shape { key: 8, head: 0, value: 16 };

/// What an object may cost on the disk beside key and value, before the factor.
const OVERHEAD_BYTES: u64 = 40;

const PUT: (&str, f64) = ("small/put", 3.0);
const GET: (&str, f64) = ("small/get", 3.5);
const SPACE: (&str, f64) = ("small/space over key, value and 40 B", 1.3);
const MEMORY: (&str, f64) = ("small/memory for each key", 10.0);

fn spec((row, bar): (&str, f64), unit: &'static str) -> Spec {
    Spec::new(row, unit, Some(Bar::AtMost(bar)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![spec(PUT, "us"), spec(GET, "us"), spec(SPACE, "ratio"), spec(MEMORY, "bits")]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let (dir, count) = (context.folder("small")?, context.plan.small);
    let mut objects = Objects::new(SHAPE);
    let mut bed = context.open(&dir, of_machine())?;
    let cpu = Cpu::start()?;
    for number in 0..count {
        bed.put(&mut objects, number, 0)?;
    }
    // Compaction, too: with their heads in tables, the journal's records of these objects are waste.
    bed.settle()?;
    report.push(spec(PUT, "us").valued(cpu.us_per(count)?, format!("{count} objects")))?;
    let mut us = Vec::new();
    for round in 0..=context.plan.rounds {
        let (cpu, mut rng) = (Cpu::start()?, SplitMix::new(round as u64));
        for _ in 0..context.plan.reads {
            let number = rng.below(count);
            let found = bed.lookup(objects.key(number), Want::Value)?;
            if !found.and_then(|found| found.value).is_some_and(|value| objects.is_value(number, &value)) {
                return Err(format!("a wrong answer for object {number}").into());
            }
        }
        if round > 0 {
            us.push(cpu.us_per(context.plan.reads)?);
        }
    }
    report.push(spec(GET, "us").measured(&us))?;
    let stats = bed.stats();
    bed.close()?;
    let allowed = count * (SHAPE.user_bytes() + OVERHEAD_BYTES);
    let space = folder_bytes(&dir)? as f64 / allowed as f64;
    report.push(spec(SPACE, "ratio").valued(space, "bytes of all files after a clean stop"))?;
    let bits = stats.table_memory_bytes as f64 * 8.0 / count as f64;
    report.push(spec(MEMORY, "bits").valued(bits, "filters and indexes of tables"))?;
    let counters = &stats.counters;
    report.remark(format!(
        "small: {}; journal {} MiB, {} compactions read {} MiB and wrote {} MiB",
        levels(&stats),
        stats.journal_bytes >> 20,
        counters.compactions,
        counters.compaction_bytes_read >> 20,
        counters.compaction_bytes_written >> 20
    ));
    Ok(())
}

/// The bytes of all files in a folder and those below it; one that goes meanwhile has none.
pub fn folder_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let inside = entry.file_type()?.is_dir();
        bytes +=
            if inside { folder_bytes(&entry.path())? } else { entry.metadata().map_or(0, |file| file.len()) };
    }
    Ok(bytes)
}
