//! The end of a store: its files are removed.
//!
//! 1. The manifest is replaced by one that names nothing, so that a crash from here on leaves an empty store, and
//!    files that belong to none.
//! 2. Tables and segments are removed.
//! 3. The manifest and the lock's file are removed. The folders stay, empty.

use super::maintenance::WASTE_DIR;
use super::open::{JOURNAL_DIR, LOCK_FILE, TABLES_DIR, WHOLE_FILE};
use crate::checkpoint::CHECKPOINT_FILE;
use crate::error::Error;
use crate::manifest::{self, JournalPosition, MANIFEST_COPY_FILE, MANIFEST_FILE, ManifestState};
use crate::scrub::MARK_FILE;
use base::Disk;
use base::disk::{self, DiskErrorKind, DiskOp};
use std::path::Path;

/// Removes the store in `dir`, which is closed, and whose lock the caller holds. Blocks.
pub(crate) fn destroy(disk: &mut dyn Disk, dir: &Path) -> Result<(), Error> {
    let Some(last) = manifest::read(disk, dir)? else { return Ok(()) };
    let nothing = ManifestState {
        incarnation: last.incarnation,
        dot_lease_end: last.dot_lease_end,
        next_table_id: last.next_table_id,
        next_segment_id: last.next_segment_id,
        // No segment that is left lies behind this.
        replay_position: JournalPosition { segment: last.next_segment_id, offset: 0 },
        last_seq: last.last_seq,
        last_jsn: last.last_jsn,
        ..ManifestState::default()
    };
    manifest::write(disk, dir, &nothing)?;
    for folder in [TABLES_DIR, JOURNAL_DIR] {
        let folder = dir.join(folder);
        for name in disk::list(disk, &folder)? {
            disk::run(disk, DiskOp::Remove { path: folder.join(name) })?;
        }
        disk::run(disk, DiskOp::SyncDir { path: folder })?;
    }
    let waste = dir.join(WASTE_DIR);
    // Most stores have none.
    for name in disk::list(disk, &waste).unwrap_or_default() {
        disk::run(disk, DiskOp::Remove { path: waste.join(name) })?;
    }
    // Without the manifest nothing here is a store, so its copy goes first.
    for name in [MANIFEST_COPY_FILE, WHOLE_FILE, MARK_FILE, CHECKPOINT_FILE, MANIFEST_FILE, LOCK_FILE] {
        match disk::run(disk, DiskOp::Remove { path: dir.join(name) }) {
            Err(error) if error.kind != DiskErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    disk::run(disk, DiskOp::SyncDir { path: dir.to_path_buf() })?;
    Ok(())
}
