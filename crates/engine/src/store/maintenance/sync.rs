//! What was written without a sync is synced by a job where nobody waits for that, so that writes go on meanwhile.

use crate::journal::writer::SyncBeside;
use crate::store::Store;
use base::disk::{self, DiskOp};
use base::spawn::Outcome;
use base::{Disk, DiskError, Job, Progress};

/// A sync under way.
pub(super) struct SyncRun {
    beside: SyncBeside,
    outcome: Outcome<Result<(), DiskError>>,
}

impl Store {
    pub(super) fn want_sync_beside(&mut self) {
        let Some(beside) = self.writer.begin_sync_beside() else { return };
        let outcome = Outcome::new();
        self.spawn.spawn(Box::new(SyncJob { beside, outcome: outcome.clone() }));
        self.maintenance.sync = Some(SyncRun { beside, outcome });
    }

    /// Whether a job syncs what was written.
    pub(crate) fn syncs_beside(&self) -> bool {
        self.maintenance.sync.is_some()
    }

    pub(super) fn take_sync_beside(&mut self) {
        let Some(run) = &self.maintenance.sync else { return };
        let Some(result) = run.outcome.take() else { return };
        self.writer.end_sync_beside(run.beside, result);
        self.maintenance.sync = None;
    }
}

struct SyncJob {
    beside: SyncBeside,
    outcome: Outcome<Result<(), DiskError>>,
}

impl Job for SyncJob {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        let synced = disk::run(disk, DiskOp::Sync { file: self.beside.file });
        self.outcome.set(synced.map(drop));
        Progress::Done
    }

    /// A group that is synced, or ends its segment, may wait for it.
    fn is_urgent(&self) -> bool {
        true
    }
}
