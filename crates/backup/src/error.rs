//! What can go wrong with a backup, as far as a caller acts on it.

use base::{DiskError, DiskErrorKind};

/// Why a backup was not made, or is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The folder is no backup, an unfinished one, or another program's.
    #[error("{0}")]
    NotBackup(String),
    /// What is to be made is there already, or something else is in its place.
    #[error("{0}")]
    Taken(String),
    /// Bytes are not those that the index tells of.
    #[error("{file}: {what}")]
    Damaged {
        /// The file, relative to the backup's folder.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// There is no room for it.
    #[error("no room in {place}: {needed} bytes are needed, and {free} are free")]
    NoRoom {
        /// The folder.
        place: String,
        /// Bytes that it takes.
        needed: u64,
        /// Bytes that there are.
        free: u64,
    },
    /// Whoever watched has stopped it.
    #[error("stopped")]
    Stopped,
    /// A shard's store does not say what it is made up of.
    #[error("shard {0} does not bring its last writes to the disk: it has no room, or does not answer")]
    NotReady(u16),
    /// The disk refused an operation.
    #[error("disk: {0}")]
    Disk(#[from] DiskError),
    /// A store cannot be read.
    #[error(transparent)]
    Store(#[from] engine::Error),
}

impl Error {
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Error::Disk(error) if error.kind == DiskErrorKind::NotFound)
    }
}
