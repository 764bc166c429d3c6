//! What a backup of the store is made up of, as of one moment, for somebody else to link or copy ([`crate::backup`]).
//!
//! 1. The segment under way is ended, as if it were full: from then on all that was written lies in segments that
//!    nothing is written to any more, so a backup links whole files, and the next one need not copy any of them again.
//! 2. In the same turn the version, the segments and a manifest that names just these are taken: no table in it has a
//!    record from after that moment. It waits for a manifest that is being written, which is of another version.
//! 3. When the ended segment is synced and every seal is written, the files are whole, and whoever asked gets them.
//!
//! Whoever holds them keeps their files: compaction and merges remove nothing that is shared ([`super::obsolete`]).

use crate::backup::StoreFiles;
use crate::entry::Seq;
use crate::error::Error;
use crate::journal::segment::SegmentId;
use crate::store::Store;
use base::spawn::Outcome;
use std::sync::Arc;

/// Where a backup's list goes.
pub(super) type Asked = Outcome<Result<StoreFiles, Error>>;

/// How far it is.
pub(super) enum BackupRun {
    /// It has been asked for.
    Asked(Asked),
    /// The segment with the last record is being ended.
    Ending { asked: Asked, files: Box<StoreFiles>, ended: Option<SegmentId>, last_seq: Seq },
}

impl Store {
    /// Asks for the files that make up the store as it is when a turn next can take them: with all that has been
    /// written before. They come into `asked`, some turns later, or the reason why not; until that is dropped, their
    /// files stay.
    ///
    /// # Errors
    /// [`Error::Full`] while another is being made up, [`Error::Closing`] when the store is being closed.
    pub fn begin_backup(&mut self, asked: Outcome<Result<StoreFiles, Error>>) -> Result<(), Error> {
        if self.maintenance.closing.is_some() {
            return Err(Error::Closing);
        }
        if let Some(fenced) = self.fenced() {
            return Err(fenced);
        }
        if self.maintenance.backup.is_some() {
            return Err(Error::Full { what: "the list of backups", limit: 1 });
        }
        self.maintenance.backup = Some(BackupRun::Asked(asked));
        Ok(())
    }

    pub(super) fn step_backup(&mut self) {
        let next = match self.maintenance.backup.take() {
            Some(BackupRun::Asked(asked)) => self.end_for_backup(asked),
            Some(BackupRun::Ending { asked, files, ended, last_seq }) => {
                let is_written = self.writer.durable() >= last_seq
                    && ended.is_none_or(|ended| !self.writer.has_pending(ended));
                let sealing = &self.maintenance.compaction.sealing;
                if is_written && !sealing.iter().any(|(id, _)| files.has_segment(*id)) {
                    asked.set(Ok(*files));
                    None
                } else {
                    Some(BackupRun::Ending { asked, files, ended, last_seq })
                }
            }
            None => None,
        };
        self.maintenance.backup = next;
    }

    /// Tells whoever waits for a backup that it will not come to be.
    pub(super) fn end_hopeless_backup(&mut self) {
        if self.maintenance.backup.is_none() {
            return;
        }
        let why = match self.fenced() {
            Some(fenced) => fenced,
            None if self.maintenance.closing.is_some() => Error::Closing,
            None => return,
        };
        if let Some(BackupRun::Asked(asked) | BackupRun::Ending { asked, .. }) =
            self.maintenance.backup.take()
        {
            asked.set(Err(why));
        }
    }

    fn end_for_backup(&mut self, asked: Asked) -> Option<BackupRun> {
        if self.maintenance.manifest.is_some() {
            return Some(BackupRun::Asked(asked));
        }
        let (active, _) = self.writer.active();
        let ended = (!self.writer.is_active_empty()).then_some(active);
        if ended.is_some() {
            if !self.writer.end_segment() {
                // The next segment is still being made.
                return Some(BackupRun::Asked(asked));
            }
            self.note_segment();
        }
        let (empty, _) = self.writer.active();
        let mut state = self.manifest.clone();
        state.clean = None;
        self.describe(&mut state, &Arc::clone(&self.version), &Arc::clone(&self.segments));
        state.segments.retain(|segment| segment.id != empty.0);
        let files =
            StoreFiles::of_open(&self.dir, state, Arc::clone(&self.version), Arc::clone(&self.segments));
        let files = Box::new(files);
        Some(BackupRun::Ending { asked, files, ended, last_seq: self.writer.last_seq() })
    }
}
