//! A store's folder.

use base::disk::{self, Disk, DiskError, DiskOp};
use std::path::Path;

const LOCK: &str = "lock";

/// Makes the folder, durably, if it is not there, and takes its lock, which lasts as long as the disk. What it has is
/// durable then, too: a process before may have been killed when it had made a file and not synced its name.
pub fn prepare(disk: &mut dyn Disk, folder: &Path) -> Result<(), DiskError> {
    disk::run(disk, DiskOp::CreateDir { path: folder.to_path_buf() })?;
    disk::run(disk, DiskOp::Lock { path: folder.join(LOCK) })?;
    disk::run(disk, DiskOp::SyncDir { path: folder.to_path_buf() })?;
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        disk::run(disk, DiskOp::SyncDir { path: parent.to_path_buf() })?;
    }
    Ok(())
}
