//! Micro-benchmarks by instruction count: `cargo xtask micro [--bless] [FILTER]`.
//!
//! Each case runs in a process of its own under callgrind, which counts the user instructions between entry and
//! exit of [`measured`] and nothing else: not the setup, not the kernel, not the clock. On one toolchain the count
//! is the same on a busy machine and an idle one, so a change of a few per cent is a change of the code.
//!
//! Steps: 1. [`callgrind`] runs this program again for each case of [`cases`]; 2. [`baseline`] compares the counts
//! with `xtask/micro.json`; 3. what costs more than [`baseline::REGRESSION_MAX`] above it fails. `--bless` writes
//! the counts as the new baseline: a change that makes something dearer on purpose commits it.
//!
//! Another compiler, C library or instruction set makes other instructions of the same code: then the counts are
//! printed, compared with nothing, and the run says so and passes. Left out: caches, branches, and waiting. What
//! those cost is measured by `cargo xtask figures`.
//!
//! The way of iai and Cachegrind's users before it (SQLite measures its releases so).

mod baseline;
mod callgrind;
mod cases;
mod disk;

use crate::Result;
use baseline::{Baseline, Verdict};
pub use callgrind::profile;
use std::path::{Path, PathBuf};

/// What the command line can say.
#[derive(clap::Args)]
pub struct Options {
    /// Only cases whose name contains this.
    filter: Option<String>,
    /// Write the counts as the new baseline.
    #[arg(long, conflicts_with = "filter")]
    bless: bool,
    /// Run one case in this process, which callgrind watches.
    #[arg(long, hide = true, value_name = "CASE", conflicts_with_all = ["filter", "bless"])]
    case: Option<String>,
}

/// Runs the cases and compares them with the baseline.
pub fn run(options: &Options) -> Result<()> {
    if let Some(name) = &options.case {
        return run_case(name);
    }
    let filter = options.filter.as_deref().unwrap_or_default();
    let names: Vec<&str> = cases::ALL.iter().map(|case| case.name).filter(|n| n.contains(filter)).collect();
    if names.is_empty() {
        return Err(format!("no case has {filter:?} in its name").into());
    }
    let counts = callgrind::count_all(&names)?;
    let now = Baseline { toolchain: callgrind::toolchain()?, instructions: counts };
    let path = baseline_file();
    if options.bless {
        now.write(&path)?;
        println!("{} cases are the new baseline in {}", names.len(), path.display());
        return Ok(());
    }
    let verdict = Verdict::of(&Baseline::read(&path)?, &now, options.filter.is_some());
    print!("{verdict}");
    match verdict.failures() {
        0 => Ok(()),
        count => {
            Err(format!("{count} of {} cases fail; if that is meant: cargo xtask micro --bless", names.len())
                .into())
        }
    }
}

fn baseline_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("micro.json")
}

/// What callgrind watches: a setup and some warm operations, then [`cases::OPERATIONS`] that count.
fn run_case(name: &str) -> Result<()> {
    let case = cases::ALL.iter().find(|case| case.name == name).ok_or("there is no such case")?;
    let mut operation = (case.prepare)()?;
    (0..cases::WARM).for_each(&mut operation);
    measured(&mut operation, cases::WARM);
    Ok(())
}

/// The function between whose entry and exit callgrind counts, by its name. The number of the last operation goes
/// through `black_box` so that the call is no jump into the loop's body.
#[inline(never)]
fn measured(operation: &mut dyn FnMut(u64), first: u64) {
    for number in first..first + cases::OPERATIONS {
        operation(std::hint::black_box(number));
    }
    std::hint::black_box(first);
}
