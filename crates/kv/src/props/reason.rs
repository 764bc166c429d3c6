//! The reason why a property was refused.

/// Why a property was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A word of Riak's.
    Word(&'static str),
    /// A sentence.
    Text(String),
}
