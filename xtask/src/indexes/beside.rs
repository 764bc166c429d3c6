//! Index queries of three nodes on our engine, beside three whose stores are RocksDB's.
//!
//! Both clusters are there at once and are asked in turns, so that what the machine does meanwhile meets both.

use super::Context;
use super::cluster::{RINGS, ask, fill, start};
use crate::Result;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;

/// Whether there is a RocksDB: the measured binary is built with the same feature.
const HAS_ROCKSDB: bool = cfg!(feature = "rocksdb");

fn mean() -> Spec {
    Spec::new("beside/mean latency of a query, ours over RocksDB's", "ratio", Some(Bar::AtMost(0.42)))
}

fn least() -> Spec {
    Spec::new("beside/least latency of a query, ours over RocksDB's", "ratio", Some(Bar::Below(1.0)))
}

fn cpu() -> Spec {
    Spec::new("beside/CPU of a query, ours over RocksDB's", "ratio", None)
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![mean(), least(), cpu()]
}

/// What a round of one of both measured: mean and least latency, CPU; in microseconds.
type Round = [f64; 3];

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    if !HAS_ROCKSDB {
        return Err("built without the feature rocksdb".into());
    }
    let plan = context.plan.cluster;
    let clusters =
        [start(context, "annulet", RINGS[0], None)?, start(context, "rocksdb", RINGS[0], Some("rocksdb"))?];
    for cluster in &clusters {
        fill(context, cluster, 0, plan.objects)?;
        cluster.servers.rest()?;
    }
    let mut rounds: [Vec<Round>; 2] = Default::default();
    for _ in 0..plan.rounds {
        for (rounds, cluster) in rounds.iter_mut().zip(&clusters) {
            let summary = ask(context, cluster, plan.objects)?;
            let cpu = summary.server_cpu_us_per_op.ok_or("the servers' CPU time is not known")?;
            rounds.push([summary.total.response.mean_us, summary.total.response.min_us, cpu]);
        }
    }
    let [ours, theirs] = &rounds;
    for (spec, at) in [(mean(), 0), (least(), 1), (cpu(), 2)] {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours[at] / theirs[at]).collect();
        let middle = |rounds: &[Round]| median(&rounds.iter().map(|round| round[at]).collect::<Vec<f64>>());
        report
            .push(spec.measured(&ratios).also("ours_us", middle(ours)).also("theirs_us", middle(theirs)))?;
    }
    clusters.into_iter().try_for_each(|cluster| cluster.stop())
}
