//! Latency of reads while every node is scraped ten times a second, over the latency without scrapes.
//!
//! Both loads run in turns, and every other round begins with the scraped one. The row is the median of the ratios of
//! the rounds.

use super::Context;
use super::beside::beside;
use super::connection::Connection;
use crate::Result;
use crate::load::{Load, Op};
use crate::nodes::Cluster;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::{median, percentile_us};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Time between two scrapes of a node: ten a second.
const SCRAPE_EVERY: Duration = Duration::from_millis(100);

/// Connections of the load.
const CONNECTIONS: usize = 16;

/// The percentile of latencies.
const PERCENT: f64 = 99.0;

fn ratio_spec() -> Spec {
    Spec::new("get/p99 with scrapes over without", "ratio", Some(Bar::AtMost(1.02)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![ratio_spec()]
}

/// The p99 of a round in microseconds.
#[derive(Clone, Copy)]
struct Round {
    without: f64,
    with: f64,
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let nodes = context.start("load")?;
    let mut rounds = Vec::new();
    for number in 0..context.plan.rounds {
        rounds.push(round(context, &nodes, number)?);
    }
    nodes.stop()?;

    let values = |field: fn(&Round) -> f64| rounds.iter().map(field).collect::<Vec<f64>>();
    let row = ratio_spec().measured(&values(|round| round.with / round.without));
    let row = row.also("p99_us_without", median(&values(|round| round.without)));
    report.push(row.also("p99_us_with", median(&values(|round| round.with))))
}

fn round(context: &Context, nodes: &Cluster, number: usize) -> Result<Round> {
    let load = Load { seed: number as u64 + 1, ..Load::new(Op::Get, CONNECTIONS, super::OBJECTS) };
    let p99 = || -> Result<f64> {
        let cost = nodes.servers.cost(&load, context.plan.window)?;
        Ok(percentile_us(&cost.outcome.latencies, PERCENT))
    };
    let scrapes = |ended: &Receiver<()>| scrape(&nodes.http, ended);
    if number.is_multiple_of(2) {
        let without = p99()?;
        Ok(Round { without, with: beside(scrapes, p99)? })
    } else {
        let with = beside(scrapes, p99)?;
        Ok(Round { without: p99()?, with })
    }
}

/// Scrapes nodes until the other end of the channel is dropped.
fn scrape(nodes: &[SocketAddr], ended: &Receiver<()>) -> Result<()> {
    let mut connections =
        nodes.iter().map(|&node| Connection::open(node)).collect::<Result<Vec<Connection>>>()?;
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(SCRAPE_EVERY) {
        for connection in &mut connections {
            connection.get("/metrics")?;
        }
    }
    Ok(())
}
