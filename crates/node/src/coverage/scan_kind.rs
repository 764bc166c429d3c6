//! The kinds of scans, and the bound of each.

/// The kinds of scans, each with a bound of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanKind {
    /// A listing of keys or buckets.
    Listing,
    /// A fold.
    Fold,
    /// An index query, or a query of several parts.
    Query,
}

impl ScanKind {
    /// Scans of this kind that one shard's clients run at a time. A listing or query may hold a page of each part, or
    /// an answer in one piece; a fold an answer of [`kv::fold::ANSWER_BYTES_MAX`], or a tree.
    pub fn scans_max(self) -> usize {
        match self {
            ScanKind::Listing | ScanKind::Query => 256,
            ScanKind::Fold => 8,
        }
    }
}
