//! The clean stop: after it nothing has to be replayed, and nothing in the folder can be torn.
//!
//! 1. Put the memtable aside.
//! 2. Flush every frozen memtable; sync the journal.
//!    What the owner keeps beside the ledger is kept with it.
//! 3. Cut the journal to what was written, durably; then write the manifest with the exact dot counter and the
//!    journal's end.
//!
//! Each step is a turn or many; nothing blocks.

use super::maintenance::{position, set_oldest};
use super::{Event, Store};
use crate::error::Error;
use crate::manifest::{self, CleanStop, ManifestState};
use base::disk::{self, DiskOp, FileId};
use base::spawn::Outcome;
use base::{Disk, Job, Progress};
use std::path::PathBuf;
use std::sync::Arc;

/// How far the stop has come.
pub(super) enum Closing {
    /// Memtables are being flushed.
    Draining,
    /// The last manifest is being written.
    Writing(Outcome<Result<(), Error>>),
    /// It has been told.
    Over,
}

impl Store {
    /// Begins the clean stop; turns go on until [`Event::Closed`]. Writes that come meanwhile are taken until the
    /// last manifest is being written, and refused from then on.
    pub fn begin_close(&mut self) {
        if self.maintenance.closing.is_none() {
            self.maintenance.closing = Some(Closing::Draining);
            self.writer.want_sync();
        }
    }

    /// Whether the last manifest has been made up: it says where the journal ends and which dots are used, so a
    /// later write would be lost to both.
    pub(super) fn is_sealed_by_close(&self) -> bool {
        matches!(self.maintenance.closing, Some(Closing::Writing(_) | Closing::Over))
    }

    /// Whether memtables are flushed for the stop.
    pub(super) fn drains(&self) -> bool {
        matches!(self.maintenance.closing, Some(Closing::Draining))
    }

    pub(super) fn step_close(&mut self, events: &mut Vec<Event>) {
        match &self.maintenance.closing {
            None | Some(Closing::Over) => {}
            Some(Closing::Draining) => self.drain(events),
            Some(Closing::Writing(outcome)) => {
                if let Some(result) = outcome.take() {
                    self.closed(result, events);
                }
            }
        }
    }

    fn drain(&mut self, events: &mut Vec<Event>) {
        if let Some(error) = self.unfinished() {
            return self.closed(Err(error), events);
        }
        if !self.memtable.is_empty() && self.frozen.is_empty() {
            self.freeze();
            self.flush_journal();
            self.want_flush();
        }
        let busy = !self.writer.is_idle() || !self.frozen.is_empty() || self.maintenance_pending();
        if busy || !self.parked.is_empty() || !self.scans.is_empty() || !self.folds.is_empty() {
            return;
        }
        self.checkpoints.end();
        if !self.has_checkpoint(self.writer.next_jsn()) {
            return;
        }
        let mut state = self.manifest.clone();
        let end = position(self.writer.position());
        state.replay_position = end;
        state.replay_jsn = self.writer.next_jsn();
        set_oldest(&mut state, self.groups.as_ref().and_then(|groups| groups.oldest()));
        // No flush comes any more with which they would be counted.
        let dead_entries = self.take_dead_entries();
        self.accounts.bury(&self.segments, &dead_entries);
        self.replay_account = self.accounts.of(self.writer.active().0);
        self.describe(&mut state, &Arc::clone(&self.version), &Arc::clone(&self.segments));
        state.clean = Some(CleanStop { dot_counter: self.next_counter - 1, journal_end: end });
        let outcome = Outcome::new();
        let (dir, spare) = (self.dir.clone(), self.writer.spare_room());
        self.spawn.spawn(Box::new(LastJob { dir, spare, state, outcome: outcome.clone() }));
        self.maintenance.closing = Some(Closing::Writing(outcome));
    }

    fn closed(&mut self, result: Result<(), Error>, events: &mut Vec<Event>) {
        self.maintenance.closing = Some(Closing::Over);
        events.push(Event::Closed(result));
    }
}

/// What is left when nothing is written any more.
struct LastJob {
    dir: PathBuf,
    /// The journal's last file and where its records end, if it is longer.
    spare: Option<(FileId, u64)>,
    state: ManifestState,
    outcome: Outcome<Result<(), Error>>,
}

impl LastJob {
    fn run(&self, disk: &mut dyn Disk) -> Result<(), Error> {
        if let Some((file, len)) = self.spare {
            disk::run(disk, DiskOp::Truncate { file, len })?;
            disk::run(disk, DiskOp::Sync { file })?;
        }
        manifest::write(disk, &self.dir, &self.state).map(drop)
    }
}

impl Job for LastJob {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        self.outcome.set(self.run(disk));
        Progress::Done
    }
}
