//! What `/stats` says.

use crate::peer::PeerFigures;
use node::ShardStats;
use node::riak::RIAK_VERSION;
use os::DiskFigures;
use serde::Serialize;
use std::collections::BTreeMap;

/// What one shard's thread has to say.
#[derive(Clone, Debug)]
pub struct ThreadStats {
    /// Its shard.
    pub shard: ShardStats,
    /// Its disk.
    pub disk: DiskFigures,
    /// Its links, by node; none if the node is alone.
    pub peers: Vec<PeerFigures>,
}

/// Sums over all shards, since the start. Names are Riak's where Riak has the same thing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stats {
    nodename: String,
    /// What clients choose their features by.
    riak_kv_version: &'static str,
    annulet_version: String,
    ring_num_partitions: u32,
    shards: usize,
    connections: usize,
    vnode_gets_total: u64,
    vnode_puts_total: u64,
    vnode_deletes_total: u64,
    hops_total: u64,
    errors_total: u64,
    refused_total: u64,
    requests_under_way: usize,
    /// Other nodes that every shard can reach.
    peers_up: usize,
    forwards: u64,
    replica_reads: u64,
    replica_writes: u64,
    repairs: u64,
    repairs_failed: u64,
    hints: u64,
    hints_home: u64,
    hints_lost: u64,
    handoffs: u64,
    bounced: u64,
    reaps_proposed: u64,
    reaps_dropped: u64,
    reaps_refused: u64,
    reaps: u64,
    graves: usize,
    journal_records: u64,
    journal_groups: u64,
    journal_syncs: u64,
    journal_bytes: u64,
    journal_segments: usize,
    journal_reads_wanted: u64,
    memtable_bytes: usize,
    memtable_flushes: u64,
    table_merges: u64,
    tables: usize,
    block_cache_hits: u64,
    block_cache_misses: u64,
    lookups_parked: usize,
    lookups_found_memtable: u64,
    /// `lookups_found_level_0` and so on.
    #[serde(flatten)]
    lookups_found: BTreeMap<String, u64>,
    disk_reads_with_data: u64,
    disk_tries_full: u64,
    disk_tries_short: u64,
    disk_tries_empty: u64,
    disk_reads: u64,
    disk_read_bytes: u64,
    disk_writes: u64,
    disk_write_bytes: u64,
    disk_syncs: u64,
    /// Connections to the peers' port that did not prove to be of a node of this cluster.
    peer_strangers_refused: u64,
    #[serde(flatten)]
    links: PeerFigures,
    /// By the other nodes' names.
    peers: BTreeMap<String, PeerFigures>,
}

impl Stats {
    /// The sums over `threads`.
    pub fn of(
        nodename: &str,
        version: &str,
        ring_num_partitions: u32,
        connections: usize,
        threads: &[ThreadStats],
    ) -> Stats {
        let mut stats = Stats {
            nodename: nodename.to_owned(),
            riak_kv_version: RIAK_VERSION,
            annulet_version: version.to_owned(),
            ring_num_partitions,
            shards: threads.len(),
            connections,
            ..Stats::default()
        };
        threads.iter().for_each(|thread| stats.add(thread));
        stats.peers_up = threads.iter().map(|thread| thread.shard.peers_up).min().unwrap_or(0);
        stats
    }

    /// With what is known of the other nodes, whose names are `members`.
    pub fn with_peers<'a>(
        mut self,
        members: impl Iterator<Item = &'a str>,
        threads: &[ThreadStats],
        refused: u64,
    ) -> Stats {
        self.peer_strangers_refused = refused;
        for (at, name) in members.enumerate().filter(|(_, name)| *name != self.nodename) {
            let mut sum = PeerFigures::default();
            threads.iter().filter_map(|thread| thread.peers.get(at)).for_each(|figures| sum += *figures);
            self.links += sum;
            self.peers.insert(name.to_owned(), sum);
        }
        self
    }

    fn add(&mut self, thread: &ThreadStats) {
        let (counters, store, disk) = (thread.shard.counters, thread.shard.store, thread.disk);
        self.vnode_gets_total += counters.gets;
        self.vnode_puts_total += counters.puts;
        self.vnode_deletes_total += counters.deletes;
        self.hops_total += counters.hops;
        self.errors_total += counters.errors;
        self.refused_total += counters.refused;
        self.requests_under_way += thread.shard.work;
        self.forwards += counters.forwards;
        self.replica_reads += counters.replica_reads;
        self.replica_writes += counters.replica_writes;
        self.repairs += counters.repairs;
        self.repairs_failed += counters.repairs_failed;
        self.hints += counters.hints;
        self.hints_home += counters.hints_home;
        self.hints_lost += counters.hints_lost;
        self.handoffs += counters.handoffs;
        self.bounced += counters.bounced;
        self.reaps_proposed += counters.reaps_proposed;
        self.reaps_dropped += counters.reaps_dropped;
        self.reaps_refused += counters.reaps_refused;
        self.reaps += counters.reaps;
        self.graves += thread.shard.graves;
        self.journal_records += store.journal.records;
        self.journal_groups += store.journal.groups;
        self.journal_syncs += store.journal.syncs;
        self.journal_bytes += store.journal.bytes;
        self.journal_segments += store.segments;
        self.journal_reads_wanted += store.counters.journal_reads_wanted;
        self.memtable_bytes += store.memtable_bytes;
        self.memtable_flushes += store.counters.flushes;
        self.table_merges += store.counters.merges;
        self.tables += store.tables;
        self.block_cache_hits += store.cache.0;
        self.block_cache_misses += store.cache.1;
        self.lookups_parked += store.lookups_parked;
        self.lookups_found_memtable += store.counters.found_in_memtable;
        for (level, found) in store.counters.found_in_level.iter().enumerate() {
            *self.lookups_found.entry(format!("lookups_found_level_{level}")).or_insert(0) += found;
        }
        self.disk_reads_with_data += disk.reads_with_data();
        self.disk_tries_full += disk.tries_full;
        self.disk_tries_short += disk.tries_short;
        self.disk_tries_empty += disk.tries_empty;
        self.disk_reads += disk.reads;
        self.disk_read_bytes += disk.try_bytes + disk.read_bytes;
        self.disk_writes += disk.writes;
        self.disk_write_bytes += disk.write_bytes;
        self.disk_syncs += disk.syncs;
    }
}
