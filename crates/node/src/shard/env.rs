//! The environment of a shard's components: settings, the cluster as the shard knows it, its store, and its output.
//!
//! Invariants
//! * A component gets the environment by reference for one step, and keeps nothing of it.
//! * Each gauge is written by the component that it measures, and read by all.
//! * Identifiers of questions, tasks and transfers are drawn here, so none is given twice by one process.
//!
//! Left out: the state of any component. A wish of one component to another is an [`Effect`].

use super::awaiting::Awaiting;
use super::counters::ShardCounters;
use super::deadlines::Deadlines;
use super::effect::Effect;
use super::gauges::Gauges;
use super::knobs::{Knobs, ShardConfig};
use super::output::Output;
use super::owners::{FoldOwners, ScanOwners};
use super::reply_to::ReplyTo;
use crate::consistent::agreement::Agreement;
use crate::frontdoor::latency::Latency;
use crate::hop::{Hop, RequestTimes, ShardId};
use crate::liveness::lease_config::LeaseConfig;
use crate::liveness::peers::Peers;
use crate::peer::{AskId, LeaderAnswer, NodeId, PeerMessage};
use crate::request::task::Task;
use crate::store::Store;
use crate::topology::{Epoch, Topology, nodes};
use ::object::key;
use base::{Clock, Monotonic, Rng};
use bytes::Bytes;
use engine::Durability;
use engine::fold::KeyRange;
use kv::coverage::Plan;
use kv::{Bucket, BucketTable, Error, Request, Response, VersionClock};
use ring::{Birth, Partition, Position};
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The environment of a shard's components.
pub(crate) struct Env {
    /// Settings, which do not change.
    pub knobs: Knobs,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The last reading of the clock; none since the last turn ended.
    recent: Cell<Option<Monotonic>>,
    /// Randomness.
    pub rng: Box<dyn Rng>,
    /// Members and owners as they were published last.
    pub topology: Topology,
    /// The agreement on consistent groups as it was published last; empty before that.
    pub agreement: Arc<Agreement>,
    /// Promises between this process and others, and the use of leases.
    pub leases: LeaseConfig,
    /// The birth of the store that is durable; none before it is.
    pub birth: Option<Birth>,
    /// Other nodes, and which of them can be reached.
    pub peers: Peers,
    /// Bucket properties and bucket types in force.
    pub props: BucketTable,
    /// The objects, hints and properties on the disk.
    pub store: Store,
    /// Owners of writes that may not be acknowledged yet.
    pub awaiting: Awaiting,
    /// Owners of the store's scans.
    pub scan_owners: ScanOwners,
    /// Owners of the store's folds.
    pub fold_owners: FoldOwners,
    /// The earliest deadline of anything that is parked.
    pub deadlines: Deadlines,
    /// Times of versions.
    pub version_clock: VersionClock,
    /// When clients asked last.
    pub activity: Activity,
    /// Work under way.
    pub gauges: Gauges,
    /// Counters, for operators.
    pub counters: ShardCounters,
    /// Times of clients' requests, for operators.
    pub latency: Latency,
    /// Wishes of components to one another, in order.
    pub effects: VecDeque<Effect>,
    /// Messages and replies, in order.
    pub out: Vec<Output>,
    /// The identifier that was given last.
    pub last_id: u64,
}

/// When clients asked for something last: background work yields to them.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// When a client asked last, of this node or another.
    asked: Option<Monotonic>,
}

/// How long no client must have asked for background work to go on at full speed: clients that come once in a second
/// or more often are served as if there were none.
pub(crate) const QUIET: Duration = Duration::from_secs(1);

impl Activity {
    /// A client's request has come, or a part of one.
    #[inline]
    pub fn note_client(&mut self, now: Monotonic) {
        self.asked = Some(now);
    }

    /// Whether clients are served.
    pub fn yields(&self, now: Monotonic) -> bool {
        self.asked.is_some_and(|asked| now.since(asked) < QUIET)
    }
}

impl Env {
    /// The environment of a shard that is opened over its store.
    pub fn new(config: ShardConfig, store: Store, table: BucketTable) -> Env {
        let ShardConfig { id, layout, members, ring, limits, clock, mut rng, read_form, .. } = config;
        let ShardConfig { life, reaping, anti_entropy, rebuilding, gathered, slow, leases, .. } = config;
        let anti_entropy = anti_entropy.filter(|_| store.has_snapshots());
        let knobs =
            Knobs { id, layout, limits, read_form, reaping, anti_entropy, rebuilding, gathered, slow };
        let peers = Peers::new(&members, life, clock.now());
        // Unlike those of an earlier process, and with room for the shard beside it.
        let last_id = rng.next_u64() >> 16;
        let mut version_clock = VersionClock::starting(clock.wall(), rng.next_u64());
        version_clock.see(table.newest_stamp(), clock.wall(), None);

        Env {
            knobs,
            clock,
            recent: Cell::default(),
            rng,
            topology: Topology::at_rest(members, ring),
            agreement: Arc::default(),
            leases,
            birth: None,
            peers,
            props: table,
            store,
            awaiting: Awaiting::default(),
            scan_owners: ScanOwners::default(),
            fold_owners: FoldOwners::default(),
            deadlines: Deadlines::default(),
            version_clock,
            activity: Activity::default(),
            gauges: Gauges::default(),
            counters: ShardCounters::default(),
            latency: Latency::default(),
            effects: VecDeque::new(),
            out: Vec::new(),
            last_id,
        }
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self) {
        let (acknowledged, written) = (self.store.acknowledged(), self.store.last_written());
        assert!(acknowledged <= written, "a version is written before it is acknowledged");
        assert!(self.awaiting.last().is_none_or(|seq| seq <= written), "an awaited version was written");
        let (members, here) = (&self.topology.members, self.peers.here());
        assert_eq!(members.here(), here, "a shard is of one node");
        let others = members.count() - usize::from(members.has(here));
        assert_eq!(self.peers.all().count(), others, "peers are the other members");
        self.gauges.invariants();
        self.latency.invariants();
        self.store.invariants();
        self.topology.invariants();
    }

    /// The time.
    pub fn now(&self) -> Monotonic {
        let now = self.clock.now();
        self.recent.set(Some(now));
        now
    }

    /// The last reading of the clock since a turn ended: a turn older than now at most. The first call after a turn
    /// reads the clock.
    pub fn recent(&self) -> Monotonic {
        self.recent.get().unwrap_or_else(|| self.now())
    }

    /// A turn has ended, and time may pass before the next input.
    pub fn forget_recent(&self) {
        self.recent.set(None);
    }

    /// Raises an effect.
    pub fn raise(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Has a task begun.
    pub fn start(&mut self, task: Task) {
        self.raise(Effect::Start(Box::new(task)));
    }

    /// An identifier that was not given before.
    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The identifier of a question of this shard's to another node; 0 for none.
    pub fn ask_id(&self, id: u64) -> AskId {
        AskId::new(id, self.knobs.id)
    }

    /// The identifier of a ping: another from when a stop began on, as its answer shows that its sender has heard of
    /// it.
    pub fn ping_id(&self) -> AskId {
        self.ask_id(u64::from(self.gauges.is_stopping))
    }

    /// Whether it is known which peers can be reached: all have answered, or have been asked for long enough. Before
    /// that a client would be answered as if there were no others.
    pub fn knows_peers(&self) -> bool {
        self.peers.all_up() || self.peers.are_settled(self.now())
    }

    /// The time until a deadline, for a message.
    pub fn ttl_ms(&self, deadline: Monotonic) -> u32 {
        let left = deadline.since(self.now()).as_millis();
        u32::try_from(left).unwrap_or(u32::MAX).max(1)
    }

    /// The owners of keys.
    pub fn ownership(&self) -> Ownership<'_> {
        Ownership { layout: &self.knobs.layout, topology: &self.topology, here: self.peers.here() }
    }

    /// The prefix of a key, and the shard that holds it.
    pub fn place(&self, bucket: &Bucket, key: &[u8]) -> (u16, ShardId) {
        let prefix = self.knobs.layout.prefix(bucket, key);
        (prefix, ShardId(self.knobs.layout.shard_of(prefix)))
    }

    /// The numbers of replicas that trees are kept for.
    pub fn n_vals_kept(&self) -> BTreeSet<u32> {
        let agreed = self.topology.n_vals.iter().copied();
        self.props.n_vals().into_iter().chain(agreed).collect()
    }

    /// Whether a node is to have a key, once the target is reached.
    pub fn is_wanted_by(&self, node: NodeId, prefix: u16, bucket: &Bucket) -> Result<bool, Error> {
        let n_val = self.props.get_as_replica(bucket)?.n_val;
        let at = self.ownership().position(prefix);
        Ok(self.topology.joins(node, at, n_val))
    }

    /// Whether the store takes writes; deletions go on for longer on a disk that is nearly full.
    pub fn can_write(&self, is_deletion: bool) -> bool {
        let refusal = if is_deletion { self.store.refuses_deletions() } else { self.store.refuses_writes() };
        refusal.is_none()
    }

    /// Whether a key's tombstone may be removed: no crash takes acknowledged writes.
    pub fn can_reap(&self, key: &[u8]) -> bool {
        self.peers.is_alone() || self.store.durability_of(key) == Durability::Sync
    }

    /// Calls with the plan of a request that covers all partitions.
    pub fn with_plan<T>(&self, n_val: u32, then: impl FnOnce(&Plan<'_>) -> T) -> T {
        then(&Plan {
            ring: &self.topology.ring,
            n_val,
            here: self.peers.here(),
            prefixes: self.knobs.layout.prefixes,
            shard_of: &|prefix| self.knobs.layout.shard_of(prefix),
            is_up: &|node| self.peers.is_up(node),
        })
    }

    /// Sends a message to another node.
    pub fn send(&mut self, to: NodeId, message: PeerMessage) {
        debug_assert!(to != self.peers.here(), "a node does not write to itself");
        self.peers.note_sent(to, &message, &*self.clock);
        self.out.push(Output::Peer { to, message });
    }

    /// Replies to a client, here or wherever it is connected.
    pub fn reply(&mut self, reply_to: ReplyTo, result: Result<Response, Error>) {
        self.counters.errors += u64::from(result.is_err());
        match reply_to {
            ReplyTo::Client(to) => self.out.push(Output::Reply { to, result, more: false }),
            ReplyTo::Shard(to, id) => {
                let message = Hop::Answer { id, result: Box::new(result) };
                self.out.push(Output::Hop { to, message });
            }
            ReplyTo::Coordinator(to, id) => self.reply_to_forward(to, id, result),
            ReplyTo::Leader(to, id) => {
                let answer = LeaderAnswer::Done(Box::new(result));
                self.send(to, PeerMessage::LeaderAnswer { id, answer });
            }
            ReplyTo::Replica(..)
            | ReplyTo::DualWrite(_)
            | ReplyTo::Exchange
            | ReplyTo::Sweep
            | ReplyTo::Nobody => unreachable!("its result goes another way"),
        }
    }

    /// Replies to the node that has passed a client's request on.
    pub fn reply_to_forward(&mut self, to: NodeId, id: AskId, result: Result<Response, Error>) {
        // A node that passes such a request on is of a version that does not know this error.
        let result = result.map_err(|error| match error {
            Error::Precommit(_) => Error::Unsupported(error.to_string()),
            error => error,
        });
        self.send(to, PeerMessage::Forwarded { id, result: Box::new(result) });
    }

    /// Passes a client's request on to the shard that it belongs to.
    pub fn forward_to_shard(
        &mut self,
        to: ShardId,
        reply_to: ReplyTo,
        request: Request,
        times: RequestTimes,
    ) {
        let ReplyTo::Client(id) = reply_to else { unreachable!("a forwarded request is where it belongs") };
        self.counters.hops += 1;
        let message = Hop::Request { from: self.knobs.id, id, request: Box::new(request), times };
        self.out.push(Output::Hop { to, message });
    }
}

/// The owners of keys, by the rings that this shard knows.
#[derive(Clone, Copy)]
pub(crate) struct Ownership<'a> {
    layout: &'a crate::Layout,
    topology: &'a Topology,
    here: NodeId,
}

impl Ownership<'_> {
    /// The position on the ring at which the keys with this prefix begin.
    pub fn position(&self, prefix: u16) -> Position {
        self.layout.position(prefix)
    }

    /// The partition of the ring in force that a prefix is in.
    pub fn partition_of(&self, prefix: u16) -> Partition {
        self.topology.ring.size().partition(self.position(prefix))
    }

    /// The first prefix of that partition.
    pub fn first_of(&self, prefix: u16) -> u16 {
        *self.layout.prefixes_of(self.partition_of(prefix), self.topology.ring.size()).start()
    }

    /// The keys of that partition, from one of them on.
    pub fn keys_of(&self, first: u16, from: Option<Bytes>) -> KeyRange {
        let prefixes = self.layout.prefixes_of(self.partition_of(first), self.topology.ring.size());
        let start = from.unwrap_or_else(|| key::objects_at(first).start.into());
        KeyRange::new(start, key::objects_at(*prefixes.end()).end)
    }

    /// Whether the owners of this partition change, so that one may have objects that others have not.
    pub fn is_moving(&self, prefix: u16, n_val: u32) -> bool {
        let topology = self.topology;
        let list = |ring| nodes(ring, self.position(prefix), n_val);
        topology.before.is_some()
            || topology.target.as_ref().is_some_and(|target| list(target) != list(&topology.ring))
    }

    /// Whether a node is to have this partition, by any ring in force or to come.
    pub fn is_keeper(&self, node: NodeId, prefix: u16, n_val: u32) -> bool {
        self.topology.is_keeper(node, self.position(prefix), n_val)
    }

    /// Whether this node is to keep a key.
    pub fn keeps(&self, key: &Bytes, n_val: u32) -> bool {
        self.is_keeper(self.here, key::prefix_of(key), n_val)
    }

    /// Whether this node is not to have this partition, by any ring that was published.
    pub fn has_given_up(&self, prefix: u16, n_val: u32) -> bool {
        self.is_keeper_gone(self.here, prefix, n_val)
    }

    /// The same of any node.
    pub fn is_keeper_gone(&self, node: NodeId, prefix: u16, n_val: u32) -> bool {
        self.topology.epoch > Epoch(0) && !self.is_keeper(node, prefix, n_val)
    }

    /// Whether a node owns no partition, by any ring that was published.
    pub fn is_gone(&self, node: NodeId) -> bool {
        let topology = self.topology;
        let mut rings = topology.before.iter().chain([&topology.ring]).chain(&topology.target);
        topology.epoch > Epoch(0) && !rings.any(|ring| ring.owning().contains(node))
    }

    /// Whether this node is a primary of a key, or is to be.
    pub fn is_primary(&self, prefix: u16, n_val: u32) -> bool {
        self.other_primaries(prefix, n_val, self.here).is_none()
    }

    /// The primaries of a key but `node`; `None` if this node is one, or is to be.
    pub fn other_primaries(&self, prefix: u16, n_val: u32, node: NodeId) -> Option<Vec<NodeId>> {
        let n = usize::try_from(n_val).unwrap_or(usize::MAX);
        let list = self.topology.ring.preflist(self.partition_of(prefix), n);
        let mut primaries: Vec<NodeId> = list.map(|entry| entry.node).collect();
        if primaries.contains(&self.here) {
            return None;
        }
        primaries.sort_unstable();
        primaries.dedup();
        if self.is_keeper(self.here, prefix, n_val) {
            return None;
        }
        primaries.retain(|&other| other != node);
        Some(primaries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn background_work_yields_until_clients_have_been_quiet() {
        let mut activity = Activity::default();
        assert!(!activity.yields(Monotonic(0)));
        activity.note_client(Monotonic(5));
        assert!(activity.yields(Monotonic(5)) && activity.yields(Monotonic(5) + QUIET / 2));
        assert!(!activity.yields(Monotonic(5) + QUIET));
    }
}
