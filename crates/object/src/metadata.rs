//! What a sibling carries beside its value.

use bytes::Bytes;

use crate::index::IndexEntry;

/// A link to another object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Link {
    /// The bucket linked to.
    pub bucket: Bytes,
    /// The key linked to.
    pub key: Bytes,
    /// What the link means.
    pub tag: Bytes,
}

/// The metadata of one sibling: opaque to the store but for the last three fields. The vtag is not among it:
/// [`crate::Vtag`] derives it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The value's media type.
    pub content_type: Option<Bytes>,
    /// The value's character set.
    pub charset: Option<Bytes>,
    /// How the value is packed, for example `gzip`.
    pub content_encoding: Option<Bytes>,
    /// Links, in the client's order.
    pub links: Vec<Link>,
    /// The client's own pairs, in its order; a value may be absent, which is not the same as empty.
    pub user_meta: Vec<(Bytes, Option<Bytes>)>,
    /// Index entries, in the client's order.
    pub indexes: Vec<IndexEntry>,
    /// When it was written, in microseconds since 1970: by the clock of the store that gave the dot, or later than all
    /// that this store had seen.
    pub last_modified: u64,
    /// Whether this is a tombstone: the key was deleted, and its value is empty.
    pub deleted: bool,
    /// When it ends, in milliseconds since 1970: from then on readers are not shown it. `None` for never, as of every
    /// tombstone.
    pub expires_ms: Option<u64>,
}
