//! Index queries: which keys of a bucket have a term, or lie, between two bounds.
//!
//! 1. [`IndexRequest`] is a client's request. [`IndexRequest::plan`] checks it and names the rows ([`Query`]) and the
//!    form of the answers ([`Telling`]).
//! 2. Each shard that is asked ([`RowsAsk`]) finds the rows of the prefixes that are asked for ([`PrefixSet`]), in
//!    order, page by page ([`RowsPage`]). Entries of one field lie in the order of their terms, with all prefixes
//!    mixed: so a covering set is a filter on one scan of each shard, at any size of the ring.
//! 3. [`IndexScan`] asks a covering set and merges its rows.
//!
//! A [`Row`] is a term and a key. All shards of all nodes have the same order of rows, so a place in a query is a row,
//! and the source that takes a part over goes on behind the last row that was told.
//!
//! `row.rs`: rows, and lists of them. `merge.rs`: of several lists, one. `encoded_rows.rs`: rows as a client gets them.
//! `prefixes.rs`: a set of prefixes. `pick.rs`, `pattern.rs`: which terms between the bounds. `place.rs`: where a page
//! ended, for the next.

mod encoded_rows;
mod merge;
mod pattern;
mod pick;
mod place;
mod prefixes;
mod request;
mod row;
mod scan;

use bytes::Bytes;

use crate::bucket::Bucket;

pub use encoded_rows::{EncodedRows, Rows};
pub use pattern::{PATTERN_BYTES_MAX, Pattern};
pub use pick::{Pick, Picker};
pub(crate) use place::decode as place_of;
pub use prefixes::PrefixSet;
pub use request::{IndexRequest, Telling, Terms};
pub use row::{Row, RowList, RowRef};
pub use scan::IndexScan;

/// The most rows on a page: enough that a question's cost to another node is lost in theirs.
pub const PAGE_ROWS_MAX: usize = 2_000;

/// What rows are to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The bucket.
    pub bucket: Bucket,
    /// Between which bounds.
    pub span: Span,
    /// Which of them.
    pub pick: Pick,
}

/// What is looked through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Span {
    /// The entries of a field, of terms as they are ordered.
    Terms {
        /// The field, with its suffix.
        field: Bytes,
        /// The first term.
        first: Bytes,
        /// The last term, included.
        last: Bytes,
    },
    /// The keys of a bucket.
    Keys {
        /// The first key.
        first: Bytes,
        /// The last key, included; `None` for all that come behind the first.
        last: Option<Bytes>,
        /// Their order.
        order: KeyOrder,
    },
}

/// How keys are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// By their names. Each page costs a look at every prefix.
    Name,
    /// As they lie in a store: by prefix, then by name. A row's term is its prefix, in two bytes, big-endian.
    Place,
}

impl KeyOrder {
    /// The term of a row in the order in which keys lie.
    pub fn term_of_place(prefix: u16) -> [u8; 2] {
        prefix.to_be_bytes()
    }
}

/// A question for rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsAsk {
    /// What is to be found.
    pub query: Query,
    /// Of which prefixes; at least one.
    pub prefixes: PrefixSet,
    /// Only rows behind this one.
    pub after: Option<Row>,
    /// How many rows, at most [`PAGE_ROWS_MAX`].
    pub rows_max: u32,
}

/// The answer to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowsPage {
    /// The first rows, ascending.
    pub rows: RowList,
    /// Where to go on: no row is missing up to this one. `None` if there are no more.
    pub next: Option<Row>,
    /// Prefixes that were asked for and are another shard's of the same node, by shard: these are to be asked for each
    /// on its own.
    pub others: Vec<PrefixSet>,
}
