//! The figures of the protocols: what HTTP costs beside protocol buffers, what slow clients cost others, what a listing
//! costs, what random input does.
//!
//! Parts run one after the other, each on a fresh data folder: [`cpu`], [`slow`], [`listing`], [`noise`].

mod cpu;
mod listing;
mod noise;
mod slow;

use crate::annulet::Setup;
use crate::figures::{self, How, Set};
use crate::measure::Window;
use crate::process::make_dir;
use crate::{Result, figures::Part as Run};
use clap::{Args, ValueEnum};
use std::time::Duration;

/// Objects under all rows.
const OBJECTS: u64 = 100_000;

/// How the figures of the protocols are taken.
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
    /// CPU per operation by HTTP and by protocol buffers.
    Cpu,
    /// 2,000 clients that send a request a byte at a time.
    Slow,
    /// A listing of all keys of a bucket on three nodes.
    Listing,
    /// Random input.
    Noise,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Rounds through all rows of a part.
    rounds: usize,
    /// Of each row, in each round.
    window: Window,
    /// Of random input, for each protocol.
    runs: u64,
    /// Keys of the bucket that is listed.
    listed: u64,
}

const FULL: Plan = Plan {
    rounds: 5,
    window: Window { warm_up: Duration::from_millis(500), time: Duration::from_secs(4) },
    runs: noise::RUNS,
    listed: listing::KEYS,
};

const QUICK: Plan = Plan {
    rounds: 3,
    window: Window { warm_up: Duration::from_millis(200), time: Duration::from_millis(1200) },
    runs: noise::RUNS,
    listed: listing::KEYS / 5,
};

const QUICK_LEAVES_OUT: &str = "quick: no row is left out, but each is measured shorter (1.2 s instead of 4 s) and \
    less often (3 rounds instead of 5); 200,000 keys are listed, and their CPU time is told five times as large";

const METHOD: &str = "\
One node at durability `none`, 100,000 objects of 1 KB, closed loops on 16 connections that stay open. CPU per operation is
user and system time of the server process, as in the figures of first light; each round measures both protocols one
after the other, and the ratio is taken within a round. Slow senders: 1,000 connections of each protocol that have
begun a request and send a byte of it every second, against none, in the same round, beside an open loop at a quarter of the
rate that a closed one reaches alone; the window is shorter than they are suffered. A listing:
three nodes of `annulet dev`, values of 100 bytes, protocol buffers; CPU time of all nodes, the first key as the client sees it, and
anonymous memory of all nodes at any piece over that before. Random input:
requests that make sense, damaged, against the sessions of both protocols in this process; growth is resident memory
after all runs over that after the first 100,000.";

type Context = figures::Context<Plan>;

impl Context {
    /// A node on a new data folder.
    fn setup(&self, name: &str) -> Result<Setup> {
        let home = make_dir(&self.home, name)?;
        Ok(Setup { binary: self.binary.clone(), home, durability: "none", shards: None })
    }
}

const SET: Set<Part, Plan> = Set {
    name: "protocol",
    title: "Protocols",
    method: METHOD,
    needs_binary: true,
    in_sections: false,
    quick_leaves_out: QUICK_LEAVES_OUT,
    parts: &[
        Run { name: Part::Cpu, specs: cpu::specs, run: cpu::run },
        Run { name: Part::Slow, specs: slow::specs, run: slow::run },
        Run { name: Part::Listing, specs: listing::specs, run: listing::run },
        Run { name: Part::Noise, specs: noise::specs, run: noise::run },
    ],
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
