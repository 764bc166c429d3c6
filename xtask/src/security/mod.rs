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

use crate::figures::{self, Part, Set};
use crate::measure::Window;
use std::time::Duration;

/// Objects that reads ask for.
const OBJECTS: u64 = 50_000;

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

type Context = figures::Context<Plan>;

/// How two values compare that were measured in the same round.
fn differences(with: &[f64], without: &[f64]) -> Vec<f64> {
    with.iter().zip(without).map(|(with, without)| with - without).collect()
}

/// The quotients of two values that were measured in the same round.
fn ratios(with: &[f64], without: &[f64]) -> Vec<f64> {
    with.iter().zip(without).map(|(with, without)| with / without).collect()
}

pub const SET: Set<Plan> = Set {
    name: "security",
    title: "Security",
    method: include_str!("../../method/security.md"),
    plans: [FULL, QUICK],
    needs_binary: true,
    quick_leaves_out: "quick: no row is left out, but loads are shorter (2 s instead of 4 s), rounds fewer (5 \
        instead of 9), and so are handshakes (300 of a kind in a round instead of 1,000), revokes and logins (8 \
        instead of 20)",
    parts: &[
        Part { name: "checks", specs: checks::specs, run: checks::run },
        Part { name: "requests", specs: requests::specs, run: requests::run },
        Part { name: "handshakes", specs: handshakes::specs, run: handshakes::run },
        Part { name: "idle", specs: idle::specs, run: idle::run },
        Part { name: "guesses", specs: guesses::specs, run: guesses::run },
        Part { name: "flood", specs: flood::specs, run: flood::run },
        Part { name: "revoke", specs: revoke::specs, run: revoke::run },
    ],
};
