//! Inputs of the control plane: members and owners, the agreement on consistent groups, the store's birth, budgets.
//!
//! Invariant: an older topology than the one in force is ignored.

use std::sync::Arc;

use object::Actor;
use ring::Birth;

use super::Shard;
use super::effect::Effect;
use crate::consistent::adopt::{AdoptError, AdoptedGroups, Adoption};
use crate::consistent::agreement::Agreement;
use crate::request::actors::Actors;
use crate::topology::{Budget, Topology};

impl Shard {
    /// Takes members and owners as they were published last. Those that are not later than the known ones are ignored.
    ///
    /// # Panics
    /// If a ring has more partitions than keys have prefixes, or an owner that is no member.
    pub fn topology(&mut self, topology: Topology) {
        if topology.epoch <= self.env.topology.epoch && !base::planted!(StaleRingAccepted) {
            return;
        }
        topology.check(&self.env.knobs.layout);

        let was_alone = self.env.peers.is_alone();
        let left = self.env.peers.change(&topology.members);
        if was_alone && !self.env.peers.is_alone() {
            // From now on somebody else may have events of the store's actor: those of a copy of its disk.
            let actor = Actor(self.env.rng.next_u64());
            self.requests.set_actors(Actors::new(actor, false));
        }
        left.into_iter().for_each(|node| self.env.raise(Effect::QuestionsLost(node)));

        let oldest_task = self.requests.tasks().oldest();
        self.handoff.on_topology(&mut self.env, topology, oldest_task);
        self.anti_entropy.look_at_partitions(&mut self.env);
        self.drain();
    }

    /// Takes the agreement on consistent groups as it was published last. It names this process only once the cluster's
    /// log has registered it.
    pub fn agree(&mut self, agreement: Arc<Agreement>) {
        self.env.agreement = agreement;
        self.consistent.on_agreement(&mut self.env);
        self.drain();
    }

    /// Bounds the live consistent groups beyond which those at rest are unloaded, in place of the usual bound.
    pub fn bound_live_groups(&mut self, most: usize) {
        self.consistent.bound_open_groups(most);
    }

    /// Has the store keep this birth from now on; [`Output::BirthKept`](super::Output::BirthKept) tells when no crash can take it. A store of
    /// another backend keeps none.
    pub fn keep_birth(&mut self, birth: Birth) {
        self.birth.keep(&mut self.env, birth);
        self.drain();
    }

    /// Makes this restored store the only voter of groups that were chosen for it, under the birth that it gets next
    /// ([`Shard::keep_birth`]). `written` groups of this shard are written already, by earlier calls; this one goes on
    /// with the next piece. It writes fewer, or none, while the store has no room for them.
    ///
    /// # Errors
    /// [`AdoptError`]; then no group takes part, and it can be tried again in a later epoch.
    pub fn adopt(&mut self, adoption: &Adoption, written: usize) -> Result<AdoptedGroups, AdoptError> {
        let has_birth = self.birth.has_birth(&self.env);
        let adopted = self.consistent.adopt(&mut self.env, adoption, written, has_birth);
        self.drain();
        adopted
    }

    /// The store's birth, once it is durable.
    pub fn birth(&self) -> Option<Birth> {
        self.env.birth
    }

    /// How much transfers may take from now on.
    pub fn budget(&mut self, budget: Budget) {
        self.env.topology.budget = budget;
    }
}
