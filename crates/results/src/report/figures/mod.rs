//! The charts of a run, in the order of the page.

mod latency;
mod load;
mod resources;

pub(crate) use latency::curve;

use super::chart::{Axis, Band, BandKind, Chart, Mark, Unit, Width};
use super::intervals::{Interval, Intervals};
use crate::{Event, Phase, Results};
use std::collections::BTreeSet;

/// Charts that belong together.
pub struct Section {
    /// Its name.
    pub title: &'static str,
    /// Its charts; at least one.
    pub charts: Vec<Chart>,
}

/// All charts that the results have something for.
pub fn sections(results: &Results) -> Vec<Section> {
    let run = Run::new(results);
    let sections = [
        ("Throughput", load::charts(&run)),
        ("Latency", latency::charts(&run)),
        ("Resources", resources::charts(&run)),
    ];
    let filled = sections.into_iter().map(|(title, charts)| {
        let charts = charts.into_iter().filter(|chart| !chart.is_empty()).collect();
        Section { title, charts }
    });
    filled.filter(|section| !section.charts.is_empty()).collect()
}

/// Events that charts mark: what was done to the servers, not what the run did by itself.
pub fn marked(results: &Results) -> impl Iterator<Item = &Event> {
    results.events.iter().filter(|event| matches!(event.kind.as_str(), "fault" | "repair" | "job"))
}

/// What every chart is made from.
struct Run<'a> {
    results: &'a Results,
    intervals: Intervals<'a>,
    marks: Vec<Mark>,
    bands: Vec<Band>,
}

impl<'a> Run<'a> {
    fn new(results: &'a Results) -> Run<'a> {
        let intervals = Intervals::of(results);
        let mark = |(at, event): (usize, &Event)| Mark {
            x: event.at_s,
            number: at + 1,
            text: event.text.clone(),
            is_fault: event.kind == "fault",
        };
        let marks = marked(results).enumerate().map(mark).collect();
        let bands = bands(&intervals);
        Run { results, intervals, marks, bands }
    }

    /// A chart over time, with its marks and bands, and no series yet.
    fn over_time(&self, id: &str, title: &str, caption: &str, y: Axis) -> Chart {
        let end = self.intervals.all.last().map_or(1.0, |interval| interval.to());
        Chart {
            id: id.to_owned(),
            title: title.to_owned(),
            caption: caption.to_owned(),
            width: Width::Half,
            x: Axis::new("since the start of the run", Unit::Elapsed).spanning(0.0, end),
            y,
            series: Vec::new(),
            marks: self.marks.clone(),
            bands: self.bands.clone(),
        }
    }
}

/// Phases that do not count, and seconds that are in doubt.
fn bands(intervals: &Intervals<'_>) -> Vec<Band> {
    let mut bands = Vec::new();
    for group in intervals.all.chunk_by(|a, b| a.phase() == b.phase()) {
        let text = match group[0].phase() {
            Phase::Measured => continue,
            Phase::WarmUp => "warm-up: counts in no figure",
            Phase::Trailing => "after the last operation was begun: counts in no figure",
        };
        let x = (group[0].from(), group[group.len() - 1].to());
        bands.push(Band { x, kind: BandKind::Uncounted, text: text.to_owned() });
    }
    for group in intervals.all.chunk_by(|a, b| doubts(a) == doubts(b)) {
        let text = doubts(&group[0]);
        if !text.is_empty() {
            let x = (group[0].from(), group[group.len() - 1].to());
            bands.push(Band { x, kind: BandKind::Doubtful, text });
        }
    }
    bands
}

/// Why an interval is in doubt; empty if it is not.
fn doubts(interval: &Interval<'_>) -> String {
    let marks: BTreeSet<_> = interval.seconds.iter().flat_map(|second| &second.marks).collect();
    let texts: Vec<&str> = marks.into_iter().map(|mark| mark.describe()).collect();
    texts.join("; ")
}
