//! Files of tables that nobody reads any more are removed.

use crate::store::Store;
use crate::table::Table;
use base::disk;
use base::{Disk, Job, Progress};
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
