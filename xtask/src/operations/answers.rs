//! CPU, time, bytes and series of single answers, from a node without load.
//!
//! 1. Measure the CPU of the node while nothing is asked.
//! 2. Ask for each answer many times on one connection, one request after the other.
//! 3. Subtract the CPU of an idle node in the same time; divide by the requests.

use super::connection::Connection;
use super::{Context, NODES};
use crate::nodes::Cluster;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use crate::{Result, sys};
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// An answer and the bar on its CPU, in microseconds.
#[derive(Clone, Copy)]
struct Answer {
    name: &'static str,
    path: &'static str,
    bar: Option<Bar>,
}

const METRICS: Answer = Answer { name: "metrics", path: "/metrics", bar: Some(Bar::AtMost(300.0)) };

const ANSWERS: [Answer; 5] = [
    METRICS,
    Answer { name: "stats", path: "/stats", bar: None },
    Answer { name: "ready", path: "/health/ready", bar: None },
    Answer { name: "live", path: "/health/live", bar: None },
    Answer { name: "ping", path: "/ping", bar: None },
];

/// The bar on the bytes of a scrape at three nodes: 64 KB.
const SCRAPE_KB_MAX: f64 = 64.0;

/// The bar on the bytes of a scrape at 100 peers: 250 KB.
const PEERS_KB_MAX: f64 = 250.0;
const PEERS: f64 = 100.0;

/// The bar on series: 500, and 15 for each other node.
const SERIES_MAX: f64 = 500.0 + 15.0 * (NODES - 1) as f64;

/// The cost of one answer.
#[derive(Clone, Copy, Default)]
struct Cost {
    cpu_us: f64,
    wall_us: f64,
}

fn cpu_spec(answer: Answer) -> Spec {
    Spec::new(format!("{}/cpu", answer.name), "us", answer.bar)
}

fn time_spec(answer: Answer) -> Spec {
    Spec::new(format!("{}/time", answer.name), "us", None)
}

fn bytes_spec() -> Spec {
    Spec::new("metrics/bytes", "KB", Some(Bar::AtMost(SCRAPE_KB_MAX)))
}

fn peers_spec() -> Spec {
    Spec::new("metrics/bytes at 100 peers, computed", "KB", Some(Bar::AtMost(PEERS_KB_MAX)))
}

fn series_spec() -> Spec {
    Spec::new("metrics/series", "series", Some(Bar::AtMost(SERIES_MAX)))
}

fn complaints_spec() -> Spec {
    Spec::new("metrics/promtool", "lines", Some(Bar::Exactly(0.0)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let costs = ANSWERS.into_iter().flat_map(|answer| [cpu_spec(answer), time_spec(answer)]);
    costs.chain([bytes_spec(), peers_spec(), series_spec(), complaints_spec()]).collect()
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let nodes = context.start("answers")?;
    let mut rounds = Vec::new();
    for _ in 0..context.plan.rounds {
        rounds.push(round(context, &nodes)?);
    }
    let text = Connection::open(nodes.http[0])?.get(METRICS.path)?;
    nodes.stop()?;

    for (at, answer) in ANSWERS.into_iter().enumerate() {
        let values =
            |field: fn(&Cost) -> f64| rounds.iter().map(|round| field(&round[at])).collect::<Vec<_>>();
        report.push(cpu_spec(answer).measured(&values(|cost| cost.cpu_us)))?;
        report.push(time_spec(answer).measured(&values(|cost| cost.wall_us)))?;
    }
    report.push(bytes_spec().valued(text.len() as f64 / 1e3, "1 scrape"))?;
    report.push(
        peers_spec().valued(bytes_at_peers(&text) / 1e3, "from those of the peers' series at 3 nodes"),
    )?;
    report.push(series_spec().valued(series(&text) as f64, "1 scrape"))?;
    report.push(match complaints(&text) {
        Ok(lines) => complaints_spec().valued(lines as f64, "1 scrape"),
        Err(why) => complaints_spec().failed(why),
    })
}

/// Each answer once measured, in the order of declarations.
fn round(context: &Context, nodes: &Cluster) -> Result<Vec<Cost>> {
    let mut connection = Connection::open(nodes.http[0])?;
    nodes.servers.rest()?;
    let before = sys::process_cpu(nodes.pid())?;
    sleep(context.plan.idle);
    let idle_cores =
        (sys::process_cpu(nodes.pid())? - before).as_secs_f64() / context.plan.idle.as_secs_f64();

    ANSWERS.iter().map(|answer| measure(context, nodes, &mut connection, answer.path, idle_cores)).collect()
}

fn measure(
    context: &Context,
    nodes: &Cluster,
    connection: &mut Connection,
    path: &str,
    idle_cores: f64,
) -> Result<Cost> {
    let requests = context.plan.requests;
    let (before, begin) = (sys::process_cpu(nodes.pid())?, Instant::now());
    let mut times = Vec::new();
    for _ in 0..requests {
        let asked = Instant::now();
        connection.get(path)?;
        times.push(asked.elapsed().as_secs_f64() * 1e6);
    }
    let (cpu, wall) = (sys::process_cpu(nodes.pid())? - before, begin.elapsed());
    Ok(Cost { cpu_us: cpu_us(cpu, wall, idle_cores, requests), wall_us: median(&times).unwrap_or(0.0) })
}

/// CPU of one request in microseconds, without that of an idle node.
fn cpu_us(cpu: Duration, wall: Duration, idle_cores: f64, requests: u32) -> f64 {
    (cpu.as_secs_f64() - idle_cores * wall.as_secs_f64()) * 1e6 / f64::from(requests)
}

/// The number of series of a text: its lines that are neither empty nor comments.
fn series(text: &[u8]) -> usize {
    text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty() && line[0] != b'#').count()
}

/// Bytes of a text with [`PEERS`] peers, if each has as many as those of this text.
fn bytes_at_peers(text: &[u8]) -> f64 {
    let lines = text.split_inclusive(|&byte| byte == b'\n');
    let of_peers = lines.filter(|line| line[0] != b'#' && line.windows(6).any(|window| window == b"peer=\""));
    let of_peers: usize = of_peers.map(<[u8]>::len).sum();
    (text.len() - of_peers) as f64 + of_peers as f64 * PEERS / f64::from(NODES - 1)
}

/// The number of complaints of `promtool check metrics`.
fn complaints(text: &[u8]) -> Result<usize> {
    sys::ensure_tool("promtool").map_err(|_| "promtool is missing: apt-get install prometheus")?;
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().ok_or("promtool has no input")?.write_all(text)?;
    let output = child.wait_with_output()?;
    let told = [output.stdout, output.stderr].concat();
    let lines = told.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count();
    match (output.status.success(), lines) {
        (false, 0) => Err("promtool failed without a line".into()),
        _ => Ok(lines),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_no_series() {
        assert_eq!(series(b"# HELP a b\n# TYPE a counter\na_total 1\na_total{op=\"x\"} 2\n\n"), 2);
    }

    #[test]
    fn bytes_grow_with_peers_alone() {
        assert_eq!(
            bytes_at_peers(b"# HELP a b\na 1\na{peer=\"x\"} 1\na{peer=\"y\"} 1\n"),
            15.0 + 100.0 * 14.0
        );
    }

    #[test]
    fn cpu_of_an_idle_node_is_not_that_of_answers() {
        let us = cpu_us(Duration::from_millis(30), Duration::from_secs(1), 0.01, 100);
        assert!((us - 200.0).abs() < 1e-6, "{us}");
    }
}
