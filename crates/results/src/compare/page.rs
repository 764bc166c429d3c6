//! The page of a comparison.

use super::{Comparison, Found, Verdict, forest};
use crate::report::chart::svg::escape;
use crate::report::chart::{Axis, Chart, Scale, Series, Shape, Unit, Width};
use crate::report::figures::curve;
use crate::report::intervals::percentile_us;
use crate::report::{Intervals, page};
use crate::{Kind, Manifest, Results};
use histogram::Histogram;
use std::collections::BTreeSet;

/// Colours of the sides.
const A: usize = 0;
const B: usize = 3;

/// One HTML file.
pub fn html(comparison: &Comparison<'_>) -> String {
    let (a, b) = names(comparison);
    let body = format!(
        "{}<section><h2>Ratios</h2><div class=\"charts\"><figure class=\"full\">{}</figure></div></section>\
         <section><h2>Side by side</h2>{}</section>{}{}",
        head(comparison, &a, &b),
        forest::draw(&comparison.found),
        page::charts(&charts(comparison)),
        table(comparison),
        differences(comparison),
    );
    page::page(&format!("{a} and {b}"), &body)
}

/// What the sides are called: the runs' names, if they tell them apart.
fn names(comparison: &Comparison<'_>) -> (String, String) {
    let (a, b) = &comparison.pairs[0];
    let (a, b) = (crate::report::name(&a.manifest), crate::report::name(&b.manifest));
    if a == b { (format!("A ({a})"), "B".to_owned()) } else { (format!("A: {a}"), format!("B: {b}")) }
}

fn head(comparison: &Comparison<'_>, a: &str, b: &str) -> String {
    let wrong: Vec<String> = comparison
        .pairs
        .iter()
        .flat_map(|(a, b)| [("A", a), ("B", b)])
        .filter(|(_, run)| !run.summary.verdict.passed)
        .map(|(side, run)| {
            format!("{side} of {}: {}", run.manifest.started, run.summary.verdict.failures.join("; "))
        })
        .collect();
    let count = |verdict| comparison.found.iter().filter(|it| it.verdict() == verdict).count();
    let (better, worse) = (count(Verdict::Better), count(Verdict::Worse));
    let (class, headline) = match (wrong.is_empty(), better, worse) {
        (false, ..) => ("failed", "A run was wrong: its figures mean nothing".to_owned()),
        (_, 0, 0) => ("unknown", "No difference was seen".to_owned()),
        (_, better, 0) => (
            "passed",
            format!("B is better in {better} of {} metrics, worse in none", comparison.found.len()),
        ),
        (_, 0, worse) => {
            ("failed", format!("B is worse in {worse} of {} metrics, better in none", comparison.found.len()))
        }
        (_, better, worse) => (
            "unknown",
            format!("B is better in {better} and worse in {worse} of {} metrics", comparison.found.len()),
        ),
    };
    let mut doubts = BTreeSet::new();
    if comparison.pairs.len() == 1 {
        doubts.insert(
            "one pair of runs: the bands cover changes within the runs, not from run to run".to_owned(),
        );
    }
    let runs = comparison.pairs.iter().flat_map(|(a, b)| [a, b]);
    doubts.extend(runs.flat_map(|run| run.summary.verdict.doubts.iter().cloned()));
    let list = |class: &str, texts: &mut dyn Iterator<Item = &String>| {
        let items: String = texts.map(|text| format!("<li>{}</li>", escape(text))).collect();
        if items.is_empty() { items } else { format!("<ul class=\"{class}\">{items}</ul>") }
    };
    let tiles: String = comparison.found.iter().filter(|it| is_tile(it)).map(tile).collect();
    format!(
        "<header><p class=\"kind\">benchmark comparison, {} of runs</p><h1>{} <span class=\"against\">against</span> {}</h1>\
         <div class=\"verdict {class}\"><strong>{}</strong>{}{}</div><dl class=\"tiles\">{tiles}</dl></header>",
        match comparison.pairs.len() {
            1 => "one pair".to_owned(),
            count => format!("{count} pairs"),
        },
        escape(b),
        escape(a),
        escape(&headline),
        list("failures", &mut wrong.iter()),
        list("doubts", &mut doubts.iter()),
    )
}

fn is_tile(found: &Found) -> bool {
    ["operations a second", "p50", "p99", "p99.9", "server CPU per operation"]
        .contains(&found.metric.name.as_str())
}

fn tile(found: &Found) -> String {
    let unit = found.metric.unit;
    let class = match found.verdict() {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Same => "even",
    };
    format!(
        "<div class=\"{class}\"><dt>{}</dt><dd>{:+.1} %<small>{} → {}</small></dd></div>",
        escape(&found.metric.name),
        (found.ratio.ratio - 1.0) * 100.0,
        escape(&unit.format(found.a)),
        escape(&unit.format(found.b)),
    )
}

/// Both sides in each chart. The first pair is drawn in full lines, others thin.
fn charts(comparison: &Comparison<'_>) -> Vec<Chart> {
    let elapsed = |id: &str, title: &str, y: Axis| Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        x: Axis::new("since the first second that counts", Unit::Elapsed).spanning(0.0, 1.0),
        y,
        ..Chart::default()
    };
    let rate = Axis::new("operations done in a second", Unit::Count).spanning(0.0, 1.0);
    let mut throughput = elapsed("throughput", "Throughput", rate.clone());
    throughput.width = Width::Full;
    let micros = Axis::new("all operations, from the intended start", Unit::Micros).scaled(Scale::Log);
    let mut p99 = elapsed("p99", "p99 over time", micros.clone());
    let mut accumulated = Chart {
        id: "accumulated".to_owned(),
        title: "Throughput as operations accumulate".to_owned(),
        x: Axis::new("operations done since the start", Unit::Count).spanning(0.0, 1.0),
        y: rate,
        ..Chart::default()
    };
    let mut distribution = Chart {
        id: "distribution".to_owned(),
        title: "Distribution of latency".to_owned(),
        caption: "Of all runs of a side together; each nine is as high as the next.".to_owned(),
        x: micros,
        y: Axis::new("percentile", Unit::Percentile).scaled(Scale::Nines),
        ..Chart::default()
    };
    for (name, colour) in [("A", A), ("B", B)] {
        let mut all = Histogram::default();
        for (at, (a, b)) in comparison.pairs.iter().enumerate() {
            let run = if colour == A { a } else { b };
            let shape = if at == 0 { Shape::Line } else { Shape::Thin };
            let name = if comparison.pairs.len() == 1 {
                name.to_owned()
            } else {
                format!("{name}, pair {}", at + 1)
            };
            let intervals = Intervals::of(run);
            let push = |chart: &mut Chart, points: Vec<(f64, f64)>| {
                chart.series.push(Series::line(&name, colour, points).shaped(shape.clone()));
            };
            push(&mut throughput, over_time(&intervals, |it| it.rate(None)));
            push(
                &mut p99,
                over_time(&intervals, |it| percentile_us(&it.histogram(None, Kind::Response), 99.0)),
            );
            let points = &run.summary.total.throughput.accumulated;
            push(&mut accumulated, points.iter().map(|it| (it.operations as f64, it.throughput)).collect());
            intervals.measured().for_each(|it| all.merge(&it.histogram(None, Kind::Response)));
        }
        distribution.series.push(Series::line(name, colour, curve(&all)));
    }
    vec![throughput, p99, distribution, accumulated]
}

fn over_time(
    intervals: &Intervals<'_>,
    value: impl Fn(&crate::report::Interval<'_>) -> f64,
) -> Vec<(f64, f64)> {
    let begin = intervals.measured().next().map_or(0.0, |it| it.from());
    intervals.measured().map(|it| (f64::midpoint(it.from(), it.to()) - begin, value(it))).collect()
}

fn table(comparison: &Comparison<'_>) -> String {
    let rows: String = comparison
        .found
        .iter()
        .map(|it| {
            let verdict = match it.verdict() {
                Verdict::Better => "B is better",
                Verdict::Worse => "B is worse",
                Verdict::Same => "no difference seen",
            };
            let unit = it.metric.unit;
            format!(
                "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
                 <td class=\"number\">{:.3}</td><td class=\"number\">{:.3} to {:.3}</td><td>{verdict}</td></tr>",
                escape(&it.metric.name),
                escape(&unit.format(it.a)),
                escape(&unit.format(it.b)),
                it.ratio.ratio,
                it.ratio.low,
                it.ratio.high,
            )
        })
        .collect();
    format!(
        "<section><h2>Figures</h2><div class=\"scroll\"><table><thead><tr><th></th><th class=\"number\">A</th>\
         <th class=\"number\">B</th><th class=\"number\">B / A</th><th class=\"number\">95 % band</th><th></th></tr></thead>\
         <tbody>{rows}</tbody></table></div></section>"
    )
}

/// What was configured differently: a comparison of two things at once compares nothing.
fn differences(comparison: &Comparison<'_>) -> String {
    let (a, b) = &comparison.pairs[0];
    let mut rows = String::new();
    for (name, a, b) in settings(a, b) {
        if a != b {
            put!(
                rows,
                "<tr><td>{}</td><td><pre>{}</pre></td><td><pre>{}</pre></td></tr>",
                escape(&name),
                escape(&a),
                escape(&b)
            );
        }
    }
    if rows.is_empty() {
        return "<section><h2>Configured differently</h2><p>Nothing that the results know of.</p></section>"
            .to_owned();
    }
    format!(
        "<section><h2>Configured differently</h2><div class=\"scroll\"><table><thead><tr><th></th><th>A</th><th>B</th></tr>\
         </thead><tbody>{rows}</tbody></table></div></section>"
    )
}

/// Everything that may differ: name, A's, B's.
fn settings(a: &Results, b: &Results) -> Vec<(String, String, String)> {
    let (a, b) = (&a.manifest, &b.manifest);
    let text = |name: &str, of: fn(&Manifest) -> String| (name.to_owned(), of(a), of(b));
    let mut all = vec![
        text("generator", |it| it.version.clone()),
        text("workload", |it| it.workload.clone()),
        text("driver", |it| it.driver.clone()),
        text("load", |it| format!("{} {}", it.load, it.rate.map_or(String::new(), |rate| rate.to_string()))),
        text("concurrency", |it| it.concurrency.to_string()),
        text("machine", |it| format!("{} {}", it.machine.host, it.machine.processor)),
        text("kernel", |it| it.machine.kernel.clone()),
        text("servers", |it| it.servers.len().to_string()),
    ];
    for at in 0..a.servers.len().max(b.servers.len()) {
        let of = |it: &Manifest| it.servers.get(at).cloned().unwrap_or_default();
        let (a, b) = (of(a), of(b));
        let number = at + 1;
        all.push((format!("server {number}, version"), a.version.clone(), b.version.clone()));
        all.push((format!("server {number}, limits"), format!("{:?}", a.limits), format!("{:?}", b.limits)));
        let options: BTreeSet<&String> = a.options.keys().chain(b.options.keys()).collect();
        for option in options {
            // Folders and addresses differ from run to run, and change nothing.
            if ["data", "listen", "cluster", "peer", "name"].iter().any(|it| option.contains(it)) {
                continue;
            }
            let of = |it: &crate::Server| it.options.get(option).cloned().unwrap_or_default();
            all.push((format!("server {number}, {option}"), of(&a), of(&b)));
        }
    }
    all
}
