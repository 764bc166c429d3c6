//! The consensus library over a store, with its configuration.

use raft::{Config, RawNode};
use ring::NodeId;

use super::library::id_of;
use super::store::Store;
use super::ticks::{ELECTION_TICKS, HEARTBEAT_TICKS};

/// Bytes of entries in one message, at most: some hundred commands, or one commit of a large ring.
const APPEND_BYTES_MAX: u64 = 1 << 20;

/// Messages under way to a voter, at most: changes are few, so this is for scripts.
const IN_FLIGHT_MAX: usize = 64;

/// The library over a store, from the applied entries on.
pub(super) fn raw_node(node: NodeId, store: Store, applied: u64) -> RawNode<Store> {
    let config = Config {
        id: id_of(node),
        election_tick: ELECTION_TICKS,
        heartbeat_tick: HEARTBEAT_TICKS,
        applied,
        max_size_per_msg: APPEND_BYTES_MAX,
        max_inflight_msgs: IN_FLIGHT_MAX,
        check_quorum: true,
        pre_vote: true,
        ..Config::default()
    };
    let silent = slog::Logger::root(slog::Discard, slog::o!());
    RawNode::new(&config, store, &silent).expect("the store is sound, and the configuration is ours")
}
