//! The figures of the cluster. So far: [`ring`], the pure ring in this process.

mod ring;

use crate::Result;
use crate::figures::{self, How, Part as Run, Set};
use clap::{Args, ValueEnum};

/// How the figures of the cluster are taken.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    how: How,
    /// Only these parts. The page is not written then.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

/// A part of a run: rows that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Preference lists, new rings, claims, transfers and covering sets.
    Ring,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Rounds through all rows of a part.
    rounds: usize,
    /// Preference lists in each.
    lists: usize,
}

const FULL: Plan = Plan { rounds: 7, lists: 1_000_000 };
const QUICK: Plan = Plan { rounds: 3, lists: 200_000 };

const QUICK_LEAVES_OUT: &str = "quick: no row is left out, but there are 3 rounds of 200,000 preference lists instead of \
    7 of a million";

const METHOD: &str = "\
The ring alone, in the measuring process. Times are CPU times of the thread, medians of the rounds. Rings are claimed, with
`target_n` 4, for members of one weight and, where nothing else is said, one zone. A preference list is of three nodes, for
a partition drawn at random; the hash of the key is not part of it. With nodes down, a tenth of them, drawn at random, are;
the worst case is the slowest partition, at its best of the rounds, when the tenth that is down are just the nodes that would
be named first. To publish is to make the ring from its owners and to hand it to the readers. `cargo xtask micro ring` counts
instructions.";

type Context = figures::Context<Plan>;

const SET: Set<Part, Plan> = Set {
    name: "cluster",
    title: "The cluster",
    method: METHOD,
    needs_binary: false,
    quick_leaves_out: QUICK_LEAVES_OUT,
    parts: &[Run { name: Part::Ring, specs: ring::specs, run: ring::run }],
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
