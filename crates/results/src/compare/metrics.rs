//! The metrics of a comparison.

use super::blocks::Totals;
use crate::report::chart::Unit;

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More.
    Higher,
    /// Less.
    Lower,
}

/// A number that a run has.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Throughput,
    /// Of this slot.
    Mean(usize),
    /// Of this slot, this per cent.
    Percentile(usize, f64),
    ServerCpu,
    WriteAmplification,
    Memory,
}

/// The metrics of runs with these labels, the important ones first.
pub fn of(labels: &[String]) -> Vec<Metric> {
    let lower = |name: String, unit, what| Metric { name, unit, better: Better::Lower, what };
    let mut metrics = vec![Metric {
        name: "operations a second".to_owned(),
        unit: Unit::Count,
        better: Better::Higher,
        what: What::Throughput,
    }];
    let percentiles = [("p50", 50.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9)];
    metrics.push(lower("mean latency".to_owned(), Unit::Micros, What::Mean(0)));
    metrics.extend(
        percentiles.map(|(name, percent)| lower(name.to_owned(), Unit::Micros, What::Percentile(0, percent))),
    );
    metrics.push(lower("server CPU per operation".to_owned(), Unit::Micros, What::ServerCpu));
    metrics.push(lower("write amplification".to_owned(), Unit::Factor, What::WriteAmplification));
    metrics.push(lower("memory of the servers, most".to_owned(), Unit::Bytes, What::Memory));
    if labels.len() > 1 {
        for (at, label) in labels.iter().enumerate() {
            for (name, percent) in [("p50", 50.0), ("p99", 99.0)] {
                metrics.push(lower(
                    format!("{label}, {name}"),
                    Unit::Micros,
                    What::Percentile(at + 1, percent),
                ));
            }
        }
    }
    metrics
}

impl Metric {
    /// Its value; none where nothing was counted for it.
    pub fn value(&self, totals: &Totals) -> Option<f64> {
        let value = match self.what {
            What::Throughput => totals.done[0] as f64 / totals.seconds as f64,
            What::Mean(slot) => totals.response[slot].mean() / 1e3,
            What::Percentile(slot, percent) => totals.response[slot].percentile(percent) as f64 / 1e3,
            What::ServerCpu => totals.server_cpu_us as f64 / totals.done[0] as f64,
            What::WriteAmplification => totals.server_write_bytes as f64 / totals.client_write_bytes as f64,
            What::Memory => totals.rss_bytes as f64,
        };
        (value.is_finite() && value > 0.0).then_some(value)
    }
}
