//! What a store can be told, with its defaults and their reasons.

pub use crate::journal::writer::Durability;
use crate::manifest::MergeOptions;
use std::collections::BTreeMap;
use std::time::Duration;

/// A run is cut into parts of at least this fraction of a table: a part is a file of its own until it is merged on.
const PARTS_OF_TABLE: u64 = 8;

/// Options of one store. A field's unit is in its name or its text.
#[derive(Clone, Debug)]
pub struct Options {
    /// When a write is acknowledged. Default: `Sync`.
    pub durability: Durability,
    /// Under [`Durability::Interval`]: how long a write may wait for its sync. Default: 1 s.
    pub sync_interval: Duration,
    /// Values up to this many bytes are kept in the ledger beside their head. Default: 256: about the size of a
    /// head, so that a table grows by at most a factor of two, and a GET saves its journal read.
    pub inline_value_bytes_max: usize,
    /// The memtable is flushed when its entries take this many bytes. Default: 16 MiB, some 100,000 objects: in a larger
    /// one an insert finds less of its way in the processor's caches (record 12).
    pub memtable_bytes_max: usize,
    /// A segment is ended when it would grow past this. Default: 128 MiB: its block of heads, kept in memory
    /// until then, stays around 15 MiB for values of 1 KiB.
    pub segment_bytes_target: u64,
    /// Bytes of table blocks kept in memory. Default: 64 MiB.
    pub block_cache_bytes: usize,
    /// Merged tables are about this large. Default: 16 MiB: a merge's unit of work, well below a second.
    pub table_bytes_target: u64,
    /// A level 0 of so many tables is merged into a run. Default: 8.
    pub level0_tables_max: usize,
    /// So many runs are merged into the first leveled level, 10 at most. Default: 4.
    pub runs_max: usize,
    /// The target size of the first leveled level; each deeper one is ten times larger. Default: 2 GiB, some eight times
    /// the runs that are merged into it.
    pub level1_bytes_target: u64,
    /// Whether only heads are kept: a value is refused. The ledger is then all there is, and the journal only its log:
    /// nothing in it is needed once it is flushed. Default: no.
    pub heads_only: bool,
    /// What a new store is to remember for its owner; an existing one has its own ([`crate::Store::metadata`]).
    pub metadata: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            durability: Durability::Sync,
            sync_interval: Duration::from_secs(1),
            inline_value_bytes_max: 256,
            memtable_bytes_max: 16 << 20,
            segment_bytes_target: 128 << 20,
            block_cache_bytes: 64 << 20,
            table_bytes_target: 16 << 20,
            level0_tables_max: 8,
            runs_max: 4,
            level1_bytes_target: 2 << 30,
            heads_only: false,
            metadata: BTreeMap::new(),
        }
    }
}

impl Options {
    /// The sizes of levels.
    pub(crate) fn levels(&self) -> MergeOptions {
        MergeOptions {
            level0_tables_max: self.level0_tables_max,
            runs_max: self.runs_max,
            leveled_bytes_target: self.level1_bytes_target,
            part_bytes_min: self.table_bytes_target / PARTS_OF_TABLE,
            ..MergeOptions::default()
        }
    }
}
