//! The figures of first light: one node, from the outside.
//!
//! Parts run one after the other, each on a fresh data folder: [`cpu`] (CPU per operation at durability `none`,
//! beside Redis), [`sync`] (group commit), [`io`] (reads per operation), [`size`] (memory and start with a
//! million objects). A part that fails leaves its rows as not reached and the others go on.

mod cpu;
mod io;
mod size;
mod sync;

use crate::annulet::{self, Setup};
use crate::measure::Window;
use crate::process::make_dir;
use crate::report::{Heading, Report};
use crate::rows::Spec;
use crate::{FirstLight, Part, Result, machine};
use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Objects under the rows of CPU and reads per operation.
const OBJECTS: u64 = 100_000;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Rounds through all rows of CPU per operation.
    rounds: usize,
    /// Of each of these rows, in each round.
    window: Window,
    /// Of each yardstick, in each round.
    yardstick: Duration,
    /// Rounds of 64 writers at `sync`.
    sync_rounds: usize,
    /// Of each of those.
    sync_window: Duration,
    /// Slices of the latency at `sync`, and of what it is compared with: many and short, so that a disk that is
    /// slow for a second is slow for both.
    slices: usize,
    /// Of each part of a slice.
    slice: Duration,
    /// Operations of each kind whose reads are counted.
    counted_ops: u64,
    /// Starts after a clean stop, and as many after a kill.
    starts: usize,
}

const FULL: Plan = Plan {
    rounds: 5,
    window: Window { warm_up: Duration::from_millis(500), time: Duration::from_secs(4) },
    yardstick: Duration::from_millis(500),
    sync_rounds: 5,
    sync_window: Duration::from_secs(4),
    slices: 60,
    slice: Duration::from_millis(160),
    counted_ops: 200_000,
    starts: 5,
};

const QUICK: Plan = Plan {
    rounds: 3,
    window: Window { warm_up: Duration::from_millis(200), time: Duration::from_millis(1200) },
    yardstick: Duration::from_millis(250),
    sync_rounds: 3,
    sync_window: Duration::from_millis(1500),
    slices: 20,
    slice: Duration::from_millis(160),
    counted_ops: 50_000,
    starts: 3,
};

const QUICK_LEAVES_OUT: &str = "quick: no row is left out, but each is measured shorter (1.2 s instead of 4 s) and \
    less often (3 rounds instead of 5; 20 slices of latency at sync instead of 60; 3 starts instead of 5)";

const METHOD: &str = "\
CPU per operation is user and system time of the server process, all threads, from the first request until it is
idle again, divided by the operations; read from the process's CPU clock. Rows of CPU are measured in rounds, one
after the other, with Redis and the yardsticks in each round; the value is the median of the rounds, ratios are
taken within a round. The generator is one thread of the measuring process, a closed loop without think time;
its own CPU and the busy cores stand beside the row. `per_ping_pong`, `per_pread_crc` and `per_load` are the row
divided by a loopback ping-pong (1 KB there, 5 bytes back, CPU of both ends), a read of 8 KB from the page cache with
its CRC, and a dependent load from memory. Names of rows: durability, connections, operation. Starts are with a warm
page cache, from the spawn to the answer to a GET.";

/// What the parts share.
struct Context {
    plan: Plan,
    binary: PathBuf,
    home: PathBuf,
    shards: Option<u16>,
}

impl Context {
    /// A node on a new data folder.
    fn setup(&self, name: &str, durability: &'static str) -> Result<Setup> {
        let home = make_dir(&self.home, name)?;
        Ok(Setup { binary: self.binary.clone(), home, durability, shards: self.shards })
    }
}

/// A part's rows and how they are filled.
struct PartRun {
    part: Part,
    specs: fn() -> Vec<Spec>,
    run: fn(&Context, &mut Report) -> Result<()>,
}

const PARTS: [PartRun; 4] = [
    PartRun { part: Part::Cpu, specs: cpu::specs, run: cpu::run },
    PartRun { part: Part::Sync, specs: sync::specs, run: sync::run },
    PartRun { part: Part::Io, specs: io::specs, run: io::run },
    PartRun { part: Part::Size, specs: size::specs, run: size::run },
];

/// Measures, prints, writes the page.
pub fn run(options: &FirstLight) -> Result<()> {
    let begin = Instant::now();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("this crate is in no workspace")?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let target = std::path::absolute(target)?;
    let binary = annulet::build(root, &target)?;
    let folders = make_dir(&target, "figures")?;
    let mut folder = tempfile::Builder::new().prefix("first-light-").tempdir_in(folders)?;
    folder.disable_cleanup(options.keep);
    let plan = if options.quick { QUICK } else { FULL };
    let context = Context { plan, binary, home: folder.path().to_owned(), shards: options.shards };

    let mut report = Report::default();
    if options.quick {
        report.remark(QUICK_LEAVES_OUT);
    }
    for part in PARTS.iter().filter(|part| options.only.is_empty() || options.only.contains(&part.part)) {
        run_part(part, &context, &mut report, options.keep)?;
    }
    if options.only.is_empty() {
        write_page(root, &context, options, &report)?;
    }
    if options.keep {
        eprintln!("figures: kept {}", context.home.display());
    }
    eprintln!("figures: {:.0} s; {}", begin.elapsed().as_secs_f64(), report.summary());
    Ok(())
}

fn run_part(part: &PartRun, context: &Context, report: &mut Report, keep: bool) -> Result<()> {
    let begin = Instant::now();
    let failure = (part.run)(context, report).err();
    let why = failure.map_or("not measured".to_owned(), |failure| failure.to_string());
    report.fail_rest((part.specs)(), &why)?;
    eprintln!("figures: {:?} took {:.0} s", part.part, begin.elapsed().as_secs_f64());
    if !keep {
        // Gigabytes that the next part's writes would otherwise compete with.
        std::fs::remove_dir_all(&context.home)?;
        std::fs::create_dir_all(&context.home)?;
    }
    Ok(())
}

fn write_page(root: &Path, context: &Context, options: &FirstLight, report: &Report) -> Result<()> {
    let mut command = "cargo xtask figures first-light".to_owned();
    if options.quick {
        command.push_str(" --quick");
    }
    if let Some(shards) = options.shards {
        command.push_str(&format!(" --shards {shards}"));
    }
    let heading = Heading {
        title: "First light",
        machine: &machine::describe(&context.home),
        commit: &machine::commit(root),
        command: &command,
        method: METHOD,
    };
    report.write(&root.join("docs/benchmarks/first-light.md"), &heading)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let specs: Vec<Spec> = PARTS.iter().flat_map(|part| (part.specs)()).collect();
        let names: BTreeSet<&str> = specs.iter().map(|spec| &spec.row[..]).collect();
        assert_eq!(names.len(), specs.len());
    }
}
