//! Charts of the load: throughput, errors, missing keys, throughput as the store fills.

use super::Run;
use crate::report::chart::{Axis, Chart, Series, Shape, Unit, Width};
use std::collections::BTreeSet;

const TOTAL: usize = 0;
const FAILED: usize = 1;
/// Labels' colours come after those two.
const FIRST_LABEL: usize = 2;

pub fn charts(run: &Run<'_>) -> Vec<Chart> {
    vec![throughput(run), errors(run), not_found(run), level_of_hit(run), accumulated(run)]
}

fn throughput(run: &Run<'_>) -> Chart {
    let labels = &run.results.manifest.labels;
    let y = Axis::new("operations done in a second", Unit::Count).spanning(0.0, 1.0);
    let caption = "Shaded: warm-up and trailing work, which count in no figure.";
    let mut chart = run.over_time("throughput", "Throughput", caption, y);
    chart.width = Width::Full;
    chart.series.push(Series::line("all", TOTAL, run.intervals.points(|it| it.rate(None))));
    if labels.len() > 1 {
        chart.series.extend(labels.iter().enumerate().map(|(at, label)| {
            Series::line(label, FIRST_LABEL + at, run.intervals.points(|it| it.rate(Some(label))))
        }));
    }
    if run.results.summary.total.failed > 0 {
        let failed = run
            .intervals
            .points(|it| it.mean(|second| Some(second.operations.values().map(|it| it.failed as f64).sum())));
        chart.series.push(Series::line("failed", FAILED, failed).shaped(Shape::Thin));
    }
    chart
}

fn errors(run: &Run<'_>) -> Chart {
    let y = Axis::new("failed attempts in a second", Unit::Count).spanning(0.0, 1.0);
    let caption = "By kind, as a client that does not try again sees them.";
    let mut chart = run.over_time("errors", "Errors", caption, y);
    let of_seconds = run.results.seconds.iter().flat_map(|second| second.operations.values());
    let kinds: BTreeSet<&String> = of_seconds.flat_map(|it| it.errors.keys()).collect();
    for (at, kind) in kinds.into_iter().enumerate() {
        let points = run.intervals.points(|it| {
            let of = |it: &crate::OperationSecond| it.errors.get(kind).copied().unwrap_or(0) as f64;
            it.mean(|second| Some(second.operations.values().map(of).sum()))
        });
        chart.series.push(Series::line(kind, FAILED + at, points));
    }
    chart
}

fn not_found(run: &Run<'_>) -> Chart {
    let y = Axis::new("share of the operations that were done", Unit::Share).spanning(0.0, 0.01);
    let mut chart = run.over_time("not-found", "Reads that found nothing", "", y);
    for (at, label) in run.results.manifest.labels.iter().enumerate() {
        if run.results.summary.operations.get(label).is_none_or(|it| it.not_found == 0) {
            continue;
        }
        let points = run.intervals.points(|it| {
            let of = |field: fn(&crate::OperationSecond) -> u64| {
                it.sum(|second| second.operations.get(label).map_or(0.0, |it| field(it) as f64))
            };
            of(|it| it.not_found) / of(|it| it.done)
        });
        chart.series.push(Series::line(label, FIRST_LABEL + at, points));
    }
    chart
}

/// Counters of servers that say at which level of the ledger a lookup found its key, and how a chart calls them.
const LEVELS: &str = "lookups_found_";

/// At which level lookups found their keys, if the servers count it.
fn level_of_hit(run: &Run<'_>) -> Chart {
    let y = Axis::new("share of the lookups that found something", Unit::Share).spanning(0.0, 1.0);
    let caption = "Of all servers together, by their own counters.";
    let mut chart = run.over_time("level-of-hit", "Level of hit", caption, y);
    let counters = &run.results.counters;
    let has_found = |it: &(&String, &f64)| it.0.starts_with(LEVELS) && *it.1 > 0.0;
    let names: BTreeSet<&String> =
        counters.iter().flat_map(|it| it.values.iter().filter(has_found).map(|it| it.0)).collect();
    // From the top of the store down: tables have numbers, the memtable has none.
    let mut names: Vec<&String> = names.into_iter().collect();
    names.sort_by_key(|name| name.ends_with(|c: char| c.is_ascii_digit()));
    let seconds: BTreeSet<u64> = counters.iter().map(|it| it.second).collect();
    let seconds: Vec<u64> = seconds.into_iter().collect();
    // Grown since the time before, of every server; one that has started again counts from zero.
    let grown = |name: &str, pair: &[u64]| -> f64 {
        let of = |second: u64, server: u32| {
            let found = counters.iter().find(|it| it.second == second && it.server == server);
            found.and_then(|it| it.values.get(name)).copied()
        };
        let servers = (0..).take(run.results.manifest.servers.len());
        servers.filter_map(|server| Some((of(pair[1], server)? - of(pair[0], server)?).max(0.0))).sum()
    };
    let mut base = vec![0.0; seconds.len().saturating_sub(1)];
    for (at, name) in names.iter().enumerate() {
        let mut points = Vec::new();
        let mut top = base.clone();
        for (pair, top) in seconds.windows(2).zip(&mut top) {
            let all: f64 = names.iter().map(|name| grown(name, pair)).sum();
            *top += grown(name, pair) / all;
            points.push((pair[1] as f64, *top));
        }
        let title = name[LEVELS.len()..].replace('_', " ");
        chart.series.push(Series::line(title, at, points).shaped(Shape::Area(base)));
        base = top;
    }
    chart
}

fn accumulated(run: &Run<'_>) -> Chart {
    let mut chart = Chart {
        id: "accumulated".to_owned(),
        title: "Throughput as operations accumulate".to_owned(),
        caption: "Stores slow down with their size, not with time: compare two of them here.".to_owned(),
        x: Axis::new("operations done since the start", Unit::Count).spanning(0.0, 1.0),
        y: Axis::new("operations done in a second", Unit::Count).spanning(0.0, 1.0),
        ..Chart::default()
    };
    let points = &run.results.summary.total.throughput.accumulated;
    let points = points.iter().map(|point| (point.operations as f64, point.throughput)).collect();
    chart.series.push(Series::line("all", TOTAL, points));
    chart
}
