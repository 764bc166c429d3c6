//! A process's handle to a simulated disk.

use super::SimDisk;
use super::device::HandleId;
use base::Disk;
use base::disk::{Completion, DiskOp, FileId, Token};

/// When a handle's operations finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// When the world says.
    Queued,
    /// Within `submit`.
    Immediate,
}

/// A handle to a [`SimDisk`], dead as soon as its process is.
#[derive(Debug)]
pub struct DiskHandle {
    disk: SimDisk,
    id: HandleId,
    mode: Mode,
}

impl DiskHandle {
    pub(super) fn new(disk: SimDisk, mode: Mode) -> DiskHandle {
        let id = disk.lock().open_handle();
        DiskHandle { disk, id, mode }
    }

    /// Its name, to find whom to wake by.
    pub fn id(&self) -> HandleId {
        self.id
    }
}

impl Disk for DiskHandle {
    fn submit(&mut self, op: DiskOp, token: Token) {
        let mut device = self.disk.lock();
        match self.mode {
            Mode::Queued => device.submit(self.id, op, token),
            Mode::Immediate => device.run(self.id, op, token),
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.disk.lock().take_completions(self.id));
    }

    fn wait(&mut self) {
        self.disk.lock().finish_first(self.id);
    }

    fn try_read(&mut self, file: FileId, offset: u64, buf: &mut [u8]) -> Option<usize> {
        self.disk.lock().try_read(file, offset, buf)
    }
}

impl Drop for DiskHandle {
    fn drop(&mut self) {
        self.disk.lock().close_handle(self.id);
    }
}
