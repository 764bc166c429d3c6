//! What the membership of a cluster at rest costs each node, from 10 nodes to 1,000, simulated: the real failure detector and
//! metadata log on a network without faults.

use super::Context;
use crate::Result;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use sim::Seed;
use sim::elastic::Shape;
use sim::elastic::idle::{self, Idle};

/// The clusters, smallest and largest first: nodes and partitions.
const SHAPES: [(u64, u64); 3] = [(10, 256), (1000, 16_384), (100, 2048)];

/// What is measured of each: its name, its unit, and the mean of all nodes in a second.
type Measure = (&'static str, &'static str, fn(&Idle) -> (f64, f64));

const MEASURES: [Measure; 3] = [
    ("messages sent", "1/s", |idle| idle.messages),
    ("bytes sent", "B/s", |idle| idle.bytes),
    ("steps", "1/s", |idle| idle.steps),
];

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let all = SHAPES.iter().flat_map(|(nodes, _)| MEASURES.iter().map(|measure| spec(*nodes, measure)));
    all.chain(MEASURES.iter().map(ratio_spec)).collect()
}

fn spec(nodes: u64, (name, unit, _): &Measure) -> Spec {
    Spec::new(format!("idle/{nodes} nodes, membership, {name}"), unit, None)
}

/// Flat: what is dearer by a half does not grow with the nodes.
fn ratio_spec((name, ..): &Measure) -> Spec {
    Spec::new(format!("idle/1000 nodes over 10, membership, {name}"), "ratio", Some(Bar::AtMost(1.5)))
}

/// Fills them.
pub fn run(_: &Context, report: &mut Report) -> Result<()> {
    let mut measured = Vec::new();
    for (nodes, partitions) in SHAPES {
        let shape = Shape::of(nodes, partitions).ok_or("no cluster is of this shape")?;
        let idle = idle::measure(Seed(1), shape);
        for measure in &MEASURES {
            let (mean, most) = measure.2(&idle);
            let noise = format!("the busiest node {most:.1}; {} taken for down", idle.taken_for_down);
            report.push(spec(nodes, measure).valued(mean, noise))?;
        }
        measured.push(idle);
    }
    for measure in &MEASURES {
        let [smallest, largest] = [&measured[0], &measured[1]].map(|idle| measure.2(idle).0);
        report.push(ratio_spec(measure).valued(largest / smallest, "simulated: no noise"))?;
    }
    Ok(())
}
