//! Listings: what of a fold over heads is told to the client, and in what pieces.
//!
//! Each shard folds over its own part, in pieces, and tells of each head whether it is listed ([`is_listed`]);
//! whoever the client is connected to gathers the pieces of all shards ([`Gather`]) and knows when the last is
//! in. A bucket can lie in several shards, so buckets are gathered in a set; a key lies in one.
//!
//! Tombstones are not listed, nor are buckets that hold nothing else.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::error::Error;
use crate::get::{is_absent, view};
use crate::props::BucketProps;
use crate::response::Response;

/// The most names in a piece: enough that a frame's cost is lost in theirs.
pub const PIECE_NAMES_MAX: usize = 1_000;

/// The most buckets in one listing: the set is held in memory, and Riak warns against listing at all.
pub const LISTED_BUCKETS_MAX: usize = 100_000;

/// The most bytes in their names together, so that one answer with all of them fits a frame.
pub const LISTED_BYTES_MAX: usize = 16 << 20;

/// Whether a key with this head is listed in a bucket of these properties.
pub fn is_listed(head: &[u8], props: &BucketProps) -> Result<bool, Error> {
    Ok(!is_absent(&view(head)?, props))
}

/// Gathers the pieces of all shards into answers.
#[derive(Debug)]
pub struct Gather {
    waiting: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Keys,
    Buckets { seen: BTreeSet<Bytes>, bytes: usize, stream: bool },
}

impl Gather {
    /// The keys of a bucket, from `shards` shards.
    pub fn keys(shards: usize) -> Gather {
        assert!(shards > 0, "a node has a shard");
        Gather { waiting: shards, kind: Kind::Keys }
    }

    /// Buckets, from `shards` shards, answered in pieces if `stream`.
    pub fn buckets(shards: usize, stream: bool) -> Gather {
        assert!(shards > 0, "a node has a shard");
        Gather { waiting: shards, kind: Kind::Buckets { seen: BTreeSet::new(), bytes: 0, stream } }
    }

    /// Takes a piece from a shard; an answer, if there is one to give already.
    pub fn on_piece(&mut self, names: Vec<Bytes>) -> Result<Option<Response>, Error> {
        assert!(self.waiting > 0, "a shard sent a piece after its end");
        match &mut self.kind {
            Kind::Keys => Ok(Some(Response::Keys { keys: names, done: false })),
            Kind::Buckets { seen, bytes, stream } => {
                let mut new = names;
                new.retain(|name| seen.insert(name.clone()));
                *bytes += new.iter().map(Bytes::len).sum::<usize>();
                if seen.len() > LISTED_BUCKETS_MAX || *bytes > LISTED_BYTES_MAX {
                    return Err(Error::ListTooLong { limit: LISTED_BUCKETS_MAX });
                }
                let answer = *stream && !new.is_empty();
                Ok(answer.then_some(Response::Buckets { names: new, done: false }))
            }
        }
    }

    /// Takes a shard's end; the last answer, if it was the last shard.
    pub fn on_end(&mut self) -> Option<Response> {
        assert!(self.waiting > 0, "a shard ended twice");
        self.waiting -= 1;
        if self.waiting > 0 {
            return None;
        }
        Some(match &mut self.kind {
            Kind::Keys => Response::Keys { keys: Vec::new(), done: true },
            Kind::Buckets { stream: true, .. } => Response::Buckets { names: Vec::new(), done: true },
            Kind::Buckets { seen, .. } => {
                Response::Buckets { names: std::mem::take(seen).into_iter().collect(), done: true }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&'static str]) -> Vec<Bytes> {
        names.iter().map(|&name| Bytes::from(name)).collect()
    }

    #[test]
    fn keys_go_out_as_they_come_and_end_once() {
        let mut gather = Gather::keys(2);
        let piece = gather.on_piece(names(&["a"])).unwrap();
        assert_eq!(piece, Some(Response::Keys { keys: names(&["a"]), done: false }));
        assert_eq!(gather.on_end(), None);
        assert_eq!(gather.on_end(), Some(Response::Keys { keys: Vec::new(), done: true }));
    }

    #[test]
    fn a_bucket_in_two_shards_is_listed_once() {
        let mut stream = Gather::buckets(2, true);
        let piece = stream.on_piece(names(&["a", "b"])).unwrap();
        assert_eq!(piece, Some(Response::Buckets { names: names(&["a", "b"]), done: false }));
        assert_eq!(stream.on_end(), None);
        let piece = stream.on_piece(names(&["b", "c"])).unwrap();
        assert_eq!(piece, Some(Response::Buckets { names: names(&["c"]), done: false }));
        assert_eq!(stream.on_piece(names(&["c"])), Ok(None));
        assert_eq!(stream.on_end(), Some(Response::Buckets { names: Vec::new(), done: true }));

        let mut whole = Gather::buckets(2, false);
        assert_eq!(whole.on_piece(names(&["b", "a"])), Ok(None));
        assert_eq!(whole.on_piece(names(&["b"])), Ok(None));
        assert_eq!(whole.on_end(), None);
        assert_eq!(whole.on_end(), Some(Response::Buckets { names: names(&["a", "b"]), done: true }));
    }

    #[test]
    fn a_listing_is_bounded() {
        let mut gather = Gather::buckets(1, false);
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
