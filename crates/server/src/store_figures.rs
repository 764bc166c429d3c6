//! What `/stats` says of the engine: sums over the stores of all shards.
//!
//! Counters count since the start, or since the store was opened, which is the same. Ratios are of the sums.

use crate::metrics::of_disk;
use engine::store::{Amplification, StoreCounters, StoreStats, Times};
use figures::Distribution;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Figures of all stores together.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct StoreFigures {
    /// How much of the nearest limit the fullest store uses, in thousandths; writes are slowed from 500 on, and refused
    /// at 1000.
    store_pressure: u64,
    merge_debt_bytes: u64,
    table_bytes: u64,
    table_memory_bytes: usize,
    journal_records_bytes: u64,
    journal_dead_bytes: u64,
    segment_memory_bytes: usize,
    segments_held: usize,
    segments_aside: usize,
    values_compressed: u64,
    values_compressed_bytes_before: u64,
    values_compressed_bytes_after: u64,
    write_amplification: f64,
    read_amplification: f64,
    space_amplification: f64,
    /// The counters of the stores, in the order of their declaration.
    #[serde(flatten, serialize_with = "pairs")]
    counters: Vec<(&'static str, u64)>,
    /// Entries, tables and bytes of each level that has any.
    #[serde(flatten)]
    levels: BTreeMap<String, u64>,
    #[serde(skip)]
    sums: Sums,
}

/// What ratios and histograms are made of.
#[derive(Clone, Debug, Default)]
struct Sums {
    amplification: Amplification,
    syncs: Times,
    writes: Times,
    reads: Times,
}

impl StoreFigures {
    /// Figures of no store.
    pub fn of_none() -> StoreFigures {
        StoreFigures { counters: StoreCounters::default().shown().collect(), ..StoreFigures::default() }
    }

    /// Adds what another store says.
    pub fn add(&mut self, store: &StoreStats) {
        let counters = &store.counters;
        for ((_, sum), (_, count)) in self.counters.iter_mut().zip(counters.shown()) {
            *sum += count;
        }
        self.store_pressure = self.store_pressure.max(store.pressure);
        self.merge_debt_bytes += store.merge_debt_bytes;
        self.table_memory_bytes += store.table_memory_bytes;
        self.journal_records_bytes += store.journal_bytes;
        self.journal_dead_bytes += store.journal_dead_bytes;
        self.segment_memory_bytes += store.segment_memory_bytes;
        self.segments_held += store.segments_held;
        self.segments_aside += store.segments_aside;
        self.values_compressed += counters.compressed.values;
        self.values_compressed_bytes_before += counters.compressed.bytes_before;
        self.values_compressed_bytes_after += counters.compressed.bytes_after;
        for (at, level) in store.levels.iter().enumerate().filter(|(_, level)| level.tables > 0) {
            self.table_bytes += level.bytes;
            for (what, figure) in
                [("entries", level.entries), ("tables", level.tables as u64), ("bytes", level.bytes)]
            {
                *self.levels.entry(format!("level_{at}_{what}")).or_insert(0) += figure;
            }
        }
        self.sums.syncs.join(&store.sync_times);
        self.sums.writes.join(&store.write_times);
        self.sums.reads.join(&store.read_times);
        let amplification = &mut self.sums.amplification;
        amplification.join(&store.amplification());
        self.write_amplification = amplification.of_writes();
        self.read_amplification = amplification.of_reads();
        self.space_amplification = amplification.of_space();
    }

    /// The histograms, by the families of the table of figures.
    pub fn distributions(&self) -> [(&'static str, Distribution); 3] {
        let Sums { syncs, writes, reads, .. } = &self.sums;
        [
            ("annulet_journal_sync_seconds", of_disk(syncs)),
            ("annulet_journal_write_seconds", of_disk(writes)),
            ("annulet_lookup_wait_seconds", of_disk(reads)),
        ]
    }
}

fn pairs<S: Serializer>(counters: &[(&'static str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counters.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_sums_and_ratios_are_of_the_sums() {
        let mut store = StoreStats::default();
        store.counters.user_bytes = 100;
        store.journal.bytes = 150;
        store.counters.flush_bytes = 50;
        store.pressure = 7;
        store.levels[2].tables = 3;
        store.levels[2].bytes = 60;
        let mut figures = StoreFigures::of_none();
        figures.add(&store);
        store.counters.user_bytes = 300;
        store.pressure = 5;
        figures.add(&store);
        assert!(figures.counters.contains(&("user_bytes", 400)), "{:?}", figures.counters);
        assert_eq!((figures.store_pressure, figures.table_bytes), (7, 120));
        assert!((figures.write_amplification - 1.0).abs() < 1e-9, "{}", figures.write_amplification);
        assert_eq!(figures.levels["level_2_tables"], 6);
        let [(family, syncs), ..] = figures.distributions();
        assert_eq!((family, syncs.count, syncs.buckets.len()), ("annulet_journal_sync_seconds", 0, 12));
    }
}
