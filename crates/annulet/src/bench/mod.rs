//! `annulet bench`: makes load, and tells how a store bore it.

mod compare;
mod report;

use crate::failure::{FAILED, Failure, UNUSABLE};
use clap::Subcommand;

/// The commands of `bench`.
#[derive(Subcommand)]
pub enum Command {
    /// Make one HTML file of a run's results, that opens offline; with --png, pictures as well.
    Report(report::Args),
    /// Compare runs of two sides, run in turns: ratios with their 95 % bands, as a table and a page.
    Compare(compare::Args),
}

/// Runs one of them.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
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
