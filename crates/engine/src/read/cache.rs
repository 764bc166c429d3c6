//! The block cache that all readers of a store share, however many there are.
//!
//! It is the owner's cache ([`BlockCache`]) in parts, each behind a lock of its own, which is held for a look and never
//! for a read. Nobody waits for one: where it is taken, what was asked for is read, and what was read is not kept.
//! Whoever holds it may have lost its processor to one of hundreds of threads, and a block from the page cache costs
//! less than to sleep.

use crate::store::BlockCache;
use crate::table::{Block, TableId};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// Parts at most: with as many as a machine has cores, few wait for each other.
const PARTS_MAX: usize = 16;

/// A part has so much at least: one of a few blocks would keep less than its share of the many.
const PART_BYTES_MIN: usize = 1 << 20;

/// A cache of checked blocks, bounded by bytes. A clone is the same cache.
#[derive(Clone)]
pub(crate) struct SharedBlocks(Arc<[Mutex<BlockCache>]>);

impl SharedBlocks {
    /// A cache for at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> SharedBlocks {
        let parts = (bytes_max / PART_BYTES_MIN).clamp(1, PARTS_MAX);
        SharedBlocks((0..parts).map(|_| Mutex::new(BlockCache::new(bytes_max / parts))).collect())
    }

    pub(super) fn get(&self, table: TableId, index: u32) -> Option<Block> {
        self.part(table, index)?.with(table, index, Block::clone)
    }

    pub(super) fn insert(&self, table: TableId, index: u32, block: Block) {
        if let Some(mut part) = self.part(table, index) {
            part.insert(table, index, block);
        }
    }

    /// The part that a block belongs to, if nobody else looks at it. Neighbours are in different parts: what is asked
    /// for often lies together.
    fn part(&self, table: TableId, index: u32) -> Option<MutexGuard<'_, BlockCache>> {
        let at = (table.0 as usize).wrapping_add(index as usize) % self.0.len();
        match self.0[at].try_lock() {
            Ok(part) => Some(part),
            // The cache is whole between its calls, so poison is no reason to stop.
            Err(TryLockError::Poisoned(part)) => Some(part.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Seq;
    use crate::memtable::hash;
    use crate::table::testing::block_of;

    fn block(index: u32) -> Block {
        block_of(TableId(1), &index.to_be_bytes(), Seq(1), &[7; 4000])
    }

    fn is_kept(cache: &SharedBlocks, index: u32) -> bool {
        let key = index.to_be_bytes();
        let found = cache.get(TableId(1), index);
        found.is_some_and(|block| block.find_hashed(&key, hash(&key)).unwrap().is_some())
    }

    #[test]
    fn what_one_has_read_another_finds() {
        let cache = SharedBlocks::new(8 << 20);
        let other = cache.clone();
        (0..1000).for_each(|index| cache.insert(TableId(1), index, block(index)));
        assert!((0..1000).all(|index| is_kept(&other, index)));
        assert!(cache.get(TableId(2), 1).is_none());
    }

    #[test]
    fn who_finds_a_part_taken_goes_without() {
        let cache = SharedBlocks::new(1 << 20);
        cache.insert(TableId(1), 1, block(1));
        let taken = cache.part(TableId(1), 1).unwrap();
        assert!(cache.get(TableId(1), 1).is_none());
        cache.insert(TableId(1), 2, block(2));
        drop(taken);
        assert!(is_kept(&cache, 1) && !is_kept(&cache, 2));
    }

    #[test]
    fn the_bound_is_of_all_parts_together() {
        for bytes_max in [0, 4 << 10, 100 << 10, 3 << 20, 20 << 20] {
            let cache = SharedBlocks::new(bytes_max);
            // Twice, so that nothing is turned away for being asked for once.
            for index in (0..8000).chain(0..8000) {
                cache.insert(TableId(1), index, block(index));
            }
            let kept = (0..8000).filter(|&index| is_kept(&cache, index)).count();
            assert!(kept * 4000 <= bytes_max, "{kept} blocks in {bytes_max} bytes");
            assert!(
                kept * 4000 >= bytes_max / 2 || bytes_max < 100 << 10,
                "{kept} blocks in {bytes_max} bytes"
            );
        }
    }
}
