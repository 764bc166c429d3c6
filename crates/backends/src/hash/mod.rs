//! A hash index in memory over blocks on the disk: the shape of Aerospike's stores.
//!
//! A write appends records to the newest block; a read is one look into the index and one read of the disk, and so is a
//! HEAD. A key takes some 30 to 60 bytes of memory, whatever its length: the index has a digest in its place, and the
//! key is with its record.
//!
//! Invariants:
//!
//! * The log is the blocks in the order of their lives: of two records of one key the one behind counts.
//! * Every block but the newest is whole and synced, and ends with a record of which block comes next.
//! * A batch is in one block, in one write; its records but the last say that more follows.
//! * A delete stays on the disk as long as a record that it covers: the index counts each key's records there.
//!
//! When a block is full, its end is written and synced, and the log goes on in one that is free, or in a new one. Where
//! no block is free, some that are at least half waste are *reclaimed* (`reclaim.rs`): what is live in them is copied
//! to the end of the log. Such a block is free, and what it has counts as being on the disk until a block's end, which
//! syncs the copies, says that the log goes on there.
//!
//! At opening all blocks are read, in the order of the log (`load.rs`). What is torn at the end of the newest was
//! promised to nobody; damage before that is an error, as are damaged values when they are read. What cannot be told is
//! that somebody has cut the file: how long it was is written nowhere but in what was cut off, and a place for it would
//! be one more write and sync for each block that the file grows by. While blocks were new, such a store is what it
//! once was; once some were written over, newer records are missing beside older ones.
//!
//! Keys are in no order: a fold reads all blocks and sorts the keys of its range, so many at a time as have room
//! (`fold.rs`).
//!
//! Follows Aerospike's documentation of its storage engine. Left out: a device without a file system; objects longer
//! than a block; expiry; reclaiming beside writes: the write that fills a block waits for it.

pub mod block;
mod digest;
mod fold;
mod index;
mod load;
mod reclaim;

use crate::backend::{Backend, Limits, Object, Visit, What, Write};
use crate::error::Error;
use crate::kind::Settings;
use base::disk::{self, Disk, DiskOp, FileId};
use block::{BLOCK_HEADER_BYTES, END_BYTES, HEADER_BYTES, Kind, Life, Record, Superblock, padded};
use bytes::Bytes;
use digest::Hasher;
use engine::{Damage, Durability, Machine};
use index::{ALIGN, Entry, Index, Place};
use std::path::Path;

const NAME: &str = "hash";
const SUPERBLOCK: &str = "superblock";
const BLOCKS: &str = "blocks";

/// A new store's blocks are so many times shorter than files of a log: to reclaim some stops a write no longer than
/// that to merge them does not.
const BLOCKS_PER_SEGMENT: u64 = 64;

/// With less, ends and headers would be a part of it that counts.
const BLOCK_BYTES_MIN: u64 = 128 << 10;

/// Of a record so much is read at first when only its head is wanted.
const HEAD_READ_BYTES: usize = 512;

fn block_bytes(settings: &Settings) -> u32 {
    let bytes = settings.segment_bytes / BLOCKS_PER_SEGMENT;
    let bytes = bytes.clamp(BLOCK_BYTES_MIN, index::BLOCK_BYTES_MAX.into()) as u32;
    bytes.next_multiple_of(4096)
}

/// What it is told.
pub fn options(settings: &Settings) -> Vec<(&'static str, String)> {
    vec![("block_bytes", block_bytes(settings).to_string())]
}

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    state: State,
    /// Bytes of its records that are live.
    live_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing that it has counts.
    Blank,
    /// The log ends in it.
    Newest,
    /// It is full, of the life with this number.
    Full(u64),
    /// As such a one, and damaged: it is left as it is.
    Damaged(u64),
    /// Nothing in it is live; what it has counts as being on the disk.
    Free(u64),
}

/// The newest block.
#[derive(Clone, Copy, Debug)]
struct Newest {
    life: Life,
    /// Where the next record goes; 0 before the first, with which the block's header is written.
    len: u32,
    /// Up to where it is synced.
    synced: u32,
}

/// A store.
pub struct Hash {
    disk: Box<dyn Disk>,
    file: FileId,
    superblock: Superblock,
    /// Whether each write is synced before the next begins.
    is_synced: bool,
    hasher: Hasher,
    index: Index,
    /// By their numbers.
    blocks: Vec<Block>,
    /// Blocks that can be written over.
    free: Vec<u32>,
    /// Made by the first write.
    newest: Option<Newest>,
    /// Where the log goes on when there is no newest block.
    next: u32,
    /// The number of the last life.
    seq: u64,
    /// A block was begun since some were last reclaimed.
    has_begun: bool,
    /// Why it takes no more writes.
    fence: Option<String>,
}

fn failed(error: &base::DiskError) -> Error {
    Error::Failed { engine: NAME, what: error.to_string() }
}

fn damaged(block: u32, offset: u32, what: &'static str) -> Error {
    Error::Damaged(Damage { file: format!("block {block}"), offset: offset.into(), what })
}

fn record_len(write: &Write<'_>) -> usize {
    let content = match write {
        Write::Put { head, value, .. } => head.len() + value.len(),
        Write::Delete { .. } => 0,
    };
    padded(HEADER_BYTES + write.key().len() + content)
}

impl Hash {
    /// Opens the store in `folder`, or makes one.
    pub fn open(folder: &Path, settings: &Settings, machine: &Machine) -> Result<Hash, Error> {
        let mut disk = machine.disk();
        let mut rng = machine.rng();
        let (superblock, file, len) = load::files(&mut *disk, folder, block_bytes(settings), &mut *rng)?;
        let mut store = Hash {
            disk,
            file,
            superblock,
            is_synced: settings.durability == Durability::Sync,
            hasher: Hasher::new(&mut *rng),
            index: Index::new(),
            blocks: Vec::new(),
            free: Vec::new(),
            newest: None,
            next: 0,
            seq: 0,
            has_begun: false,
            fence: None,
        };
        store.load(len)?;
        Ok(store)
    }

    fn run(&mut self, op: DiskOp) -> Result<(), Error> {
        disk::run(&mut *self.disk, op).map(drop).map_err(|error| failed(&error))
    }

    fn read_at(&mut self, block: u32, offset: u32, len: usize) -> Result<Bytes, Error> {
        let offset = u64::from(block) * u64::from(self.superblock.block_bytes) + u64::from(offset);
        disk::read(&mut *self.disk, self.file, offset, len).map_err(|error| failed(&error))
    }

    /// All bytes of a block, as far as the file has them.
    fn read_block(&mut self, block: u32) -> Result<Bytes, Error> {
        self.read_at(block, 0, self.superblock.block_bytes as usize)
    }

    /// What one write can have.
    fn batch_bytes_max(&self) -> usize {
        self.superblock.block_bytes as usize - BLOCK_HEADER_BYTES - END_BYTES
    }

    fn check(&self, batch: &[Write<'_>]) -> Result<(), Error> {
        let mut bytes = 0;
        for write in batch {
            bytes += record_len(write);
            Error::check_len("a batch", bytes, self.batch_bytes_max())?;
        }
        Ok(())
    }

    /// Appends records to the log, as one batch or each by itself, and enters them into the index.
    fn append(&mut self, records: &[Write<'_>], is_batch: bool, sync: bool) -> Result<(), Error> {
        let bytes: usize = records.iter().map(record_len).sum();
        let end_max = self.superblock.block_bytes as usize - END_BYTES;
        if self.newest.is_some_and(|newest| newest.len as usize + bytes > end_max) {
            self.end_block()?;
        }
        let mut newest = match self.newest {
            Some(newest) => newest,
            None => self.begin_block(),
        };
        let (offset, mut data) = (newest.len, Vec::with_capacity(BLOCK_HEADER_BYTES + bytes));
        if newest.len == 0 {
            data.extend_from_slice(&newest.life.header());
        }
        let mut offsets = Vec::with_capacity(records.len());
        for (at, write) in records.iter().enumerate() {
            let (kind, head, value) = match *write {
                Write::Put { head, value, .. } => (Kind::Put, head, value),
                Write::Delete { .. } => (Kind::Delete, &[][..], &[][..]),
            };
            let (place, more) = (offset + data.len() as u32, is_batch && at + 1 < records.len());
            newest.life.push(&mut data, place, newest.synced, kind, more, write.key(), head, value);
            offsets.push(place);
        }
        newest.len += data.len() as u32;
        self.write_out(&mut newest, offset, data, sync)?;
        self.newest = Some(newest);
        for (write, offset) in records.iter().zip(offsets) {
            let place = Place { block: newest.life.block, offset, len: record_len(write) as u32 };
            self.apply(write.key(), place, matches!(write, Write::Delete { .. }));
        }
        Ok(())
    }

    fn write_out(
        &mut self,
        newest: &mut Newest,
        offset: u32,
        data: Vec<u8>,
        sync: bool,
    ) -> Result<(), Error> {
        let start = u64::from(newest.life.block) * u64::from(self.superblock.block_bytes);
        let room = start + u64::from(self.superblock.block_bytes);
        let (file, offset) = (self.file, start + u64::from(offset));
        self.run(DiskOp::Write { file, offset, data: data.into(), room, sync })?;
        if sync {
            newest.synced = newest.len;
        }
        Ok(())
    }

    /// Ends the newest block: it, and all before it, is durable then.
    fn end_block(&mut self) -> Result<(), Error> {
        let Some(mut newest) = self.newest else { return Ok(()) };
        if newest.synced < newest.len {
            // The end vouches for what is before it.
            self.run(DiskOp::Sync { file: self.file })?;
            newest.synced = newest.len;
        }
        let next = self.free.last().copied().unwrap_or(self.blocks.len() as u32);
        let (mut data, offset) = (Vec::with_capacity(END_BYTES), newest.len);
        let value = next.to_le_bytes();
        newest.life.push(&mut data, offset, newest.synced, Kind::End, false, b"", b"", &value);
        self.write_out(&mut newest, offset, data, true)?;
        self.blocks[newest.life.block as usize].state = State::Full(newest.life.seq);
        self.newest = None;
        self.next = next;
        if self.free.pop().is_some() {
            self.forget(next)?;
        }
        Ok(())
    }

    /// Begins a life of the block where the log goes on.
    fn begin_block(&mut self) -> Newest {
        let block = self.next;
        if block as usize == self.blocks.len() {
            self.blocks.push(Block { state: State::Blank, live_bytes: 0 });
        }
        let known = &mut self.blocks[block as usize];
        assert_eq!(*known, Block { state: State::Blank, live_bytes: 0 }, "it is written over");
        known.state = State::Newest;
        self.seq += 1;
        self.has_begun = true;
        Newest { life: self.superblock.life(block, self.seq), len: 0, synced: 0 }
    }

    /// Counts down what a free block has: the log goes on in it, and whoever opens the store takes it for blank.
    fn forget(&mut self, block: u32) -> Result<(), Error> {
        let life = self.life_of(block).expect("a free block has had a life");
        self.blocks[block as usize].state = State::Blank;
        let bytes = self.read_block(block)?;
        // What is behind damage stays counted: a delete may stay longer than it has to.
        for (_, record) in life.read(&bytes, false).records {
            let digest = self.hasher.digest(record.key);
            let Some(mut entry) = self.index.get(digest) else { continue };
            if entry.count == index::COUNT_MAX {
                continue;
            }
            let was_live = entry.is_live();
            entry.count -= 1;
            if entry.count == 0 {
                self.index.remove(digest);
                continue;
            }
            self.index.set(digest, entry);
            if was_live && !entry.is_live() {
                self.blocks[entry.place.block as usize].live_bytes -= entry.place.len;
            }
        }
        Ok(())
    }

    /// Enters a record, which is behind all others, into the index.
    fn apply(&mut self, key: &[u8], place: Place, is_delete: bool) {
        let digest = self.hasher.digest(key);
        let before = self.index.get(digest);
        let count = before.map_or(1, |before| (before.count + 1).min(index::COUNT_MAX));
        let entry = Entry { place, is_delete, count };
        self.index.set(digest, entry);
        if let Some(before) = before.filter(Entry::is_live) {
            self.blocks[before.place.block as usize].live_bytes -= before.place.len;
        }
        if entry.is_live() {
            self.blocks[place.block as usize].live_bytes += place.len;
        }
    }

    /// Where a key's object is.
    fn place(&self, key: &[u8]) -> Option<Place> {
        let entry = self.index.get(self.hasher.digest(key))?;
        (!entry.is_delete).then_some(entry.place)
    }

    fn life_of(&self, block: u32) -> Option<Life> {
        let seq = match self.blocks[block as usize].state {
            State::Newest => return self.newest.map(|newest| newest.life),
            State::Full(seq) | State::Damaged(seq) | State::Free(seq) => seq,
            State::Blank => return None,
        };
        Some(self.superblock.life(block, seq))
    }

    /// The record of `key` that `bytes`, which are from its place, begin with.
    fn parse<'a>(&self, bytes: &'a [u8], key: &[u8], place: Place) -> Result<Record<'a>, Error> {
        let life = self.life_of(place.block).expect("a place is in a block of the log");
        let found = life.parse(bytes, place.offset).filter(|it| it.key == key && it.kind == Kind::Put);
        found.ok_or_else(|| damaged(place.block, place.offset, "a record that should be here"))
    }

    fn read(&mut self, key: &[u8], place: Place) -> Result<Object, Error> {
        let bytes = self.read_at(place.block, place.offset, place.len as usize)?;
        let record = self.parse(&bytes, key, place)?;
        if !record.is_whole() {
            return Err(damaged(place.block, place.offset, "a value"));
        }
        Ok(Object { head: bytes.slice_ref(record.head), value: bytes.slice_ref(record.value) })
    }

    fn read_head(&mut self, key: &[u8], place: Place) -> Result<Bytes, Error> {
        let len = (place.len as usize).min(HEAD_READ_BYTES.max(HEADER_BYTES + key.len()));
        let mut bytes = self.read_at(place.block, place.offset, len)?;
        if let Some(front) =
            Life::front_len(&bytes).filter(|front| (len + 1..=place.len as usize).contains(front))
        {
            bytes = self.read_at(place.block, place.offset, front)?;
        }
        // A copy: what is kept of it must not keep its record.
        Ok(Bytes::copy_from_slice(self.parse(&bytes, key, place)?.head))
    }
}

impl Backend for Hash {
    fn write(&mut self, batch: &[Write<'_>]) -> Result<(), Error> {
        self.check(batch)?;
        if let Some(what) = &self.fence {
            let what = format!("it takes no writes since a failed one: {what}");
            return Err(Error::Failed { engine: NAME, what });
        }
        if batch.is_empty() {
            return Ok(());
        }
        let written = self.append(batch, true, self.is_synced);
        let written = written.and_then(|()| if self.has_begun { self.reclaim() } else { Ok(()) });
        self.fence = written.as_ref().err().map(ToString::to_string);
        written
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, Error> {
        self.place(key).map(|place| self.read(key, place)).transpose()
    }

    fn head(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.place(key).map(|place| self.read_head(key, place)).transpose()
    }

    fn fold(&mut self, from: &[u8], to: &[u8], what: What, visit: &mut Visit<'_>) -> Result<(), Error> {
        self.fold_sorted(from, to, what, visit)
    }

    fn limits(&self) -> Limits {
        let (batch_bytes, write_bytes) = (self.batch_bytes_max(), padded(HEADER_BYTES + ALIGN));
        Limits { batch_bytes, write_bytes, ..Limits::default() }
    }

    fn close(mut self: Box<Self>) -> Result<(), Error> {
        match self.fence {
            // What a failed write left is for the next start to judge.
            Some(_) => Ok(()),
            None => self.end_block(),
        }
    }
}

#[cfg(test)]
mod tests;
