//! Options that fit a machine: a pure function of what the machine has, and of how many stores share it.
//!
//! Each size is a fixed part of a store's share of memory, within bounds outside of which it would do harm. The parts
//! are small: what is left over is the page cache's, which holds the journal's values and every block once more. With
//! 4 GiB for each store they are what they are by default, but for the cache.

use super::Options;
use super::disk_room::DiskRoom;
use super::write::MEMTABLES_FROZEN_MAX;

/// Of a store's memory one byte in so many is for memtables, those that wait for their flush among them.
const MEMTABLES_SHARE: u64 = 16;

/// And in so many for blocks of tables: the page cache has them too, a system call and a checksum further away, which
/// is three times what a lookup takes by itself. A sixteenth holds the ledger of as many objects of 1 KB as would fill
/// the memory, as a ledger has some 60 bytes of each.
const CACHE_SHARE: u64 = 16;

/// A segment is at most one part in so many of it: the heads of the one that is written, a tenth of it, are in memory.
const SEGMENT_SHARE: u64 = 32;

/// A smaller memtable would make tables of a few thousand entries, and a merge for each dozen of them.
const MEMTABLE_BYTES: (u64, u64) = (1 << 20, 16 << 20);

/// A smaller cache would not hold the blocks of one merge's worth of lookups; a larger one would be for more than a
/// hundred million objects.
const CACHE_BYTES: (u64, u64) = (4 << 20, 8 << 30);

/// Smaller segments would be a file for every few thousand values.
const SEGMENT_BYTES: (u64, u64) = (16 << 20, 128 << 20);

/// The first leveled level for each byte of a memtable: what is merged into it is eight tables of level 0 in each of
/// four runs, and it is four times that.
const LEVELED_PER_MEMTABLE: u64 = 128;

/// What one store may have to write though the disk is nearly full: its journal's queue, its memtables, and what a
/// compaction makes of a segment. All stores see the same free space, so each keeps back what all of them need.
pub(super) const RESERVE_BYTES: u64 = 256 << 20;

/// Reads that a device can use at once, of all stores together: beyond it they only queue there.
const READS_AT_ONCE: usize = 64;

/// Reading threads of one store: four keep a device busy that is asked by nobody else.
const READERS_MAX: usize = 4;

/// Job threads of one store: a flush, a merge, a compaction and a fold or scan.
const JOB_THREADS_MAX: usize = 4;

/// What stores may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Bytes of memory, the page cache's included: the machine's, or those that a process may use.
    pub memory_bytes: u64,
    /// Processors.
    pub cores: usize,
    /// Stores that share them; at least one.
    pub stores: usize,
}

/// Threads that an owner should give one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// For lookups that wait for the disk.
    pub readers: usize,
    /// For jobs.
    pub job_threads: usize,
}

impl Resources {
    /// Options of each of the stores; what does not depend on the machine is as by default.
    pub fn options(&self) -> Options {
        let memory = self.memory_bytes / self.stores.max(1) as u64;
        let part = |share: u64, (min, max): (u64, u64)| (memory / share).clamp(min, max);
        let memtable = part(MEMTABLES_SHARE * (MEMTABLES_FROZEN_MAX as u64 + 1), MEMTABLE_BYTES);
        let cache = part(CACHE_SHARE, CACHE_BYTES);
        Options {
            memtable_bytes_max: usize::try_from(memtable).unwrap_or(usize::MAX),
            block_cache_bytes: usize::try_from(cache).unwrap_or(usize::MAX),
            segment_bytes_target: part(SEGMENT_SHARE, SEGMENT_BYTES),
            table_bytes_target: memtable,
            leveled_bytes_target: memtable * LEVELED_PER_MEMTABLE,
            reserve_bytes: RESERVE_BYTES * self.stores.max(1) as u64,
            disk_room: DiskRoom::of(self.stores),
            ..Options::default()
        }
    }

    /// Threads for each of the stores.
    pub fn concurrency(&self) -> Concurrency {
        let stores = self.stores.max(1);
        Concurrency {
            readers: (READS_AT_ONCE / stores).clamp(1, READERS_MAX),
            job_threads: (self.cores / (2 * stores)).clamp(1, JOB_THREADS_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(memory_mib: u64, cores: usize, stores: usize) -> ([u64; 5], Concurrency) {
        let resources = Resources { memory_bytes: memory_mib << 20, cores, stores };
        let options = resources.options();
        let bytes = [
            options.memtable_bytes_max as u64,
            options.block_cache_bytes as u64,
            options.segment_bytes_target,
            options.table_bytes_target,
            options.leveled_bytes_target,
        ];
        (bytes.map(|bytes| bytes >> 20), resources.concurrency())
    }

    #[test]
    fn a_store_with_four_gigabytes_has_the_defaults_and_a_larger_cache() {
        let mut options = Resources { memory_bytes: 4 << 30, cores: 2, stores: 1 }.options();
        assert_eq!(options.block_cache_bytes, 256 << 20);
        options.block_cache_bytes = Options::default().block_cache_bytes;
        assert_eq!(format!("{options:?}"), format!("{:?}", Options::default()));
    }

    #[test]
    fn sizes_follow_the_memory_of_a_store_within_their_bounds() {
        let threads = |readers, job_threads| Concurrency { readers, job_threads };
        assert_eq!(sizes(512, 1, 1), ([10, 32, 16, 10, 1365], threads(4, 1)));
        assert_eq!(sizes(24 << 10, 2, 1), ([16, 1536, 128, 16, 2048], threads(4, 1)));
        assert_eq!(sizes(64 << 10, 32, 4), ([16, 1024, 128, 16, 2048], threads(4, 4)));
        assert_eq!(sizes(256 << 10, 64, 63), ([16, 260, 128, 16, 2048], threads(1, 1)));
        assert_eq!(sizes(0, 0, 0), ([1, 4, 16, 1, 128], threads(4, 1)));
    }

    #[test]
    fn what_is_always_in_memory_is_a_small_part_of_it() {
        for memory_mib in [256, 1 << 10, 8 << 10, 1 << 20] {
            for stores in [1, 2, 8] {
                let (sizes, _) = sizes(memory_mib, 8, stores);
                let taken = stores as u64 * (3 * sizes[0] + sizes[1] + sizes[2] / 8);
                assert!(taken * 3 <= memory_mib, "{taken} of {memory_mib} MiB for {stores} stores");
            }
        }
    }
}
