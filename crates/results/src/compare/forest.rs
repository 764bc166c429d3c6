//! Ratios with their bands, one below the other, around the line where both sides are the same (a forest plot).

use super::{Found, Verdict};
use crate::report::chart::svg::escape;

const WIDTH: f64 = 1120.0;
const LEFT: f64 = 230.0;
const RIGHT: f64 = 190.0;
const ROW: f64 = 26.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 44.0;

/// Ratios beyond stand at the edge.
const EDGES: (f64, f64) = (0.1, 10.0);

/// The axis spans at least this, so that a difference of a few per cent does not look like much.
const SPAN_MIN: (f64, f64) = (0.8, 1.25);

/// Ratios that may have a tick, those that must not be missing first; they are this far apart.
const TICKS: [f64; 17] =
    [1.0, 2.0, 0.5, 1.25, 0.8, 1.5, 0.67, 5.0, 0.2, 10.0, 0.1, 1.1, 0.9, 3.0, 0.33, 1.05, 0.95];
const TICK_WIDTH: f64 = 46.0;

/// Where ratios stand: each factor is as long as the next.
struct Place {
    low: f64,
    high: f64,
}

impl Place {
    fn of(found: &[Found]) -> Place {
        let ends = found.iter().flat_map(|it| [it.ratio.low, it.ratio.high]);
        let (low, high) = ends.fold(SPAN_MIN, |(low, high), end| (low.min(end), high.max(end)));
        Place { low: (low * 0.97).max(EDGES.0).ln(), high: (high * 1.03).min(EDGES.1).ln() }
    }

    fn x(&self, ratio: f64) -> f64 {
        let place = (ratio.ln() - self.low) / (self.high - self.low);
        LEFT + place.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn ticks(&self) -> Vec<f64> {
        let mut ticks: Vec<f64> = Vec::new();
        for tick in TICKS {
            let is_within = (self.low..=self.high).contains(&tick.ln());
            if is_within && ticks.iter().all(|&other| (self.x(other) - self.x(tick)).abs() >= TICK_WIDTH) {
                ticks.push(tick);
            }
        }
        ticks
    }
}

/// The plot as an element of a page.
pub fn draw(found: &[Found]) -> String {
    let (height, bottom) = (TOP + found.len() as f64 * ROW + BOTTOM, TOP + found.len() as f64 * ROW);
    let place = Place::of(found);
    let x = |ratio: f64| place.x(ratio);
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"B over A\">\
         <text class=\"title\" x=\"16\" y=\"22\">B over A, with 95 % bands</text>"
    );
    for tick in place.ticks() {
        let x = x(tick);
        put!(
            out,
            "<path class=\"grid\" d=\"M{x:.1} {TOP:.1}V{bottom:.1}\"/>\
             <text class=\"tick x\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 18.0,
            tick
        );
    }
    put!(out, "<path class=\"same\" d=\"M{:.1} {TOP:.1}V{bottom:.1}\"/>", x(1.0));
    for (at, it) in found.iter().enumerate() {
        let y = TOP + (at as f64 + 0.5) * ROW;
        let class = match it.verdict() {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Same => "even",
        };
        let band = it.ratio;
        put!(
            out,
            "<g class=\"ratio {class}\"><text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
             <path d=\"M{:.1} {y:.1}H{:.1}\"/><circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>\
             <text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
            LEFT - 14.0,
            y + 4.0,
            escape(&it.metric.name),
            x(band.low),
            x(band.high),
            x(band.ratio),
            WIDTH - RIGHT + 14.0,
            y + 4.0,
            escape(&percents(it))
        );
    }
    put!(
        out,
        "<text class=\"label end\" x=\"{:.1}\" y=\"{:.1}\">ratio</text></svg>",
        WIDTH - RIGHT,
        bottom + 36.0
    );
    out
}

/// The difference and its band in per cent.
pub fn percents(found: &Found) -> String {
    let percent = |ratio: f64| format!("{:+.1}", (ratio - 1.0) * 100.0);
    let band = found.ratio;
    format!("{} %  ({} to {})", percent(band.ratio), percent(band.low), percent(band.high))
}
