//! Members and owners that change while this shard serves.
//!
//! 1. [`Shard::topology`] takes what was published. Requests that begin from then on go by it.
//! 2. When the last request that began before is over, the epoch is adopted: the control plane is told so.

use super::{Output, Shard};
use crate::topology::{Epoch, Topology};
use ::object::Actor;
use std::sync::Arc;

/// What this shard knows of changes.
pub(super) struct Moves {
    pub topology: Topology,
    /// Whether the epoch is to be told, once older requests are over.
    untold: bool,
}

impl Moves {
    pub fn new(topology: Topology) -> Moves {
        Moves { topology, untold: false }
    }

    pub fn epoch(&self) -> Epoch {
        self.topology.epoch
    }
}

impl Shard {
    /// Members and owners as they were published last. One that is not later than what is known is ignored.
    ///
    /// # Panics
    /// If the rings are not of the size that keys are laid out by, or own nodes that are no members.
    pub fn topology(&mut self, topology: Topology) {
        if topology.epoch <= self.moves.epoch() {
            return;
        }
        let rings = topology.before.iter().chain([&topology.ring]).chain(&topology.target);
        for ring in rings {
            assert_eq!(ring.size(), self.config.layout.ring_size, "a ring of another size");
            assert!(ring.owning().iter().all(|node| topology.members.has(node)), "an owner is a member");
        }
        let was_alone = self.peers.is_alone();
        let left = self.peers.change(&topology.members);
        if was_alone && !self.peers.is_alone() {
            // From now on somebody else may have events of the store's actor: those of a copy of its disk.
            self.actor = Actor(self.config.rng.next_u64());
        }
        self.config.members = Arc::clone(&topology.members);
        self.config.ring = Arc::clone(&topology.ring);
        self.moves.topology = topology;
        self.moves.untold = true;
        left.into_iter().for_each(|node| self.fail_questions(node));
        self.tick_moves();
    }

    /// Tells that the epoch is adopted, if it is.
    pub(super) fn tick_moves(&mut self) {
        let epoch = self.moves.epoch();
        if self.moves.untold && self.objects.oldest().is_none_or(|oldest| oldest >= epoch) {
            self.moves.untold = false;
            self.outputs.push(Output::Adopted(epoch));
        }
    }
}
