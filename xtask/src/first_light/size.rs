//! A million objects: memory, start after a clean stop and after a kill, and the reads of a ledger that does not
//! fit its cache.
//!
//! Before each stop or kill some of the objects are written again, so that the memtable is not empty: a kill then
//! leaves the most that there is to replay, a stop the most that there is to flush.

use super::Context;
use super::io::count;
use crate::annulet::{Annulet, Setup};
use crate::generator::Until;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::workload::{Keys, Op, Riak, SplitMix};
use crate::{Result, proc};
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

fn journal_reads(op: Op) -> Spec {
    Spec::new(format!("1M/{} journal reads", op.name()), "reads/op", Some(Bar::Exactly(0.0)))
}

/// Without a bar: blocks of the ledger that its cache has not got are read too.
fn reads_of_get() -> Spec {
    Spec::new("1M/get reads with data", "reads/op", None)
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![
        resident(),
        start_after_kill(),
        start_after_stop(),
        journal_reads(Op::Head),
        journal_reads(Op::Miss),
        reads_of_get(),
    ]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let setup = context.setup("size", "none")?;
    let node = Annulet::start(&setup)?;
    let loaded = node.load(OBJECTS)?;
    eprintln!("figures: a million objects in {:.1} s", loaded.wall.as_secs_f64());
    node.servers.rest()?;
    let memory = proc::memory(node.pid())?;
    let row = resident()
        .valued(memory.resident as f64 / MIB, "1 run")
        .also("peak_mib", Some(memory.peak as f64 / MIB))
        .also("anonymous_mib", Some(memory.anonymous as f64 / MIB))
        .also("load_s", Some(loaded.wall.as_secs_f64()));
    report.push(row)?;
    let node = starts(context, &setup, node, Way::Kill, report)?;
    let node = starts(context, &setup, node, Way::Stop, report)?;
    for op in [Op::Head, Op::Miss] {
        let reads = count(&node, op, OBJECTS, context.plan.counted_ops)?;
        report.push(reads.beside(journal_reads(op).valued(reads.per_op(reads.journal), "counted")))?;
    }
    let reads = count(&node, Op::Get, OBJECTS, context.plan.counted_ops)?;
    report.push(reads.beside(reads_of_get().valued(reads.per_op(reads.with_data), "counted")))?;
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
    mut node: Annulet,
    way: Way,
    report: &mut Report,
) -> Result<Annulet> {
    let (mut gets, mut pings, mut stops) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..context.plan.starts {
        rewrite(&node, round as u64)?;
        match way {
            Way::Kill => node.kill()?,
            Way::Stop => stops.push(node.stop()?),
        }
        node = Annulet::start(setup)?;
        pings.push(node.start_times.ping);
        gets.push(node.start_times.get);
        node.verify(OBJECTS, VERIFIED)?;
    }
    let spec = if way == Way::Kill { start_after_kill() } else { start_after_stop() };
    let seconds: Vec<f64> = gets.iter().map(Duration::as_secs_f64).collect();
    let mut row = spec.measured(&seconds);
    // Each start has to be fast, not the one in the middle.
    row.value = seconds.iter().copied().reduce(f64::max);
    let slowest = |times: &[Duration]| times.iter().max().map(Duration::as_secs_f64);
    report.push(
        row.noted("the slowest counts").also("first_ping_s", slowest(&pings)).also("stop_s", slowest(&stops)),
    )?;
    Ok(node)
}

fn rewrite(node: &Annulet, seed: u64) -> Result<()> {
    let mut keys = Keys::Uniform { from: 0, count: OBJECTS, rng: SplitMix::new(seed) };
    node.connect(64)?.run(&mut Riak::new(Op::Put), &mut keys, Until::Ops(REWRITTEN))?;
    Ok(())
}
