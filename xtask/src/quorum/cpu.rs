//! CPU per operation and group commit, in rounds; frames between nodes stand beside them.

use super::{Context, OBJECTS};
use crate::calibrate::{Yardstick, Yardsticks};
use crate::load::{Load, Op};
use crate::measure::Cost;
use crate::nodes::{Cluster, Counts};
use crate::report::Report;
use crate::rows::{Bar, Row, Spec};
use crate::{Failure, Result};

/// A row of CPU per operation: durability, connections, operation.
type Case = (&'static str, usize, Op);

const OPS: [Op; 2] = [Op::Get, Op::Put];
const CONNECTIONS: [usize; 4] = [64, 16, 1, 256];
const SYNC: Case = ("sync", 64, Op::Put);

fn bar(case: Case) -> Option<Bar> {
    match case {
        ("none", 64, Op::Get) => Some(Bar::AtMost(45.0)),
        ("none", 64, Op::Put) => Some(Bar::AtMost(60.0)),
        SYNC => Some(Bar::AtMost(110.0)),
        _ => None,
    }
}

fn cases() -> impl Iterator<Item = Case> {
    CONNECTIONS.into_iter().flat_map(|connections| OPS.into_iter().map(move |op| ("none", connections, op)))
}

fn name((durability, connections, op): Case) -> String {
    format!("{durability}/{connections}/{}", op.name())
}

fn cost_spec(case: Case) -> Spec {
    Spec::new(name(case), "us", bar(case))
}

fn group_spec() -> Spec {
    Spec::new(format!("{} records per fdatasync", name(SYNC)), "records", None)
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let mut specs: Vec<Spec> = cases().chain([SYNC]).map(cost_spec).collect();
    specs.push(group_spec());
    specs.extend(Yardstick::specs());
    specs
}

/// What one round measured of one load.
type Measured = (Cost, Counts);

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let (measured, yardsticks) = rounds(context, "none", &cases().collect::<Vec<_>>())?;
    for (case, of_case) in cases().zip(&measured) {
        report.push(cost_row(case, of_case, &yardsticks)?)?;
    }
    Yardstick::rows(&yardsticks).into_iter().try_for_each(|row| report.push(row))?;

    let (synced, yardsticks) = rounds(context, "sync", &[SYNC])?;
    report.push(cost_row(SYNC, &synced[0], &yardsticks)?)?;
    report.push(group_row(&synced[0])?)
}

/// The measurements of each case in all rounds, and the yardsticks of each round.
fn rounds(
    context: &Context,
    durability: &str,
    cases: &[Case],
) -> Result<(Vec<Vec<Measured>>, Vec<Yardstick>)> {
    let cluster = Cluster::start(&context.setup(durability, durability)?)?;
    cluster.servers.fill(&Load::fill(OBJECTS))?;
    let mut yardsticks = Yardsticks::new(&context.home)?;
    let mut measured = vec![Vec::new(); cases.len()];
    let mut rounds = Vec::new();
    for number in 1..=context.plan.rounds {
        for (&(_, connections, op), of_case) in cases.iter().zip(&mut measured) {
            let load = Load { seed: number as u64, ..Load::new(op, connections, OBJECTS) };
            of_case.push(cluster.observe_in(&load, context.plan.window)?);
        }
        rounds.push(yardsticks.round(context.plan.yardstick)?);
        eprintln!("figures: round {number} of {} at {durability}", context.plan.rounds);
    }
    cluster.stop()?;
    Ok((measured, rounds))
}

fn cost_row(case: Case, measured: &[Measured], yardsticks: &[Yardstick]) -> Result<Row> {
    let costs: Vec<&Cost> = measured.iter().map(|(cost, _)| cost).collect();
    let sum = |name| Ok::<f64, Failure>(counts(measured, name)?.iter().sum());
    let (frames, bytes, writes) = (sum("peer_frames_sent")?, sum("peer_bytes_sent")?, sum("peer_writes")?);
    let ops = ops(measured);
    Ok(Cost::calibrated_row(cost_spec(case), &costs, yardsticks)
        .also("frames_per_write", Some(frames / writes.max(1.0)))
        .also("frames_per_op", Some(frames / ops))
        .also("bytes_per_op", Some(bytes / ops))
        .also("writes_per_op", Some(writes / ops)))
}

/// All records over all syncs of all nodes.
fn group_row(measured: &[Measured]) -> Result<Row> {
    let (records, syncs) = (counts(measured, "journal_records")?, counts(measured, "disk_syncs")?);
    let per_sync: Vec<f64> =
        records.iter().zip(&syncs).map(|(records, syncs)| records / syncs.max(1.0)).collect();
    let (records, syncs) = (records.iter().sum::<f64>(), syncs.iter().sum::<f64>());
    if syncs == 0.0 {
        return Err("writes were acknowledged without a sync, or syncs are not counted".into());
    }
    Ok(group_spec()
        .measured(&per_sync)
        .also("records", Some(records))
        .also("syncs", Some(syncs))
        .also("puts_per_sync_of_all_nodes", Some(ops(measured) / syncs)))
}

/// A count of each round, of all nodes.
fn counts(measured: &[Measured], name: &str) -> Result<Vec<f64>> {
    measured.iter().map(|(_, counts)| counts.get(name)).collect()
}

fn ops(measured: &[Measured]) -> f64 {
    measured.iter().map(|(cost, _)| cost.outcome.ops).sum::<u64>().max(1) as f64
}
