//! The figures of a quorum: three processes, three copies, two of which must answer.
//!
//! Parts run one after the other, each on fresh data folders: [`cpu`] (CPU per operation, group commit, frames per
//! write), [`forms`] (the forms of reads, with equal and with differing replicas), [`gray`] (one node paused or
//! slow), [`overload`] (five times what can be done).

mod cpu;
mod forms;
mod gray;
mod overload;

use crate::cluster::Setup;
use crate::figures::{self, How, Set};
use crate::measure::Window;
use crate::process::make_dir;
use crate::{Result, figures::Part as Run};
use clap::{Args, ValueEnum};
use std::time::Duration;

/// Objects under all rows but those of the forms of reads.
const OBJECTS: u64 = 100_000;

/// How the figures of a quorum are taken.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    how: How,
    /// Only these parts. The page is not written then.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

/// A part of a run: rows that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// CPU per operation at durability `none` and `sync`, and frames per write.
    Cpu,
    /// Bytes between nodes and CPU of the forms of reads.
    Forms,
    /// One node paused or slow.
    Gray,
    /// Five times what can be done.
    Overload,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Rounds through all rows of CPU per operation.
    rounds: usize,
    /// Of each of these rows, in each round, and of each form of reads.
    window: Window,
    /// Of each yardstick, in each round.
    yardstick: Duration,
    /// Rounds through the forms of reads, each on nodes that were started anew.
    form_rounds: usize,
    /// How often a node gets into trouble under each kind of operation.
    troubles: usize,
    /// How long it is in trouble each time, and how long it was healthy before.
    trouble: Duration,
    /// Of each search for the peak, of which there are some.
    peak: Duration,
    /// At half of the peak, before the overload.
    calm: Duration,
    /// At five times the peak.
    storm: Duration,
}

const FULL: Plan = Plan {
    rounds: 5,
    window: Window { warm_up: Duration::from_millis(500), time: Duration::from_secs(4) },
    yardstick: Duration::from_millis(500),
    form_rounds: 3,
    troubles: 5,
    trouble: Duration::from_secs(10),
    peak: Duration::from_secs(4),
    calm: Duration::from_secs(8),
    storm: Duration::from_secs(15),
};

const QUICK: Plan = Plan {
    rounds: 3,
    window: Window { warm_up: Duration::from_millis(200), time: Duration::from_millis(1200) },
    yardstick: Duration::from_millis(250),
    form_rounds: 1,
    troubles: 2,
    trouble: Duration::from_secs(6),
    peak: Duration::from_millis(1500),
    calm: Duration::from_secs(4),
    storm: Duration::from_secs(6),
};

const QUICK_LEAVES_OUT: &str = "quick: no row is left out, but each is measured shorter (1.2 s instead of 4 s) and \
    less often (3 rounds instead of 5; 1 of the forms of reads instead of 3; a node is in trouble 2 times for 6 s \
    instead of 5 for 10 s; 6 s of overload instead of 15)";

const METHOD: &str = "\
Three processes started by `annulet dev 3`, a shard each, mutually authenticated TLS between them; three copies of each
object, r = w = 2. Connections are spread evenly over the nodes. CPU per operation is user and system time of all three
processes, all threads, from the first request until they are idle again, divided by the operations. Rows of CPU are
measured in rounds, one after the other, with the yardsticks in each round; the value is the median of the rounds. The
generator is one thread of the measuring process, a closed loop without think time; its own CPU and the busy cores stand
beside the row. `per_ping_pong`, `per_pread_crc` and `per_load` are the row divided by a loopback ping-pong (1 KB there,
5 bytes back, CPU of both ends), a read of 8 KB from the page cache with its CRC, and a dependent load from memory.
Names of rows: durability, connections, operation. Frames and bytes between nodes are what the nodes count before
encryption, pings and repairs included.

Forms of reads: 64 connections; a setting of the nodes, which are started anew for each. Replicas differ after node 3's
data folder was replaced, while it was stopped, by its copy from before the last version of each object was written: two
nodes have the new version, node 3 has the old one, no hint is left, and each object is read once, every answer being
verified to be the new version; the repair that follows is part of the cost. The default's form is told from its bytes.

Trouble: 16 connections in a closed loop to nodes 1 and 2 while node 3 is stopped by SIGSTOP, or runs 1 ms of every
100 ms (SIGCONT and SIGSTOP by turns). p99 from the moment it begins, over p99 of as long before it; the median of the
times. Noticed is when the `/stats` of both others have said that they see one node less; the slowest counts.

Overload: the peak is the middle one of three closed loops of 64 connections; then an open loop on 1,536 connections,
half of the peak, five times the peak, and half of it again. An operation that is due while all connections are busy is
not sent and counts as not answered. Latency runs from when an operation was due, a refusal's from when it was sent.
Normal again is when, since the load has dropped, two seconds begin whose p99 is within twice that of the time before
the overload and in which nothing is refused, failed or left unsent. Generator and servers share the cores.";

type Context = figures::Context<Plan>;

impl Context {
    /// A cluster on new data folders.
    fn setup(&self, name: &str, durability: &'static str) -> Result<Setup> {
        let home = make_dir(&self.home, name)?;
        Ok(Setup { binary: self.binary.clone(), home, durability, read_form: None })
    }
}

const SET: Set<Part, Plan> = Set {
    name: "quorum",
    title: "Quorum",
    method: METHOD,
    needs_binary: true,
    quick_leaves_out: QUICK_LEAVES_OUT,
    parts: &[
        Run { name: Part::Cpu, specs: cpu::specs, run: cpu::run },
        Run { name: Part::Forms, specs: forms::specs, run: forms::run },
        Run { name: Part::Gray, specs: gray::specs, run: gray::run },
        Run { name: Part::Overload, specs: overload::specs, run: overload::run },
    ],
};

/// Measures, prints, writes the page.
pub fn run(options: &Options) -> Result<()> {
    let plan = if options.how.quick { QUICK } else { FULL };
    SET.run(plan, &options.how, &options.only, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        figures::assert_named_once(&SET.specs());
    }
}
