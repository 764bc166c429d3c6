//! What `/stats` says.

use node::ShardStats;
use node::riak::RIAK_VERSION;
use os::DiskFigures;
use serde::Serialize;

/// What one shard's thread has to say.
#[derive(Clone, Copy, Debug)]
pub struct ThreadStats {
    /// Its shard.
    pub shard: ShardStats,
    /// Its disk.
    pub disk: DiskFigures,
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
    disk_reads_with_data: u64,
    disk_tries_full: u64,
    disk_tries_short: u64,
    disk_tries_empty: u64,
    disk_reads: u64,
    disk_read_bytes: u64,
    disk_writes: u64,
    disk_write_bytes: u64,
    disk_syncs: u64,
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
        stats
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
