//! The figures of consistent bucket types: three processes, beside an eventual type of the same nodes and beside etcd.
//!
//! * [`cpu`]: CPU per operation and latencies. * [`bytes`]: bytes written.
//! * [`lease`]: CPU of reads by lease.
//! * [`kill`]: the kill of a node under load. * [`overload`]: five times the load that can be served.
//! * [`quiet`]: idle nodes, and starts, with many groups.
//!
//! Not here: faults other than those that a script of processes can make, which are the simulator's.

mod bytes;
mod cpu;
mod kill;
mod lease;
mod overload;
mod quiet;
mod recorded;

use crate::Result;
use crate::figures::{self, Part, Set};
use crate::measure::Window;
use crate::nodes::{Cluster, Setup};
use std::time::Duration;

/// Nodes; each has a copy of everything.
const NODES: u16 = 3;

/// Objects that reads ask for.
const OBJECTS: u64 = 100_000;

/// The consistent bucket type.
const TYPE: &str = "strong";

/// The amount of measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds through all rows.
    rounds: usize,
    /// Of each row, in each round.
    window: Window,
    /// Objects that reads ask for.
    objects: u64,
    /// Writes whose bytes are counted.
    writes: u64,
    /// Time of the overload.
    overload: Duration,
    /// Time for which idle nodes are measured.
    idle: Duration,
}

const FULL: Plan = Plan {
    rounds: 5,
    window: Window { warm_up: Duration::from_millis(500), time: Duration::from_secs(3) },
    objects: OBJECTS,
    writes: 1_000_000,
    overload: Duration::from_secs(120),
    idle: Duration::from_secs(60),
};

const QUICK: Plan = Plan {
    rounds: 3,
    window: Window { warm_up: Duration::from_millis(300), time: Duration::from_millis(1500) },
    objects: OBJECTS / 5,
    writes: 300_000,
    overload: Duration::from_secs(24),
    idle: Duration::from_secs(20),
};

type Context = figures::Context<Plan>;

impl Context {
    /// A cluster on new data folders, with an active consistent type.
    fn cluster(&self, name: &str) -> Result<Cluster> {
        self.cluster_with(name, &[])
    }

    /// The same with more flags.
    fn cluster_with(&self, name: &str, flags: &[(&'static str, &str)]) -> Result<Cluster> {
        let setup = Setup::new(&self.binary, self.home.join(name), NODES, "sync")?;
        let setup = flags.iter().fold(setup, |setup, (flag, value)| setup.with(flag, value));
        let cluster = Cluster::start(&setup)?;
        cluster.make_consistent_type(TYPE)?;
        Ok(cluster)
    }
}

pub const SET: Set<Plan> = Set {
    name: "strong",
    title: "Consistent types",
    method: include_str!("../../method/strong.md"),
    plans: [FULL, QUICK],
    needs_binary: true,
    quick_leaves_out: "quick: no row is left out, but each is measured shorter (1.5 s instead of 3 s), less often \
        (3 rounds instead of 5), and with 20,000 objects instead of 100,000; bytes are those of 300,000 writes \
        instead of 1,000,000; the overload lasts 24 s instead of 120 s, and nodes are idle for 20 s instead of 60 s",
    parts: &[
        Part { name: "cpu", specs: cpu::specs, run: cpu::run },
        Part { name: "bytes", specs: bytes::specs, run: bytes::run },
        Part { name: "lease", specs: lease::specs, run: lease::run },
        Part { name: "kill", specs: kill::specs, run: kill::run },
        Part { name: "overload", specs: overload::specs, run: overload::run },
        Part { name: "quiet", specs: quiet::specs, run: quiet::run },
    ],
};
