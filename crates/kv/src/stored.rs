//! Versions of keys as a store has them, and how much of them a read fetches.

use bytes::Bytes;

/// How much of an object a read fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The head. A value that comes for free (stored in line) may come with it.
    Head,
    /// The head and the value.
    Value,
}

/// A version of a key as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The encoded head.
    pub head: Bytes,
    /// The values, if they were asked for or came for free.
    pub value: Option<Bytes>,
}
