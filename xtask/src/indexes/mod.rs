//! The figures of secondary indexes: so far those of the engine alone ([`engine`]).

mod engine;

use crate::Result;
use crate::figures::{self, How, Part as Run, Set};
use clap::{Args, ValueEnum};

/// How the figures of indexes are taken.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    how: How,
    /// Only these parts. The page is not written then.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Entries beside objects, and scans of them, in this process.
    Engine,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Objects, and entries.
    objects: u64,
    /// Rounds of queries.
    rounds: usize,
    /// Queries in each.
    queries: u64,
}

const FULL: Plan = Plan { objects: 400_000, rounds: 5, queries: 4_000 };

const QUICK: Plan = Plan { rounds: 3, queries: 1_000, ..FULL };

const QUICK_LEAVES_OUT: &str = "quick: no row is left out; 3 rounds of 1,000 queries instead of 5 of 4,000";

const METHOD: &str = "\
The engine alone, in the measuring process, as for its own figures: one owner thread, one job thread, durability `none`. 400,000
objects of 1 KB with heads as nodes write them, in random order, one integer term each. What an entry adds to a PUT is the
CPU of a load of them, until the store is at rest, less that of a load without terms, in a store of its own each; a second row has
the same of an update that changes the term, where one entry goes and another comes. A query is one scan of 1,000 consecutive terms that
takes each entry whose prefix is wanted, of all; CPU is user and system time of the whole process, the threads' waking each other
included.";

type Context = figures::Context<Plan>;

const SET: Set<Part, Plan> = Set {
    name: "index",
    title: "Secondary indexes",
    method: METHOD,
    needs_binary: false,
    in_sections: false,
    quick_leaves_out: QUICK_LEAVES_OUT,
    parts: &[Run { name: Part::Engine, specs: engine::specs, run: engine::run }],
};

/// Measures, prints, writes the page.
pub fn run(options: &Options) -> Result<()> {
    let plan = if options.how.quick { QUICK } else { FULL };
    SET.run(plan, &options.how, &options.only, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        figures::assert_named_once(&SET.specs());
    }
}
