//! `annulet bench`: makes load, and tells how a store bore it.

mod compare;
mod experiments;
mod history;
mod report;
mod run;
mod scenario;

use crate::failure::{FAILED, Failure, UNUSABLE};
use clap::Subcommand;

/// The commands of `bench`.
#[derive(Subcommand)]
pub enum Command {
    /// Run a workload, verify every answer, and write a folder of results.
    Run(run::Args),
    /// Judge the history of a run on a consistent bucket type: linearizable, violation or unknown.
    Check(history::Args),
    /// Merge the results of several generators that ran at the same time.
    Merge(run::MergeArgs),
    /// Write a report of a run: one HTML file that opens offline; with --png, pictures as well.
    Report(report::Args),
    /// Compare two stores by runs made in turns: ratios with their 95 % bands, as a table and a page.
    Compare(compare::Args),
    /// Run a scenario: start nodes, load them, cause failures at stated seconds, and write a folder of results.
    Scenario(scenario::Args),
    /// Repeat published experiments, and print their figures beside ours.
    Experiments(experiments::Args),
}

/// Runs one of them.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => history::run(&args),
        Command::Merge(args) => run::merge(&args),
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Scenario(args) => scenario::run(&args),
        Command::Experiments(args) => experiments::run(&args),
    }
}

impl From<bench::Error> for Failure {
    fn from(error: bench::Error) -> Failure {
        let code = match error {
            bench::Error::Unusable(_) => UNUSABLE,
            bench::Error::Damaged { .. } | bench::Error::Io { .. } => FAILED,
        };
        Failure::new(code, error.to_string())
    }
}
