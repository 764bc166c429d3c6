//! Index queries under load: of two clusters, what a query takes within the load of leveled's own comparison (VOLUME.md, 2i load; experiment
//! A13), where to 100 reads of objects of 8 KB come 10 updates, 10 updates of objects with index entries, and two queries.
//!
//! 1. As in the seed, connections that do all they can. Whoever does more operations has more of them in a query's way.
//! 2. The same operations at one rate for both, [`SHARE`] of what the slower did: an open loop, so a latency counts from when an
//!    operation was due. This is what a user sees who moves the same work from one to the other.

use super::cluster::{Size, indexed, load, load_objects, query};
use super::{Context, US, push};
use crate::Result;
use crate::cluster::Cluster;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;

/// Seconds of a turn for each of a turn without load: flushes and compactions come and go within some seconds.
const LONGER: u64 = 2;

/// Objects of 8 KB that are read and updated beside queries.
const RECORDS: u64 = 100_000;

/// What is asked of both, of what the slower does at most: it keeps room for its compactions.
const SHARE: f64 = 0.7;

/// What the seed's comparison reached over its LSM tree.
const MEAN_MAX: f64 = 0.42;

/// The query's label in results.
const QUERY: &str = "query";

fn mean() -> Spec {
    let row = "beside/mean latency of a query under the same load, ours over RocksDB's";
    Spec::new(row, "ratio", Some(Bar::AtMost(MEAN_MAX)))
}

fn mean_at_most() -> Spec {
    Spec::new("beside/mean latency of a query at full speed, ours over RocksDB's", "ratio", None)
}

fn rate_at_most() -> Spec {
    Spec::new("beside/operations a second at full speed, ours over RocksDB's", "ratio", None)
}

/// Its rows.
pub fn specs() -> Vec<Spec> {
    vec![mean_at_most(), rate_at_most(), mean()]
}

/// Fills them: ours and theirs, in turns.
pub fn run(context: &Context, clusters: &[Cluster; 2], report: &mut Report) -> Result<()> {
    let plan = context.plan.cluster;
    for cluster in clusters {
        load_objects(context, cluster, &records(), RECORDS)?;
        cluster.servers.rest()?;
    }
    let turns = |text: &str| -> Result<[Vec<[f64; 2]>; 2]> {
        let mut rounds: [Vec<[f64; 2]>; 2] = Default::default();
        for _ in 0..plan.rounds {
            for (rounds, cluster) in rounds.iter_mut().zip(clusters) {
                rounds.push(turn(context, cluster, text)?);
            }
        }
        Ok(rounds)
    };
    let at_most = turns(&mixed(plan, &full_speed()))?;
    push(&at_most, [(mean_at_most(), US), (rate_at_most(), ["ours_per_s", "theirs_per_s"])], report)?;
    let rates = at_most.map(|rounds| median(&rounds.iter().map(|[_, rate]| *rate).collect::<Vec<f64>>()));
    let slower = rates.into_iter().flatten().fold(f64::INFINITY, f64::min);
    let rate = (SHARE * slower).round();
    let rounds = turns(&mixed(plan, &at_rate(rate)))?
        .map(|rounds| rounds.into_iter().map(|[mean, _]| [mean]).collect());
    push(&rounds, [(mean(), US)], report)
}

/// The mean latency of a query, in microseconds, and operations a second.
fn turn(context: &Context, cluster: &Cluster, text: &str) -> Result<[f64; 2]> {
    let (summary, _) = load(context, cluster, text)?;
    let query = summary.operations.get(QUERY).ok_or("no query was asked")?;
    Ok([query.response.mean_us, summary.total.throughput.mean])
}

/// As our form of A13 has: more than two processors have work for, and fewer than make a query wait behind a queue of clients alone.
const CONNECTIONS: u32 = 16;

/// As a burst of an open loop may need: an operation that is due waits for none.
const CONNECTIONS_AT_RATE: u32 = 64;

fn full_speed() -> String {
    format!("concurrency = {CONNECTIONS}")
}

/// So many operations a second.
fn at_rate(rate: f64) -> String {
    format!("concurrency = {CONNECTIONS_AT_RATE}\nload = {{ kind = \"poisson\", rate = {rate} }}")
}

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
fn mixed(plan: Size, load: &str) -> String {
    let seconds = LONGER * plan.seconds;
    let head = format!("{load}\nwarm_up = \"2s\"\nduration = \"{seconds}s\"\ncheck = {{ audit = 0 }}");
    let of_records = |what: &str| {
        format!(
            "{what}\nvalue = {{ size = 8000 }}\n\
             keys = {{ kind = \"truncated-pareto\", count = {RECORDS} }}\n[[operation]]\n"
        )
    };
    let operations = [
        of_records("op = \"get\"\nweight = 100\nbucket = \"records\""),
        of_records("op = \"update\"\nweight = 10\nbucket = \"plain\"\nindexes = \"none\""),
        of_records(
            "label = \"update with 2i\"\nop = \"update\"\nweight = 10\nbucket = \"records\"\n\
             indexes = \"person\"",
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
        for text in [records(), mixed(QUICK, &full_speed()), mixed(QUICK, &at_rate(1_000.0))] {
            Workload::parse(&text, "figures").unwrap();
        }
    }
}
