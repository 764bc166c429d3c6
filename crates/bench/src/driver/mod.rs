//! Drivers carry out operations: one for each worker, which blocks only in [`Driver::poll`].
//!
//! A worker submits operations with tokens while [`Driver::ready`] says that there is room, and polls; the driver tells
//! its [`Sink`] of each answer. Every submitted operation is answered exactly once: by the server, or with the error
//! that took its connection. Keys, values and answers are borrowed: nothing is allocated for an operation.

#![allow(clippy::single_range_in_vec_init, reason = "the places of an answer's values: here there is one")]

pub mod cassandra;
mod engine;
mod error;
mod etcd;
mod http;
pub mod null;
mod pb;
mod planted;
mod pool;
pub mod redis;
mod transport;

pub use cassandra::{Cassandra, make_schema};
pub use engine::EngineDriver;
pub use error::ErrorKind;
pub use etcd::Etcd;
pub use http::Http;
pub use null::NullDriver;
pub use pb::Pb;
pub use planted::Planted;
pub use pool::{Codec, Pool};
pub use redis::{Redis, RedisCluster};

use crate::Error;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// An operation to be done.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What the answer will be known by.
    pub token: u32,
    /// The bucket; empty where none is named.
    pub bucket: &'a [u8],
    /// The key; empty where none is named.
    pub key: &'a [u8],
    /// What is to be done.
    pub command: Command<'a>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub enum Command<'a> {
    /// Read an object.
    Get,
    /// Read an object without its value.
    Head,
    /// Write an object.
    Put {
        /// Its value.
        value: &'a [u8],
        /// What it follows; none for a blind write.
        context: Option<&'a [u8]>,
        /// Its index entries: names and terms.
        indexes: &'a [(&'a str, Vec<u8>)],
    },
    /// Delete an object.
    Delete {
        /// Context of the version to be deleted; none for a delete without a condition.
        context: Option<&'a [u8]>,
    },
    /// Ask an index.
    Query(IndexRange<'a>),
    /// List the bucket's keys.
    ListKeys,
    /// List buckets.
    ListBuckets,
    /// Ask whether the server is there.
    Ping,
    /// Close a connection and open it again.
    Reconnect,
}

/// A range of an index, or a page of it.
#[derive(Clone, Copy, Debug)]
pub struct IndexRange<'a> {
    /// The index.
    pub index: &'a str,
    /// The first term.
    pub from: &'a [u8],
    /// The last term; if it is the first, that term is asked for as it is.
    pub to: &'a [u8],
    /// Whether terms come back.
    pub return_terms: bool,
    /// Only terms that match.
    pub term_regex: Option<&'a str>,
    /// The size of a page.
    pub max_results: Option<u32>,
    /// Where the page begins, as the answer to the one before has said.
    pub continuation: Option<&'a [u8]>,
}

impl IndexRange<'_> {
    /// Whether one term is asked for.
    pub fn is_exact(&self) -> bool {
        self.from == self.to
    }
}

/// Where a row is in an answer: its term, if that was told, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The term.
    pub term: Option<Range<usize>>,
    /// The key.
    pub key: Range<usize>,
}

/// What an index query found.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Where the rows are in `body`.
    pub places: &'a [Row],
    /// What they are parts of.
    pub body: &'a [u8],
    /// Where the next page begins, if this one may not be the last.
    pub continuation: Option<&'a [u8]>,
}

impl<'a> Rows<'a> {
    /// Terms, where they were told, and keys.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&'a [u8]>, &'a [u8])> + use<'a> {
        let body = self.body;
        self.places.iter().map(move |row| (row.term.clone().map(|at| &body[at]), &body[row.key.clone()]))
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// An object.
    Found {
        /// What a write that follows it sends back; valid in this call.
        context: &'a [u8],
        /// Where the siblings' values are in `body`; at least one.
        values: &'a [Range<usize>],
        /// What they are parts of.
        body: &'a [u8],
    },
    /// No object.
    NotFound,
    /// Done.
    Done,
    /// Written, and the server sent the context of the new version.
    Stored {
        /// Context of a write that follows; valid in this call.
        context: &'a [u8],
    },
    /// So many keys or buckets.
    Listed(u64),
    /// Rows of an index.
    Rows(Rows<'a>),
    /// It failed.
    Failed {
        /// Of which kind.
        kind: ErrorKind,
        /// What the server said, or what happened.
        text: &'a str,
    },
    /// Nothing was done, for another way must be gone, which the driver knows now: it is to be submitted once more. A
    /// driver says so a bounded number of times.
    Again,
}

/// Whoever is told of answers.
pub trait Sink {
    /// The operation with this token has ended.
    fn answered(&mut self, token: u32, answer: Answer<'_>);
}

/// Makes operations happen.
pub trait Driver {
    /// How many operations can be submitted now.
    fn ready(&self) -> usize;

    /// Begins an operation. There is room for it.
    fn submit(&mut self, request: &Request<'_>) -> Result<(), Error>;

    /// Tells of what has ended; if nothing has, waits for it, `timeout` at most.
    fn poll(&mut self, timeout: Duration, sink: &mut dyn Sink) -> Result<(), Error>;

    /// Whether all its connections are there.
    fn is_connected(&self) -> bool {
        true
    }

    /// Why a connection is not there, if that is known.
    fn trouble(&self) -> Option<&str> {
        None
    }

    /// Ends, when nothing is under way any more.
    fn finish(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

/// What every request of a run has in common.
#[derive(Clone, Debug, Default)]
pub struct Common {
    /// The bucket type; none for the default one.
    pub bucket_type: Option<String>,
    /// Quorums and the like by Riak's names.
    pub quorums: BTreeMap<String, u32>,
    /// Whether the answer to a write has the context of the new version.
    pub returns_context: bool,
}
