//! Files of tables and segments that nobody reads any more are removed: segments in the order of their records, so that
//! no deletion goes, from the disk itself, before what it covers.

use crate::journal::segment;
use crate::store::open::JOURNAL_DIR;
use crate::store::{Segment, Store};
use crate::table::Table;
use base::disk::{self, DiskErrorKind, DiskOp};
use base::spawn::Outcome;
use base::{Disk, DiskError, Job, Progress};
use std::path::PathBuf;
use std::sync::Arc;

impl Store {
    // A table's file goes when only this list knows it: snapshots, parked lookups and jobs hold theirs.
    pub(super) fn remove_obsolete(&mut self) {
        if self.maintenance.obsolete.is_empty() {
            return;
        }
        let mut unused = Vec::new();
        self.maintenance.obsolete.retain(|table| {
            let last = Arc::strong_count(table) == 1;
            if last {
                unused.push(Arc::clone(table));
            }
            !last
        });
        if !unused.is_empty() {
            self.spawn.spawn(Box::new(RemoveTables(unused)));
        }
    }

    // A segment's file goes when only this list knows it, and no older one waits: see the module's text.
    pub(super) fn remove_segments(&mut self) {
        if let Some((_, removing)) = &self.maintenance.removing {
            let Some(Removed(done)) = removing.take() else { return };
            let asked = self.maintenance.removing.take().map_or(0, |(asked, _)| asked);
            self.maintenance.compaction.obsolete.drain(..done);
            self.maintenance.compaction.removal_failed |= done < asked;
            let left = !self.maintenance.compaction.obsolete.is_empty();
            self.maintenance.compaction.obsolete_since = left.then(|| self.clock.now());
        }
        let obsolete = &self.maintenance.compaction.obsolete;
        let unused: Vec<_> =
            obsolete.iter().take_while(|segment| Arc::strong_count(segment) == 1).map(Arc::clone).collect();
        let may = self.maintenance.closing.is_none() && !self.maintenance.compaction.removal_failed;
        if !unused.is_empty() && may {
            let outcome = Outcome::new();
            let (folder, asked) = (self.dir.join(JOURNAL_DIR), unused.len());
            self.spawn.spawn(Box::new(RemoveSegments { folder, segments: unused, outcome: outcome.clone() }));
            self.maintenance.removing = Some((asked, outcome));
        }
    }
}

/// So many segments have gone, the first of those that were to go.
pub(super) struct Removed(usize);

/// Removes the files of segments, each name durably before the next goes. Where one does not go, it and the rest are
/// left for the next start, and what they cover is kept as long as they are there.
struct RemoveSegments {
    folder: PathBuf,
    segments: Vec<Arc<Segment>>,
    outcome: Outcome<Removed>,
}

impl RemoveSegments {
    fn remove(&self, disk: &mut dyn Disk, segment: &Segment) -> Result<(), DiskError> {
        let path = self.folder.join(segment::file_name(segment.id));
        match disk::run(disk, DiskOp::Remove { path }) {
            Err(error) if error.kind != DiskErrorKind::NotFound => return Err(error),
            _ => {}
        }
        disk::run(disk, DiskOp::SyncDir { path: self.folder.clone() })?;
        // The name is gone, and the handle was only read.
        disk::run(disk, DiskOp::Close { file: segment.file }).ok();
        Ok(())
    }
}

impl Job for RemoveSegments {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        let done = self.segments.iter().take_while(|segment| self.remove(disk, segment).is_ok()).count();
        self.segments.clear();
        self.outcome.set(Removed(done));
        Progress::Done
    }
}

/// Removes the files of tables. One that stays, because of an error or a crash, is removed at the next start.
struct RemoveTables(Vec<Arc<Table>>);

impl Job for RemoveTables {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        for table in self.0.drain(..) {
            let closed = disk::run(disk, table.close_op());
            let removed = disk::run(disk, table.remove_op());
            drop((closed, removed));
        }
        Progress::Done
    }
}
