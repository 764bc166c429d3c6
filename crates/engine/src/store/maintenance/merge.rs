//! The level that is over its size the most is merged into the next. A damaged block is left out, and its keys are a
//! range from then on of which versions are lost ([`crate::lost`]). A block that passes its checksum and makes no sense
//! is a bug: its table is merged no more until the next start.

use super::backlog::Underway;
use super::cut::CutLook;
use super::manifest::Edit;
use crate::error::Error;
use crate::lost::{LostRange, LostRanges};
use crate::manifest::{MergeOptions, MergePlan, RUNS_MAX};
use crate::merge::{MergeJob, MergeOutput, MergeRequest, MergeStats};
use crate::store::Store;
use crate::store::disk_room::Claim;
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
        let replacing_thousandths = self.maintenance.replacing.thousandths();
        if self.maintenance.no_merge == Some(self.merges_as_of()) {
            return self.want_cut();
        }
        let options = MergeOptions { replacing_thousandths, ..self.options.levels() };
        let mut plan = None;
        if self.is_reclaiming() {
            plan = self.reclaiming_merge(&options);
        }
        let mut is_wanted = plan.is_some();
        let plan = plan.or_else(|| {
            let room = self.room_for_jobs();
            let cursors = &mut self.maintenance.merge_cursors;
            let plan = self.version.pick_merge(&options, cursors)?;
            is_wanted = true;
            if plan.needs() <= room { Some(plan) } else { self.version.pick_part(&options, cursors, room) }
        });
        let claimed = plan.and_then(|plan| Some((self.claim_room(plan.needs())?, plan)));
        self.maintenance.merge_lacks_room = is_wanted && claimed.is_none();
        let Some((claim, plan)) = claimed else {
            self.maintenance.no_merge = Some(self.merges_as_of());
            return self.want_cut();
        };
        if plan.tables().any(|table| self.maintenance.damaged_tables.contains(&table.id())) {
            return;
        }
        let request =
            self.merge_request(plan.output_level, self.options.table_bytes_target, plan.drop_deletions);
        let outcome = Outcome::new();
        let fences = match plan.cuts.is_empty() {
            true => self.version.fences(&plan, &options),
            false => plan.cuts.clone(),
        };
        let job = MergeJob::new(plan.sources(), request, outcome.clone()).with_fences(fences);
        self.begin_merge(plan, job, outcome, claim);
    }

    /// As of which moment it is known that there is no merge to be done, or no room for it: the version changes with
    /// manifests only, and the room with looks.
    fn merges_as_of(&self) -> MergesAsOf {
        MergesAsOf {
            manifests: self.counters.manifests,
            replacing_thousandths: self.maintenance.replacing.thousandths(),
            looks: (self.is_reclaiming() || self.maintenance.merge_lacks_room).then(|| self.room.looks()),
        }
    }

    /// Whether the last look for a merge has found none, and nothing has changed since.
    pub(in crate::store) fn finds_no_merge(&self) -> bool {
        self.maintenance.merge.is_none() && self.maintenance.no_merge == Some(self.merges_as_of())
    }

    /// Hands over the one merge at a time.
    pub(super) fn begin_merge(
        &mut self,
        plan: MergePlan,
        job: MergeJob,
        outcome: Outcome<Result<MergeOutput, Error>>,
        claim: Claim,
    ) {
        self.maintenance.merge_claim = Some(claim);
        let versions = plan.tables().map(|table| table.meta().entries).sum();
        self.maintenance.merge = Some((plan, Underway::begin(&*self.spawn, job, versions, outcome)));
    }

    pub(super) fn take_merge(&mut self) {
        let Some(done) = self.maintenance.merge.as_ref().and_then(|(_, merge)| merge.take()) else {
            return;
        };
        let (plan, _) = self.maintenance.merge.take().expect("just looked");
        self.maintenance.merge_claim = None;
        self.room.look_soon();
        match done {
            Ok(output) => {
                let read = plan.tables().map(|table| table.len()).sum();
                self.counters.count_merge(read, &output.stats);
                self.maintenance.compaction.note_deletions_left_out(output.stats.deletions_dropped);
                // A merge of level 0 alone sees nothing of what is older.
                if plan.output_level > RUNS_MAX {
                    let upper = plan.inputs.iter().filter(|(level, _)| *level != plan.output_level);
                    let entries =
                        upper.flat_map(|(_, tables)| tables).map(|table| table.meta().entries).sum();
                    self.maintenance.replacing.note_merge(entries, output.dead.len());
                }
                // The manifest that lets go of the damaged blocks names what was in them.
                self.note_damage(output.lost.iter().map(|lost| lost.damage.clone()));
                if !output.lost.is_empty() {
                    self.note_lost(output.lost.iter().cloned());
                    self.lost = self.lost.with(output.lost);
                }
                if plan.is_rewrite() {
                    self.note_looked_through(&output.tables);
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
            Err(error) => {
                // A table that was to be cut is found again.
                self.maintenance.cut_look = CutLook::default();
                match error {
                    // Nothing waits for a merge that cannot be.
                    Error::Exhausted(_) => self.room.note_shortage(self.turned_at),
                    other => self.on_failure(other),
                }
            }
        }
    }

    /// Takes the ranges of keys in which merges and the scrub have found versions lost since the last call, for whoever
    /// can get them elsewhere.
    pub fn take_lost(&mut self) -> Arc<LostRanges> {
        std::mem::take(&mut self.maintenance.found_lost)
    }

    pub(super) fn note_lost(&mut self, ranges: impl IntoIterator<Item = LostRange>) {
        self.maintenance.found_lost = self.maintenance.found_lost.with(ranges);
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
            drop_deletions: drop_deletions || (output_level > 0 && base::planted!(DeletionDroppedEarly)),
            dropped: self.drops.until(self.writer.durable()),
            lost: Arc::clone(&self.lost),
            now_ms: self.now_ms(),
        }
    }
}

/// When it was found that no merge is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MergesAsOf {
    manifests: u64,
    replacing_thousandths: u64,
    /// The looks at the disk, while room is made or a merge lacks it.
    looks: Option<u64>,
}

/// Of what is looked up in filters, so much at most is said to be there and is not: three tables of one in sixty.
const WRONG_PERCENT: u64 = 5;

/// How many of the versions that come in replace others whose values are in the journal, in thousandths: means of
/// flushes, which see what a memtable had twice and look a sample of the others up, and of merges into leveled levels.
/// All forget; a load of new keys has none.
#[derive(Default)]
pub(in crate::store) struct Replacing {
    in_memtables: u64,
    in_samples: u64,
    in_merges: u64,
}

impl Replacing {
    /// A memtable was flushed, of whose versions so many were replaced.
    pub fn note_flush(&mut self, flush: &MergeStats, replaced: usize) {
        self.in_memtables = mean(self.in_memtables, flush.versions_read, replaced as u64);
        let wrong = flush.sampled * WRONG_PERCENT / 100;
        self.in_samples = mean(self.in_samples, flush.sampled, flush.sampled_replacing.saturating_sub(wrong));
    }

    /// So many entries of upper levels have replaced so many.
    pub fn note_merge(&mut self, entries: u64, replaced: usize) {
        self.in_merges = mean(self.in_merges, entries, replaced as u64);
    }

    /// As far as any of them knows.
    pub fn thousandths(&self) -> u64 {
        self.in_memtables.max(self.in_samples).max(self.in_merges)
    }
}

/// A mean in which the last one counts a half: a flush looks at thousands, so it is the load that changes, not the
/// sample.
fn mean(before: u64, versions: u64, replaced: u64) -> u64 {
    let now = replaced.saturating_mul(1000) / versions.max(1);
    before.midpoint(now.min(1000))
}

pub(super) fn in_level(level: usize, tables: Vec<Arc<Table>>) -> Vec<(usize, Arc<Table>)> {
    tables.into_iter().map(|table| (level, table)).collect()
}
