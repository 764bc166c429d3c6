//! The figures of a run that experiments compare.

use crate::Played;
use crate::scenario::DONE;
use histogram::Histogram;
use results::{Counters, Event, Kind, OperationSummary, Results, Second, ServerSecond};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// A figure of a run: one number, of its measured seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Operations in a second: the median of the seconds.
    Throughput,
    /// Operations in a second, without the writes whose condition did not hold: the median of the seconds.
    ConditionsHeld,
    /// Operations for each second of CPU time that all servers together used.
    PerCpuSecond,
    /// The median of throughput in the last quarter of the run over that in the first.
    Held,
    /// The slowest second's throughput over the median.
    Slowest,
    /// Of an open loop: operations done, as a share of those asked for.
    Achieved,
    /// The mean of latency, from when operations were due, in milliseconds.
    MeanMs,
    /// The shortest.
    MinMs,
    /// The mean of latency in the last quarter of the run over that in the first.
    Slowed,
    /// The 99th percentile of latency in the last quarter of the run over that in the first.
    P99Slowed,
    /// The median of latency, from when operations were due, in milliseconds.
    P50Ms,
    /// The same, 99th percentile.
    P99Ms,
    /// The same, 99.9th.
    P999Ms,
    /// The same, 99.99th.
    P9999Ms,
    /// The longest.
    MaxMs,
    /// The share of operations that took more than a millisecond.
    #[serde(rename = "above-1-ms")]
    Above1Ms,
    /// More than two.
    #[serde(rename = "above-2-ms")]
    Above2Ms,
    /// More than four.
    #[serde(rename = "above-4-ms")]
    Above4Ms,
    /// The share of reads that found nothing.
    NotFound,
    /// Operations that failed.
    Failed,
    /// Acknowledged writes that are gone, and values that nobody wrote.
    Lost,
    /// Elections of leaders of consistent groups, at all servers together.
    Elections,
    /// Keys of the history whose requests no order explains: it is not linearizable.
    Violations,
    /// Keys of the history whose search for an order was given up.
    Undecided,
    /// Rows of index queries that are wrong, and queries that did not find what was there.
    WrongRows,
    /// Resident memory of all servers: the median of the last quarter of the run over that of the third.
    MemoryGrown,
    /// Bytes that servers wrote for each byte that clients wrote.
    WriteAmplification,
    /// What the files of all servers take in the end, in MiB.
    SpaceMib,
    /// Partitions whose hash trees all servers together made anew in the measured seconds.
    Rebuilds,
    /// Microseconds that these took for each key, while a part of one was under way.
    RebuildUs,
    /// Seconds from when the scenario's first step was begun until the last was done, where that is a command.
    StepsS,
    /// What the busiest server used in the last quarter of the run, in percent of a core.
    BusiestPercent,
    /// Resident memory of the server that has most: the median of the last quarter.
    MemoryMib,
}

impl Figure {
    /// What it is counted in.
    pub fn unit(self) -> &'static str {
        match self {
            Figure::Throughput | Figure::ConditionsHeld => "op/s",
            Figure::PerCpuSecond => "op/CPU s",
            Figure::MeanMs
            | Figure::MinMs
            | Figure::P50Ms
            | Figure::P99Ms
            | Figure::P999Ms
            | Figure::P9999Ms
            | Figure::MaxMs => "ms",
            Figure::SpaceMib | Figure::MemoryMib => "MiB",
            Figure::StepsS => "s",
            Figure::BusiestPercent => "% of a core",
            Figure::Failed => "operations",
            Figure::Lost => "values",
            Figure::Elections => "elections",
            Figure::Violations | Figure::Undecided => "keys",
            Figure::WrongRows => "rows",
            Figure::Rebuilds => "partitions",
            Figure::RebuildUs => "us/key",
            Figure::Held
            | Figure::Slowed
            | Figure::P99Slowed
            | Figure::MemoryGrown
            | Figure::Slowest
            | Figure::Achieved
            | Figure::Above1Ms
            | Figure::Above2Ms
            | Figure::Above4Ms
            | Figure::NotFound
            | Figure::WriteAmplification => "",
        }
    }

    /// Of a run, and of one of its operations if one is named; `None` if the run has none.
    pub fn of(self, results: &Results, label: Option<&str>) -> Option<f64> {
        let summary = &results.summary;
        let it: &OperationSummary = match label {
            Some(label) => summary.operations.get(label)?,
            None => &summary.total,
        };
        let measured = |value: f64| (it.response.count > 0).then_some(value);
        let ms = |us: f64| measured(us / 1000.0);
        match self {
            Figure::Throughput => Some(it.throughput.median),
            Figure::ConditionsHeld => median(&conditions_held(results, label)),
            Figure::PerCpuSecond => summary.server_cpu_us_per_op.filter(|us| *us > 0.0).map(|us| 1e6 / us),
            Figure::MeanMs => ms(it.response.mean_us),
            Figure::MinMs => ms(it.response.min_us),
            Figure::Slowed => slowed(results, label, Histogram::mean),
            Figure::P99Slowed => slowed(results, label, |it| it.percentile(99.0) as f64),
            Figure::Held => held(&seconds(results, label)),
            Figure::Slowest => (it.throughput.median > 0.0).then(|| it.throughput.min / it.throughput.median),
            Figure::Achieved => summary.generator.achieved,
            Figure::P50Ms => ms(it.response.median_us),
            Figure::P99Ms => ms(it.response.p99_us),
            Figure::P999Ms => ms(it.response.p99_9_us),
            Figure::P9999Ms => ms(it.response.p99_99_us),
            Figure::MaxMs => ms(it.response.max_us),
            Figure::Above1Ms => measured(it.response.above_1ms),
            Figure::Above2Ms => measured(it.response.above_2ms),
            Figure::Above4Ms => measured(it.response.above_4ms),
            Figure::NotFound => (it.done > 0).then(|| it.not_found as f64 / it.done as f64),
            Figure::Failed => Some(it.failed as f64),
            Figure::Lost => Some((summary.check.lost + summary.check.corrupt) as f64),
            Figure::Elections => counted(results, "consistent_elections_total"),
            // Of a history, which lies beside the results.
            Figure::Violations | Figure::Undecided => None,
            Figure::WrongRows => Some((summary.check.wrong_rows + summary.check.incomplete) as f64),
            Figure::MemoryGrown => memory_grown(results),
            Figure::WriteAmplification => {
                summary.servers.iter().flatten().find_map(|it| it.write_amplification)
            }
            Figure::SpaceMib => {
                let last = results.seconds.iter().rfind(|second| !second.servers.is_empty())?;
                last.servers.iter().map(|server| server.disk_bytes.map(mib)).sum()
            }
            Figure::Rebuilds => counted(results, "trees_made"),
            Figure::RebuildUs => {
                let keys = counted(results, "rebuild_keys").filter(|keys| *keys > 0.0)?;
                counted(results, "rebuild_micros").map(|micros| micros / keys)
            }
            Figure::StepsS => steps(&results.events),
            Figure::BusiestPercent => {
                let busy = |server: &[&ServerSecond]| {
                    let used: u64 = server.iter().map(|it| it.cpu_us).sum();
                    Some(used as f64 / 1e4 / server.len() as f64)
                };
                most(&last_quarter(results), busy)
            }
            Figure::MemoryMib => {
                let resident = |server: &[&ServerSecond]| {
                    median(&server.iter().map(|it| mib(it.rss_bytes)).collect::<Vec<_>>())
                };
                most(&last_quarter(results), resident)
            }
        }
    }

    /// Of a run, also from beside its results: the files of an engine, the verdict on a history.
    pub fn of_played(self, played: &Played, label: Option<&str>) -> Option<f64> {
        match (self, played.space_bytes, &played.history) {
            (Figure::SpaceMib, Some(bytes), _) => Some(mib(bytes)),
            (Figure::Violations, _, Some(report)) => Some(report.violations.len() as f64),
            (Figure::Undecided, _, Some(report)) => Some(report.unknown.len() as f64),
            _ => self.of(&played.results, label),
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Operations done in each measured second.
fn seconds(results: &Results, label: Option<&str>) -> Vec<f64> {
    results.measured().map(|second| second.done(label) as f64).collect()
}

/// Operations done in each measured second, without the writes whose condition did not hold.
fn conditions_held(results: &Results, label: Option<&str>) -> Vec<f64> {
    let held = |second: &Second| {
        let wanted = second.operations.iter().filter(|(name, _)| label.is_none_or(|label| label == *name));
        wanted.map(|(_, it)| (it.done - it.condition_failed) as f64).sum()
    };
    results.measured().map(held).collect()
}

/// The last quarter's median over the first's; none of a run that is too short to have quarters.
fn held(seconds: &[f64]) -> Option<f64> {
    let quarter = seconds.len() / 4;
    ratio(median(&seconds[..quarter])?, median(&seconds[seconds.len() - quarter..])?)
}

/// A figure of latency in the last quarter over that in the first; none where one of them has no operation.
fn slowed(results: &Results, label: Option<&str>, figure: fn(&Histogram) -> f64) -> Option<f64> {
    let seconds: Vec<u64> = results.measured().map(|second| second.second).collect();
    let quarter = seconds.len() / 4;
    let of = |seconds: &[u64]| {
        let all = results.merged(|second, name, kind| {
            kind == Kind::Response && label.is_none_or(|label| label == name) && seconds.contains(&second)
        });
        (all.count() > 0).then(|| figure(&all))
    };
    ratio(of(&seconds[..quarter])?, of(&seconds[seconds.len() - quarter..])?)
}

/// By how much a counter of all servers has grown in the measured seconds; none where none of them tells it.
fn counted(results: &Results, name: &str) -> Option<f64> {
    let seconds: BTreeSet<u64> = results.measured().map(|second| second.second).collect();
    let counters = results.counters.iter().filter(|it| seconds.contains(&it.second));
    grown(counters, name)
}

fn grown<'a>(counters: impl Iterator<Item = &'a Counters>, name: &str) -> Option<f64> {
    let mut ends: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for counters in counters {
        if let Some(&value) = counters.values.get(name) {
            ends.entry(counters.server).or_insert((value, value)).1 = value;
        }
    }
    // A server that was started again counts from nothing.
    let more = |(first, last): (f64, f64)| if last < first { last } else { last - first };
    (!ends.is_empty()).then(|| ends.into_values().map(more).sum())
}

/// None where a server's memory is not known.
fn memory_grown(results: &Results) -> Option<f64> {
    let memory = |second: &results::Second| {
        let bytes: u64 = second.servers.iter().map(|server| server.rss_bytes).sum();
        (bytes > 0).then_some(bytes as f64)
    };
    let seconds = results.measured().map(memory).collect::<Option<Vec<f64>>>()?;
    let quarter = seconds.len() / 4;
    let (third, last) = seconds[seconds.len() - 2 * quarter..].split_at(quarter);
    ratio(median(third)?, median(last)?)
}

/// From the first step to the end of the last; none where that was not marked.
fn steps(events: &[Event]) -> Option<f64> {
    let is_step = |event: &&Event| matches!(&*event.kind, "fault" | "repair" | "job");
    let (first, last) = (events.iter().find(is_step)?, events.iter().rfind(is_step)?);
    let end = events.iter().rfind(|event| event.text.strip_prefix(DONE) == Some(&last.text))?;
    Some(end.at_s - first.at_s)
}

/// What each server did in the last quarter of the measured seconds.
fn last_quarter(results: &Results) -> BTreeMap<u32, Vec<&ServerSecond>> {
    let seconds: Vec<&Second> = results.measured().collect();
    let mut servers: BTreeMap<u32, Vec<&ServerSecond>> = BTreeMap::new();
    for server in seconds[seconds.len() - seconds.len() / 4..].iter().flat_map(|second| &second.servers) {
        servers.entry(server.server).or_default().push(server);
    }
    servers
}

/// The most of all servers.
fn most(
    servers: &BTreeMap<u32, Vec<&ServerSecond>>,
    of: impl Fn(&[&ServerSecond]) -> Option<f64>,
) -> Option<f64> {
    servers.values().filter_map(|server| of(server)).max_by(f64::total_cmp)
}

fn ratio(first: f64, last: f64) -> Option<f64> {
    (first > 0.0).then(|| last / first)
}

fn median(part: &[f64]) -> Option<f64> {
    let mut part = part.to_vec();
    part.sort_by(f64::total_cmp);
    let middle = part.len().checked_sub(1)? / 2;
    Some((part[middle] + part[part.len() / 2]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::{grown, held, median, steps};
    use results::{Counters, Event};
    use std::collections::BTreeMap;

    #[test]
    fn a_counter_grows_at_each_server_from_its_first_value_to_its_last() {
        let counters = |second, server, value| {
            let values = BTreeMap::from([("n".to_owned(), value)]);
            Counters { second, server, values }
        };
        // The second server was started again.
        let all = [counters(0, 0, 1.0), counters(0, 1, 5.0), counters(4, 0, 4.0), counters(4, 1, 2.0)];
        assert_eq!(grown(all.iter(), "n"), Some(5.0));
        assert_eq!(grown(all.iter(), "m"), None);
    }

    #[test]
    fn steps_take_from_the_beginning_of_the_first_to_the_end_of_the_last() {
        let event = |at_s, kind: &str, text: &str| Event {
            at_s,
            kind: kind.to_owned(),
            text: text.to_owned(),
            server: None,
        };
        let mut all = vec![
            event(0.0, "phase", "warm-up"),
            event(2.0, "repair", "start n4"),
            event(2.5, "job", "run it"),
            event(5.5, "note", "done: run it"),
            event(9.0, "phase", "the end"),
            event(9.5, "note", "a remark"),
        ];
        assert_eq!(steps(&all), Some(3.5));
        all.remove(3);
        assert_eq!((steps(&all), steps(&all[..1])), (None, None));
    }

    #[test]
    fn quarters_are_compared_by_their_medians() {
        assert_eq!(held(&[1.0, 2.0, 3.0]), None);
        assert_eq!(held(&[10.0, 12.0, 5.0, 5.0, 5.0, 5.0, 4.0, 7.0]), Some(0.5));
        assert_eq!(held(&[0.0, 1.0, 1.0, 1.0]), None);
        assert_eq!((median(&[]), median(&[3.0, 1.0, 2.0])), (None, Some(2.0)));
    }
}
