//! The figures of operations: the answers that monitoring, balancers and supervisors ask nodes for.
//!
//! Parts run one after the other, each on three fresh nodes that hold objects: [`answers`] (CPU, time, bytes and series
//! of single answers), [`load`] (latency of clients under scrapes), [`histogram`] (latencies that Prometheus computes),
//! [`slow`] (the log of slow requests). [`packages`] needs no nodes.
//!
//! Left out: clusters of more nodes, and the faults under which alerts fire, which `tests/alerts` makes.

mod answers;
mod beside;
mod connection;
mod histogram;
mod load;
mod packages;
mod slow;

use crate::Result;
use crate::figures::{self, Part, Set};
use crate::measure::Window;
use crate::nodes::{Cluster, Setup};
use std::time::Duration;

/// How many nodes: the bar on the bytes of a scrape is that of three.
const NODES: u16 = 3;

/// Objects on the nodes.
const OBJECTS: u64 = 100_000;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds through all rows.
    rounds: usize,
    /// Requests for each answer, in each round.
    requests: u32,
    /// Time without requests, in each round, for the CPU of an idle node.
    idle: Duration,
    /// Each load, in each round.
    window: Window,
}

const FULL: Plan = Plan {
    rounds: 7,
    requests: 2000,
    idle: Duration::from_secs(3),
    window: Window { warm_up: Duration::from_millis(500), time: Duration::from_secs(8) },
};

const QUICK: Plan = Plan {
    rounds: 5,
    requests: 500,
    idle: Duration::from_secs(1),
    window: Window { warm_up: Duration::from_millis(200), time: Duration::from_secs(3) },
};

type Context = figures::Context<Plan>;

impl Context {
    /// Nodes on new data folders that hold all objects.
    fn start(&self, name: &str) -> Result<Cluster> {
        let nodes = Cluster::start(&Setup::new(&self.binary, self.home.join(name), NODES, "none")?)?;
        nodes.servers.fill(&crate::load::Load::fill(OBJECTS))?;
        Ok(nodes)
    }
}

pub const SET: Set<Plan> = Set {
    name: "operations",
    title: "Operations",
    method: include_str!("../../method/operations.md"),
    plans: [FULL, QUICK],
    needs_binary: true,
    quick_leaves_out: "quick: no row is left out, but a round has fewer requests (500 instead of 2,000), shorter \
        loads (3 s instead of 8 s), and there are 5 rounds instead of 7",
    parts: &[
        Part { name: "answers", specs: answers::specs, run: answers::run },
        Part { name: "load", specs: load::specs, run: load::run },
        Part { name: "histogram", specs: histogram::specs, run: histogram::run },
        Part { name: "slow", specs: slow::specs, run: slow::run },
        Part { name: "packages", specs: packages::specs, run: packages::run },
    ],
};
