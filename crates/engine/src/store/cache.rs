//! Table blocks kept in memory, by use. The cache itself is the crate `quick_cache` (S3-FIFO).
//!
//! Once it is full, a block comes into it when it is asked for a second time within a while: the doorkeeper of TinyLFU
//! (Einziger, Friedman and Manes, 2017), here a table of marks, each of which the next one in its place takes over. In
//! a store whose blocks are many times what is kept most are asked for once and go again, and to let one in and another
//! out costs waits for memory that nobody has looked at for long: more than the block's search.

use crate::table::{Block, TableId};
use quick_cache::Weighter;
use quick_cache::unsync::Cache;

/// What a cached block costs beside its bytes: its place in the cache and its reference count.
const BLOCK_OVERHEAD_BYTES: u64 = 96;

/// A guess that only sizes the cache's own tables.
const BLOCK_BYTES_TYPICAL: usize = 4096;

/// Odd, and irregular in binary: a product with one spreads a number over its upper bits (2^64 over the golden ratio).
const BLOCK_SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Another one.
const TABLE_SPREAD: u64 = 0xD6E8_FEB8_6659_FD93;

#[derive(Clone)]
struct ByBytes;

impl Weighter<(TableId, u32), Block> for ByBytes {
    fn weight(&self, _key: &(TableId, u32), block: &Block) -> u64 {
        block.memory() as u64 + BLOCK_OVERHEAD_BYTES
    }
}

/// A cache of checked blocks, bounded by bytes.
pub struct BlockCache {
    blocks: Cache<(TableId, u32), Block, ByBytes, rustc_hash::FxBuildHasher>,
    /// Marks of blocks that were turned away: one for each block that there is room for, a power of two of them.
    turned_away: Box<[u32]>,
    hits: u64,
    misses: u64,
}

impl BlockCache {
    /// A cache for at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> BlockCache {
        let items = (bytes_max / BLOCK_BYTES_TYPICAL).max(1);
        let weight_max = if base::planted!(CacheUnbounded) { 1 << 40 } else { bytes_max as u64 };
        let blocks = Cache::with(
            items,
            weight_max,
            ByBytes,
            rustc_hash::FxBuildHasher,
            quick_cache::unsync::DefaultLifecycle::default(),
        );
        let turned_away = vec![0; items.next_power_of_two()].into();
        BlockCache { blocks, turned_away, hits: 0, misses: 0 }
    }

    /// What `look` says of the block, if it is here.
    #[inline]
    pub fn with<T>(&mut self, table: TableId, index: u32, look: impl FnOnce(&Block) -> T) -> Option<T> {
        let looked = self.blocks.get(&(table, index)).map(look);
        match looked {
            Some(_) => self.hits += 1,
            None => self.misses += 1,
        }
        looked
    }

    /// Keeps a block, if there is room or it was turned away not long ago.
    pub fn insert(&mut self, table: TableId, index: u32, block: Block) {
        let weight = ByBytes.weight(&(table, index), &block);
        let has_room = self.blocks.weight() + weight <= self.blocks.capacity();
        if has_room || self.comes_again(table, index) {
            self.blocks.insert((table, index), block);
        }
    }

    /// Keeps a block that will be asked for soon.
    pub fn keep(&mut self, index: u32, block: Block) {
        self.blocks.insert((block.table(), index), block);
    }

    /// Whether this block's mark is in its place; it is afterwards.
    fn comes_again(&mut self, table: TableId, index: u32) -> bool {
        let hash = (table.0.wrapping_mul(TABLE_SPREAD) ^ u64::from(index)).wrapping_mul(BLOCK_SPREAD);
        // The place is the upper half's, the mark the lower's; 0 marks nothing.
        let place = (hash >> 32) as usize & (self.turned_away.len() - 1);
        let mark = (hash & u64::from(u32::MAX)) as u32 | 1;
        std::mem::replace(&mut self.turned_away[place], mark) == mark
    }

    /// How often a block was here, and how often not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Seq;
    use crate::memtable::hash;
    use crate::table::testing::block_of;
    use base::Rng;
    use base::rng::SplitMix64;

    /// A block of some 4 KB.
    fn block(table: u64, index: u32) -> Block {
        block_of(TableId(table), &index.to_be_bytes(), Seq(1), &[7; 4000])
    }

    fn ask(cache: &mut BlockCache, table: u64, index: u32) -> bool {
        let key = index.to_be_bytes();
        let look = |block: &Block| block.find_hashed(&key, hash(&key)).unwrap().is_some();
        match cache.with(TableId(table), index, look) {
            Some(found) => {
                assert!(found, "another block was kept in the place of {index}");
                true
            }
            None => {
                cache.insert(TableId(table), index, block(table, index));
                false
            }
        }
    }

    #[test]
    fn what_there_is_room_for_is_kept_at_once() {
        let mut cache = BlockCache::new(1 << 20);
        for index in 0..200 {
            assert!(!ask(&mut cache, 1, index));
        }
        assert!((0..200).all(|index| ask(&mut cache, 1, index)));
        assert_eq!(cache.hits_and_misses(), (200, 200));
    }

    /// Forty times what there is room for is asked for once each, and what is asked for again and again stays.
    #[test]
    fn blocks_that_are_asked_for_once_do_not_drive_out_the_others() {
        let mut cache = BlockCache::new(1 << 20);
        let mut rng = SplitMix64::new(2);
        let mut hits = [0; 2];
        for scanned in 0..10_000 {
            for _ in 0..4 {
                // A table that changes its popular blocks half way.
                let popular = rng.below(100) as u32;
                let table = 1 + u64::from(scanned >= 5000);
                hits[usize::from(scanned >= 5000)] += u64::from(ask(&mut cache, table, popular));
            }
            assert!(!ask(&mut cache, 3, scanned));
        }
        assert!(hits.iter().all(|&hits| hits > 19_000), "{hits:?} of 20,000 each");
        assert!(cache.blocks.weight() <= 1 << 20);
    }
}
