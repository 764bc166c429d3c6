//! The place of a request: its shard, the node that coordinates it, and the replicas that take part.

use super::task::Coordinator;
use crate::hop::{RequestTimes, ShardId};
use crate::liveness::peers::Peers;
use crate::peer::{Load, NodeId};
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;
use kv::{BucketProps, Error, Placement};
use ring::{Position, Ring};
use std::sync::Arc;

/// Load beyond which a write is given to a node that has less than half of it.
const LOAD_BUSY: Load = Load(1024);

/// A client's request that is to begin on this shard.
pub(crate) struct Ready {
    pub reply_to: ReplyTo,
    pub coordinator: Coordinator,
    /// Of its ledger key.
    pub prefix: u16,
    pub props: Arc<BucketProps>,
    pub times: RequestTimes,
}

/// The place of a client's request.
pub(crate) enum Place {
    /// Another shard of this node.
    Shard(ShardId, Coordinator),
    /// Another node.
    Node(NodeId, Coordinator),
    /// Here.
    Here(Ready),
    /// The leader of a consistent group.
    Leader(Ready),
    /// Nowhere.
    Refused(Error),
}

/// Finds the place of a client's request. `avoids` is a node that it could not be sent to before.
#[inline]
pub(crate) fn find(
    env: &Env,
    reply_to: ReplyTo,
    coordinator: Coordinator,
    times: RequestTimes,
    avoids: Option<NodeId>,
) -> Place {
    let (bucket, key) = coordinator.names();
    let (prefix, shard) = env.place(bucket, key);
    if shard != env.knobs.id {
        return Place::Shard(shard, coordinator);
    }
    let props = match env.props.get(bucket) {
        Ok(props) => Arc::clone(props),
        Err(error) => return Place::Refused(error),
    };

    if props.consistent {
        return Place::Leader(Ready { reply_to, coordinator, prefix, props, times });
    }

    // A value that is written once is written without reading, so any node will do; and what a hook refuses is not
    // written.
    let needs_replica = match &coordinator {
        Coordinator::Put(_) => !props.write_once && props.precommit.is_empty(),
        _ => coordinator.writes() && props.precommit.is_empty(),
    };
    if needs_replica && let Some(node) = better_coordinator(env, prefix, props.n_val, &reply_to, avoids) {
        return Place::Node(node, coordinator);
    }
    Place::Here(Ready { reply_to, coordinator, prefix, props, times })
}

/// The node that is to coordinate a write, if it is not this one: where this one is not to hold the key, cannot
/// write, or has far more to do. A write that was passed on is not passed on again.
fn better_coordinator(
    env: &Env,
    prefix: u16,
    n_val: u32,
    reply_to: &ReplyTo,
    avoids: Option<NodeId>,
) -> Option<NodeId> {
    let is_forwarded = matches!(reply_to, ReplyTo::Coordinator(..)) && !base::planted!(ForwardingLoop);
    if env.peers.is_alone() || is_forwarded {
        return None;
    }
    let can_write = env.can_write(false);
    let at = env.ownership().position(prefix);
    let placement = placement(&env.topology.ring, &env.peers, at, n_val, true, can_write);
    let here = placement.here.as_ref();
    let (node, _) = placement
        .others
        .iter()
        .filter(|(node, roles)| Some(*node) != avoids && (roles.primaries > 0 || here.is_none()))
        .min_by_key(|(node, _)| env.peers.load(*node))?;
    let load = env.gauges.load();
    let busy = load >= LOAD_BUSY && env.peers.load(*node).0 < load.0 / 2;
    (here.is_none_or(|roles| roles.primaries == 0) || busy).then_some(*node)
}

/// Who takes part in a request for the keys at this position.
pub(crate) fn placement(
    ring: &Ring,
    peers: &Peers,
    at: Position,
    n: u32,
    sloppy: bool,
    can_write: bool,
) -> Placement {
    if peers.is_alone() {
        return Placement::alone(n);
    }
    let n_val = usize::try_from(n).unwrap_or(usize::MAX);
    let list = ring.preflist_with_fallbacks(ring.size().partition(at), n_val);
    let here = peers.here();
    let is_up = |node| if node == here { can_write } else { peers.is_up(node) };
    let mut placement = Placement::of(list, here, sloppy, is_up);
    placement.others.sort_by_key(|(node, _)| peers.load(*node));
    placement
}
