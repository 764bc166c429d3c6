//! The tables of the page of statistics, one for each section.

use crate::figure::{Figure, Kind, Scope};
use crate::table::SECTIONS;
use std::fmt::Write;

/// The lines of all sections, as `docs/statistics.md` has them.
pub fn page() -> String {
    let mut out = String::new();
    for (title, figures) in SECTIONS {
        let heading =
            "| `/stats` | `/metrics` | kind | unit in `/stats` | meaning |\n|---|---|---|---|---|\n";
        write!(out, "\n## {title}\n\n{heading}").expect("a string takes any text");
        figures.iter().for_each(|figure| put_row(figure, &mut out));
    }
    out
}

/// The title of the section that has a figure.
pub fn section_of(figure: &Figure) -> Option<&'static str> {
    SECTIONS.iter().find(|(_, figures)| figures.contains(figure)).map(|(title, _)| *title)
}

fn put_row(figure: &Figure, out: &mut String) {
    let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
    let (stat, metric, kind) = (code(figure.stat), code(&series(figure)), figure.kind.name());
    let (unit, help) = (figure.unit.name(), figure.help);
    writeln!(out, "| {stat} | {metric} | {kind} | {unit} | {help} |").expect("a string takes any text");
}

/// The name of a series with its labels.
pub(crate) fn series(figure: &Figure) -> String {
    if figure.metric.is_empty() {
        return String::new();
    }
    let end = if figure.kind == Kind::Counter { "_total" } else { "" };
    let fixed = figure.labels.iter().map(|(label, value)| format!("{label}=\"{value}\""));
    let open = match (figure.kind, figure.scope) {
        (Kind::Histogram, _) => None,
        (_, Scope::Node) => None,
        (_, Scope::Level) => Some("level=\"N\"".to_owned()),
        (_, Scope::Peer) => Some("peer=\"NAME\"".to_owned()),
    };
    let labels: Vec<String> = fixed.chain(open).collect();
    match labels.is_empty() {
        true => format!("{}{end}", figure.metric),
        false => format!("{}{end}{{{}}}", figure.metric, labels.join(",")),
    }
}
