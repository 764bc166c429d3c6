//! A page of a key scan: the question, and its answer.

use bytes::Bytes;
use std::sync::Arc;

use crate::bucket::Bucket;
use crate::fold::{Fold, Sum};

/// The names that a key scan lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// A bucket's keys.
    Keys(Bucket),
    /// A bucket type's buckets.
    Buckets(Bytes),
    /// No names, but the sum of a fold.
    Fold(Arc<Fold>),
}

/// A question for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageAsk {
    /// The names that a key scan lists.
    pub listed: Listed,
    /// Prefixes to be read, the first one first; at least one. A partition of the ring has one or
    /// several.
    pub partitions: Vec<u16>,
    /// The ledger key in the first one to begin at; `None` for its start.
    pub start: Option<Bytes>,
}

/// The answer to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Names.
    pub names: Vec<Bytes>,
    /// The sum of a fold over this page; always there if it is one, and never otherwise.
    pub sum: Option<Sum>,
    /// The prefixes that are not read to their end, the one to go on with first.
    pub rest: Vec<u16>,
    /// Where to go on in it; `None` for its start.
    pub next: Option<Bytes>,
}
