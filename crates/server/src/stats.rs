//! What `/stats` says.

use crate::connects::ConnectsRead;
use crate::membership::Reach;
use crate::memory::{MemoryBudgets, MemoryFigures};
use crate::metrics::put;
use crate::peer::PeerFigures;
use crate::purge::PurgeFigures;
use crate::store_figures::StoreFigures;
use crate::system::SystemFigures;
use node::riak::RIAK_VERSION;
use node::shard::ShardCounters;
use node::store::founding::Founding;
use node::{Histogram, ShardStats, TimesRead};
use os::DiskFigures;
use ring::NodeId;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// What one shard's thread has to say.
#[derive(Clone, Debug)]
pub struct ThreadStats {
    /// Its shard.
    pub shard: ShardStats,
    /// How long clients' gets and puts take.
    pub times: (TimesRead, TimesRead),
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
    annulet_version: String,
    ring_num_partitions: u32,
    shards: usize,
    connections: usize,
    #[serde(flatten)]
    connects: ConnectsRead,
    /// Coordinated here, in the last minute and since the start; times in microseconds.
    #[serde(flatten, serialize_with = "gets")]
    node_gets: TimesRead,
    #[serde(flatten, serialize_with = "puts")]
    node_puts: TimesRead,
    read_repairs_total: u64,
    /// Requests that another node was asked to coordinate.
    coord_redirs_total: u64,
    /// Those of replicas too.
    vnode_gets_total: u64,
    vnode_puts_total: u64,
    vnode_deletes_total: u64,
    /// The counters of the shards.
    #[serde(flatten)]
    counters: BTreeMap<&'static str, u64>,
    requests_under_way: usize,
    /// Other nodes that every shard can reach.
    peers_up: usize,
    #[serde(flatten)]
    reach: ReachFigures,
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
    options: BTreeMap<String, String>,
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
            annulet_version: version.to_owned(),
            shards: threads.len(),
            connections,
            counters: ShardCounters::default().shown().collect(),
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

    /// With what purges have come to.
    pub fn with_purges(self, purges: PurgeFigures) -> Stats {
        Stats { purges, ..self }
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
    pub fn with_options(self, options: &BTreeMap<String, String>) -> Stats {
        Stats { options: options.clone(), ..self }
    }

    fn add(&mut self, thread: &ThreadStats) {
        self.connects += thread.connects;
        let (counters, store, disk) = (thread.shard.counters, thread.shard.store, thread.disk);
        for (name, count) in counters.shown() {
            *self.counters.entry(name).or_default() += count;
        }
        self.node_gets.join(&thread.times.0);
        self.node_puts.join(&thread.times.1);
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

    /// Appends the engine's histograms.
    pub(crate) fn put_engine_histograms(&self, out: &mut String) {
        self.engine.put_histograms(out);
    }

    /// The times since the start, by the name of what takes them.
    pub(crate) fn times(&self) -> impl Iterator<Item = (&'static str, HistogramOf<'_>)> {
        let all = [("node_get_seconds", &self.node_gets), ("node_put_seconds", &self.node_puts)];
        all.into_iter().map(|(name, times)| (name, HistogramOf(&times.all)))
    }
}

/// A histogram to be written for Prometheus.
pub(crate) struct HistogramOf<'a>(&'a Histogram);

impl HistogramOf<'_> {
    /// Buckets end at powers of two of a microsecond, from 64 us to 67 s.
    pub(crate) fn put_histogram(&self, name: &str, out: &mut String) {
        put(out, format_args!("# HELP annulet_{name} Time from the beginning of a request to its answer.\n"));
        put(out, format_args!("# TYPE annulet_{name} histogram\n"));
        for doublings in (6..=26).step_by(2) {
            let (seconds, count) = (f64::from(1u32 << doublings) / 1e6, self.0.count_within(doublings));
            put(out, format_args!("annulet_{name}_bucket{{le=\"{seconds}\"}} {count}\n"));
        }
        let (count, seconds) = (self.0.count(), self.0.sum() as f64 / 1e6);
        put(out, format_args!("annulet_{name}_bucket{{le=\"+Inf\"}} {count}\n"));
        put(out, format_args!("annulet_{name}_sum {seconds}\nannulet_{name}_count {count}\n"));
    }
}

fn gets<S: Serializer>(times: &TimesRead, serializer: S) -> Result<S::Ok, S::Error> {
    fsm("node_get", times).serialize(serializer)
}

fn puts<S: Serializer>(times: &TimesRead, serializer: S) -> Result<S::Ok, S::Error> {
    fsm("node_put", times).serialize(serializer)
}

/// Riak's names: of its coordinators, which it has as finite state machines.
fn fsm(name: &str, times: &TimesRead) -> BTreeMap<String, u64> {
    let minute = &times.minute;
    let mut all = BTreeMap::from([
        (format!("{name}s"), minute.count()),
        (format!("{name}s_total"), times.all.count()),
        (format!("{name}_fsm_time_mean"), minute.mean()),
        (format!("{name}_fsm_time_median"), minute.percentile(50)),
        (format!("{name}_fsm_time_100"), minute.max()),
    ]);
    for percent in [95, 99] {
        all.insert(format!("{name}_fsm_time_{percent}"), minute.percentile(percent));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(names: [&str; 2]) -> impl Iterator<Item = (NodeId, &str)> {
        (0..).map(NodeId).zip(names)
    }

    #[test]
    fn names_are_riaks() {
        let stats = Stats::of("n@h", "1", 64, 3, &[]).with_peers(peers(["m@h", "n@h"]), &[], 0);
        let json = serde_json::to_value(&stats).unwrap();
        for name in [
            "nodename",
            "riak_kv_version",
            "riak_core_version",
            "storage_backend",
            "storage_type_backends",
            "ring_members",
            "ring_num_partitions",
            "node_gets",
            "node_gets_total",
            "node_puts",
            "node_puts_total",
            "node_get_fsm_time_mean",
            "node_get_fsm_time_median",
            "node_put_fsm_time_95",
            "node_put_fsm_time_99",
            "node_put_fsm_time_100",
            "vnode_gets_total",
            "read_repairs_total",
            "memory_total",
            "mem_total",
            "mem_allocated",
            "cpu_avg1",
            "cpu_nprocs",
            "sys_logical_processors",
            "pbc_active",
            "pbc_connects",
            "pbc_connects_total",
            "connected_nodes",
            "coord_redirs_total",
        ] {
            assert!(json.get(name).is_some(), "{name}");
        }
    }

    #[test]
    fn the_page_has_every_name_with_its_kind() {
        let page = include_str!("../../../docs/statistics.md");
        let described = |name: &str| page.lines().any(|line| line.contains(&format!("`{name}`")));
        let stats = Stats::of("n@h", "1", 64, 3, &[]).with_peers(peers(["m@h", "n@h"]), &[], 0);
        let serde_json::Value::Object(all) = serde_json::to_value(&stats).unwrap() else { panic!() };
        let numbered = |name: &str| name.starts_with("level_") || name.starts_with("lookups_found_level_");
        for name in all.keys().filter(|name| !numbered(name)) {
            assert!(described(name), "docs/statistics.md lacks {name}");
        }
        let text = stats.metrics().unwrap();
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE annulet_")) {
            let (name, kind) = line.split_once(' ').unwrap();
            assert!(kind != "histogram" || described(name), "docs/statistics.md lacks {name}");
        }
        // And none that is not there.
        let words =
            page.split('`').skip(1).step_by(2).filter(|word| word.contains('_') && !word.contains('N'));
        for word in words.filter(|word| !word.starts_with("annulet_") || *word == "annulet_version") {
            assert!(
                all.contains_key(word) || text.contains(&format!("annulet_{word} ")),
                "{word} is not served"
            );
        }
    }

    #[test]
    fn metrics_have_a_type_each_and_no_line_out_of_place() {
        let stats = Stats::of("n\"@h", "1", 64, 3, &[]).with_peers(peers(["m@h", "n\"@h"]), &[], 0);
        let text = stats.metrics().unwrap();
        assert!(text.contains("\nannulet_connections 3\n"), "{text}");
        assert!(text.contains("nodename=\"n\\\"@h\""), "{text}");
        assert!(text.contains("annulet_node_get_seconds_bucket{le=\"+Inf\"} 0\n"), "{text}");
        assert!(text.contains("# TYPE annulet_write_amplification gauge\n"), "{text}");
        let mut typed = std::collections::BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert!(typed.insert(rest.split(' ').next().unwrap()), "{line} comes twice");
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap();
                let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
                assert!(typed.contains(name) || base.is_some_and(|base| typed.contains(base)), "{line}");
                assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
            }
        }
    }
}
