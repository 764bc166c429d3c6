//! `annulet admin slow`: the last slow requests of a node, and their threshold, at run time.

use super::cluster::{Shown, taken};
use super::table::{cell, table};
use crate::failure::Failure;
use serde_json::{Value, json};

/// The threshold to set; none to show the last slow requests.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    shown: Shown,
    /// Least time of a slow request, such as 250ms, or off [default: set none].
    #[arg(value_name = "TIME")]
    threshold: Option<String>,
}

/// Sets it, and shows the last slow requests.
pub fn run(args: &Args) -> Result<(), Failure> {
    let slow = match &args.threshold {
        None => args.shown.ask("/admin/slow")?,
        Some(threshold) => taken(args.shown.post("/admin/slow", &json!({ "threshold": threshold }))?)?,
    };
    args.shown.tell(&slow, || text(&slow))
}

fn text(slow: &Value) -> String {
    let lines = slow["lines"].as_array().into_iter().flatten();
    let rows: Vec<Vec<String>> = lines.map(row).collect();
    let summary =
        format!("threshold: {}, lines left out: {}", cell(&slow["threshold"]), cell(&slow["left_out"]));
    match rows[..] {
        [] => summary,
        _ => format!(
            "{summary}\n{}",
            table(&["op", "type", "bucket", "key", "ms", "ended", "longest waits"], &rows)
        ),
    }
}

fn row(line: &Value) -> Vec<String> {
    let ended = match (&line["waits"], &line["error"]) {
        (Value::Bool(true), _) => "no".to_owned(),
        (_, Value::Null) => "yes".to_owned(),
        (_, error) => cell(error),
    };
    let names = ["op", "bucket_type", "bucket", "key", "ms"].map(|name| cell(&line[name]));
    names.into_iter().chain([ended, longest(line)]).collect()
}

/// The two stages that took longest, and the node that did.
fn longest(line: &Value) -> String {
    let ms = |value: &Value| value.as_f64().unwrap_or_default();
    let mut stages: Vec<(&String, &Value)> = line["stages_ms"].as_object().into_iter().flatten().collect();
    stages.sort_by(|a, b| ms(b.1).total_cmp(&ms(a.1)));
    let stages = stages.into_iter().take(2).filter(|(_, time)| ms(time) > 0.0);
    let stages = stages.map(|(name, time)| format!("{name} {time}"));
    let replicas = line["replicas"].as_array().into_iter().flatten();
    let node = replicas.max_by(|a, b| ms(&a["ms"]).total_cmp(&ms(&b["ms"])));
    let node = node.map(|node| format!("{} {}", cell(&node["node"]), node["ms"]));
    stages.chain(node).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_requests_are_a_table() {
        let none = json!({ "threshold": "100ms", "left_out": 0, "lines": [] });
        assert_eq!(text(&none), "threshold: 100ms, lines left out: 0");
        let line = json!({
            "op": "put", "bucket_type": "default", "bucket": "b", "key": "0f", "ms": 120.5, "waits": true,
            "stages_ms": { "queued": 0.5, "sync": 20.0, "replicas": 100.0, "disk": 0.0 },
            "replicas": [{ "node": "b@h", "ms": 1.0, "waits": false }, { "node": "c@h", "ms": 119.0, "waits": true }],
            "error": null,
        });
        let slow = json!({ "threshold": "100ms", "left_out": 3, "lines": [line] });
        assert_eq!(
            text(&slow),
            "threshold: 100ms, lines left out: 3\n\
             op   type     bucket  key  ms     ended  longest waits\n\
             put  default  b       0f   120.5  no     replicas 100.0, sync 20.0, c@h 119.0"
        );
    }
}
