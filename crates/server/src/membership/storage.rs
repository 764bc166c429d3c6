//! The durable log of a node's part: its files, and the behaviour without them.
//!
//! 1. A start opens the log that is there, or begins a new one ([`Storage::open_log`]).
//! 2. A new member writes its log, and then its standing ([`Storage::remember`]): with that the node is there.
//! 3. Each write of the log is on the disk before anything that follows from it is said.
//!
//! Invariant: a node that cannot write ends, unless it is alone and nothing rests on its log. Such a node goes on
//! without files, and its part begins anew with the next start.
//!
//! Left out: the files themselves (`files.rs`).

use super::files::{Files, FilesError};
use super::standing::Standing;
use ::membership::Output;
use ::membership::log::{Identity, Log, Write};
use base::{Monotonic, Rng};
use os::OsRng;
use std::path::Path;

/// The files of a node's part.
pub(super) struct Storage {
    /// `None` for a node alone that cannot write them.
    files: Option<Files>,
    /// Whether this node has nobody to agree with.
    is_alone: bool,
}

impl Storage {
    /// With the files that a node has entered with.
    pub(super) fn new(files: Option<Files>, is_alone: bool) -> Storage {
        Storage { files, is_alone }
    }

    /// Whether the log is kept.
    pub(super) fn is_kept(&self) -> bool {
        self.files.is_some()
    }

    /// The number of starts with this one. The thread writes it before anybody hears of this start. One that fails
    /// before does not count: otherwise an older copy of a folder would pass for the next start after enough failures.
    pub(super) fn next_start(&self, standing: &Standing) -> Result<u32, FilesError> {
        Ok(match &self.files {
            Some(files) if self.is_alone => {
                files.next_start()?.max(standing.record().starts.saturating_add(1))
            }
            Some(files) => files.next_start()?,
            None => 1,
        })
    }

    /// The log on the disk of `data`, or a new one of a node that `is_new` or keeps none.
    pub(super) fn open_log(
        &mut self,
        identity: Identity,
        (standing, is_new): (&Standing, bool),
        data: &Path,
        now: Monotonic,
    ) -> Result<Log, FilesError> {
        let rng: Box<dyn Rng> = Box::new(OsRng::new());
        let invalid = |what: String| FilesError::Invalid(data.to_path_buf(), what);
        if let Some(files) = &mut self.files {
            if let Some(bytes) = files.read_log()? {
                let opened = Log::open(identity, &bytes, rng, now);
                let (log, sound) = opened.map_err(|cause| invalid(cause.to_string()))?;
                files.keep(sound)?;
                return Ok(log);
            }
            if !is_new {
                return Err(invalid("its log is lost".to_owned()));
            }
        }
        Ok(match standing.founded() {
            true => Log::found(identity, standing.state.clone(), rng, now),
            false => Log::join(identity, rng, now),
        })
    }

    /// Writes the first state of a log, and then the standing.
    pub(super) fn remember(&mut self, first: &[Output], standing: &Standing) -> Result<(), FilesError> {
        let Some(files) = &mut self.files else { return Ok(()) };
        for output in first {
            if let Output::Write(write) = output {
                files.write(write)?;
            }
        }
        files.write_standing(standing)
    }

    /// Carries out the writes of the log.
    ///
    /// # Errors
    /// Why it is not written, if something rests on the log (`is_needed`) or others count on it.
    pub(super) fn write(&mut self, write: &Write, is_needed: bool) -> Result<(), String> {
        self.attempt(is_needed, |files| files.write(write))
    }

    /// Sets the count of starts.
    ///
    /// # Errors
    /// As [`Storage::write`].
    pub(super) fn set_starts(&mut self, starts: u32, is_needed: bool) -> Result<(), String> {
        self.attempt(is_needed, |files| files.set_starts(starts))
    }

    fn attempt(
        &mut self,
        is_needed: bool,
        write: impl FnOnce(&mut Files) -> Result<(), FilesError>,
    ) -> Result<(), String> {
        let failed = match &mut self.files {
            Some(files) => write(files).map_err(|error| error.to_string()),
            None => Err("the metadata log is not kept".to_owned()),
        };
        let Err(why) = failed else { return Ok(()) };
        if !self.is_alone || is_needed {
            return Err(why);
        }
        if self.files.take().is_some() {
            tracing::warn!("this node does not keep its metadata log: {why}");
        }
        Ok(())
    }
}
