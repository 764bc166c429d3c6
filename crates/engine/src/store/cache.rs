//! Table blocks kept in memory, by use. The cache itself is the crate `quick_cache` (S3-FIFO).

use crate::table::{Block, TableId};
use quick_cache::Weighter;
use quick_cache::unsync::Cache;

/// What a cached block costs beside its bytes: its place in the cache and its reference count.
const BLOCK_OVERHEAD_BYTES: u64 = 96;

/// A guess that only sizes the cache's own tables.
const BLOCK_BYTES_TYPICAL: usize = 4096;

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
        BlockCache { blocks, hits: 0, misses: 0 }
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

    /// Keeps a block.
    pub fn insert(&mut self, table: TableId, index: u32, block: Block) {
        self.blocks.insert((table, index), block);
    }

    /// How often a block was here, and how often not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }
}
