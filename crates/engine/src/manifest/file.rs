//! The manifest's file.

use super::ManifestState;
use crate::error::{Damage, Error};
use base::Disk;
use base::disk::{self, DiskErrorKind, DiskOp, OpenMode};
use base::spawn::{Job, Outcome, Progress};
use bytes::Bytes;
use std::path::{Path, PathBuf};

/// Its name in the store's folder.
pub const MANIFEST_FILE: &str = "MANIFEST";

/// A longer file is none of ours: with 16 MiB for a table this is enough for 20 TB of heads.
const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// Reads the manifest in `dir`; `None` if there is none. [`Error::Damaged`] if its bytes are not what was
/// written, [`Error::Format`] if a newer program wrote it. Blocks.
pub fn read(disk: &mut dyn Disk, dir: &Path) -> Result<Option<ManifestState>, Error> {
    let (file, len) = match disk::open(disk, &dir.join(MANIFEST_FILE), OpenMode::Read) {
        Ok(opened) => opened,
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let bytes = match usize::try_from(len) {
        Ok(fits) if len <= MANIFEST_BYTES_MAX => disk::read(disk, file, 0, fits).map_err(Error::from),
        _ => Err(Damage { file: MANIFEST_FILE.to_owned(), offset: 0, what: "far too long" }.into()),
    };
    // What was read is checked below; that the file would not close changes nothing.
    disk::run(disk, DiskOp::Close { file }).ok();
    ManifestState::decode(&bytes?, MANIFEST_FILE).map(Some)
}

/// Puts `state` in the place of the manifest in `dir`, durably and all at once. Blocks.
pub fn write(disk: &mut dyn Disk, dir: &Path, state: &ManifestState) -> Result<(), Error> {
    Ok(disk::replace_file(disk, &dir.join(MANIFEST_FILE), Bytes::from(state.encode()?))?)
}

/// Writes the manifest in the background. One runs at a time: they share the temporary name.
pub struct ManifestJob {
    dir: PathBuf,
    state: ManifestState,
    outcome: Outcome<Result<(), Error>>,
}

impl ManifestJob {
    /// A job that puts `state` in the place of the manifest in `dir`.
    pub fn new(dir: PathBuf, state: ManifestState, outcome: Outcome<Result<(), Error>>) -> ManifestJob {
        ManifestJob { dir, state, outcome }
    }
}

impl Job for ManifestJob {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        self.outcome.set(write(disk, &self.dir, &self.state));
        Progress::Done
    }
}
