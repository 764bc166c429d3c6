//! The figures of secondary indexes: of the engine alone, of entries ([`engine`]) and of folds over key segments ([`segments`]), and of
//! queries of three nodes ([`cluster`]), also beside nodes on another backend ([`beside`]), at rest and under load ([`loaded`]). And of backups while a node serves ([`backup`]).

mod backup;
mod beside;
mod cluster;
mod engine;
mod loaded;
mod segments;

use crate::Result;
use crate::figures::{self, How, Part as Run, Set};
use crate::measure::Servers;
use crate::report::Report;
use crate::rows::Spec;
use crate::stats::median;
use bench::{Control, Identity, Workload};
use clap::{Args, ValueEnum};
use engine::{head, mixed, object_key};
use results::{OperationSecond, Results, Summary};
use std::path::Path;

/// How the figures of indexes are taken.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    how: How,
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Entries beside objects, and scans of them, in this process.
    Engine,
    /// Folds over heads of a few key segments, in this process.
    Segments,
    /// Queries of three nodes.
    Cluster,
    /// The same beside three nodes on RocksDB; needs the feature of that name.
    Beside,
    /// Backups of a node that serves.
    Backup,
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
    /// Keys of the store whose heads are folded over.
    keys: u64,
    /// Folds in each round.
    folds: u64,
    /// Of three nodes.
    cluster: cluster::Size,
    /// Of a node that backs itself up.
    backup: backup::Size,
}

const FULL: Plan = Plan {
    objects: 400_000,
    rounds: 5,
    queries: 4_000,
    keys: 1_000_000,
    folds: 40,
    cluster: cluster::FULL,
    backup: backup::FULL,
};

const QUICK: Plan =
    Plan { rounds: 3, queries: 1_000, folds: 10, cluster: cluster::QUICK, backup: backup::QUICK, ..FULL };

const QUICK_LEAVES_OUT: &str = "quick: no row is left out; 3 rounds of 1,000 queries and 10 folds instead of 5 of 4,000 and 40; three nodes have \
    100,000 objects instead of a million, and 3 rounds of 4 s instead of 5 of 10 s; a node that is backed up has 1 GB instead of 10, and 3 runs \
    of 3 s instead of 9 of 10 s";

const METHOD: &str = "\
The engine alone, in the measuring process, as for its own figures: one owner thread, one job thread, durability `none`. 400,000
objects of 1 KB with heads as nodes write them, in random order, one integer term each. What an entry adds to a PUT is the
CPU of a load of them, until the store is at rest, less that of a load without terms, in a store of its own each; a second row has
the same of an update that changes the term, where one entry goes and another comes. A query is one scan of 1,000 consecutive terms that
takes each entry whose prefix is wanted, of all; CPU is user and system time of the whole process, the threads' waking each other
included. The folds are over the heads of a million such objects without terms, each of other 128 of a million segments, chosen at random, the
page cache warm; once as the load left the store, with what is in memtables, and once when all is in tables.

Three nodes, started by `annulet dev 3`, durability `none`, three copies of each object of 200 bytes with one integer term, which is the
number of its key. The load generator runs in the measuring process. One connection asks for 1,000 terms from any on, with
their terms, one query after the other; every row is judged, and a query that found fewer would fail the run. CPU is user and
system time of all three processes in the measured seconds, by query; latency is from the request to the whole answer. Beside them three
nodes whose stores are RocksDB's, at ring 64, filled and asked as these are, in turns; the rows are ours over theirs. Under load, the query is two of 122
operations: 100 reads and 10 updates of 100,000 objects of 8 KB with a person's index entries, 10 updates of objects without, as in the seed's own comparison, from which the bar
of the mean is (experiment A13). Once 16 connections do all they can, and once both clusters are asked for as many operations a second, seven tenths of what the slower one did
(an open loop; latency counts from when an operation was due).

Backups: a node, durability `none`, filled with objects of 8 KB. Clients, 32 connections at most, read nine times and write once, 4,000 operations a
second (an open loop; latency counts from when an operation was due), before and while `annulet backup create --copy` runs with its ordinary
bounds. Then a tenth of the objects is written again and the node is backed up once more. What changed are keys and values of all writes since the first
backup began.";

type Context = figures::Context<Plan>;

const SET: Set<Part, Plan> = Set {
    name: "index",
    title: "Secondary indexes",
    method: METHOD,
    needs_binary: true,
    in_sections: true,
    quick_leaves_out: QUICK_LEAVES_OUT,
    parts: &[
        Run { name: Part::Engine, specs: engine::specs, run: engine::run },
        Run { name: Part::Segments, specs: segments::specs, run: segments::run },
        Run { name: Part::Cluster, specs: cluster::specs, run: cluster::run },
        Run { name: Part::Beside, specs: beside::specs, run: beside::run },
        Run { name: Part::Backup, specs: backup::specs, run: backup::run },
    ],
};

/// Measures, prints, writes the page.
pub fn run(options: &Options) -> Result<()> {
    let plan = if options.how.quick { QUICK } else { FULL };
    SET.run(plan, &options.how, &options.only, "")
}

/// Runs a workload of the load generator; what it measured, and what became of all operations, those outside of the measured seconds included. An error
/// if anything in it was wrong.
fn load(home: &Path, servers: &Servers, text: &str) -> Result<(Summary, OperationSecond)> {
    let addresses: Vec<String> = servers.addresses.iter().map(ToString::to_string).collect();
    let text = format!("addresses = {addresses:?}\npids = {:?}\n{text}", servers.pids);
    let dir = tempfile::Builder::new().prefix("load").tempdir_in(home)?;
    let workload = Workload::parse(&text, "figures")?;
    let out = dir.path().join("results");
    let summary = bench::run(&workload, &out, &Identity::default(), &Control::default(), &mut ())?;
    let mut all = OperationSecond::default();
    Results::open(&out)?
        .seconds
        .iter()
        .flat_map(|second| second.operations.values())
        .for_each(|it| all.add(it));
    match summary.verdict.passed && summary.total.failed == 0 {
        true => Ok((summary, all)),
        false => {
            Err(format!("{} failed; {}", summary.total.failed, summary.verdict.failures.join("; ")).into())
        }
    }
}

/// What the medians of both are called beside a ratio of times, in microseconds.
const US: [&str; 2] = ["ours_us", "theirs_us"];

/// The rows of what was measured in turns, ours and theirs: the medians of the ratios of turns.
fn push<const N: usize>(
    [ours, theirs]: &[Vec<[f64; N]>; 2],
    specs: [(Spec, [&'static str; 2]); N],
    report: &mut Report,
) -> Result<()> {
    for (at, (spec, [of_ours, of_theirs])) in specs.into_iter().enumerate() {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours[at] / theirs[at]).collect();
        let middle =
            |rounds: &[[f64; N]]| median(&rounds.iter().map(|round| round[at]).collect::<Vec<f64>>());
        let row = spec.measured(&ratios).also(of_ours, middle(ours));
        report.push(row.also(of_theirs, middle(theirs)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        figures::assert_named_once(&SET.specs());
    }
}
