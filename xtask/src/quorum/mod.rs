//! The figures of a quorum: three processes, three copies, two of which must answer.
//!
//! Parts run one after the other, each on fresh data folders: [`cpu`] (CPU per operation, group commit, frames per
//! write), [`forms`] (the forms of reads, with equal and with differing replicas).
//!
//! Not here: a node in trouble and overload, which are the experiments E6 to E8.

mod cpu;
mod forms;

use crate::Result;
use crate::figures::{self, Part, Set};
use crate::measure::Window;
use crate::nodes::Setup;
use std::time::Duration;

/// How many nodes; each has a copy of everything.
const NODES: u16 = 3;

/// Objects under all rows but those of the forms of reads.
const OBJECTS: u64 = 100_000;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds through all rows of CPU per operation.
    rounds: usize,
    /// Of each of these rows, in each round, and of each form of reads.
    window: Window,
    /// Of each yardstick, in each round.
    yardstick: Duration,
    /// Rounds through the forms of reads, each on nodes that were started anew.
    form_rounds: usize,
}

const FULL: Plan = Plan {
    rounds: 5,
    window: Window { warm_up: Duration::from_millis(500), time: Duration::from_secs(4) },
    yardstick: Duration::from_millis(500),
    form_rounds: 3,
};

const QUICK: Plan = Plan {
    rounds: 3,
    window: Window { warm_up: Duration::from_millis(200), time: Duration::from_millis(1200) },
    yardstick: Duration::from_millis(250),
    form_rounds: 1,
};

type Context = figures::Context<Plan>;

impl Context {
    /// A cluster on new data folders.
    fn setup(&self, name: &str, durability: &str) -> Result<Setup> {
        Setup::new(&self.binary, self.home.join(name), NODES, durability)
    }
}

pub const SET: Set<Plan> = Set {
    name: "quorum",
    title: "Quorum",
    method: include_str!("../../method/quorum.md"),
    plans: [FULL, QUICK],
    needs_binary: true,
    quick_leaves_out: "quick: no row is left out, but each is measured shorter (1.2 s instead of 4 s) and less \
        often (3 rounds instead of 5; 1 of the forms of reads instead of 3)",
    parts: &[
        Part { name: "cpu", specs: cpu::specs, run: cpu::run },
        Part { name: "forms", specs: forms::specs, run: forms::run },
    ],
};
