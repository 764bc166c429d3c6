//! How a change is carried out in a cluster of any size in which nothing goes wrong: how long each step takes, and what
//! it costs the nodes.
//!
//! Left out: how long data takes. A part of a copy comes after 50 ms on average, however much a node may have.

use super::idle::BEFORE;
use super::transitions::Kind;
use super::{Event, Plan, Shape, World};
use crate::check::Violation;
use crate::seed::Seed;
use crate::trace::Keep;
use base::Monotonic;
use membership::NodeId;
use membership::state::Step;
use std::fmt;
use std::time::Duration;

/// How often the operator looks at what is to be done next, at most.
const OPERATOR_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Who goes, if somebody is to.
const LEAVER: NodeId = NodeId(7);

/// A change that was carried out.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// The cluster, with the node that comes, and the ring that there is in the end.
    pub shape: Shape,
    /// What has changed.
    pub kind: Kind,
    /// Partitions that were copied to a node.
    pub copied: u64,
    /// How long the commit was copied for, how long both rings were in force, and how long it took from then until all
    /// members had reported that they go by the new one alone.
    pub steps: [Duration; 3],
    /// Messages sent by a node meanwhile: the mean of all, and the most of any.
    pub messages: (f64, f64),
    /// Bytes, before encryption.
    pub bytes: (f64, f64),
}

/// Carries out a change in a cluster whose nodes have all come together.
///
/// # Errors
/// The promise that was broken.
pub fn measure(seed: Seed, shape: Shape, kind: Kind) -> Result<Carried, Violation> {
    let grows = u32::from(kind == Kind::Grow);
    let founded = Shape { partitions: shape.partitions >> grows, ..shape };
    let plan = Plan {
        founders: shape.nodes - 1,
        newcomers: 1,
        zones: 1,
        doublings: grows,
        operator_pause_max: OPERATOR_PAUSE_MAX,
        ..Plan::at_rest(founded)
    };
    let mut world = World::new(seed, founded, plan, Keep::Hash);
    world.live_until(Monotonic(0) + BEFORE);
    world.wish_for(kind, LEAVER);
    world.events.after(Duration::ZERO, Event::Operate);
    let begins: [fn(&Step) -> bool; 3] = [
        |step| matches!(step, Step::Copying { .. }),
        |step| matches!(step, Step::Switched { .. }),
        |step| matches!(step, Step::AtRest),
    ];
    let mut at = Vec::new();
    for (step, has_come) in begins.into_iter().enumerate() {
        world.live_until_step(has_come)?;
        at.push(world.events.now());
        if step == 0 {
            world.forget_costs();
        }
    }
    while world.newest_state().is_none_or(|state| !state.is_settled()) {
        world.live_on()?;
    }
    at.push(world.events.now());
    Ok(Carried {
        shape,
        kind,
        copied: world.copied,
        steps: [0, 1, 2].map(|step| at[step + 1].since(at[step])),
        messages: world.spent(|cost| cost.messages),
        bytes: world.spent(|cost| cost.bytes),
    })
}

impl World {
    fn live_on(&mut self) -> Result<(), Violation> {
        let event = self.events.pop().expect("there is always a look to come");
        self.on_event(event)
    }

    /// Lives until the newest state has come to such a step.
    fn live_until_step(&mut self, has_come: fn(&Step) -> bool) -> Result<(), Violation> {
        while self.newest_state().is_none_or(|state| !has_come(state.step())) {
            self.live_on()?;
        }
        Ok(())
    }
}

/// The head of a table of what was [`Carried`].
pub const HEAD: &str = "\
| nodes | partitions | change | partitions copied | copying | switched | at rest | messages (most) | kB (most) |
|---:|---:|---|---:|---:|---:|---:|---:|---:|";

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Carried { shape, kind, copied, steps, messages, bytes } = self;
        write!(f, "| {} | {} | {kind:?} | {copied} |", shape.nodes, shape.partitions)?;
        for step in steps {
            write!(f, " {:.2} s |", step.as_secs_f64())?;
        }
        write!(f, " {:.0} ({:.0}) |", messages.0, messages.1)?;
        write!(f, " {:.0} ({:.0}) |", bytes.0 / 1e3, bytes.1 / 1e3)
    }
}
