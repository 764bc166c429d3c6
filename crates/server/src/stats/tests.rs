//! Tests of the figures, their table, their page and their text.

#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;
use engine::store::StoreStats;
use figures::{Exposition, FIGURES, Format, Kind, SERIES_MAX, SERIES_PER_PEER_MAX};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/statistics.md");

fn peers(names: [&str; 2]) -> impl Iterator<Item = (NodeId, &str)> {
    (0..).map(NodeId).zip(names)
}

#[test]
fn names_are_riaks() {
    let stats = Stats::of("n@h", "1", 64, 3, &[]).with_peers(peers(["m@h", "n@h"]), &[], 0);
    let json = serde_json::to_value(&stats).unwrap();
    for name in [
        "nodename",
        "riak_kv_version",
        "riak_core_version",
        "storage_backend",
        "storage_type_backends",
        "ring_members",
        "ring_num_partitions",
        "node_gets",
        "node_gets_total",
        "node_puts",
        "node_puts_total",
        "node_get_fsm_time_mean",
        "node_get_fsm_time_median",
        "node_put_fsm_time_95",
        "node_put_fsm_time_99",
        "node_put_fsm_time_100",
        "vnode_gets_total",
        "read_repairs_total",
        "memory_total",
        "mem_total",
        "mem_allocated",
        "cpu_avg1",
        "cpu_nprocs",
        "sys_logical_processors",
        "pbc_active",
        "pbc_connects",
        "pbc_connects_total",
        "connected_nodes",
        "coord_redirs_total",
    ] {
        assert!(json.get(name).is_some(), "{name}");
    }
}

/// A node with a peer, and levels in its ledger.
fn served() -> Stats {
    let mut stats = Stats::of("n\"@h", "1", 64, 3, &[]).with_peers(peers(["m@h", "n\"@h"]), &[], 0);
    let mut store = StoreStats::default();
    store.levels[2].tables = 3;
    stats.engine.add(&store);
    for (level, found) in store.counters.found_in_level.iter().enumerate() {
        stats.lookups_found.insert(format!("lookups_found_level_{level}"), *found);
    }
    stats
}

fn metrics(stats: &Stats) -> String {
    Exposition::default().text(stats.reading().unwrap(), Format::Text).unwrap()
}

#[test]
fn the_table_has_every_figure_and_no_other() {
    let Value::Object(stats) = serde_json::to_value(served()).unwrap() else {
        unreachable!("they are a struct")
    };
    let histograms = served().histograms();
    for (name, value) in &stats {
        let of_name = FIGURES.iter().find(|figure| figure.is_named(name));
        let figure = of_name.unwrap_or_else(|| panic!("the table lacks {name}"));
        let is_number = !matches!(figure.kind, Kind::Text | Kind::List);
        assert_eq!(value.is_number(), is_number, "{name}");
    }
    for figure in FIGURES {
        let is_served = figure.stat.is_empty() || stats.keys().any(|name| figure.is_named(name));
        assert!(is_served, "{} is not served", figure.stat);
        let has_times = histograms.iter().any(|it| it.is_of(figure));
        assert_eq!(has_times, figure.kind == Kind::Histogram, "{}", figure.metric);
    }
}

/// The page with the tables anew.
fn rendered(page: &str) -> String {
    let (before, _) = page.split_once("\n## ").expect("the page has sections");
    format!("{before}{}", figures::page())
}

#[test]
fn the_page_has_the_table() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let text = "docs/statistics.md: `cargo test -p server write_statistics_page -- --ignored` writes it anew";
    assert!(rendered(&page) == page, "{text}");
}

#[test]
#[ignore = "writes docs/statistics.md"]
fn write_statistics_page() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    std::fs::write(PAGE, rendered(&page)).unwrap();
}

#[test]
fn the_number_of_series_has_a_bound() {
    let series = |stats: &Stats| metrics(stats).lines().filter(|line| !line.starts_with('#')).count();
    let mut alone = Stats::of("n@h", "1", 64, 3, &[]);
    let mut store = StoreStats::default();
    store.levels.iter_mut().for_each(|level| level.tables = 1);
    alone.engine.add(&store);
    for level in 0..store.levels.len() {
        alone.lookups_found.insert(format!("lookups_found_level_{level}"), 1);
    }
    assert!(series(&alone) <= SERIES_MAX, "{}", series(&alone));
    let names: Vec<String> = (0..101).map(|node| format!("n{node}@h")).collect();
    let members = (0..).map(NodeId).zip(names.iter().map(String::as_str));
    let many = alone.clone().with_peers(members, &[], 0);
    assert!(series(&many) <= SERIES_MAX + 101 * SERIES_PER_PEER_MAX, "{}", series(&many));
}

/// The tool that Prometheus comes with finds nothing to complain about.
#[test]
fn promtool_has_no_complaint() {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = promtool.spawn() else {
        return eprintln!("skipped: promtool is not installed (apt-get install prometheus)");
    };
    let text = metrics(&served());
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn metrics_have_a_type_each_and_no_line_out_of_place() {
    let text = metrics(&served());
    assert!(text.contains("\nannulet_connections 3\n"), "{text}");
    assert!(text.contains("node=\"n\\\"@h\""), "{text}");
    assert!(text.contains("# TYPE annulet_write_amplification_ratio gauge\n"), "{text}");
    let mut typed = std::collections::BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(typed.insert(rest.split(' ').next().unwrap()), "{line} comes twice");
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            assert!(typed.contains(name) || base.is_some_and(|base| typed.contains(base)), "{line}");
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
        }
    }
}
