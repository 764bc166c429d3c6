//! The mark of a data folder that security is on: `docs/formats/security.md`.
//!
//! It stands beside the folder of the metadata log, with the last version of the policy that had security on. A node
//! whose log is lost finds the mark without a mode in its log. One whose log is older than the mark finds a lower
//! version of the policy. Neither lets a client in by a log that does not say that security is on.
//!
//! Invariants: a mark with its version is on the disk before the change that makes this version is acknowledged at this
//! node, and goes after a change that turns security off is in force. It is replaced as a whole or not at all.
//!
//! Left out: a mark that is damaged, or of version 1, is one without a version of the policy.

use super::files::{FilesError, private_file, sync_folder};
use crate::security::PolicyPoint;
use ::membership::ClusterId;
use ::security::EnabledMark;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The name of the mark in the data folder.
pub(super) const MARK: &str = "security-on";

/// The name of a mark that is being written, and does not count yet.
const NEW_MARK: &str = "security-on.new";

/// The mark of a data folder.
pub(super) struct SecurityMark {
    data: PathBuf,
    is_set: bool,
    /// The last policy with security on; `None` if the mark does not tell.
    enabled_at: Option<PolicyPoint>,
}

impl SecurityMark {
    /// Looks for the mark. A folder that cannot be looked at counts as marked.
    pub(super) fn find(data: &Path) -> SecurityMark {
        let path = data.join(MARK);
        // A mark that cannot be read tells no version, and counts nevertheless.
        let enabled_at = std::fs::read(&path).ok().and_then(|bytes| EnabledMark::read(&bytes)).map(point_of);
        let is_set = path.try_exists().unwrap_or(true);
        SecurityMark { data: data.to_path_buf(), is_set, enabled_at }
    }

    /// Whether it is there.
    pub(super) fn is_set(&self) -> bool {
        self.is_set
    }

    /// The last policy with security on; `None` if the mark does not tell, or is not there.
    pub(super) fn enabled_at(&self) -> Option<PolicyPoint> {
        self.enabled_at
    }

    /// Makes the mark, or renews it, for security that is on at this policy; nothing if it has this policy.
    pub(super) fn set(&mut self, point: PolicyPoint) -> Result<(), FilesError> {
        if self.is_set && self.enabled_at == Some(point) {
            return Ok(());
        }
        let (path, new) = (self.data.join(MARK), self.data.join(NEW_MARK));
        write(&new, point).map_err(|error| FilesError::Io(new.clone(), error))?;
        std::fs::rename(&new, &path).map_err(|error| FilesError::Io(path, error))?;
        sync_folder(&self.data)?;
        (self.is_set, self.enabled_at) = (true, Some(point));
        Ok(())
    }

    /// Removes the mark, if it is there.
    pub(super) fn clear(&mut self) -> Result<(), FilesError> {
        if !self.is_set {
            return Ok(());
        }
        let path = self.data.join(MARK);
        remove(&path).map_err(|error| FilesError::Io(path, error))?;
        sync_folder(&self.data)?;
        (self.is_set, self.enabled_at) = (false, None);
        Ok(())
    }
}

fn write(path: &Path, point: PolicyPoint) -> io::Result<()> {
    let mut file = private_file(path)?;
    let mark = EnabledMark { cluster: point.cluster.0, policy_version: point.version };
    file.write_all(&mark.encode())?;
    file.sync_all()
}

fn point_of(mark: EnabledMark) -> PolicyPoint {
    PolicyPoint { cluster: ClusterId(mark.cluster), version: mark.policy_version }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    const POINT: PolicyPoint = PolicyPoint { cluster: ClusterId(0x0807_0605_0403_0201), version: 300 };

    #[test]
    fn a_mark_outlives_its_process_until_it_is_removed() {
        let data = tempfile::tempdir().unwrap();
        let find = || SecurityMark::find(data.path());
        assert!(!find().is_set());
        find().set(POINT).unwrap();
        assert_eq!((find().is_set(), find().enabled_at()), (true, Some(POINT)));
        let later = PolicyPoint { version: 301, ..POINT };
        find().set(later).unwrap();
        assert_eq!(find().enabled_at(), Some(later), "it is renewed");
        find().set(POINT).unwrap();
        assert_eq!(find().enabled_at(), Some(POINT), "the policy follower decides on the version");
        std::fs::write(data.path().join(MARK), b"").unwrap();
        assert_eq!((find().is_set(), find().enabled_at()), (true, None), "also a damaged one");
        find().set(POINT).unwrap();
        assert_eq!(find().enabled_at(), Some(POINT), "a damaged one is replaced");
        assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 1);
        find().clear().unwrap();
        find().clear().unwrap();
        assert_eq!((find().is_set(), find().enabled_at()), (false, None));
    }
}
