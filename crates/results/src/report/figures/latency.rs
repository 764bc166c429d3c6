//! How long operations took: over time, against throughput, and as a whole distribution.

use super::Run;
use crate::Kind;
use crate::report::chart::{Axis, Chart, Scale, Series, Shape, Unit};
use crate::report::intervals::percentile_us;
use histogram::Histogram;

/// Charts of labels, at most: those with the most operations.
const LABELS_MAX: usize = 8;

/// Percentiles over time: name, per cent, colour. From cold to hot.
const PERCENTILES: [(&str, f64, usize); 4] =
    [("p50", 50.0, 0), ("p95", 95.0, 5), ("p99", 99.0, 3), ("p99.9", 99.9, 1)];
const MAX_COLOUR: usize = 7;

pub fn charts(run: &Run<'_>) -> Vec<Chart> {
    let labels = &run.results.manifest.labels;
    let done = |at: &usize| run.results.summary.operations.get(&labels[*at]).map_or(0, |it| it.done);
    let mut most: Vec<usize> = (0..labels.len()).filter(|at| done(at) > 0).collect();
    most.sort_by_key(|at| std::cmp::Reverse(done(at)));
    most.truncate(LABELS_MAX);
    most.sort_unstable();
    let mut charts: Vec<Chart> = most.iter().map(|&at| over_time(run, at)).collect();
    charts.push(distribution(run, &most));
    charts.push(against_throughput(run));
    charts
}

fn over_time(run: &Run<'_>, label: usize) -> Chart {
    let name = &run.results.manifest.labels[label];
    let y = Axis::new("from the intended start to the answer", Unit::Micros).scaled(Scale::Log);
    let mut chart = run.over_time(&format!("latency-{}", slug(name)), &format!("Latency of {name}"), "", y);
    let histograms: Vec<Histogram> =
        run.intervals.all.iter().map(|it| it.histogram(Some(label), Kind::Response)).collect();
    let points = |of: &dyn Fn(&Histogram) -> f64| -> Vec<(f64, f64)> {
        let xs = run.intervals.points(|_| 0.0);
        xs.into_iter().zip(&histograms).map(|((x, _), histogram)| (x, of(histogram))).collect()
    };
    for (name, percent, colour) in PERCENTILES {
        chart.series.push(Series::line(name, colour, points(&|it| percentile_us(it, percent))));
    }
    if run.results.manifest.rate.is_some() {
        let service =
            run.intervals.points(|it| percentile_us(&it.histogram(Some(label), Kind::Service), 99.0));
        chart.series.push(Series::line("p99 from the sending", 3, service).shaped(Shape::Thin));
    }
    let max = points(&|histogram| percentile_us(histogram, 100.0));
    chart.series.push(Series::line("max", MAX_COLOUR, max).shaped(Shape::Dots));
    chart
}

fn distribution(run: &Run<'_>, labels: &[usize]) -> Chart {
    let mut chart = Chart {
        id: "distribution".to_owned(),
        title: "Distribution of latency".to_owned(),
        caption: "The share of operations that took no longer; each nine is as high as the next.".to_owned(),
        x: Axis::new("from the intended start to the answer", Unit::Micros).scaled(Scale::Log),
        y: Axis::new("percentile", Unit::Percentile).scaled(Scale::Nines),
        ..Chart::default()
    };
    for &label in labels {
        let mut sum = Histogram::default();
        run.intervals.measured().for_each(|it| sum.merge(&it.histogram(Some(label), Kind::Response)));
        let name = &run.results.manifest.labels[label];
        chart.series.push(Series::line(name, 2 + label, curve(&sum)));
    }
    chart
}

/// Points of a curve, at most, from nine to nine.
const CURVE_POINTS: f64 = 60.0;

/// The distribution of a histogram: its buckets, thinned out where they are denser than can be seen.
pub(crate) fn curve(histogram: &Histogram) -> Vec<(f64, f64)> {
    let count = histogram.count() as f64;
    let (mut seen, mut last) = (0, f64::NEG_INFINITY);
    let mut points = Vec::new();
    for (value, there) in histogram.iter() {
        seen += there;
        let share = seen as f64 / count;
        let height = -(1.0 - share).log10() * CURVE_POINTS;
        // The last one, at a share of 1, is as high as its count allows.
        let is_last = seen == histogram.count();
        if is_last || height - last >= 1.0 {
            let share = if is_last { 1.0 - 0.5 / count } else { share };
            points.push((value.min(histogram.max()) as f64 / 1e3, share));
            last = height;
        }
    }
    points
}

fn against_throughput(run: &Run<'_>) -> Chart {
    let caption = "A dot for each interval that counts.";
    let mut chart = Chart {
        id: "latency-throughput".to_owned(),
        title: "Latency against throughput".to_owned(),
        caption: caption.to_owned(),
        x: Axis::new("operations done in a second", Unit::Count).spanning(0.0, 1.0),
        y: Axis::new("all operations, from the intended start", Unit::Micros).scaled(Scale::Log),
        ..Chart::default()
    };
    for (name, percent, colour) in PERCENTILES.into_iter().filter(|it| it.1 == 50.0 || it.1 >= 99.0) {
        let points = run
            .intervals
            .measured()
            .map(|it| (it.rate(None), percentile_us(&it.histogram(None, Kind::Response), percent)));
        chart.series.push(Series::line(name, colour, points.collect()).shaped(Shape::Dots));
    }
    chart
}

/// A label as a part of a name: letters, digits, hyphens.
fn slug(label: &str) -> String {
    label.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
}
