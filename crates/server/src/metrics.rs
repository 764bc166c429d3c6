//! What `/metrics` says: the figures of `/stats` in Prometheus' text format, version 0.0.4.
//!
//! Each number is a metric `annulet_<name>`: a counter if it only grows, by the ending of its name or by the list here, a
//! gauge otherwise. Links have the other node's name as a label. Texts are labels of `annulet_info`.

use crate::stats::Stats;
use crate::store_figures::is_level;
use serde_json::{Map, Value};
use std::fmt::Write;

/// Figures that can fall. What is not here and no `_total` has counted since the start.
const GAUGES: &[&str] = &[
    "block_cache_bytes",
    "cluster_majority",
    "cluster_members",
    "cluster_members_reached",
    "cluster_voters",
    "cluster_voters_reached",
    "connections",
    "cpu_avg1",
    "cpu_avg15",
    "cpu_avg5",
    "cpu_nprocs",
    "journal_segments",
    "lookups_parked",
    "mem_allocated",
    "mem_total",
    "memory_answers",
    "memory_limit",
    "memory_messages",
    "memory_records",
    "memory_requests",
    "memory_total",
    "memory_values",
    "memtable_bytes",
    "node_get_fsm_time_100",
    "node_get_fsm_time_95",
    "node_get_fsm_time_99",
    "node_get_fsm_time_mean",
    "node_get_fsm_time_median",
    "node_gets",
    "node_put_fsm_time_100",
    "node_put_fsm_time_95",
    "node_put_fsm_time_99",
    "node_put_fsm_time_mean",
    "node_put_fsm_time_median",
    "node_puts",
    "pbc_active",
    "pbc_connects",
    "peers_up",
    "requests_under_way",
    "ring_num_partitions",
    "shards",
    "journal_dead_bytes",
    "journal_records_bytes",
    "merge_debt_bytes",
    "read_amplification",
    "segment_memory_bytes",
    "segments_aside",
    "segments_held",
    "space_amplification",
    "store_pressure",
    "table_bytes",
    "table_memory_bytes",
    "sys_logical_processors",
    "tables",
    "tree_bytes",
    "tree_keys",
    "trees_due",
    "write_amplification",
    "writes_held",
];

impl Stats {
    /// The metrics.
    ///
    /// # Errors
    /// If the figures are none that JSON can hold.
    pub fn metrics(&self) -> Result<String, serde_json::Error> {
        let Value::Object(all) = serde_json::to_value(self)? else { unreachable!("they are a struct") };
        let mut out = String::new();
        put_info(&all, &mut out);
        for (name, value) in &all {
            match value {
                Value::Number(number) => {
                    put_head(name, &mut out);
                    put_line(name, None, &number.to_string(), &mut out);
                }
                Value::Object(peers) if name == "peers" => put_peers(peers, &mut out),
                _ => {}
            }
        }
        self.times().for_each(|(name, times)| times.put_histogram(name, &mut out));
        self.put_engine_histograms(&mut out);
        Ok(out)
    }
}

fn put_head(name: &str, out: &mut String) {
    let kind = if GAUGES.contains(&name) || is_level(name) { "gauge" } else { "counter" };
    put_help(name, kind, out);
}

fn put_help(name: &str, kind: &str, out: &mut String) {
    let text = name.trim_end_matches("_total").replace('_', " ");
    put(out, format_args!("# HELP annulet_{name} {text}, as in /stats.\n# TYPE annulet_{name} {kind}\n"));
}

fn put_line(name: &str, label: Option<(&str, &str)>, value: &str, out: &mut String) {
    match label {
        None => put(out, format_args!("annulet_{name} {value}\n")),
        Some((label, text)) => {
            put(out, format_args!("annulet_{name}{{{label}=\"{}\"}} {value}\n", escaped(text)))
        }
    }
}

fn put_info(all: &Map<String, Value>, out: &mut String) {
    out.push_str("# HELP annulet_info The node, in labels.\n# TYPE annulet_info gauge\nannulet_info{");
    let texts = all.iter().filter_map(|(name, value)| Some((name, value.as_str()?)));
    let labels: Vec<String> = texts.map(|(name, text)| format!("{name}=\"{}\"", escaped(text))).collect();
    out.push_str(&labels.join(","));
    out.push_str("} 1\n");
}

/// The links, metric by metric: all lines of one stand together.
fn put_peers(peers: &Map<String, Value>, out: &mut String) {
    let Some(names) = peers.values().next().and_then(Value::as_object) else { return };
    for name in names.keys() {
        let name_of_metric = format!("peer_{name}");
        put_help(&name_of_metric, "counter", out);
        for (node, figures) in peers {
            if let Some(Value::Number(number)) = figures.get(name) {
                put_line(&name_of_metric, Some(("node", node)), &number.to_string(), out);
            }
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

pub(crate) fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes any text");
}
