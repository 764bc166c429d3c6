//! CPU per operation at durability `none`, beside Redis, HTTP and the yardsticks, in rounds.

use super::{Context, OBJECTS};
use crate::Result;
use crate::calibrate::{Yardstick, Yardsticks};
use crate::load::{Load, Op};
use crate::measure::Cost;
use crate::nodes::Cluster;
use crate::redis::RedisServer;
use crate::report::Report;
use crate::rows::{Bar, Spec};

/// A row of CPU per operation: connections and operation.
type Case = (usize, Op);

const OPS: [Op; 4] = [Op::Get, Op::Put, Op::Head, Op::Miss];
const CONNECTIONS: [usize; 4] = [64, 16, 1, 256];

/// The measurement beside a case of ours, right after it, with the bar on the ratio.
#[derive(Clone, Copy)]
struct Peer {
    driver: &'static str,
    case: Case,
    bar: Bar,
}

const PEERS: [Peer; 4] = [
    Peer { driver: REDIS, case: (64, Op::Get), bar: Bar::AtMost(1.7) },
    Peer { driver: REDIS, case: (64, Op::Put), bar: Bar::AtMost(2.0) },
    Peer { driver: HTTP, case: (16, Op::Get), bar: Bar::AtMost(1.5) },
    Peer { driver: HTTP, case: (16, Op::Put), bar: Bar::AtMost(1.5) },
];

/// Another store, by its own protocol.
const REDIS: &str = "redis";

/// The same node, by its other protocol.
const HTTP: &str = "http";

impl Peer {
    fn cost_spec(self) -> Spec {
        Spec::new(format!("{}/{}/{}", self.driver, self.case.0, self.case.1.name()), "us", None)
    }

    /// Ours is not to be dearer than Redis, and HTTP not dearer than ours by protocol buffers.
    fn ratio_spec(self) -> Spec {
        let (ours, peer) = (own_spec(self.case).row, self.driver);
        let name = if peer == HTTP {
            format!("{} over pb", self.cost_spec().row)
        } else {
            format!("{ours} over {peer}")
        };
        Spec::new(name, "ratio", Some(self.bar))
    }

    fn ratio(self, ours: &Cost, theirs: &Cost) -> f64 {
        let ratio = ours.server_us / theirs.server_us;
        if self.driver == HTTP { 1.0 / ratio } else { ratio }
    }
}

fn bar((connections, op): Case) -> Option<Bar> {
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

fn cases() -> impl Iterator<Item = Case> {
    CONNECTIONS.into_iter().flat_map(|connections| OPS.into_iter().map(move |op| (connections, op)))
}

fn own_spec(case: Case) -> Spec {
    Spec::new(format!("none/{}/{}", case.0, case.1.name()), "us", bar(case))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let mut specs: Vec<Spec> = cases().map(own_spec).collect();
    PEERS.iter().for_each(|peer| specs.extend([peer.cost_spec(), peer.ratio_spec()]));
    specs.extend(Yardstick::specs());
    specs
}

/// The measurements of a round, in the order of declarations; of an absent peer, nothing.
struct Round {
    own: Vec<Cost>,
    peers: Vec<Option<Cost>>,
    yardstick: Yardstick,
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let node = Cluster::start(&context.setup("cpu", "none")?)?;
    node.servers.fill(&Load::fill(OBJECTS))?;
    let redis = start_redis(context);
    if let Err(failure) = &redis {
        report.remark(format!("Redis: {failure}"));
    }
    let mut yardsticks = Yardsticks::new(&context.home)?;
    let mut rounds = Vec::new();
    for number in 1..=context.plan.rounds {
        rounds.push(round(context, &node, redis.as_ref().ok(), &mut yardsticks, number as u64)?);
        eprintln!("figures: round {number} of {} of CPU per operation", context.plan.rounds);
    }
    node.stop()?;

    let yardsticks: Vec<Yardstick> = rounds.iter().map(|round| round.yardstick).collect();
    for (index, case) in cases().enumerate() {
        let costs: Vec<&Cost> = rounds.iter().map(|round| &round.own[index]).collect();
        report.push(Cost::calibrated_row(own_spec(case), &costs, &yardsticks))?;
    }
    for (index, peer) in PEERS.into_iter().enumerate() {
        let own = cases().position(|case| case == peer.case).expect("a peer is beside a case of ours");
        let pairs: Vec<(&Cost, &Cost)> =
            rounds.iter().filter_map(|round| Some((&round.own[own], round.peers[index].as_ref()?))).collect();
        let costs: Vec<&Cost> = pairs.iter().map(|(_, theirs)| *theirs).collect();
        let ratios: Vec<f64> = pairs.iter().map(|(ours, theirs)| peer.ratio(ours, theirs)).collect();
        report.push(Cost::row(peer.cost_spec(), &costs))?;
        report.push(peer.ratio_spec().measured(&ratios))?;
    }
    Yardstick::rows(&yardsticks).into_iter().try_for_each(|row| report.push(row))
}

fn start_redis(context: &Context) -> Result<RedisServer> {
    let redis = RedisServer::start(&context.home)?;
    redis.servers.fill(&Load { driver: REDIS, ..Load::fill(OBJECTS) })?;
    Ok(redis)
}

fn round(
    context: &Context,
    node: &Cluster,
    redis: Option<&RedisServer>,
    yardsticks: &mut Yardsticks,
    seed: u64,
) -> Result<Round> {
    let window = context.plan.window;
    let (mut own, mut peers) = (Vec::new(), vec![None; PEERS.len()]);
    for case in cases() {
        let load = Load { seed, ..Load::new(case.1, case.0, OBJECTS) };
        own.push(node.servers.cost(&load, window)?);
        let beside = PEERS.iter().zip(&mut peers).filter(|(peer, _)| peer.case == case);
        for (&Peer { driver, .. }, measured) in beside {
            let load = Load { driver, ..load.clone() };
            *measured = match driver {
                HTTP => Some(node.by_http().cost(&load, window)?),
                _ => redis.map(|redis| redis.servers.cost(&load, window)).transpose()?,
            };
        }
    }
    Ok(Round { own, peers, yardstick: yardsticks.round(context.plan.yardstick)? })
}
