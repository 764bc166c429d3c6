//! The values of the figures at one moment.

use crate::figure::{Figure, Labels};
use serde_json::{Map, Value};

/// Values of all figures, as a shell has read them.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// The answer of `/stats`.
    pub stats: Map<String, Value>,
    /// The histograms.
    pub histograms: Vec<Histogram>,
}

/// A histogram of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Its family.
    pub family: &'static str,
    /// Its labels.
    pub labels: Labels,
    /// Its counts.
    pub times: Distribution,
}

/// Counts of times by their length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Upper edges in seconds, and the number of times above the edge before and up to this one.
    pub buckets: Vec<(f64, u64)>,
    /// All times together, in seconds.
    pub sum: f64,
    /// How many there were, those above the last edge included.
    pub count: u64,
}

impl Histogram {
    /// Whether it is this figure's.
    pub fn is_of(&self, figure: &Figure) -> bool {
        self.family == figure.metric && self.labels == figure.labels
    }
}

impl Distribution {
    /// The buckets with the last one, which has no upper edge.
    pub(crate) fn all_buckets(&self) -> Vec<(f64, u64)> {
        let within: u64 = self.buckets.iter().map(|(_, count)| count).sum();
        let above = (f64::INFINITY, self.count.saturating_sub(within));
        self.buckets.iter().copied().chain([above]).collect()
    }
}
