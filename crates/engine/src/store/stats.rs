//! What a store has done and what it holds, for operators.
//!
//! Counters only grow, from the moment of opening; everything else is as of now.

use super::{JournalCounters, Store, Times};
use crate::compaction::Account;
use crate::manifest::{LEVELS, Version};
use crate::merge::MergeStats;
use std::time::Duration;

base::counters! {
    /// Counters of the store, since it was opened.
    pub struct StoreCounters {
        /// Bytes of the keys, heads and values of all writes, as they were given.
        user_bytes,
        /// Values that had to be read from the journal.
        journal_reads_wanted,
        /// Lookups whose key was found in a memtable.
        found_in_memtable => "lookups_found_memtable",
        /// Lookups of keys that are nowhere.
        missing => "lookups_missing",
        /// Tables that lookups passed by, because their filter said that the key is not there.
        filtered => "filter_refusals",
        /// Tables whose filter let a key pass that the table does not have.
        false_positives => "filter_false_positives",
        /// Memtables flushed to tables.
        flushes => "memtable_flushes",
        /// Bytes of the tables that flushes wrote.
        flush_bytes,
        /// Checkpoints of the state that the owner keeps beside the ledger.
        checkpoints => hidden,
        /// Bytes written for them.
        checkpoint_bytes => "tree_bytes_written",
        /// Merges of tables.
        merges => "table_merges",
        /// Bytes of the tables that merges read.
        merge_bytes_read,
        /// Bytes of the tables that merges wrote.
        merge_bytes_written,
        /// Tables removed whole because everything in them was dropped or had ended.
        tables_cut,
        /// Times that the manifest was written.
        manifests => "manifests_written",
        /// Compactions of the journal that made a change.
        compactions,
        /// Bytes that compactions have read.
        compaction_bytes_read,
        /// Bytes that compactions have written.
        compaction_bytes_written,
        /// Values that did not pass their checks when compaction moved them. They are answered by an error.
        values_quarantined,
        /// Segments that compaction leaves as they are, since a record is lost in them with its key.
        segments_quarantined,
        /// Passes of the scrub that came to their end.
        scrub_passes,
        /// Bytes that the scrub has read.
        scrub_bytes,
        /// Damaged places that the scrub has come upon; those of an earlier pass count again.
        scrub_damage,
        /// Entries of consistent groups' logs that were written.
        proposals => hidden,
        /// Entries that were applied.
        proposals_applied => hidden,
        /// Entries that were written again, as they kept segments from compaction.
        proposals_again => hidden,
        ;
        /// Lookups whose key was found in a table, by its level.
        pub found_in_level: [u64; LEVELS],
        /// Values that were compressed.
        pub compressed: CompressionCounters,
    }
}

/// Values that were compressed, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionCounters {
    /// How many, by writes and by compactions.
    pub values: u64,
    /// Their bytes.
    pub bytes_before: u64,
    /// The bytes that are stored for them.
    pub bytes_after: u64,
}

impl CompressionCounters {
    pub(crate) fn count(&mut self, before: usize, after: usize) {
        self.values += 1;
        self.bytes_before += before as u64;
        self.bytes_after += after as u64;
    }

    pub(crate) fn add(&mut self, other: &CompressionCounters) {
        self.values += other.values;
        self.bytes_before += other.bytes_before;
        self.bytes_after += other.bytes_after;
    }
}

impl StoreCounters {
    pub(super) fn count_flush(&mut self, done: &MergeStats) {
        self.flushes += 1;
        self.flush_bytes += done.bytes_written;
    }

    pub(super) fn count_merge(&mut self, bytes_read: u64, done: &MergeStats) {
        self.merges += 1;
        self.merge_bytes_read += bytes_read;
        self.merge_bytes_written += done.bytes_written;
    }
}

/// How long groups of the journal took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupTimes {
    synced: Times,
    written: Times,
}

impl GroupTimes {
    pub(super) fn count(&mut self, synced: bool, took: std::time::Duration) {
        if synced { self.synced.count(took) } else { self.written.count(took) }
    }
}

/// What a store is doing, for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Its counters.
    pub counters: StoreCounters,
    /// How long groups took that were written and synced, as the owner saw it: from the turn that handed a group over
    /// to the turn that found it done.
    pub sync_times: Times,
    /// The same of groups that were only written.
    pub write_times: Times,
    /// How long lookups waited for the disk that could not be answered at once.
    pub read_times: Times,
    /// How much of the limit that is nearest is used, in thousandths ([`Store::pressure`]).
    pub pressure: u64,
    /// Bytes in levels that are over their size: what merges are behind by.
    pub merge_debt_bytes: u64,
    /// The journal's counters.
    pub journal: JournalCounters,
    /// Bytes of entries in all memtables.
    pub memtable_bytes: usize,
    /// Tables in all levels.
    pub tables: usize,
    /// The levels of tables, from the one that flushes fill.
    pub levels: [LevelStats; LEVELS],
    /// Bytes of memory that the tables' filters and indexes take.
    pub table_memory_bytes: usize,
    /// Segments of the journal.
    pub segments: usize,
    /// Bytes of all records in the journal.
    pub journal_bytes: u64,
    /// Of these, bytes of values whose version the ledger has no more.
    pub journal_dead_bytes: u64,
    /// Bytes of memory that the indexes of compacted segments take.
    pub segment_memory_bytes: usize,
    /// Segments that nobody needs but those who hold an older snapshot: their files wait.
    pub segments_held: usize,
    /// How long the first of them has waited: so old is the oldest holder, at least.
    pub segments_held_for: Duration,
    /// Compacted segments that are kept aside ([`Options::waste_retention`](super::Options::waste_retention)), as of
    /// the last look.
    pub segments_aside: usize,
    /// Blocks found in the cache, and not found.
    pub cache: (u64, u64),
    /// Lookups that wait for the disk.
    pub lookups_parked: usize,
}

impl StoreStats {
    /// How much more is written, read and kept than users asked for.
    pub fn amplification(&self) -> Amplification {
        let counters = &self.counters;
        let tables = counters.flush_bytes + counters.merge_bytes_written;
        let in_tables: u64 = counters.found_in_level.iter().sum();
        Amplification {
            user_bytes: counters.user_bytes,
            written_bytes: self.journal.bytes + tables + counters.compaction_bytes_written,
            found: in_tables + counters.found_in_memtable,
            reads: in_tables + counters.false_positives + counters.journal_reads_wanted,
            records_bytes: self.journal_bytes,
            used_bytes: self.journal_bytes.saturating_sub(self.journal_dead_bytes),
        }
    }
}

/// Amplification of writes, reads and space: sums, from which ratios are made, so that those of several stores add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amplification {
    /// Bytes of the keys, heads and values of all writes.
    pub user_bytes: u64,
    /// Bytes written to the journal and to tables, by compactions, too.
    pub written_bytes: u64,
    /// Lookups of keys that were there.
    pub found: u64,
    /// Blocks and records that lookups asked for, in memory or on the disk.
    pub reads: u64,
    /// Bytes of the journal's records.
    pub records_bytes: u64,
    /// Of these, bytes whose version the ledger has, as far as is counted: what waits to be merged is not yet known to
    /// be dead.
    pub used_bytes: u64,
}

impl Amplification {
    /// Adds that of another store.
    pub fn join(&mut self, other: &Amplification) {
        self.user_bytes += other.user_bytes;
        self.written_bytes += other.written_bytes;
        self.found += other.found;
        self.reads += other.reads;
        self.records_bytes += other.records_bytes;
        self.used_bytes += other.used_bytes;
    }

    /// Bytes written for each byte of users'; 0 before the first.
    pub fn of_writes(&self) -> f64 {
        ratio(self.written_bytes, self.user_bytes)
    }

    /// Reads for each lookup that found its key; 0 before the first.
    pub fn of_reads(&self) -> f64 {
        ratio(self.reads, self.found)
    }

    /// Bytes of the journal's records for each that is of use; 0 if none is.
    pub fn of_space(&self) -> f64 {
        ratio(self.records_bytes, self.used_bytes)
    }
}

/// Zero where there is nothing to compare with.
fn ratio(what: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { what as f64 / of as f64 }
}

/// One level of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// Its tables.
    pub tables: usize,
    /// The bytes of their files.
    pub bytes: u64,
    /// Their entries, deletions included.
    pub entries: u64,
    /// Of these, deletions.
    pub deletions: u64,
}

impl LevelStats {
    fn of(version: &Version, level: usize) -> LevelStats {
        let (entries, deletions) = version.level_entries(level);
        LevelStats {
            tables: version.level(level).len(),
            bytes: version.level_bytes(level),
            entries,
            deletions,
        }
    }
}

impl Store {
    /// What it is doing.
    pub fn stats(&self) -> StoreStats {
        let frozen: usize = self.frozen.iter().map(|frozen| frozen.reader.bytes()).sum();
        let held_since = self.maintenance.compaction.obsolete_since;
        let mut journal = Account::default();
        self.segments.iter().for_each(|segment| journal.add(&self.accounts.of(segment.id)));
        StoreStats {
            counters: self.counters,
            sync_times: self.group_times.synced,
            write_times: self.group_times.written,
            read_times: self.read_times,
            pressure: self.pressure(),
            merge_debt_bytes: self.version.merge_debt(&self.options.levels()),
            journal: self.writer.counters(),
            memtable_bytes: self.memtable.bytes() + frozen,
            tables: self.version.tables().count(),
            levels: std::array::from_fn(|level| LevelStats::of(&self.version, level)),
            table_memory_bytes: self.version.tables().map(|(_, table)| table.memory()).sum(),
            segments: self.segments.len(),
            journal_bytes: journal.bytes(),
            journal_dead_bytes: journal.dead_bytes,
            segment_memory_bytes: self
                .segments
                .iter()
                .filter_map(|s| s.index.as_ref())
                .map(|i| i.memory())
                .sum(),
            segments_held: self.maintenance.compaction.obsolete.len(),
            segments_held_for: held_since.map_or(Duration::ZERO, |since| self.clock.now().since(since)),
            segments_aside: self.maintenance.compaction.waste.map_or(0, |(kept, _)| kept),
            cache: self.cache.hits_and_misses(),
            lookups_parked: self.parked.len(),
        }
    }

    /// Whether nothing is under way or due: no write waits for the disk, no flush or merge is wanted.
    pub fn is_at_rest(&self) -> bool {
        self.writer.is_idle()
            && self.frozen.is_empty()
            && !self.maintenance_pending()
            && self.scans.is_empty()
            && self.parked.is_empty()
    }
}
