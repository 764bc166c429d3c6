//! The figures of first light: one node, from the outside.
//!
//! Parts run one after the other, each on a fresh data folder: [`cpu`] (CPU per operation at durability `none`,
//! beside Redis and by HTTP), [`sync`] (group commit), [`io`] (reads per operation), [`size`] (memory and start with a
//! million objects). A part that fails leaves its rows as not reached and the others go on.

mod cpu;
mod io;
mod size;
mod sync;

use crate::Result;
use crate::figures::{self, Part, Set};
use crate::measure::Window;
use crate::nodes::Setup;
use clap::Args;
use std::time::Duration;

/// How the figures of first light are taken.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    all: figures::Options,
    /// Shards of the measured server; without it, the server's own default.
    #[arg(long)]
    shards: Option<u16>,
}

/// Objects under the rows of CPU and reads per operation.
const OBJECTS: u64 = 100_000;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
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
    /// Shards of the measured server.
    shards: Option<u16>,
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
    shards: None,
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
    shards: None,
};

type Context = figures::Context<Plan>;

impl Context {
    /// A node on a new data folder.
    fn setup(&self, name: &str, durability: &str) -> Result<Setup> {
        let setup = Setup::new(&self.binary, self.home.join(name), 1, durability)?;
        Ok(match self.plan.shards {
            Some(shards) => setup.with("shards", shards),
            None => setup,
        })
    }
}

pub const SET: Set<Plan> = Set {
    name: "first-light",
    title: "First light",
    method: include_str!("../../method/first-light.md"),
    plans: [FULL, QUICK],
    needs_binary: true,
    quick_leaves_out: "quick: no row is left out, but each is measured shorter (1.2 s instead of 4 s) and less \
        often (3 rounds instead of 5; 20 slices of latency at sync instead of 60; 3 starts instead of 5)",
    parts: &[
        Part { name: "cpu", specs: cpu::specs, run: cpu::run },
        Part { name: "sync", specs: sync::specs, run: sync::run },
        Part { name: "io", specs: io::specs, run: io::run },
        Part { name: "size", specs: size::specs, run: size::run },
    ],
};

/// Measures, prints, writes the page.
pub fn run(options: &Options) -> Result<()> {
    let plans = SET.plans.map(|plan| Plan { shards: options.shards, ..plan });
    let flags = options.shards.map(|shards| format!(" --shards {shards}")).unwrap_or_default();
    Set { plans, ..SET }.run(&options.all, &flags)
}
