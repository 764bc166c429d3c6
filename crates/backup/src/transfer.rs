//! Files in slices: read for their checksums, or copied.

use crate::error::Error;
use base::Disk;
use base::checksum::{crc32c, crc32c_append};
use base::disk::{self, DiskErrorKind, DiskOp, FileId, OpenMode};
use bytes::Bytes;
use std::path::Path;

/// Bytes of a slice: few enough that a request which waits for the disk or a processor meanwhile hardly waits longer,
/// and that their memory is used again and not asked of the system each time.
pub const SLICE_BYTES: usize = 64 << 10;

/// A copy is synced after so many bytes, so that no sync of a client's waits for all of it.
const SYNC_BYTES: u64 = 4 << 20;

/// The last bytes of a file by which it is known again: a table's footer and a segment's seal are there, and have
/// checksums of what is before them.
const TAIL_BYTES: u64 = 4 << 10;

/// How far it is. Bytes are of files' contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files that there are.
    pub files: u64,
    /// And their bytes.
    pub bytes: u64,
    /// Files that are done.
    pub files_done: u64,
    /// Bytes that are done, by whichever way.
    pub bytes_done: u64,
    /// Bytes that were copied.
    pub copied: u64,
    /// Bytes that the slice before this call read or wrote; 0 where none was.
    pub slice: u64,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Go on.
    Continue,
    /// Give up.
    Stop,
}

/// Is called after each slice, and may take its time.
pub type Watch<'a> = &'a mut dyn FnMut(&Progress) -> Control;

/// A transfer under way.
pub(crate) struct Transfer<'a> {
    pub(crate) disk: &'a mut dyn Disk,
    pub(crate) progress: Progress,
    watch: Watch<'a>,
}

/// What a file's bytes came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) len: u64,
    pub(crate) crc: u32,
}

impl<'a> Transfer<'a> {
    pub(crate) fn new(disk: &'a mut dyn Disk, watch: Watch<'a>) -> Transfer<'a> {
        Transfer { disk, progress: Progress::default(), watch }
    }

    /// Reads `from` whole.
    pub(crate) fn sum(&mut self, from: &Path) -> Result<Sum, Error> {
        self.read(from, None)
    }

    /// Copies `from` to `to`, which must not be there, and syncs it. Its name is durable after a sync of its folder.
    pub(crate) fn copy(&mut self, from: &Path, to: &Path) -> Result<Sum, Error> {
        let (copy, _) = disk::open(self.disk, to, OpenMode::Create)?;
        let copied = self.read(from, Some(copy));
        let synced = disk::run(self.disk, DiskOp::Sync { file: copy });
        disk::run(self.disk, DiskOp::Close { file: copy })?;
        let sum = copied?;
        synced?;
        self.progress.copied += sum.len;
        Ok(sum)
    }

    /// Writes a small file durably, but for its name. `mode` makes it.
    pub(crate) fn write(&mut self, to: &Path, data: Bytes, mode: OpenMode) -> Result<Sum, Error> {
        let sum = Sum { len: data.len() as u64, crc: crc32c(&data) };
        let (file, _) = disk::open(self.disk, to, mode)?;
        let written =
            disk::run(self.disk, DiskOp::Write { file, offset: 0, data: data.into(), room: 0, sync: true });
        disk::run(self.disk, DiskOp::Close { file })?;
        written?;
        Ok(sum)
    }

    /// A file is done, of which so many bytes were not counted slice by slice.
    pub(crate) fn file_done(&mut self, uncounted: u64) -> Result<(), Error> {
        self.progress.files_done += 1;
        self.pause(0, uncounted)
    }

    /// Makes the names in these folders durable.
    pub(crate) fn sync_dir(&mut self, dir: &Path) -> Result<(), Error> {
        disk::run(self.disk, DiskOp::SyncDir { path: dir.to_path_buf() })?;
        Ok(())
    }

    fn read(&mut self, from: &Path, copy: Option<FileId>) -> Result<Sum, Error> {
        let (file, _) = disk::open(self.disk, from, OpenMode::Read)?;
        let summed = self.slices(file, copy);
        disk::run(self.disk, DiskOp::Close { file })?;
        summed
    }

    fn slices(&mut self, file: FileId, copy: Option<FileId>) -> Result<Sum, Error> {
        let mut sum = Sum { len: 0, crc: 0 };
        loop {
            let data = disk::read(self.disk, file, sum.len, SLICE_BYTES)?;
            let len = data.len() as u64;
            if len == 0 {
                return Ok(sum);
            }
            sum.crc = crc32c_append(sum.crc, &data);
            if let Some(file) = copy {
                let sync = (sum.len + len) % SYNC_BYTES < len;
                disk::run(
                    self.disk,
                    DiskOp::Write { file, offset: sum.len, data: data.into(), room: 0, sync },
                )?;
            }
            sum.len += len;
            self.pause(len, len)?;
        }
    }

    fn pause(&mut self, slice: u64, done: u64) -> Result<(), Error> {
        self.progress.slice = slice;
        self.progress.bytes_done += done;
        match (self.watch)(&self.progress) {
            Control::Continue => Ok(()),
            Control::Stop => Err(Error::Stopped),
        }
    }
}

/// A file's length, and the checksum of its last bytes; `None` if it is missing.
pub(crate) fn tail(disk: &mut dyn Disk, path: &Path) -> Result<Option<(u64, u32)>, Error> {
    let (file, len) = match disk::open(disk, path, OpenMode::Read) {
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let bytes = len.min(TAIL_BYTES);
    let read = disk::read(disk, file, len - bytes, usize::try_from(bytes).unwrap_or_default());
    disk::run(disk, DiskOp::Close { file })?;
    Ok(Some((len, crc32c(&read?))))
}
