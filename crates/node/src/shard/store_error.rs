//! Errors of the store, as clients are told them.

use kv::Error;

/// The client's error for a store's error.
pub(crate) fn store_error(error: engine::Error) -> Error {
    match error {
        engine::Error::Damaged(damage) => Error::Damaged(damage.to_string()),
        engine::Error::Fenced(cause) => {
            Error::Fenced(format!("the store takes no writes since a failed one: {cause}"))
        }
        error @ engine::Error::Exhausted(_) => Error::Exhausted(error.to_string()),
        engine::Error::Full { .. } => Error::Overload,
        engine::Error::TooLarge { what, len, limit } => Error::TooLarge { what, len, limit },
        other => Error::Store(other.to_string()),
    }
}
