//! Events and who makes them.

/// The random id of a store's incarnation: who gives out dots. Never used by two stores, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Actor(pub u64);

impl Actor {
    /// Who writes what is written once, whichever node that is. Incarnations are drawn from 64 random bits.
    pub const WRITE_ONCE: Actor = Actor(0);

    /// Who writes objects of consistent types, whichever node that is.
    pub const CONSISTENT: Actor = Actor(u64::MAX);
}

/// One write: the `counter`-th event of `actor`. Counters are store-wide, start at 1 and only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dot {
    /// Whose event.
    pub actor: Actor,
    /// Which one.
    pub counter: u64,
}

impl Dot {
    /// The `counter`-th event of `actor`.
    ///
    /// # Panics
    /// If `counter` is 0: counters start at 1.
    pub fn new(actor: Actor, counter: u64) -> Dot {
        assert!(counter > 0, "counters start at 1");
        Dot { actor, counter }
    }
}
