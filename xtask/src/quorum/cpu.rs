//! CPU per operation, group commit and frames per write, in rounds.

use super::{Context, OBJECTS};
use crate::Result;
use crate::calibrate::{Yardstick, Yardsticks};
use crate::cluster::{Cluster, Traffic};
use crate::generator::Until;
use crate::measure::Cost;
use crate::report::Report;
use crate::rows::{Bar, Row, Spec};
use crate::workload::{Keys, Op, Riak, SplitMix};

/// A row of CPU per operation: durability, connections, operation.
type Load = (&'static str, usize, Op);

const OPS: [Op; 2] = [Op::Get, Op::Put];
const CONNECTIONS: [usize; 4] = [64, 16, 1, 256];
const SYNC: Load = ("sync", 64, Op::Put);

fn bar(load: Load) -> Option<Bar> {
    match load {
        ("none", 64, Op::Get) => Some(Bar::AtMost(45.0)),
        ("none", 64, Op::Put) => Some(Bar::AtMost(60.0)),
        SYNC => Some(Bar::AtMost(110.0)),
        _ => None,
    }
}

fn loads() -> impl Iterator<Item = Load> {
    CONNECTIONS.into_iter().flat_map(|connections| OPS.into_iter().map(move |op| ("none", connections, op)))
}

fn name((durability, connections, op): Load) -> String {
    format!("{durability}/{connections}/{}", op.name())
}

fn cost_spec(load: Load) -> Spec {
    Spec::new(name(load), "us", bar(load))
}

fn frames_spec(load: Load) -> Spec {
    Spec::new(format!("{} frames per write", name(load)), "frames", None)
}

fn group_spec() -> Spec {
    Spec::new(format!("{} records per fdatasync", name(SYNC)), "records", None)
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let mut specs: Vec<Spec> = loads().chain([SYNC]).map(cost_spec).collect();
    specs.push(group_spec());
    specs.extend(loads().chain([SYNC]).map(frames_spec));
    specs.extend(Yardstick::specs());
    specs
}

/// What one round measured of one load.
type Measured = (Cost, Traffic);

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let none = start(context, "none")?;
    let mut yardsticks = Yardsticks::new(&context.home)?;
    let mut keys = Keys::Uniform { from: 0, count: OBJECTS, rng: SplitMix::new(1) };
    let mut measured: Vec<Vec<Measured>> = loads().map(|_| Vec::new()).collect();
    let mut rounds = Vec::new();
    for number in 1..=context.plan.rounds {
        for (load, of_load) in loads().zip(&mut measured) {
            of_load.push(measure(context, &none, load, &mut keys)?);
        }
        rounds.push(yardsticks.round(context.plan.yardstick)?);
        eprintln!("figures: round {number} of {} of CPU per operation", context.plan.rounds);
    }
    none.stop()?;
    for (load, of_load) in loads().zip(&measured) {
        report.push(cost_row(load, of_load, &rounds))?;
    }
    for (load, of_load) in loads().zip(&measured) {
        report.push(frames_row(load, of_load))?;
    }
    let synced = sync(context, &mut keys);
    Yardstick::rows(&rounds).into_iter().try_for_each(|row| report.push(row))?;
    let (synced, rounds) = synced?;
    report.push(cost_row(SYNC, &synced, &rounds))?;
    report.push(frames_row(SYNC, &synced))?;
    report.push(group_row(&synced)?)
}

fn start(context: &Context, durability: &'static str) -> Result<Cluster> {
    let cluster = Cluster::start(&context.setup(durability, durability)?)?;
    cluster.servers.load(&mut Riak::new(Op::Put), 0, OBJECTS)?;
    Ok(cluster)
}

/// The rounds at durability `sync`, with the yardsticks of each.
fn sync(context: &Context, keys: &mut Keys) -> Result<(Vec<Measured>, Vec<Yardstick>)> {
    let cluster = start(context, "sync")?;
    let mut yardsticks = Yardsticks::new(&context.home)?;
    let (mut measured, mut rounds) = (Vec::new(), Vec::new());
    for _ in 0..context.plan.rounds {
        measured.push(measure(context, &cluster, SYNC, keys)?);
        rounds.push(yardsticks.round(context.plan.yardstick)?);
    }
    cluster.stop()?;
    Ok((measured, rounds))
}

fn measure(context: &Context, cluster: &Cluster, load: Load, keys: &mut Keys) -> Result<Measured> {
    let (_, connections, op) = load;
    let (window, workload) = (context.plan.window, &mut Riak::new(op));
    let mut session = cluster.servers.connect(connections)?;
    session.run(workload, keys, Until::Elapsed(window.warm_up))?;
    cluster.observe(&mut session, workload, keys, Until::Elapsed(window.time))
}

fn cost_row(load: Load, measured: &[Measured], yardsticks: &[Yardstick]) -> Row {
    let costs: Vec<&Cost> = measured.iter().map(|(cost, _)| cost).collect();
    Cost::calibrated_row(cost_spec(load), &costs, yardsticks)
}

fn frames_row(load: Load, measured: &[Measured]) -> Row {
    let (spec, ops, sum) = (frames_spec(load), ops(measured), traffic(measured));
    if sum.writes == 0 {
        return spec.failed("the nodes count no writes to one another");
    }
    let per_write = |traffic: &Traffic| traffic.frames as f64 / traffic.writes.max(1) as f64;
    spec.measured(&measured.iter().map(|(_, traffic)| per_write(traffic)).collect::<Vec<f64>>())
        .also("frames_per_op", Some(sum.frames as f64 / ops))
        .also("bytes_per_op", Some(sum.bytes as f64 / ops))
        .also("writes_per_op", Some(sum.writes as f64 / ops))
}

/// All records over all syncs of all nodes.
fn group_row(measured: &[Measured]) -> Result<Row> {
    let sum = traffic(measured);
    if sum.syncs == 0 {
        return Err("writes were acknowledged without a sync, or syncs are not counted".into());
    }
    let per_sync = |traffic: &Traffic| traffic.records as f64 / traffic.syncs.max(1) as f64;
    let row = group_spec()
        .measured(&measured.iter().map(|(_, traffic)| per_sync(traffic)).collect::<Vec<f64>>())
        .also("records", Some(sum.records as f64))
        .also("syncs", Some(sum.syncs as f64))
        .also("puts_per_sync_of_all_nodes", Some(ops(measured) / sum.syncs as f64));
    Ok(row)
}

fn traffic(measured: &[Measured]) -> Traffic {
    Traffic::sum(measured.iter().map(|(_, traffic)| traffic))
}

fn ops(measured: &[Measured]) -> f64 {
    measured.iter().map(|(cost, _)| cost.ops).sum::<u64>().max(1) as f64
}
