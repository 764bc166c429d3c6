//! A key's newest version in a snapshot, with reads that wait: for any thread but a shard's.
//!
//! 1. The memtables, newest first.
//! 2. Each table that may hold the key, newest first: filter, index, block.
//! 3. If the value is wanted and in the journal: its record.

use super::{RecordAt, SharedBlocks, Snapshot};
use crate::entry::{Entry, Jsn, Location, Seq};
use crate::error::Error;
use crate::memtable;
use crate::store::{Found, Segments, Want};
use crate::table::{Block, BlockHandle, Table};
use base::{Disk, disk};
use bytes::Bytes;

/// Where blocks come from: a cache, the page cache, the disk.
pub(super) struct Blocks<'a> {
    pub disk: &'a mut dyn Disk,
    pub cache: &'a SharedBlocks,
}

/// The newest version of a key.
pub(super) struct Newest {
    pub seq: Seq,
    pub jsn: Jsn,
    pub location: Location,
    pub head: Bytes,
    pub inline: Bytes,
    pub expires_ms: Option<u64>,
}

impl Snapshot {
    /// Head, and value if it is wanted, of a key's newest version.
    pub(super) fn find(
        &self,
        key: &[u8],
        want: Want,
        blocks: &mut Blocks<'_>,
    ) -> Result<Option<Found>, Error> {
        match self.newest(key, blocks)? {
            Some(newest) => newest.into_found(key, want, &self.segments, blocks.disk).map(Some),
            None => Ok(None),
        }
    }

    /// The newest version of `key`, unless it is gone.
    pub(super) fn newest(&self, key: &[u8], blocks: &mut Blocks<'_>) -> Result<Option<Newest>, Error> {
        let hash = memtable::hash(key);
        let mut cursor = self.version.cursor(key, |table| table.prefetch_filter(hash));
        let in_memtable = self.memtables.iter().find_map(|table| table.get_hashed(key, hash, self.seq.0));
        if let Some((seq, bytes)) = in_memtable {
            return self.shown(key, Seq(seq), Entry::decode(bytes)?, Bytes::copy_from_slice);
        }
        let may_hold = |table: &Table| table.may_contain(hash);
        while let Some(table) = self.version.next_table_if(key, &mut cursor, may_hold) {
            let Some(handle) = table.find_block(key) else { continue };
            let block = blocks.get(table, handle)?;
            if let Some((seq, bytes)) = block.find_hashed(key, hash)? {
                return self.shown(key, seq, Entry::decode(bytes)?, |part| block.share(part));
            }
        }
        self.lost.check_missing(key)?;
        Ok(None)
    }

    /// The head of a key's newest version.
    pub(crate) fn head(
        &self,
        key: &[u8],
        disk: &mut dyn Disk,
        cache: &SharedBlocks,
    ) -> Result<Option<Bytes>, Error> {
        Ok(self.newest(key, &mut Blocks { disk, cache })?.map(|newest| newest.head))
    }

    fn shown(
        &self,
        key: &[u8],
        seq: Seq,
        entry: Entry<'_>,
        keep: impl Fn(&[u8]) -> Bytes,
    ) -> Result<Option<Newest>, Error> {
        self.lost.check_found(key, seq)?;
        if self.is_gone(key, seq, &entry) {
            return Ok(None);
        }
        let Entry { jsn, location, head, inline, expires_ms } = entry;
        Ok(Some(Newest { seq, jsn, location, head: keep(head), inline: keep(inline), expires_ms }))
    }
}

impl Newest {
    /// With its value, if that is wanted.
    pub fn into_found(
        self,
        key: &[u8],
        want: Want,
        segments: &Segments,
        disk: &mut dyn Disk,
    ) -> Result<Found, Error> {
        let value = match (want, self.location) {
            (Want::Head, _) => None,
            (Want::Value, Location::Journal { offset, len }) => {
                let at = RecordAt::new(segments, self.jsn, self.seq, offset, len)?;
                let data = disk::read(disk, at.file, u64::from(at.offset), at.len as usize)?;
                return at.check(key, data);
            }
            (Want::Value, _) => Some(self.inline),
        };
        Ok(Found { seq: self.seq, head: self.head, value, expires_ms: self.expires_ms })
    }
}

impl Blocks<'_> {
    fn get(&mut self, table: &Table, handle: BlockHandle) -> Result<Block, Error> {
        if let Some(block) = self.cache.get(table.id(), handle.index) {
            return Ok(block);
        }
        let data = disk::read(self.disk, table.file(), handle.offset, handle.len as usize)?;
        let block = Block::parse(data, table.id(), handle.offset)?;
        self.cache.insert(table.id(), handle.index, block.clone());
        Ok(block)
    }
}
