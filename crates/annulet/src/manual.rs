//! `annulet completions` and `annulet man`: texts that are made from the definitions of the commands.
//!
//! Left out: pages about the formats of files; `docs/` has them.

use crate::failure::{FAILED, Failure};
use crate::{VERSION, bench};
use clap::{Command, Subcommand};
use clap_complete::Shell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The shell whose completions are wanted.
#[derive(clap::Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// The folder of the manual pages.
#[derive(clap::Args)]
pub struct Manual {
    /// Folder of the pages, made if missing.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Prints the completions of `command`.
pub fn completions(args: &Completions, mut command: Command) -> Result<(), Failure> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut command, "annulet", &mut out);
    Ok(io::stdout().write_all(&out)?)
}

/// Writes a page for each command of `annulet` and of `annulet-bench`.
pub fn write(args: &Manual, annulet: Command) -> Result<(), Failure> {
    write_pages(&args.dir, [annulet, load_generator()])
        .map_err(|error| Failure::new(FAILED, format!("{}: {error}", args.dir.display())))
}

fn write_pages(dir: &Path, programs: impl IntoIterator<Item = Command>) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    programs.into_iter().try_for_each(|program| clap_mangen::generate_to(program, dir))
}

/// The commands of the other program.
fn load_generator() -> Command {
    let about = "Benchmark a store: run a workload, verify every answer, report latency and throughput";
    bench::Command::augment_subcommands(Command::new("annulet-bench").version(VERSION).about(about))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_of_the_load_generator_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        write_pages(folder.path(), [load_generator()]).unwrap();
        for page in ["annulet-bench.1", "annulet-bench-run.1", "annulet-bench-compare.1"] {
            let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
            assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
        }
    }
}
