//! The values of the figures at one moment.

use crate::extractor::{Extractor, Unreadable};
use crate::figure::{Figure, Labels};
use crate::table::FIGURES;
use serde::Serialize;

/// Values of all figures, as a shell has read them. Rows are places in [`FIGURES`].
#[derive(Clone, Debug)]
pub struct Reading {
    /// The number of each row, if it has one.
    pub(crate) numbers: Vec<Option<Number>>,
    /// Rows of texts, and the texts.
    pub(crate) texts: Vec<(usize, String)>,
    /// Rows of levels, the numbers of the levels, and the values.
    pub(crate) levels: Vec<(usize, String, Number)>,
    /// Names of peers, each with its rows and their values.
    pub(crate) peers: Vec<(String, Vec<(usize, Number)>)>,
    /// The histograms.
    pub(crate) histograms: Vec<Histogram>,
}

/// A number in the unit of `/stats`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Whole(u64),
    /// It is finite.
    Part(f64),
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

impl Reading {
    /// The figures of the table in `stats`, which serializes as the answer of `/stats`, and the histograms.
    ///
    /// # Errors
    /// If a figure is neither a number nor a text.
    pub fn of(stats: &impl Serialize, histograms: Vec<Histogram>) -> Result<Reading, Unreadable> {
        let mut reading = Reading {
            numbers: vec![None; FIGURES.len()],
            texts: Vec::new(),
            levels: Vec::new(),
            peers: Vec::new(),
            histograms,
        };
        stats.serialize(&mut Extractor::new(&mut reading))?;
        Ok(reading)
    }

    /// The text of a row; empty without one.
    pub(crate) fn text(&self, row: usize) -> &str {
        self.texts.iter().find(|(of, _)| *of == row).map_or("", |(_, text)| text)
    }
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
