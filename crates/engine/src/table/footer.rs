//! A table's last bytes: what it holds, and where its parts are.
//!
//! ```text
//! meta:   entries u64 | deletions u64 | inlines u64 | min_seq u64 | max_seq u64 | min_jsn u64 | max_jsn u64 |
//!         min_key_len u32 | min_key | max_key_len u32 | max_key | expiring u64 | last_expiry_ms u64 | cut_seq u64 |
//!         segments_len u64 | directory_len u32 | directory_crc u32
//! footer: table u64 | blocks_len u64 | filter_len u32 | index_len u32 | meta_len u32 |
//!         filter_crc u32 | index_crc u32 | meta_crc u32 | version u32 | crc u32 | magic u64
//! ```
//!
//! The file is blocks, segments, filter, index, meta and footer, with nothing between them, so the lengths must add up
//! to the file's. The footer's length and its last 16 bytes are the same in every version. The segments of version 3
//! have larger buckets, and its meta no `directory_len`. Version 2 has no segments, and its meta ends with `cut_seq`.
//! Version 1 has no entries that expire either, and its meta ends with the last key.

use super::fields::{Fields, put_bytes};
use super::segments::{Buckets, Directory};
use super::{TableId, damage};
use crate::entry::{Entry, Jsn, Location, Seq};
use crate::error::Error;
use base::checksum::crc32c;
use bytes::Bytes;

/// The version written, and the newest that is read.
pub const TABLE_VERSION: u32 = 4;

/// The oldest version that is read.
const TABLE_VERSION_MIN: u32 = 1;

pub(super) const FOOTER_BYTES: usize = 8 + 8 + 6 * 4 + 4 + 4 + 8;
const CRC_AT: usize = FOOTER_BYTES - 12;
const MAGIC: [u8; 8] = *b"ANULTABL";

/// What a table holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMeta {
    /// How many entries, each of another key.
    pub entries: u64,
    /// How many of them are deletions.
    pub deletions: u64,
    /// How many of them hold their value: the table is its only home.
    pub inlines: u64,
    /// The least seq.
    pub min_seq: Seq,
    /// The greatest seq.
    pub max_seq: Seq,
    /// The least jsn.
    pub min_jsn: Jsn,
    /// The greatest jsn.
    pub max_jsn: Jsn,
    /// The first key.
    pub min_key: Bytes,
    /// The last key.
    pub max_key: Bytes,
    /// How many entries expire.
    pub expiring: u64,
    /// When the last of them does, in milliseconds since 1970; 0 if none does.
    pub last_expiry_ms: u64,
    /// What range drops up to this one have dropped is not here.
    pub cut_seq: Seq,
}

impl TableMeta {
    /// What a table of nothing would hold; entries are added with [`TableMeta::count`].
    pub(super) fn empty() -> TableMeta {
        TableMeta {
            entries: 0,
            deletions: 0,
            inlines: 0,
            min_seq: Seq(u64::MAX),
            max_seq: Seq(0),
            min_jsn: Jsn(u64::MAX),
            max_jsn: Jsn(0),
            min_key: Bytes::new(),
            max_key: Bytes::new(),
            expiring: 0,
            last_expiry_ms: 0,
            cut_seq: Seq(0),
        }
    }

    /// Counts one entry in. The keys are the builder's concern.
    pub(super) fn count(&mut self, seq: Seq, entry: &Entry<'_>) {
        self.entries += 1;
        self.deletions += u64::from(entry.location == Location::Deleted);
        self.inlines += u64::from(entry.location == Location::Inline);
        self.min_seq = self.min_seq.min(seq);
        self.max_seq = self.max_seq.max(seq);
        self.min_jsn = self.min_jsn.min(entry.jsn);
        self.max_jsn = self.max_jsn.max(entry.jsn);
        self.expiring += u64::from(entry.expires_ms.is_some());
        self.last_expiry_ms = self.last_expiry_ms.max(entry.expires_ms.unwrap_or(0));
    }

    /// When every version here has ended, in milliseconds since 1970, if all that are no deletions do end.
    pub fn ends_ms(&self) -> Option<u64> {
        (self.expiring > 0 && self.expiring + self.deletions == self.entries).then_some(self.last_expiry_ms)
    }

    /// Whether `key` lies between the first and the last key.
    #[inline]
    pub fn covers(&self, key: &[u8]) -> bool {
        *self.min_key <= *key && *key <= *self.max_key
    }

    /// Whether any key from `min` to `max` can be here.
    pub fn overlaps(&self, min: &[u8], max: &[u8]) -> bool {
        *self.min_key <= *max && *min <= *self.max_key
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for number in [
            self.entries,
            self.deletions,
            self.inlines,
            self.min_seq.0,
            self.max_seq.0,
            self.min_jsn.0,
            self.max_jsn.0,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put_bytes(out, &self.min_key);
        put_bytes(out, &self.max_key);
        for number in [self.expiring, self.last_expiry_ms, self.cut_seq.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Reads what [`TableMeta::encode`] wrote, or, unless `expiring`, what version 1 did.
    pub(crate) fn decode(fields: &mut Fields<'_>, expiring: bool) -> Option<TableMeta> {
        let mut meta = TableMeta {
            entries: fields.u64()?,
            deletions: fields.u64()?,
            inlines: fields.u64()?,
            min_seq: Seq(fields.u64()?),
            max_seq: Seq(fields.u64()?),
            min_jsn: Jsn(fields.u64()?),
            max_jsn: Jsn(fields.u64()?),
            min_key: Bytes::copy_from_slice(fields.bytes()?),
            max_key: Bytes::copy_from_slice(fields.bytes()?),
            expiring: 0,
            last_expiry_ms: 0,
            cut_seq: Seq(0),
        };
        if expiring {
            (meta.expiring, meta.last_expiry_ms) = (fields.u64()?, fields.u64()?);
            meta.cut_seq = Seq(fields.u64()?);
        }
        let sane = meta.entries > 0
            && meta.deletions.checked_add(meta.inlines)? <= meta.entries
            && meta.deletions.checked_add(meta.expiring)? <= meta.entries
            && meta.min_seq <= meta.max_seq
            && meta.min_jsn <= meta.max_jsn
            && meta.min_key <= meta.max_key;
        sane.then_some(meta)
    }
}

/// Where a table's segments are, as the end of its meta data tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentsPart {
    /// Where they begin in the file.
    pub at: u64,
    /// How long they are.
    pub len: u64,
    /// The lengths of their buckets, which stand at their front.
    pub directory: Directory,
    /// What they are divided into.
    pub buckets: Buckets,
}

impl SegmentsPart {
    /// What the meta data tells of them.
    #[cfg(test)]
    pub const BYTES: usize = 8 + 4 + 4;

    pub fn encode(len: u64, directory: Directory, buckets: Buckets, out: &mut Vec<u8>) {
        out.extend_from_slice(&len.to_le_bytes());
        if buckets.directory_len().is_none() {
            let len = u32::try_from(directory.len).expect("a table is far below 4 GiB");
            out.extend_from_slice(&len.to_le_bytes());
        }
        out.extend_from_slice(&directory.crc.to_le_bytes());
    }

    /// Reads what [`SegmentsPart::encode`] wrote, of segments at `at`.
    pub fn decode(fields: &mut Fields<'_>, at: u64, buckets: Buckets) -> Option<SegmentsPart> {
        let len = fields.u64()?;
        let directory_len = match buckets.directory_len() {
            Some(len) => len,
            None => usize::try_from(fields.u32()?).ok()?,
        };
        let directory = Directory { len: directory_len, crc: fields.u32()? };
        (directory.len as u64 <= len).then_some(SegmentsPart { at, len, directory, buckets })
    }
}

/// The footer's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub table: TableId,
    pub blocks_len: u64,
    pub filter_len: u32,
    pub index_len: u32,
    pub meta_len: u32,
    pub filter_crc: u32,
    pub index_crc: u32,
    pub meta_crc: u32,
    pub version: u32,
}

impl Footer {
    /// Whether the meta data tells of entries that expire: since version 2.
    pub fn has_expiry(&self) -> bool {
        self.version > 1
    }

    /// Whether it has segments: since version 3.
    pub fn has_segments(&self) -> bool {
        self.version > 2
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.table.0.to_le_bytes());
        out.extend_from_slice(&self.blocks_len.to_le_bytes());
        for number in [
            self.filter_len,
            self.index_len,
            self.meta_len,
            self.filter_crc,
            self.index_crc,
            self.meta_crc,
            self.version,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c(&out[start..]);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        debug_assert_eq!(out.len() - start, FOOTER_BYTES);
    }

    /// Reads the footer of `table`, whose file is `file_len` long.
    pub fn decode(bytes: &[u8], table: TableId, file_len: u64) -> Result<Footer, Error> {
        let offset = file_len.saturating_sub(FOOTER_BYTES as u64);
        let bad = |what| Error::from(damage(table, offset, what));
        if bytes.len() != FOOTER_BYTES {
            return Err(bad("the file is too short for a footer"));
        }
        let mut crc = Fields::new(&bytes[CRC_AT..]);
        if bytes[CRC_AT + 4..] != MAGIC || crc.u32() != Some(crc32c(&bytes[..CRC_AT])) {
            return Err(bad("the footer's checksum"));
        }
        let footer = Footer::fields(bytes).ok_or(bad("the footer's layout"))?;
        if !(TABLE_VERSION_MIN..=TABLE_VERSION).contains(&footer.version) {
            let what =
                format!("a table of version {}; this program knows up to {TABLE_VERSION}", footer.version);
            return Err(Error::Format { file: table.file_name(), what });
        }
        if footer.table != table {
            return Err(bad("the footer is of another table"));
        }
        // Between the blocks and the filter may be segments; how long they are is in the meta data.
        if footer.file_len().is_none_or(|len| len > file_len || (len < file_len && !footer.has_segments())) {
            return Err(bad("the file's length is not that of its parts"));
        }
        Ok(footer)
    }

    /// How long filter, index and meta are together.
    pub fn tail_len(&self) -> Option<usize> {
        let len = u64::from(self.filter_len) + u64::from(self.index_len) + u64::from(self.meta_len);
        usize::try_from(len).ok()
    }

    /// The file's length, but for segments.
    fn file_len(&self) -> Option<u64> {
        self.blocks_len.checked_add(self.tail_len()? as u64)?.checked_add(FOOTER_BYTES as u64)
    }

    fn fields(bytes: &[u8]) -> Option<Footer> {
        let mut fields = Fields::new(bytes);
        Some(Footer {
            table: TableId(fields.u64()?),
            blocks_len: fields.u64()?,
            filter_len: fields.u32()?,
            index_len: fields.u32()?,
            meta_len: fields.u32()?,
            filter_crc: fields.u32()?,
            index_crc: fields.u32()?,
            meta_crc: fields.u32()?,
            version: fields.u32()?,
        })
    }
}
