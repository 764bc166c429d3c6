//! The text of `/metrics`, by the library of Prometheus.
//!
//! 1. The rows of the table are grouped once, in families: a family where its first row stands.
//! 2. At a scrape, the library asks a collector for the families, as OpenMetrics or in the older text format. A family
//!    gathers its series from the [`Reading`].
//!
//! Invariant: a family and its help stand once, and all of its series behind them.

use crate::figure::{Figure, Kind, Scope, Unit};
use crate::reading::{Distribution, Reading};
use crate::table::FIGURES;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit as BaseUnit};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

/// The label with a peer's name.
const PEER: &str = "peer";

/// Room for the text of a node with few peers, so that it grows seldom.
const TYPICAL_BYTES: usize = 64 << 10;

/// The label with a level's number.
const LEVEL: &str = "level";

/// The forms of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format, version 0.0.4.
    Text,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The form that a scraper's header `Accept` asks for.
    pub fn accepted(accept: &[u8]) -> Format {
        let is_asked = accept.split(|&byte| byte == b',').any(|media| {
            let name = media.split(|&byte| byte == b';').next().unwrap_or_default();
            name.trim_ascii().eq_ignore_ascii_case(b"application/openmetrics-text")
        });
        if is_asked { Format::OpenMetrics } else { Format::Text }
    }

    /// The value of the header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => prometheus_text::CONTENT_TYPE,
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Writes all figures of `reading` that have a family.
///
/// # Errors
/// If the library cannot encode them, which is a mistake of ours.
pub fn exposition(reading: Reading, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(reading)));
    let mut out = String::with_capacity(TYPICAL_BYTES);
    match format {
        Format::Text => prometheus_text::encode(&mut out, &registry)?,
        Format::OpenMetrics => text::encode(&mut out, &registry)?,
    }
    Ok(out)
}

/// Labels of a series.
type LabelSet<'r> = Vec<(&'static str, Cow<'r, str>)>;

/// One series of a family.
struct Series<'r> {
    labels: LabelSet<'r>,
    value: Measure<'r>,
}

enum Measure<'r> {
    Whole(u64),
    Part(f64),
    Times(&'r Distribution),
    /// 1: the labels say all.
    Info,
}

/// The families of a reading, as the library asks for them.
#[derive(Debug)]
struct Families(Reading);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let has_number = |name: &str| name.bytes().any(|byte| byte.is_ascii_digit());
        let levels: Levels<'_> = self
            .0
            .stats
            .iter()
            .filter(|(name, _)| has_number(name))
            .map(|(name, value)| (&**name, value))
            .collect();
        let mut series = Vec::new();
        for family in FAMILIES.iter() {
            family.gather(&self.0, &levels, &mut series);
            if !series.is_empty() {
                family.encode(&series, &mut encoder)?;
                series.clear();
            }
        }
        Ok(())
    }
}

/// Those values of `/stats` that can be of a level: their names have a number.
type Levels<'r> = Vec<(&'r str, &'r Value)>;

/// What the table says of a family: the same for all readings.
struct Family {
    /// Its name, without the unit that the library puts behind it.
    name: &'static str,
    metric_type: MetricType,
    unit: Option<BaseUnit>,
    /// Its help, as a sentence.
    help: String,
    /// Its rows. The first one stands for it.
    figures: Vec<&'static Figure>,
}

/// All families, each where its first row stands. They are made once, since a scrape would search the whole table for
/// each row.
static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let mut families: Vec<Family> = Vec::new();
    for figure in FIGURES.iter().filter(|figure| !figure.metric.is_empty()) {
        match families.iter_mut().find(|family| family.figures[0].metric == figure.metric) {
            Some(family) => family.figures.push(figure),
            None => families.push(Family::of(figure)),
        }
    }
    families
});

impl Family {
    fn of(figure: &'static Figure) -> Family {
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
        Family { name, metric_type, unit, help: sentence(figure.help), figures: vec![figure] }
    }

    /// Adds the family's series in a reading to `series`.
    fn gather<'r>(&self, reading: &'r Reading, levels: &Levels<'r>, series: &mut Vec<Series<'r>>) {
        if self.metric_type == MetricType::Info {
            return series.push(Series { labels: self.texts(reading), value: Measure::Info });
        }
        for figure in self.figures.iter().copied() {
            match (figure.kind, figure.scope) {
                (Kind::Histogram, _) => {
                    let of_figure = reading.histograms.iter().find(|it| it.is_of(figure));
                    let times = of_figure.map(|it| Measure::Times(&it.times));
                    series.extend(times.map(|value| Series { labels: labels(figure), value }));
                }
                (_, Scope::Node) => {
                    let value = reading.stats.get(figure.stat).and_then(|value| measure(figure, value));
                    series.extend(value.map(|value| Series { labels: labels(figure), value }));
                }
                (_, Scope::Level) => add_levels(figure, levels, series),
                (_, Scope::Peer) => add_peers(figure, reading, series),
            }
        }
    }

    /// All texts of a family are labels of one series.
    fn texts<'r>(&self, reading: &'r Reading) -> LabelSet<'r> {
        let label = |figure: &Figure| {
            let text = reading.stats.get(figure.stat).and_then(Value::as_str).unwrap_or_default();
            (figure.labels.first().map_or("text", |(label, _)| label), Cow::Borrowed(text))
        };
        self.figures.iter().map(|figure| label(figure)).collect()
    }

    fn encode(&self, series: &[Series<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let is_mistaken = self.metric_type == MetricType::Gauge && base::planted!(GaugeAsCounter);
        let metric_type = if is_mistaken { MetricType::Counter } else { self.metric_type };
        let mut metric = encoder.encode_descriptor(self.name, &self.help, self.unit.as_ref(), metric_type)?;
        series.iter().try_for_each(|series| series.encode(metric_type, &mut metric))
    }
}

fn add_levels<'r>(figure: &Figure, levels: &Levels<'r>, series: &mut Vec<Series<'r>>) {
    for (name, value) in levels {
        if let Some(level) = figure.level_of(name)
            && let Some(value) = measure(figure, value)
        {
            series.push(Series { labels: vec![(LEVEL, Cow::Borrowed(level))], value });
        }
    }
}

fn add_peers<'r>(figure: &Figure, reading: &'r Reading, series: &mut Vec<Series<'r>>) {
    let Some(Value::Object(peers)) = reading.stats.get("peers") else { return };
    for (peer, figures) in peers {
        if let Some(value) = figures.get(figure.stat).and_then(|value| measure(figure, value)) {
            let mut labels = labels(figure);
            labels.push((PEER, Cow::Borrowed(peer)));
            series.push(Series { labels, value });
        }
    }
}

fn labels(figure: &Figure) -> LabelSet<'static> {
    let key = base::planted!(KeyAsLabel).then_some(&("key", "k1"));
    figure.labels.iter().chain(key).map(|(label, value)| (*label, Cow::Borrowed(*value))).collect()
}

/// The value in the base unit.
fn measure(figure: &Figure, value: &Value) -> Option<Measure<'static>> {
    match (figure.unit.divisor(), value.as_u64()) {
        (1.0, Some(whole)) => Some(Measure::Whole(whole)),
        (divisor, _) => value.as_f64().map(|value| Measure::Part(value / divisor)),
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

impl Series<'_> {
    fn encode(&self, metric_type: MetricType, family: &mut MetricEncoder<'_>) -> fmt::Result {
        if let Measure::Info = self.value {
            return family.encode_info(&self.labels);
        }
        match self.labels.is_empty() {
            true => self.encode_value(metric_type, family),
            false => self.encode_value(metric_type, &mut family.encode_family(&self.labels)?),
        }
    }

    fn encode_value(&self, metric_type: MetricType, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        match (&self.value, metric_type) {
            (Measure::Whole(value), MetricType::Counter) => {
                encoder.encode_counter::<NoLabelSet, u64, f64>(value, None)
            }
            (Measure::Part(value), MetricType::Counter) => {
                encoder.encode_counter::<NoLabelSet, f64, f64>(value, None)
            }
            (Measure::Whole(value), _) => encoder.encode_gauge(value),
            (Measure::Part(value), _) => encoder.encode_gauge(value),
            (&Measure::Times(times), _) => {
                encoder.encode_histogram::<NoLabelSet>(times.sum, times.count, &times.all_buckets(), None)
            }
            (Measure::Info, _) => unreachable!("encoded above"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::reading::Histogram;
    use serde_json::json;

    fn reading() -> Reading {
        let Value::Object(stats) = json!({
            "nodename": "n\"1@h",
            "annulet_version": "1.2",
            "hints": 7,
            "connections": 3,
            "writes_paced_ms_total": 1_500,
            "store_pressure": 250,
            "level_2_bytes": 9,
            "level_2_bytes_more": 9,
            "peers": { "n2@h": { "peer_links_up": 2, "peer_frames_sent": 5 } },
        }) else {
            unreachable!("it is an object")
        };
        let times = Distribution { buckets: vec![(0.000_064, 1), (0.000_088, 2)], sum: 1.5, count: 4 };
        let labels = &[("level", "eventual"), ("op", "get")];
        Reading { stats, histograms: vec![Histogram { family: "annulet_request_seconds", labels, times }] }
    }

    #[test]
    fn each_kind_has_its_form_and_base_unit() {
        let text = exposition(reading(), Format::Text).unwrap();
        for line in [
            "# TYPE annulet_hints_total counter",
            "annulet_hints_total 7",
            "# TYPE annulet_connections gauge",
            "annulet_connections 3",
            "annulet_writes_paced_seconds_total 1.5",
            "annulet_store_pressure_ratio 0.25",
            "annulet_level_bytes{level=\"2\"} 9",
            "annulet_peer_links{direction=\"out\",peer=\"n2@h\"} 2",
            "annulet_peer_messages_total{direction=\"out\",peer=\"n2@h\"} 5",
            "annulet_request_seconds_bucket{level=\"eventual\",op=\"get\",le=\"8.8e-05\"} 3",
            "annulet_request_seconds_bucket{level=\"eventual\",op=\"get\",le=\"+Inf\"} 4",
            "annulet_request_seconds_count{level=\"eventual\",op=\"get\"} 4",
            "# TYPE annulet_build_info gauge",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
        }
        assert!(text.contains("node=\"n\\\"1@h\""), "{text}");
        assert_eq!(text.matches("annulet_level_bytes{").count(), 1, "a name that only begins alike");
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }

    #[test]
    fn openmetrics_has_units_and_an_end() {
        let text = exposition(reading(), Format::OpenMetrics).unwrap();
        for line in [
            "# TYPE annulet_writes_paced_seconds counter",
            "# UNIT annulet_writes_paced_seconds seconds",
            "annulet_writes_paced_seconds_total 1.5",
            "# TYPE annulet_build info",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn a_scraper_gets_the_form_that_it_asks_for() {
        for (accept, format) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", Format::Text),
            ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", Format::OpenMetrics),
            ("text/plain;q=0.5, Application/OpenMetrics-Text", Format::OpenMetrics),
        ] {
            assert_eq!(Format::accepted(accept.as_bytes()), format, "{accept}");
        }
    }

    /// Values of all other labels are of the table, so the number of series is bounded.
    #[test]
    fn only_peers_levels_and_edges_are_labels_beside_those_of_the_table() {
        let of_table = FIGURES.iter().flat_map(|figure| figure.labels.iter().map(|(label, _)| *label));
        let known: Vec<&str> = of_table.chain([PEER, LEVEL, "le"]).collect();
        let text = exposition(reading(), Format::Text).unwrap();
        let mut seen = 0;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((_, labels)) = line.split_once('{') else { continue };
            for label in
                labels.split_once('}').unwrap().0.split("\",").flat_map(|label| label.split('=').next())
            {
                assert!(known.contains(&label), "{line}");
                seen += 1;
            }
        }
        assert!(seen > 10, "{text}");
    }

    #[cfg(feature = "planted")]
    #[test]
    fn planted_key_as_label_is_seen() {
        base::planted::plant(Some(base::planted::Planted::KeyAsLabel));
        let caught =
            std::panic::catch_unwind(only_peers_levels_and_edges_are_labels_beside_those_of_the_table);
        base::planted::plant(None);
        assert!(caught.is_err(), "a label with a key passes the test");
    }

    /// A gauge that is exported as a counter has another name and another type: a test of the product's rows sees it.
    #[cfg(feature = "planted")]
    #[test]
    fn planted_gauge_as_counter_is_seen() {
        base::planted::plant(Some(base::planted::Planted::GaugeAsCounter));
        let text = exposition(reading(), Format::Text).unwrap();
        base::planted::plant(None);
        assert!(!text.lines().any(|line| line == "# TYPE annulet_connections gauge"), "{text}");
    }
}
