//! What a client is told when a request fails. One variant for each thing that some protocol says in its own
//! way; the texts here are for logs and for protocols that have none of their own.

use bytes::Bytes;

use crate::need::Need;
use crate::props::reason::Reason;
use crate::props::type_status::TypeStatus;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A quorum above the number of replicas it counts in, or more replicas than the bucket has.
    #[error("a quorum beyond the {0} replicas")]
    NValViolation(u32),
    /// Too few replies of some kind.
    #[error("{need} is not met: {want} wanted, {got} got")]
    Unsatisfied {
        /// Which requirement.
        need: Need,
        /// What it asks for.
        want: u32,
        /// What there was.
        got: u32,
    },
    /// As [`Error::Unsatisfied`], where replicas failed for want of room on their disks.
    #[error("{need} is not met: {want} wanted, {got} got; {full} without room on the disk")]
    NoRoom {
        /// Which requirement.
        need: Need,
        /// What it asks for.
        want: u32,
        /// What there was.
        got: u32,
        /// How many nodes had no room.
        full: u32,
    },
    /// Fewer vnodes can be reached than must reply.
    #[error("{have} vnodes can be reached, {need} are needed")]
    InsufficientVnodes {
        /// How many there are.
        have: u32,
        /// How many must reply.
        need: u32,
    },
    /// The node cannot be reached.
    #[error("the node cannot be reached")]
    Unreachable,
    /// `if_none_match` found an object.
    #[error("the key has an object")]
    MatchFound,
    /// `if_not_modified` found another context.
    #[error("the object was modified")]
    Modified,
    /// `if_not_modified` found no object.
    #[error("there is no object to be unmodified")]
    NotFoundCondition,
    /// There is no such bucket type.
    #[error("no bucket type named {}", .0.escape_ascii())]
    NoType(Bytes),
    /// A name of zero length.
    #[error("an empty {0}")]
    EmptyName(Name),
    /// A context that this store never gave out.
    #[error("an unreadable causal context")]
    BadContext,
    /// Index entries that are not of the kind their field's suffix says. The text is Riak's.
    #[error(transparent)]
    BadIndex(#[from] object::index::IndexErrors),
    /// An index query that cannot be answered as it stands. The text is what the client is told.
    #[error("{0}")]
    BadQuery(String),
    /// More results than one answer holds: to be asked for by page, as a stream, or in parts.
    #[error("more than {limit} bytes of results for one answer: ask for less, for pages or for a stream")]
    AnswerTooLong {
        /// How many there may be.
        limit: usize,
    },
    /// A named limit was passed.
    #[error("{what} of {len} bytes, {limit} allowed")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        len: usize,
        /// How large it may be.
        limit: usize,
    },
    /// The write would leave more siblings than are kept.
    #[error("{got} siblings, {limit} allowed: read the object and write it back with its context")]
    TooManySiblings {
        /// How many it would leave.
        got: usize,
        /// How many may be.
        limit: usize,
    },
    /// The bucket has a pre-commit hook, which cannot be run here: nothing is written. The text is Riak's reason, a
    /// term.
    #[error("{{precommit_fail,{0}}}")]
    Precommit(String),
    /// Properties that cannot be set.
    #[error("invalid bucket properties")]
    InvalidProps(Vec<(&'static str, Reason)>),
    /// More buckets with properties of their own than are kept.
    #[error("{limit} buckets have properties of their own, which is the limit")]
    TooManyBuckets {
        /// How many there may be.
        limit: usize,
    },
    /// More resets of buckets' properties than are remembered until every member has taken them.
    #[error("{limit} resets of bucket properties wait for members that are away, which is the limit")]
    TooManyResets {
        /// How many there may be.
        limit: usize,
    },
    /// More bucket types than are kept.
    #[error("there are {limit} bucket types, which is the limit")]
    TooManyTypes {
        /// How many there may be.
        limit: usize,
    },
    /// The bucket type is not as far, or too far, for what is asked.
    #[error("the bucket type is {0}")]
    TypeStatus(TypeStatus),
    /// The default bucket type's properties cannot be changed.
    #[error("the default bucket type cannot be changed")]
    DefaultTypeFixed,
    /// A listing beyond what is held for one answer.
    #[error("more than {limit} buckets to list")]
    ListTooLong {
        /// How many there may be.
        limit: usize,
    },
    /// For some partition no primary can be reached, so what there is cannot be listed.
    #[error("not every partition can be reached")]
    NotCovered,
    /// No answer in time. A write may have been applied, or may yet be.
    #[error("timeout")]
    Timeout,
    /// The condition of a write to a consistent type does not hold. Nothing is written.
    #[error("failed")]
    Failed,
    /// The group of a key of a consistent type cannot take the request: it is not applied, and never will be.
    #[error("unavailable")]
    Unavailable,
    /// A request that consistent types do not have, whatever is stored: what it asks for, as a plural.
    #[error("{0} are not supported in consistent bucket types")]
    NotInConsistentTypes(String),
    /// A queue on the way is full. Try again later.
    #[error("overload")]
    Overload,
    /// Stored bytes fail their check: not "not found", and not an older value.
    #[error("damaged: {0}")]
    Damaged(String),
    /// The disk has no room, so the store takes no writes until there is some.
    #[error("{0}")]
    Exhausted(String),
    /// The store takes no writes since one failed.
    #[error("{0}")]
    Fenced(String),
    /// A node's backend cannot do what was asked for, whenever it is asked. The text is what the client is told.
    #[error("{0}")]
    Unsupported(String),
    /// The store failed otherwise.
    #[error("{0}")]
    Store(String),
}

/// The names a request holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A bucket's.
    Bucket,
    /// A key.
    Key,
    /// A bucket type's.
    Type,
}

impl Name {
    /// The name's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Name::Bucket => "bucket",
            Name::Key => "key",
            Name::Type => "bucket type",
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
