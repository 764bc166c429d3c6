//! The values of `/metrics`: the figures of `/stats`, and the histograms, by the table of [`figures`].

use crate::stats::Stats;
use figures::{Distribution, Reading, Unreadable};
use node::Histogram;

/// Edges of request times: from 2^6 microseconds, 64 us, to 2^26, 67 s.
const DOUBLINGS: (u32, u32) = (6, 26);

/// Edges of times of the disk begin at 16 us, and each is four times the one before.
const DISK_DOUBLINGS: std::ops::RangeInclusive<usize> = 4..=26;

impl Stats {
    /// The values of all figures.
    ///
    /// # Errors
    /// If they are not those of the table, which is a mistake of ours.
    pub fn reading(&self) -> Result<Reading, Unreadable> {
        Reading::of(self, self.histograms())
    }
}

/// A histogram of requests, with two edges for each doubling.
pub(crate) fn of_requests(times: &Histogram) -> Distribution {
    let (first, last) = DOUBLINGS;
    let halves = times.halves(first, last);
    Distribution {
        buckets: halves.map(|(micros, count)| (micros as f64 / 1e6, count)).collect(),
        sum: times.sum() as f64 / 1e6,
        count: times.count(),
    }
}

/// A histogram of requests on consistent types. It has one edge for each doubling, as the number of series is bounded.
pub(crate) fn of_consistent(times: &Histogram) -> Distribution {
    let fine = of_requests(times);
    let (first, rest) = fine.buckets.split_first().expect("there are edges");
    let pairs = rest.chunks_exact(2).map(|pair| (pair[1].0, pair[0].1 + pair[1].1));
    Distribution { buckets: std::iter::once(*first).chain(pairs).collect(), ..fine }
}

/// A histogram of the disk.
pub(crate) fn of_disk(times: &engine::store::Times) -> Distribution {
    let mut before = 0;
    let edges = times.cumulative().enumerate().filter(|(n, _)| DISK_DOUBLINGS.contains(n) && n % 2 == 0);
    let buckets = edges.map(|(doublings, within)| {
        let count = within - std::mem::replace(&mut before, within);
        ((1u64 << doublings) as f64 / 1e6, count)
    });
    Distribution { buckets: buckets.collect(), sum: times.total().as_secs_f64(), count: times.number() }
}
