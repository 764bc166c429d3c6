//! The one binary: `serve` runs a node, `kv` talks to one, `check` verifies a data folder, `dev` runs a cluster on
//! this machine, `backup` makes backups, `admin` makes what a cluster needs.
//!
//! Exit codes: 0 done, 1 it failed or there is no such object, 2 the command cannot be run as given, 3 the object
//! has siblings and none was chosen.

mod admin;
mod backup;
mod bench;
mod check;
mod dev;
mod failure;
mod kv;
mod log;
mod plural;
mod program;
mod repair;
mod report;
mod serve;
mod signals;
mod terms;

use clap::{Parser, Subcommand};
use failure::Failure;
use std::io::Write;
use std::process::ExitCode;

/// The version and the commit it was built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("ANNULET_COMMIT"), ")");

/// A distributed key-value store that speaks Riak KV's protocols.
#[derive(Parser)]
#[command(name = "annulet", version = VERSION, max_term_width = 100, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a node. Each option is also a variable (ANNULET_PB_LISTEN) and a key in annulet.toml (pb_listen);
    /// a flag is over a variable, and a variable over the file.
    Serve(serve::Args),
    /// Read and write objects of a running node.
    Kv(kv::Args),
    /// Verify every checksum of a data folder that no node is using; changes nothing unless it is told to repair.
    Check(check::Args),
    /// Run a cluster of several nodes on this machine, for trying things out. Ctrl-C stops them all.
    Dev(dev::Args),
    /// Make what a cluster needs, ask it how it is, and change it.
    Admin(admin::Args),
    /// Make backups of nodes while they serve, verify them, and make data folders of them.
    #[command(subcommand)]
    Backup(backup::Command),
    /// Load a store, check what it answers, and tell how it bore it.
    #[command(subcommand)]
    Bench(bench::Command),
}

fn main() -> ExitCode {
    os::give_back_large_blocks();
    let command = Args::parse().command;
    let runs_nodes = matches!(command, Command::Serve(_) | Command::Dev(_));
    let done = match command {
        Command::Serve(args) => serve::run(&args),
        Command::Kv(args) => kv::run(args.command),
        Command::Check(args) => check::run(&args),
        Command::Dev(args) => dev::run(&args),
        Command::Admin(args) => admin::run(&args),
        Command::Backup(command) => backup::run(&command),
        Command::Bench(command) => bench::run(command),
    };
    // Output that is still buffered may find its reader gone, or no room.
    let done = done.and_then(|()| Ok(std::io::stdout().flush()?));
    let Failure { code, text } = done.err().unwrap_or(Failure { code: 0, text: String::new() });
    match &*text {
        "" => {}
        text if runs_nodes => log::print_error(&format!("annulet: {text}\n")),
        // Where nobody listens, the exit code has to do.
        text => drop(writeln!(std::io::stderr(), "annulet: {text}")),
    }
    log::flush();
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_fit_together() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }
}
