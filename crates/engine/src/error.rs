//! What can go wrong, as far as a caller acts on it.

use base::DiskError;

/// A place where bytes are not what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} is damaged at byte {offset}: {what}")]
pub struct Damage {
    /// The file, named relative to the data folder.
    pub file: String,
    /// The first byte of the record, block or structure that failed its check.
    pub offset: u64,
    /// What failed.
    pub what: &'static str,
}

/// An engine error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Stored bytes fail their check. Another replica may have them; nothing else may be put in their place.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The disk refused an operation.
    #[error("disk: {0}")]
    Disk(DiskError),
    /// There is no room on the disk, or no file handle left. Reads go on, and writes come back by themselves when there
    /// is room again.
    #[error("no room: {0}")]
    Exhausted(String),
    /// A write or sync failed earlier: the store takes no more writes until it is opened again. Reads go on.
    #[error("the store takes no writes since a failed one: {0}")]
    Fenced(String),
    /// The clean stop has come too far for another write.
    #[error("the store is closing")]
    Closing,
    /// Too much is under way; the request was not taken. Try again.
    #[error("{what} is full (limit {limit})")]
    Full {
        /// The bounded thing.
        what: &'static str,
        /// Its bound.
        limit: usize,
    },
    /// The caller asked for something beyond a named limit.
    #[error("{what} of {len} bytes is over the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        len: usize,
        /// How large it may be.
        limit: usize,
    },
    /// What was asked for is never possible here, whenever it is asked.
    #[error("refused: {0}")]
    Refused(&'static str),
    /// Bytes passed their checksum, or have none, and still make no sense: a bug, or a newer format.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// The files were written by a newer program, or are not ours.
    #[error("{file}: {what}")]
    Format {
        /// The file.
        file: String,
        /// What is unknown about it.
        what: String,
    },
}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Error {
        if error.kind.is_passing() { Error::Exhausted(error.to_string()) } else { Error::Disk(error) }
    }
}
