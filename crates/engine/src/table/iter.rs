//! Walks a table in key order, reading ahead: for jobs, whose disks block. Or only the blocks that may hold keys of
//! some segments.

use super::block::Item;
use super::{Block, Table, damage};
use crate::Seq;
use crate::error::Error;
use crate::key_segments::KeySegments;
use crate::lost::{LOST_RANGES_MAX, LostRange};
use base::Disk;
use base::disk;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// So much is read at once by a walk that has gone on for a while: a device's full speed.
const READAHEAD_BYTES: usize = 128 << 10;

/// So much is read where a walk begins, and four times as much each time it goes on: most ranges are short, and to read
/// what nobody asks for takes longer than a short walk, once for each table.
const READAHEAD_BYTES_FIRST: usize = 16 << 10;

/// Suffixes up to this length are copied as one of it: most terms, names and numbers behind what the keys of a block
/// begin with.
const SUFFIX_BYTES: usize = 32;

/// A place in a table, or past its end, where a new one is. It shares the table, which therefore stays.
pub struct TableIter {
    table: Arc<Table>,
    /// Bytes of the file from `window_at` on: whole blocks.
    window: Bytes,
    window_at: u64,
    /// How much is read next.
    ahead: usize,
    /// The first block behind the end that is expected: neither it nor any after it is read.
    blocks_end: u32,
    block: Option<(u32, Block)>,
    index: usize,
    /// The block's entries from `first` on, taken apart all at once; none where the block is new.
    items: Vec<Item>,
    first: usize,
    /// The key in its first `key_len` bytes, which begin with what all keys of the block begin with. What is behind
    /// them is room.
    key: Vec<u8>,
    key_len: usize,
    prefix_len: usize,
    /// What of it is that of the key before, in a walk forward.
    shared: usize,
    seq: Seq,
    entry: Range<usize>,
    /// What was left out, where damaged blocks are.
    cut_out: Option<Vec<LostRange>>,
    blocks: Blocks,
}

/// Which blocks a walk goes through.
enum Blocks {
    All,
    /// Those that may hold keys of these segments, once it is known which they are.
    Of(KeySegments),
    /// These, ascending.
    Only(Vec<u32>),
}

impl Blocks {
    /// The first of them from block `number` on.
    fn next_from(&self, number: u32) -> Option<u32> {
        match self {
            Blocks::All | Blocks::Of(_) => Some(number),
            Blocks::Only(blocks) => blocks.get(blocks.partition_point(|&block| block < number)).copied(),
        }
    }
}

impl TableIter {
    /// A cursor at no entry until it seeks.
    pub fn new(table: Arc<Table>) -> TableIter {
        TableIter {
            table,
            window: Bytes::new(),
            window_at: 0,
            ahead: READAHEAD_BYTES_FIRST,
            blocks_end: u32::MAX,
            block: None,
            index: 0,
            items: Vec::new(),
            first: 0,
            key: Vec::new(),
            key_len: 0,
            prefix_len: 0,
            shared: 0,
            seq: Seq(0),
            entry: 0..0,
            cut_out: None,
            blocks: Blocks::All,
        }
    }

    /// A cursor over the blocks that may hold keys of `segments`, which has other keys beside those; it goes forward
    /// only.
    pub fn of_segments(table: Arc<Table>, segments: KeySegments) -> TableIter {
        TableIter { blocks: Blocks::Of(segments), ..TableIter::new(table) }
    }

    /// Reads no block that only has keys behind `key`, unless that is empty: it is past the end there.
    pub fn expect_end(&mut self, key: &[u8]) {
        self.blocks_end = match key {
            [] => u32::MAX,
            key => self.table.find_block(key).map_or(0, |block| block.index + 1),
        };
    }

    /// The block that the entry is in, and its number; `None` past the end.
    pub fn block(&self) -> Option<(u32, &Block)> {
        self.block.as_ref().map(|(number, block)| (*number, block))
    }

    /// Leaves damaged blocks out from now on where it goes forward, and remembers what was in them.
    pub fn cut_out(&mut self) {
        self.cut_out.get_or_insert_default();
    }

    /// What was left out so far.
    pub fn take_lost(&mut self) -> Vec<LostRange> {
        self.cut_out.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Goes to the first entry whose key is `key` or after it. After an error it is past the end.
    pub fn seek(&mut self, disk: &mut dyn Disk, key: &[u8]) -> Result<(), Error> {
        self.ahead = READAHEAD_BYTES_FIRST;
        if self.blocks_end == 0 || *key > *self.table.meta().max_key {
            // Nothing is to be found here, and nothing need be read to know it.
            self.block = None;
            return Ok(());
        }
        self.choose_blocks(disk)?;
        let Some(block) = self.table.find_block(key) else {
            return self.enter(disk, 0);
        };
        self.load(disk, block.index)?;
        if let Some((number, block)) = self.block.take() {
            self.index = block.search(key)?.0;
            self.block = Some((number, block));
        }
        self.settle(disk)
    }

    /// Learns which blocks the walk goes through. Where the table does not tell, or what tells it is damaged, it is
    /// all.
    fn choose_blocks(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        let Blocks::Of(segments) = &self.blocks else { return Ok(()) };
        self.blocks = match self.table.blocks_of(disk, segments) {
            Ok(Some(blocks)) => Blocks::Only(blocks),
            Ok(None) | Err(Error::Damaged(_)) => Blocks::All,
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Goes one entry on. Panics past the end.
    #[inline]
    pub fn next(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        self.index += 1;
        self.shared = self.prefix_len;
        match &self.block {
            Some((_, block)) if self.index - self.first < self.items.len() => {
                // The items go on to the end of the block.
                let item = &self.items[self.index - self.first];
                self.seq = item.seq;
                self.entry = item.entry.clone();
                self.key_len = self.prefix_len + item.suffix.len();
                copy_suffix(&mut self.key, self.prefix_len, block.bytes(), &item.suffix);
                Ok(())
            }
            Some((number, _)) => {
                let next = number + 1;
                self.enter(disk, next)
            }
            None => panic!("there is nothing after the end"),
        }
    }

    /// Goes to the last entry whose key is before `key`, or to the last of all. After an error, and where there is
    /// none, it is past the end.
    pub fn seek_before(&mut self, disk: &mut dyn Disk, key: Option<&[u8]>) -> Result<(), Error> {
        let number = match key {
            Some(key) => self.table.find_block(key).map(|block| block.index),
            None => u32::try_from(self.table.blocks()).ok().and_then(|count| count.checked_sub(1)),
        };
        let Some(number) = number else {
            self.block = None;
            return Ok(());
        };
        self.load_back(disk, number)?;
        let Some((number, block)) = self.block.take() else { return Ok(()) };
        self.index = match key {
            Some(key) => block.search(key)?.0,
            None => block.count(),
        };
        self.block = Some((number, block));
        self.settle_back(disk)
    }

    /// Goes one entry back; from the first one past the end. Panics past the end.
    pub fn prev(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        assert!(self.valid(), "there is nothing before the first");
        self.settle_back(disk)
    }

    /// Takes the entry before `index` of the block, or the last of the block before.
    fn settle_back(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        let Some((number, _)) = &self.block else { return Ok(()) };
        if self.index == 0 {
            let Some(before) = number.checked_sub(1) else {
                self.block = None;
                return Ok(());
            };
            self.load_back(disk, before)?;
            self.index = self.block.as_ref().map_or(0, |(_, block)| block.count());
        }
        // A block has an entry.
        self.index -= 1;
        if self.items.is_empty() || self.first > 0 {
            self.take_apart(0)?;
        }
        self.show()
    }

    /// True at an entry, false past the end.
    pub fn valid(&self) -> bool {
        self.block.is_some()
    }

    /// The entry's key. Means nothing past the end.
    pub fn key(&self) -> &[u8] {
        &self.key[..self.key_len]
    }

    /// So many of the key's first bytes are certainly those of the key before, if it has gone on by
    /// [`TableIter::next`].
    pub fn shared(&self) -> usize {
        self.shared
    }

    /// The entry's seq. Means nothing past the end.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// The ledger entry. Empty past the end.
    pub fn entry(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |(_, block)| &block.bytes()[self.entry.clone()])
    }

    /// Takes the entry at `index` of the block, or goes to the next block if there is none.
    fn settle(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        match &self.block {
            Some((number, block)) if self.index == block.count() => {
                let next = number + 1;
                self.enter(disk, next)
            }
            _ => self.show(),
        }
    }

    /// Goes to the first entry of block `number`, or past the end.
    fn enter(&mut self, disk: &mut dyn Disk, number: u32) -> Result<(), Error> {
        self.load(disk, number)?;
        self.index = 0;
        self.show()
    }

    /// Shows the entry at `index` of the block, if there is a block.
    fn show(&mut self) -> Result<(), Error> {
        if self.block.is_none() {
            return Ok(());
        }
        let is_there = |at: usize| at < self.items.len();
        if !self.index.checked_sub(self.first).is_some_and(is_there) {
            self.take_apart(self.index)?;
        }
        let Some((_, block)) = &self.block else { return Ok(()) };
        let item = &self.items[self.index - self.first];
        (self.seq, self.entry) = (item.seq, item.entry.clone());
        self.key_len = self.prefix_len + item.suffix.len();
        copy_suffix(&mut self.key, self.prefix_len, block.bytes(), &item.suffix);
        Ok(())
    }

    /// Takes apart what the block has from the entry at `first` on.
    fn take_apart(&mut self, first: usize) -> Result<(), Error> {
        let Some((_, block)) = &self.block else { return Ok(()) };
        self.first = first;
        if let Err(damage) = block.items_from(first, &mut self.items) {
            self.block = None;
            return Err(damage.into());
        }
        Ok(())
    }

    /// Loads block `number`, or the first after it that the walk goes through, and that is whole, where damaged ones
    /// are left out.
    fn load(&mut self, disk: &mut dyn Disk, mut number: u32) -> Result<(), Error> {
        loop {
            let next = self.blocks.next_from(number).filter(|&next| next < self.blocks_end);
            let Some(next) = next else {
                self.block = None;
                return Ok(());
            };
            number = next;
            match (self.load_from(disk, number, number), &mut self.cut_out) {
                (Err(Error::Damaged(damage)), Some(lost)) => {
                    let range = self.table.lost_block(number, damage);
                    let is_full = lost.len() >= LOST_RANGES_MAX;
                    match lost.last_mut() {
                        Some(last) if is_full || last.end == range.start => last.end = range.end,
                        _ => lost.push(range),
                    }
                    number += 1;
                }
                (loaded, _) => return loaded,
            }
        }
    }

    /// Loads a block for a walk that goes back: it reads what is before it, too.
    fn load_back(&mut self, disk: &mut dyn Disk, number: u32) -> Result<(), Error> {
        let blocks = (0..=number).rev().map_while(|number| self.table.block(number));
        let mut len = 0;
        let window = blocks.take_while(|block| {
            len += block.len as usize;
            len <= READAHEAD_BYTES
        });
        let first = window.last().map_or(number, |block| block.index);
        self.ahead = READAHEAD_BYTES;
        self.load_from(disk, number, first)
    }

    /// Loads block `number`; if it is not in the window, the window will begin with block `first`.
    fn load_from(&mut self, disk: &mut dyn Disk, number: u32, first: u32) -> Result<(), Error> {
        self.block = None;
        let Some(handle) = self.table.block(number) else { return Ok(()) };
        let len = handle.len as usize;
        let mut at = self.window_offset(handle.offset, len);
        if at.is_none() {
            self.read_ahead(disk, first)?;
            at = self.window_offset(handle.offset, len);
        }
        let at = at.ok_or_else(|| damage(self.table.id(), handle.offset, "the file ends early"))?;
        let block = Block::parse(self.window.slice(at..at + len), self.table.id(), handle.offset)?;
        self.items.clear();
        self.first = 0;
        self.key.clear();
        self.key.extend_from_slice(block.prefix());
        self.prefix_len = self.key.len();
        self.key.resize(self.prefix_len + SUFFIX_BYTES, 0);
        self.shared = 0;
        self.block = Some((number, block));
        Ok(())
    }

    fn window_offset(&self, offset: u64, len: usize) -> Option<usize> {
        let at = usize::try_from(offset.checked_sub(self.window_at)?).ok()?;
        (at.checked_add(len)? <= self.window.len()).then_some(at)
    }

    /// Reads block `first` and as many after it as fit what is read next and are gone through.
    fn read_ahead(&mut self, disk: &mut dyn Disk, first: u32) -> Result<(), Error> {
        let mut blocks = (first..).map_while(|number| self.table.block(number));
        let Some(handle) = blocks.next() else { return Ok(()) };
        let mut len = handle.len as usize;
        for block in blocks.take_while(|block| block.index < self.blocks_end) {
            if len + block.len as usize > self.ahead
                || self.blocks.next_from(block.index) != Some(block.index)
            {
                // A walk that has come so far goes on.
                if self.ahead == READAHEAD_BYTES
                    && let Some(next) = self.blocks.next_from(block.index)
                    && let Some(next) = self.table.block(next)
                {
                    disk.will_read(self.table.file(), next.offset, READAHEAD_BYTES);
                }
                break;
            }
            len += block.len as usize;
        }
        self.window = disk::read(disk, self.table.file(), handle.offset, len)?;
        self.window_at = handle.offset;
        self.ahead = (self.ahead * 4).min(READAHEAD_BYTES);
        Ok(())
    }
}

/// Puts a suffix, which lies in `bytes`, behind a prefix. The key has room for more, or is made longer.
#[inline]
fn copy_suffix(key: &mut Vec<u8>, prefix_len: usize, bytes: &[u8], suffix: &Range<usize>) {
    // Most suffixes are short: a copy of a length that the compiler knows is cheap. What is behind the suffix is room
    // in the key.
    let from = bytes.get(suffix.start..).and_then(|bytes| bytes.first_chunk::<SUFFIX_BYTES>());
    let to = key.get_mut(prefix_len..).and_then(|key| key.first_chunk_mut::<SUFFIX_BYTES>());
    match (from, to) {
        (Some(from), Some(to)) if suffix.len() <= SUFFIX_BYTES => *to = *from,
        _ => copy_long_suffix(key, prefix_len, &bytes[suffix.clone()]),
    }
}

#[cold]
fn copy_long_suffix(key: &mut Vec<u8>, prefix_len: usize, suffix: &[u8]) {
    let end = prefix_len + suffix.len();
    if key.len() < end {
        key.resize(end, 0);
    }
    key[prefix_len..end].copy_from_slice(suffix);
}
