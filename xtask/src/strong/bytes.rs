//! Bytes that a write hands to the disk, of both types: journal, tables and their merges.
//!
//! Each type has nodes of its own. A fixed number of keys is written once, so both types flush and merge equally often.
//! In a window of time a single merge more decides.

use super::Context;
use super::cpu::{Case, EVENTUAL_PUT, PUT_ONCE, of_round};
use crate::Result;
use crate::load::Until;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use std::time::Duration;

/// The bar of the bytes of a consistent write, to those of an eventual one.
const BYTES_BAR: Bar = Bar::AtMost(1.08);

fn spec() -> Spec {
    Spec::new("bytes written by a put: consistent to eventual", "times", Some(BYTES_BAR))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![spec()]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let eventual = bytes_per_write(context, EVENTUAL_PUT, "eventual")?;
    let consistent = bytes_per_write(context, PUT_ONCE, "consistent")?;
    let row = spec().valued(consistent / eventual, format!("{} writes of each", context.plan.writes));
    report.push(row.also("consistent", Some(consistent)).also("eventual", Some(eventual)))
}

/// Writes keys of a case on new nodes, and waits until the nodes are idle.
fn bytes_per_write(context: &Context, case: Case, name: &str) -> Result<f64> {
    let cluster = context.cluster(name)?;
    let writes = context.plan.writes;
    let (_, counts) = cluster.observe(&of_round(case, 1, writes), Duration::ZERO, Until::Ops(writes))?;
    cluster.stop()?;
    Ok(counts.get("disk_write_bytes")? / writes as f64)
}
