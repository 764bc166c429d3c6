//! Hand-off: partitions that move between nodes while the cluster serves, and hints on their way home.
//!
//! 1. [`Handoff::on_topology`] takes the rings that were published. Requests that begin from then on go by them.
//! 2. When the last request that began before is over, the epoch is adopted: the control plane is told so.
//! 3. [`receiver`] asks for the partitions that come, [`sender`] sends those that go, [`orphans`] drops ranges that are
//!    no longer its own.
//! 4. [`hint_rounds`] brings hints home, when a node comes up and when it owns nothing any more.
//!
//! Invariant: from before a transfer's first key is read until the control plane has heard that no request goes by the
//! ring before, each write that is confirmed here is confirmed by the nodes that take this node's place, and the other
//! way round (`request/dual_write.rs`).

pub(crate) mod hint_rounds;
pub(crate) mod losses;
pub(crate) mod orphans;
pub(crate) mod receiver;
pub(crate) mod sender;
pub(crate) mod throttle;

use crate::peer::NodeId;
use crate::shard::effect::Effect;
use crate::shard::env::Env;
use crate::shard::output::Output;
use crate::topology::{Epoch, Topology};
use base::Monotonic;
use hint_rounds::HintRounds;
use orphans::OrphanedRanges;
use receiver::InboundTransfers;
use sender::OutboundTransfers;
use std::collections::BTreeSet;

/// Hand-off of a shard.
#[derive(Default)]
pub(crate) struct Handoff {
    /// Whether the epoch is to be told, once older requests are over.
    is_untold: bool,
    pub(crate) inbound: InboundTransfers,
    pub(crate) outbound: OutboundTransfers,
    pub(crate) orphans: OrphanedRanges,
    pub(crate) hints: HintRounds,
}

impl Handoff {
    /// Takes members and owners in the place of those known. `oldest_task` is the oldest epoch of a parked task.
    pub fn on_topology(&mut self, env: &mut Env, mut topology: Topology, oldest_task: Option<Epoch>) {
        // Replica counts that no bucket here has, others may have written with.
        let agreed = topology.n_vals.iter().copied();
        let n_vals: BTreeSet<u32> = env.props.n_vals().into_iter().chain(agreed).collect();
        topology.n_vals = n_vals.into_iter().collect();

        if env.topology.is_at_rest() {
            self.outbound.note_unpassed(env.store.last_written());
        }
        self.orphans.note_given(&env.topology, &topology, env.peers.here());
        env.topology = topology;
        self.is_untold = true;

        let others = env.topology.members.others();
        let gone: Vec<NodeId> = others.filter(|node| env.ownership().is_gone(*node)).collect();
        gone.into_iter().for_each(|node| env.raise(Effect::BringHints(node)));
        self.outbound.end_transfers(env);
        self.inbound.begin(env);
        let now = env.now();
        self.orphans.look_from(now, env.last_id);
        self.tick(env, oldest_task, now);
    }

    /// Tells that the epoch is adopted, if it is, and goes on with transfers.
    pub fn tick(&mut self, env: &mut Env, oldest_task: Option<Epoch>, now: Monotonic) {
        let epoch = env.topology.epoch;
        if self.is_untold && oldest_task.is_none_or(|oldest| oldest >= epoch) {
            self.is_untold = false;
            env.out.push(Output::Adopted(epoch));
        }
        self.inbound.tick(env, now);
        self.orphans.tick(env, now);
    }

    /// Hints are kept.
    pub fn on_hints_kept(&mut self, env: &mut Env, prefix: u16, nodes: &[NodeId]) {
        let now = env.now();
        self.orphans.note_hint(prefix, now);
        self.hints.note_kept(nodes, now);
    }

    /// Whether this shard has dropped all that this node is not to have.
    pub fn has_given_all(&self, env: &Env) -> bool {
        env.topology.epoch > Epoch(0) && env.topology.is_at_rest() && self.orphans.is_done()
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        self.outbound.invariants(env);
        self.inbound.invariants(env);
        self.hints.invariants(env);
        self.orphans.invariants(env);
    }
}
