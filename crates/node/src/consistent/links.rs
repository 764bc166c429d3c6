//! Messages between the voters of groups, in envelopes.
//!
//! An envelope names the processes of both ends, so a message of an earlier life of either end is dropped. Beside it
//! stands the birth of the store that sends it. A message of a store that this node does not know, or not any more, is
//! dropped: else a store that forgot would vote as the voter before it.
//!
//! Left out: envelopes that come, which the router takes (`inputs.rs`).

use base::Monotonic;
use bytes::Bytes;
use strong::envelope::{GroupId, Outgoing};
use strong::group::{Birth, VoterId};
use strong::promise::Process;

use super::group::GroupKey;
use super::voters::{endpoint_here, endpoint_of, voter_of};
use crate::hop::ShardId;
use crate::liveness::promises;
use crate::peer::{NodeId, PeerMessage};
use crate::shard::env::Env;

/// Messages of groups that have not left.
#[derive(Default)]
pub(super) struct GroupLinks {
    /// Those of this turn, and notes that wait for others.
    outgoing: Option<Outgoing>,
}

impl GroupLinks {
    /// Adds a message of a group to those of this turn, unless the voter's store is lost.
    pub fn send(&mut self, env: &Env, of: (GroupKey, GroupId), to: VoterId, message: Bytes) {
        if voter_of(env, to.node, of.0.prefix) == Some(to) {
            self.send_to_node(env, of, to.node, message);
        }
    }

    /// Adds a message of a group to those of this turn.
    pub fn send_to_node(&mut self, env: &Env, (key, id): (GroupKey, GroupId), to: NodeId, message: Bytes) {
        let Some(endpoint) = endpoint_of(env, to, key.prefix) else { return };
        let outgoing = self.outgoing.get_or_insert_with(|| Outgoing::new(endpoint_here(env)));
        outgoing.push(endpoint, id, message, env.now());
    }

    /// Sends the envelopes that leave now, of the store with a birth.
    pub fn send_envelopes(&mut self, env: &mut Env, birth: Option<Birth>, now: Monotonic) {
        let Some(outgoing) = &mut self.outgoing else { return };
        for (to, envelope) in outgoing.take(now) {
            let mut processes = env.agreement.processes.iter();
            let Some((&node, _)) = processes.find(|(_, process)| process.life == to.life) else { continue };
            let block = promises::block_to(env, Process { node, life: to.life });
            let (to, lane) = (ShardId(to.shard), envelope.lane);
            env.send(node, PeerMessage::Groups { to, lane, block, birth, envelope: envelope.encode() });
        }
        if let Some(next) = outgoing.next_timer() {
            env.deadlines.note(next);
        }
    }

    /// When the next envelope leaves.
    pub fn next_timer(&self) -> Option<Monotonic> {
        self.outgoing.as_ref().and_then(Outgoing::next_timer)
    }

    /// Drops all messages: those of the voters of before do not leave as those of the next ones.
    pub fn clear(&mut self) {
        self.outgoing = None;
    }
}
