//! `annulet dev N`: a cluster of real nodes on this machine.
//!
//! Each node is a process of this same program with the flags of `serve` (`node.rs`). Nodes whose folders are all new
//! found a cluster together; a new one beside others that have data joins theirs. `annulet dev N` supervises them
//! (`supervisor.rs`); `annulet dev status`, `kill`, `stop` and `start`, from another terminal, ask it to act
//! (`control.rs`). `--secure` turns security on (`secure.rs`).
//!
//! Invariants: a node that ends leaves the others running. Only the supervisor sends signals, and only to children
//! that it has not waited for, so never to a process that got the number of one that is gone. A node's standard input
//! is a pipe from the supervisor, and it stops when that ends: none is left behind, however the supervisor ends.

mod control;
mod node;
mod secure;
mod supervisor;

use crate::failure::{self, FAILED, Failure, UNUSABLE};
use crate::{admin, program};
use control::Request;
use secure::Secured;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// More would only compete for this machine.
const NODES_MAX: u16 = 16;

/// Where the nodes are, if nothing else is said.
const DATA_DEFAULT: &str = "./annulet-dev";

/// Arguments of `dev`.
#[derive(clap::Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = false)]
pub struct Args {
    /// Number of nodes.
    #[arg(value_name = "N", required = true, value_parser = clap::value_parser!(u16).range(1..=i64::from(NODES_MAX)))]
    nodes: Option<u16>,
    /// Folder of the nodes' data (n1, n2 and so on) and certificates; made if missing.
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT, global = true)]
    data: PathBuf,
    /// Node i listens on P+10i+7 (protocol buffers), P+10i+8 (HTTP) and P+10i+9 (other nodes).
    #[arg(long, value_name = "P", default_value_t = 10_000)]
    base_port: u16,
    /// Partitions of the ring of new nodes.
    #[arg(long, value_name = "R")]
    ring_size: Option<String>,
    /// Durability of acknowledged writes: none, interval or sync, as with `serve`.
    #[arg(long, value_name = "D")]
    durability: Option<String>,
    /// Backend of new nodes, as with `serve`.
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Turn security on: TLS, an administrator with a random password, a user with a client certificate. Kept at later
    /// starts. Node i serves HTTPS on P+10i+6.
    #[arg(long)]
    secure: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Commands of another terminal for the cluster of `annulet dev N`.
#[derive(clap::Subcommand)]
enum Command {
    /// Show the nodes: addresses, processes, and exit codes of ended ones.
    Status,
    /// Print the variable that directs `annulet kv` and `annulet admin` to a node: eval "$(annulet dev env)".
    Env {
        /// The node [default: the first that serves].
        #[arg(value_name = "NODE", value_parser = node_number)]
        node: Option<u16>,
    },
    /// Kill nodes at once, as a crash would (SIGKILL).
    Kill(Nodes),
    /// Stop nodes cleanly.
    Stop(Nodes),
    /// Restart ended nodes on their data, and wait until they serve.
    Start(Nodes),
}

/// Some of the nodes.
#[derive(clap::Args)]
struct Nodes {
    /// The nodes: 2, n2 or n2@127.0.0.1.
    #[arg(value_name = "NODE", required = true, value_parser = node_number)]
    nodes: Vec<u16>,
}

fn node_number(text: &str) -> Result<u16, String> {
    let number = text.split('@').next().unwrap_or(text);
    let number = number.strip_prefix('n').unwrap_or(number);
    let number = number.parse().ok().filter(|number| (1..=NODES_MAX).contains(number));
    number.ok_or_else(|| "it is not the number of a node, such as 2".to_owned())
}

/// Runs a cluster until it is told to stop, or asks the process that runs it.
pub fn run(args: &Args) -> Result<(), Failure> {
    // Children and other terminals have folders of their own.
    let data = std::path::absolute(&args.data)?;
    let request = match &args.command {
        None => return supervise(args, &data),
        Some(_) if args.nodes.is_some() => {
            return Err(Failure::new(
                UNUSABLE,
                "a number of nodes, or a command for nodes that run: not both",
            ));
        }
        Some(Command::Status) => Request::Status,
        Some(Command::Env { node }) => Request::Env(node.iter().copied().collect()),
        Some(Command::Kill(Nodes { nodes })) => Request::Kill(nodes.clone()),
        Some(Command::Stop(Nodes { nodes })) => Request::Stop(nodes.clone()),
        Some(Command::Start(Nodes { nodes })) => Request::Start(nodes.clone()),
    };
    let answer = control::ask(&data, &request).map_err(|error| match error {
        control::Error::NotRunning => {
            let start = command_line(&data, "N");
            let what = format!("no cluster runs on {}; `{start}` starts one of N nodes", args.data.display());
            Failure::new(FAILED, what)
        }
        control::Error::Refused(what) => Failure::new(FAILED, what),
        control::Error::Io(error) => Failure::new(FAILED, format!("{}: {error}", data.display())),
    })?;
    io::stdout().write_all(answer.as_bytes())?;
    Ok(())
}

fn supervise(args: &Args, data: &Path) -> Result<(), Failure> {
    let plans = node::plans(args, data)?;
    let names: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
    failure::check_links(data)?;
    std::fs::create_dir_all(data)
        .map_err(|error| Failure::new(FAILED, format!("{}: {error}", data.display())))?;
    let lock = control::lock(data)?;
    admin::make(&data.join("certs"), &names, admin::DAYS_MAX)?;
    let secured = Secured::prepare(data, args.secure)?;
    supervisor::run(args, data, (plans, secured), lock)
}

/// How a person calls `annulet dev` for the nodes in `data`, with these words behind it.
fn command_line(data: &Path, words: &str) -> String {
    let program = program::name();
    if std::path::absolute(DATA_DEFAULT).is_ok_and(|default| default == data) {
        return format!("{program} dev {words}");
    }
    format!("{program} dev {words} --data {}", program::quoted(&data.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_by_number_or_name() {
        for text in ["2", "n2", "n2@127.0.0.1"] {
            assert_eq!(node_number(text), Ok(2));
        }
        for text in ["", "0", "17", "two", "@", "n"] {
            assert!(node_number(text).is_err(), "{text}");
        }
    }
}
