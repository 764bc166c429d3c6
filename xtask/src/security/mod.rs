//! The figures of security: its costs beside the same without it, and its answers to floods.
//!
//! * [`checks`]: the check of a request by the policy, and the comparison of versions, in this process.
//! * [`requests`]: CPU of requests in plaintext, under TLS, with a login and with limits; by HTTPS too.
//! * [`handshakes`]: CPU of handshakes. * [`idle`]: memory of idle connections.
//! * [`guesses`]: wrong passwords beside reads. * [`flood`]: half-open handshakes beside reads.
//! * [`revoke`]: the time until a revoke holds at three nodes.
//!
//! [`node`] is the measured node, [`connection`] a client of it at any address.
//!
//! Left out: certificates of clients, TLS 1.2.

mod checks;
mod connection;
mod flood;
mod guesses;
mod handshakes;
mod idle;
mod node;
mod requests;
mod revoke;

use crate::Result;
use crate::figures::{self, Options, Part as Run, Set};
use crate::measure::Window;
use clap::ValueEnum;
use std::time::Duration;

/// Objects that reads ask for.
const OBJECTS: u64 = 50_000;

/// A part of a run: rows that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Check of a request, comparison of versions.
    Checks,
    /// CPU of requests.
    Requests,
    /// CPU of handshakes.
    Handshakes,
    /// Memory of idle connections.
    Idle,
    /// Wrong passwords.
    Guesses,
    /// Half-open handshakes.
    Flood,
    /// A revoke at three nodes.
    Revoke,
}

/// The amount of measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds through all rows of a part.
    rounds: usize,
    /// Of each load, in each round.
    window: Window,
    /// Handshakes of each kind, in each round.
    handshakes: u32,
    /// Idle connections.
    connections: usize,
    /// Revokes, and logins beside guesses.
    repeats: usize,
}

const FULL: Plan = Plan {
    rounds: 9,
    window: Window { warm_up: Duration::from_millis(500), time: Duration::from_secs(4) },
    handshakes: 1_000,
    connections: 10_000,
    repeats: 20,
};

const QUICK: Plan = Plan {
    rounds: 5,
    window: Window { warm_up: Duration::from_millis(300), time: Duration::from_secs(2) },
    handshakes: 300,
    connections: 10_000,
    repeats: 8,
};

const QUICK_LEAVES_OUT: &str = "quick: no row is left out, but loads are shorter (2 s instead of 4 s), rounds fewer \
    (5 instead of 9), and so are handshakes (300 of a kind in a round instead of 1,000), revokes and logins (8 instead \
    of 20)";

const METHOD: &str = include_str!("../../method/security.md").trim_ascii_end();

type Context = figures::Context<Plan>;

/// How two values compare that were measured in the same round.
fn differences(with: &[f64], without: &[f64]) -> Vec<f64> {
    with.iter().zip(without).map(|(with, without)| with - without).collect()
}

/// The quotients of two values that were measured in the same round.
fn ratios(with: &[f64], without: &[f64]) -> Vec<f64> {
    with.iter().zip(without).map(|(with, without)| with / without).collect()
}

pub const SET: Set<Part, Plan> = Set {
    name: "security",
    title: "Security",
    method: METHOD,
    needs_binary: true,
    quick_leaves_out: QUICK_LEAVES_OUT,
    parts: &[
        Run { name: Part::Checks, specs: checks::specs, run: checks::run },
        Run { name: Part::Requests, specs: requests::specs, run: requests::run },
        Run { name: Part::Handshakes, specs: handshakes::specs, run: handshakes::run },
        Run { name: Part::Idle, specs: idle::specs, run: idle::run },
        Run { name: Part::Guesses, specs: guesses::specs, run: guesses::run },
        Run { name: Part::Flood, specs: flood::specs, run: flood::run },
        Run { name: Part::Revoke, specs: revoke::specs, run: revoke::run },
    ],
};

/// Measures, prints, writes the page.
pub fn run(options: &Options<Part>) -> Result<()> {
    SET.run([FULL, QUICK], options, "")
}
