//! Measurements and chores of this repository: `cargo xtask figures NAME`, `cargo xtask micro`.
//!
//! The modules, from the ground up: [`sys`] (the kernel calls that std lacks), [`proc`] (what `/proc` says),
//! [`stats`] (medians and spreads), [`process`], [`annulet`], [`cluster`] and [`redis`] (the servers that are
//! measured), [`workload`] and [`generator`] (what is asked of them), [`calibrate`] (what the machine does without
//! them), [`measure`] (CPU per operation), [`strace`], [`rows`] and [`report`] (the output), [`figures`] (how a set of
//! figures runs), and one folder per set: [`first_light`], [`quorum`], [`load_generator`], [`house`] (of the source
//! files). On their own: [`micro`] counts instructions, [`fuzz`] gives random input.
//!
//! Not here: figures of the engine alone, of other stores, of elastic clusters and the like. They are experiments
//! (`annulet bench experiments`, folder `experiments/`).

mod annulet;
mod calibrate;
mod cluster;
mod figures;
mod first_light;
mod fuzz;
mod generator;
mod house;
mod load_generator;
mod machine;
mod measure;
mod micro;
mod proc;
mod process;
mod quorum;
mod redis;
mod report;
mod rows;
mod stats;
mod strace;
mod sys;
mod workload;

use clap::{Parser, Subcommand};
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
}

#[derive(Subcommand)]
enum Figures {
    /// One node: CPU per operation, also by HTTP, group commit, journal reads, memory, start.
    FirstLight(first_light::Options),
    /// Three nodes: CPU per operation, forms of reads.
    Quorum(quorum::Options),
    /// The source files: methods, circles of files, long functions, asserts, files of a GET.
    House(house::Options),
    /// The load generator itself: what it can do, what it costs, whether it tells the truth.
    Bench(load_generator::Options),
}

fn main() -> ExitCode {
    // As the product does: `micro` counts the instructions of its allocations, too.
    os::give_back_large_blocks();
    let (name, done) = match Cli::parse().command {
        Command::Figures { figures: Figures::FirstLight(options) } => ("figures", first_light::run(&options)),
        Command::Figures { figures: Figures::Quorum(options) } => ("figures", quorum::run(&options)),
        Command::Figures { figures: Figures::House(options) } => ("figures", house::run(&options)),
        Command::Fuzz(options) => ("fuzz", fuzz::run(&options)),
        Command::Figures { figures: Figures::Bench(options) } => ("figures", load_generator::run(&options)),
        Command::Micro(options) => ("micro", micro::run(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{name}: {failure}");
            ExitCode::FAILURE
        }
    }
}
