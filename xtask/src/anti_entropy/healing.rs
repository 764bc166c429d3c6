//! Differences that are found and healed while clients write, and what clients lose by it.
//!
//! 1. Objects are written to three nodes, and one node's data is copied.
//! 2. A second version of some is written, and the node gets its old data back: these differ, and nobody has a hint.
//! 3. Clients write other objects for two cycles, in which they are to be found and healed.
//! 4. The same without anti-entropy, on the same data.

use super::{Context, RARELY, wait_for_all_trees};
use crate::Result;
use crate::annulet::Counts;
use crate::cluster::{Cluster, NODES, Setup};
use crate::generator::Until;
use crate::process::replace_dir;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::workload::{Keys, Op, Riak, Shape, SplitMix};
use std::path::Path;
use std::time::Duration;

const RINGS: [u32; 2] = [64, 1024];
const CONNECTIONS: usize = 32;

/// Differences to a minute of the two cycles in which they are to be healed, with some to spare.
const PLANTED_PER_MINUTE: f64 = 1_200.0;

fn lost(ring: u32) -> Spec {
    Spec::new(format!("ring {ring}/throughput lost"), "%", Some(Bar::AtMost(2.0)))
}

fn healed(ring: u32) -> Spec {
    Spec::new(format!("ring {ring}/differences healed meanwhile"), "1/min", Some(Bar::AtLeast(1000.0)))
}

fn share(ring: u32) -> Spec {
    Spec::new(format!("ring {ring}/healed within two cycles"), "%", Some(Bar::AtLeast(100.0)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    RINGS.into_iter().flat_map(|ring| [lost(ring), healed(ring), share(ring)]).collect()
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    for ring in RINGS {
        let setup = context.setup(&format!("ring-{ring}"), ring, RARELY)?;
        let old = setup.home.join("old");
        let cluster = Cluster::start(&setup)?;
        cluster.servers.load(&mut Riak::new(Op::Put), 0, context.plan.planted_in)?;
        cluster.servers.rest()?;
        cluster.stop()?;
        let (mut lost_of, mut healed_of, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..context.plan.healings {
            let planted = plant(context, &setup, &old, round as u64)?;
            let with = beside_clients(
                context,
                &Setup { anti_entropy: Some(context.plan.cycle.0), ..setup.clone() },
            )?;
            let without = beside_clients(context, &Setup { anti_entropy: Some("off"), ..setup.clone() })?;
            lost_of.push(100.0 * (1.0 - with.0 / without.0));
            let found = with.1.min(planted) as f64;
            healed_of.push(found / (2.0 * context.plan.cycle.1.as_secs_f64() / 60.0));
            shares.push(100.0 * found / planted as f64);
        }
        report.push(lost(ring).measured(&lost_of))?;
        report.push(healed(ring).measured(&healed_of))?;
        report.push(share(ring).measured(&shares))?;
    }
    Ok(())
}

/// Steps 1 and 2; how many differ.
fn plant(context: &Context, setup: &Setup, old: &Path, round: u64) -> Result<u64> {
    let minutes = 2.0 * context.plan.cycle.1.as_secs_f64() / 60.0;
    let planted = (PLANTED_PER_MINUTE * minutes) as u64;
    let last = setup.folder(NODES);
    replace_dir(&last, old)?;
    let cluster = Cluster::start(setup)?;
    let second = Shape { version: 2 + round, ..Shape::PLAIN };
    cluster.servers.load(&mut Riak::shaped(Op::Put, second), 0, planted)?;
    cluster.servers.rest()?;
    cluster.stop()?;
    replace_dir(old, &last)?;
    Ok(planted)
}

/// Steps 3 and 4: operations a second, and versions that were sent to replicas which were behind.
fn beside_clients(context: &Context, setup: &Setup) -> Result<(f64, u64)> {
    let cluster = Cluster::start(setup)?;
    if setup.anti_entropy != Some("off") {
        wait_for_all_trees(&cluster)?;
    }
    let (put, from) = (&mut Riak::new(Op::Put), context.plan.planted_in / 2);
    let mut keys = Keys::Uniform { from, count: context.plan.planted_in - from, rng: SplitMix::new(3) };
    let mut session = cluster.servers.connect(CONNECTIONS)?;
    session.run(put, &mut keys, Until::Elapsed(Duration::from_secs(1)))?;
    let outcome = session.run(put, &mut keys, Until::Elapsed(context.plan.cycle.1 * 2))?;
    let repairs = |counts: &Counts| counts.get("repairs");
    let healed = cluster.counts()?.iter().map(repairs).sum::<Result<u64>>()?;
    cluster.stop()?;
    Ok((outcome.ops as f64 / outcome.wall.as_secs_f64(), healed))
}
