//! The program `annulet`: `serve` runs a node, `kv` talks to one, `check` verifies a data folder, `dev` runs a
//! cluster on this machine, `backup` makes backups, `admin` makes what a cluster needs, `top` shows nodes.
//! `bench` runs `annulet-bench`.
//! `completions` and `man` make what a package has beside the programs.
//!
//! Exit codes: 0 done, 1 it failed or there is no such object, 2 the command cannot be run as given, 3 the object
//! has siblings and none was chosen.

use annulet::failure::Failure;
use annulet::{VERSION, admin, backup, check, dev, kv, log, manual, serve, sibling, top};
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

/// A distributed key-value store that speaks Riak KV's protocols.
#[derive(Parser)]
#[command(name = "annulet", version = VERSION, max_term_width = 100, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a node. Each option is also a variable (ANNULET_PB_LISTEN) and a key of annulet.toml (pb_listen).
    /// A flag has precedence over a variable, and a variable over the file.
    Serve(serve::Args),
    /// Read and write objects of a running node.
    Kv(kv::Args),
    /// Verify every checksum of a data folder that no node is using. Changes nothing without --repair.
    Check(check::Args),
    /// Run a cluster of several nodes on this machine, to try things out. Ctrl-C stops all nodes.
    Dev(dev::Args),
    /// Administer nodes and clusters: certificates, members, bucket types, statistics, repairs.
    Admin(admin::Args),
    /// Show a table of nodes: rates, latencies, load, readiness. Drawn anew every few seconds.
    Top(top::Args),
    /// Back up running nodes; verify and restore backups.
    #[command(subcommand)]
    Backup(backup::Command),
    /// Benchmark a store: run a workload, verify every answer, report latency and throughput.
    #[command(disable_help_flag = true)]
    Bench {
        /// Arguments of the program `annulet-bench`, which lies beside this one.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// Print the completions of a shell: bash, elvish, fish, powershell or zsh.
    Completions(manual::Completions),
    /// Write the manual pages of all commands.
    Man(manual::Manual),
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
        Command::Top(args) => top::run(&args),
        Command::Backup(command) => backup::run(&command),
        Command::Bench { arguments } => run_bench(&arguments),
        Command::Completions(args) => manual::completions(&args, Args::command()),
        Command::Man(args) => manual::write(&args, Args::command()),
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

/// Becomes the load generator.
fn run_bench(arguments: &[OsString]) -> Result<(), Failure> {
    let program = sibling::program("annulet-bench")?;
    Err(std::process::Command::new(program).args(arguments).exec().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_fit_together() {
        Args::command().debug_assert();
    }
}
