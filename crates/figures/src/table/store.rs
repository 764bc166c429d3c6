//! Figures of the stores: journal, tables, lookups, compaction, scrub and disk.

use crate::figure::{Figure, Kind, Scope, Unit};

/// The rows.
pub(super) const STORE: &[Figure] = rows! {
    Gauge "stores_refusing_writes" "annulet_stores_refusing_writes" Count:
        "stores that take no writes: the disk is full, or a write failed";
    Gauge "store_pressure" "annulet_store_pressure_ratio" Thousandths:
        "part of the nearest limit that the fullest store uses; writes are slowed from a half on and refused at one; \
         want of disk space is not in it";
    Gauge "writes_held" "annulet_writes_held" Count: "writes that wait because a store is near a limit";
    Counter "writes_paced_ms_total" "annulet_writes_paced_seconds" Milliseconds: "time that writes were told to wait";
    Counter "user_bytes" "annulet_user_bytes" Bytes: "keys and values that were written";
    Counter "journal_records" "annulet_journal_records" Count: "records written to the journal";
    Counter "journal_groups" "annulet_journal_groups" Count: "groups of records, each one write";
    Counter "journal_syncs" "annulet_journal_syncs" Count: "syncs of the journal";
    Counter "journal_bytes" "annulet_journal_written_bytes" Bytes: "bytes written to the journal";
    Gauge "journal_segments" "annulet_journal_segments" Count: "files of the journal";
    Gauge "journal_records_bytes" "annulet_journal_bytes" Bytes: "bytes of records in the files of the journal";
    Gauge "journal_dead_bytes" "annulet_journal_dead_bytes" Bytes: "bytes of them that are of no use any more";
    Counter "journal_reads_wanted" "annulet_journal_reads" Count: "values that had to be read from the journal";
    Histogram "" "annulet_journal_sync_seconds" Seconds: "time of a group of the journal that was written and synced";
    Histogram "" "annulet_journal_write_seconds" Seconds: "time of a group of the journal that was only written";
    Histogram "" "annulet_lookup_wait_seconds" Seconds: "time that a lookup waited for the disk";
    Gauge "memtable_bytes" "annulet_memtable_bytes" Bytes: "bytes in memtables";
    Counter "memtable_flushes" "annulet_memtable_flushes" Count: "memtables written out";
    Counter "flush_bytes" "annulet_flush_bytes" Bytes: "bytes of tables that flushes wrote";
    Counter "table_merges" "annulet_table_merges" Count: "merges of tables";
    Counter "merge_bytes_read" "annulet_merge_bytes" Bytes ["op" = "read"]: "bytes of tables that merges moved";
    Counter "merge_bytes_written" "annulet_merge_bytes" Bytes ["op" = "write"]: "bytes of tables that merges moved";
    Counter "tables_cut" "annulet_tables_cut" Count: "tables removed whole, as all in them was dropped or had ended";
    Gauge "merge_debt_bytes" "annulet_merge_debt_bytes" Bytes: "bytes in levels that are over their size";
    Gauge "tables" "annulet_tables" Count: "tables";
    Gauge "table_bytes" "annulet_table_bytes" Bytes: "bytes of tables";
    Gauge "table_memory_bytes" "annulet_table_memory_bytes" Bytes: "bytes of tables that are in memory at all times";
    Gauge "level_N_entries" "annulet_level_entries" Count for Level: "entries of a level of the ledger";
    Gauge "level_N_tables" "annulet_level_tables" Count for Level: "tables of a level of the ledger";
    Gauge "level_N_bytes" "annulet_level_bytes" Bytes for Level: "bytes of a level of the ledger";
    Counter "manifests_written" "annulet_manifests_written" Count: "manifests written";
    Counter "block_cache_hits" "annulet_block_cache_lookups" Count ["result" = "hit"]:
        "blocks of tables looked up in the cache";
    Counter "block_cache_misses" "annulet_block_cache_lookups" Count ["result" = "miss"]:
        "blocks of tables looked up in the cache";
    Counter "lookups_found_memtable" "annulet_lookups" Count ["result" = "memtable"]:
        "lookups that ended in a memtable or nowhere";
    Counter "lookups_missing" "annulet_lookups" Count ["result" = "missing"]:
        "lookups that ended in a memtable or nowhere";
    Counter "lookups_found_level_N" "annulet_lookups_found" Count for Level:
        "lookups that ended in a level of the ledger";
    Gauge "lookups_parked" "annulet_lookups_waiting" Count: "lookups that wait for the disk";
    Counter "filter_refusals" "annulet_filter_refusals" Count: "tables that a filter spared a lookup";
    Counter "filter_false_positives" "annulet_filter_false_positives" Count:
        "tables that a filter did not spare a lookup in vain";
    Gauge "segment_memory_bytes" "annulet_segment_memory_bytes" Bytes: "memory of segments of the journal";
    Gauge "segments_held" "annulet_segments_held" Count: "compacted segments that a snapshot holds";
    Gauge "segments_aside" "annulet_segments_aside" Count: "compacted segments that are kept for a time";
    Counter "compactions" "annulet_compactions" Count: "compactions of the journal";
    Counter "compaction_bytes_read" "annulet_compaction_bytes" Bytes ["op" = "read"]: "bytes that compactions moved";
    Counter "compaction_bytes_written" "annulet_compaction_bytes" Bytes ["op" = "write"]:
        "bytes that compactions moved";
    Counter "values_quarantined" "annulet_values_quarantined" Count: "damaged values that compactions came upon";
    Counter "segments_quarantined" "annulet_segments_quarantined" Count: "damaged segments that compactions came upon";
    Counter "scrub_passes" "annulet_scrub_passes" Count:
        "passes of the scrub, which reads all stored data again within `--scrub-period`";
    Counter "scrub_bytes" "annulet_scrub_bytes" Bytes: "bytes that the scrub read";
    Counter "scrub_damage" "annulet_scrub_damage" Count: "damaged places that the scrub came upon";
    Counter "values_compressed" "annulet_values_compressed" Count: "values that were compressed";
    Counter "values_compressed_bytes_before" "annulet_compression_input_bytes" Bytes: "bytes of them before";
    Counter "values_compressed_bytes_after" "annulet_compression_output_bytes" Bytes: "bytes of them after";
    Gauge "write_amplification" "annulet_write_amplification_ratio" Ratio: "bytes written for each byte of users'";
    Gauge "read_amplification" "annulet_read_amplification_ratio" Ratio: "blocks and records read for each key found";
    Gauge "space_amplification" "annulet_space_amplification_ratio" Ratio: "bytes kept for each byte of use";
    Counter "disk_reads" "annulet_disk_operations" Count ["op" = "read"]: "operations of the disk";
    Counter "disk_writes" "annulet_disk_operations" Count ["op" = "write"]: "operations of the disk";
    Counter "disk_syncs" "annulet_disk_operations" Count ["op" = "sync"]: "operations of the disk";
    Counter "disk_read_bytes" "annulet_disk_bytes" Bytes ["op" = "read"]: "bytes read from the disk and written to it";
    Counter "disk_write_bytes" "annulet_disk_bytes" Bytes ["op" = "write"]:
        "bytes read from the disk and written to it";
    Counter "disk_reads_with_data" "annulet_disk_reads_with_data" Count: "reads that brought something";
    Counter "disk_tries_full" "annulet_disk_tries" Count ["result" = "full"]:
        "reads tried without waiting, by their result";
    Counter "disk_tries_short" "annulet_disk_tries" Count ["result" = "short"]:
        "reads tried without waiting, by their result";
    Counter "disk_tries_empty" "annulet_disk_tries" Count ["result" = "empty"]:
        "reads tried without waiting, by their result";
    Counter "disk_files_reopened" "annulet_disk_files_reopened" Count:
        "files opened again, since a process may have only so many handles; if it grows as fast as reads, raise that \
         limit (`ulimit -n`)";
};
