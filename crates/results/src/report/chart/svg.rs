//! Draws a chart as SVG.

use super::{Band, BandKind, Chart, Mark, Series, Shape, Width, axis::Span};

const FULL_WIDTH: f64 = 1120.0;
const HALF_WIDTH: f64 = 548.0;
const FULL_HEIGHT: f64 = 350.0;
const HALF_HEIGHT: f64 = 310.0;
const LEFT: f64 = 68.0;
const RIGHT: f64 = 16.0;
const BOTTOM: f64 = 44.0;
/// Above the plot: the title, then rows of the legend, then the axis' label.
const TITLE: f64 = 30.0;
const LEGEND_ROW: f64 = 19.0;
const LABEL_ROW: f64 = 34.0;
/// The mean width of a character at the size of the legend: no font is measured.
const CHARACTER: f64 = 6.7;

/// Room that the name of a tick wants.
const TICK_WIDTH: f64 = 90.0;
const Y_TICKS: f64 = 6.0;

/// Where the plot lies in the drawing.
struct Frame {
    width: f64,
    height: f64,
    top: f64,
    x: Span,
    y: Span,
}

impl Frame {
    fn right(&self) -> f64 {
        self.width - RIGHT
    }

    fn bottom(&self) -> f64 {
        self.height - BOTTOM
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (self.right() - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom() - self.y.place(value) * (self.bottom() - self.top)
    }
}

/// Text that is safe between tags and in attributes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // No control character is allowed in XML.
            character if character.is_control() && character != '\n' => safe.push('\u{FFFD}'),
            character => safe.push(character),
        }
    }
    safe
}

/// The drawing's size.
pub fn size(chart: &Chart) -> (u32, u32) {
    match chart.width {
        Width::Full => (FULL_WIDTH as u32, FULL_HEIGHT as u32),
        Width::Half => (HALF_WIDTH as u32, HALF_HEIGHT as u32),
    }
}

/// The chart as an element of a page.
pub fn draw(chart: &Chart) -> String {
    let (width, height) = size(chart);
    let legend = legend(chart, f64::from(width));
    let xs = chart.series.iter().flat_map(|series| series.points.iter().map(|&(x, _)| x));
    let bases = chart.series.iter().flat_map(|series| match &series.shape {
        Shape::Area(base) => base.as_slice(),
        _ => &[],
    });
    let ys = chart.series.iter().flat_map(|series| series.points.iter().map(|&(_, y)| y));
    let frame = Frame {
        width: f64::from(width),
        height: f64::from(height),
        top: TITLE + legend.1 * LEGEND_ROW + LABEL_ROW,
        x: chart.x.span(xs, f64::from(width) / TICK_WIDTH),
        y: chart.y.span(ys.chain(bases.copied()), Y_TICKS),
    };
    let mut out = format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\" id=\"chart-{id}\" data-chart=\"{id}\">\
         <text class=\"title\" x=\"{LEFT}\" y=\"20\">{title}</text>",
        title = escape(&chart.title),
        id = escape(&chart.id),
    );
    out.push_str(&legend.0);
    if chart.is_empty() {
        let (x, y) = (frame.width / 2.0, frame.height / 2.0);
        put!(out, "<text class=\"none\" x=\"{x}\" y=\"{y}\">nothing was recorded</text></svg>");
        return out;
    }
    chart.bands.iter().for_each(|band| draw_band(&mut out, &frame, band));
    draw_axes(&mut out, &frame, chart);
    chart.series.iter().rev().for_each(|series| draw_series(&mut out, &frame, series));
    let is_wide = chart.width == Width::Full;
    chart.marks.iter().for_each(|mark| draw_mark(&mut out, &frame, mark, is_wide));
    // What the page's script needs to find points under the pointer.
    put!(
        out,
        "<g class=\"probe\" data-left=\"{LEFT}\" data-right=\"{:.1}\" data-top=\"{:.1}\" data-bottom=\"{:.1}\"/></svg>",
        frame.right(),
        frame.top,
        frame.bottom()
    );
    out
}

/// The legend's elements, and its rows.
fn legend(chart: &Chart, width: f64) -> (String, f64) {
    let mut out = String::new();
    if chart.series.is_empty() {
        return (out, 0.0);
    }
    let (mut x, mut row) = (LEFT, 0.0);
    for series in &chart.series {
        let needed = 22.0 + series.name.chars().count() as f64 * CHARACTER + 14.0;
        if x > LEFT && x + needed > width - RIGHT {
            (x, row) = (LEFT, row + 1.0);
        }
        let y = TITLE + row * LEGEND_ROW + 11.0;
        let colour = series.colour;
        let swatch = match series.shape {
            Shape::Line => format!("<path class=\"line c{colour}\" d=\"M{x:.1} {y:.1}h16\"/>"),
            Shape::Thin => format!("<path class=\"line thin c{colour}\" d=\"M{x:.1} {y:.1}h16\"/>"),
            Shape::Area(_) => {
                format!("<path class=\"area c{colour}\" d=\"M{x:.1} {:.1}h16v10h-16z\"/>", y - 5.0)
            }
            Shape::Dots => {
                format!(
                    "<path class=\"dots c{colour}\" d=\"M{:.1} {y:.1}h0M{:.1} {y:.1}h0\"/>",
                    x + 4.0,
                    x + 12.0
                )
            }
        };
        let name = escape(&series.name);
        put!(out, "{swatch}<text class=\"legend\" x=\"{:.1}\" y=\"{:.1}\">{name}</text>", x + 22.0, y + 4.0);
        x += needed;
    }
    (out, row + 1.0)
}

fn draw_axes(out: &mut String, frame: &Frame, chart: &Chart) {
    let (right, bottom) = (frame.right(), frame.bottom());
    for (value, name) in frame.y.ticks() {
        let y = frame.y(value);
        put!(
            out,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right:.1}\"/>\
             <text class=\"tick y\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            escape(&name)
        );
    }
    for (value, name) in frame.x.ticks() {
        let x = frame.x(value);
        put!(
            out,
            "<path class=\"grid\" d=\"M{x:.1} {bottom:.1}v5\"/>\
             <text class=\"tick x\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 18.0,
            escape(&name)
        );
    }
    put!(
        out,
        "<path class=\"axis\" d=\"M{LEFT} {bottom:.1}H{right:.1}\"/>\
         <text class=\"label\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>\
         <text class=\"label end\" x=\"{right:.1}\" y=\"{:.1}\">{}</text>",
        frame.top - 17.0,
        escape(&chart.y.label),
        bottom + 36.0,
        escape(&chart.x.label)
    );
}

fn draw_band(out: &mut String, frame: &Frame, band: &Band) {
    let (from, to) = (frame.x(band.x.0), frame.x(band.x.1));
    let (class, top, height) = match band.kind {
        BandKind::Uncounted => ("band", frame.top, frame.bottom() - frame.top),
        BandKind::Doubtful => ("doubt", frame.bottom() + 1.0, 4.0),
    };
    put!(
        out,
        "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\">\
         <title>{}</title></rect>",
        (to - from).max(1.0),
        escape(&band.text)
    );
}

fn draw_series(out: &mut String, frame: &Frame, series: &Series) {
    let colour = series.colour;
    let (class, path) = match &series.shape {
        Shape::Line => ("line", line(frame, &series.points)),
        Shape::Thin => ("line thin", line(frame, &series.points)),
        Shape::Area(base) => ("area", area(frame, &series.points, base)),
        Shape::Dots => ("dots", dots(frame, &series.points)),
    };
    put!(
        out,
        "<path class=\"{class} c{colour} series\" data-points=\"{}\" d=\"{path}\"/>",
        series.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()).count()
    );
}

/// A stroke; it is broken where a value is not finite. A point alone is a dot, as caps are round.
fn line(frame: &Frame, points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    let mut is_on = false;
    for (at, &(x, y)) in points.iter().enumerate() {
        if !(x.is_finite() && y.is_finite()) {
            is_on = false;
            continue;
        }
        put!(path, "{}{:.1} {:.1}", if is_on { 'L' } else { 'M' }, frame.x(x), frame.y(y));
        let is_alone = !is_on && points.get(at + 1).is_none_or(|(x, y)| !(x.is_finite() && y.is_finite()));
        if is_alone {
            path.push_str("h0");
        }
        is_on = true;
    }
    path
}

fn area(frame: &Frame, points: &[(f64, f64)], base: &[f64]) -> String {
    let both = || {
        points.iter().zip(base).filter(|((x, y), base)| x.is_finite() && y.is_finite() && base.is_finite())
    };
    let mut path = String::new();
    let mut corner = |x: f64, y: f64| {
        put!(path, "{}{:.1} {:.1}", if path.is_empty() { 'M' } else { 'L' }, frame.x(x), frame.y(y));
    };
    both().for_each(|(&(x, y), _)| corner(x, y));
    both().rev().for_each(|(&(x, _), &base)| corner(x, base));
    if !path.is_empty() {
        path.push('z');
    }
    path
}

fn dots(frame: &Frame, points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for &(x, y) in points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
        put!(path, "M{:.1} {:.1}h0", frame.x(x), frame.y(y));
    }
    path
}

/// A dashed line with its number on top, and, where there is room, what it was.
fn draw_mark(out: &mut String, frame: &Frame, mark: &Mark, is_wide: bool) {
    let (x, top) = (frame.x(mark.x), frame.top);
    let class = if mark.is_fault { "mark fault" } else { "mark" };
    put!(
        out,
        "<g class=\"{class}\"><title>{text}</title><path d=\"M{x:.1} {top:.1}V{:.1}\"/>\
         <circle cx=\"{x:.1}\" cy=\"{top:.1}\" r=\"8\"/><text class=\"number\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
        frame.bottom(),
        top + 3.5,
        mark.number,
        text = escape(&mark.text),
    );
    if is_wide {
        let is_left = x + mark.text.chars().count() as f64 * CHARACTER > frame.right() - 14.0;
        let (x, class) = if is_left { (x - 12.0, "note left") } else { (x + 12.0, "note") };
        let text = escape(&mark.text);
        put!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\">{text}</text>", top - 6.0);
    }
    out.push_str("</g>");
}

/// What the page's script shows under the pointer, as JSON: values of all lines at each x. `null` where the lines of
/// the chart do not stand over the same x.
pub fn data(chart: &Chart) -> String {
    let xs_of = |series: &Series| series.points.iter().map(|point| point.0).collect::<Vec<_>>();
    let xs = chart.series.first().map(xs_of).unwrap_or_default();
    let is_shared = |series: &Series| series.shape != Shape::Dots && xs_of(series) == xs;
    // Dots over time (the maximum of each second) stand over the same x as the lines.
    let is_time =
        chart.x.unit == super::Unit::Elapsed && chart.series.iter().all(|series| xs_of(series) == xs);
    if xs.is_empty() || !(is_time || chart.series.iter().all(is_shared)) {
        return "null".to_owned();
    }
    let span = chart.x.span(xs.iter().copied(), f64::from(size(chart).0) / TICK_WIDTH);
    let values = |series: &Series| -> Vec<Option<f64>> {
        let of = |(at, &(_, y)): (usize, &(f64, f64))| {
            let base = if let Shape::Area(base) = &series.shape { base[at] } else { 0.0 };
            (y - base).is_finite().then(|| rounded(y - base))
        };
        series.points.iter().enumerate().map(of).collect()
    };
    let series = chart.series.iter().map(|series| {
        serde_json::json!({ "name": series.name, "colour": series.colour, "values": values(series) })
    });
    let text = serde_json::json!({
        "xUnit": chart.x.unit.script_name(),
        "yUnit": chart.y.unit.script_name(),
        "places": xs.iter().map(|&x| (span.place(x) * 1e4).round() / 1e4).collect::<Vec<_>>(),
        "xs": xs.iter().map(|&x| rounded(x)).collect::<Vec<_>>(),
        "series": series.collect::<Vec<_>>(),
    });
    // A name may hold anything: no tag ends within the data.
    text.to_string().replace('<', "\\u003c")
}

/// Four digits are more than a pointer can tell apart.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let unit = 10f64.powf(value.abs().log10().floor() - 3.0);
    (value / unit).round() * unit
}
