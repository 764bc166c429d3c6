//! Messages between the voters of groups, in envelopes.
//!
//! A voter is a store of a process that the cluster has registered. An envelope names the processes of both ends, so a
//! message of an earlier life of either end is dropped. Beside it stands the birth of the store that sends it. A
//! message of a store that this node does not know, or not any more, is dropped: else a store that forgot would vote as
//! the voter before it.

use base::Monotonic;
use bytes::Bytes;
use strong::Endpoint;
use strong::envelope::{Envelope, GroupId, Outgoing};
use strong::group::{Birth, Input, VoterId};
use strong::promise::{Block, Process};

use super::group::GroupKey;
use super::open::epoch_of;
use super::{ConsistentGroups, Todo};
use crate::hop::ShardId;
use crate::liveness::promises;
use crate::peer::{NodeId, PeerMessage};
use crate::shard::env::Env;

/// This shard of this process.
pub(super) fn endpoint_here(env: &Env) -> Endpoint {
    Endpoint { life: env.peers.life(), shard: env.knobs.id.0 }
}

/// The shard of a registered process that holds the keys of a prefix.
pub(super) fn endpoint_of(env: &Env, node: NodeId, prefix: u16) -> Option<Endpoint> {
    let process = env.agreement.processes.get(&node)?;
    let shard = process.stores.shard_of_prefix(prefix, env.knobs.layout.prefixes);
    Some(Endpoint { life: process.life, shard })
}

/// The voter that the registered store of a node is, for the group of a prefix.
pub(super) fn voter_of(env: &Env, node: NodeId, prefix: u16) -> Option<VoterId> {
    let process = env.agreement.processes.get(&node)?;
    Some(VoterId { node, birth: process.stores.of_prefix(prefix, env.knobs.layout.prefixes) })
}

/// Whether a sender's store is not the one that its node has registered, as far as this node has heard. A process that
/// has lost a store draws another birth for it, so the process does not tell one from the other.
fn is_of_another_store(env: &Env, (from, birth): (NodeId, Option<Birth>), prefix: u16) -> bool {
    birth.is_some_and(|birth| voter_of(env, from, prefix) != Some(VoterId { node: from, birth }))
}

impl ConsistentGroups {
    /// Adds a message of a group to those of this turn, unless the voter's store is lost.
    pub(super) fn send(&mut self, env: &mut Env, key: GroupKey, to: VoterId, message: Bytes) {
        let Some(held) = self.groups.get(&key) else { return };
        if voter_of(env, to.node, key.prefix) == Some(to) {
            self.send_of(env, (key, held.id), to.node, message);
        }
    }

    /// Adds a message of a group to those of this turn.
    pub(super) fn send_of(&mut self, env: &Env, (key, id): (GroupKey, GroupId), to: NodeId, message: Bytes) {
        let Some(endpoint) = endpoint_of(env, to, key.prefix) else { return };
        let outgoing = self.outgoing.get_or_insert_with(|| Outgoing::new(endpoint_here(env)));
        outgoing.push(endpoint, id, message, env.now());
    }

    /// Sends the envelopes that leave now.
    pub(super) fn send_envelopes(&mut self, env: &mut Env, now: Monotonic) {
        let Some(outgoing) = &mut self.outgoing else { return };
        for (to, envelope) in outgoing.take(now) {
            let mut processes = env.agreement.processes.iter();
            let Some((&node, _)) = processes.find(|(_, process)| process.life == to.life) else { continue };
            let block = promises::block_to(env, Process { node, life: to.life });
            let (to, lane, birth) = (ShardId(to.shard), envelope.lane, self.birth);
            env.send(node, PeerMessage::Groups { to, lane, block, birth, envelope: envelope.encode() });
        }
        if let Some(next) = outgoing.next_timer() {
            env.deadlines.note(next);
        }
    }

    /// Takes an envelope of a store of another node. Its birth is missing if the node's program is older.
    pub fn on_envelope(
        &mut self,
        env: &mut Env,
        (from, birth): (NodeId, Option<Birth>),
        block: Option<Block>,
        envelope: Bytes,
    ) {
        let Ok(envelope) = Envelope::read(envelope) else {
            env.counters.consistent_malformed += 1;
            return;
        };
        let is_known = env.agreement.processes.get(&from).is_some_and(|it| it.life == envelope.from.life);
        if !is_known || envelope.to != endpoint_here(env) {
            return;
        }
        // First of all: the answers of groups name the promise that the envelope renews.
        let life = envelope.from.life;
        if let Some(block) = block {
            promises::hear(env, Process { node: from, life }, &block);
        }
        for (id, message) in envelope.messages {
            let key = GroupKey { n_val: id.n_val, prefix: id.prefix };
            let epoch = epoch_of(env, &id);
            let is_ours = env.knobs.layout.shard_of(id.prefix) == env.knobs.id.0;
            if epoch.is_none() || !is_ours || is_of_another_store(env, (from, birth), id.prefix) {
                continue;
            }
            if !self.open_in(env, key, epoch) {
                self.answer_dormant(env, (from, id), key, message);
                continue;
            }
            if let Some(from) = voter_of(env, from, id.prefix) {
                self.todo.push_back(Todo::Step(key, Input::MessageOf { from, life, message }));
            }
        }
        self.run(env);
    }

    /// Tells groups that messages to a peer did not leave.
    pub fn on_bounced(&mut self, env: &mut Env, to: NodeId, envelope: Bytes) {
        let Ok(envelope) = Envelope::read(envelope) else { return };
        for (id, _) in envelope.messages {
            let key = GroupKey { n_val: id.n_val, prefix: id.prefix };
            let Some(voter) = voter_of(env, to, id.prefix) else { continue };
            let is_up = self.reaches(env, key, voter);
            // The library sends lost messages again.
            for is_up in [false, is_up] {
                self.todo.push_back(Todo::Step(key, Input::Reachable { voter, is_up }));
            }
        }
        self.run(env);
    }
}
