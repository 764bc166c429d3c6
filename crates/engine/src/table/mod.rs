//! A table: an immutable file of ledger entries in key order, one version of each key.
//!
//! ```text
//! block * n | segments | filter | index | meta | footer
//! ```
//!
//! Invariants:
//! - every byte of the file is under a checksum, and each structure is checked before it is believed: damage is
//!   an [`Error::Damaged`], never a missing key and never an older version;
//! - the filter, the index and what the table holds are in memory while it is open; blocks are read one by one, and of
//!   the segments what is asked for ([`Table::blocks_of`]), of which the lengths of the buckets stay.
//!
//! A lookup hashes its key once ([`crate::memtable::hash`]) and then, for each table:
//! 1. [`Table::may_contain`] asks the filter.
//! 2. [`Table::find_block`] names the one block.
//! 3. The caller gets its bytes, from a cache or the disk.
//! 4. [`Block::parse`] checks them.
//! 5. [`Block::find`] looks.
//!
//! A table that is in no version any more is marked obsolete ([`Table::retire`]); the store removes its file when
//! no snapshot shares it. Left out: compression, and several versions of a key, since snapshots hold whole tables.
//!
//! Follows LevelDB's tables. The format's page is docs/formats/table.md.

mod block;
mod builder;
pub(crate) mod fields;
mod filter;
mod footer;
mod index;
mod iter;
mod keys;
mod segments;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use block::{BLOCK_BYTES_TARGET, Block};
pub use builder::TableBuilder;
pub use filter::FilterBits;
pub use footer::{TABLE_VERSION, TableMeta};
pub use index::BlockHandle;
pub use iter::TableIter;
pub use keys::KeyArray;
pub(crate) use keys::{common_prefix, hint};

use crate::entry::Seq;
use crate::error::{Damage, Error};
use crate::key_segments::KeySegments;
use crate::lost::LostRange;
use base::Disk;
use base::checksum::crc32c;
use base::disk::{self, DiskOp, FileId, OpenMode};
use bytes::Bytes;
use filter::Filter;
use footer::{FOOTER_BYTES, Footer, SegmentsPart};
use index::Index;
use segments::{Buckets, Wanted};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A table's number, which is its file's name. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TableId(pub u64);

impl TableId {
    /// The file's name: 16 hexadecimal digits and `.tbl`.
    pub fn file_name(self) -> String {
        format!("{:016x}.tbl", self.0)
    }

    /// The table that a file of this name holds; `None` if the name is not a table's.
    pub fn from_file_name(name: &str) -> Option<TableId> {
        let id = TableId(u64::from_str_radix(name.strip_suffix(".tbl")?, 16).ok()?);
        (id.file_name() == name).then_some(id)
    }
}

/// How many keys [`Table::sample_keys`] gives at most.
const SAMPLE_KEYS: usize = 64;

/// An open table.
#[derive(Debug)]
pub struct Table {
    id: TableId,
    path: PathBuf,
    file: FileId,
    len: u64,
    meta: TableMeta,
    index: Index,
    filter: Filter,
    /// `None` in a table of an older version.
    segments: Option<SegmentsPart>,
    /// The lengths of the segments' buckets, once somebody has asked for some.
    directory: OnceLock<Bytes>,
    obsolete: AtomicBool,
}

impl Table {
    /// Opens the table `id` in `dir`, and checks all of it but its blocks. Blocks until it has been read.
    pub fn open(disk: &mut dyn Disk, dir: &Path, id: TableId) -> Result<Table, Error> {
        let path = dir.join(id.file_name());
        let (file, len) = disk::open(disk, &path, OpenMode::Read)?;
        let table = Table::load(disk, path, file, id, len);
        if table.is_err() {
            // What was wrong with the table matters; that its file would not close does not.
            disk::run(disk, DiskOp::Close { file }).ok();
        }
        table
    }

    fn load(disk: &mut dyn Disk, path: PathBuf, file: FileId, id: TableId, len: u64) -> Result<Table, Error> {
        let footer_at = len.saturating_sub(FOOTER_BYTES as u64);
        let footer = Footer::decode(&disk::read(disk, file, footer_at, FOOTER_BYTES)?, id, len)?;
        let tail_len = footer.tail_len().expect("checked by decode");
        let tail_at = footer_at - tail_len as u64;
        let mut tail = disk::read(disk, file, tail_at, tail_len)?;
        if tail.len() != tail_len {
            return Err(damage(id, tail_at, "the file ends early").into());
        }
        let mut offset = tail_at;
        let mut part = |len: u32, crc: u32, what| {
            let (at, bytes) = (offset, tail.split_to(len as usize));
            offset += u64::from(len);
            if crc32c(&bytes) == crc { Ok((at, bytes)) } else { Err(damage(id, at, what)) }
        };
        let (filter_at, filter) = part(footer.filter_len, footer.filter_crc, "the filter's checksum")?;
        let (index_at, index) = part(footer.index_len, footer.index_crc, "the index's checksum")?;
        let (meta_at, meta) = part(footer.meta_len, footer.meta_crc, "the meta data's checksum")?;
        let layout = |at| move || damage(id, at, "the layout");
        let (meta, segments) = decode_meta(&meta, &footer).ok_or_else(layout(meta_at))?;
        let segments_len = segments.map_or(0, |segments| segments.len);
        if footer.blocks_len.checked_add(segments_len) != Some(tail_at) {
            return Err(damage(id, footer.blocks_len, "the file's length is not that of its parts").into());
        }
        Ok(Table {
            id,
            path,
            file,
            len,
            filter: Filter::decode(&filter).ok_or_else(layout(filter_at))?,
            index: Index::decode(&index, footer.blocks_len).ok_or_else(layout(index_at))?,
            meta,
            segments,
            directory: OnceLock::new(),
            obsolete: AtomicBool::new(false),
        })
    }

    /// False if the key of this hash is certainly not here.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// Has memory fetched that [`Table::may_contain`] will look at.
    #[inline]
    pub fn prefetch_filter(&self, hash: u64) {
        self.filter.prefetch(hash);
    }

    /// The one block that can hold `key`; `None` if `key` is before all of them.
    #[inline]
    pub fn find_block(&self, key: &[u8]) -> Option<BlockHandle> {
        self.index.find(key)
    }

    /// The block numbered `index`, if there are so many.
    pub fn block(&self, index: u32) -> Option<BlockHandle> {
        self.index.block(index)
    }

    /// The keys of which block `index` had versions, when it is lost.
    pub fn lost_block(&self, index: u32, damage: Damage) -> LostRange {
        let below = Seq(self.meta.max_seq.0.saturating_add(1));
        let start = self.index.lower_bound(index).unwrap_or_else(|| self.meta.min_key.to_vec());
        match self.index.lower_bound(index + 1) {
            Some(end) => LostRange { start: start.into(), end: end.into(), below, damage },
            None => LostRange::of_keys(&start, &self.meta.max_key, below, damage),
        }
    }

    /// Keys that part its blocks about evenly.
    pub(crate) fn sample_keys(&self) -> impl Iterator<Item = Vec<u8>> {
        let step = self.blocks().div_ceil(SAMPLE_KEYS).max(1);
        (0..self.blocks()).step_by(step).filter_map(|at| self.index.lower_bound(u32::try_from(at).ok()?))
    }

    /// Reads and checks a block. Blocks: for jobs and start-up.
    pub fn read_block(&self, disk: &mut dyn Disk, block: BlockHandle) -> Result<Block, Error> {
        let bytes = disk::read(disk, self.file, block.offset, block.len as usize)?;
        Ok(Block::parse(bytes, self.id, block.offset)?)
    }

    /// The numbers of the blocks that may hold keys of `wanted`, ascending; `None` if the table does not say, as those
    /// of older versions. Blocks: for jobs.
    pub fn blocks_of(&self, disk: &mut dyn Disk, wanted: &KeySegments) -> Result<Option<Vec<u32>>, Error> {
        let Some(part) = self.segments else { return Ok(None) };
        let directory = match self.directory.get() {
            Some(directory) => directory,
            None => {
                let directory = self.read_directory(disk, part)?;
                self.directory.get_or_init(|| directory)
            }
        };
        self.find_blocks(disk, part, directory, wanted).map(Some)
    }

    /// The lengths of the segments' buckets. Blocks.
    fn read_directory(&self, disk: &mut dyn Disk, part: SegmentsPart) -> Result<Bytes, Error> {
        let directory = disk::read(disk, self.file, part.at, part.directory.len)?;
        match crc32c(&directory) == part.directory.crc {
            true => Ok(directory),
            false => Err(damage(self.id, part.at, "the checksum of the segments").into()),
        }
    }

    fn find_blocks(
        &self,
        disk: &mut dyn Disk,
        part: SegmentsPart,
        directory: &[u8],
        wanted: &KeySegments,
    ) -> Result<Vec<u32>, Error> {
        let bad = |at, what| Error::from(damage(self.id, part.at + at, what));
        let mut looks = Wanted::new(directory, part.buckets, part.len, wanted)
            .ok_or_else(|| bad(0, "the layout of the segments"))?;
        let mut found = Vec::new();
        for (at, count) in looks.reads() {
            let len = usize::try_from(at.end - at.start).unwrap_or(usize::MAX);
            let bytes = disk::read(disk, self.file, part.at + at.start, len)?;
            looks
                .find(self.id, count, at.start, &bytes, self.blocks(), &mut found)
                .map_err(|(at, what)| bad(at, what))?;
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Reads and checks all of the segments. Blocks.
    pub fn check_segments(&self, disk: &mut dyn Disk) -> Result<(), Error> {
        let Some(part) = self.segments else { return Ok(()) };
        // What is in memory says nothing about the file.
        let directory = self.read_directory(disk, part)?;
        self.find_blocks(disk, part, &directory, &KeySegments::new(0, [0])?).map(drop)
    }

    /// Whether it has just the segments of keys with these hashes, in their order; `ends` says for each block how many
    /// keys are in it and those before it. Blocks.
    pub(crate) fn has_segments_of(
        &self,
        disk: &mut dyn Disk,
        hashes: &[u64],
        ends: &[usize],
    ) -> Result<bool, Error> {
        let Some(part) = self.segments else { return Ok(true) };
        let mut expected = Vec::new();
        segments::encode(self.id, part.buckets, hashes, ends, &mut expected);
        let len = usize::try_from(part.len).unwrap_or(usize::MAX);
        Ok(expected.len() == len && disk::read(disk, self.file, part.at, len)? == expected)
    }

    /// Its number.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Its file, open for reading.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// Where its file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its file's length.
    #[expect(clippy::len_without_is_empty, reason = "a table always has an entry")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// What it holds.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> usize {
        self.index.blocks()
    }

    /// Bytes of memory that its filter and index take, and what is kept of its segments.
    pub fn memory(&self) -> usize {
        self.filter.memory() + self.index.memory() + self.directory.get().map_or(0, Bytes::len)
    }

    /// Marks it as being in no version any more: its file goes when the last one who shares it has let go.
    pub fn retire(&self) {
        self.obsolete.store(true, Ordering::Relaxed);
    }

    /// Whether it has been retired.
    pub fn is_obsolete(&self) -> bool {
        self.obsolete.load(Ordering::Relaxed)
    }

    /// What closes its file.
    pub fn close_op(&self) -> DiskOp {
        DiskOp::Close { file: self.file }
    }

    /// What removes its file. To be run after [`Table::close_op`], by whoever holds the last share.
    pub fn remove_op(&self) -> DiskOp {
        DiskOp::Remove { path: self.path.clone() }
    }
}

fn decode_meta(bytes: &Bytes, footer: &Footer) -> Option<(TableMeta, Option<SegmentsPart>)> {
    let mut fields = fields::Fields::new(bytes);
    let meta = TableMeta::decode(&mut fields, footer.has_expiry())?;
    let segments = match footer.has_segments() {
        true => {
            let buckets = Buckets::of(meta.entries, footer.version);
            Some(SegmentsPart::decode(&mut fields, footer.blocks_len, buckets)?)
        }
        false => None,
    };
    fields.end()?;
    Some((meta, segments))
}

#[cold]
fn damage(table: TableId, offset: u64, what: &'static str) -> Damage {
    Damage { file: table.file_name(), offset, what }
}
