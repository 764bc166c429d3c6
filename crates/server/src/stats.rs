//! What `/stats` says.

#[cfg(test)]
mod tests;

use crate::connects::ConnectsRead;
use crate::membership::Reach;
use crate::memory::{MemoryBudgets, MemoryFigures};
use crate::metrics::{of_consistent, of_requests};
use crate::peer::{CertificateExpiry, PeerFigures};
use crate::process::ProcessFigures;
use crate::purge::PurgeFigures;
use crate::security::DoorFigures;
use crate::store_figures::StoreFigures;
use crate::system::{DiskSpace, SystemFigures};
use figures::{Distribution, Histogram, Labels};
use node::riak::RIAK_VERSION;
use node::shard::ShardCounters;
use node::store::founding::Founding;
use node::{GroupCounts, LatencyRead, ShardStats, TimesRead};
use os::DiskFigures;
use ring::NodeId;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What one shard's thread has to say.
#[derive(Clone, Debug)]
pub struct ThreadStats {
    /// Its shard.
    pub shard: ShardStats,
    /// How long clients' requests take.
    pub times: LatencyRead,
    /// Its disk.
    pub disk: DiskFigures,
    /// Its links, by node; none if the node is alone.
    pub peers: Vec<PeerFigures>,
    /// Its clients by protocol buffers.
    pub connects: ConnectsRead,
}

/// Whom the node reaches, among those that make a majority.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct ReachFigures {
    cluster_members: usize,
    cluster_members_reached: usize,
    cluster_voters: usize,
    cluster_voters_reached: usize,
    /// 1 if it reaches a majority of the members and one of the voters, else 0.
    cluster_majority: u8,
}

/// Groups of consistent bucket types, by their state.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct GroupFigures {
    consistent_groups: usize,
    consistent_groups_led: usize,
    consistent_groups_without_leader: usize,
    consistent_groups_suspect: usize,
    consistent_groups_forgotten: usize,
    consistent_groups_incomplete: usize,
    consistent_groups_unreadable: usize,
    consistent_groups_without_vote: usize,
    consistent_groups_dormant: usize,
}

impl GroupFigures {
    fn add(&mut self, of_shard: &GroupCounts) {
        self.consistent_groups += of_shard.held;
        self.consistent_groups_led += of_shard.led;
        self.consistent_groups_without_leader += of_shard.without_leader;
        self.consistent_groups_suspect += of_shard.suspect;
        self.consistent_groups_forgotten += of_shard.forgotten;
        self.consistent_groups_incomplete += of_shard.incomplete;
        self.consistent_groups_unreadable += of_shard.unreadable;
        self.consistent_groups_without_vote += of_shard.without_vote;
        self.consistent_groups_dormant += of_shard.dormant;
    }
}

/// Sums over all shards, since the start. Names are Riak's where Riak has the same thing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stats {
    nodename: String,
    /// What clients choose their features by.
    riak_kv_version: &'static str,
    riak_core_version: &'static str,
    storage_backend: &'static str,
    /// Types with stores of their own, and of which backends these are; empty if there are none.
    storage_type_backends: String,
    ring_members: Vec<String>,
    /// Other nodes that a message could be sent to.
    connected_nodes: Vec<String>,
    ring_creation_size: u32,
    #[serde(flatten)]
    system: SystemFigures,
    #[serde(flatten)]
    process: ProcessFigures,
    #[serde(flatten)]
    disk: DiskSpace,
    /// 1 if clients are to be sent to the node, else 0.
    ready: u8,
    #[serde(flatten)]
    certificates: CertificateExpiry,
    annulet_version: String,
    ring_num_partitions: u32,
    shards: usize,
    connections: usize,
    #[serde(flatten)]
    connects: ConnectsRead,
    /// Coordinated here, in the last minute and since the start; times in microseconds.
    #[serde(flatten, serialize_with = "fsms")]
    times: LatencyRead,
    read_repairs_total: u64,
    /// Requests that another node was asked to coordinate.
    coord_redirs_total: u64,
    /// Those of replicas too.
    vnode_gets_total: u64,
    vnode_puts_total: u64,
    vnode_deletes_total: u64,
    #[serde(flatten, serialize_with = "shown")]
    counters: ShardCounters,
    requests_under_way: usize,
    /// Other nodes that every shard can reach.
    peers_up: usize,
    #[serde(flatten)]
    reach: ReachFigures,
    #[serde(flatten)]
    groups: GroupFigures,
    /// Stores that take no writes, for now or at all.
    stores_refusing_writes: usize,
    graves: usize,
    version_times_ahead: u64,
    trees_due: usize,
    tree_bytes: usize,
    tree_keys: u64,
    journal_records: u64,
    journal_groups: u64,
    journal_syncs: u64,
    journal_bytes: u64,
    journal_segments: usize,
    memtable_bytes: usize,
    tables: usize,
    block_cache_hits: u64,
    block_cache_misses: u64,
    lookups_parked: usize,
    /// `lookups_found_level_0` and so on.
    #[serde(flatten)]
    lookups_found: BTreeMap<String, u64>,
    /// Writes that are held back because the store is near a limit, and how long all were told to wait.
    writes_held: usize,
    writes_paced_ms_total: u64,
    #[serde(flatten)]
    purges: PurgeFigures,
    #[serde(flatten)]
    doors: DoorFigures,
    #[serde(flatten)]
    engine: StoreFigures,
    disk_reads_with_data: u64,
    disk_tries_full: u64,
    disk_tries_short: u64,
    disk_tries_empty: u64,
    disk_reads: u64,
    disk_read_bytes: u64,
    disk_writes: u64,
    disk_write_bytes: u64,
    disk_syncs: u64,
    disk_files_reopened: u64,
    #[serde(flatten)]
    memory: MemoryFigures,
    /// Lines of the log, and those of them that nobody could write.
    log_lines_total: u64,
    log_lines_dropped_total: u64,
    /// Connections to the peers' port that did not prove to be of a node of this cluster.
    peer_strangers_refused: u64,
    #[serde(flatten)]
    links: PeerFigures,
    /// By the other nodes' names.
    peers: BTreeMap<String, PeerFigures>,
    /// Every option in force, as text.
    #[serde(serialize_with = "options")]
    options: Arc<BTreeMap<String, String>>,
}

impl Stats {
    /// The sums over `threads`.
    pub fn of(
        nodename: &str,
        version: &str,
        ring_creation_size: u32,
        connections: usize,
        threads: &[ThreadStats],
    ) -> Stats {
        let log = os::STDERR.figures();
        let mut stats = Stats {
            log_lines_total: log.lines,
            log_lines_dropped_total: log.dropped,
            nodename: nodename.to_owned(),
            riak_kv_version: RIAK_VERSION,
            riak_core_version: RIAK_VERSION,
            ring_creation_size,
            system: SystemFigures::now(),
            process: ProcessFigures::now(),
            annulet_version: version.to_owned(),
            shards: threads.len(),
            connections,
            engine: StoreFigures::of_none(),
            ..Stats::default()
        };
        threads.iter().for_each(|thread| stats.add(thread));
        let partitions = threads.iter().map(|thread| thread.shard.partitions);
        stats.ring_num_partitions = partitions.max().unwrap_or(ring_creation_size);
        stats.peers_up = threads.iter().map(|thread| thread.shard.peers_up).min().unwrap_or(0);
        stats
    }

    /// With what is known of the other nodes, which are among `members`.
    pub fn with_peers<'a>(
        mut self,
        members: impl Iterator<Item = (NodeId, &'a str)>,
        threads: &[ThreadStats],
        refused: u64,
    ) -> Stats {
        self.peer_strangers_refused = refused;
        let members: Vec<(NodeId, &str)> = members.collect();
        self.ring_members = members.iter().map(|(_, name)| (*name).to_owned()).collect();
        // Also of those that have left, or sums would fall.
        threads.iter().flat_map(|thread| &thread.peers).for_each(|figures| self.links += *figures);
        for (node, name) in members.into_iter().filter(|(_, name)| *name != self.nodename) {
            let mut sum = PeerFigures::default();
            let of_node = threads.iter().filter_map(|thread| thread.peers.get(usize::from(node.0)));
            of_node.for_each(|figures| sum += *figures);
            if sum.peer_links_up > 0 {
                self.connected_nodes.push(name.to_owned());
            }
            self.peers.insert(name.to_owned(), sum);
        }
        self
    }

    /// With whom the node reaches.
    pub fn with_reach(self, reach: &Reach) -> Stats {
        let Reach { members, voters, .. } = reach;
        let reach = ReachFigures {
            cluster_members: members.all,
            cluster_members_reached: members.reached,
            cluster_voters: voters.all,
            cluster_voters_reached: voters.reached,
            cluster_majority: reach.has_majority().into(),
        };
        Stats { reach, ..self }
    }

    /// With the readiness of the node, the space of its disk, and the ends of its certificates.
    pub fn with_health(self, is_ready: bool, disk: DiskSpace, certificates: CertificateExpiry) -> Stats {
        Stats { ready: is_ready.into(), disk, certificates, ..self }
    }

    /// With what purges have come to.
    pub fn with_purges(self, purges: PurgeFigures) -> Stats {
        Stats { purges, ..self }
    }

    /// With logins and refusals at the doors.
    pub(crate) fn with_doors(self, doors: DoorFigures) -> Stats {
        Stats { doors, ..self }
    }

    /// With how the node's memory is used, of which there is so much.
    pub fn with_memory(self, limit: u64, budgets: &MemoryBudgets) -> Stats {
        Stats { memory: budgets.figures(limit), ..self }
    }

    /// Of such stores.
    pub fn with_backends(self, founding: &Founding) -> Stats {
        let (storage_backend, storage_type_backends) = (founding.backend.name(), founding.types.to_string());
        Stats { storage_backend, storage_type_backends, ..self }
    }

    /// With the options in force.
    pub fn with_options(self, options: &Arc<BTreeMap<String, String>>) -> Stats {
        Stats { options: Arc::clone(options), ..self }
    }

    fn add(&mut self, thread: &ThreadStats) {
        self.connects += thread.connects;
        let (counters, store, disk) = (thread.shard.counters, thread.shard.store, thread.disk);
        self.counters += counters;
        self.times.join(&thread.times);
        self.groups.add(&thread.shard.groups);
        self.stores_refusing_writes += usize::from(thread.shard.refuses_writes);
        self.read_repairs_total += counters.repairs;
        self.vnode_gets_total += counters.gets + counters.replica_reads;
        self.vnode_puts_total += counters.puts + counters.replica_writes;
        self.vnode_deletes_total += counters.deletes;
        self.requests_under_way += thread.shard.work;
        self.coord_redirs_total += counters.forwards;
        self.graves += thread.shard.graves;
        self.version_times_ahead += thread.shard.times_ahead;
        self.trees_due += thread.shard.trees_due;
        self.tree_bytes += thread.shard.tree_bytes;
        self.tree_keys += thread.shard.tree_keys;
        self.journal_records += store.journal.records;
        self.journal_groups += store.journal.groups;
        self.journal_syncs += store.journal.syncs;
        self.journal_bytes += store.journal.bytes;
        self.journal_segments += store.segments;
        self.memtable_bytes += store.memtable_bytes;
        self.tables += store.tables;
        self.block_cache_hits += store.cache.0;
        self.block_cache_misses += store.cache.1;
        self.lookups_parked += store.lookups_parked;
        for (level, found) in store.counters.found_in_level.iter().enumerate() {
            *self.lookups_found.entry(format!("lookups_found_level_{level}")).or_insert(0) += found;
        }
        self.writes_held += thread.shard.writes_held;
        self.writes_paced_ms_total += u64::try_from(thread.shard.paced.as_millis()).unwrap_or(u64::MAX);
        self.engine.add(&store);
        self.disk_reads_with_data += disk.reads_with_data();
        self.disk_tries_full += disk.tries_full;
        self.disk_tries_short += disk.tries_short;
        self.disk_tries_empty += disk.tries_empty;
        self.disk_reads += disk.reads;
        self.disk_read_bytes += disk.try_bytes + disk.read_bytes;
        self.disk_writes += disk.writes;
        self.disk_write_bytes += disk.write_bytes;
        self.disk_syncs += disk.syncs;
        self.disk_files_reopened += disk.reopened;
    }
}

impl Stats {
    /// Where the node stands, for operators.
    pub fn status(&self) -> serde_json::Value {
        serde_json::json!({
            "node": self.nodename,
            "version": self.annulet_version,
            "shards": self.shards,
            "ring_size": self.ring_num_partitions,
            "connections": self.connections,
            "requests_under_way": self.requests_under_way,
            "members": self.ring_members.len(),
            "members_up": self.peers_up + 1,
        })
    }

    /// The histograms of the table of figures.
    pub(crate) fn histograms(&self) -> Vec<Histogram> {
        let times = &self.times;
        let requests: [(Labels, Distribution); 6] = [
            (&[("level", "eventual"), ("op", "get")], of_requests(&times.gets.all)),
            (&[("level", "eventual"), ("op", "put")], of_requests(&times.puts.all)),
            (&[("level", "eventual"), ("op", "delete")], of_requests(&times.deletes)),
            (&[("level", "eventual"), ("op", "index")], of_requests(&times.indexes)),
            (&[("level", "consistent"), ("op", "get")], of_consistent(&times.consistent_gets)),
            (&[("level", "consistent"), ("op", "put")], of_consistent(&times.consistent_puts)),
        ];
        let family = "annulet_request_seconds";
        let requests = requests.into_iter().map(|(labels, times)| Histogram { family, labels, times });
        let stores = self.engine.distributions().into_iter();
        let stores = stores.map(|(family, times)| Histogram { family, labels: &[], times });
        requests.chain(stores).collect()
    }
}

/// Riak's names of the times of gets and puts, of its coordinators, which it has as finite state machines.
const GETS: [&str; 7] = [
    "node_gets",
    "node_gets_total",
    "node_get_fsm_time_mean",
    "node_get_fsm_time_median",
    "node_get_fsm_time_95",
    "node_get_fsm_time_99",
    "node_get_fsm_time_100",
];
const PUTS: [&str; 7] = [
    "node_puts",
    "node_puts_total",
    "node_put_fsm_time_mean",
    "node_put_fsm_time_median",
    "node_put_fsm_time_95",
    "node_put_fsm_time_99",
    "node_put_fsm_time_100",
];

fn fsms<S: Serializer>(times: &LatencyRead, serializer: S) -> Result<S::Ok, S::Error> {
    let (gets, puts) = (fsm(&times.gets), fsm(&times.puts));
    serializer.collect_map(GETS.into_iter().zip(gets).chain(PUTS.into_iter().zip(puts)))
}

/// The values, in the order of the names.
fn fsm(times: &TimesRead) -> [u64; 7] {
    let minute = &times.minute;
    let [median, p95, p99] = [50, 95, 99].map(|percent| minute.percentile(percent));
    [minute.count(), times.all.count(), minute.mean(), median, p95, p99, minute.max()]
}

fn shown<S: Serializer>(counters: &ShardCounters, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counters.shown())
}

fn options<S: Serializer>(options: &BTreeMap<String, String>, serializer: S) -> Result<S::Ok, S::Error> {
    options.serialize(serializer)
}
