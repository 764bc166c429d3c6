//! What a cluster at rest costs each of its nodes: what failure detector and metadata log send, and how often they are
//! called.

use super::host::Cost;
use super::{Plan, Shape, World};
use crate::seed::Seed;
use crate::trace::Keep;
use base::Monotonic;
use std::fmt;
use std::time::Duration;

/// How long the founders have to come together.
pub(super) const BEFORE: Duration = Duration::from_secs(120);
/// How long they are looked at.
const MEASURED: Duration = Duration::from_secs(60);

/// The cost of one node in a second: the mean of all, and the most of any.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Of what cluster.
    pub shape: Shape,
    /// Messages sent.
    pub messages: (f64, f64),
    /// Bytes sent, before encryption.
    pub bytes: (f64, f64),
    /// Calls of the node's part.
    pub steps: (f64, f64),
    /// Members that some node takes for down, at the end.
    pub taken_for_down: usize,
}

/// Measures a cluster of this shape, all of whose nodes began at once.
pub fn measure(seed: Seed, shape: Shape) -> Idle {
    let mut world = World::new(seed, shape, Plan::at_rest(shape), Keep::Hash);
    world.live_until(Monotonic(0) + BEFORE);
    world.forget_costs();
    world.live_until(Monotonic(0) + BEFORE + MEASURED);
    let of = |part: fn(&Cost) -> u64| {
        let (mean, most) = world.spent(part);
        (mean / MEASURED.as_secs_f64(), most / MEASURED.as_secs_f64())
    };
    let others = world.hosts.len() - 1;
    let processes = world.hosts.values().filter_map(|host| host.process.as_ref());
    let taken_for_down = processes.map(|it| others - it.membership.detector().up().len()).sum();
    Idle {
        shape,
        messages: of(|cost| cost.messages),
        bytes: of(|cost| cost.bytes),
        steps: of(|cost| cost.steps),
        taken_for_down,
    }
}

impl World {
    pub(super) fn live_until(&mut self, end: Monotonic) {
        while self.events.now() < end {
            let event = self.events.pop().expect("there is always a look to come");
            self.on_event(event).expect("nothing goes wrong where nothing happens");
        }
    }
}

/// The head of a table of [`Idle`]s.
pub const HEAD: &str = "\
| nodes | partitions | messages/s (most) | bytes/s (most) | steps/s (most) | taken for down |
|---:|---:|---:|---:|---:|---:|";

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Idle { shape, messages, bytes, steps, taken_for_down } = self;
        write!(f, "| {} | {} ", shape.nodes, shape.partitions)?;
        write!(f, "| {:.1} ({:.1}) | {:.0} ({:.0}) ", messages.0, messages.1, bytes.0, bytes.1)?;
        write!(f, "| {:.1} ({:.1}) | {taken_for_down} |", steps.0, steps.1)
    }
}
