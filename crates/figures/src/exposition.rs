//! The text of `/metrics`, by the library of Prometheus.
//!
//! 1. The library asks a collector for the families, as OpenMetrics or in the older text format.
//! 2. A [`Template`] keeps the text without its numbers.
//! 3. As long as readings have the same series, their numbers are filled in. Other series are other peers, levels or
//!    texts: then the library is asked again.
//!
//! The library takes most of the time for names, labels and edges of buckets, which are the same at each scrape.

use crate::family::{FAMILIES, Series, series_of};
use crate::reading::Reading;
use crate::template::Template;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text, text};
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;

/// Room for the text of a node with few peers, so that it grows seldom.
const TYPICAL_BYTES: usize = 64 << 10;

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

/// Writes the figures of one node, again and again.
#[derive(Debug, Default)]
pub struct Exposition {
    /// The template of each form that was asked for.
    templates: [Option<Template>; 2],
}

impl Exposition {
    /// All figures of `reading` that have a family.
    ///
    /// # Errors
    /// If the library cannot encode them, which is a mistake of ours.
    pub fn text(&mut self, reading: Reading, format: Format) -> Result<String, fmt::Error> {
        let template = &mut self.templates[format as usize];
        if let Some(template) = template {
            let series = series_of(&reading);
            if template.fits(&series) {
                return Ok(template.fill(&series));
            }
        }
        let reading = Arc::new(reading);
        let text = text_of(&reading, format)?;
        *template = Template::of(&text, &series_of(&reading), format);
        Ok(text)
    }
}

/// The text as the library writes it.
pub(crate) fn text_of(reading: &Arc<Reading>, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(Arc::clone(reading))));
    let mut out = String::with_capacity(TYPICAL_BYTES);
    match format {
        Format::Text => prometheus_text::encode(&mut out, &registry)?,
        Format::OpenMetrics => text::encode(&mut out, &registry)?,
    }
    Ok(out)
}

/// The families of a reading, as the library asks for them.
#[derive(Debug)]
struct Families(Arc<Reading>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let mut series: Vec<Series<'_>> = Vec::new();
        for family in FAMILIES.iter() {
            family.gather(&self.0, &mut series);
            if !series.is_empty() {
                family.encode(&series, &mut encoder)?;
                series.clear();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::family::{LEVEL, PEER};
    use crate::reading::{Distribution, Histogram};
    use crate::table::FIGURES;
    use serde_json::json;

    fn reading() -> Reading {
        let stats = json!({
            "nodename": "n\"1@h",
            "annulet_version": "1.2",
            "hints": 7,
            "connections": 3,
            "writes_paced_ms_total": 1_500,
            "store_pressure": 250,
            "level_2_bytes": 9,
            "level_2_bytes_more": 9,
            "peers": { "n2@h": { "peer_links_up": 2, "peer_frames_sent": 5 } },
        });
        let times = Distribution { buckets: vec![(0.000_064, 1), (0.000_088, 2)], sum: 1.5, count: 4 };
        let labels = &[("level", "eventual"), ("op", "get")];
        let times = Histogram { family: "annulet_request_seconds", labels, times };
        Reading::of(&stats, vec![times]).unwrap()
    }

    /// As the library writes it.
    fn text(reading: Reading, format: Format) -> Result<String, fmt::Error> {
        text_of(&Arc::new(reading), format)
    }

    #[test]
    fn each_kind_has_its_form_and_base_unit() {
        let text = text(reading(), Format::Text).unwrap();
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
        let text = text(reading(), Format::OpenMetrics).unwrap();
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
        let text = text(reading(), Format::Text).unwrap();
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
        let text = text(reading(), Format::Text).unwrap();
        base::planted::plant(None);
        assert!(!text.lines().any(|line| line == "# TYPE annulet_connections gauge"), "{text}");
    }
}
