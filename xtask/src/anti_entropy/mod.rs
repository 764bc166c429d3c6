//! The figures of anti-entropy on three nodes: what trees cost a write ([`cpu`]), rebuilds of them ([`rebuild`]), what is read to find
//! differences ([`differing`]), and differences that are found and healed beside clients ([`healing`]).

mod cpu;
mod differing;
mod healing;
mod rebuild;

use crate::Result;
use crate::annulet::Counts;
use crate::cluster::{Cluster, NODES, Setup};
use crate::figures::{self, How, Part as Run, Set};
use crate::measure::Window;
use crate::process::make_dir;
use clap::{Args, ValueEnum};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How the figures of anti-entropy are taken.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    how: How,
    /// Only these parts. Each writes its own section of the page.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// So many objects of which one of ten thousand differs, to try something with `--only differing`.
    #[arg(long, requires = "only")]
    objects: Option<u64>,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// What trees cost a write.
    Cpu,
    /// Rebuilds, with and without clients.
    Rebuild,
    /// What is read to find and repair differences.
    Differing,
    /// Differences that are found and healed beside clients.
    Healing,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Rounds of each measurement.
    rounds: usize,
    /// Of each of them.
    window: Window,
    /// Objects of the stores that are made anew.
    objects: u64,
    /// Of those in which one of ten thousand differs.
    differing_in: u64,
    /// Of those in which differences are planted.
    planted_in: u64,
    /// How often nodes compare there: a cycle.
    cycle: (&'static str, Duration),
    /// Rounds of that.
    healings: usize,
}

const FULL: Plan = Plan {
    rounds: 5,
    window: Window { warm_up: Duration::from_secs(1), time: Duration::from_secs(10) },
    objects: 2_000_000,
    differing_in: 10_000_000,
    planted_in: 400_000,
    cycle: ("1m", Duration::from_secs(60)),
    healings: 3,
};

const QUICK: Plan = Plan {
    rounds: 3,
    window: Window { warm_up: Duration::from_millis(500), time: Duration::from_secs(3) },
    objects: 200_000,
    differing_in: 200_000,
    planted_in: 60_000,
    cycle: ("10s", Duration::from_secs(10)),
    healings: 1,
};

const QUICK_LEAVES_OUT: &str = "quick: no row is left out; rounds are fewer and shorter, stores have a tenth of the objects, and nodes compare \
    every 10 s instead of every minute, with as many planted differences to a minute";

const METHOD: &str = "\
Three nodes of one shard each, started by `annulet dev 3`, durability `none`, three copies of each object of 1 KB. CPU of a write is user and
system time of all three processes, background work included, with anti-entropy less that without it, on two clusters that take turns;
each of three nodes changes its tree, so a third of it is a node's.

A rebuild is asked of one node by HTTP, at rest. Its keys are those that were gone through, its CPU that of the node's process, questions
for its figures included; beside it stands what one job thread did in the time that parts were under way. The ninety-ninth percentile beside rebuilds is that of 16 connections that write and read one after the
other, while all three nodes are asked for rebuilds again and again.

What differs is one object of ten thousand, of 300 B each, on one of the nodes; it is told to compare all at rest. The share of the ledger is the highest
of the three nodes: all bytes that it reads from its disk or the page cache, of values and for repairs too, over those of its tables.

Differences are planted by giving one node its data of before a second version of some keys was written, so that no other node
has a hint. Clients write other keys for two cycles from 32 connections; then the same runs without anti-entropy on the same data.
Healed is what was sent to replicas that were behind. Rows of the clusters that take turns are medians of pairs.";

type Context = figures::Context<Plan>;

const SET: Set<Part, Plan> = Set {
    name: "aae",
    title: "Anti-entropy",
    method: METHOD,
    needs_binary: true,
    in_sections: true,
    quick_leaves_out: QUICK_LEAVES_OUT,
    parts: &[
        Run { name: Part::Cpu, specs: cpu::specs, run: cpu::run },
        Run { name: Part::Rebuild, specs: rebuild::specs, run: rebuild::run },
        Run { name: Part::Differing, specs: differing::specs, run: differing::run },
        Run { name: Part::Healing, specs: healing::specs, run: healing::run },
    ],
};

/// Measures, prints, writes the page.
pub fn run(options: &Options) -> Result<()> {
    let plan = if options.how.quick { QUICK } else { FULL };
    let plan = Plan { differing_in: options.objects.unwrap_or(plan.differing_in), ..plan };
    SET.run(plan, &options.how, &options.only, "")
}

/// How long trees may take to be made.
const TREES_MAX: Duration = Duration::from_secs(120);

/// Of nodes that do not compare while something else is measured: they keep their trees all the same.
const RARELY: &str = "24h";

impl Context {
    fn setup(&self, name: &str, ring_size: u32, anti_entropy: &'static str) -> Result<Setup> {
        Ok(Setup {
            binary: self.binary.clone(),
            home: make_dir(&self.home, name)?,
            durability: "none",
            read_form: None,
            ring_size: Some(ring_size),
            anti_entropy: Some(anti_entropy),
            backend: None,
        })
    }
}

/// Waits until nodes have all their trees.
fn wait_for_trees(cluster: &Cluster, nodes: std::ops::Range<usize>) -> Result<Vec<Counts>> {
    let begin = Instant::now();
    loop {
        let counts =
            nodes.clone().map(|node| Counts::fetch(cluster.http(node))).collect::<Result<Vec<Counts>>>()?;
        let due = counts.iter().map(|counts| counts.get("trees_due")).sum::<Result<u64>>()?;
        let have = |counts: &Counts| Ok(counts.get("trees_made")? + counts.get("trees_kept")?);
        let have = counts.iter().map(have).collect::<Result<Vec<u64>>>()?;
        if due == 0 && have.iter().all(|have| *have > 0) {
            return Ok(counts);
        }
        if begin.elapsed() > TREES_MAX {
            return Err(format!("after {TREES_MAX:?} {due} partitions have no trees").into());
        }
        sleep(Duration::from_millis(50));
    }
}

/// The same of all.
fn wait_for_all_trees(cluster: &Cluster) -> Result<Vec<Counts>> {
    wait_for_trees(cluster, 0..NODES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        figures::assert_named_once(&SET.specs());
    }
}
