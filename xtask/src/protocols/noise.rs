//! Random input: how many runs pass without a failure, and whether memory grows.

use super::Context;
use crate::Result;
use crate::fuzz::{TARGETS, Target, Until, fuzz};
use crate::report::Report;
use crate::rows::{Bar, Spec};

/// What each protocol must pass.
pub const RUNS: u64 = 10_000_000;

fn spec(target: Target) -> Spec {
    Spec::new(
        format!("{target:?} runs of random input").to_lowercase(),
        "runs",
        Some(Bar::AtLeast(RUNS as f64)),
    )
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    TARGETS.map(spec).into()
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    for target in TARGETS {
        let row = match fuzz(target, Until::Runs(context.plan.runs), 1) {
            Ok(outcome) => spec(target)
                .valued(outcome.runs as f64, "one run")
                .also("growth_bytes", Some(outcome.growth as f64)),
            Err(failure) => spec(target).failed(failure),
        };
        report.push(row)?;
    }
    Ok(())
}
