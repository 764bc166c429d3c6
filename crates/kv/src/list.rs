//! Listings: the names of a fold over heads that a client gets, in pieces.
//!
//! The reader of a part says of each head whether it is listed ([`is_listed`]). The node of the client gathers the
//! pieces of all parts ([`ListCollector`]; [`crate::coverage`] knows when the last is in). A bucket can lie in several
//! parts, so buckets are gathered in a set; a key lies in one.
//!
//! The sums of a fold are gathered in the same way ([`crate::fold`]).
//!
//! Tombstones and what has ended are not listed, nor are buckets that hold nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use object::HeadView;

use crate::error::Error;
use crate::fold::{Adding, Fold, Sum};
use crate::limits::LISTED_BUCKETS_MAX;
use crate::props::BucketProps;
use crate::response::Response;
use crate::stored_head::{is_absent, view};

/// The most names in a piece: enough that a frame's cost and a question's to another node are lost in theirs.
pub const PIECE_NAMES_MAX: usize = 2_000;

/// What a name takes beside its bytes in the set of those that have come.
const NAME_BYTES: usize = 64;

/// The most bytes in their names together, so that one answer with all of them fits a frame.
pub const LISTED_BYTES_MAX: usize = 16 << 20;

/// Whether a key with this head is listed in a bucket of these properties, at a time in milliseconds since 1970.
pub fn is_listed(head: &[u8], props: &BucketProps, now_ms: u64) -> Result<bool, Error> {
    // Nearly all of them, and nothing more need be known of these.
    if HeadView::is_one_value(head) {
        return Ok(true);
    }
    Ok(!is_absent(&view(head)?, props, now_ms))
}

/// Gathers pieces into answers.
#[derive(Debug)]
pub enum ListCollector {
    /// Keys go out as they come.
    Keys,
    /// Buckets, each once.
    Buckets {
        /// Those that have come.
        seen: BTreeSet<Bytes>,
        /// Bytes of their names.
        bytes: usize,
        /// Whether they go out as they come.
        stream: bool,
    },
    /// What a fold comes to, told when it is over.
    Sums(Adding),
}

impl ListCollector {
    /// The keys of a bucket.
    pub fn keys() -> ListCollector {
        ListCollector::Keys
    }

    /// Buckets, answered in pieces if `stream`.
    pub fn buckets(stream: bool) -> ListCollector {
        ListCollector::Buckets { seen: BTreeSet::new(), bytes: 0, stream }
    }

    /// What this fold comes to, answered page by page if `stream`.
    pub fn sums(fold: Arc<Fold>, stream: bool) -> ListCollector {
        ListCollector::Sums(Adding::new(fold, stream))
    }

    /// Bytes that are held until the last answer.
    pub fn gathered_bytes(&self) -> usize {
        match self {
            ListCollector::Keys => 0,
            ListCollector::Buckets { seen, bytes, .. } => bytes + seen.len() * NAME_BYTES,
            ListCollector::Sums(adding) => adding.gathered_bytes(),
        }
    }

    /// Takes what a fold has come to on a page; an answer, if there is one to give already.
    ///
    /// # Errors
    /// As for [`Adding::add`].
    pub fn on_sum(&mut self, sum: Sum) -> Result<Option<Response>, Error> {
        match self {
            ListCollector::Sums(adding) => {
                Ok(adding.add(sum)?.map(|folded| Response::Folded(Box::new(folded))))
            }
            ListCollector::Keys | ListCollector::Buckets { .. } => unreachable!("a listing has no sum"),
        }
    }

    /// Takes a piece; an answer, if there is one to give already.
    ///
    /// # Errors
    /// [`Error::ListTooLong`] if it is more than is held.
    pub fn on_piece(&mut self, names: Vec<Bytes>) -> Result<Option<Response>, Error> {
        match self {
            ListCollector::Keys => Ok(Some(Response::Keys { keys: names, done: false })),
            ListCollector::Sums(..) => unreachable!("a fold has no names"),
            ListCollector::Buckets { seen, bytes, stream } => {
                let mut new = names;
                let before = seen.len();
                new.retain(|name| seen.insert(name.clone()));
                debug_assert_eq!(seen.len(), before + new.len(), "each name goes out once");
                *bytes += new.iter().map(Bytes::len).sum::<usize>();
                if seen.len() > LISTED_BUCKETS_MAX || *bytes > LISTED_BYTES_MAX {
                    return Err(Error::ListTooLong { limit: LISTED_BUCKETS_MAX });
                }
                let answer = *stream && !new.is_empty();
                Ok(answer.then_some(Response::Buckets { names: new, done: false }))
            }
        }
    }

    /// Asserts that the bytes counted are those of the names. Goes through all of them.
    pub fn invariants(&self) {
        if let ListCollector::Buckets { seen, bytes, .. } = self {
            let held: usize = seen.iter().map(Bytes::len).sum();
            debug_assert_eq!(*bytes, held, "the bytes counted are those of the names that were seen");
        }
    }

    /// The last answer.
    pub fn end(&mut self) -> Response {
        if cfg!(debug_assertions) {
            self.invariants();
        }
        match self {
            ListCollector::Keys => Response::Keys { keys: Vec::new(), done: true },
            ListCollector::Sums(adding) => Response::Folded(Box::new(adding.end())),
            ListCollector::Buckets { stream: true, .. } => {
                Response::Buckets { names: Vec::new(), done: true }
            }
            ListCollector::Buckets { seen, .. } => {
                Response::Buckets { names: std::mem::take(seen).into_iter().collect(), done: true }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&'static str]) -> Vec<Bytes> {
        names.iter().map(|&name| Bytes::from(name)).collect()
    }

    #[test]
    fn keys_go_out_as_they_come() {
        let mut gather = ListCollector::keys();
        let piece = gather.on_piece(names(&["a"])).unwrap();
        assert_eq!(piece, Some(Response::Keys { keys: names(&["a"]), done: false }));
        assert_eq!(gather.end(), Response::Keys { keys: Vec::new(), done: true });
    }

    #[test]
    fn a_bucket_in_two_parts_is_listed_once() {
        let mut stream = ListCollector::buckets(true);
        let piece = stream.on_piece(names(&["a", "b"])).unwrap();
        assert_eq!(piece, Some(Response::Buckets { names: names(&["a", "b"]), done: false }));
        let piece = stream.on_piece(names(&["b", "c"])).unwrap();
        assert_eq!(piece, Some(Response::Buckets { names: names(&["c"]), done: false }));
        assert_eq!(stream.on_piece(names(&["c"])), Ok(None));
        assert_eq!(stream.end(), Response::Buckets { names: Vec::new(), done: true });

        let mut whole = ListCollector::buckets(false);
        assert_eq!(whole.on_piece(names(&["b", "a"])), Ok(None));
        assert_eq!(whole.on_piece(names(&["b"])), Ok(None));
        assert_eq!(whole.end(), Response::Buckets { names: names(&["a", "b"]), done: true });
    }

    #[test]
    fn a_listing_is_bounded() {
        let mut gather = ListCollector::buckets(false);
        let long = |i: usize| Bytes::from(format!("{i:0>width$}", width = 60_000));
        let mut result = Ok(None);
        for i in 0..1_000 {
            result = gather.on_piece(vec![long(i)]);
            if result.is_err() {
                break;
            }
        }
        assert_eq!(result, Err(Error::ListTooLong { limit: LISTED_BUCKETS_MAX }));
    }
}
