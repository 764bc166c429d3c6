//! What trees cost a write: two clusters take turns, one of which keeps none.

use super::{Context, RARELY, wait_for_all_trees};
use crate::Result;
use crate::cluster::{Cluster, NODES};
use crate::generator::Until;
use crate::measure::Cost;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use crate::workload::{Keys, Op, Riak, SplitMix};

const OBJECTS: u64 = 50_000;
const CONNECTIONS: usize = 64;

fn of_a_node() -> Spec {
    Spec::new("trees/CPU of a put, of each node", "us", Some(Bar::AtMost(0.5)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![of_a_node()]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let with = Cluster::start(&context.setup("with", 64, RARELY)?)?;
    let without = Cluster::start(&context.setup("without", 64, "off")?)?;
    for cluster in [&with, &without] {
        cluster.servers.load(&mut Riak::new(Op::Put), 0, OBJECTS)?;
        cluster.servers.rest()?;
    }
    wait_for_all_trees(&with)?;
    let mut keys = Keys::Uniform { from: 0, count: OBJECTS, rng: SplitMix::new(1) };
    let mut of_pairs = Vec::new();
    for _ in 0..context.plan.rounds {
        let with = measure(context, &with, &mut keys)?;
        let without = measure(context, &without, &mut keys)?;
        of_pairs.push((with.server_us - without.server_us, without.server_us));
    }
    let differences: Vec<f64> = of_pairs.iter().map(|(more, _)| more / NODES as f64).collect();
    let all = median(&of_pairs.iter().map(|(_, all)| *all).collect::<Vec<f64>>());
    report.push(of_a_node().measured(&differences).also("put_us_of_all_nodes", all))?;
    with.stop()?;
    without.stop()
}

fn measure(context: &Context, cluster: &Cluster, keys: &mut Keys) -> Result<Cost> {
    let (put, window) = (&mut Riak::new(Op::Put), context.plan.window);
    let mut session = cluster.servers.connect(CONNECTIONS)?;
    session.run(put, keys, Until::Elapsed(window.warm_up))?;
    Ok(cluster.observe(&mut session, put, keys, Until::Elapsed(window.time))?.0)
}
