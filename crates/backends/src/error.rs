//! What can go wrong, as far as a caller acts on it.

use base::{DiskError, DiskErrorKind};
use engine::Damage;

/// An error of a backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Stored bytes fail a check: never "not found".
    #[error(transparent)]
    Damaged(Damage),
    /// It is beyond a limit of this engine.
    #[error("{what} of {len} bytes is over the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        len: usize,
        /// How large it may be.
        limit: usize,
    },
    /// This engine, or this program, cannot do what was asked for, whenever it is asked.
    #[error("refused: {0}")]
    Refused(String),
    /// The engine failed.
    #[error("{engine}: {what}")]
    Failed {
        /// Its name.
        engine: &'static str,
        /// What it said.
        what: String,
    },
}

impl Error {
    /// For `map_err`: what the engine of this name said.
    #[cfg(feature = "foreign")]
    pub(crate) fn of<E: std::fmt::Display>(engine: &'static str) -> impl Fn(E) -> Error {
        move |error| Error::Failed { engine, what: error.to_string() }
    }

    /// What is not what was written, and not at any one byte.
    pub(crate) fn damaged(file: &str, what: &'static str) -> Error {
        Error::Damaged(Damage { file: file.to_owned(), offset: 0, what })
    }

    /// Refuses what is longer than an engine takes.
    pub(crate) fn check_len(what: &'static str, len: usize, limit: usize) -> Result<(), Error> {
        if len > limit { Err(Error::TooLarge { what, len, limit }) } else { Ok(()) }
    }
}

impl From<engine::Error> for Error {
    fn from(error: engine::Error) -> Error {
        match error {
            engine::Error::Damaged(damage) => Error::Damaged(damage),
            engine::Error::TooLarge { what, len, limit } => Error::TooLarge { what, len, limit },
            engine::Error::Refused(what) => Error::Refused(what.to_owned()),
            other => Error::Failed { engine: "annulet", what: other.to_string() },
        }
    }
}

/// For whoever has stores of the engine, too.
impl From<Error> for engine::Error {
    fn from(error: Error) -> engine::Error {
        match error {
            Error::Damaged(damage) => engine::Error::Damaged(damage),
            Error::TooLarge { what, len, limit } => engine::Error::TooLarge { what, len, limit },
            Error::Refused(what) => engine::Error::Format { file: "the backend".to_owned(), what },
            Error::Failed { engine, what } => {
                let (kind, path) = (DiskErrorKind::Io, engine.to_owned());
                engine::Error::Disk(DiskError { kind, path, message: what })
            }
        }
    }
}
