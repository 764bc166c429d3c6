//! What can go wrong with an object.

use crate::dot::Dot;
use crate::index::IndexErrors;

/// Why bytes were refused, or an operation was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A stored or received head is not one: damage, to be treated like a bad checksum.
    #[error("malformed head: {0}")]
    Head(&'static str),
    /// A ledger key is not one: damage.
    #[error("malformed ledger key: {0}")]
    Key(&'static str),
    /// A client sent a context that no store made: the client's fault.
    #[error("malformed causal context: {0}")]
    Context(&'static str),
    /// A bucket type, bucket or key is empty or too long: the client's fault.
    #[error("{what} is {len} bytes long; 1 to {max} are allowed")]
    Name {
        /// Which name.
        what: &'static str,
        /// Its length.
        len: usize,
        /// The longest it may be.
        max: usize,
    },
    /// Index terms were refused; the text is Riak's.
    #[error(transparent)]
    Index(#[from] IndexErrors),
    /// The result would name more than [`crate::ACTORS_MAX`] actors. Refuse the write; nothing is damaged.
    #[error("the causal context would name more than {} actors", crate::ACTORS_MAX)]
    TooManyActors,
    /// A context claims to have seen the new write already: it is forged, or this store reuses an identity.
    /// Refuse the write, or it would count as overwritten from birth.
    #[error("a causal context already covers the new write {}:{}", .0.actor.0, .0.counter)]
    DotCovered(Dot),
}
