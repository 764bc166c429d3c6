//! A run cut into intervals: seconds where it is short, longer ones where a chart could not show seconds.

use crate::{Kind, Latencies, Phase, Results, Second};
use histogram::Histogram;
use std::collections::BTreeMap;

/// A chart's width has room for so many points.
const INTERVALS_MAX: usize = 600;

/// Some seconds of one phase, one after the other.
pub struct Interval<'a> {
    /// Its seconds; at least one.
    pub seconds: &'a [Second],
    latencies: Vec<&'a Latencies>,
}

/// All intervals of a run.
pub struct Intervals<'a> {
    /// In order.
    pub all: Vec<Interval<'a>>,
    /// The seconds of one, but for the last of a phase.
    pub width: usize,
}

impl<'a> Intervals<'a> {
    /// Cuts `results`.
    pub fn of(results: &'a Results) -> Intervals<'a> {
        let mut by_second: BTreeMap<u64, Vec<&Latencies>> = BTreeMap::new();
        for it in &results.latencies {
            by_second.entry(it.second).or_default().push(it);
        }
        let width = results.seconds.len().div_ceil(INTERVALS_MAX).max(1);
        let phases = results.seconds.chunk_by(|a, b| a.phase == b.phase);
        let all = phases.flat_map(|seconds| seconds.chunks(width)).map(|seconds| {
            let of = |second: &Second| by_second.get(&second.second).into_iter().flatten().copied();
            Interval { latencies: seconds.iter().flat_map(of).collect(), seconds }
        });
        Intervals { all: all.collect(), width }
    }

    /// Those that count.
    pub fn measured(&self) -> impl Iterator<Item = &Interval<'a>> {
        self.all.iter().filter(|interval| interval.phase() == Phase::Measured)
    }

    /// A point of each interval: its middle, and what `value` says of it.
    pub fn points(&self, value: impl Fn(&Interval<'a>) -> f64) -> Vec<(f64, f64)> {
        self.all.iter().map(|interval| (interval.middle(), value(interval))).collect()
    }
}

impl Interval<'_> {
    /// The phase that all of it belongs to.
    pub fn phase(&self) -> Phase {
        self.seconds[0].phase
    }

    /// Where it begins, in seconds since the start.
    pub fn from(&self) -> f64 {
        self.seconds[0].second as f64
    }

    /// Where it ends.
    pub fn to(&self) -> f64 {
        self.seconds[self.seconds.len() - 1].second as f64 + 1.0
    }

    fn middle(&self) -> f64 {
        f64::midpoint(self.from(), self.to())
    }

    /// The mean of `value` over its seconds; not a number where none has one.
    pub fn mean(&self, value: impl Fn(&Second) -> Option<f64>) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for value in self.seconds.iter().filter_map(value) {
            sum += value;
            count += 1.0;
        }
        if count > 0.0 { sum / count } else { f64::NAN }
    }

    /// The sum of `value` over its seconds.
    pub fn sum(&self, value: impl Fn(&Second) -> f64) -> f64 {
        self.seconds.iter().map(value).sum()
    }

    /// Operations done in a second, of one label or all.
    pub fn rate(&self, label: Option<&str>) -> f64 {
        self.sum(|second| second.done(label) as f64) / self.seconds.len() as f64
    }

    /// The merged histogram of one label, or all, of a kind.
    pub fn histogram(&self, label: Option<usize>, kind: Kind) -> Histogram {
        let mut sum = Histogram::default();
        let is_wanted = |it: &&&Latencies| it.kind == kind && label.is_none_or(|label| it.label == label);
        self.latencies.iter().filter(is_wanted).for_each(|it| sum.merge(&it.histogram));
        sum
    }
}

/// A percentile in microseconds; not a number of an empty histogram, which is a gap in a chart.
pub fn percentile_us(histogram: &Histogram, percent: f64) -> f64 {
    if histogram.is_empty() { f64::NAN } else { histogram.percentile(percent) as f64 / 1e3 }
}
