//! A head that a write has replaced, as the trees of hashes take it.

use bytes::Bytes;
use engine::Seq;

/// A change of a head.
pub(crate) struct HeadChange {
    /// The ledger key.
    pub key: Bytes,
    /// The write.
    pub seq: Seq,
    /// The number of replicas of its bucket.
    pub n_val: u32,
    /// The head that was there before; `None` if there was none, or if it is not known.
    pub old: Option<Bytes>,
    /// The head that is there now.
    pub new: Option<Bytes>,
    /// Whether the replaced head is not known.
    pub is_unsure: bool,
}
