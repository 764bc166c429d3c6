//! Measurements and chores of this repository: `cargo xtask figures NAME`, `cargo xtask micro`.
//!
//! The modules, from the ground up: [`sys`] (CPU clocks, tools), [`stats`] (medians and spreads), [`load`] (closed
//! loops of the crate `bench`), [`measure`] (CPU per operation), [`nodes`], [`redis`] and [`etcd`] (the measured
//! servers), [`answer`] (their HTTP), [`calibrate`] (the machine without them), [`strace`], [`rows`] and [`report`]
//! (the output), [`figures`] (how a set of figures runs), and one folder per set: [`first_light`], [`quorum`],
//! [`strong`], [`operations`], [`security`], [`house`] (of the source files); [`load_generator`] is a file. On their
//! own: [`micro`] counts instructions, [`fuzz`] gives random input, [`package`] makes packages. [`ending`] ends
//! servers with this program.
//!
//! The crate `words` measures the words of texts, and counts for [`house`] no items of tests.
//!
//! Not here: figures of the engine alone, of other stores, of elastic clusters and the like. They are experiments
//! (`annulet bench experiments`, folder `experiments/`).

mod answer;
mod calibrate;
mod ending;
mod etcd;
mod figures;
mod first_light;
mod fuzz;
mod house;
mod load;
mod load_generator;
mod machine;
mod measure;
mod micro;
mod nodes;
mod operations;
mod package;
mod quorum;
mod redis;
mod report;
mod rows;
mod security;
mod stats;
mod strace;
mod strong;
mod sys;

use clap::{Parser, Subcommand};
use figures::Options;
use std::process::ExitCode;

/// What goes wrong in a measurement is told to a person, never handled by kind.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A result whose error is only told.
type Result<T> = std::result::Result<T, Failure>;

#[derive(Parser)]
#[command(name = "xtask", about = "Measurements and chores of this repository")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure every row that must be shown, print one JSON object per line, write docs/benchmarks/NAME.md.
    Figures {
        #[command(subcommand)]
        figures: Figures,
    },
    /// Give random input to what strangers can reach.
    Fuzz(fuzz::Options),
    /// Count the instructions of the hot paths under callgrind, and fail where one is dearer than the baseline.
    Micro(micro::Options),
    /// Make the Debian packages, the container image and the compose file; with --check, test them.
    Package(package::Options),
    /// Measure the words of pages, help and messages, and fail where a bar is broken.
    Words(words::Options),
}

#[derive(Subcommand)]
enum Figures {
    /// One node: CPU per operation, also by HTTP, group commit, journal reads, memory, start.
    FirstLight(first_light::Options),
    /// Three nodes: CPU per operation, forms of reads.
    Quorum(Options),
    /// Three nodes: consistent bucket types beside eventual ones, and beside etcd.
    Strong(Options),
    /// Three nodes: cost of metrics and health answers, and of scrapes under load.
    Operations(Options),
    /// TLS, logins and limits beside requests without them; guesses, half-open handshakes, a revoke.
    Security(Options),
    /// The source files: methods, circles of files, long functions, asserts, files of a GET.
    House(Options),
    /// The load generator itself: what it can do, what it costs, whether it tells the truth.
    Bench(Options),
}

impl Figures {
    fn run(&self) -> Result<()> {
        match self {
            Figures::FirstLight(options) => first_light::run(options),
            Figures::Quorum(options) => quorum::SET.run(options, ""),
            Figures::Strong(options) => strong::SET.run(options, ""),
            Figures::Operations(options) => operations::SET.run(options, ""),
            Figures::Security(options) => security::SET.run(options, ""),
            Figures::House(options) => house::SET.run(options, ""),
            Figures::Bench(options) => load_generator::SET.run(options, ""),
        }
    }
}

fn main() -> ExitCode {
    // As the product does: `micro` counts the instructions of its allocations, too.
    os::give_back_large_blocks();
    let cli = Cli::parse();
    if let Err(failure) = ending::end_children_by_signals() {
        eprintln!("xtask: {failure}");
        return ExitCode::FAILURE;
    }
    let (name, done) = match cli.command {
        Command::Figures { figures } => ("figures", figures.run()),
        Command::Fuzz(options) => ("fuzz", fuzz::run(&options)),
        Command::Micro(options) => ("micro", micro::run(&options)),
        Command::Package(options) => ("package", package::run(&options)),
        Command::Words(options) => ("words", words::run(&options)),
    };
    ending::stop_if_ending();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{name}: {failure}");
            ExitCode::FAILURE
        }
    }
}
