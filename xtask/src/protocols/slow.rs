//! What clients that begin a request and do not go on cost the others.

use super::{Context, OBJECTS};
use crate::Result;
use crate::annulet::Annulet;
use crate::measure;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::sys::allow_many_files;
use crate::workload::{Http, Keys, Op, Riak, SplitMix};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};

const CONNECTIONS: usize = 16;

/// Slow clients of each protocol.
const SLOW: usize = 1_000;

/// The 99th percentile with slow clients, over that without.
const RATIO_MAX: f64 = 1.5;

/// The beginning of a request, which nothing follows.
const HTTP_BEGUN: &[u8] = b"GET /buckets/figures/ke";
const PB_BEGUN: &[u8] = &[0, 0, 0, 40, 9, 10];

const PROTOCOLS: [&str; 2] = ["pb", "http"];

fn spec(protocol: &str) -> Spec {
    let row = format!("{protocol}/{CONNECTIONS}/get p99, {} slow clients over none", 2 * SLOW);
    Spec::new(row, "ratio", Some(Bar::AtMost(RATIO_MAX)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    PROTOCOLS.map(spec).into()
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    allow_many_files()?;
    let node = Annulet::start(&context.setup("slow")?)?;
    node.load(OBJECTS)?;
    let mut ratios = PROTOCOLS.map(|_| Vec::new());
    let (mut calm, mut slowed) = (PROTOCOLS.map(|_| Vec::new()), PROTOCOLS.map(|_| Vec::new()));
    for _ in 0..context.plan.rounds {
        for at in 0..PROTOCOLS.len() {
            let without = p99(context, &node, at)?;
            let clients = slow_clients(&node)?;
            let with = p99(context, &node, at)?;
            drop(clients);
            ratios[at].push(with / without);
            calm[at].push(without);
            slowed[at].push(with);
        }
    }
    node.stop()?;
    for (at, protocol) in PROTOCOLS.into_iter().enumerate() {
        let row = spec(protocol)
            .measured(&ratios[at])
            .also("p99_us_without", crate::stats::median(&calm[at]))
            .also("p99_us_with", crate::stats::median(&slowed[at]));
        report.push(row)?;
    }
    Ok(())
}

fn p99(context: &Context, node: &Annulet, at: usize) -> Result<f64> {
    let mut keys = Keys::Uniform { from: 0, count: OBJECTS, rng: SplitMix::new(1) };
    let window = context.plan.window;
    let cost = match PROTOCOLS[at] {
        "pb" => measure::cost(&node.servers, CONNECTIONS, &mut Riak::new(Op::Get), &mut keys, window)?,
        _ => measure::cost(&node.by_http(), CONNECTIONS, &mut Http::new(Op::Get), &mut keys, window)?,
    };
    Ok(cost.p99_us)
}

fn slow_clients(node: &Annulet) -> Result<Vec<TcpStream>> {
    let connect = |address: &SocketAddr, begun: &[u8]| -> Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(begun)?;
        Ok(stream)
    };
    let mut clients = Vec::with_capacity(2 * SLOW);
    for _ in 0..SLOW {
        clients.push(connect(&node.servers.addresses[0], PB_BEGUN)?);
        clients.push(connect(&node.by_http().addresses[0], HTTP_BEGUN)?);
    }
    Ok(clients)
}
