//! Measurements and chores of this repository: `cargo xtask figures NAME`.
//!
//! The modules, from the ground up: [`sys`] (the kernel calls that std lacks), [`proc`] (what `/proc` says),
//! [`stats`] (medians and spreads), [`process`], [`annulet`] and [`redis`] (the servers that are measured),
//! [`workload`] and [`generator`] (what is asked of them), [`calibrate`] (what the machine does without them),
//! [`measure`] (CPU per operation), [`strace`], [`rows`] and [`report`] (what is said in the end), and one
//! folder per set of figures: [`first_light`].

mod annulet;
mod calibrate;
mod first_light;
mod generator;
mod machine;
mod measure;
mod proc;
mod process;
mod redis;
mod report;
mod rows;
mod stats;
mod strace;
mod sys;
mod workload;

use clap::{Args, Parser, Subcommand, ValueEnum};
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
}

#[derive(Subcommand)]
enum Figures {
    /// One node: CPU per operation, group commit, journal reads, memory, start.
    FirstLight(FirstLight),
}

/// How the figures of first light are taken.
#[derive(Args, Clone, Debug)]
struct FirstLight {
    /// End within ten minutes on two cores; says what it leaves out.
    #[arg(long)]
    quick: bool,
    /// Leave the data folders and logs of the servers where they are.
    #[arg(long)]
    keep: bool,
    /// Shards of the measured server; without it, the server's own default.
    #[arg(long)]
    shards: Option<u16>,
    /// Only these parts. The page is not written then.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

/// A part of a run: rows that share a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// CPU per operation at durability `none`, beside Redis.
    Cpu,
    /// Group commit and latency at durability `sync`.
    Sync,
    /// Reads per operation.
    Io,
    /// Memory and start with a million objects.
    Size,
}

fn main() -> ExitCode {
    let Command::Figures { figures: Figures::FirstLight(options) } = Cli::parse().command;
    match first_light::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("figures: {failure}");
            ExitCode::FAILURE
        }
    }
}
