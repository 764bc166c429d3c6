//! A disk that does not wait: it reads what is in memory, and fails in everything else.

use crate::store::try_read;
use base::disk::{Completion, Disk, DiskAnswer, DiskError, DiskErrorKind, DiskOp, FileId, Token};

/// What comes from another disk without waiting. Whoever walks on it goes on elsewhere once it has missed something.
pub(super) struct AtHand<'a> {
    disk: &'a mut dyn Disk,
    finished: Vec<Completion>,
    has_missed: bool,
}

impl<'a> AtHand<'a> {
    /// Of what `disk` has.
    pub fn of(disk: &'a mut dyn Disk) -> AtHand<'a> {
        AtHand { disk, finished: Vec::new(), has_missed: false }
    }

    /// Whether something was asked for that would have to wait, and has failed for that.
    pub fn has_missed(&self) -> bool {
        self.has_missed
    }
}

impl Disk for AtHand<'_> {
    fn submit(&mut self, op: DiskOp, token: Token) {
        let found = match op {
            DiskOp::Read { file, offset, len } => try_read(self.disk, file, offset, len),
            _ => None,
        };
        self.has_missed |= found.is_none();
        let missed = || DiskError {
            kind: DiskErrorKind::Io,
            path: String::new(),
            message: "it is not in memory".to_owned(),
        };
        self.finished.push(Completion { token, result: found.map(DiskAnswer::Data).ok_or_else(missed) });
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.finished);
    }

    fn wait(&mut self) {}

    fn try_read(&mut self, file: FileId, offset: u64, buf: &mut [u8]) -> Option<usize> {
        self.disk.try_read(file, offset, buf)
    }
}
