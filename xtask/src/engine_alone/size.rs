//! What writing, reading, folding and starting cost at so many objects of one size.

use super::bare;
use super::bed::{Bed, Cpu};
use super::objects::{Objects, Shape};
use super::{Context, Plan, told};
use crate::calibrate::{Yardstick, Yardsticks};
use crate::report::Report;
use crate::rows::{Bar, Row, Spec};
use crate::stats::median;
use crate::workload::SplitMix;
use crate::{Result, machine, proc, sys};
use engine::fold::{ScanRequest, Visit};
use engine::manifest::{MANIFEST_COPY_FILE, MANIFEST_FILE};
use engine::store::StoreStats;
use engine::{Durability, Embedded, Machine, Options, Reader, Want};
use os::{OsClock, OsDisk, OsRng};
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// Memtables of the larger stores are at most this large, so that there are at least three levels.
const LARGE_MEMTABLE_BYTES: usize = 16 << 20;

/// Loads of which a put's row is the median, of stores up to a million objects. The first takes memory that the host of a virtual
/// machine may have to give it; those after it take what the store before gave back.
const LOADS: usize = 5;

/// So many levels the larger stores are to have at least.
const LARGE_LEVELS_MIN: usize = 3;

/// Bytes of values that a reading of a larger store keeps to: what a page cache of ordinary size holds.
const WARM_BYTES: u64 = 6 << 30;

/// Bytes on the disk for each of a user's, at most: records' headers, heads of segments, tables, and a merge's output.
const BYTES_ON_DISK: f64 = 1.2;

/// A key behind all keys.
const END: [u8; 32] = [0xFF; 32];

/// One store and what is asked of it.
pub struct Case {
    name: &'static str,
    value_kb: usize,
    objects: fn(&Plan) -> u64,
    put_us: f64,
    get_us: f64,
    ledger: Option<LedgerBars>,
}

/// The bars of rows that do not depend on the size of values.
#[derive(Clone, Copy)]
struct LedgerBars {
    head_us: f64,
    miss_us: f64,
    bytes_written: f64,
    memory_mib: Option<f64>,
}

/// A million of 1 KB.
pub const KB1: Case = Case {
    name: "1M",
    value_kb: 1,
    objects: |plan| plan.objects,
    put_us: 5.0,
    get_us: 4.0,
    ledger: Some(LedgerBars { head_us: 1.5, miss_us: 0.3, bytes_written: 1.15, memory_mib: Some(128.0) }),
};

/// A million of 8 KB.
pub const KB8: Case = Case {
    name: "1M",
    value_kb: 8,
    objects: |plan| plan.objects_8k,
    put_us: 10.0,
    get_us: 6.0,
    ledger: None,
};

/// 20 million of 1 KB.
pub const LARGE: Case = Case {
    name: "20M",
    value_kb: 1,
    objects: |plan| plan.large,
    put_us: 7.0,
    get_us: 5.0,
    ledger: Some(LedgerBars { head_us: 2.5, miss_us: 0.6, bytes_written: 1.35, memory_mib: None }),
};

/// 20 million of 8 KB.
pub const LARGE_KB8: Case =
    Case { name: "20M", value_kb: 8, objects: |plan| plan.large, put_us: 12.0, get_us: 7.0, ledger: None };

impl Case {
    /// Small enough for several loads, and for a plain file of as many bytes between two of them.
    fn is_loaded_anew(&self) -> bool {
        self.name == "1M"
    }
}

/// The rows of a case, by what they measure.
struct Rows<'a>(&'a Case);

impl Rows<'_> {
    fn row(&self, what: &str, unit: &'static str, bar: Option<Bar>) -> Spec {
        Spec::new(format!("{}/{what}", self.0.name), unit, bar)
    }

    fn put(&self) -> Spec {
        self.row(&format!("put {} KB", self.0.value_kb), "us", Some(Bar::AtMost(self.0.put_us)))
    }

    fn get(&self) -> Spec {
        self.row(&format!("get {} KB", self.0.value_kb), "us", Some(Bar::AtMost(self.0.get_us)))
    }

    fn bare_write(&self) -> Spec {
        self.row(&format!("a plain file's write of {} KB", self.0.value_kb), "us", None)
    }

    fn bare_read(&self) -> Spec {
        self.row(&format!("a plain file's read of {} KB", self.0.value_kb), "us", None)
    }

    fn bytes_written(&self) -> Spec {
        let bar = self.0.ledger.map(|bars| Bar::AtMost(bars.bytes_written));
        self.row(&format!("bytes written per user byte, load of {} KB", self.0.value_kb), "ratio", bar)
    }

    fn head(&self, bars: LedgerBars) -> Spec {
        self.row("head", "us", Some(Bar::AtMost(bars.head_us)))
    }

    fn miss(&self, bars: LedgerBars) -> Spec {
        self.row("miss", "us", Some(Bar::AtMost(bars.miss_us)))
    }

    fn fold(&self) -> Spec {
        self.row("fold over all heads", "M/s per core", Some(Bar::AtLeast(5.0)))
    }

    fn start(&self) -> Spec {
        self.row("clean start, page cache cold", "s", Some(Bar::AtMost(0.5)))
    }

    fn rebuild(&self) -> Spec {
        self.row("ledger rebuild, per object", "us", Some(Bar::AtMost(2.0)))
    }

    fn memory(&self, mib: f64) -> Spec {
        self.row("memory", "MiB", Some(Bar::AtMost(mib)))
    }

    fn threads(&self) -> Spec {
        self.row("get by two threads over one", "ratio", Some(Bar::AtLeast(1.8)))
    }
}

/// The rows of a case.
pub fn specs(case: &Case) -> Vec<Spec> {
    let rows = Rows(case);
    let mut specs = vec![rows.put(), rows.get(), rows.bytes_written()];
    if case.is_loaded_anew() {
        specs.extend([rows.bare_write(), rows.bare_read()]);
    }
    if let Some(bars) = case.ledger {
        specs.extend([rows.head(bars), rows.miss(bars), rows.fold(), rows.start(), rows.rebuild()]);
        specs.push(rows.threads());
        specs.extend(bars.memory_mib.map(|mib| rows.memory(mib)));
    }
    if case.name == "1M" && case.value_kb == 1 {
        specs.extend(Yardstick::specs());
    }
    specs
}

/// Fills them.
pub fn run(case: &Case, context: &Context, report: &mut Report) -> Result<()> {
    let rows = Rows(case);
    let dir = context.folder("store")?;
    let mut objects = Objects::new(Shape::of_value(case.value_kb << 10));
    let name = format!("{}, {} KB", case.name, case.value_kb);
    let bytes = objects.shape.user_bytes() as f64 * BYTES_ON_DISK;
    let count = context.affordable(&name, (case.objects)(&context.plan), bytes, report)?;
    let options = options(case);
    let mut bed = load(&rows, context, &dir, &options, &mut objects, count, report)?;
    read(&rows, case, context, &mut bed, &mut objects, count, report)?;
    bed.close()?;
    if case.ledger.is_some() {
        start(&rows, context, &dir, &options, report)?;
        threads(&rows, &context.plan, &dir, &options, objects.shape, count, report)?;
        rebuild(&rows, context, &dir, &options, count, report)?;
    }
    Ok(())
}

/// By default for a million objects, whose memory has a bar; else those of the machine.
fn options(case: &Case) -> Options {
    let options = if case.name == "20M" { of_machine() } else { Options::default() };
    Options { durability: Durability::None, ..options }
}

/// As `serve` derives them from the machine, but for memtables.
pub fn of_machine() -> Options {
    let options = machine::resources().options();
    let memtable_bytes_max = options.memtable_bytes_max.min(LARGE_MEMTABLE_BYTES);
    Options { durability: Durability::None, memtable_bytes_max, ..options }
}

/// Loads a store, some times anew; the last one stays. Between loads the machine alone writes and reads as much.
fn load(
    rows: &Rows<'_>,
    context: &Context,
    dir: &Path,
    options: &Options,
    objects: &mut Objects,
    count: u64,
    report: &mut Report,
) -> Result<Bed> {
    let generator = generator_us(objects, count.min(200_000))?;
    let (mut us, mut per_s) = (Vec::new(), Vec::new());
    let (mut bare_write, mut bare_read) = (Vec::new(), Vec::new());
    let loads = if rows.0.is_loaded_anew() { LOADS } else { 1 };
    let bed = loop {
        let mut bed = context.open(dir, options.clone())?;
        sys::forget_peak_memory()?;
        let (cpu, begin) = (Cpu::start()?, Instant::now());
        for number in 0..count {
            bed.put(objects, number, 0)?;
        }
        bed.rest()?;
        us.push(cpu.us_per(count)?);
        per_s.push(count as f64 / begin.elapsed().as_secs_f64());
        if us.len() == loads {
            break bed;
        }
        bed.close()?;
        fs::remove_dir_all(dir)?;
        let bare = bare::measure(&context.home, count, objects.shape.value, context.plan.reads)?;
        bare_write.push(bare.write_us);
        bare_read.push(bare.read_us);
    };
    let stats = bed.stats();
    let row = rows.put().measured(&us);
    let row = row
        .also("generator_us", Some(generator))
        .also("ops_per_s", median(&per_s))
        .also("refused", Some(bed.refused as f64))
        .also("paced_s", Some(bed.paced.as_secs_f64()));
    report.push(row)?;
    if rows.0.is_loaded_anew() {
        report.push(rows.bare_write().measured(&bare_write))?;
        report.push(rows.bare_read().measured(&bare_read))?;
    }
    let user = (count * objects.shape.user_bytes()) as f64;
    let tables = stats.counters.flush_bytes + stats.counters.merge_bytes_written;
    let row = rows.bytes_written().valued(bed.disk().write_bytes as f64 / user, "counted");
    report.push(row.also("tables", Some(tables as f64 / user)))?;
    report.remark(format!("{}, {} KB: {}", rows.0.name, rows.0.value_kb, levels(&stats)));
    let populated = stats.levels.iter().filter(|level| level.tables > 0).count();
    if rows.0.name == "20M" && populated < LARGE_LEVELS_MIN {
        report.remark(format!(
            "20M: only {populated} levels hold tables, and {LARGE_LEVELS_MIN} were asked for"
        ));
    }
    Ok(bed)
}

/// CPU of making an object.
fn generator_us(objects: &mut Objects, count: u64) -> Result<f64> {
    let cpu = Cpu::start()?;
    for number in 0..count {
        black_box(objects.object(number, 0));
    }
    cpu.us_per(count)
}

/// What is in the levels, and what merging took.
pub fn levels(stats: &StoreStats) -> String {
    let held: Vec<String> = stats
        .levels
        .iter()
        .enumerate()
        .filter(|(_, level)| level.tables > 0)
        .map(|(at, level)| format!("level {at}: {} entries in {} tables", level.entries, level.tables))
        .collect();
    let counters = stats.counters;
    format!(
        "{}; {} flushes wrote {} MiB, {} merges {} MiB ({} KiB each); filters and indexes {} KiB",
        held.join(", "),
        counters.flushes,
        counters.flush_bytes >> 20,
        counters.merges,
        counters.merge_bytes_written >> 20,
        (counters.merge_bytes_written / counters.merges.max(1)) >> 10,
        stats.table_memory_bytes >> 10
    )
}

/// What one kind of read costs.
struct Reads {
    us: Vec<f64>,
    hit_rate: f64,
}

fn read(
    rows: &Rows<'_>,
    case: &Case,
    context: &Context,
    bed: &mut Bed,
    objects: &mut Objects,
    count: u64,
    report: &mut Report,
) -> Result<()> {
    let plan = &context.plan;
    let warm = count.min(WARM_BYTES / objects.shape.user_bytes());
    let range = (count - warm, warm);
    let row = |spec: Spec, reads: Reads| -> Row {
        spec.measured(&reads.us).also("cache_hit_rate", Some(reads.hit_rate))
    };
    let gets = reads(plan, bed, objects, range, Want::Value, true)?;
    report.push(row(rows.get(), gets))?;
    let Some(bars) = case.ledger else { return Ok(()) };
    let heads = reads(plan, bed, objects, (0, count), Want::Head, true)?;
    report.push(row(rows.head(bars), heads))?;
    let misses = reads(plan, bed, objects, (1 << 40, count), Want::Head, false)?;
    report.push(row(rows.miss(bars), misses))?;
    let asked = bed.stats().counters;
    report.remark(format!(
        "{}: lookups found {} keys in memtables, {:?} in levels, {} nowhere; filters refused {}, were wrong {} times",
        case.name,
        asked.found_in_memtable,
        asked.found_in_level,
        asked.missing,
        asked.filtered,
        asked.false_positives
    ));
    let folds = (0..plan.rounds).map(|_| fold(bed, count)).collect::<Result<Vec<f64>>>()?;
    report.push(rows.fold().measured(&folds))?;
    if let Some(mib) = bars.memory_mib {
        // Before the yardsticks, which take memory of their own.
        let memory = proc::memory(std::process::id())?;
        let mib_of = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let row = rows.memory(mib).valued(mib_of(memory.peak), "the peak of the process, generator included");
        report.push(row.also("resident_mib", Some(mib_of(memory.resident))))?;
    }
    if case.name == "1M" {
        let mut yardsticks = Yardsticks::new(&context.home)?;
        let rounds =
            (0..plan.rounds).map(|_| yardsticks.round(plan.yardstick)).collect::<Result<Vec<_>>>()?;
        Yardstick::rows(&rounds).into_iter().try_for_each(|row| report.push(row))?;
    }
    Ok(())
}

/// Rounds of reads of `range`'s objects (first and count), after one that warms up. Each must be there, or not.
fn reads(
    plan: &Plan,
    bed: &mut Bed,
    objects: &mut Objects,
    range: (u64, u64),
    want: Want,
    there: bool,
) -> Result<Reads> {
    let mut us = Vec::new();
    let mut before = bed.stats().cache;
    for round in 0..=plan.rounds {
        let mut rng = SplitMix::new(round as u64);
        let cpu = Cpu::start()?;
        for _ in 0..plan.reads {
            let number = range.0 + rng.below(range.1);
            let found = bed.lookup(objects.key(number), want)?;
            let right = match &found {
                Some(found) if want == Want::Value => {
                    found.value.as_ref().is_some_and(|value| objects.is_value(number, value))
                }
                Some(found) => found.head.len() == objects.shape.head,
                None => false,
            };
            if right != there || found.is_some() != there {
                return Err(format!("a wrong answer for object {number}").into());
            }
        }
        if round > 0 {
            us.push(cpu.us_per(plan.reads)?);
        } else {
            before = bed.stats().cache;
        }
    }
    let after = bed.stats().cache;
    let (hits, misses) = (after.0 - before.0, after.1 - before.1);
    Ok(Reads { us, hit_rate: hits as f64 / (hits + misses).max(1) as f64 })
}

/// A fold over every head, which counts them.
pub fn all_heads(seen: &Arc<AtomicU64>) -> ScanRequest {
    let counter = Arc::clone(seen);
    ScanRequest {
        start: bytes::Bytes::new(),
        end: bytes::Bytes::from_static(&END),
        items_max: usize::MAX,
        visitor: Box::new(move |_, head| {
            black_box(head);
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            Visit::Skip
        }),
        past_losses: false,
    }
}

/// A fold over every head; millions for each second of CPU.
pub fn fold(bed: &mut Bed, count: u64) -> Result<f64> {
    let seen = Arc::new(AtomicU64::new(0));
    let cpu = Cpu::start()?;
    bed.scan(all_heads(&seen))?;
    let us = cpu.us_per(count)?;
    match seen.load(Ordering::Relaxed) {
        saw if saw == count => Ok(1.0 / us),
        saw => Err(format!("a fold saw {saw} heads of {count}").into()),
    }
}

/// From the call of open to the store's being there, its files not in memory.
fn start(
    rows: &Rows<'_>,
    context: &Context,
    dir: &Path,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let mut seconds = Vec::new();
    for _ in 0..context.plan.rounds {
        forget_files(dir)?;
        let bed = context.open(dir, options.clone())?;
        seconds.push(bed.opening.as_secs_f64());
        bed.close()?;
    }
    report.push(rows.start().measured(&seconds))
}

/// GETs on one thread, then on two at once, each with a reader of its own; rates by the clock on the wall.
fn threads(
    rows: &Rows<'_>,
    plan: &Plan,
    dir: &Path,
    options: &Options,
    shape: Shape,
    count: u64,
    report: &mut Report,
) -> Result<()> {
    let disks = OsDisk::blocking().blocking_handles();
    let machine = Machine::new(disks, OsClock::new(), OsRng::new());
    let mut store = Embedded::open(dir, options.clone(), machine).map_err(told)?;
    let warm = count.min(WARM_BYTES / shape.user_bytes());
    let mut ratios = Vec::new();
    for round in 0..=plan.rounds {
        let rates = [1, 2].map(|threads| -> Result<f64> {
            let begin = Instant::now();
            let works = (0..threads).map(|thread| {
                let (mut reader, seed) = (store.reader(), (2 * round + thread) as u64);
                let reads = plan.reads;
                thread::spawn(move || read_all_of(&mut reader, shape, (count - warm, warm), reads, seed))
            });
            let works: Vec<_> = works.collect();
            works.into_iter().try_for_each(|work| work.join().map_err(|_| "a reader has panicked")?)?;
            Ok(threads as f64 * plan.reads as f64 / begin.elapsed().as_secs_f64())
        });
        let [one, two] = rates;
        if round > 0 {
            ratios.push(two? / one?);
        }
    }
    store.close().map_err(told)?;
    report.push(rows.threads().measured(&ratios))
}

fn read_all_of(reader: &mut Reader, shape: Shape, range: (u64, u64), reads: u64, seed: u64) -> Result<()> {
    let (mut objects, mut rng) = (Objects::new(shape), SplitMix::new(seed));
    for _ in 0..reads {
        let number = range.0 + rng.below(range.1);
        let found = reader.get(objects.key(number)).map_err(told)?;
        if !found.and_then(|found| found.value).is_some_and(|value| objects.is_value(number, &value)) {
            return Err(format!("a reader had a wrong answer for object {number}").into());
        }
    }
    Ok(())
}

/// Opens the store after its tables and its manifest are gone, and the manifest's copy.
fn rebuild(
    rows: &Rows<'_>,
    context: &Context,
    dir: &Path,
    options: &Options,
    count: u64,
    report: &mut Report,
) -> Result<()> {
    fs::remove_dir_all(dir.join("tables"))?;
    for manifest in [MANIFEST_FILE, MANIFEST_COPY_FILE] {
        fs::remove_file(dir.join(manifest))?;
    }
    let (cpu, begin) = (Cpu::start()?, Instant::now());
    let options = Options { rebuild_lost_ledger: true, ..options.clone() };
    let bed = match context.open(dir, options) {
        Ok(bed) => bed,
        Err(failure) => return report.push(rows.rebuild().failed(failure)),
    };
    let wall_us = begin.elapsed().as_secs_f64() * 1e6 / count as f64;
    let row = rows.rebuild().valued(cpu.us_per(count)?, "CPU of all threads; page cache warm");
    bed.close()?;
    report.push(row.also("wall_us", Some(wall_us)))
}

/// Drops a folder's files from the page cache.
fn forget_files(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            forget_files(&entry.path())?;
        } else {
            sys::forget_file(&fs::File::open(entry.path())?)?;
        }
    }
    Ok(())
}
