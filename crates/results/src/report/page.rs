//! The page: everything in one file.

use super::chart::{Chart, svg};
use super::{figures, tables, verdict};
use crate::Results;

/// Colours, type, layout; light and dark.
pub const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Nothing may be loaded, from anywhere: what the page needs is in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// The report of a run as one HTML file.
pub fn html(results: &Results) -> String {
    let mut body = verdict::html(results);
    for section in figures::sections(results) {
        put!(body, "<section><h2>{}</h2>{}</section>", section.title, charts(&section.charts));
    }
    body.push_str(&tables::html(results));
    page(verdict::name(&results.manifest), &body)
}

/// Charts side by side.
pub(crate) fn charts(charts: &[Chart]) -> String {
    let mut out = "<div class=\"charts\">".to_owned();
    for chart in charts {
        let class = match chart.width {
            super::chart::Width::Full => "full",
            super::chart::Width::Half => "half",
        };
        let caption = svg::escape(&chart.caption);
        let caption =
            if caption.is_empty() { caption } else { format!("<figcaption>{caption}</figcaption>") };
        put!(
            out,
            "<figure class=\"{class}\">{}<script type=\"application/json\">{}</script>{caption}</figure>",
            svg::draw(chart),
            svg::data(chart)
        );
    }
    out + "</div>"
}

/// A whole page around a body.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{}</title><style>{STYLE}</style></head><body><main>{body}</main>\
         <div id=\"tip\" hidden></div><script>{SCRIPT}</script></body></html>\n",
        svg::escape(title)
    )
}
