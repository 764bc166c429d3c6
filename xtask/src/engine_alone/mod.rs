//! The figures of the engine: a store in this process, with the real disk and job threads, and nothing around it.
//!
//! Each part makes stores of its own: [`objects`] is what they hold, [`bed`] drives one, and the parts are
//! [`size`] (what writing, reading and starting cost at so many objects), [`small`] (tiny values, many of them),
//! [`steady`] (stalls), [`beside`] (what background work does to a steady load) and [`space`] (how large the journal gets);
//! [`bare`] is what the machine takes without a store.

mod bare;
pub mod bed;
mod beside;
mod objects;
mod size;
mod small;
mod space;
mod steady;

use crate::figures::{self, How, Part as Run, Set};
use crate::process::make_dir;
use crate::report::Report;
use crate::{Failure, Result, sys};
use bed::Bed;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How the figures of the engine are taken.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    how: How,
    /// Objects of the smaller stores, in the place of a million: for trying things out. The page is not written then.
    #[arg(long, value_name = "COUNT")]
    objects: Option<u64>,
    /// Only these parts. Each writes its own section of the page.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

/// A part of a run: rows that share a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A million objects of 1 KB.
    Kb1,
    /// As many of 8 KB.
    Kb8,
    /// 20 million objects of 1 KB, with small memtables.
    Large,
    /// 20 million objects of 8 KB, or as many as the disk takes.
    LargeKb8,
    /// Keys of 8 bytes, values of 16.
    Small,
    /// Stalls.
    Steady,
    /// A steady load beside a fold and a compaction.
    Beside,
    /// The journal's size, at rest and under overwrites.
    Space,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Objects of the smaller stores of 1 KB.
    objects: u64,
    /// Objects of the smaller store of 8 KB.
    objects_8k: u64,
    /// Objects of the larger stores.
    large: u64,
    /// Objects of 16 bytes.
    small: u64,
    /// Objects that are loaded, and then as many overwritten, while stalls are looked for.
    steady: u64,
    /// The same, beside background work and for the journal's size.
    overwritten: u64,
    /// How long a steady load goes on alone, and beside each kind of background work.
    beside: Duration,
    /// Rounds of each kind of read.
    rounds: usize,
    /// Reads in each.
    reads: u64,
    /// Of each yardstick, in each round.
    yardstick: Duration,
    /// How long a store may be at work: a part whose store is not done by then has failed.
    store_max: Duration,
}

const FULL: Plan = Plan {
    objects: 1_000_000,
    objects_8k: 1_000_000,
    large: 20_000_000,
    small: 50_000_000,
    steady: 10_000_000,
    overwritten: 4_000_000,
    beside: Duration::from_secs(20),
    rounds: 5,
    reads: 1_000_000,
    yardstick: Duration::from_millis(500),
    store_max: Duration::from_secs(2400),
};

const QUICK: Plan = Plan {
    objects: 1_000_000,
    objects_8k: 200_000,
    large: 0,
    small: 2_000_000,
    steady: 1_000_000,
    overwritten: 1_000_000,
    beside: Duration::from_secs(5),
    rounds: 3,
    reads: 400_000,
    yardstick: Duration::from_millis(250),
    store_max: Duration::from_secs(150),
};

const QUICK_LEAVES_OUT: &str = "quick: the rows at 20 million objects (`large`, `large-kb8`) are left out; 200,000 objects of 8 KB instead of \
    a million, 2 million small ones instead of 50, stalls over one million objects instead of 10, the journal's size and \
    steady loads over one million instead of 4, for 5 s instead of 20; 3 rounds of 400,000 reads instead of 5 of a million";

const METHOD: &str = "\
The engine alone, in the measuring process: one owner thread in a closed loop without think time, one job thread, I/O
threads; durability `none` where nothing else is said. CPU per operation is user and system time of the whole process
until the store is at rest, divided by the operations; the generator is part of it, its own share, measured without a
store, is `generator_us`. Keys are 16 bytes in random order, heads 24 bytes, values random; user bytes are all three.
A load of up to a million objects is repeated: the first takes memory that the host of a virtual machine may have to
give, 2 to 10 us for each page, which are none of the store's; those after it mostly take what the store before gave back. Between
two loads a plain file of as many bytes is written, and read at random places, which has rows of its own.
Options are the default ones, for 20 and 50 million objects those that `serve` derives from the machine, with memtables of 16 MiB at most. Every answer is checked.
Reads are of keys drawn evenly, with a warm page cache: at 20 million objects of those values that memory holds (the
newest), from the whole ledger. Entries per level, bytes that merges wrote and hit rates of the block cache stand beside the
rows.";

/// Of the disk's free space a part uses at most so much, so that a measurement does not fill it.
const DISK_SHARE: f64 = 0.8;

type Context = figures::Context<Plan>;

impl Context {
    /// A new folder for a store.
    fn folder(&self, name: &str) -> Result<PathBuf> {
        make_dir(&self.home, name)
    }

    /// Opens the store in `dir`, or makes one.
    fn open(&self, dir: &Path, options: engine::Options) -> Result<Bed> {
        Bed::open(dir, options, self.plan.store_max)
    }

    /// As many objects as are wanted, or as the disk has room for if each takes `bytes`.
    fn affordable(&self, name: &str, wanted: u64, bytes: f64, report: &mut Report) -> Result<u64> {
        let room = sys::free_bytes(&self.home)? as f64 * DISK_SHARE / bytes;
        let count = wanted.min(room as u64);
        if count < wanted {
            report.remark(format!("{name}: {count} objects, which is what the disk has room for"));
        }
        Ok(count)
    }
}

const KB1: Run<Part, Plan> = Run {
    name: Part::Kb1,
    specs: || size::specs(&size::KB1),
    run: |context, report| size::run(&size::KB1, context, report),
};
const KB8: Run<Part, Plan> = Run {
    name: Part::Kb8,
    specs: || size::specs(&size::KB8),
    run: |context, report| size::run(&size::KB8, context, report),
};
const LARGE: Run<Part, Plan> = Run {
    name: Part::Large,
    specs: || size::specs(&size::LARGE),
    run: |context, report| size::run(&size::LARGE, context, report),
};
const LARGE_KB8: Run<Part, Plan> = Run {
    name: Part::LargeKb8,
    specs: || size::specs(&size::LARGE_KB8),
    run: |context, report| size::run(&size::LARGE_KB8, context, report),
};
const SMALL: Run<Part, Plan> = Run { name: Part::Small, specs: small::specs, run: small::run };
const STEADY: Run<Part, Plan> = Run { name: Part::Steady, specs: steady::specs, run: steady::run };

const BESIDE: Run<Part, Plan> = Run { name: Part::Beside, specs: beside::specs, run: beside::run };
const SPACE: Run<Part, Plan> = Run { name: Part::Space, specs: space::specs, run: space::run };

const SET: Set<Part, Plan> = Set {
    name: "engine",
    title: "The engine alone",
    method: METHOD,
    quick_leaves_out: QUICK_LEAVES_OUT,
    needs_binary: false,
    in_sections: true,
    parts: &[KB1, KB8, SMALL, STEADY, BESIDE, SPACE, LARGE, LARGE_KB8],
};

/// What a quick run has: all that needs no large store.
const QUICK_PARTS: [Part; 6] = [Part::Kb1, Part::Kb8, Part::Small, Part::Steady, Part::Beside, Part::Space];

/// Measures, prints, writes the page's sections.
pub fn run(options: &Options) -> Result<()> {
    let mut plan = if options.how.quick { QUICK } else { FULL };
    let mut only = options.only.clone();
    if only.is_empty() && (options.how.quick || options.objects.is_some()) {
        only = QUICK_PARTS.into();
    }
    if let Some(objects) = options.objects {
        plan = Plan {
            objects,
            objects_8k: objects / 8,
            small: objects,
            steady: objects,
            overwritten: objects,
            ..plan
        };
        plan.reads = plan.reads.min(objects);
    }
    // Figures of another size are for the one who asked, not for the page.
    let set = Set { in_sections: options.objects.is_none(), ..SET };
    set.run(plan, &options.how, &only, "")
}

/// What the engine says, for a person.
fn told(error: engine::Error) -> Failure {
    error.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        figures::assert_named_once(&SET.specs());
    }
}
