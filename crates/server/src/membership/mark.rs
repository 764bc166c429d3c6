//! The mark of a data folder that security is on: `docs/formats/security.md`.
//!
//! It stands beside the folder of the metadata log. A node whose log is lost, or is older than the policy, finds the
//! mark without a mode in its log, and lets no client in until the log has one.
//!
//! Invariant: a mark is on the disk before the change that turns security on is acknowledged at this node, and goes
//! after a change that turns it off is in force.
//!
//! Left out: the contents decide nothing, so a damaged mark is one.

use super::files::{FilesError, private_file, sync_folder};
use base::checksum::crc32c;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The name of the mark in the data folder.
pub(super) const MARK: &str = "security-on";

const MAGIC: &[u8; 4] = b"ANSO";
const VERSION: u8 = 1;

/// The mark of a data folder.
pub(super) struct SecurityMark {
    data: PathBuf,
    is_set: bool,
}

impl SecurityMark {
    /// Looks for the mark. A folder that cannot be looked at counts as marked.
    pub(super) fn find(data: &Path) -> SecurityMark {
        SecurityMark { data: data.to_path_buf(), is_set: data.join(MARK).try_exists().unwrap_or(true) }
    }

    /// Whether it is there.
    pub(super) fn is_set(&self) -> bool {
        self.is_set
    }

    /// Makes the mark, or removes it.
    pub(super) fn set(&mut self, is_on: bool) -> Result<(), FilesError> {
        if is_on == self.is_set {
            return Ok(());
        }
        let path = self.data.join(MARK);
        let done = if is_on { write(&path) } else { remove(&path) };
        done.map_err(|error| FilesError::Io(path, error))?;
        sync_folder(&self.data)?;
        self.is_set = is_on;
        Ok(())
    }
}

fn write(path: &Path) -> io::Result<()> {
    let mut file = private_file(path)?;
    file.write_all(&mark_bytes())?;
    file.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn mark_bytes() -> Vec<u8> {
    let mut out = [&MAGIC[..], &[VERSION]].concat();
    let crc = crc32c(&out);
    out.extend(crc.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn golden_bytes() {
        assert_eq!(mark_bytes(), *b"ANSO\x01\x9e\x2f\x79\x64");
    }

    #[test]
    fn a_mark_outlives_its_process_until_it_is_removed() {
        let data = tempfile::tempdir().unwrap();
        let find = || SecurityMark::find(data.path());
        assert!(!find().is_set());
        find().set(true).unwrap();
        std::fs::write(data.path().join(MARK), b"").unwrap();
        assert!(find().is_set(), "also a damaged one");
        find().set(false).unwrap();
        find().set(false).unwrap();
        assert!(!find().is_set());
    }
}
