//! Resources of the machine that this process may use.

use engine::Options;
use engine::store::Resources;
use std::num::NonZero;
use std::thread;

/// Of a segment's target one byte in so many is heads, which are in memory while it is written.
const HEADS_SHARE: u64 = 8;

/// Memtables of a store: the one that is written, and two that are flushed.
const MEMTABLES: u64 = 3;

/// Processors that this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// What the stores of so many shards may use together, of `memory` bytes.
pub fn resources(memory: u64, shards: u16) -> Resources {
    Resources { memory_bytes: memory, cores: cores(), stores: shards.into() }
}

/// What so many stores with these options keep in memory.
pub fn stores_bytes(options: &Options, shards: u16) -> u64 {
    let memtables = MEMTABLES * options.memtable_bytes_max as u64;
    let heads = options.segment_bytes_target / HEADS_SHARE;
    u64::from(shards) * (memtables + options.block_cache_bytes as u64 + heads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_share_what_there_is() {
        assert!(cores() > 0);
        assert_eq!(resources(7, 3), Resources { memory_bytes: 7, cores: cores(), stores: 3 });
        let options = resources(1 << 30, 2).options();
        let (memtable, cache) = (options.memtable_bytes_max as u64, options.block_cache_bytes as u64);
        assert_eq!(stores_bytes(&options, 2), 2 * (3 * memtable + cache + (2 << 20)));
    }
}
