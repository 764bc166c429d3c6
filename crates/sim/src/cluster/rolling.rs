//! Nodes that are restarted one after the other while clients go on: row C13.
//!
//! 1. In the beginning each node's program speaks the version of the protocol before the last.
//! 2. A *roll*: one node after the other is left by its clients, stops, and starts again, the first time with a program
//!    that speaks the last version. So in the first roll old and new are mixed; meanwhile clients write and read.
//! 3. After some rolls all comes to its end as in any other life: replicas become equal, and what was acknowledged is
//!    asked for.
//!
//! Promise beside those of any life: clients are hardly ever answered with errors. They ask for what buckets say, and
//! set no conditions.
//!
//! Left out: what an older program does otherwise than a newer one, beyond what it says and understands.

use super::ending::Phase;
use super::plan::Plan;
use super::script::Script;
use super::{World, client_id};
use crate::Kind;
use crate::check::{Verdict, Violation};
use crate::report::ACKNOWLEDGED_MIN;
use crate::seed::{Seed, between, duration_between};
use crate::show;
use crate::trace::Keep;
use base::Monotonic;
use base::rng::SplitMix64;
use kv::{Error, Response};
use protocol::peer::VERSION;
use std::fmt;
use std::time::Duration;

/// How often all nodes are restarted.
const ROLLS: u64 = 3;
/// Of so many requests one may fail.
const FAILED_EVERY: u64 = 10_000;
/// How long a node is left alone by its clients before it stops at least: what they have sent arrives.
const DRAIN_MIN: Duration = Duration::from_millis(20);
/// How much longer, and how long all are left alone between two.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long one restart may take.
const RESTART_MAX: Duration = Duration::from_secs(60);

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Nodes that were restarted.
    pub restarts: u64,
    /// Requests that were answered, or given up.
    pub asked: u64,
    /// Those that were given up, or answered with an error.
    pub failed: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} restarts, {} requests, {} failed", self.restarts, self.asked, self.failed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Until then all serve.
    Serving(Monotonic),
    /// Until then clients leave.
    Draining(Monotonic),
    /// It stops, and starts again.
    Restarting(Monotonic),
}

/// How far it is.
#[derive(Debug)]
pub(super) struct Rolling {
    rng: SplitMix64,
    step: Step,
    /// The node that is next, or being restarted.
    at: usize,
    /// How the last request failed.
    why: String,
    outcome: Outcome,
}

/// Plays it.
///
/// # Errors
/// The promise that was broken.
pub fn run(seed: Seed) -> Result<Outcome, Violation> {
    let mut rng = seed.stream("rolling", 0);
    let nodes = usize::try_from(between(&mut rng, 3, 5)).expect("few");
    let mut plan = Plan::calm(seed, nodes);
    (plan.keys, plan.clients) = (4, u32::try_from(between(&mut rng, 4, 12)).expect("few"));
    let mut world = World::with(Kind::Cluster, seed, plan, Keep::Hash);
    world.hosts.iter_mut().for_each(|host| host.speaks = VERSION - 1);
    world.clients.iter_mut().for_each(|(client, _)| client.is_plain = true);
    let step = Step::Serving(Monotonic(0) + PAUSE_MAX);
    world.script =
        Some(Script::Rolling(Rolling { rng, step, at: 0, why: String::new(), outcome: Outcome::default() }));
    world.live().1?;
    let Some(Script::Rolling(rolling)) = world.script else { unreachable!("it was played") };
    Ok(rolling.outcome)
}

impl Rolling {
    /// A client's request was answered, or with nothing given up.
    pub(super) fn on_end(&mut self, result: Option<&Result<Response, Error>>) {
        let is_served = |result: &Result<_, _>| matches!(result, Ok(_) | Err(Error::TooManySiblings { .. }));
        self.outcome.asked += 1;
        if !result.is_some_and(is_served) {
            self.outcome.failed += 1;
            self.why = result.map_or("no answer".to_owned(), show::answer);
        }
    }

    /// The node that clients leave.
    pub(super) fn leaves(&self) -> Option<usize> {
        (!matches!(self.step, Step::Serving(_))).then_some(self.at)
    }
}

impl World {
    pub(super) fn play_rolling(&mut self, rolling: &mut Rolling) -> Verdict {
        let now = self.events.now();
        let pause = duration_between(&mut rolling.rng, Duration::ZERO, PAUSE_MAX);
        match rolling.step {
            Step::Serving(until) if now >= until => {
                if rolling.outcome.restarts >= ROLLS * self.hosts.len() as u64 {
                    return self.end_rolling(rolling);
                }
                rolling.step = Step::Draining(now + DRAIN_MIN + pause);
            }
            Step::Draining(until) if now >= until && !self.is_asked(rolling.at) => {
                self.stop(rolling.at);
                rolling.step = Step::Restarting(now + RESTART_MAX);
            }
            Step::Restarting(_) if self.has_begun(rolling) => {
                rolling.outcome.restarts += 1;
                rolling.at = (rolling.at + 1) % self.hosts.len();
                rolling.step = Step::Serving(now + pause);
            }
            Step::Restarting(until) if now > until => {
                let what = format!("n{}", rolling.at);
                return Err(Violation::new("a node that stops starts again", what));
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the node that was stopped serves, and has been started once more than before. A server accepts clients
    /// when it knows who is there.
    fn has_begun(&mut self, rolling: &Rolling) -> bool {
        let nodes = self.hosts.len() as u64;
        let host = &mut self.hosts[rolling.at];
        // It was started in the beginning, and once in each roll.
        let has_begun = host.starts == rolling.outcome.restarts / nodes + 2 && host.serves();
        let shards = usize::from(host.machine.layout.shards);
        has_begun && (0..shards).all(|at| host.machine.shard(at).is_some_and(|shard| shard.knows_peers()))
    }

    /// Whether a node has a client's request that it has not answered.
    fn is_asked(&self, at: usize) -> bool {
        let is_client = |from| (0..self.clients.len()).any(|client| client_id(client) == from);
        self.requests.values().any(|(node, from, _)| *node == at && is_client(*from))
    }

    fn end_rolling(&mut self, rolling: &Rolling) -> Verdict {
        let Rolling { outcome: outcome @ Outcome { asked, failed, .. }, why, .. } = rolling;
        if failed * FAILED_EVERY > *asked || *asked < ACKNOWLEDGED_MIN {
            let what = format!("{outcome}, the last one with {why}");
            return Err(Violation::new("clients do not notice a restart", what));
        }
        self.enter(Phase::Homecoming);
        Ok(())
    }
}
