//! Reclaiming: what is live in blocks that are mostly waste is copied to the end of the log, and they are free.
//!
//! Each copied byte frees another at least, so a store takes some twice what is live, and reclaiming writes no more
//! than clients do. A block with nothing live costs nothing.

use super::block::{Kind, padded};
use super::index::Place;
use super::{Block, Hash, State, damaged};
use crate::backend::Write;
use crate::error::Error;

/// A block is worth it when so much of it at most is live: one part in so many.
pub(super) const LIVE_PART_MAX: u32 = 2;

/// Blocks that are copied from at a time: while a block is filled, the waste of one more can come about, and copying
/// from two frees one. With twice as many a store that has grown shrinks to its share; the write that waits for it
/// waits no longer.
pub(super) const COPIED_MAX: usize = 4;

/// Records that are copied with one write, unless one is longer.
const CHUNK_BYTES: usize = 64 << 10;

impl Hash {
    /// Makes free blocks, if there are none.
    pub(super) fn reclaim(&mut self) -> Result<(), Error> {
        if self.free.is_empty() {
            let most = self.superblock.block_bytes / LIVE_PART_MAX;
            let is_waste = |block: &Block| matches!(block.state, State::Full(_)) && block.live_bytes <= most;
            let blocks = self.blocks.iter().enumerate().filter(|(_, block)| is_waste(block));
            let mut waste: Vec<(u32, u32)> =
                blocks.map(|(number, block)| (block.live_bytes, number as u32)).collect();
            waste.sort_unstable();
            let empty = waste.iter().take_while(|(live_bytes, _)| *live_bytes == 0).count();
            for &(_, number) in waste.iter().take(empty + COPIED_MAX) {
                self.free(number)?;
            }
        }
        self.has_begun = false;
        Ok(())
    }

    /// Copies what is live in a full block, which is free then.
    fn free(&mut self, number: u32) -> Result<(), Error> {
        let State::Full(seq) = self.blocks[number as usize].state else { return Ok(()) };
        if self.blocks[number as usize].live_bytes > 0 {
            match self.copy(number, seq) {
                Ok(()) => {}
                Err(Error::Damaged(_)) => {
                    // Whoever asks for what is damaged is told so; nothing else need suffer.
                    self.blocks[number as usize].state = State::Damaged(seq);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        let block = &mut self.blocks[number as usize];
        assert_eq!(block.live_bytes, 0, "all that was live was copied");
        block.state = State::Free(seq);
        self.free.push(number);
        Ok(())
    }

    fn copy(&mut self, number: u32, seq: u64) -> Result<(), Error> {
        let (bytes, life) = (self.read_block(number)?, self.superblock.life(number, seq));
        let content = life.read(&bytes, false);
        let mut chunk: Vec<Write<'_>> = Vec::new();
        let mut chunk_bytes = 0;
        for &(offset, record) in &content.records {
            let len = padded(record.stored_len());
            let place = Place { block: number, offset, len: len as u32 };
            let entry = self.index.get(self.hasher.digest(record.key));
            if !entry.is_some_and(|entry| entry.place == place && entry.is_live()) {
                continue;
            }
            if !record.is_whole() {
                return Err(damaged(number, offset, "a value"));
            }
            if chunk_bytes + len > CHUNK_BYTES && !chunk.is_empty() {
                // Each by itself: no batch is left among them. Not synced: until the block ends, they still are where
                // they were.
                self.append(&chunk, false, false)?;
                chunk.clear();
                chunk_bytes = 0;
            }
            let (key, head, value) = (record.key, record.head, record.value);
            chunk.push(if record.kind == Kind::Put {
                Write::Put { key, head, value }
            } else {
                Write::Delete { key }
            });
            chunk_bytes += len;
        }
        if !chunk.is_empty() {
            self.append(&chunk, false, false)?;
        }
        match self.blocks[number as usize].live_bytes {
            0 => Ok(()),
            _ => Err(damaged(number, content.end, "records that should be here")),
        }
    }
}
