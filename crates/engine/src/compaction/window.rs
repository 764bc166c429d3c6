//! What a compaction has read ahead of an input, whose records it copies in the order in which they lie.

use crate::error::Error;
use base::Disk;
use base::disk::{self, FileId};
use bytes::Bytes;

/// So much is read at once of an input: what is kept often stands together.
const READ_BYTES: usize = 128 << 10;

/// So much is announced behind that: a read of the disk beside those of many requests takes some milliseconds, in which
/// as much as that may have to be moved.
const ANNOUNCED_BYTES: u64 = 2 << 20;

/// What was read last of one file.
#[derive(Default)]
pub(super) struct Window {
    at: u64,
    bytes: Bytes,
    /// Where that ends which was announced.
    announced: u64,
}

impl Window {
    /// `len` bytes at `offset`, fewer where the file ends before; and how many had to be read for them.
    pub fn read(
        &mut self,
        disk: &mut dyn Disk,
        file: FileId,
        offset: u64,
        len: usize,
    ) -> Result<(Bytes, usize), Error> {
        if let Some(skip) = offset.checked_sub(self.at).and_then(|skip| usize::try_from(skip).ok())
            && skip + len <= self.bytes.len()
        {
            return Ok((self.bytes.slice(skip..skip + len), 0));
        }
        let read_len = len.max(READ_BYTES);
        self.announce(disk, file, offset + read_len as u64);
        self.bytes = disk::read(disk, file, offset, read_len)?;
        self.at = offset;
        Ok((self.bytes.slice(..len.min(self.bytes.len())), self.bytes.len()))
    }

    /// Announces what lies behind `end`, once.
    fn announce(&mut self, disk: &mut dyn Disk, file: FileId, end: u64) {
        let (from, to) = (self.announced.max(end), end + ANNOUNCED_BYTES);
        if from < to {
            disk.will_read(file, from, usize::try_from(to - from).unwrap_or(usize::MAX));
            self.announced = to;
        }
    }
}
