//! CPU of reads by the lease of a leader, beside eventual reads of the same nodes.
//!
//! The nodes have `--strong-reads lease`; all else is as in [`super::cpu`]. The share of reads that were answered by a
//! lease stands beside the row.

use super::cpu::{self, EVENTUAL_GET, GET};
use super::{Context, kill};
use crate::Result;
use crate::measure::Cost;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![
        Spec::new("lease/eventual/64/get", "us", None),
        Spec::new("lease/consistent/64/get", "us", Some(Bar::AtMost(18.0))),
        Spec::new("get by lease: consistent to eventual", "times", Some(Bar::AtMost(0.85))),
    ]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let cluster = context.cluster_with("leases", &[("strong-reads", "lease")])?;
    kill::await_leaders(&cluster)?;
    cpu::fill(&cluster, context.plan.objects)?;
    let (mut eventual, mut leased, mut by_lease, mut by_question) = (Vec::new(), Vec::new(), 0.0, 0.0);
    for round in 1..=context.plan.rounds {
        let observe =
            |case| cpu::observe(&cluster, &cpu::of_round(case, round, context.plan.objects), context);
        eventual.push(observe(EVENTUAL_GET)?.0);
        let (cost, counts) = observe(GET)?;
        leased.push(cost);
        by_lease += counts.get("consistent_lease_reads_total")?;
        by_question += counts.get("consistent_index_reads_total")?;
    }
    cluster.stop()?;

    let [beside, row, ratio] = &specs()[..] else { return Err("three rows".into()) };
    let cpu = |costs: &[Cost]| median(&costs.iter().map(|cost| cost.server_us).collect::<Vec<f64>>());
    let quotient = cpu(&leased).zip(cpu(&eventual)).map(|(leased, eventual)| leased / eventual);
    report.push(Cost::row(beside.clone(), &eventual.iter().collect::<Vec<_>>()))?;
    let share = by_lease / (by_lease + by_question);
    let row = Cost::row(row.clone(), &leased.iter().collect::<Vec<_>>());
    report.push(row.also("share_by_lease", Some(share)))?;
    report.push(match quotient {
        Some(quotient) => ratio.clone().valued(quotient, "quotient of the rows above"),
        None => ratio.clone().failed("not measured"),
    })
}
