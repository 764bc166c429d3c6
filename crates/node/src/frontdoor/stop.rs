//! The clean stop: other nodes are told before, so that nobody waits for an answer of one that is gone.
//!
//! 1. [`crate::Shard::begin_stop`] pings all peers, and from then on each ping and pong tells of the stop
//!    ([`Load::STOPPING`](crate::Load::STOPPING)). Peers choose this node no more, neither to coordinate a write nor as
//!    a replica.
//! 2. Later requests of its own clients, and of nodes that have not heard yet, are served as ever.
//! 3. The shard is *drained* when each peer that can be reached has answered a ping of the stop, and no client's
//!    request was begun or under way here for [`QUIET`] after that. Then the shell closes links and has the store stop
//!    ([`crate::Shard::begin_close`]).
//!
//! Left out: how long a stop may take, which is the shell's to say; questions to this node as a replica, as their
//! senders have other replicas and keep hints.

use crate::peer::{AskId, NodeId};
use crate::shard::env::Env;
use base::Monotonic;
use std::time::Duration;

/// Without a client's request for so long a node that stops is forgotten by all that have heard of it: their earlier
/// messages arrive within that, though they came behind their answer. The last replies are read by then, too.
const QUIET: Duration = Duration::from_millis(500);

/// How far a stop is.
#[derive(Clone, Debug)]
struct Stopping {
    /// When a client's request was seen last, or somebody had not heard, or the stop began.
    busy: Monotonic,
    /// How many requests had been begun then.
    begun: u64,
    /// Peers that have not answered since the stop began: one that waits for a processor may pass a request on before
    /// it reads the ping. All peers, while it is not known which of them can be reached.
    unheard: Vec<NodeId>,
}

/// The clean stop of a shard, once it was told to.
#[derive(Debug, Default)]
pub(crate) struct CleanStop(Option<Stopping>);

impl CleanStop {
    /// Begins; the router pings all peers that can be reached.
    pub fn begin(&mut self, env: &mut Env) {
        let unheard = match env.knows_peers() {
            true => env.peers.up().collect(),
            false => env.peers.all().collect(),
        };
        env.gauges.is_stopping = true;
        self.0 = Some(Stopping { busy: env.now(), begun: requests_begun(env), unheard });
        env.peers.note_used();
    }

    /// Whether nobody waits for a shard that was told to stop, or will ask it anything. Where nobody can be reached,
    /// nobody has to hear; but a node that was started a moment ago does not know whom it can reach, and may be used by
    /// others all the same. `has_tasks` says whether a client's task is under way.
    pub fn is_drained(&self, env: &Env, has_tasks: bool) -> bool {
        let Some(stopping) = &self.0 else { return false };
        let nobody_is_reached = env.knows_peers() && !env.peers.any_up();
        let is_quiet = stopping.unheard.is_empty() && env.now().since(stopping.busy) >= QUIET;
        (nobody_is_reached || is_quiet) && !has_clients(env, has_tasks)
    }

    /// Looks whether clients still ask for something, and whether all have heard. A node that cannot be reached any
    /// more need not.
    pub fn tick(&mut self, env: &Env, has_tasks: bool, now: Monotonic) {
        let Some(stopping) = &mut self.0 else { return };
        let (begun, knows_peers) = (requests_begun(env), env.knows_peers());
        stopping.unheard.retain(|&node| !knows_peers || env.peers.is_up(node));
        if has_clients(env, has_tasks) || stopping.begun != begun || !stopping.unheard.is_empty() {
            (stopping.busy, stopping.begun) = (now, begun);
        }
    }

    /// A peer has answered a ping. A ping of before the stop did not tell of it.
    pub fn has_heard(&mut self, env: &Env, node: NodeId, asked: AskId) {
        if let Some(stopping) = self.0.as_mut().filter(|_| asked == env.ping_id()) {
            stopping.unheard.retain(|&unheard| unheard != node);
        }
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        assert_eq!(env.gauges.is_stopping, self.0.is_some(), "other nodes are told of the stop");
        if let Some(stopping) = &self.0 {
            assert!(stopping.begun <= requests_begun(env), "requests that were begun stay begun");
            assert!(!stopping.unheard.contains(&env.peers.here()), "a node tells others of its stop");
        }
    }
}

/// Whether some client, of this node or another, waits for something here, or has left work behind that a hint may come
/// of.
fn has_clients(env: &Env, has_tasks: bool) -> bool {
    env.gauges.queued() + env.gauges.forwards > 0 || has_tasks
}

fn requests_begun(env: &Env) -> u64 {
    env.counters.gets + env.counters.puts + env.counters.deletes
}
