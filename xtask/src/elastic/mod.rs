//! The figures of the elastic cluster: [`ring`], the ring and one shard in this process; [`empty`], real nodes without
//! data on large rings; [`idle`], the cost of up to 1,000 simulated ones at rest; [`scenarios`], real nodes that come,
//! go and die under load.

mod empty;
mod idle;
mod ring;
mod scenarios;

use crate::Result;
use crate::figures::{self, How, Part as Run, Set};
use clap::{Args, ValueEnum};
use std::time::Duration;

/// How the figures of the cluster are taken.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    how: How,
    /// Only these parts. Each writes its own section of the page.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

/// A part of a run: rows that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Placements, publications, claims and covering sets.
    Ring,
    /// Real nodes without data: how soon they come together, what they cost at rest.
    Empty,
    /// What the membership of up to 1,000 simulated nodes costs at rest: some CPU-minutes.
    Idle,
    /// Real nodes that come, go and die under load.
    Scenarios,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Rounds through all rows of a part.
    rounds: usize,
    /// How long nodes without work are looked at.
    idle: Duration,
    /// Measured seconds of a scenario.
    elastic_s: u32,
}

const FULL: Plan = Plan { rounds: 7, idle: Duration::from_secs(30), elastic_s: 110 };
const QUICK: Plan = Plan { rounds: 3, idle: Duration::from_secs(10), elastic_s: 50 };

const QUICK_LEAVES_OUT: &str = "quick: no row is left out, but there are 3 rounds instead of 7, nodes are looked at for 10 s \
    instead of 30, and scenarios take 50 s instead of 110";

const METHOD: &str = "\
Rows `ring/`: in the measuring process, as in experiments D1, D4 and D6 of `annulet bench experiments`. Times are CPU
times of the thread, medians of the rounds, a million placements in each. Rings are claimed, with `target_n` 4, for
members of one weight and, where nothing else is said, one zone. A placement is the code that each request runs in the
shard of its key: the preference list with fallbacks, three replicas, the parts of the nodes that are up, ordered by
load. The partition is drawn at random, and so is the tenth of the nodes that is down; the hash of the key is not part
of it. The worst case is the slowest partition, at its best of thirty times, with the first tenth of its list down. A
publication is that of a join to a shard: members, ring and target are made from their owners, and the shard takes
them. `cargo xtask micro placement` counts instructions.

Nodes without data are processes with a shard each. They have come together when the last owner has all that it is to have and every
node goes by the new ring: what `cluster commit --wait` waits for. Bytes are those between nodes, before encryption. Memory is
the largest node's, less that of a node on a ring of 64.

Rows `idle/`: failure detector and metadata log of simulated nodes, two minutes after all began at once, for a minute of simulated
time; means of all nodes. What shards ask each other, to know who is there, is not in it: eight small messages a second of a shard that
is of no use, or twice a quarter of the other nodes where that is more (decision 6).

Under load: scenarios of `annulet bench`, clients of the official kind (protocol buffers) at a fixed rate that never try again, 9
reads to 1 update of 1 KB. Latencies and throughput are those of the ten seconds before and after the commit or the kill; an
operation's latency counts from when it was due.";

type Context = figures::Context<Plan>;

const SET: Set<Part, Plan> = Set {
    name: "cluster",
    title: "The cluster",
    method: METHOD,
    needs_binary: true,
    in_sections: true,
    quick_leaves_out: QUICK_LEAVES_OUT,
    parts: &[
        Run { name: Part::Ring, specs: ring::specs, run: ring::run },
        Run { name: Part::Empty, specs: empty::specs, run: empty::run },
        Run { name: Part::Idle, specs: idle::specs, run: idle::run },
        Run { name: Part::Scenarios, specs: scenarios::specs, run: scenarios::run },
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
