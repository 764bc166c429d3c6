//! Index queries of three nodes on our engine, beside three whose stores are RocksDB's.
//!
//! 1. Both clusters are there at once and are asked in turns, so that what the machine does meanwhile meets both.
//! 2. One connection asks each, and nothing else is done: the least latency is that of a store without load.
//! 3. The same query is asked within the load of leveled's own comparison (VOLUME.md, 2i load; experiment A13): to 100 reads of objects of
//!    8 KB come 10 updates, 10 updates of objects with index entries, and two queries. Its mean is what the seed reports.

use super::Context;
use super::cluster::{RINGS, Size, ask, fill, indexed, load, load_objects, query, start};
use crate::Result;
use crate::cluster::Cluster;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;

/// Whether there is a RocksDB: the measured binary is built with the same feature.
const HAS_ROCKSDB: bool = cfg!(feature = "rocksdb");

/// Seconds under load for each without: flushes and compactions come and go within some seconds.
const LONGER: u64 = 2;

/// Objects of 8 KB that are read and updated beside queries.
const RECORDS: u64 = 100_000;

/// What the seed's comparison reached over its LSM tree.
const MEAN_MAX: f64 = 0.42;

fn loaded_mean() -> Spec {
    Spec::new(
        "beside/mean latency of a query under load, ours over RocksDB's",
        "ratio",
        Some(Bar::AtMost(MEAN_MAX)),
    )
}

fn loaded_rate() -> Spec {
    Spec::new("beside/operations a second under load, ours over RocksDB's", "ratio", None)
}

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
    vec![mean(), least(), cpu(), loaded_mean(), loaded_rate()]
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
    push(&rounds, [(mean(), US), (least(), US), (cpu(), US)], report)?;

    for cluster in &clusters {
        load_objects(context, cluster, &records(), RECORDS)?;
        cluster.servers.rest()?;
    }
    let mut rounds: [Vec<[f64; 2]>; 2] = Default::default();
    for _ in 0..plan.rounds {
        for (rounds, cluster) in rounds.iter_mut().zip(&clusters) {
            rounds.push(asked_under_load(context, cluster, plan)?);
        }
    }
    push(&rounds, [(loaded_mean(), US), (loaded_rate(), ["ours_per_s", "theirs_per_s"])], report)?;
    clusters.into_iter().try_for_each(|cluster| cluster.stop())
}

/// What the medians of both are called beside a ratio of times.
const US: [&str; 2] = ["ours_us", "theirs_us"];

/// The rows of what was measured in turns: the median of the ratios of turns.
fn push<const N: usize>(
    [ours, theirs]: &[Vec<[f64; N]>; 2],
    specs: [(Spec, [&'static str; 2]); N],
    report: &mut Report,
) -> Result<()> {
    for (at, (spec, [of_ours, of_theirs])) in specs.into_iter().enumerate() {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours[at] / theirs[at]).collect();
        let middle =
            |rounds: &[[f64; N]]| median(&rounds.iter().map(|round| round[at]).collect::<Vec<f64>>());
        let row = spec.measured(&ratios).also(of_ours, middle(ours));
        report.push(row.also(of_theirs, middle(theirs)))?;
    }
    Ok(())
}

/// The mean latency of a query, and operations a second, while a cluster does all it can.
fn asked_under_load(context: &Context, cluster: &Cluster, plan: Size) -> Result<[f64; 2]> {
    let (summary, _) = load(context, cluster, &mixed(plan))?;
    let query = summary.operations.get(QUERY).ok_or("no query was asked")?;
    Ok([query.response.mean_us, summary.total.throughput.mean])
}

/// Its label in results.
const QUERY: &str = "query";

fn records() -> String {
    let head =
        "concurrency = 64\nwarm_up = \"0s\"\nduration = \"1h\"\nquorums = { w = 3 }\ncheck = { audit = 0 }";
    let operation = format!(
        "op = \"put\"\nbucket = \"records\"\nindexes = \"person\"\nvalue = {{ size = 8000 }}\n\
         keys = {{ kind = \"sequential\", count = {RECORDS} }}"
    );
    indexed(head, RECORDS, &operation)
}

/// Experiment A13's operations; its two queries are one of a thousand rows, whose objects are written no more, so that none may be missing.
fn mixed(plan: Size) -> String {
    let head = format!(
        "concurrency = 16\nwarm_up = \"2s\"\nduration = \"{}s\"\ncheck = {{ audit = 0 }}",
        LONGER * plan.seconds
    );
    let of_records = |what: &str| {
        format!(
            "{what}\nvalue = {{ size = 8000 }}\nkeys = {{ kind = \"truncated-pareto\", count = {RECORDS} }}\n[[operation]]\n"
        )
    };
    let operations = [
        of_records("op = \"get\"\nweight = 100\nbucket = \"records\""),
        of_records("op = \"update\"\nweight = 10\nbucket = \"plain\"\nindexes = \"none\""),
        of_records(
            "label = \"update with 2i\"\nop = \"update\"\nweight = 10\nbucket = \"records\"\nindexes = \"person\"",
        ),
        format!("label = \"{QUERY}\"\nweight = 2\n{}", query()),
    ];
    indexed(&head, plan.objects, &operations.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::indexes::cluster::QUICK;
    use bench::Workload;

    #[test]
    fn workloads_are_read() {
        for text in [records(), mixed(QUICK)] {
            Workload::parse(&text, "figures").unwrap();
        }
    }
}
