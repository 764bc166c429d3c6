//! The level that is over its size the most is merged into the next. A damaged block is left out, and its keys are a range
//! from then on of which versions are lost ([`crate::lost`]). A block that passes its checksum and makes no sense is a bug:
//! its table is merged no more until the next start.

use super::manifest::Edit;
use crate::error::Error;
use crate::merge::{MergeJob, MergeRequest};
use crate::store::Store;
use crate::table::{Table, TableId};
use base::spawn::Outcome;
use std::sync::Arc;

impl Store {
    pub(super) fn want_merge(&mut self) {
        let busy = self.maintenance.merge.is_some()
            || self.maintenance.edits.iter().any(|edit| !edit.removed.is_empty())
            || self.maintenance.manifest.as_ref().is_some_and(|run| run.edit.is_some())
            || self.maintenance.closing.is_some();
        if busy {
            return;
        }
        let cursors = &mut self.maintenance.merge_cursors;
        let Some(plan) = self.version.pick_merge(&self.options.levels(), cursors) else {
            return self.want_cut();
        };
        if plan.tables().any(|table| self.maintenance.damaged_tables.contains(&table.id())) {
            return;
        }
        let request =
            self.merge_request(plan.output_level, self.options.table_bytes_target, plan.drop_deletions);
        let outcome = Outcome::new();
        let fences = self.version.fences(&plan, &self.options.levels());
        let job = MergeJob::new(plan.sources(), request, outcome.clone()).with_fences(fences);
        self.spawn.spawn(Box::new(job));
        self.maintenance.merge = Some((plan, outcome));
    }

    pub(super) fn take_merge(&mut self) {
        let Some(done) = self.maintenance.merge.as_ref().and_then(|(_, outcome)| outcome.take()) else {
            return;
        };
        let (plan, _) = self.maintenance.merge.take().expect("just looked");
        match done {
            Ok(output) => {
                let read = plan.tables().map(|table| table.len()).sum();
                self.counters.count_merge(read, &output.stats);
                // The manifest that lets go of the damaged blocks names what was in them.
                self.note_damage(output.lost.iter().map(|lost| lost.damage.clone()));
                if !output.lost.is_empty() {
                    self.lost = self.lost.with(output.lost);
                }
                let edit = Edit {
                    added: in_level(plan.output_level, output.tables),
                    removed: plan.tables().cloned().collect(),
                    dead: output.dead,
                    ..Edit::default()
                };
                self.maintenance.edits.push(edit);
            }
            // What is damaged goes on to be an error for its own keys; nothing was changed, and writes go on.
            Err(Error::Damaged(damage)) if TableId::from_file_name(&damage.file).is_some() => {
                self.maintenance.damaged_tables.extend(TableId::from_file_name(&damage.file));
                self.note_damage([damage]);
            }
            Err(error) => self.writer.fence(error),
        }
    }

    pub(super) fn merge_request(
        &self,
        output_level: usize,
        table_bytes_target: u64,
        drop_deletions: bool,
    ) -> MergeRequest {
        MergeRequest {
            dir: self.tables_dir(),
            next_table_id: Arc::clone(&self.maintenance.next_table),
            output_level,
            table_bytes_target,
            drop_deletions,
            dropped: self.drops.until(self.writer.durable()),
            lost: Arc::clone(&self.lost),
            now_ms: self.now_ms(),
        }
    }
}

pub(super) fn in_level(level: usize, tables: Vec<Arc<Table>>) -> Vec<(usize, Arc<Table>)> {
    tables.into_iter().map(|table| (level, table)).collect()
}
