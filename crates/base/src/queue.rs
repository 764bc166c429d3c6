//! The error of a bounded queue.

/// What a full queue gives back: the item that did not fit.
#[derive(Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);
