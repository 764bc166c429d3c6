//! The oldest frozen memtable becomes a table of level 0.

use super::backlog::Underway;
use super::manifest::Edit;
use super::merge::in_level;
use crate::entry::Seq;
use crate::merge::{MemtableSource, MergeJob};
use crate::store::Store;
use base::spawn::Outcome;
use std::sync::Arc;

impl Store {
    pub(in crate::store) fn want_flush(&mut self) {
        let waits = self.maintenance.edits.iter().any(|edit| edit.flushed)
            || self
                .maintenance
                .manifest
                .as_ref()
                .is_some_and(|run| run.edit.as_ref().is_some_and(|e| e.flushed));
        if self.maintenance.flush.is_some() || waits {
            return;
        }
        let Some(oldest) = self.frozen.front() else { return };
        let source = MemtableSource::new(&oldest.reader, Seq(u64::MAX));
        let outcome = Outcome::new();
        let job = MergeJob::new(vec![source.into()], self.merge_request(0, u64::MAX, false), outcome.clone());
        let job = job.with_sample_in(Arc::clone(&self.version));
        let versions = oldest.reader.len() as u64;
        self.maintenance.flush = Some(Underway::begin(&*self.spawn, job, versions, outcome));
    }

    pub(super) fn take_flush(&mut self) {
        let Some(done) = self.maintenance.flush.as_ref().and_then(Underway::take) else { return };
        self.maintenance.flush = None;
        match done {
            Ok(output) => {
                let flushed = self.frozen.front_mut().expect("a flush has its memtable");
                let (needs_durable, needs_synced) = (flushed.last_seq, flushed.end_jsn);
                let dead_entries = std::mem::take(&mut flushed.dead_entries);
                self.counters.count_flush(&output.stats);
                self.maintenance.replacing.note_flush(&output.stats, output.dead.len());
                let mut dead = output.dead;
                if !dead_entries.is_empty() {
                    dead.extend(dead_entries);
                    dead.sort_unstable();
                }
                let edit = Edit {
                    added: in_level(0, output.tables),
                    flushed: true,
                    needs_durable,
                    needs_synced,
                    dead,
                    ..Edit::default()
                };
                self.maintenance.edits.push(edit);
            }
            Err(error) => self.on_failure(error),
        }
    }
}
