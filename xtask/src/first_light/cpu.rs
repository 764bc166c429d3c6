//! CPU per operation at durability `none`, beside Redis and the yardsticks, in rounds.

use super::{Context, OBJECTS};
use crate::Result;
use crate::annulet::Annulet;
use crate::calibrate::{Yardstick, Yardsticks};
use crate::measure::{self, Cost};
use crate::redis::RedisServer;
use crate::report::Report;
use crate::rows::{Bar, Row, Spec};
use crate::workload::{Keys, Op, Redis, Riak, SplitMix};

/// A row of CPU per operation.
type Load = (usize, Op);

const OPS: [Op; 4] = [Op::Get, Op::Put, Op::Head, Op::Miss];
const CONNECTIONS: [usize; 4] = [64, 16, 1, 256];

/// At so many connections the peer is measured, with these bars on the ratios.
const PEER_CONNECTIONS: usize = 64;
const PEER: [(Op, Bar); 2] = [(Op::Get, Bar::AtMost(1.7)), (Op::Put, Bar::AtMost(2.0))];

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
    specs.extend(Yardstick::specs());
    specs
}

/// What one round measured; all parts in the order of their declarations.
struct Round {
    own: Vec<Cost>,
    peer: Vec<Cost>,
    yardstick: Yardstick,
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
    let yardsticks: Vec<Yardstick> = rounds.iter().map(|round| round.yardstick).collect();
    Yardstick::rows(&yardsticks).into_iter().try_for_each(|row| report.push(row))
}

fn start_peer(context: &Context) -> Result<RedisServer> {
    let peer = RedisServer::start(&context.home)?;
    peer.servers.load(&mut Redis::new(Op::Put), 0, OBJECTS)?;
    Ok(peer)
}

fn round(
    context: &Context,
    node: &Annulet,
    peer: Option<&RedisServer>,
    yardsticks: &mut Yardsticks,
    seed: u64,
) -> Result<Round> {
    let window = context.plan.window;
    let mut keys = Keys::Uniform { from: 0, count: OBJECTS, rng: SplitMix::new(seed) };
    let (mut own, mut beside) = (Vec::new(), Vec::new());
    for (connections, op) in loads() {
        own.push(measure::cost(&node.servers, connections, &mut Riak::new(op), &mut keys, window)?);
        let has_peer = connections == PEER_CONNECTIONS && PEER.iter().any(|(with, _)| *with == op);
        if let Some(peer) = peer.filter(|_| has_peer) {
            let redis = &mut Redis::new(op);
            beside.push(measure::cost(&peer.servers, connections, redis, &mut keys, window)?);
        }
    }
    Ok(Round { own, peer: beside, yardstick: yardsticks.round(context.plan.yardstick)? })
}

fn own_row(load: Load, index: usize, rounds: &[Round]) -> Row {
    let costs: Vec<&Cost> = rounds.iter().map(|round| &round.own[index]).collect();
    let yardsticks: Vec<Yardstick> = rounds.iter().map(|round| round.yardstick).collect();
    Cost::calibrated_row(own_spec(load), &costs, &yardsticks)
}

fn peer_rows(op: Op, bar: Bar, index: usize, rounds: &[Round]) -> [Row; 2] {
    let costs: Vec<&Cost> = rounds.iter().map(|round| &round.peer[index]).collect();
    let own =
        loads().position(|load| load == (PEER_CONNECTIONS, op)).expect("the peer is beside a row of ours");
    let ratios: Vec<f64> =
        rounds.iter().map(|round| round.own[own].server_us / round.peer[index].server_us).collect();
    [Cost::row(peer_spec(op), &costs), ratio_spec(op, bar).measured(&ratios)]
}
