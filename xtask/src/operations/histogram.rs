//! The p99 of reads as Prometheus computes it from the histograms of all nodes, beside that of the load generator.
//!
//! The buckets are summed over the nodes, as the recorded rule does, and their growth during a load is taken. Within a
//! bucket `histogram_quantile` interpolates evenly.
//!
//! The two clocks differ: the generator counts the way to the node and the wait in its socket, which depend on the
//! machine. So reads wait for all replicas, and the last node is paused again and again: the p99 is a wait within the
//! nodes that are asked, beside which the ways are short. The load is open and slow, and no request waits for a
//! connection.

use super::Context;
use super::beside::beside;
use super::connection::Connection;
use crate::Result;
use crate::load::{Load, Op};
use crate::measure::Servers;
use crate::nodes::Cluster;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::{median, percentile_us};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Connections of the load: twice the requests that are under way at the end of a pause.
const CONNECTIONS: usize = 32;

/// Reads a second: a tenth of the capacity of a small machine.
const RATE: u32 = 500;

/// The length of a pause in the first round, and the time between two. More than one read in a hundred begins in a
/// pause, and no node is taken for dead. Over the rounds the length doubles: a length that is near the edge of a bucket
/// says nothing about others.
const PAUSE_MIN: Duration = Duration::from_millis(16);
const BETWEEN: Duration = Duration::from_millis(70);

/// The percentile.
const PERCENT: f64 = 99.0;

/// The series of a bucket of reads.
const BUCKET: &str = "annulet_request_seconds_bucket{";

/// Upper bounds in seconds and the counts up to them, in order.
type Buckets = Vec<(f64, f64)>;

fn off_spec() -> Spec {
    Spec::new("get/p99 by histogram_quantile, off the generator's", "%", Some(Bar::AtMost(25.0)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![off_spec()]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let nodes = context.start("histogram")?;
    let r = Some(super::NODES.into());
    let load = Load { rate: Some(RATE), r, ..Load::new(Op::Get, CONNECTIONS, super::OBJECTS) };
    let last = nodes.servers.pids.last().and_then(|&pid| Pid::from_raw(pid.cast_signed()));
    let last = last.ok_or("no node runs")?;
    // The paused node reads no request.
    let addresses = nodes.servers.addresses[..nodes.servers.addresses.len() - 1].to_vec();
    let asked = Servers { addresses, ..nodes.servers.clone() };
    let mut rounds = Vec::new();
    for number in 0..context.plan.rounds {
        let length = PAUSE_MIN.mul_f64(1.0 + number as f64 / context.plan.rounds as f64);
        let before = buckets_of(&nodes)?;
        let pause = |ended: &Receiver<()>| pause((last, length), ended);
        let cost = beside(pause, || asked.cost(&load, context.plan.window))?;
        let told = quantile_us(&growth(&before, &buckets_of(&nodes)?), PERCENT / 100.0);
        let told = told.ok_or("no request is in the histograms")?;
        rounds.push((told, percentile_us(&cost.outcome.latencies, PERCENT)));
    }
    nodes.stop()?;

    let off: Vec<f64> = rounds.iter().map(|(told, own)| (told / own - 1.0).abs() * 100.0).collect();
    let values = |of: fn(&(f64, f64)) -> f64| median(&rounds.iter().map(of).collect::<Vec<f64>>());
    let row = off_spec().measured(&off).also("p99_us_by_histogram", values(|round| round.0));
    report.push(row.also("p99_us_of_generator", values(|round| round.1)))
}

/// Pauses a node for a length again and again, until the other end of the channel is dropped.
fn pause((node, length): (Pid, Duration), ended: &Receiver<()>) -> Result<()> {
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(BETWEEN) {
        kill_process(node, Signal::STOP)?;
        thread::sleep(length);
        kill_process(node, Signal::CONT)?;
    }
    Ok(())
}

/// The buckets of reads, summed over all nodes.
fn buckets_of(nodes: &Cluster) -> Result<Buckets> {
    let mut sum: Buckets = Vec::new();
    for &http in &nodes.http {
        let text = Connection::open(http)?.get("/metrics")?;
        for (le, count) in buckets(&String::from_utf8_lossy(&text)) {
            match sum.iter_mut().find(|(known, _)| *known == le) {
                Some((_, sum)) => *sum += count,
                None => sum.push((le, count)),
            }
        }
    }
    sum.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(sum)
}

/// The buckets of reads in a text, for all levels of consistency.
fn buckets(text: &str) -> impl Iterator<Item = (f64, f64)> {
    let gets = text.lines().filter(|line| line.starts_with(BUCKET) && line.contains("op=\"get\""));
    gets.filter_map(|line| {
        let (_, rest) = line.split_once("le=\"")?;
        let (le, rest) = rest.split_once('"')?;
        let count = rest.split_once("} ")?.1.split(' ').next()?;
        let le = if le == "+Inf" { f64::INFINITY } else { le.parse().ok()? };
        Some((le, count.parse().ok()?))
    })
}

fn growth(before: &Buckets, after: &Buckets) -> Buckets {
    let was = |le: f64| before.iter().find(|(known, _)| *known == le).map_or(0.0, |(_, count)| *count);
    after.iter().map(|&(le, count)| (le, count - was(le))).collect()
}

/// The quantile in microseconds, as `histogram_quantile` computes it.
fn quantile_us(buckets: &Buckets, quantile: f64) -> Option<f64> {
    let total = buckets.last().map(|(_, count)| *count).filter(|count| *count > 0.0)?;
    let rank = quantile * total;
    let at = buckets.iter().position(|(_, count)| *count >= rank)?;
    let (low, below) = if at == 0 { (0.0, 0.0) } else { buckets[at - 1] };
    let (high, upto) = buckets[at];
    let seconds = if high.is_infinite() { low } else { low + (high - low) * (rank - below) / (upto - below) };
    Some(seconds * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_prometheus() {
        let text = "annulet_request_seconds_bucket{op=\"get\",level=\"eventual\",le=\"0.001\"} 90\n\
            annulet_request_seconds_bucket{op=\"put\",level=\"eventual\",le=\"0.001\"} 7\n\
            annulet_request_seconds_bucket{op=\"get\",level=\"eventual\",le=\"0.002\"} 100\n\
            annulet_request_seconds_bucket{op=\"get\",level=\"eventual\",le=\"+Inf\"} 100 # {} 1\n";
        let told: Buckets = buckets(text).collect();
        assert_eq!(told, [(0.001, 90.0), (0.002, 100.0), (f64::INFINITY, 100.0)]);
        assert!((quantile_us(&told, 0.99).unwrap() - 1900.0).abs() < 1e-6);
        assert!((quantile_us(&told, 0.45).unwrap() - 500.0).abs() < 1e-6);
        assert_eq!(quantile_us(&growth(&told, &told), 0.99), None);
    }
}
