//! Measurements and chores of this repository: `cargo xtask figures NAME`, `cargo xtask micro`.
//!
//! The modules, from the ground up: [`sys`] (the kernel calls that std lacks), [`proc`] (what `/proc` says),
//! [`stats`] (medians and spreads), [`process`], [`annulet`], [`cluster`] and [`redis`] (the servers that are
//! measured), [`workload`] and [`generator`] (what is asked of them), [`calibrate`] (what the machine does without
//! them), [`measure`] (CPU per operation), [`strace`], [`rows`] and [`report`] (what is said in the end, or part by part: [`sections`]),
//! [`figures`] (how a set of figures runs), and one folder per set: [`first_light`], [`quorum`], [`load_generator`],
//! [`engine_alone`], [`protocols`], [`elastic`], [`indexes`], [`anti_entropy`], [`house`] (of the
//! source files). On their own: [`micro`] counts instructions, [`fuzz`] gives random input.

mod annulet;
mod anti_entropy;
mod calibrate;
mod cluster;
mod elastic;
mod engine_alone;
mod engines;
mod figures;
mod first_light;
mod fuzz;
mod generator;
mod house;
mod indexes;
mod load_generator;
mod machine;
mod measure;
mod micro;
mod proc;
mod process;
mod protocols;
mod quorum;
mod redis;
mod report;
mod rows;
mod sections;
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
    /// One node: CPU per operation, group commit, journal reads, memory, start.
    FirstLight(first_light::Options),
    /// Three nodes: CPU per operation, forms of reads, one node in trouble, overload.
    Quorum(quorum::Options),
    /// HTTP beside protocol buffers, slow clients, random input.
    Protocol(protocols::Options),
    /// The engine alone, in process: CPU per operation, bytes written, stalls, start, memory.
    Engine(engine_alone::Options),
    /// Our engine beside others, in process: CPU per operation, stalls, bytes written, space.
    Engines(engines::Options),
    /// The elastic cluster: the ring alone, nodes that come, go and die, what membership costs at rest.
    Cluster(elastic::Options),
    /// Secondary indexes: what entries cost the engine, queries of three nodes, backups.
    Index(indexes::Options),
    /// Anti-entropy: what it costs clients, rebuilds of its hash trees, how fast differences are found and healed.
    Aae(anti_entropy::Options),
    /// The source files: methods, circles of files, long functions, asserts, files of a GET.
    House(house::Options),
    /// The load generator itself: what it can do, what it costs, whether it tells the truth.
    Bench(load_generator::Options),
}

fn main() -> ExitCode {
    // As the program that is measured does; `figures engine` measures this one.
    os::give_back_large_blocks();
    let (name, done) = match Cli::parse().command {
        Command::Figures { figures: Figures::FirstLight(options) } => ("figures", first_light::run(&options)),
        Command::Figures { figures: Figures::Quorum(options) } => ("figures", quorum::run(&options)),
        Command::Figures { figures: Figures::Engine(options) } => ("figures", engine_alone::run(&options)),
        Command::Figures { figures: Figures::Engines(options) } => ("figures", engines::run(&options)),
        Command::Figures { figures: Figures::Protocol(options) } => ("figures", protocols::run(&options)),
        Command::Figures { figures: Figures::Cluster(options) } => ("figures", elastic::run(&options)),
        Command::Figures { figures: Figures::Index(options) } => ("figures", indexes::run(&options)),
        Command::Figures { figures: Figures::Aae(options) } => ("figures", anti_entropy::run(&options)),
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
