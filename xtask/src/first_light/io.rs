//! Reads per operation, by the node's count and by strace.

use super::{Context, OBJECTS};
use crate::Result;
use crate::load::{Load, Op, Until};
use crate::nodes::Cluster;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::strace::Strace;

/// GETs under strace.
const TRACED_OPS: u64 = 500;

const TRACED_CALLS: &str = "pread64,preadv,preadv2";

/// The rows of reads that a node counts; that of a GET has this bar.
pub fn counted_specs(name: &str, of_get: Option<Bar>) -> [Spec; 3] {
    let none = Some(Bar::Exactly(0.0));
    [("head journal reads", none), ("miss journal reads", none), ("get reads with data", of_get)]
        .map(|(what, bar)| Spec::new(format!("{name}/{what}"), "reads/op", bar))
}

fn traced_reads_of_get() -> Spec {
    Spec::new("io/get reads with data by strace", "reads/op", Some(Bar::Exactly(1.0)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    [counted_specs("io", Some(Bar::Exactly(1.0))).to_vec(), vec![traced_reads_of_get()]].concat()
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let node = Cluster::start(&context.setup("io", "none")?)?;
    node.servers.fill(&Load::fill(OBJECTS))?;
    node.servers.rest()?;
    let specs = counted_specs("io", Some(Bar::Exactly(1.0)));
    count(&node, OBJECTS, context.plan.counted_ops, specs, report)?;
    match traced(context, &node) {
        Ok((with_data, ops)) => {
            let row = traced_reads_of_get().valued(with_data as f64 / ops as f64, "counted");
            report.push(row.also("ops", Some(ops as f64)))?;
        }
        Err(failure) => report.push(traced_reads_of_get().failed(failure))?,
    }
    node.stop()?;
    Ok(())
}

/// Counts the reads of so many operations of each kind on keys below `objects`.
pub fn count(node: &Cluster, objects: u64, ops: u64, specs: [Spec; 3], report: &mut Report) -> Result<()> {
    for (spec, op) in specs.into_iter().zip([Op::Head, Op::Miss, Op::Get]) {
        let load = Load { seed: ops + op as u64, ..Load::new(op, 16, objects) };
        let before = node.counts()?;
        let ops = node.servers.run(&load, Until::Ops(ops))?.ops as f64;
        let since = node.counts()?.since(&before);
        let (journal, with_data) = (since.get("journal_reads_wanted")?, since.get("disk_reads_with_data")?);
        let row = spec
            .valued(if op == Op::Get { with_data } else { journal } / ops, "counted")
            .also("ops", Some(ops))
            .also("journal_reads", Some(journal))
            .also("reads_with_data", Some(with_data))
            .also("tries_short", Some(since.get("disk_tries_short")?))
            .also("tries_empty", Some(since.get("disk_tries_empty")?));
        report.push(row)?;
    }
    Ok(())
}

/// The reads that bring something for some GETs, as strace sees them, and how many GETs these were.
fn traced(context: &Context, node: &Cluster) -> Result<(usize, u64)> {
    let get = Load::new(Op::Get, 1, OBJECTS);
    node.servers.run(&get, Until::Ops(1))?;
    let strace = Strace::attach(node.pid(), TRACED_CALLS, &context.home.join("strace-io"))?;
    let ops = node.servers.run(&get, Until::Ops(TRACED_OPS))?.ops;
    Ok((strace.finish()?.into_iter().filter(|&bytes| bytes > 0).count(), ops))
}
