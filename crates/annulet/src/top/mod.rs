//! `annulet top`: a table of nodes that is drawn anew every few seconds.
//!
//! 1. Each named node is asked for its figures, its readiness and its members, all nodes at once (`reading.rs`). 2. The
//!    readings become a table, cut to the terminal as it is now (`screen.rs`). 3. The table replaces the one before.
//!
//! A node that does not answer is a row that says so. Members that were not named are rows with what the cluster knows
//! of them: it does not know where they serve HTTP.
//!
//! Left out: history. `/metrics` is for a system that keeps it.

mod reading;
mod screen;

use crate::admin::http::{AdminNode, Endpoint, node_address};
use crate::failure::Failure;
use reading::Reading;
use screen::Screen;
use serde_json::json;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The shortest interval: a node sums its figures for each look.
const EVERY_MIN_SECONDS: u64 = 1;

/// The longest interval, an hour.
const EVERY_MAX_SECONDS: u64 = 3600;

/// The largest number of nodes: each is asked on a thread of its own.
const NODES_MAX: usize = 100;

/// Clears the terminal, and goes to its upper left corner.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The nodes and the form of the table.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    node: AdminNode,
    /// HTTP addresses of the nodes [default: that of --node or --data].
    #[arg(value_name = "HOST:PORT", value_parser = node_address, num_args = 0..=NODES_MAX)]
    nodes: Vec<String>,
    /// Interval of the tables in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2,
        value_parser = clap::value_parser!(u64).range(EVERY_MIN_SECONDS..=EVERY_MAX_SECONDS))]
    every: u64,
    /// Print one table, and end.
    #[arg(long)]
    once: bool,
    /// Print JSON, for programs: an object a line.
    #[arg(long)]
    json: bool,
}

/// Shows the nodes until it is interrupted, or once.
pub fn run(args: &Args) -> Result<(), Failure> {
    let login = args.node.login()?;
    let named = |address: &String| Endpoint::Address(address.clone(), login.clone());
    let endpoints = match args.nodes.is_empty() {
        true => vec![args.node.endpoint()?],
        false => args.nodes.iter().map(named).collect(),
    };
    let mut before: Option<(Instant, Vec<Reading>)> = None;
    loop {
        let now = Instant::now();
        let mut readings = reading::all(&endpoints);
        if let Some((then, earlier)) = &before {
            let seconds = now.duration_since(*then).as_secs_f64();
            readings.iter_mut().zip(earlier).for_each(|(it, before)| it.set_rates(before, seconds));
        }
        show(args, &readings)?;
        if args.once {
            return Ok(());
        }
        before = Some((now, readings));
        std::thread::sleep(Duration::from_secs(args.every));
    }
}

fn show(args: &Args, readings: &[Reading]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let is_terminal = out.is_terminal() && !args.once;
    if args.json {
        let members = readings.iter().find_map(|reading| reading.members.as_ref());
        let nodes: Vec<_> = readings.iter().map(Reading::json).collect();
        writeln!(out, "{}", json!({ "nodes": nodes, "members": members }))?;
    } else if is_terminal {
        // The size is asked for each time: the terminal may have another one than before.
        let size = rustix::termios::tcgetwinsize(&out).map(|size| (size.ws_col.into(), size.ws_row.into()));
        let text = Screen::new(readings).cut(size.unwrap_or((0, 0)));
        write!(out, "{CLEAR}{text}")?;
    } else {
        writeln!(out, "{}", Screen::new(readings).whole())?;
    }
    Ok(out.flush()?)
}
