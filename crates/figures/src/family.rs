//! The families of `/metrics`, and their series in a reading.
//!
//! The rows of the table are grouped once, in families: a family where its first row stands. A family gathers its
//! series from a [`Reading`], and the library writes them.
//!
//! Invariant: a family and its help stand once, and all of its series behind them.

use crate::figure::{Figure, Kind, Scope, Unit};
use crate::reading::{Distribution, Number, Reading};
use crate::table::FIGURES;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit as BaseUnit;
use std::fmt;
use std::sync::LazyLock;

/// The label with a peer's name.
pub(crate) const PEER: &str = "peer";

/// The label with a level's number.
pub(crate) const LEVEL: &str = "level";

/// A family of the table: the same for all readings.
pub(crate) struct Family {
    /// Its name, without the unit that the library puts behind it.
    name: &'static str,
    metric_type: MetricType,
    unit: Option<BaseUnit>,
    /// Its help, as a sentence.
    help: String,
    /// Its rows in the table. The first one stands for it.
    rows: Vec<usize>,
}

/// One series of a family.
#[derive(Debug)]
pub(crate) struct Series<'r> {
    /// The row, which has the fixed labels.
    pub row: usize,
    /// The peer or the level; empty for a figure of the node.
    pub part: &'r str,
    /// The value.
    pub value: Measure<'r>,
}

/// The value of a series, in the base unit.
#[derive(Debug)]
pub(crate) enum Measure<'r> {
    Number(Number),
    Times(&'r Distribution),
    /// 1: these labels say all.
    Info(Vec<(&'static str, &'r str)>),
}

/// All families, each where its first row stands. They are made once, since a scrape would search the whole table for
/// each row.
pub(crate) static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let mut families: Vec<Family> = Vec::new();
    for (row, figure) in FIGURES.iter().enumerate().filter(|(_, figure)| !figure.metric.is_empty()) {
        match families.iter_mut().find(|family| family.first().metric == figure.metric) {
            Some(family) => family.rows.push(row),
            None => families.push(Family::of(row)),
        }
    }
    families
});

impl Family {
    fn of(row: usize) -> Family {
        let figure = &FIGURES[row];
        let metric = figure.metric;
        let (metric_type, name) = match figure.kind {
            Kind::Text => (MetricType::Info, metric.strip_suffix("_info").unwrap_or(metric)),
            Kind::Histogram => (MetricType::Histogram, metric),
            Kind::Gauge => (MetricType::Gauge, metric),
            Kind::Counter | Kind::List => (MetricType::Counter, metric),
        };
        let unit = base_unit(figure.unit);
        let end = unit.as_ref().map_or("", |unit| unit.as_str());
        let name = name.strip_suffix(end).map_or(name, |name| name.trim_end_matches('_'));
        Family { name, metric_type, unit, help: sentence(figure.help), rows: vec![row] }
    }

    fn first(&self) -> &'static Figure {
        &FIGURES[self.rows[0]]
    }

    /// Adds the family's series in a reading to `series`.
    pub(crate) fn gather<'r>(&self, reading: &'r Reading, series: &mut Vec<Series<'r>>) {
        if self.metric_type == MetricType::Info {
            let label = |row: usize| FIGURES[row].labels.first().map_or("text", |(label, _)| label);
            let texts = self.rows.iter().map(|&row| (label(row), reading.text(row)));
            return series.push(Series {
                row: self.rows[0],
                part: "",
                value: Measure::Info(texts.collect()),
            });
        }
        for &row in &self.rows {
            let figure = &FIGURES[row];
            let number = |&number: &Number| Measure::Number(in_base_unit(figure, number));
            match (figure.kind, figure.scope) {
                (Kind::Histogram, _) => {
                    let of_row = reading.histograms.iter().filter(|it| it.is_of(figure));
                    series.extend(of_row.map(|it| Series {
                        row,
                        part: "",
                        value: Measure::Times(&it.times),
                    }));
                }
                (_, Scope::Node) => {
                    let value = reading.numbers[row].as_ref().map(number);
                    series.extend(value.map(|value| Series { row, part: "", value }));
                }
                (_, Scope::Level) => {
                    let of_row = reading.levels.iter().filter(|(of, ..)| *of == row);
                    series.extend(of_row.map(|(_, part, it)| Series { row, part, value: number(it) }));
                }
                (_, Scope::Peer) => {
                    let of_row = reading.peers.iter().filter_map(|(peer, numbers)| {
                        Some((peer, numbers.iter().find(|(of, _)| *of == row).map(|(_, it)| it)?))
                    });
                    series.extend(of_row.map(|(part, it)| Series { row, part, value: number(it) }));
                }
            }
        }
    }

    /// Has the library write these series.
    pub(crate) fn encode(&self, series: &[Series<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let is_mistaken = self.metric_type == MetricType::Gauge && base::planted!(GaugeAsCounter);
        let metric_type = if is_mistaken { MetricType::Counter } else { self.metric_type };
        let mut metric = encoder.encode_descriptor(self.name, &self.help, self.unit.as_ref(), metric_type)?;
        series.iter().try_for_each(|series| series.encode(metric_type, &mut metric))
    }
}

/// All series of a reading, family by family.
pub(crate) fn series_of(reading: &Reading) -> Vec<Series<'_>> {
    let mut series = Vec::with_capacity(FIGURES.len());
    FAMILIES.iter().for_each(|family| family.gather(reading, &mut series));
    series
}

impl Series<'_> {
    fn encode(&self, metric_type: MetricType, family: &mut MetricEncoder<'_>) -> fmt::Result {
        if let Measure::Info(texts) = &self.value {
            return family.encode_info(texts);
        }
        let mut encoder = family.encode_family(self)?;
        match (&self.value, metric_type) {
            (Measure::Number(Number::Whole(value)), MetricType::Counter) => {
                encoder.encode_counter::<NoLabelSet, u64, f64>(value, None)
            }
            (Measure::Number(Number::Part(value)), MetricType::Counter) => {
                encoder.encode_counter::<NoLabelSet, f64, f64>(value, None)
            }
            (Measure::Number(Number::Whole(value)), _) => encoder.encode_gauge(value),
            (Measure::Number(Number::Part(value)), _) => encoder.encode_gauge(value),
            (&Measure::Times(times), _) => {
                encoder.encode_histogram::<NoLabelSet>(times.sum, times.count, &times.all_buckets(), None)
            }
            (Measure::Info(_), _) => unreachable!("encoded above"),
        }
    }
}

/// The labels of a series that is no text.
impl EncodeLabelSet for Series<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let figure = &FIGURES[self.row];
        let key = base::planted!(KeyAsLabel).then_some(&("key", "k1"));
        for label in figure.labels.iter().chain(key) {
            label.encode(encoder.encode_label())?;
        }
        match figure.scope {
            Scope::Node => Ok(()),
            Scope::Level => (LEVEL, self.part).encode(encoder.encode_label()),
            Scope::Peer => (PEER, self.part).encode(encoder.encode_label()),
        }
    }
}

fn in_base_unit(figure: &Figure, number: Number) -> Number {
    match (figure.unit.divisor(), number) {
        (1.0, number) => number,
        (divisor, Number::Whole(whole)) => Number::Part(whole as f64 / divisor),
        (divisor, Number::Part(part)) => Number::Part(part / divisor),
    }
}

fn base_unit(unit: Unit) -> Option<BaseUnit> {
    match unit.base() {
        "bytes" => Some(BaseUnit::Bytes),
        "seconds" => Some(BaseUnit::Seconds),
        // The library's own is in the plural, which Prometheus does not use.
        "ratio" => Some(BaseUnit::Other("ratio".to_owned())),
        _ => None,
    }
}

/// A help as a sentence.
fn sentence(help: &str) -> String {
    let mut chars = help.chars();
    chars.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), chars.as_str()))
}
