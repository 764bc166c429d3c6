//! The files of a node's part in its cluster: `docs/formats/membership.md`.
//!
//! In the folder `membership` of the data folder: `standing`, which node this is; `log`, whose bytes are the crate
//! `membership`'s; `starts`, how often the folder was started, which is written before anything is said in a start's
//! name, except for the number that an older copy is told (`part.rs`); and `lock`, which is empty.
//!
//! Invariants: a write is on the disk when its call returns; a file is replaced as a whole or not at all; one process
//! has them open.

use super::alone;
use super::mark::MARK;
use super::standing::Standing;
use ::membership::log::{FileError, Write};
use base::checksum::crc32c;
use base::{DiskError, DiskErrorKind};
use bytes::Bytes;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(super) const FOLDER: &str = "membership";
pub(super) const LOG: &str = "log";
const STARTS: &str = "starts";
pub(super) const STANDING: &str = "standing";
const LOCK: &str = "lock";

/// Permissions of a file that its owner alone reads and writes.
const PRIVATE: u32 = 0o600;

const MAGIC: &[u8; 4] = b"ANMS";
const VERSION: u8 = 1;

/// Why the files are of no use.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The system refuses.
    #[error("{path}: {cause}", path = .0.display(), cause = .1)]
    Io(PathBuf, io::Error),
    /// Another process has the data folder.
    #[error("another process is using the data in {path}", path = .0.display())]
    Locked(PathBuf),
    /// What is there is not this node's, damaged, or of another version.
    #[error("the membership of the data in {path}: {what}", path = .0.display(), what = .1)]
    Invalid(PathBuf, String),
}

/// The open files.
pub(super) struct Files {
    folder: PathBuf,
    /// Open for appending, once it is there.
    log: Option<File>,
    /// Held as long as the files are open.
    _lock: File,
}

impl Files {
    /// The files of a data folder; the folder is made if it is missing.
    pub(super) fn open(data: &Path) -> Result<Files, FilesError> {
        let folder = data.join(FOLDER);
        let failed = |error| FilesError::Io(folder.clone(), error);
        if !folder.exists() {
            std::fs::create_dir_all(&folder).map_err(failed)?;
            sync_folder(data)?;
        }
        let lock = take_lock(folder.join(LOCK), data)?;
        let path = folder.join(LOG);
        let log = match OpenOptions::new().append(true).open(&path) {
            Ok(log) => Some(log),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(FilesError::Io(path, error)),
        };
        Ok(Files { folder, log, _lock: lock })
    }

    /// Which node this is; `None` if that was never written.
    pub(super) fn read_standing(&self) -> Result<Option<Standing>, FilesError> {
        let path = self.folder.join(STANDING);
        match std::fs::read(&path) {
            Ok(bytes) => Standing::decode(&bytes.into())
                .map(Some)
                .map_err(|cause| FilesError::Invalid(path, format!("which node it is: {cause}"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FilesError::Io(path, error)),
        }
    }

    /// Remembers which node this is.
    pub(super) fn write_standing(&self, standing: &Standing) -> Result<(), FilesError> {
        self.replace(STANDING, &standing.encode())
    }

    /// Whether there is a log.
    pub(super) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Forgets a log that no standing was written for: its node has not come to be.
    pub(super) fn discard_log(&mut self) -> Result<(), FilesError> {
        if self.log.take().is_some() {
            let path = self.folder.join(LOG);
            std::fs::remove_file(&path).map_err(|error| FilesError::Io(path, error))?;
        }
        Ok(())
    }

    /// The log's bytes; `None` if there is none yet.
    pub(super) fn read_log(&self) -> Result<Option<Bytes>, FilesError> {
        let path = self.folder.join(LOG);
        let read =
            |_| std::fs::read(&path).map(Bytes::from).map_err(|error| FilesError::Io(path.clone(), error));
        self.log.as_ref().map(read).transpose()
    }

    /// Says that the log cannot be read.
    pub(super) fn invalid_log(&self, cause: &FileError) -> FilesError {
        FilesError::Invalid(self.folder.join(LOG), cause.to_string())
    }

    /// Cuts off what a crash tore.
    pub(super) fn keep(&mut self, sound: usize) -> Result<(), FilesError> {
        let failed = |error| FilesError::Io(self.folder.join(LOG), error);
        let Some(log) = &self.log else { return Ok(()) };
        if log.metadata().map_err(failed)?.len() > sound as u64 {
            log.set_len(sound as u64).and_then(|()| log.sync_all()).map_err(failed)?;
        }
        Ok(())
    }

    /// Does what the log wants written.
    pub(super) fn write(&mut self, write: &Write) -> Result<(), FilesError> {
        match (write, &mut self.log) {
            (Write::Append(bytes), Some(log)) => log
                .write_all(bytes)
                .and_then(|()| log.sync_data())
                .map_err(|error| FilesError::Io(self.folder.join(LOG), error)),
            (Write::Append(bytes) | Write::Replace(bytes), _) => {
                self.replace(LOG, bytes)?;
                let path = self.folder.join(LOG);
                let log = OpenOptions::new().append(true).open(&path);
                self.log = Some(log.map_err(|error| FilesError::Io(path, error))?);
                Ok(())
            }
        }
    }

    /// The count of starts with this one; it is not written yet.
    pub(super) fn next_start(&self) -> Result<u32, FilesError> {
        let path = self.folder.join(STARTS);
        let before = match std::fs::read(&path) {
            Ok(bytes) => read_starts(&bytes)
                .ok_or_else(|| FilesError::Invalid(path, "the count of starts is damaged".to_owned()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(FilesError::Io(path, error)),
        };
        Ok(before.saturating_add(1))
    }

    /// Sets the count of starts.
    pub(super) fn set_starts(&mut self, starts: u32) -> Result<(), FilesError> {
        self.replace(STARTS, &starts_bytes(starts))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), FilesError> {
        let (path, new) = (self.folder.join(name), self.folder.join(format!("{name}.new")));
        let written =
            private_file(&new).and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
        written.map_err(|error| FilesError::Io(new.clone(), error))?;
        std::fs::rename(&new, &path).map_err(|error| FilesError::Io(path, error))?;
        sync_folder(&self.folder)
    }
}

/// Whether a data folder says which node of a cluster it is; nothing is made.
pub(super) fn has_standing(data: &Path) -> bool {
    data.join(FOLDER).join(STANDING).exists()
}

/// Whether a data folder has a log, or that cannot be found out; nothing is made.
pub(super) fn may_have_log(data: &Path) -> bool {
    data.join(FOLDER).join(LOG).try_exists().unwrap_or(true)
}

/// What a backup has of a node's part in its cluster: these files as they are now, with their names relative to the
/// data folder; a node alone has no standing. The log's end may be torn, as after a crash. The mark that security is on
/// goes with them: it is read first, so that the log of the backup is not older than the mark.
///
/// # Errors
/// If one is there and cannot be read.
pub fn backed_up_files(data: &Path) -> Result<Vec<(String, Bytes)>, DiskError> {
    let mut files = Vec::new();
    let names = [STANDING, LOG, STARTS].map(|name| format!("{FOLDER}/{name}"));
    for name in [MARK.to_owned()].into_iter().chain(names) {
        let path = data.join(&name);
        match std::fs::read(&path) {
            Ok(bytes) => files.push((name, Bytes::from(bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let (path, message) = (path.display().to_string(), error.to_string());
                return Err(DiskError { kind: DiskErrorKind::Io, path, message });
            }
        }
    }
    Ok(files)
}

/// Whether the stores of a backup in `folder` may have states of consistent groups: its metadata log has a founding.
///
/// # Errors
/// [`FilesError`]; `Invalid` if the log is damaged, or of a newer program.
pub fn has_groups(folder: &Path) -> Result<bool, FilesError> {
    let path = folder.join(FOLDER).join(LOG);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => Bytes::from(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(FilesError::Io(path, error)),
    };
    let state = alone::state_of(&bytes).map_err(|cause| FilesError::Invalid(path, cause.to_string()))?;
    Ok(state.is_some_and(|state| state.foundings().next().is_some()))
}

/// An empty file that the node's user alone can read: the log and the standing have verifiers of passwords.
pub(super) fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE).open(path)
}

fn take_lock(path: PathBuf, data: &Path) -> Result<File, FilesError> {
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let file = file.map_err(|error| FilesError::Io(path.clone(), error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(FilesError::Locked(data.to_path_buf())),
        Err(TryLockError::Error(error)) => Err(FilesError::Io(path, error)),
    }
}

pub(super) fn sync_folder(folder: &Path) -> Result<(), FilesError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| FilesError::Io(folder.to_path_buf(), error))
}

fn starts_bytes(starts: u32) -> Vec<u8> {
    let mut out = [&MAGIC[..], &[VERSION], &starts.to_le_bytes()].concat();
    let crc = crc32c(&out);
    out.extend(crc.to_le_bytes());
    out
}

/// `None` unless the bytes are what [`starts_bytes`] writes.
fn read_starts(bytes: &[u8]) -> Option<u32> {
    let (summed, crc) = bytes.split_last_chunk::<4>()?;
    let starts = summed.strip_prefix(MAGIC)?.strip_prefix(&[VERSION])?;
    let starts = u32::from_le_bytes(starts.try_into().ok()?);
    (u32::from_le_bytes(*crc) == crc32c(summed)).then_some(starts)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn a_count_of_starts_as_bytes() {
        let golden = b"ANMS\x01\x07\0\0\0\xf4\x54\x9b\x57";
        assert_eq!(starts_bytes(7), golden);
        assert_eq!(read_starts(golden), Some(7));
        for at in 0..golden.len() {
            let mut bad = golden.to_vec();
            bad[at] ^= 1;
            assert_eq!(read_starts(&bad), None, "byte {at}");
            assert_eq!(read_starts(&golden[..at]), None);
        }
    }

    #[test]
    fn what_is_written_is_there_after_a_start_and_what_is_torn_is_cut_off() {
        let data = tempfile::tempdir().unwrap();
        let mut files = Files::open(data.path()).unwrap();
        assert_eq!((files.read_log().unwrap(), files.next_start().unwrap()), (None, 1));
        files.write(&Write::Replace(Bytes::from_static(b"whole"))).unwrap();
        files.write(&Write::Append(Bytes::from_static(b" and more"))).unwrap();
        assert!(matches!(Files::open(data.path()), Err(FilesError::Locked(_))));
        drop(files);
        let mut files = Files::open(data.path()).unwrap();
        assert_eq!(files.read_log().unwrap().unwrap(), "whole and more");
        files.keep(9).unwrap();
        files.write(&Write::Append(Bytes::from_static(b"!"))).unwrap();
        files.set_starts(8).unwrap();
        drop(files);
        let files = Files::open(data.path()).unwrap();
        assert_eq!(files.read_log().unwrap().unwrap(), "whole and!");
        assert_eq!(files.next_start().unwrap(), 9);
        std::fs::write(data.path().join("membership/starts"), b"rubbish").unwrap();
        assert!(matches!(files.next_start(), Err(FilesError::Invalid(..))));
    }
}
