//! Writes a table.
//!
//! Steps: 1. [`TableBuilder::create`] makes the file; 2. [`TableBuilder::add`] takes entries in key order and
//! writes full blocks in large pieces; 3. [`TableBuilder::finish`] appends segments, filter, index, meta and footer,
//! syncs and closes; 4. the caller syncs the directory, once for all the tables it has made.

use super::block::BlockBuilder;
use super::filter::{Filter, FilterBits};
use super::footer::{Footer, SegmentsPart, TABLE_VERSION};
use super::index::IndexBuilder;
use super::segments::{self, Buckets};
use super::{TableId, TableMeta};
use crate::Seq;
use crate::entry::{Entry, KEY_BYTES_MAX};
use crate::error::Error;
use crate::memtable::hash;
use base::Disk;
use base::checksum::crc32c;
use base::disk::{self, DiskOp, FileId, OpenMode};
use bytes::Bytes;
use std::path::{Path, PathBuf};

/// The file is written in pieces of this size: large enough for the device's full speed, small beside a slice.
const WRITE_BYTES: usize = 256 << 10;

/// The file is synced every so many bytes, so that no sync has much to write: a group commit of the journal that
/// comes behind it on the same device waits the less.
const SYNC_BYTES: u64 = 4 << 20;

/// A table under construction.
pub struct TableBuilder {
    id: TableId,
    path: PathBuf,
    file: FileId,
    /// What is not written yet; it goes to `written`.
    out: Vec<u8>,
    written: u64,
    unsynced: u64,
    block: BlockBuilder,
    index: IndexBuilder,
    filter_bits: FilterBits,
    hashes: Vec<u64>,
    /// For each block that was ended, how many keys are in it and those before.
    block_ends: Vec<usize>,
    meta: TableMeta,
    last_key: Vec<u8>,
}

impl TableBuilder {
    /// Makes the file of table `id` in `dir`, which must not exist.
    pub fn create(disk: &mut dyn Disk, dir: &Path, id: TableId) -> Result<TableBuilder, Error> {
        let path = dir.join(id.file_name());
        let (file, _) = disk::open(disk, &path, OpenMode::Create)?;
        Ok(TableBuilder {
            id,
            path,
            file,
            out: Vec::with_capacity(WRITE_BYTES + WRITE_BYTES / 8),
            written: 0,
            unsynced: 0,
            block: BlockBuilder::default(),
            index: IndexBuilder::default(),
            filter_bits: FilterBits::default(),
            hashes: Vec::new(),
            block_ends: Vec::new(),
            meta: TableMeta::empty(),
            last_key: Vec::new(),
        })
    }

    /// The same with filters of this size.
    pub fn with_filter(self, filter_bits: FilterBits) -> TableBuilder {
        TableBuilder { filter_bits, ..self }
    }

    /// Adds an entry, whose key must be after all before it. An entry that does not decode is refused.
    pub fn add(&mut self, disk: &mut dyn Disk, key: &[u8], seq: Seq, entry: &[u8]) -> Result<(), Error> {
        assert!(self.is_empty() || *self.last_key < *key, "the keys of a table ascend");
        assert!(key.len() <= KEY_BYTES_MAX, "a key was let in that is too long");
        let decoded = Entry::decode(entry)?;
        if self.block.is_full_for(key, entry) {
            self.end_block();
            self.write_if_large(disk)?;
        }
        if self.block.is_empty() {
            self.index.begin((!self.is_empty()).then_some(&self.last_key), key);
        }
        if self.is_empty() {
            self.meta.min_key = Bytes::copy_from_slice(key);
        }
        let hash = hash(key);
        self.block.add(key, hash, seq, entry);
        self.hashes.push(hash);
        self.meta.count(seq, &decoded);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    /// Notes that what range drops up to `seq` have dropped was left out.
    pub fn set_cut(&mut self, seq: Seq) {
        self.meta.cut_seq = seq;
    }

    /// True when nothing was added.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// About how long the file would be if it were finished now, but for the block that is not full.
    pub fn file_len(&self) -> u64 {
        let filter = self.hashes.len() * self.filter_bits.per_key() / 8;
        let segments = self.hashes.len() * segments::KEY_BYTES;
        self.written + (self.out.len() + segments + filter + self.index.len()) as u64
    }

    /// The table's number.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Ends the table, which must have an entry, and makes the file durable but not its name. The file is closed
    /// in any case; after an error it is there, and good for nothing.
    pub fn finish(mut self, disk: &mut dyn Disk) -> Result<TableMeta, Error> {
        assert!(!self.is_empty(), "a table of nothing");
        self.end_block();
        self.meta.max_key = Bytes::copy_from_slice(&self.last_key);
        let blocks_len = self.written + self.out.len() as u64;
        self.put_tail(blocks_len);
        let written = self.write(disk, true);
        let closed = disk::run(disk, DiskOp::Close { file: self.file });
        written?;
        closed?;
        Ok(self.meta)
    }

    /// Gives up: closes the file and removes it, as far as the disk lets it.
    pub fn abandon(self, disk: &mut dyn Disk) {
        disk::run(disk, DiskOp::Close { file: self.file }).ok();
        disk::run(disk, DiskOp::Remove { path: self.path }).ok();
    }

    fn put_tail(&mut self, blocks_len: u64) {
        let segments_at = self.out.len();
        let buckets = Buckets::of(self.meta.entries, TABLE_VERSION);
        let directory = segments::encode(self.id, buckets, &self.hashes, &self.block_ends, &mut self.out);
        let segments_len = (self.out.len() - segments_at) as u64;
        let mut crcs = [0; 3];
        let mut lens = [0; 3];
        for part in 0..3 {
            let start = self.out.len();
            match part {
                0 => Filter::new(&self.hashes, self.filter_bits).encode(&mut self.out),
                1 => self.index.encode(&mut self.out),
                _ => {
                    self.meta.encode(&mut self.out);
                    SegmentsPart::encode(segments_len, directory, buckets, &mut self.out);
                }
            }
            crcs[part] = crc32c(&self.out[start..]);
            lens[part] = u32::try_from(self.out.len() - start).expect("a table is far below 4 GiB");
        }
        let footer = Footer {
            table: self.id,
            blocks_len,
            filter_len: lens[0],
            index_len: lens[1],
            meta_len: lens[2],
            filter_crc: crcs[0],
            index_crc: crcs[1],
            meta_crc: crcs[2],
            version: TABLE_VERSION,
        };
        footer.encode(&mut self.out);
    }

    fn end_block(&mut self) {
        let start = self.out.len();
        self.block.finish(self.id, self.written + start as u64, &mut self.out);
        self.index.end(self.out.len() - start);
        self.block_ends.push(self.hashes.len());
    }

    fn write_if_large(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        if self.out.len() < WRITE_BYTES {
            return Ok(());
        }
        self.write(disk, self.unsynced + self.out.len() as u64 >= SYNC_BYTES)
    }

    fn write(&mut self, disk: &mut dyn Disk, sync: bool) -> Result<(), Error> {
        let out = std::mem::replace(&mut self.out, Vec::with_capacity(WRITE_BYTES + WRITE_BYTES / 8));
        let len = out.len() as u64;
        disk::run(
            disk,
            DiskOp::Write { file: self.file, offset: self.written, data: out.into(), room: 0, sync },
        )?;
        self.written += len;
        self.unsynced = if sync { 0 } else { self.unsynced + len };
        Ok(())
    }
}
