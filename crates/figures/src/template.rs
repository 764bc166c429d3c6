//! The text of readings with the same series, without its numbers.
//!
//! 1. The library writes the text of one reading. The end of a line, behind its last space, is a number, unless the
//!    line is a comment. Labels may have spaces, a number has none.
//! 2. The numbers of another reading are filled in, in the order of the series.
//!
//! Invariants
//! * A template gives back the text that it was made of, for the reading of that text; otherwise there is none.
//! * It is used for readings alone that have the same rows, peers, levels, texts and edges of buckets.

use crate::exposition::Format;
use crate::family::{Measure, Series};
use crate::reading::{Distribution, Number};

/// The longest number: the digits of a `f64` with its sign, point and exponent.
const NUMBER_BYTES_MAX: usize = 24;

/// The text without its numbers.
#[derive(Debug)]
pub(crate) struct Template {
    format: Format,
    outlines: Vec<Outline>,
    fixed: String,
    /// Where numbers go, as places in `fixed`.
    gaps: Vec<usize>,
}

/// The fixed part of a series.
#[derive(Debug)]
struct Outline {
    row: usize,
    part: String,
    texts: Vec<String>,
    edges: Vec<f64>,
}

impl Template {
    /// Of the text of these series. `None` if the numbers in it are not those of the series in their order.
    pub(crate) fn of(text: &str, series: &[Series<'_>], format: Format) -> Option<Template> {
        let (mut fixed, mut gaps) = (String::with_capacity(text.len()), Vec::new());
        for line in text.split_inclusive('\n') {
            match line.rfind(' ').filter(|_| !line.starts_with('#')) {
                Some(space) => {
                    fixed.push_str(&line[..=space]);
                    gaps.push(fixed.len());
                    fixed.push('\n');
                }
                None => fixed.push_str(line),
            }
        }
        let template = Template { format, outlines: series.iter().map(Outline::of).collect(), fixed, gaps };
        (template.fill(series) == text).then_some(template)
    }

    /// Whether these series are the template's, but for their numbers.
    pub(crate) fn fits(&self, series: &[Series<'_>]) -> bool {
        self.outlines.len() == series.len()
            && self.outlines.iter().zip(series).all(|(it, series)| it.is_of(series))
    }

    /// The text with the numbers of these series, which fit.
    pub(crate) fn fill(&self, series: &[Series<'_>]) -> String {
        let mut out = String::with_capacity(self.fixed.len() + self.gaps.len() * NUMBER_BYTES_MAX);
        let (mut gaps, mut done) = (self.gaps.iter(), 0);
        let mut put = |number: Number| {
            let gap = gaps.next().copied().unwrap_or(self.fixed.len());
            out.push_str(&self.fixed[done..gap]);
            done = gap;
            match number {
                Number::Whole(value) => out.push_str(itoa::Buffer::new().format(value)),
                Number::Part(value) => out.push_str(dtoa::Buffer::new().format_finite(value)),
            }
        };
        for series in series {
            match &series.value {
                Measure::Number(number) => put(*number),
                Measure::Info(_) => put(Number::Whole(1)),
                Measure::Times(times) => put_times(times, self.format, &mut put),
            }
        }
        out.push_str(&self.fixed[done..]);
        out
    }
}

/// Numbers of a histogram, in the order of the form.
fn put_times(times: &Distribution, format: Format, put: &mut impl FnMut(Number)) {
    let (sum, count) = (Number::Part(times.sum), Number::Whole(times.count));
    if format == Format::OpenMetrics {
        [sum, count].into_iter().for_each(&mut *put);
    }
    let mut within = 0;
    for (_, in_bucket) in times.all_buckets() {
        within += in_bucket;
        put(Number::Whole(within));
    }
    if format == Format::Text {
        [sum, count].into_iter().for_each(put);
    }
}

impl Outline {
    fn of(series: &Series<'_>) -> Outline {
        let (texts, edges) = match &series.value {
            Measure::Number(_) => Default::default(),
            Measure::Info(texts) => (texts.iter().map(|(_, text)| (*text).to_owned()).collect(), Vec::new()),
            Measure::Times(times) => (Vec::new(), times.buckets.iter().map(|(edge, _)| *edge).collect()),
        };
        Outline { row: series.row, part: series.part.to_owned(), texts, edges }
    }

    fn is_of(&self, series: &Series<'_>) -> bool {
        let fits = match &series.value {
            Measure::Number(_) => true,
            Measure::Info(texts) => texts.iter().map(|(_, text)| *text).eq(self.texts.iter()),
            Measure::Times(times) => times.buckets.iter().map(|(edge, _)| edge).eq(self.edges.iter()),
        };
        fits && self.row == series.row && self.part == series.part
    }
}
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::exposition::{Exposition, text_of};
    use crate::family::series_of;
    use crate::reading::{Histogram, Reading};
    use base::Rng;
    use base::rng::SplitMix64;
    use serde_json::{Value, json};
    use std::sync::Arc;

    const FORMATS: [Format; 2] = [Format::Text, Format::OpenMetrics];

    /// A node with a peer and a level, and other numbers for each seed.
    fn stats(seed: u64) -> Value {
        let mut rng = SplitMix64::new(seed);
        let mut whole = || rng.next_u64() >> (seed % 64);
        json!({
            "nodename": "n 1@h", "annulet_version": "1.2", "hints": whole(), "connections": whole(),
            "writes_paced_ms_total": whole(), "store_pressure": whole(), "write_amplification": whole() as f64 / 1e9,
            "level_2_bytes": whole(), "peers": { "n2@h": { "peer_links_up": whole(), "peer_frames_sent": whole() } },
        })
    }

    fn reading(stats: &Value, seed: u64, edge: f64) -> Reading {
        let times = Distribution {
            buckets: vec![(0.000_064, seed), (edge, 2 * seed)],
            sum: seed as f64 / 3e6,
            count: 4 * seed,
        };
        let labels = &[("level", "eventual"), ("op", "get")];
        let times = Histogram { family: "annulet_request_seconds", labels, times };
        Reading::of(stats, vec![times]).unwrap()
    }

    #[test]
    fn numbers_are_written_as_the_library_writes_them() {
        for format in FORMATS {
            let first = Arc::new(reading(&stats(0), 0, 0.1));
            let series = series_of(&first);
            let template = Template::of(&text_of(&first, format).unwrap(), &series, format).unwrap();
            for seed in 0..200 {
                let other = Arc::new(reading(&stats(seed), seed, 0.1));
                let series = series_of(&other);
                assert!(template.fits(&series));
                assert_eq!(
                    template.fill(&series),
                    text_of(&other, format).unwrap(),
                    "{format:?}, seed {seed}"
                );
            }
        }
    }

    /// Each of them is asked for in turns with the one that was first.
    #[test]
    fn other_series_have_another_text() {
        let changes: [fn(&mut Value); 6] = [
            |stats| stats["peers"]["n3@h"] = json!({ "peer_links_up": 1 }),
            |stats| stats["peers"] = json!({ "n3@h": { "peer_links_up": 2, "peer_frames_sent": 3 } }),
            |stats| stats["level_3_bytes"] = 1.into(),
            |stats| stats["nodename"] = "n2@h".into(),
            |stats| drop(stats.as_object_mut().unwrap().remove("hints")),
            |stats| stats["graves"] = 1.into(),
        ];
        let others = changes.map(|change| {
            let mut stats = stats(1);
            change(&mut stats);
            reading(&stats, 1, 0.1)
        });
        for format in FORMATS {
            let mut exposition = Exposition::default();
            for other in others.iter().cloned().chain([reading(&stats(1), 1, 0.2)]) {
                for reading in [reading(&stats(2), 2, 0.1), other] {
                    let text = text_of(&Arc::new(reading.clone()), format).unwrap();
                    assert_eq!(exposition.text(reading, format).unwrap(), text);
                }
            }
        }
    }

    #[test]
    fn a_text_with_other_numbers_is_no_template() {
        let reading = reading(&stats(1), 1, 0.1);
        let series = series_of(&reading);
        for text in ["", "annulet_hints_total 1\n", "# HELP a b.\n"] {
            assert!(Template::of(text, &series, Format::Text).is_none(), "{text}");
        }
    }
}
