//! What is read to find and repair the keys that a replica holds differently: one of ten thousand.
//!
//! 1. Objects are written to three nodes, and one node's data is copied.
//! 2. A second version of some is written, and the node gets its old data back.
//! 3. At rest, the node is told to compare all that it holds. What all nodes read from then on until it is healed is counted.

use super::{Context, RARELY, wait_for_all_trees};
use crate::Result;
use crate::annulet::{Counts, post};
use crate::cluster::{Cluster, NODES};
use crate::process::replace_dir;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::workload::{Op, Riak, Shape};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Of so many objects one differs.
const DIFFERS_ONE_OF: u64 = 10_000;

/// Longer than what the ledger keeps itself: such values are in the journal.
const VALUE_LEN: usize = 300;

/// How long it may take until all is healed.
const HEALED_MAX: Duration = Duration::from_secs(120);

fn ledger() -> Spec {
    Spec::new("differing/read of the ledger's bytes", "%", Some(Bar::AtMost(1.0)))
}

fn values() -> Spec {
    Spec::new("differing/values read for each that differs", "values", Some(Bar::AtMost(1.0)))
}

fn healed() -> Spec {
    Spec::new("differing/healed", "%", Some(Bar::AtLeast(100.0)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![ledger(), values(), healed()]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let objects = context.plan.differing_in;
    let differ = (objects / DIFFERS_ONE_OF).max(1);
    let setup = context.setup("differing", 64, RARELY)?;
    let (old, last) = (setup.home.join("old"), setup.folder(NODES));
    let shape = Shape { len: VALUE_LEN, ..Shape::PLAIN };
    let cluster = Cluster::start(&setup)?;
    cluster.servers.load(&mut Riak::shaped(Op::Put, shape), 0, objects)?;
    cluster.servers.rest()?;
    cluster.stop()?;
    replace_dir(&last, &old)?;
    let cluster = Cluster::start(&setup)?;
    let second = Shape { version: 2, ..shape };
    // The first key is read, and so repaired, whenever a cluster starts.
    cluster.servers.load(&mut Riak::shaped(Op::Put, second), 1, differ)?;
    cluster.servers.rest()?;
    cluster.stop()?;
    replace_dir(&old, &last)?;

    let cluster = Cluster::start(&setup)?;
    wait_for_all_trees(&cluster)?;
    cluster.servers.rest()?;
    let before = cluster.counts()?;
    post(cluster.http(NODES - 1), "/admin/aae/repair", "{}")?;
    let begin = Instant::now();
    let sum = |after: &[Counts], name: &str| -> Result<u64> {
        before.iter().zip(after).map(|(then, now)| now.since(then, name)).sum()
    };
    while sum(&cluster.counts()?, "repairs")? < differ && begin.elapsed() < HEALED_MAX {
        sleep(Duration::from_millis(50));
    }
    // Until nobody compares any more.
    cluster.servers.rest()?;
    let after = cluster.counts()?;
    let mut shares = Vec::new();
    for (then, now) in before.iter().zip(&after) {
        let read = now.since(then, "disk_read_bytes")? as f64;
        shares.push(100.0 * read / then.get("table_bytes")?.max(1) as f64);
    }
    let most = shares.iter().copied().fold(0.0, f64::max);
    let ledger_bytes = before[NODES - 1].get("table_bytes")? as f64;
    report.push(
        ledger()
            .valued(most, "once")
            .also("objects", Some(objects as f64))
            .also("differ", Some(differ as f64))
            .also("ledger_bytes_of_a_node", Some(ledger_bytes))
            .also("of_the_one_that_was_behind", shares.last().copied())
            .also("reads", Some(sum(&after, "disk_reads_with_data")? as f64))
            .also("tables_of_a_node", Some(before[NODES - 1].get("tables")? as f64))
            .also("exchanges", Some(sum(&after, "exchanges")? as f64))
            .also("keys_found", Some(sum(&after, "exchange_keys")? as f64))
            .also("partitions_made_anew", Some(sum(&after, "trees_made")? as f64)),
    )?;
    let read = sum(&after, "journal_reads_wanted")? as f64 / differ as f64;
    report.push(values().valued(read, "once"))?;
    report.push(healed().valued(100.0 * sum(&after, "repairs")? as f64 / differ as f64, "once"))?;
    cluster.stop()
}
