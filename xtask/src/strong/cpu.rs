//! CPU per operation and latencies, of both types and of etcd, in rounds.

use super::{Context, TYPE};
use crate::etcd::EtcdCluster;
use crate::load::{Load, Op, Until};
use crate::measure::Cost;
use crate::nodes::{Cluster, Counts};
use crate::report::Report;
use crate::rows::{Bar, Row, Spec};
use crate::stats::median;
use crate::{Failure, Result};
use std::time::Duration;

/// Connections of each load.
const CONNECTIONS: usize = 64;

/// Keys that are written again and again.
const CAS_KEYS: u64 = 2_000;

/// Keys of a load that writes each once: more than a window has time for.
const NEW_KEYS: u64 = 10_000_000;

/// The store that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    Eventual,
    Consistent,
    Etcd,
}

/// A row of CPU per operation.
pub(super) type Case = (Store, Op);

pub(super) const GET: Case = (Store::Consistent, Op::Get);
pub(super) const PUT_ONCE: Case = (Store::Consistent, Op::PutOnce);
const CAS: Case = (Store::Consistent, Op::Cas);
pub(super) const EVENTUAL_GET: Case = (Store::Eventual, Op::Get);
pub(super) const EVENTUAL_PUT: Case = (Store::Eventual, Op::Put);
const ETCD_GET: Case = (Store::Etcd, Op::Get);
const ETCD_PUT: Case = (Store::Etcd, Op::Put);

const NODE_CASES: [Case; 5] = [EVENTUAL_GET, GET, EVENTUAL_PUT, PUT_ONCE, CAS];
const ETCD_CASES: [Case; 2] = [ETCD_GET, ETCD_PUT];

/// Quotients of rows: name, numerator, denominator, bar.
const RATIOS: [(&str, Case, Case, Bar); 4] = [
    ("get: consistent to eventual", GET, EVENTUAL_GET, Bar::AtMost(1.15)),
    ("put: consistent to eventual", PUT_ONCE, EVENTUAL_PUT, Bar::AtMost(1.4)),
    ("get: etcd to consistent", ETCD_GET, GET, Bar::AtLeast(8.0)),
    ("put: etcd to consistent", ETCD_PUT, PUT_ONCE, Bar::AtLeast(5.0)),
];

fn cost_spec(case: Case) -> Spec {
    let bar = (case == PUT_ONCE).then_some(Bar::AtMost(80.0));
    let store = match case.0 {
        Store::Eventual => "eventual",
        Store::Consistent => "consistent",
        Store::Etcd => "etcd",
    };
    Spec::new(format!("{store}/{CONNECTIONS}/{}", case.1.name()), "us", bar)
}

fn ratio_spec((name, _, _, bar): (&'static str, Case, Case, Bar)) -> Spec {
    Spec::new(name, "times", Some(bar))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let costs = NODE_CASES.into_iter().chain(ETCD_CASES).map(cost_spec);
    costs.chain(RATIOS.map(ratio_spec)).collect()
}

/// The measurement of a case in one round; of nodes with their counts.
type Measured = (Case, Cost, Option<Counts>);

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let mut measured = nodes(context)?;
    match etcd(context) {
        Ok(of_etcd) => measured.extend(of_etcd),
        Err(failure) => report.remark(format!("etcd was not measured: {failure}")),
    }
    for case in NODE_CASES.into_iter().chain(ETCD_CASES) {
        report.push(cost_row(case, &measured)?)?;
    }
    for ratio in RATIOS {
        let (_, over, under, _) = ratio;
        let quotient = cpu(over, &measured).zip(cpu(under, &measured)).map(|(over, under)| over / under);
        report.push(match quotient {
            Some(quotient) => ratio_spec(ratio).valued(quotient, "quotient of the rows above"),
            None => ratio_spec(ratio).failed("not measured"),
        })?;
    }
    Ok(())
}

/// Measures the cases of nodes in all rounds.
fn nodes(context: &Context) -> Result<Vec<Measured>> {
    let cluster = context.cluster("nodes")?;
    let objects = context.plan.objects;
    fill(&cluster, objects)?;
    let mut measured = Vec::new();
    for round in 1..=context.plan.rounds {
        for case in NODE_CASES {
            let load = of_round(case, round, objects);
            let (cost, counts) = observe(&cluster, &load, context)?;
            measured.push((case, cost, Some(counts)));
        }
        eprintln!("figures: round {round} of {}", context.plan.rounds);
    }
    cluster.stop()?;
    Ok(measured)
}

/// Writes the objects that reads ask for, and those that are written again and again.
pub(super) fn fill(cluster: &Cluster, objects: u64) -> Result<()> {
    cluster.servers.fill(&Load::fill(objects))?;
    for keys in [objects, CAS_KEYS] {
        let load = Load { bucket: bucket_of_keys(keys), ..load((Store::Consistent, Op::PutOnce), keys) };
        cluster.servers.fill(&Load { in_order: true, ..load })?;
    }
    Ok(())
}

/// Measures a load. Loads of new keys have no warm-up, which would take the keys.
pub(super) fn observe(cluster: &Cluster, load: &Load, context: &Context) -> Result<(Cost, Counts)> {
    let window = context.plan.window;
    let warm_up = if load.in_order { Duration::ZERO } else { window.warm_up };
    cluster.observe(load, warm_up, Until::Elapsed(window.time))
}

/// Measures etcd in all rounds.
fn etcd(context: &Context) -> Result<Vec<Measured>> {
    let cluster = EtcdCluster::start(&context.home)?;
    cluster.servers.fill(&Load { driver: "etcd", ..Load::fill(context.plan.objects) })?;
    let mut measured = Vec::new();
    for round in 1..=context.plan.rounds {
        for case in ETCD_CASES {
            let load = of_round(case, round, context.plan.objects);
            cluster.servers.rest()?;
            let cost = cluster.servers.cost_at_rest(&load, Until::Elapsed(context.plan.window.time))?;
            measured.push((case, cost, None));
        }
        eprintln!("figures: round {round} of {} of etcd", context.plan.rounds);
    }
    Ok(measured)
}

/// The load of a case.
fn load((store, op): Case, keys: u64) -> Load {
    let driver = if store == Store::Etcd { "etcd" } else { "pb" };
    let consistent_type = (store == Store::Consistent).then_some(TYPE);
    Load { driver, consistent_type, ..Load::new(op, CONNECTIONS, keys) }
}

/// The load of a case in a round.
pub(super) fn of_round(case: Case, round: usize, objects: u64) -> Load {
    let (store, op) = case;
    let seed = round as u64;
    match op {
        Op::Put | Op::PutOnce => {
            let bucket = format!("{}-{round}", op.name());
            Load { seed, bucket, in_order: true, ..load(case, NEW_KEYS) }
        }
        Op::Cas => Load { seed, bucket: bucket_of_keys(CAS_KEYS), ..load(case, CAS_KEYS) },
        _ if store == Store::Consistent => {
            Load { seed, bucket: bucket_of_keys(objects), ..load(case, objects) }
        }
        _ => Load { seed, ..load(case, objects) },
    }
}

/// The bucket of so many consistent objects.
fn bucket_of_keys(keys: u64) -> String {
    format!("of-{keys}")
}

fn costs(case: Case, measured: &[Measured]) -> Vec<&Cost> {
    measured.iter().filter(|(other, ..)| *other == case).map(|(_, cost, _)| cost).collect()
}

/// The median CPU of a case.
fn cpu(case: Case, measured: &[Measured]) -> Option<f64> {
    median(&costs(case, measured).iter().map(|cost| cost.server_us).collect::<Vec<f64>>())
}

fn cost_row(case: Case, measured: &[Measured]) -> Result<Row> {
    let costs = costs(case, measured);
    if costs.is_empty() {
        return Ok(cost_spec(case).failed("not measured"));
    }
    let row = Cost::row(cost_spec(case), &costs);
    if case.0 == Store::Etcd {
        return Ok(row);
    }
    let per_op = |name| Ok::<Option<f64>, Failure>(Some(sum(case, measured, name)? / ops(case, measured)));
    Ok(row
        .also("frames_per_op", per_op("peer_frames_sent")?)
        .also("peer_bytes_per_op", per_op("peer_bytes_sent")?)
        .also("peer_writes_per_op", per_op("peer_writes")?)
        .also("syncs_per_op", per_op("disk_syncs")?)
        .also("bytes_written_per_op", per_op("disk_write_bytes")?))
}

/// A count of a case, of all nodes and rounds.
fn sum(case: Case, measured: &[Measured], name: &str) -> Result<f64> {
    let of_case = measured.iter().filter(|(other, ..)| *other == case);
    of_case.filter_map(|(_, _, counts)| counts.as_ref()).map(|counts| counts.get(name)).sum()
}

fn ops(case: Case, measured: &[Measured]) -> f64 {
    costs(case, measured).iter().map(|cost| cost.outcome.ops).sum::<u64>().max(1) as f64
}
