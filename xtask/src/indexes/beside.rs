//! Index queries of three nodes on our engine, beside three whose stores are RocksDB's.
//!
//! 1. Both clusters are there at once and are asked in turns, so that what the machine does meanwhile meets both.
//! 2. One connection asks each, and nothing else is done: the least latency is that of a store without load.
//! 3. The same query is asked within a load of reads and updates ([`super::loaded`]).

use super::cluster::{RINGS, ask, fill, start};
use super::loaded;
use super::{Context, US, push};
use crate::Result;
use crate::report::Report;
use crate::rows::{Bar, Spec};

/// Whether there is a RocksDB: the measured binary is built with the same feature.
const HAS_ROCKSDB: bool = cfg!(feature = "rocksdb");

fn mean() -> Spec {
    Spec::new("beside/mean latency of a query, ours over RocksDB's", "ratio", None)
}

fn least() -> Spec {
    Spec::new("beside/least latency of a query, ours over RocksDB's", "ratio", Some(Bar::Below(1.0)))
}

fn cpu() -> Spec {
    Spec::new("beside/CPU of a query, ours over RocksDB's", "ratio", None)
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    [mean(), least(), cpu()].into_iter().chain(loaded::specs()).collect()
}

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
    let mut rounds: [Vec<[f64; 3]>; 2] = Default::default();
    for _ in 0..plan.rounds {
        for (rounds, cluster) in rounds.iter_mut().zip(&clusters) {
            let summary = ask(context, cluster, plan.objects)?;
            let cpu = summary.server_cpu_us_per_op.ok_or("the servers' CPU time is not known")?;
            rounds.push([summary.total.response.mean_us, summary.total.response.min_us, cpu]);
        }
    }
    push(&rounds, [(mean(), US), (least(), US), (cpu(), US)], report)?;
    loaded::run(context, &clusters, report)?;
    clusters.into_iter().try_for_each(|cluster| cluster.stop())
}
