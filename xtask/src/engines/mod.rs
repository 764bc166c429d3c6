//! The figures of engines: ours beside each other one that this was built with, in one run, with the same work.

mod work;

use crate::Result;
use crate::figures::{self, How, Part as Run, Set};
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use backends::Kind;
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use work::{Entrant, Measure, generator_us, measure};

/// How the figures of engines are taken.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    how: How,
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// So often each engine is measured.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// A quarter of the objects and one round: within some four minutes a size.
    #[arg(long, conflicts_with = "quick")]
    middle: bool,
    /// So many objects at most, to try something: the page is not written then.
    #[arg(long, value_name = "COUNT", requires = "only")]
    objects: Option<u64>,
    /// Ours and only these beside it, to try something: the page is not written then.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = kind_named, requires = "only")]
    beside: Vec<Kind>,
}

fn kind_named(name: &str) -> std::result::Result<Kind, String> {
    kinds().find(|kind| kind.name() == name).ok_or_else(|| {
        let built: Vec<&str> = kinds().map(Kind::name).collect();
        format!("there are {}", built.join(", "))
    })
}

/// A part of a run: a length of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// 16 bytes.
    B16,
    /// 64 bytes.
    B64,
    /// 1 KB.
    Kb1,
    /// 4 KB.
    Kb4,
    /// 8 KB.
    Kb8,
    /// 16 KB.
    Kb16,
}

/// How much is measured.
#[derive(Clone, Debug)]
struct Plan {
    /// Bytes of all values of a store, at most.
    bytes: u64,
    /// Objects of a store, at most.
    objects: u64,
    /// How often each engine is measured, all in turns.
    rounds: u64,
    /// Which are measured beside ours; none for all.
    beside: Vec<Kind>,
    /// What is to be said of that in each section.
    remark: Option<&'static str>,
}

const FULL: Plan = Plan { bytes: 2 << 30, objects: 1_000_000, rounds: 3, beside: Vec::new(), remark: None };

const MIDDLE: Plan =
    Plan { bytes: 1 << 30, objects: 250_000, rounds: 1, beside: Vec::new(), remark: Some(MIDDLE_LEAVES_OUT) };

const QUICK: Plan = Plan { bytes: 48 << 20, objects: 30_000, rounds: 1, beside: Vec::new(), remark: None };

/// The engine that goes before all others, for nothing but the page cache: it is built always, and is quick.
const GOES_BEFORE: Entrant = Entrant { kind: Kind::Bitcask, has_jobs: false };

/// Whose figures are ours in rows; the other one's stand beside them.
const OURS: Entrant = Entrant { kind: Kind::Annulet, has_jobs: false };

const QUICK_LEAVES_OUT: &str = "quick: 48 MiB of values, 30,000 objects at most, and one round instead of 2 GiB, a million and 3: \
    it says that all of it runs, and little of who is first";

const MIDDLE_LEAVES_OUT: &str = "middle: 1 GiB of values, 250,000 objects at most, and one round instead of 2 GiB, a million and 3: \
    what is in memory only, or in one segment, is less of the whole than in a quick run, and more than in a full one";

const METHOD: &str = "\
Each engine behind the trait of the crate `backends`, in the measuring process, one store and one thread, a cache of 64 MiB where the engine
has one, compression off, durability `none`; what else each is told is in `docs/bench.md`. A process that is killed loses nothing then of
annulet, bitcask, hash, LMDB, MDBX, RocksDB and WiredTiger, which give each write to the operating system by itself; of fjall what it has in a buffer, of redb
up to a thousand writes. Values come back as bytes of their own, or, from fjall, as a share of what is cached. One after the other loads a fresh folder with
objects in random order, each with a head of 64 bytes, and writes each again in another order; reads as many, heads and values; reads as many
heads; asks as often for keys that are not there; reads and writes as often, half and half (*mixed*); folds over all heads; and is closed.

CPU is user and system time of the whole process by operation: threads of the engine included, the kernel's own writing back not. That of
PUT includes closing, that of a fold is by key. The 99.9th percentile and the longest stall are of the mixed operations, less the time that
the thread waited for a processor; to look at that takes some 3 us of each, as `memory` tells. Bytes written are what the kernel counts of the process, space is what the folder takes in the end: both by byte of
values and heads. Everything is in the page cache; a run of `bitcask` that is not counted fills it before, since memory that a virtual machine has to be given costs
whoever is first. Closing flushes what ours has in memory; fjall and RocksDB leave theirs to a log. WiredTiger makes two files of its log ahead,
some 200 MB of its space. In rows ours runs its jobs within the call that causes them, so that each measure has its own, and its
stalls are those of jobs. Beside it stands `annulet-jobs`, whose jobs have a thread of the store's own, as those of most others and of a node have: what puts leave to be
done may fall into the mixed operations there.

The value of a row is ours over the best of the others that keep anything; the figures of each stand beside it. Compiled without
features, only `memory`, `bitcask` and `hash` stand there:
`cargo run --release -p xtask --features fjall,lmdb,mdbx,redb,rocksdb,wiredtiger -- figures engines`.";

type Context = figures::Context<Plan>;

const SET: Set<Part, Plan> = Set {
    name: "engines",
    title: "Engines beside each other",
    method: METHOD,
    needs_binary: false,
    in_sections: true,
    quick_leaves_out: QUICK_LEAVES_OUT,
    parts: &[
        Run { name: Part::B16, specs: || specs("16 B"), run: |it, out| run_size(it, out, "16 B", 16) },
        Run { name: Part::B64, specs: || specs("64 B"), run: |it, out| run_size(it, out, "64 B", 64) },
        Run { name: Part::Kb1, specs: || specs("1 KB"), run: |it, out| run_size(it, out, "1 KB", 1000) },
        Run { name: Part::Kb4, specs: || specs("4 KB"), run: |it, out| run_size(it, out, "4 KB", 4000) },
        Run { name: Part::Kb8, specs: || specs("8 KB"), run: |it, out| run_size(it, out, "8 KB", 8000) },
        Run { name: Part::Kb16, specs: || specs("16 KB"), run: |it, out| run_size(it, out, "16 KB", 16_000) },
    ],
};

/// Measures, prints, writes the page.
pub fn run(options: &Options) -> Result<()> {
    let (plan, flags) = match (options.how.quick, options.middle) {
        (true, _) => (QUICK, ""),
        (false, true) => (MIDDLE, " --middle"),
        (false, false) => (FULL, ""),
    };
    let objects = options.objects.unwrap_or(plan.objects);
    let rounds = options.rounds.unwrap_or(plan.rounds);
    let plan = Plan { objects, rounds, beside: options.beside.clone(), ..plan };
    let set = Set { in_sections: options.objects.is_none() && options.beside.is_empty(), ..SET };
    set.run(plan, &options.how, &options.only, flags)
}

fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| kind.is_built())
}

/// All that are built, ours as both of what it can be.
fn entrants() -> impl Iterator<Item = Entrant> {
    let with_jobs = std::iter::once(Entrant { kind: Kind::Annulet, has_jobs: true });
    kinds().map(|kind| Entrant { kind, has_jobs: false }).chain(with_jobs)
}

/// The row of one measure: ours over the best of the others.
fn spec(size: &str, measure: Measure) -> Spec {
    let name = format!("{size}/{}, ours over the best", measure.name());
    Spec::new(name, "x", measure.is_raced().then_some(Bar::AtMost(1.0)))
}

fn specs(size: &str) -> Vec<Spec> {
    Measure::ALL.into_iter().map(|measure| spec(size, measure)).collect()
}

fn run_size(context: &Context, report: &mut Report, size: &str, value_bytes: usize) -> Result<()> {
    let plan = &context.plan;
    let count = (plan.bytes / value_bytes as u64).min(plan.objects);
    let is_measured =
        |it: &Entrant| it.kind == Kind::Annulet || plan.beside.is_empty() || plan.beside.contains(&it.kind);
    let entrants = || entrants().filter(is_measured);
    let mut all: BTreeMap<(Measure, &str), Vec<f64>> = BTreeMap::new();
    // Memory that a virtual machine has not used for a while its host must supply anew: whoever is first to fill the page cache
    // would pay for that. So one goes before that is not counted.
    measure(&context.home, GOES_BEFORE, count, value_bytes, 0)?;
    for round in 0..plan.rounds {
        for entrant in entrants() {
            for (of, value) in measure(&context.home, entrant, count, value_bytes, round)? {
                all.entry((of, entrant.name())).or_default().push(value);
            }
        }
    }
    for of in Measure::ALL {
        let values = |entrant: Entrant| &all[&(of, entrant.name())];
        let medians = entrants().filter_map(|entrant| Some((entrant, median(values(entrant))?)));
        let medians: Vec<(Entrant, f64)> = medians.collect();
        let rivals = medians.iter().filter(|(it, _)| it.kind.is_kept() && it.kind != Kind::Annulet);
        let (best, least) = rivals.min_by(|a, b| a.1.total_cmp(&b.1)).ok_or("there is no other engine")?;
        let ours: Vec<f64> = values(OURS).iter().map(|value| value / least).collect();
        let row =
            spec(size, of).measured(&ours).noted(format!("the best: {}; in {}", best.name(), of.unit()));
        report.push(medians.iter().fold(row, |row, (it, value)| row.also(it.name(), Some(*value))))?;
    }
    if let Some(remark) = plan.remark {
        report.remark(format!("{size}: {remark}"));
    }
    let missing = Kind::ALL.iter().filter(|kind| !kind.is_built()).map(|kind| kind.name());
    let missing: Vec<&str> = missing.collect();
    report.remark(format!(
        "{size}: {count} objects; a key and a number to draw it take {:.3} us",
        generator_us(count)?
    ));
    if !missing.is_empty() {
        report.remark(format!("{size}: not built, so not measured: {}", missing.join(", ")));
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

    #[test]
    fn every_engine_is_measured() {
        let home = tempfile::tempdir().unwrap();
        for entrant in entrants() {
            let measured = measure(home.path(), entrant, 200, 100, 0).unwrap();
            assert_eq!(measured.len(), Measure::ALL.len(), "{}", entrant.name());
        }
    }
}
