//! The log of slow requests: its cost while no request is slow, and its line about a replica that is paused.
//!
//! * *Cost.* The same reads run with the log on and off, in turns, on the same nodes. The threshold of the log is one
//!   that no request meets.
//! * *Line.* A node is paused for 300 ms while another one waits for all replicas of a write. The row counts the lines
//!   that name the paused node, of two: one while the request waits, and one at its end.

use super::Context;
use super::connection::Connection;
use crate::Result;
use crate::load::{Load, Op};
use crate::nodes::Cluster;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::thread;
use std::time::Duration;

/// A threshold that no request meets, and the one of lines.
const NEVER_MET: &str = "60s";
const THRESHOLD: &str = "100ms";

/// Length of the pause: a death is noticed in 1.5 s.
const PAUSE: Duration = Duration::from_millis(300);

/// Connections of the load.
const CONNECTIONS: usize = 16;

fn cost_spec() -> Spec {
    Spec::new(
        "slow log/CPU of a get, threshold not met, over that with the log off",
        "%",
        Some(Bar::AtMost(0.5)),
    )
}

fn lines_spec() -> Spec {
    Spec::new("slow log/lines that name a replica paused for 300 ms", "lines", Some(Bar::Exactly(2.0)))
}

fn sum_spec() -> Spec {
    Spec::new("slow log/sum of stages, off the whole time", "%", Some(Bar::AtMost(5.0)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![cost_spec(), lines_spec(), sum_spec()]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let nodes = context.start("slow")?;
    let mut rounds = Vec::new();
    for number in 0..context.plan.rounds {
        rounds.push(round(context, &nodes, number)?);
    }
    let more: Vec<f64> = rounds.iter().map(|(off, on)| (on / off - 1.0) * 100.0).collect();
    let values = |of: fn(&(f64, f64)) -> f64| median(&rounds.iter().map(of).collect::<Vec<f64>>());
    let row = cost_spec().measured(&more).also("us_off", values(|round| round.0));
    report.push(row.also("us_on", values(|round| round.1)))?;

    let lines = lines_about_a_pause(&nodes)?;
    nodes.stop()?;
    let named = lines.iter().filter(|line| names_last_node(line)).count();
    report.push(lines_spec().valued(named as f64, "1 pause"))?;
    let off = lines.iter().map(sum_is_off).fold(0.0, f64::max);
    report.push(sum_spec().valued(off, format!("the largest of {} lines", lines.len())))
}

/// CPU of a read in microseconds with the log off, and on.
fn round(context: &Context, nodes: &Cluster, number: usize) -> Result<(f64, f64)> {
    let load = Load { seed: number as u64 + 1, ..Load::new(Op::Get, CONNECTIONS, super::OBJECTS) };
    let cost = |threshold| -> Result<f64> {
        set_threshold(nodes, threshold)?;
        Ok(nodes.servers.cost(&load, context.plan.window)?.server_us)
    };
    if number.is_multiple_of(2) {
        let off = cost("off")?;
        Ok((off, cost(NEVER_MET)?))
    } else {
        let on = cost(NEVER_MET)?;
        Ok((cost("off")?, on))
    }
}

fn set_threshold(nodes: &Cluster, threshold: &str) -> Result<()> {
    let body = format!("{{\"threshold\":\"{threshold}\"}}");
    nodes
        .http
        .iter()
        .try_for_each(|&http| Connection::open(http)?.send("POST", "/admin/slow", &body).map(drop))
}

/// The lines of the first node about a write that waits for the last one, which is paused.
fn lines_about_a_pause(nodes: &Cluster) -> Result<Vec<Value>> {
    set_threshold(nodes, THRESHOLD)?;
    let first = nodes.http[0];
    let lines = || -> Result<Vec<Value>> {
        let told: Value = serde_json::from_slice(&Connection::open(first)?.get("/admin/slow")?)?;
        Ok(told["lines"].as_array().cloned().unwrap_or_default())
    };
    // Those of the load are older.
    let written = |line: &Value| line["at_ms"].as_u64();
    let last_before = lines()?.last().and_then(written);
    let paused = nodes.servers.pids.last().and_then(|&pid| Pid::from_raw(pid.cast_signed()));
    let paused = paused.ok_or("no node runs")?;
    let put = thread::spawn(move || -> Result<Vec<u8>> {
        // The pause begins first.
        thread::sleep(PAUSE / 20);
        Connection::open(first)?.send("PUT", "/buckets/figures/keys/slow?w=all&returnbody=true", "value")
    });
    kill_process(paused, Signal::STOP)?;
    thread::sleep(PAUSE);
    kill_process(paused, Signal::CONT)?;
    put.join().map_err(|_| "the client panicked")??;

    Ok(lines()?.into_iter().filter(|line| written(line) > last_before).collect())
}

/// Whether the node that a line waited for longest is the last one.
fn names_last_node(line: &Value) -> bool {
    let ms = |replica: &Value| replica["ms"].as_f64().unwrap_or_default();
    let replicas = line["replicas"].as_array().into_iter().flatten();
    let longest = replicas.max_by(|a, b| ms(a).total_cmp(&ms(b)));
    longest
        .and_then(|it| it["node"].as_str())
        .is_some_and(|node| node.starts_with(&format!("n{}@", super::NODES)))
}

/// The difference between the sum of a line's stages and its whole time, in hundredths of the whole.
fn sum_is_off(line: &Value) -> f64 {
    let stages = line["stages_ms"].as_object().into_iter().flatten();
    let sum: f64 = stages.filter_map(|(_, ms)| ms.as_f64()).sum();
    let whole = line["ms"].as_f64().unwrap_or_default();
    if whole > 0.0 { (sum / whole - 1.0).abs() * 100.0 } else { 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_are_judged() {
        let line = json!({
            "ms": 300.0, "stages_ms": { "queued": 3.0, "replicas": 294.0 },
            "replicas": [{ "node": "n2@127.0.0.1", "ms": 1.0 }, { "node": "n3@127.0.0.1", "ms": 299.0 }],
        });
        assert!(names_last_node(&line));
        assert!((sum_is_off(&line) - 1.0).abs() < 1e-9);
        assert!(!names_last_node(&json!({ "ms": 1.0 })) && sum_is_off(&json!({})) == 100.0);
    }
}
