//! The job that seals a segment that has ended: it puts the block of its heads behind its records, all of which are
//! durable.
//!
//! 1. Cut the file to its records: what room it was given ahead of them is given back, and the trailer will be its last
//!    bytes.
//! 2. Append heads and seal, and sync them.
//!
//! A segment without one is whole all the same: it is scanned where a sealed one's heads would be read. So a
//! seal that fails, or is cut off by a crash, costs time at some later rebuild and nothing else.

use super::segment::{SealBuilder, SegmentId};
use base::disk::{self, DiskOp, FileId};
use base::spawn::Outcome;
use base::{Disk, DiskError, Job, Progress};
use bytes::Bytes;
use std::collections::VecDeque;

/// Seals one segment, one part a slice.
#[derive(Debug)]
pub struct SealJob {
    segment: SegmentId,
    file: FileId,
    offset: u64,
    heads: Option<SealBuilder>,
    parts: VecDeque<Bytes>,
    ended: Outcome<()>,
}

impl SealJob {
    /// A job for the segment in `file`, whose records end at `data_end`.
    pub fn new(segment: SegmentId, file: FileId, data_end: u64, heads: SealBuilder) -> SealJob {
        SealJob {
            segment,
            file,
            offset: data_end,
            heads: Some(heads),
            parts: VecDeque::new(),
            ended: Outcome::new(),
        }
    }

    /// The segment, and what is set when nothing is written to it any more.
    pub fn ended(&self) -> (SegmentId, Outcome<()>) {
        (self.segment, self.ended.clone())
    }

    fn write_part(&mut self, disk: &mut dyn Disk) -> Result<Progress, DiskError> {
        if let Some(heads) = self.heads.take() {
            disk::run(disk, DiskOp::Truncate { file: self.file, len: self.offset })?;
            self.parts = heads.finish(self.segment, self.offset).parts.into();
        }
        let Some(data) = self.parts.pop_front() else { return Ok(Progress::Done) };
        let (len, sync) = (data.len() as u64, self.parts.is_empty());
        disk::run(
            disk,
            DiskOp::Write { file: self.file, offset: self.offset, data: data.into(), room: 0, sync },
        )?;
        self.offset += len;
        Ok(if sync { Progress::Done } else { Progress::More })
    }
}

impl Job for SealJob {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        // A failed seal leaves an unsealed segment, which is whole (see above).
        let progress = self.write_part(disk).unwrap_or(Progress::Done);
        if progress == Progress::Done {
            self.ended.set(());
        }
        progress
    }
}
