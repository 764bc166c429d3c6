//! Settings of a shard, and all else that it is opened with.

use crate::frontdoor::slow::SlowRequests;
use crate::hop::ShardId;
use crate::layout::Layout;
use crate::liveness::lease_config::LeaseConfig;
use crate::members::Members;
use base::{Budget, Clock, Rng};
use engine::fold::JournalCheck;
use kv::reap::{FOLD_ACTORS, GRAVE_TIME};
use kv::{Limits, ReadStrategy};
use ring::Ring;
use std::sync::Arc;
use std::time::Duration;

/// Requests that one shard works on at a time. Each holds its names, and values within [`Limits::work_bytes_max`];
/// beyond it a request is refused at once.
pub const WORK_MAX: usize = 16_384;

/// How long a client waits that does not say: Riak's default.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// Requests without an answer below which nothing is refused: fewer are no burden, so a slow request is not slow for
/// their number.
pub const OVERLOAD_WORK_MIN: usize = 128;

/// All that a shard is opened with.
pub struct ShardConfig {
    /// Which shard it is.
    pub id: ShardId,
    /// How the node's keys are laid out.
    pub layout: Layout,
    /// The nodes of the cluster, and which of them this is.
    pub members: Arc<Members>,
    /// The owners of partitions.
    pub ring: Arc<Ring>,
    /// The limits in force.
    pub limits: Limits,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub rng: Box<dyn Rng>,
    /// How reads ask their replicas while this node is not too busy.
    pub read_form: ReadStrategy,
    /// The process, for other nodes: one random number, not 0, for all its shards.
    pub life: u64,
    /// Removal of tombstones.
    pub reaping: Reaping,
    /// How often all objects of this node are compared with those of others; `None` for never. Without a use where
    /// the store has no snapshots.
    pub anti_entropy: Option<Duration>,
    /// When the trees for that are made anew from the store.
    pub rebuilding: Rebuilding,
    /// Memory for answers in one piece while they are gathered.
    pub gathered: Arc<Budget>,
    /// The log of slow requests.
    pub slow: Arc<SlowRequests>,
    /// Promises between this process and others, and the use of leases.
    pub leases: LeaseConfig,
}

/// Settings of a shard that do not change.
pub(crate) struct Knobs {
    /// Which shard it is.
    pub id: ShardId,
    /// How the node's keys are laid out.
    pub layout: Layout,
    /// The limits in force.
    pub limits: Limits,
    /// How reads ask their replicas while this node is not too busy.
    pub read_form: ReadStrategy,
    /// Removal of tombstones.
    pub reaping: Reaping,
    /// How often all objects are compared with those of other nodes; `None` for never.
    pub anti_entropy: Option<Duration>,
    /// When the trees for that are made anew from the store.
    pub rebuilding: Rebuilding,
    /// Memory for answers in one piece while they are gathered.
    pub gathered: Arc<Budget>,
    /// The log of slow requests.
    pub slow: Arc<SlowRequests>,
}

/// Removal of tombstones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaping {
    /// How long one is kept at least; `None`: for ever, and no other node may reap it either.
    pub delay: Option<Duration>,
    /// How long its grave is remembered, while the process is awake; longer than anything may be on its way.
    pub grave: Duration,
    /// The context of a key is folded when it has more entries than this.
    pub fold_actors: usize,
}

impl Reaping {
    /// With the default for graves.
    pub fn after(delay: Option<Duration>) -> Reaping {
        Reaping { delay, grave: GRAVE_TIME, fold_actors: FOLD_ACTORS }
    }
}

/// When trees that nothing is known against are made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebuilding {
    /// How often, give or take a half; `None` for never.
    pub every: Option<Duration>,
    /// The check of values beside the heads.
    pub check: JournalCheck,
    /// The shards that have a turn at a time.
    pub turns: Turns,
}

impl Default for Rebuilding {
    /// Once in a week, as all is read by the scrub; by every node for itself, since rebuilds yield to clients.
    fn default() -> Rebuilding {
        let every = Some(Duration::from_secs(7 * 24 * 3600));
        Rebuilding { every, check: JournalCheck::Presence, turns: Turns::Node }
    }
}

/// The shards that may begin a rebuild whose time has come. Turns are a minute each, by the clock: nobody has to be
/// asked. A rebuild under way goes on when its turn ends, and an operator's request waits for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// One shard of each node.
    Node,
    /// One shard of the whole cluster.
    Cluster,
}
