//! CPU per operation by HTTP, beside that by protocol buffers.

use super::{Context, OBJECTS};
use crate::Result;
use crate::annulet::Annulet;
use crate::measure::{self, Cost};
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::workload::{Http, Keys, Op, Riak, SplitMix};

const CONNECTIONS: usize = 16;
const OPS: [Op; 2] = [Op::Get, Op::Put];

/// Of HTTP over protocol buffers.
const RATIO_MAX: f64 = 1.5;

fn cost_spec(protocol: &str, op: Op) -> Spec {
    Spec::new(format!("{protocol}/{CONNECTIONS}/{}", op.name()), "us", None)
}

fn ratio_spec(op: Op) -> Spec {
    Spec::new(format!("http over pb/{CONNECTIONS}/{}", op.name()), "ratio", Some(Bar::AtMost(RATIO_MAX)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    OPS.into_iter().flat_map(|op| [cost_spec("pb", op), cost_spec("http", op), ratio_spec(op)]).collect()
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let node = Annulet::start(&context.setup("http", "none")?)?;
    node.load(OBJECTS)?;
    let mut keys = Keys::Uniform { from: 0, count: OBJECTS, rng: SplitMix::new(1) };
    let mut measured: [Vec<[Cost; 2]>; OPS.len()] = Default::default();
    for _ in 0..context.plan.rounds {
        for (op, of_op) in OPS.into_iter().zip(&mut measured) {
            let window = context.plan.window;
            let pb = measure::cost(&node.servers, CONNECTIONS, &mut Riak::new(op), &mut keys, window)?;
            let http = measure::cost(&node.by_http(), CONNECTIONS, &mut Http::new(op), &mut keys, window)?;
            of_op.push([pb, http]);
        }
    }
    node.stop()?;

    for (op, of_op) in OPS.into_iter().zip(&measured) {
        for (at, protocol) in ["pb", "http"].into_iter().enumerate() {
            let costs: Vec<&Cost> = of_op.iter().map(|costs| &costs[at]).collect();
            report.push(Cost::row(cost_spec(protocol, op), &costs))?;
        }
        let ratios: Vec<f64> = of_op.iter().map(|[pb, http]| http.server_us / pb.server_us).collect();
        report.push(ratio_spec(op).measured(&ratios))?;
    }
    Ok(())
}
