//! A million objects: memory, start after a clean stop and after a kill, and the reads of a ledger that does not
//! fit its cache.
//!
//! Before each stop or kill some of the objects are written again, so that the memtable is not empty: a kill then
//! leaves the most that there is to replay, a stop the most that there is to flush.

use super::Context;
use super::io::{count, counted_specs};
use crate::Result;
use crate::load::{Load, Op, Until};
use crate::nodes::{Cluster, Setup};
use crate::report::Report;
use crate::rows::{Bar, Spec};
use std::time::Duration;

const OBJECTS: u64 = 1_000_000;

/// Objects that are written again before a node goes down.
const REWRITTEN: u64 = 100_000;

/// Objects that are looked at after each start.
const VERIFIED: u64 = 1000;

const MIB: f64 = 1_048_576.0;

fn resident() -> Spec {
    Spec::new("1M/resident memory", "MiB", Some(Bar::Below(512.0)))
}

fn start_after_kill() -> Spec {
    Spec::new("1M/start after kill", "s", Some(Bar::Below(5.0)))
}

fn start_after_stop() -> Spec {
    Spec::new("1M/start after clean stop", "s", Some(Bar::Below(1.0)))
}

/// The rows of this part. A GET has no bar: blocks of the ledger that its cache has not got are read too.
pub fn specs() -> Vec<Spec> {
    [vec![resident(), start_after_kill(), start_after_stop()], counted_specs("1M", None).to_vec()].concat()
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let setup = context.setup("size", "none")?;
    let node = Cluster::start(&setup)?;
    let loaded = node.servers.fill(&Load::fill(OBJECTS))?;
    eprintln!("figures: a million objects in {:.1} s", loaded.wall.as_secs_f64());
    node.servers.rest()?;
    let memory = bench::usage(node.pid()).ok_or("the node has ended")?;
    let row = resident()
        .valued(memory.rss_bytes as f64 / MIB, "1 run")
        .also("peak_mib", Some(memory.peak_bytes as f64 / MIB))
        .also("anonymous_mib", Some(memory.anonymous_bytes as f64 / MIB))
        .also("load_s", Some(loaded.wall.as_secs_f64()));
    report.push(row)?;
    let node = starts(context, &setup, node, Way::Kill, report)?;
    let node = starts(context, &setup, node, Way::Stop, report)?;
    count(&node, OBJECTS, context.plan.counted_ops, counted_specs("1M", None), report)?;
    node.stop()?;
    Ok(())
}

/// How a node goes down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Kill,
    Stop,
}

/// Takes a node down and starts it again, several times; the last one goes on.
fn starts(
    context: &Context,
    setup: &Setup,
    mut node: Cluster,
    way: Way,
    report: &mut Report,
) -> Result<Cluster> {
    let (mut starts, mut stops) = (Vec::new(), Vec::new());
    for round in 0..context.plan.starts {
        rewrite(&node, round as u64)?;
        match way {
            Way::Kill => node.kill()?,
            Way::Stop => stops.push(node.stop()?),
        }
        node = Cluster::start(setup)?;
        starts.push(node.start_time.as_secs_f64());
        node.servers.run(&Load::new(Op::Get, 16, OBJECTS), Until::Ops(VERIFIED))?;
    }
    let spec = if way == Way::Kill { start_after_kill() } else { start_after_stop() };
    let mut row = spec.measured(&starts);
    // Each start has to be fast, not the one in the middle.
    row.value = starts.iter().copied().reduce(f64::max);
    let slowest_stop = stops.iter().max().map(Duration::as_secs_f64);
    report.push(row.noted("the slowest counts").also("stop_s", slowest_stop))?;
    Ok(node)
}

fn rewrite(node: &Cluster, seed: u64) -> Result<()> {
    node.servers.run(&Load { seed, ..Load::new(Op::Put, 64, OBJECTS) }, Until::Ops(REWRITTEN))?;
    Ok(())
}
