//! How far a pass has come, in a file of the store's folder (docs/formats/scrub.md). It is a note and no more: one that
//! is missing or damaged begins a pass anew.

use base::checksum::crc32c;
use base::disk::{self, DiskOp, OpenMode};
use base::spawn::{Job, Progress};
use base::{Disk, DiskError};
use bytes::Bytes;
use std::path::{Path, PathBuf};

/// The file's name in the store's folder.
pub(crate) const MARK_FILE: &str = "SCRUB";

const MAGIC: [u8; 8] = *b"ANULSCRB";
const VERSION: u32 = 1;
const MARK_BYTES: usize = 48;

/// Where a pass is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// When it began, in milliseconds since 1970.
    pub(crate) began_ms: u64,
    /// Segments that begin before this record are done.
    pub(crate) next_jsn: u64,
    /// Tables with lower numbers are done; 0 while segments are left.
    pub(crate) next_table: u64,
    /// Tables from this number on came after the pass had begun.
    pub(crate) tables_end: u64,
}

impl Mark {
    fn encode(&self) -> [u8; MARK_BYTES] {
        let mut out = [0; MARK_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let fields = [self.began_ms, self.next_jsn, self.next_table, self.tables_end];
        for (field, place) in fields.iter().zip(out[16..].chunks_exact_mut(8)) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        let crc = crc32c(&out[16..]);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Mark> {
        let head = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        let body = bytes.strip_prefix(&head[..])?;
        let (crc, body) = body.split_at_checked(4)?;
        if body.len() != MARK_BYTES - 16 || crc != crc32c(body).to_le_bytes() {
            return None;
        }
        let mut fields =
            body.chunks_exact(8).map(|field| u64::from_le_bytes(field.try_into().expect("eight bytes")));
        let mut next = || fields.next();
        Some(Mark { began_ms: next()?, next_jsn: next()?, next_table: next()?, tables_end: next()? })
    }

    /// What the file in `dir` says; `None` if it is damaged.
    pub(crate) fn read(disk: &mut dyn Disk, dir: &Path) -> Result<Option<Mark>, DiskError> {
        let (file, _) = disk::open(disk, &dir.join(MARK_FILE), OpenMode::Read)?;
        let bytes = disk::read(disk, file, 0, MARK_BYTES + 1);
        // It was only read.
        disk::run(disk, DiskOp::Close { file }).ok();
        Ok(Mark::decode(&bytes?))
    }

    fn write(&self, disk: &mut dyn Disk, dir: &Path) -> Result<(), DiskError> {
        disk::replace_file(disk, &dir.join(MARK_FILE), Bytes::copy_from_slice(&self.encode()))
    }
}

/// Writes the mark in the background. Where that fails, a restart goes over some files once more.
pub(crate) struct WriteMark {
    pub(crate) dir: PathBuf,
    pub(crate) mark: Mark,
}

impl Job for WriteMark {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        self.mark.write(disk, &self.dir).ok();
        Progress::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes were made by hand; the checksum by another program (CRC-32C of the last 32 bytes).
    #[test]
    fn a_mark_is_as_its_page_says() {
        let mark = Mark { began_ms: 1, next_jsn: 2, next_table: 3, tables_end: 4 };
        let golden = GOLDEN;
        assert_eq!(mark.encode(), *golden);
        assert_eq!(Mark::decode(golden), Some(mark));
        for at in 0..MARK_BYTES {
            let mut bad = *golden;
            bad[at] ^= 1;
            assert_eq!(Mark::decode(&bad), None, "byte {at}");
            assert_eq!(Mark::decode(&golden[..at]), None, "{at} bytes");
        }
    }

    const GOLDEN: &[u8; MARK_BYTES] = b"ANULSCRB\x01\0\0\0\x12\xf7\xa1\xf4\
        \x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0";
}
