//! What a store can be told, with its defaults and their reasons.

use super::disk_room::DiskRoom;
use super::resources::RESERVE_BYTES;
use crate::compression::{Codec, CompressAt};
use crate::index::Indexing;
pub use crate::journal::writer::Durability;
use crate::journal::writer::WAITING_BYTES_MAX;
use crate::manifest::MergeOptions;
use crate::proposals::GroupKeys;
use base::Budget;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A run is cut into parts of at least this fraction of a table: a part is a file of its own until it is merged on.
const PARTS_OF_TABLE: u64 = 8;

/// Options of one store. A field's unit is in its name or its text. [`Resources::options`](super::Resources::options)
/// has those that fit a machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// When a write is acknowledged. Default: `Sync`.
    pub durability: Durability,
    /// Under [`Durability::Interval`]: how long a write may wait for its sync. Default: 1 s.
    pub sync_interval: Duration,
    /// Values up to this many bytes are kept in the ledger beside their head. Default: 256: about the size of a
    /// head, so that a table grows by at most a factor of two, and a GET saves its journal read.
    pub inline_value_bytes_max: usize,
    /// The memtable is flushed when its entries take this many bytes, or when it spans an eighth of the journal, of two
    /// to eight segments (decision 83). Default: 16 MiB, some 100,000 objects: in a larger one an insert finds less of
    /// its way in the processor's caches (decision 12).
    pub memtable_bytes_max: usize,
    /// The part of `memtable_bytes_max` that the first memtable since a start may take, in per cent. Replicas of the
    /// same keys fill their memtables at the same pace, so those that begin together would all flush at the same
    /// moment. With different parts they flush at different ones (decision 112). Default: 100. 0 counts as 1, and more
    /// than 100 as 100.
    pub first_memtable_percent: u8,
    /// A segment is ended when it would grow past this. Default: 128 MiB: its block of heads, kept in memory
    /// until then, stays around 15 MiB for values of 1 KiB.
    pub segment_bytes_target: u64,
    /// Bytes of table blocks kept in memory. Default: 64 MiB, which leaves a program's memory to the program; a machine
    /// of its own gives more.
    pub block_cache_bytes: usize,
    /// Merged tables are about this large. Default: 16 MiB: a merge's unit of work, well below a second.
    pub table_bytes_target: u64,
    /// A level 0 of so many tables is merged into a run. Default: 8.
    pub level0_tables_max: usize,
    /// So many runs are merged into the first leveled level, 10 at most. Default: 4.
    pub runs_max: usize,
    /// Bytes that the first leveled level is to have, the one behind the runs; each deeper one has ten times as many.
    /// Default: 2 GiB, some four times the runs that are merged into it.
    pub leveled_bytes_target: u64,
    /// Whether only heads are kept: a value is refused. The ledger is then all there is, and the journal only its log:
    /// nothing in it is needed once it is flushed. Default: no.
    pub heads_only: bool,
    /// When the journal is compacted. Default: continuously.
    pub compaction: CompactionSchedule,
    /// How large the journal may be, in per cent of the bytes in it that are of use; what is dead and not found yet
    /// counts by estimate, and the files are some 5 % larger than the records. Waste of two segments stays all the same
    /// while clients write. Default: 125, which is 1.3 by the files of values of 1 KB.
    pub space_target_percent: u64,
    /// The same once nothing has been written for `compaction_idle_after`, of any waste. Default: 110.
    pub space_target_idle_percent: u64,
    /// When a store counts as idle. Default: 5 minutes.
    pub compaction_idle_after: Duration,
    /// Bytes per second that a compaction may read and write when clients write little; otherwise it gets twice what
    /// they write. Default: 32 MiB: a quarter of a slow disk.
    pub compaction_bytes_per_second: u64,
    /// How values are compressed that the ledger does not keep; what is stored already stays as it is, until compaction
    /// moves it. Default: not at all.
    pub compression: Option<Codec>,
    /// When. Default: when they are written.
    pub compress_at: CompressAt,
    /// The level at which Zstandard compresses, from [`ZSTD_LEVELS`](crate::compression::ZSTD_LEVELS): a higher one
    /// saves some per cent more, takes several times as long to write, and no longer to read. What is stored is read
    /// whatever it was. Default: 1, its fastest.
    pub zstd_level: i32,
    /// Whether a start makes a ledger again that is lost (the manifest and its copy, or all tables) from the journal,
    /// which takes some seconds for each million objects. Otherwise such a store is not opened. Default: no: the folder
    /// may be the wrong one.
    pub rebuild_lost_ledger: bool,
    /// Reserve: free bytes of the disk that writes must leave. They are for flushes, manifests, merges and compactions.
    /// At least two segments and the data that is not flushed yet are kept back, whatever this says. Default: 256 MiB.
    pub reserve_bytes: u64,
    /// The disk's room, which stores that were given clones of these options share. Default: a disk of its own.
    pub disk_room: DiskRoom,
    /// Within this time everything that is stored is read again once, to find damage to what nobody reads. Zero for
    /// never. Default: 7 days.
    pub scrub_period: Duration,
    /// How long segments that were compacted are kept aside, in the folder `waste` of the store: what was deleted or
    /// overwritten by mistake is still in them. Default: not at all.
    pub waste_retention: Duration,
    /// How index entries are kept beside objects ([`crate::index`]). Default: not at all. A store that has kept them
    /// must not be written to without: it would not notice what it misses.
    pub indexing: Option<Indexing>,
    /// Where states of consistent groups are kept ([`crate::proposals`]); without it the store refuses entries of
    /// groups. Default: none.
    pub groups: Option<GroupKeys>,
    /// Bytes that may wait for the disk in the journal's queue before writes are refused; what is being written may be
    /// as much again. Default: 64 MiB.
    pub journal_queue_bytes_max: usize,
    /// Memory for large records on their way to the journal, shared by the stores of a program; beyond it their writes
    /// are refused. Default: only the queue's bound.
    pub journal_budget: Option<Arc<Budget>>,
    /// Memory for large values from when they are read until their last user drops them, shared by the stores of a
    /// program; beyond it lookups are refused. Default: no bound.
    pub value_budget: Option<Arc<Budget>>,
    /// What a new store is to remember for its owner; an existing one has its own ([`crate::Store::metadata`]).
    pub metadata: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// When a store may begin to compact its journal. [`crate::Store::compact`] works at any time; what has begun goes on
/// to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompactionSchedule {
    /// Whenever the journal is larger than its target.
    Continuous,
    /// So many times a day at most, evenly spread.
    TimesADay(u32),
    /// In these windows of the day.
    Windows(Vec<DayWindow>),
    /// Only by command.
    Never,
}

/// A time of the day, UTC: from a minute to before another, which is on the next day if it is not later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayWindow {
    /// The first minute, from 0 to 1439.
    pub from_minute: u16,
    /// The minute after the last one.
    pub to_minute: u16,
}

impl DayWindow {
    /// Whether a moment, in milliseconds since 1970, is in it.
    pub fn contains(&self, now_ms: u64) -> bool {
        let minute = now_ms / 60_000 % 1440;
        let (from, to) = (u64::from(self.from_minute), u64::from(self.to_minute));
        if from < to { (from..to).contains(&minute) } else { minute >= from || minute < to }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            durability: Durability::Sync,
            sync_interval: Duration::from_secs(1),
            inline_value_bytes_max: 256,
            memtable_bytes_max: 16 << 20,
            first_memtable_percent: 100,
            segment_bytes_target: 128 << 20,
            block_cache_bytes: 64 << 20,
            table_bytes_target: 16 << 20,
            level0_tables_max: 8,
            runs_max: 4,
            leveled_bytes_target: 2 << 30,
            heads_only: false,
            compaction: CompactionSchedule::Continuous,
            space_target_percent: 125,
            space_target_idle_percent: 110,
            compaction_idle_after: Duration::from_secs(300),
            compaction_bytes_per_second: 32 << 20,
            reserve_bytes: RESERVE_BYTES,
            disk_room: DiskRoom::default(),
            scrub_period: Duration::from_secs(7 * 86_400),
            waste_retention: Duration::ZERO,
            compression: None,
            compress_at: CompressAt::Receipt,
            zstd_level: 1,
            rebuild_lost_ledger: false,
            indexing: None,
            groups: None,
            journal_queue_bytes_max: WAITING_BYTES_MAX,
            journal_budget: None,
            value_budget: None,
            metadata: BTreeMap::new(),
        }
    }
}

impl Options {
    /// The bytes of entries with which the first memtable since a start is full.
    pub(crate) fn first_memtable_bytes(&self) -> usize {
        let less = 100 - usize::from(self.first_memtable_percent.clamp(1, 100));
        self.memtable_bytes_max - self.memtable_bytes_max / 100 * less
    }

    /// The sizes of levels.
    pub(crate) fn levels(&self) -> MergeOptions {
        MergeOptions {
            level0_tables_max: self.level0_tables_max,
            runs_max: self.runs_max,
            leveled_bytes_target: self.leveled_bytes_target,
            part_bytes_min: self.table_bytes_target / PARTS_OF_TABLE,
            ..MergeOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_may_go_over_midnight() {
        let at = |hour: u64, minute: u64| 1_700_006_400_000 + (hour * 60 + minute) * 60_000;
        let night = DayWindow { from_minute: 22 * 60, to_minute: 4 * 60 };
        let noon = DayWindow { from_minute: 12 * 60, to_minute: 13 * 60 };
        let inside = |window: DayWindow| {
            [(0, 0), (3, 59), (4, 0), (12, 0), (12, 59), (13, 0), (22, 0)]
                .map(|(h, m)| window.contains(at(h, m)))
        };
        assert_eq!(inside(night), [true, true, false, false, false, false, true]);
        assert_eq!(inside(noon), [false, false, false, true, true, false, false]);
    }
}
