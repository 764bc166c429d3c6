//! One folder of results out of those of several generators that ran at the same time.
//!
//! Histograms and counts add up without loss. Seconds are laid over each other by the clock, so a generator that began
//! later lies later. What was sampled of servers, disks and the machine is the first generator's that has it:
//! generators on one machine all saw the same.

use crate::Error;
use crate::{
    CheckSummary, GeneratorSecond, Kind, Latencies, Manifest, Phase, Results, Second, Summary, Writer,
};
use histogram::Histogram;
use std::collections::BTreeMap;
use std::path::Path;

/// Merges the folders into a new one.
pub fn merge(folders: &[&Path], out: &Path) -> Result<Summary, Error> {
    let all = folders.iter().map(|folder| Results::open(folder)).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = all.iter().min_by_key(|it| it.manifest.started_unix_ms) else {
        return Err(Error::Unusable("nothing to merge".to_owned()));
    };
    let begin = first.manifest.started_unix_ms;
    for (results, folder) in all.iter().zip(folders) {
        let (manifest, wanted) = (&results.manifest, &first.manifest);
        if manifest.workload != wanted.workload || manifest.labels != wanted.labels {
            let text = format!("{}: another workload than the first", folder.display());
            return Err(Error::Unusable(text));
        }
        let places: Vec<u32> = all.iter().flat_map(|it| &it.manifest.generators).map(|it| it.index).collect();
        if places.iter().enumerate().any(|(at, index)| places[..at].contains(index)) {
            return Err(Error::Unusable("a generator is there twice".to_owned()));
        }
    }
    let shift = |it: &Results| (it.manifest.started_unix_ms - begin + 500) / 1000;
    let mut manifest = Manifest { generators: Vec::new(), ..first.manifest.clone() };
    manifest.generators = all.iter().flat_map(|it| it.manifest.generators.clone()).collect();
    let mut writer = Writer::create(out, manifest)?;
    let mut seconds: BTreeMap<u64, Vec<&Second>> = BTreeMap::new();
    let mut latencies: BTreeMap<(u64, usize, Kind), Histogram> = BTreeMap::new();
    for results in &all {
        results.seconds.iter().for_each(|it| seconds.entry(it.second + shift(results)).or_default().push(it));
        for it in &results.latencies {
            let sum = latencies.entry((it.second + shift(results), it.label, it.kind)).or_default();
            sum.merge(&it.histogram);
        }
        for error in &results.errors {
            let mut error = error.clone();
            error.second += shift(results);
            writer.error(&error)?;
        }
        for event in &results.events {
            let mut event = event.clone();
            event.at_s += (results.manifest.started_unix_ms - begin) as f64 / 1000.0;
            writer.event(&event)?;
        }
    }
    first.counters.iter().try_for_each(|counters| writer.counters(counters))?;
    for (at, parts) in seconds {
        let range = (at, 0, Kind::Response)..(at + 1, 0, Kind::Response);
        let own = latencies.range(range).map(|(&(second, label, kind), histogram)| {
            let histogram = histogram.clone();
            Latencies { second, label, kind, histogram }
        });
        writer.second(sum(at, &parts, all.len()), own.collect())?;
    }
    writer.finish(check(&all))
}

/// Several generators' second. It is measured if it is so for all.
fn sum(at: u64, parts: &[&Second], generators: usize) -> Second {
    let mut sum = Second { second: at, ..parts[0].clone() };
    sum.phase = match parts {
        parts if parts.iter().any(|it| it.phase == Phase::WarmUp) => Phase::WarmUp,
        parts if parts.len() == generators && parts.iter().all(|it| it.phase == Phase::Measured) => {
            Phase::Measured
        }
        _ => Phase::Trailing,
    };
    for other in &parts[1..] {
        for (label, operation) in &other.operations {
            sum.operations.entry(label.clone()).or_default().add(operation);
        }
        sum.generator = add(&sum.generator, &other.generator);
        if sum.servers.is_empty() {
            sum.servers.clone_from(&other.servers);
            sum.disks.clone_from(&other.disks);
        }
        sum.marks.extend(&other.marks);
    }
    sum.marks.sort();
    sum.marks.dedup();
    sum
}

fn add(a: &GeneratorSecond, b: &GeneratorSecond) -> GeneratorSecond {
    GeneratorSecond {
        cpu_us: a.cpu_us + b.cpu_us,
        waited_us: a.waited_us + b.waited_us,
        busiest: a.busiest.max(b.busiest),
        due: a.due + b.due,
        backlog: a.backlog + b.backlog,
        late_us: a.late_us.max(b.late_us),
        outstanding: a.outstanding + b.outstanding,
        rss_bytes: a.rss_bytes + b.rss_bytes,
    }
}

fn check(all: &[Results]) -> CheckSummary {
    let mut sum = CheckSummary::default();
    for it in all.iter().map(|results| &results.summary.check) {
        sum.verified += it.verified;
        sum.compared += it.compared;
        sum.not_compared += it.not_compared;
        sum.sample = sum.sample.max(it.sample);
        sum.lost += it.lost;
        sum.stale += it.stale;
        sum.resurrected += it.resurrected;
        sum.corrupt += it.corrupt;
        sum.rows += it.rows;
        sum.wrong_rows += it.wrong_rows;
        sum.incomplete += it.incomplete;
        sum.unresolved += it.unresolved;
        sum.in_doubt += it.in_doubt;
        sum.audited += it.audited;
        sum.tolerated.clone_from(&it.tolerated);
    }
    sum
}
