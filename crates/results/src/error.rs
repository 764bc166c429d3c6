//! Errors of a run, or of reading its results.

use std::io;
use std::path::{Path, PathBuf};

/// Why a run, or the reading of one, ended early. A store that answers wrongly or not at all is not an error of the
/// run: it is what the run is there to find out, and stands in its results.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The workload, a flag, or a combination of them cannot be run as given.
    #[error("{0}")]
    Unusable(String),
    /// A file or folder of results is not what it should be.
    #[error("{path}: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The operating system refused something.
    #[error("{what}: {error}")]
    Io {
        /// What was tried, on what.
        what: String,
        /// What it said.
        error: io::Error,
    },
}

impl Error {
    /// Of an operation on a file.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |error| Error::Io { what: path.display().to_string(), error }
    }

    /// Of a file that is not what it should be.
    pub fn damaged(path: &Path, what: impl Into<String>) -> Error {
        Error::Damaged { path: path.to_owned(), what: what.into() }
    }
}
