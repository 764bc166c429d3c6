//! The job that makes the next segment before it is needed.
//!
//! 1. Make the file and write its header, synced.
//! 2. Sync the directory, so that a crash cannot lose the name of a file that holds acknowledged records.

use super::segment::{self, SegmentId};
use super::writer::ReadySegment;
use crate::error::Error;
use base::disk::{self, DiskOp, FileId, OpenMode};
use base::spawn::Outcome;
use base::{Disk, Job, Progress};
use bytes::Bytes;
use std::path::{Path, PathBuf};

/// Makes one segment.
pub struct PrepareSegment {
    dir: PathBuf,
    id: SegmentId,
    incarnation: u64,
    outcome: Outcome<Result<ReadySegment, Error>>,
}

impl PrepareSegment {
    /// A job that makes segment `id` in `dir` and tells `outcome`.
    pub fn new(
        dir: &Path,
        id: SegmentId,
        incarnation: u64,
        outcome: Outcome<Result<ReadySegment, Error>>,
    ) -> PrepareSegment {
        PrepareSegment { dir: dir.to_path_buf(), id, incarnation, outcome }
    }

    /// Makes the segment now. One that fails is removed, so that no newer one stands behind it; where that fails, too,
    /// the error is not one that passes.
    pub fn run(&self, disk: &mut dyn Disk) -> Result<ReadySegment, Error> {
        let path = self.dir.join(segment::file_name(self.id));
        let (file, _) = disk::open(disk, &path, OpenMode::Create)?;
        let made = self.finish(disk, file);
        if made.is_err() {
            // Nobody has seen the file.
            disk::run(disk, DiskOp::Close { file }).ok();
            disk::run(disk, DiskOp::Remove { path }).map_err(Error::Disk)?;
        }
        made
    }

    fn finish(&self, disk: &mut dyn Disk, file: FileId) -> Result<ReadySegment, Error> {
        let header = Bytes::copy_from_slice(&segment::encode_header(self.id, self.incarnation));
        disk::run(disk, DiskOp::Write { file, offset: 0, data: header.into(), room: 0, sync: true })?;
        if !base::planted!(NoDirectorySync) {
            disk::run(disk, DiskOp::SyncDir { path: self.dir.clone() })?;
        }
        Ok(ReadySegment { id: self.id, file })
    }
}

impl Job for PrepareSegment {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        let made = self.run(disk);
        self.outcome.set(made);
        Progress::Done
    }

    /// Writes are refused where the segment before it is full.
    fn is_urgent(&self) -> bool {
        true
    }
}
