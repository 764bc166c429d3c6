//! Draws that the plans of all worlds share: how a store is set up, and what its disk does wrong.

use crate::disk::DiskOdds;
use crate::fault::Odds;
use crate::seed::{between, duration_between};
use backends::Kind as Backend;
use base::Rng;
use base::rng::SplitMix64;
use engine::{Durability, Options};
use std::time::Duration;

/// Bytes of the smallest memtable: some dozens of writes, so that a seed flushes and merges.
const MEMTABLE_BYTES_MIN: u64 = 8 << 10;
/// And of the largest.
const MEMTABLE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of the smallest segment: a few per seed.
const SEGMENT_BYTES_MIN: u64 = 32 << 10;
/// And of the largest.
const SEGMENT_BYTES_MAX: u64 = 256 << 10;

/// The longest that a tombstone is kept that is to be reaped.
const REAP_DELAY_MAX: Duration = Duration::from_millis(400);

/// A store's options.
pub(crate) fn options(rng: &mut SplitMix64, durability: Durability) -> Options {
    let size =
        |rng: &mut SplitMix64, min, max| usize::try_from(between(rng, min, max)).expect("a small number");
    Options {
        durability,
        sync_interval: duration_between(rng, Duration::from_millis(5), Duration::from_millis(20)),
        inline_value_bytes_max: size(rng, 0, 64),
        memtable_bytes_max: size(rng, MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX),
        segment_bytes_target: between(rng, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
        block_cache_bytes: size(rng, 1 << 10, 16 << 10),
        table_bytes_target: between(rng, 4 << 10, 32 << 10),
        level0_tables_max: size(rng, 1, 4),
        leveled_bytes_target: between(rng, 8 << 10, 64 << 10),
        indexing: Some(node::INDEXING),
        groups: Some(node::GROUPS),
        ..Options::default()
    }
}

/// The options and the disk of a store of another backend: with what it has of durability, and without what is done to
/// reads that are not made by jobs, as all of its own are.
pub(crate) fn of_backend(backend: Backend, options: Options, disk: DiskOdds) -> (Options, DiskOdds) {
    let durability = match options.durability {
        _ if !backend.is_kept() => Durability::None,
        Durability::Interval => Durability::Sync,
        other => other,
    };
    let (slow, cold_read, short_read) = (Odds::NEVER, Odds::NEVER, Odds::NEVER);
    let disk = match backend.is_kept() {
        true => DiskOdds { slow, cold_read, short_read, ..disk },
        false => DiskOdds::SOUND,
    };
    (Options { durability, ..options }, disk)
}

/// How long tombstones are kept before they are reaped; in one of four seeds for ever.
pub(crate) fn reap_delay(rng: &mut SplitMix64) -> Option<Duration> {
    let delay =
        if rng.chance(1, 3) { Duration::ZERO } else { duration_between(rng, Duration::ZERO, REAP_DELAY_MAX) };
    rng.chance(3, 4).then_some(delay)
}

/// Each fault is there or not, each on its own; so a seed shows few at a time, and some show none.
pub(crate) fn maybe(rng: &mut SplitMix64, odds: Odds) -> Odds {
    if rng.chance(1, 3) { odds } else { Odds::NEVER }
}

/// What a disk does wrong, short of silent damage.
pub(crate) fn disk(rng: &mut SplitMix64) -> DiskOdds {
    DiskOdds {
        read_error: maybe(rng, Odds::one_in(150)),
        write_error: maybe(rng, Odds::one_in(200)),
        sync_error: maybe(rng, Odds::one_in(200)),
        no_space: maybe(rng, Odds::one_in(200)),
        short_read: maybe(rng, Odds::one_in(10)),
        cold_read: maybe(rng, Odds::one_in(5)),
        slow: maybe(rng, Odds::one_in(50)),
        torn: maybe(rng, Odds::one_in(2)),
        bit_flip: Odds::NEVER,
        misdirect: Odds::NEVER,
    }
}
