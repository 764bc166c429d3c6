//! CPU per operation at durability `none`, beside Redis and the yardsticks, in rounds.

use super::{Context, OBJECTS};
use crate::Result;
use crate::annulet::Annulet;
use crate::calibrate::{Yardsticks, ping_pong};
use crate::measure::{self, CORES_MIN, Cost};
use crate::redis::RedisServer;
use crate::report::Report;
use crate::rows::{Bar, Row, Spec};
use crate::stats::{median, rounded};
use crate::workload::{Keys, Op, Redis, Riak, SplitMix};

/// A row of CPU per operation.
type Load = (usize, Op);

const OPS: [Op; 4] = [Op::Get, Op::Put, Op::Head, Op::Miss];
const CONNECTIONS: [usize; 4] = [64, 16, 1, 256];

/// At so many connections the peer is measured, with these bars on the ratios.
const PEER_CONNECTIONS: usize = 64;
const PEER: [(Op, Bar); 2] = [(Op::Get, Bar::AtMost(1.7)), (Op::Put, Bar::AtMost(2.0))];

/// Cores that may be busy with something else before a row says so.
const FOREIGN_CORES_MAX: f64 = 0.2;

const YARDSTICKS: [(&str, &str); 3] = [
    ("calibration/ping-pong cpu", "us"),
    ("calibration/pread 8 KB and crc", "us"),
    ("calibration/dependent load", "ns"),
];

fn bar((connections, op): Load) -> Option<Bar> {
    match (connections, op) {
        (64, Op::Get) => Some(Bar::AtMost(14.0)),
        (64, Op::Put) => Some(Bar::AtMost(16.0)),
        (64, Op::Head) => Some(Bar::AtMost(13.0)),
        (64, Op::Miss) => Some(Bar::AtMost(9.0)),
        (16, Op::Get) => Some(Bar::AtMost(18.0)),
        (16, Op::Put) => Some(Bar::AtMost(20.0)),
        _ => None,
    }
}

fn loads() -> impl Iterator<Item = Load> {
    CONNECTIONS.into_iter().flat_map(|connections| OPS.into_iter().map(move |op| (connections, op)))
}

fn own_spec(load: Load) -> Spec {
    Spec::new(format!("none/{}/{}", load.0, load.1.name()), "us", bar(load))
}

fn peer_spec(op: Op) -> Spec {
    Spec::new(format!("redis/{PEER_CONNECTIONS}/{}", op.name()), "us", None)
}

fn ratio_spec(op: Op, bar: Bar) -> Spec {
    Spec::new(format!("none/{PEER_CONNECTIONS}/{} over redis", op.name()), "ratio", Some(bar))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let mut specs: Vec<Spec> = loads().map(own_spec).collect();
    for (op, bar) in PEER {
        specs.extend([peer_spec(op), ratio_spec(op, bar)]);
    }
    specs.extend(YARDSTICKS.map(|(name, unit)| Spec::new(name, unit, None)));
    specs
}

/// What one round measured; all parts in the order of their declarations.
struct Round {
    own: Vec<Cost>,
    peer: Vec<Cost>,
    yardsticks: [f64; 3],
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let node = Annulet::start(&context.setup("cpu", "none")?)?;
    node.load(OBJECTS)?;
    let peer = start_peer(context);
    if let Err(failure) = &peer {
        report.remark(format!("Redis: {failure}"));
    }
    let mut yardsticks = Yardsticks::new(&context.home)?;
    let mut rounds = Vec::new();
    for number in 1..=context.plan.rounds {
        rounds.push(round(context, &node, peer.as_ref().ok(), &mut yardsticks, number as u64)?);
        eprintln!("figures: round {number} of {} of CPU per operation", context.plan.rounds);
    }
    node.stop()?;
    for (index, load) in loads().enumerate() {
        report.push(own_row(load, index, &rounds))?;
    }
    for (index, (op, bar)) in PEER.into_iter().enumerate() {
        let [cost, ratio] = match &peer {
            Ok(_) => peer_rows(op, bar, index, &rounds),
            Err(failure) => [peer_spec(op).failed(failure), ratio_spec(op, bar).failed(failure)],
        };
        report.push(cost)?;
        report.push(ratio)?;
    }
    for (index, (name, unit)) in YARDSTICKS.into_iter().enumerate() {
        let values: Vec<f64> = rounds.iter().map(|round| round.yardsticks[index]).collect();
        report.push(Spec::new(name, unit, None).measured(&values))?;
    }
    Ok(())
}

fn start_peer(context: &Context) -> Result<RedisServer> {
    let peer = RedisServer::start(&context.home)?;
    peer.load(OBJECTS)?;
    Ok(peer)
}

fn round(
    context: &Context,
    node: &Annulet,
    peer: Option<&RedisServer>,
    yardsticks: &mut Yardsticks,
    seed: u64,
) -> Result<Round> {
    let (window, time) = (context.plan.window, context.plan.yardstick);
    let mut keys = Keys::Uniform { from: 0, count: OBJECTS, rng: SplitMix::new(seed) };
    let mut round = Round { own: Vec::new(), peer: Vec::new(), yardsticks: [0.0; 3] };
    for (connections, op) in loads() {
        let own =
            measure::cost(node.pid(), node.address(), connections, &mut Riak::new(op), &mut keys, window)?;
        round.own.push(own);
        let beside = connections == PEER_CONNECTIONS && PEER.iter().any(|(with, _)| *with == op);
        if let Some(peer) = peer.filter(|_| beside) {
            let cost = measure::cost(
                peer.pid(),
                peer.address(),
                connections,
                &mut Redis::new(op),
                &mut keys,
                window,
            )?;
            round.peer.push(cost);
        }
    }
    round.yardsticks =
        [ping_pong(time)?.cpu_us, yardsticks.pread_crc_us(time)?, yardsticks.dependent_load_ns(time)?];
    Ok(round)
}

fn own_row(load: Load, index: usize, rounds: &[Round]) -> Row {
    let costs: Vec<&Cost> = rounds.iter().map(|round| &round.own[index]).collect();
    let per = |yardstick: usize, scale: f64| {
        let ratios: Vec<f64> = rounds
            .iter()
            .map(|round| round.own[index].server_us * scale / round.yardsticks[yardstick])
            .collect();
        median(&ratios)
    };
    cost_row(own_spec(load), &costs)
        .also("per_ping_pong", per(0, 1.0))
        .also("per_pread_crc", per(1, 1.0))
        .also("per_load", per(2, 1e3))
}

fn peer_rows(op: Op, bar: Bar, index: usize, rounds: &[Round]) -> [Row; 2] {
    let costs: Vec<&Cost> = rounds.iter().map(|round| &round.peer[index]).collect();
    let own =
        loads().position(|load| load == (PEER_CONNECTIONS, op)).expect("the peer is beside a row of ours");
    let ratios: Vec<f64> =
        rounds.iter().map(|round| round.own[own].server_us / round.peer[index].server_us).collect();
    [cost_row(peer_spec(op), &costs), ratio_spec(op, bar).measured(&ratios)]
}

/// A row of CPU per operation with its context.
fn cost_row(spec: Spec, costs: &[&Cost]) -> Row {
    let values = |field: fn(&Cost) -> f64| costs.iter().map(|cost| field(cost)).collect::<Vec<f64>>();
    let middle = |field| median(&values(field));
    let cores = middle(|cost| cost.cores).unwrap_or(0.0);
    let own_cores = middle(|cost| cost.own_cores).unwrap_or(0.0);
    let row = spec
        .measured(&values(|cost| cost.server_us))
        .also("generator_us", middle(|cost| cost.generator_us))
        .also("cores", Some(cores))
        .also("own_cores", Some(own_cores))
        .also("ops_per_s", middle(|cost| cost.ops_per_s))
        .also("p50_us", middle(|cost| cost.p50_us))
        .also("p99_us", middle(|cost| cost.p99_us));
    if cores < CORES_MIN {
        return row.noted(format!("only {} cores busy", rounded(cores)));
    }
    // The kernel's own threads, above all those that write to the disk, and whoever shares the machine.
    if cores - own_cores > FOREIGN_CORES_MAX {
        return row.noted(format!("{} cores busy with neither process", rounded(cores - own_cores)));
    }
    row
}
