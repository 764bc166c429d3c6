//! The manifest's file.

use super::ManifestState;
use crate::error::{Damage, Error};
use crate::store::LEASE_COUNTERS;
use base::Disk;
use base::disk::{self, DiskErrorKind, DiskOp, OpenMode};
use base::spawn::{Job, Outcome, Progress};
use bytes::Bytes;
use std::path::{Path, PathBuf};

/// Its name in the store's folder.
pub const MANIFEST_FILE: &str = "MANIFEST";

/// Its copy's name: one bad block must not cost a ledger.
pub const MANIFEST_COPY_FILE: &str = "MANIFEST.copy";

/// A longer file is none of ours: with 16 MiB for a table this is enough for 20 TB of heads.
const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// A manifest, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundManifest {
    /// What it says.
    pub state: ManifestState,
    /// Why it is the copy, if it is.
    pub damage: Option<Damage>,
}

/// Reads the manifest in `dir`, or else its copy; `None` if there is neither. [`Error::Damaged`] if the bytes of both
/// are not what was written, [`Error::Format`] if a newer program wrote it. Blocks.
///
/// A copy may be that of the manifest before the last: all of its files are still there then, and what came later is
/// replayed. It does not know the last dots and how the store was left, so it is taken for one of a store that was
/// killed, and its lease for one that was extended.
pub fn find(disk: &mut dyn Disk, dir: &Path) -> Result<Option<FoundManifest>, Error> {
    let damage = match read(disk, dir) {
        Ok(Some(state)) => return Ok(Some(FoundManifest { state, damage: None })),
        Ok(None) => Damage { file: MANIFEST_FILE.to_owned(), offset: 0, what: "the manifest is missing" },
        Err(Error::Damaged(damage)) => damage,
        Err(other) => return Err(other),
    };
    match read_file(disk, dir, MANIFEST_COPY_FILE) {
        Ok(Some(mut state)) => {
            state.clean = None;
            state.dot_lease_end += 2 * LEASE_COUNTERS;
            Ok(Some(FoundManifest { state, damage: Some(damage) }))
        }
        Ok(None) if damage.what == "the manifest is missing" => Ok(None),
        Ok(None) | Err(Error::Damaged(_)) => Err(damage.into()),
        Err(other) => Err(other),
    }
}

/// Reads the manifest in `dir`; `None` if there is none. [`Error::Damaged`] if its bytes are not what was
/// written, [`Error::Format`] if a newer program wrote it. Blocks.
pub fn read(disk: &mut dyn Disk, dir: &Path) -> Result<Option<ManifestState>, Error> {
    read_file(disk, dir, MANIFEST_FILE)
}

/// [`read`] of the manifest's copy. Blocks.
pub fn read_copy(disk: &mut dyn Disk, dir: &Path) -> Result<Option<ManifestState>, Error> {
    read_file(disk, dir, MANIFEST_COPY_FILE)
}

fn read_file(disk: &mut dyn Disk, dir: &Path, name: &str) -> Result<Option<ManifestState>, Error> {
    let (file, len) = match disk::open(disk, &dir.join(name), OpenMode::Read) {
        Ok(opened) => opened,
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let bytes = match usize::try_from(len) {
        Ok(fits) if len <= MANIFEST_BYTES_MAX => disk::read(disk, file, 0, fits).map_err(Error::from),
        _ => Err(Damage { file: name.to_owned(), offset: 0, what: "far too long" }.into()),
    };
    // What was read is checked below; that the file would not close changes nothing.
    disk::run(disk, DiskOp::Close { file }).ok();
    ManifestState::decode(&bytes?, name).map(Some)
}

/// Puts `state` in the place of the manifest in `dir`, durably and all at once, and then in that of its copy; tells how
/// many bytes one of them has. Without room for a third file the copy is removed before: merges free nothing until the
/// manifest that counts them is written. Blocks.
pub fn write(disk: &mut dyn Disk, dir: &Path, state: &ManifestState) -> Result<u64, Error> {
    let bytes = Bytes::from(state.encode()?);
    let len = bytes.len() as u64;
    let (path, copy) = (dir.join(MANIFEST_FILE), dir.join(MANIFEST_COPY_FILE));
    match disk::replace_file(disk, &path, bytes.clone()) {
        Err(error) if error.kind == DiskErrorKind::NoSpace => {
            remove_if_there(disk, &copy)?;
            disk::replace_file(disk, &path, bytes.clone())?;
        }
        other => other?,
    }
    disk::replace_file(disk, &copy, bytes)?;
    Ok(len)
}

fn remove_if_there(disk: &mut dyn Disk, path: &Path) -> Result<(), Error> {
    match disk::run(disk, DiskOp::Remove { path: path.to_path_buf() }) {
        Err(error) if error.kind != DiskErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes the manifest in the background. One runs at a time: they share the temporary name.
pub struct ManifestJob {
    dir: PathBuf,
    state: ManifestState,
    outcome: Outcome<Result<u64, Error>>,
}

impl ManifestJob {
    /// A job that puts `state` in the place of the manifest in `dir`; the outcome has the bytes of one file.
    pub fn new(dir: PathBuf, state: ManifestState, outcome: Outcome<Result<u64, Error>>) -> ManifestJob {
        ManifestJob { dir, state, outcome }
    }
}

impl Job for ManifestJob {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        self.outcome.set(write(disk, &self.dir, &self.state));
        Progress::Done
    }
}
