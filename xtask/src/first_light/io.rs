//! Reads per operation, by the node's count and by strace.

use super::{Context, OBJECTS};
use crate::Result;
use crate::annulet::Annulet;
use crate::generator::Until;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::strace::{Reads, Strace};
use crate::workload::{Keys, Op, Riak, SplitMix};

/// GETs under strace.
const TRACED_OPS: u64 = 500;

const TRACED_CALLS: &str = "pread64,preadv,preadv2";

fn journal_reads(op: Op) -> Spec {
    Spec::new(format!("io/{} journal reads", op.name()), "reads/op", Some(Bar::Exactly(0.0)))
}

fn reads_of_get() -> Spec {
    Spec::new("io/get reads with data", "reads/op", Some(Bar::Exactly(1.0)))
}

fn traced_reads_of_get() -> Spec {
    Spec::new("io/get reads with data by strace", "reads/op", Some(Bar::Exactly(1.0)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![journal_reads(Op::Head), journal_reads(Op::Miss), reads_of_get(), traced_reads_of_get()]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let node = Annulet::start(&context.setup("io", "none")?)?;
    node.load(OBJECTS)?;
    node.servers.rest()?;
    for op in [Op::Head, Op::Miss] {
        let reads = count(&node, op, OBJECTS, context.plan.counted_ops)?;
        let row = journal_reads(op).valued(reads.per_op(reads.journal), "counted");
        report.push(reads.beside(row))?;
    }
    let reads = count(&node, Op::Get, OBJECTS, context.plan.counted_ops)?;
    report.push(reads.beside(reads_of_get().valued(reads.per_op(reads.with_data), "counted")))?;
    match traced(context, &node) {
        Ok((reads, ops)) => {
            let Reads { with_data, tries_short, empty } = reads;
            let row = traced_reads_of_get().valued(with_data as f64 / ops as f64, "counted");
            let row = row.also("ops", Some(ops as f64)).also("tries_short", Some(tries_short as f64));
            report.push(row.also("empty", Some(empty as f64)))?;
        }
        Err(failure) => report.push(traced_reads_of_get().failed(failure))?,
    }
    node.stop()?;
    Ok(())
}

/// What a node counted while it answered some operations.
pub struct CountedReads {
    ops: u64,
    /// Reads of the journal that were asked for.
    pub journal: u64,
    /// Reads of any file that brought what was asked for.
    pub with_data: u64,
    tries_short: u64,
    tries_empty: u64,
}

impl CountedReads {
    /// So many per operation.
    pub fn per_op(&self, reads: u64) -> f64 {
        reads as f64 / self.ops as f64
    }

    /// A row with all counts beside it.
    pub fn beside(&self, row: crate::rows::Row) -> crate::rows::Row {
        row.also("ops", Some(self.ops as f64))
            .also("journal_reads", Some(self.journal as f64))
            .also("reads_with_data", Some(self.with_data as f64))
            .also("tries_short", Some(self.tries_short as f64))
            .also("tries_empty", Some(self.tries_empty as f64))
    }
}

/// Counts the reads of operations on keys below `objects`.
pub fn count(node: &Annulet, op: Op, objects: u64, ops: u64) -> Result<CountedReads> {
    let mut keys = Keys::Uniform { from: 0, count: objects, rng: SplitMix::new(ops + op as u64) };
    let mut session = node.connect(16)?;
    let before = node.counts()?;
    let ops = session.run(&mut Riak::new(op), &mut keys, Until::Ops(ops))?.ops;
    let after = node.counts()?;
    let since = |name| after.since(&before, name);
    Ok(CountedReads {
        ops,
        journal: since("journal_reads_wanted")?,
        with_data: since("disk_reads_with_data")?,
        tries_short: since("disk_tries_short")?,
        tries_empty: since("disk_tries_empty")?,
    })
}

/// The reads of some GETs as strace sees them.
fn traced(context: &Context, node: &Annulet) -> Result<(Reads, u64)> {
    let mut keys = Keys::Uniform { from: 0, count: OBJECTS, rng: SplitMix::new(9) };
    let mut session = node.connect(1)?.verifying_all();
    session.run(&mut Riak::new(Op::Get), &mut keys, Until::Ops(1))?;
    let strace = Strace::attach(node.pid(), TRACED_CALLS, &context.home.join("strace-io"))?;
    let ops = session.run(&mut Riak::new(Op::Get), &mut keys, Until::Ops(TRACED_OPS))?.ops;
    Ok((Reads::of(&strace.finish()?), ops))
}
