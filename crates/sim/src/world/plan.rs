//! What a seed decides beforehand: the node, its clients, and what may go wrong.

use crate::disk::DiskOdds;
use crate::fault::{Fault, Odds};
use crate::network::NetworkConfig;
use crate::seed::{Seed, between, duration_between};
use crate::trace::Trace;
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

/// A seed's plan.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) shards: u16,
    pub(super) options: Options,
    pub(super) clients: u32,
    pub(super) keys: u64,
    pub(super) disk: DiskOdds,
    pub(super) network: NetworkConfig,
    /// Deaths before the world may come to its end.
    pub(super) deaths: u64,
    /// Bits of what is stored that are flipped in the end.
    pub(super) flips: u64,
    /// Blocks that are put in another block's place in the end.
    pub(super) misdirects: u64,
    pub(super) clock_jumps: bool,
    /// The longest pause of the world between two blows.
    pub(super) trouble_pause_max: Duration,
    /// The longest pause of a client between two requests.
    pub(super) think_max: Duration,
}

impl Plan {
    pub(super) fn of(seed: Seed) -> Plan {
        let rng = &mut seed.stream("plan", 0);
        let durability = match rng.below(10) {
            0 => Durability::None,
            1 => Durability::Interval,
            _ => Durability::Sync,
        };
        // What is not promised to be durable cannot be told from what was damaged.
        let rots = durability == Durability::Sync && rng.chance(1, 4);
        Plan {
            shards: u16::try_from(between(rng, 1, 3)).expect("a small number"),
            options: options(rng, durability),
            clients: u32::try_from(between(rng, 3, 8)).expect("a small number"),
            keys: between(rng, 2, 8),
            disk: disk(rng),
            network: network(rng),
            deaths: between(rng, 4, 8),
            flips: if rots { between(rng, 1, 2) } else { 0 },
            misdirects: if rots { rng.below(2) } else { 0 },
            clock_jumps: rng.chance(1, 4),
            trouble_pause_max: duration_between(rng, Duration::from_millis(30), Duration::from_millis(150)),
            think_max: duration_between(rng, Duration::from_millis(1), Duration::from_millis(8)),
        }
    }
}

impl Plan {
    /// Whether silent damage is done.
    pub(super) fn rots(&self) -> bool {
        self.flips + self.misdirects > 0
    }

    /// Whether disk operations may fail.
    pub(super) fn has_disk_errors(&self) -> bool {
        let odds = [self.disk.read_error, self.disk.write_error, self.disk.sync_error, self.disk.no_space];
        odds.into_iter().any(Odds::enabled)
    }

    /// Tells `trace` which faults the world itself means to have; network and disk tell of theirs.
    pub(super) fn enable(&self, trace: &Trace) {
        let faults = [
            (true, Fault::PowerCut),
            (true, Fault::ProcessKill),
            (true, Fault::CrashInWrite),
            (true, Fault::LostBlock),
            (self.clock_jumps, Fault::ClockJump),
            (self.flips > 0, Fault::BitFlip),
            (self.misdirects > 0, Fault::Misdirect),
        ];
        faults.into_iter().filter(|(enabled, _)| *enabled).for_each(|(_, fault)| trace.enable(fault));
    }
}

fn options(rng: &mut SplitMix64, durability: Durability) -> Options {
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
        level1_bytes_target: between(rng, 8 << 10, 64 << 10),
        ..Options::default()
    }
}

/// Each fault is there or not, each on its own; so a seed shows few at a time, and some show none.
fn maybe(rng: &mut SplitMix64, odds: Odds) -> Odds {
    if rng.chance(1, 3) { odds } else { Odds::NEVER }
}

fn disk(rng: &mut SplitMix64) -> DiskOdds {
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

fn network(rng: &mut SplitMix64) -> NetworkConfig {
    NetworkConfig {
        loss: maybe(rng, Odds::one_in(30)),
        duplicate: maybe(rng, Odds::one_in(30)),
        reorder: maybe(rng, Odds::one_in(30)),
        lag: maybe(rng, Odds::one_in(100)),
        lag_max: Duration::from_millis(20),
        ..NetworkConfig::CALM
    }
}
