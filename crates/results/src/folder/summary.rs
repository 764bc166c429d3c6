//! The figures of a whole run, from its seconds and histograms.
//!
//! Only measured seconds count. Percentiles come from merged histograms; throughput is told by its intervals (median
//! and deviation, as stalls hide in a mean) and against accumulated operations (as stores slow down with what they
//! hold, not with time).

use super::{Kind, Latencies, Manifest, Mark, Phase, Second};
use histogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Points of throughput against accumulated operations, at most: a chart's width.
const ACCUMULATED_MAX: usize = 500;

/// `summary.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The version of the folder's layout.
    pub format: u32,
    /// Whether the run may be believed and the store was right.
    pub verdict: Verdict,
    /// The first measured second.
    pub measured_from: u64,
    /// How many seconds were measured.
    pub measured_seconds: u64,
    /// From which second on the throughput was steady (the rule MSER-5, as from the first measured second); none if it
    /// never was.
    pub steady_from: Option<u64>,
    /// All operations together.
    pub total: OperationSummary,
    /// By label.
    pub operations: BTreeMap<String, OperationSummary>,
    /// What was read, compared with what was written.
    pub check: CheckSummary,
    /// What the generator itself did.
    pub generator: GeneratorSummary,
    /// The servers, in the manifest's order; none for those on other machines.
    pub servers: Vec<Option<ServerSummary>>,
    /// CPU time of all servers together for each operation that was done, in microseconds; none if some are on other
    /// machines.
    pub server_cpu_us_per_op: Option<f64>,
    /// In how many measured seconds there was which doubt.
    pub marks: BTreeMap<Mark, u64>,
}

/// Whether the store was right.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// No read was wrong, and something was done.
    pub passed: bool,
    /// Why not.
    pub failures: Vec<String>,
    /// What a reader should know before believing a figure.
    pub doubts: Vec<String>,
}

/// The figures of one label, or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationSummary {
    /// Done, reads that found nothing and writes whose condition did not hold included.
    pub done: u64,
    /// Reads that found nothing.
    pub not_found: u64,
    /// Writes whose condition did not hold. Missing in results of earlier versions.
    #[serde(default)]
    pub condition_failed: u64,
    /// Given up.
    pub failed: u64,
    /// Failed attempts by kind.
    pub errors: BTreeMap<String, u64>,
    /// Attempts beyond the first.
    pub retries: u64,
    /// Bytes of keys and values in writes that were done.
    pub bytes_written: u64,
    /// Bytes of values that came back.
    pub bytes_read: u64,
    /// Objects, keys or terms that queries and listings brought.
    pub results: u64,
    /// Operations done in a second.
    pub throughput: Throughput,
    /// From the time at which operations were due.
    pub response: LatencySummary,
    /// From the time at which they were sent.
    pub service: LatencySummary,
    /// Of operations that failed, from the time at which they were due.
    pub failed_response: LatencySummary,
}

/// Operations done in a second, by the seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub median: f64,
    /// The standard deviation.
    pub deviation: f64,
    /// The least of a second.
    pub min: f64,
    /// The most of a second.
    pub max: f64,
    /// Throughput against accumulated operations.
    pub accumulated: Vec<Accumulated>,
}

/// A point of throughput against accumulated operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Accumulated {
    /// Operations done since the start, warm-up included.
    pub operations: u64,
    /// Operations a second at that point.
    pub throughput: f64,
}

/// How long operations took, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are what statistics calls them")]
pub struct LatencySummary {
    pub count: u64,
    pub min_us: f64,
    pub mean_us: f64,
    pub rms_us: f64,
    pub median_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub p99_99_us: f64,
    pub max_us: f64,
    /// The share above 1 ms, 0 to 1.
    pub above_1ms: f64,
    /// The share above 2 ms.
    pub above_2ms: f64,
    /// The share above 4 ms.
    pub above_4ms: f64,
}

/// What was read, compared with what was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckSummary {
    /// Reads whose content was verified: key, sequence and checksum inside.
    pub verified: u64,
    /// Of these, reads that were also compared with what had been written before.
    pub compared: u64,
    /// Reads that could not be compared: the table of keys was full, or the value of another generator or an earlier
    /// run.
    pub not_compared: u64,
    /// One key of so many is compared.
    pub sample: u64,
    /// Writes that were acknowledged and are gone.
    pub lost: u64,
    /// Reads that were answered with an older version, though a newer one is there.
    pub stale: u64,
    /// Reads that were answered with a version from before a delete.
    pub resurrected: u64,
    /// Values that are not what anybody wrote under this key.
    pub corrupt: u64,
    /// Rows of index queries that were judged.
    #[serde(default)]
    pub rows: u64,
    /// Rows that a query was not asked for, that came twice or out of order, or of a term that the object never had.
    #[serde(default)]
    pub wrong_rows: u64,
    /// Queries that did not find what had been there before the run.
    #[serde(default)]
    pub incomplete: u64,
    /// Of the stale ones, those that were overwritten before a second look could tell whether a write was lost.
    pub unresolved: u64,
    /// Writes of which nobody knows whether they were done: they may show or not.
    pub in_doubt: u64,
    /// Written keys that were read once more at the end.
    pub audited: u64,
    /// Kinds of wrong results that the workload tolerates.
    pub tolerated: Vec<String>,
}

/// What the generator itself did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorSummary {
    /// Its CPU time for each operation in microseconds.
    pub cpu_us_per_op: f64,
    /// The largest share of a core that one of its threads used in a second, 0 to 1.
    pub busiest: f64,
    /// The longest time in microseconds by which an operation went out late though a connection was free.
    pub late_us: u64,
    /// Of an open loop: operations done, as a share of those asked for.
    pub achieved: Option<f64>,
    /// Mean outstanding operations over throughput times mean latency: 1 where nothing is forgotten.
    pub littles_law: f64,
}

/// What a server's process used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerSummary {
    /// CPU time in seconds.
    pub cpu_s: f64,
    /// The most bytes resident.
    pub rss_max_bytes: u64,
    /// Bytes that it had the disk write.
    pub write_bytes: u64,
    /// Bytes that it had the disk read.
    pub read_bytes: u64,
    /// Bytes of its data folder at the end.
    pub disk_bytes: Option<u64>,
    /// Bytes that all servers together wrote, for each byte of keys and values that clients wrote; the same for each.
    pub write_amplification: Option<f64>,
}

impl Summary {
    /// The figures of these seconds and histograms. `check` is what the checker counted.
    pub fn of(
        manifest: &Manifest,
        seconds: &[Second],
        latencies: &[Latencies],
        check: CheckSummary,
    ) -> Summary {
        let measured: Vec<&Second> =
            seconds.iter().filter(|second| second.phase == Phase::Measured).collect();
        let from = measured.first().map_or(0, |second| second.second);
        let in_measured = |second: u64| measured.binary_search_by_key(&second, |it| it.second).is_ok();
        let merged = |label: Option<usize>, kind: Kind| {
            let mut sum = Histogram::default();
            let wanted = |it: &&Latencies| {
                it.kind == kind && label.is_none_or(|label| it.label == label) && in_measured(it.second)
            };
            latencies.iter().filter(wanted).for_each(|it| sum.merge(&it.histogram));
            sum
        };
        let summary_of = |name: Option<&String>| {
            let at = name.and_then(|name| manifest.labels.iter().position(|it| it == name));
            let mut sum = OperationSummary::default();
            measured.iter().for_each(|second| sum.add(second, name));
            sum.throughput = Throughput::of(seconds, name);
            if name.is_none() || at.is_some() {
                sum.response = LatencySummary::of(&merged(at, Kind::Response));
                sum.service = LatencySummary::of(&merged(at, Kind::Service));
                sum.failed_response = LatencySummary::of(&merged(at, Kind::Failed));
            }
            sum
        };
        let total = summary_of(None);
        let operations = manifest
            .labels
            .iter()
            .map(|name| (name.clone(), summary_of(Some(name))))
            .collect::<BTreeMap<_, _>>();
        let rates: Vec<f64> = measured.iter().map(|second| second.done(None) as f64).collect();
        let mut marks = BTreeMap::new();
        measured
            .iter()
            .flat_map(|second| &second.marks)
            .for_each(|&mark| *marks.entry(mark).or_insert(0) += 1);
        let service_sum = merged(None, Kind::Service).sum() + merged(None, Kind::Failed).sum();
        let generator = GeneratorSummary::of(manifest, &measured, &total, service_sum);
        let (servers, server_cpu_us_per_op) = server_summaries(manifest, seconds, &measured, &total);
        let mut summary = Summary {
            format: super::FORMAT,
            verdict: Verdict::default(),
            measured_from: from,
            measured_seconds: measured.len() as u64,
            steady_from: steady_from(&rates).map(|at| from + at as u64),
            total,
            operations,
            check,
            generator,
            servers,
            server_cpu_us_per_op,
            marks,
        };
        summary.verdict = Verdict::of(&summary);
        summary
    }
}

impl Second {
    /// Operations done, of one label or of all.
    pub fn done(&self, label: Option<&str>) -> u64 {
        let wanted = |name: &str| label.is_none_or(|label| label == name);
        self.operations.iter().filter(|(name, _)| wanted(name)).map(|(_, it)| it.done).sum()
    }
}

impl OperationSummary {
    fn add(&mut self, second: &Second, label: Option<&String>) {
        for (_, it) in second.operations.iter().filter(|(name, _)| label.is_none_or(|label| label == *name)) {
            self.done += it.done;
            self.not_found += it.not_found;
            self.condition_failed += it.condition_failed;
            self.failed += it.failed;
            self.retries += it.retries;
            self.bytes_written += it.bytes_written;
            self.bytes_read += it.bytes_read;
            self.results += it.results;
            it.errors.iter().for_each(|(kind, count)| *self.errors.entry(kind.clone()).or_insert(0) += count);
        }
    }
}

impl Throughput {
    fn of(seconds: &[Second], label: Option<&String>) -> Throughput {
        let label = label.map(String::as_str);
        let is_measured = |second: &&Second| second.phase == Phase::Measured;
        let mut rates: Vec<f64> =
            seconds.iter().filter(is_measured).map(|second| second.done(label) as f64).collect();
        let (mean, deviation) = mean_and_deviation(&rates);
        rates.sort_by(f64::total_cmp);
        let middle = rates.len() / 2;
        let median = match rates.len() {
            0 => 0.0,
            len if len % 2 == 1 => rates[middle],
            _ => f64::midpoint(rates[middle - 1], rates[middle]),
        };
        let (min, max) = (rates.first().copied().unwrap_or(0.0), rates.last().copied().unwrap_or(0.0));
        Throughput { mean, median, deviation, min, max, accumulated: accumulated(seconds, label) }
    }
}

fn accumulated(seconds: &[Second], label: Option<&str>) -> Vec<Accumulated> {
    let going: Vec<&Second> = seconds.iter().filter(|second| second.phase != Phase::Trailing).collect();
    let width = going.len().div_ceil(ACCUMULATED_MAX).max(1);
    let mut operations = 0;
    let points = going.chunks(width).map(|chunk| {
        let done: u64 = chunk.iter().map(|second| second.done(label)).sum();
        operations += done;
        Accumulated { operations, throughput: done as f64 / chunk.len() as f64 }
    });
    points.collect()
}

/// Mean and standard deviation; zeros of nothing.
fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / count).sqrt())
}

/// Where a series becomes steady by MSER-5 (White, 1997): of all truncations in whole batches of five, the one that
/// makes the standard error of what is left smallest. One in the second half says that the series never was steady.
pub fn steady_from(rates: &[f64]) -> Option<usize> {
    const BATCH: usize = 5;
    /// Fewer batches say nothing.
    const BATCHES_MIN: usize = 4;
    let means: Vec<f64> =
        rates.chunks_exact(BATCH).map(|batch| batch.iter().sum::<f64>() / BATCH as f64).collect();
    if means.len() < BATCHES_MIN {
        return None;
    }
    let error_from = |from: usize| {
        let rest = &means[from..];
        let (_, deviation) = mean_and_deviation(rest);
        deviation.powi(2) / rest.len() as f64
    };
    // The last batches have a small error whatever came before, so no truncation leaves fewer than two.
    let best = (0..means.len() - 1).min_by(|&a, &b| error_from(a).total_cmp(&error_from(b)))?;
    (best <= means.len() / 2).then_some(best * BATCH)
}

impl LatencySummary {
    /// The figures of a histogram.
    pub fn of(histogram: &Histogram) -> LatencySummary {
        let us = |ns: u64| ns as f64 / 1e3;
        let percentile = |percent: f64| us(histogram.percentile(percent));
        LatencySummary {
            count: histogram.count(),
            min_us: us(histogram.min()),
            mean_us: histogram.mean() / 1e3,
            rms_us: histogram.rms() / 1e3,
            median_us: percentile(50.0),
            p95_us: percentile(95.0),
            p99_us: percentile(99.0),
            p99_9_us: percentile(99.9),
            p99_99_us: percentile(99.99),
            max_us: us(histogram.max()),
            above_1ms: histogram.share_above(1_000_000),
            above_2ms: histogram.share_above(2_000_000),
            above_4ms: histogram.share_above(4_000_000),
        }
    }
}

impl GeneratorSummary {
    fn of(
        manifest: &Manifest,
        measured: &[&Second],
        total: &OperationSummary,
        service_sum: u128,
    ) -> GeneratorSummary {
        let ended = total.done + total.failed;
        let sum = |field: fn(&Second) -> f64| measured.iter().map(|second| field(second)).sum::<f64>();
        let most =
            |field: fn(&Second) -> f64| measured.iter().map(|second| field(second)).fold(0.0, f64::max);
        let outstanding = sum(|second| second.generator.outstanding);
        let due: u64 = measured.iter().map(|second| second.generator.due).sum();
        GeneratorSummary {
            cpu_us_per_op: ratio(sum(|second| second.generator.cpu_us as f64), ended as f64).unwrap_or(0.0),
            busiest: most(|second| second.generator.busiest),
            late_us: measured.iter().map(|second| second.generator.late_us).max().unwrap_or(0),
            achieved: if manifest.rate.is_some() { ratio(total.done as f64, due as f64) } else { None },
            littles_law: ratio(outstanding, service_sum as f64 / 1e9).unwrap_or(1.0),
        }
    }
}

fn server_summaries(
    manifest: &Manifest,
    seconds: &[Second],
    measured: &[&Second],
    total: &OperationSummary,
) -> (Vec<Option<ServerSummary>>, Option<f64>) {
    let of = |at: usize| {
        let mut sum = ServerSummary::default();
        let mut seen = false;
        let own = |second: &&Second| second.servers.iter().find(|it| it.server as usize == at).cloned();
        for it in measured.iter().filter_map(own) {
            seen = true;
            sum.cpu_s += it.cpu_us as f64 / 1e6;
            sum.rss_max_bytes = sum.rss_max_bytes.max(it.rss_bytes);
            sum.write_bytes += it.write_bytes;
            sum.read_bytes += it.read_bytes;
        }
        let last = seconds.iter().rev().find_map(|second| own(&second));
        sum.disk_bytes = last.and_then(|it| it.disk_bytes);
        seen.then_some(sum)
    };
    let mut servers: Vec<Option<ServerSummary>> = (0..manifest.servers.len()).map(of).collect();
    let all_seen = !servers.is_empty() && servers.iter().all(Option::is_some);
    if !all_seen {
        return (servers, None);
    }
    let written: u64 = servers.iter().flatten().map(|it| it.write_bytes).sum();
    let cpu_s: f64 = servers.iter().flatten().map(|it| it.cpu_s).sum();
    let amplification = ratio(written as f64, total.bytes_written as f64);
    servers.iter_mut().flatten().for_each(|it| it.write_amplification = amplification);
    (servers, ratio(cpu_s * 1e6, total.done as f64))
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// Outstanding operations may differ from throughput times latency by so much: operations at the edges of seconds.
const LITTLES_LAW_TOLERANCE: f64 = 0.05;

/// An open loop that achieves less has not been what was asked for.
const ACHIEVED_MIN: f64 = 0.99;

impl Verdict {
    fn of(summary: &Summary) -> Verdict {
        let check = &summary.check;
        let mut failures = Vec::new();
        let kinds = [
            ("lost", check.lost, "acknowledged writes are gone"),
            ("stale", check.stale, "reads were answered with an older version"),
            ("resurrected", check.resurrected, "reads were answered with a version from before a delete"),
            ("corrupt", check.corrupt, "values were never written"),
            ("wrong-row", check.wrong_rows, "rows do not match their query"),
            ("incomplete", check.incomplete, "queries missed stored entries"),
        ];
        let mut doubts = Vec::new();
        for (kind, count, text) in kinds.into_iter().filter(|(_, count, _)| *count > 0) {
            let is_tolerated = check.tolerated.iter().any(|it| it == kind);
            let place = if is_tolerated { &mut doubts } else { &mut failures };
            place.push(format!("{kind}: {count} {text}"));
        }
        if summary.total.done == 0 {
            failures.push("no operation was done".to_owned());
        }
        for (mark, count) in &summary.marks {
            doubts.push(format!("{} in {count} of {} seconds", mark.describe(), summary.measured_seconds));
        }
        if summary.generator.achieved.is_some_and(|achieved| achieved < ACHIEVED_MIN) {
            let achieved = summary.generator.achieved.unwrap_or(0.0) * 100.0;
            doubts.push(format!("only {achieved:.1} % of the operations that were due were done"));
        }
        if (summary.generator.littles_law - 1.0).abs() > LITTLES_LAW_TOLERANCE {
            let found = summary.generator.littles_law;
            doubts.push(format!("outstanding operations are {found:.2} times throughput times latency"));
        }
        Verdict { passed: failures.is_empty(), failures, doubts }
    }
}

impl Mark {
    /// What it means, in a few words.
    pub fn describe(self) -> &'static str {
        match self {
            Mark::Stolen => "CPU time was stolen by the host",
            Mark::Starved => "the generator waited for a core",
            Mark::GeneratorLimited => "the generator was the limit",
            Mark::ConnectionsExhausted => "operations waited for a free connection",
            Mark::LittlesLaw => "Little's law did not hold",
        }
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
