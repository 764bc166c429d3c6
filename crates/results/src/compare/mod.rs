//! Two sides compared: pairs of runs, ratios with their confidence bands, one page.
//!
//! Steps: 1. `blocks` cuts the measured part of each run into blocks whose counts and histograms add up; 2. `metrics`
//! says what is compared; 3. `stats` gives each metric a ratio and a 95 % band; 4. `page` tells it.
//!
//! With several pairs (run A, B, A, B, ...) the band is Student's t over the logarithms of the pairs' ratios: it has in
//! it what changes from run to run. A single pair can only be resampled by blocks in time (a paired block bootstrap,
//! Efron 1979, Künsch 1989): its band has only what changed within the runs, and the page says so.
//!
//! Invariants: percentiles come from merged histograms; the same runs give the same page, as resampling has a fixed
//! seed; runs of different operations are refused.

mod blocks;
mod forest;
mod metrics;
mod page;
mod stats;

pub use metrics::{Better, Metric};
pub use page::html;
pub use stats::{Band, Verdict};

use crate::Error;
use crate::Results;
use blocks::Blocks;

/// A metric with what was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// What is compared.
    pub metric: Metric,
    /// Side A's value, of all its runs together.
    pub a: f64,
    /// Side B's.
    pub b: f64,
    /// B over A.
    pub ratio: Band,
}

impl Found {
    /// What the band allows to be said.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.ratio, self.metric.better)
    }
}

/// A comparison.
pub struct Comparison<'a> {
    /// The runs: A and B of each pair.
    pub pairs: &'a [(Results, Results)],
    /// The metrics that both sides have.
    pub found: Vec<Found>,
}

impl<'a> Comparison<'a> {
    /// Compares; there is at least one pair, and all runs are of the same operations.
    pub fn of(pairs: &'a [(Results, Results)]) -> Result<Comparison<'a>, Error> {
        let Some((first, _)) = pairs.first() else {
            return Err(Error::Unusable("there is nothing to compare".to_owned()));
        };
        let labels = &first.manifest.labels;
        let runs = || pairs.iter().flat_map(|(a, b)| [a, b]);
        if let Some(other) = runs().find(|run| run.manifest.labels != *labels) {
            return Err(Error::Unusable(format!(
                "runs of different operations cannot be compared: {} and {}",
                labels.join(", "),
                other.manifest.labels.join(", ")
            )));
        }
        if let Some(run) = runs().find(|run| run.measured().next().is_none()) {
            let name = &run.manifest.name;
            return Err(Error::Unusable(format!(
                "the run {name:?} of {} has no second that counts",
                run.manifest.started
            )));
        }
        let blocks: Vec<(Blocks, Blocks)> =
            pairs.iter().map(|(a, b)| (Blocks::of(a), Blocks::of(b))).collect();
        let metrics = metrics::of(labels);
        let found = stats::compare(&blocks, &metrics);
        Ok(Comparison { pairs, found })
    }
}
