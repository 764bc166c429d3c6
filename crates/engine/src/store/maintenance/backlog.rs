//! What is still to be flushed and merged, by which writes are paced (`pressure.rs`): it shrinks as jobs go on, slice
//! by slice, and does not move when one has ended and its manifest is on its way.

use super::manifest::Edit;
use crate::error::Error;
use crate::merge::{MergeJob, MergeOutput};
use crate::store::{Frozen, Store};
use crate::table::Table;
use base::spawn::{Outcome, Spawn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the store keeps of a flush or merge under way.
pub(super) struct Underway {
    outcome: Outcome<Result<MergeOutput, Error>>,
    read: Arc<AtomicU64>,
    /// Versions in its sources.
    versions: u64,
}

impl Underway {
    /// Hands the job over, which reads so many versions in all and gives `outcome`.
    pub(super) fn begin(
        spawn: &dyn Spawn,
        job: MergeJob,
        versions: u64,
        outcome: Outcome<Result<MergeOutput, Error>>,
    ) -> Underway {
        let read = job.versions_read();
        spawn.spawn(Box::new(job));
        Underway { outcome, read, versions }
    }

    pub(super) fn take(&self) -> Option<Result<MergeOutput, Error>> {
        self.outcome.take()
    }

    /// What of so much is not done yet, if all of its sources stand for it.
    pub(super) fn rest_of(&self, all: u64) -> u64 {
        let rest = self.versions.saturating_sub(self.read.load(Ordering::Relaxed));
        let share = u128::from(all) * u128::from(rest) / u128::from(self.versions.max(1));
        u64::try_from(share).expect("not more than all")
    }
}

/// A table, in the unit in which [`Store::unmerged_tables`] counts.
const TABLE: u64 = 1000;

impl Store {
    /// Bytes of memtables that are not in a table yet: what a flush has read counts as written.
    pub(in crate::store) fn unflushed_bytes(&self) -> u64 {
        let frozen = |memtable: &Frozen| memtable.reader.bytes() as u64;
        let all = self.frozen.iter().map(frozen).sum::<u64>() + self.memtable.bytes() as u64;
        let oldest = self.frozen.front().map_or(0, frozen);
        let rest = match &self.maintenance.flush {
            Some(flush) => flush.rest_of(oldest),
            None if self.pending_edits().any(|edit| edit.flushed) => 0,
            None => oldest,
        };
        all - (oldest - rest)
    }

    /// Tables of level 0 that are not merged yet, in thousandths of one. Of those being merged what was read counts as
    /// merged, and what a flush has read is a part of a table.
    pub(in crate::store) fn unmerged_tables(&self) -> u64 {
        let level0 = self.version.level(0);
        let in_level0 = |table: &&Arc<Table>| level0.iter().any(|other| other.id() == table.id());
        let (mut come, mut gone) = (level0.len() as u64 * TABLE, 0);
        for edit in self.pending_edits() {
            come += edit.added.iter().filter(|(level, _)| *level == 0).count() as u64 * TABLE;
            gone += edit.removed.iter().filter(in_level0).count() as u64 * TABLE;
        }
        if let Some(flush) = &self.maintenance.flush {
            come += TABLE - flush.rest_of(TABLE);
        }
        if let Some((plan, merge)) = &self.maintenance.merge {
            let inputs = plan.inputs.iter().filter(|(level, _)| *level == 0);
            let tables = inputs.map(|(_, tables)| tables.len() as u64 * TABLE).sum();
            gone += tables - merge.rest_of(tables);
        }
        come.saturating_sub(gone)
    }

    /// Those that wait for a manifest, and the one whose manifest is being written.
    fn pending_edits(&self) -> impl Iterator<Item = &Edit> {
        let run = self.maintenance.manifest.as_ref().and_then(|run| run.edit.as_ref());
        self.maintenance.edits.iter().chain(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_shrinks_with_what_was_read() {
        let read = Arc::new(AtomicU64::new(0));
        let job = Underway { outcome: Outcome::new(), read: Arc::clone(&read), versions: 8 };
        let rests = [0, 2, 8, 9].map(|versions| {
            read.store(versions, Ordering::Relaxed);
            job.rest_of(1000)
        });
        assert_eq!(rests, [1000, 750, 0, 0]);
        let job = Underway { outcome: Outcome::new(), read: Arc::default(), versions: 0 };
        assert_eq!(job.rest_of(u64::MAX), 0);
    }
}
