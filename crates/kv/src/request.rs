//! Requests of a client, independent of the protocol.
//!
//! A protocol's session translates frames to these and answers back; nothing behind it knows which protocol a
//! request came by. Names are checked by the coordinators ([`crate::Limits`]), so a session need not.

use base::Rng;
use bytes::Bytes;
use object::Metadata;

use crate::bucket::Bucket;
use crate::condition::Conditions;
use crate::fold::{self, FoldRequest, Scope};
use crate::index::IndexRequest;
use crate::props::{Prop, TypeChange};
use crate::query::QueryRequest;
use crate::quorum::Quorum;

/// A client's request.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Read an object.
    Get(GetRequest),
    /// Write an object. By far the largest, and requests of all kinds are moved some times: so it is in a box.
    Put(Box<PutRequest>),
    /// Delete an object.
    Delete(DeleteRequest),
    /// List the buckets of a type.
    ListBuckets(ListBucketsRequest),
    /// List the keys of a bucket.
    ListKeys(ListKeysRequest),
    /// Find keys by the terms of an index.
    Index(Box<IndexRequest>),
    /// Find keys by what is in the terms of several indexes, or count them.
    Query(Box<QueryRequest>),
    /// Go through the heads of many keys, and tell what they come to.
    Fold(Box<FoldRequest>),
    /// Read a bucket's properties.
    GetProps(Bucket),
    /// Change a bucket's properties; what is not named stays.
    SetProps(Bucket, Vec<Prop>),
    /// Give a bucket its type's properties again.
    ResetProps(Bucket),
    /// Read a bucket type's properties.
    GetTypeProps(Bytes),
    /// Create, change or activate a bucket type.
    ChangeType(Bytes, TypeChange),
    /// Name the bucket types, those included that are not active.
    ListTypes,
    /// Name the nodes of the cluster.
    ListMembers,
    /// Name the vnodes that hold a key, first choice first.
    GetPreflist(Bucket, Bytes),
}

/// A read. What is `None` or [`Quorum::Default`] is decided by the bucket's properties.
#[derive(Clone, Debug, PartialEq)]
pub struct GetRequest {
    /// The bucket.
    pub bucket: Bucket,
    /// The key.
    pub key: Bytes,
    /// Replies needed.
    pub r: Quorum,
    /// Primaries among them.
    pub pr: Quorum,
    /// Distinct nodes among them.
    pub node_confirms: Quorum,
    /// Replicas to ask, at most the bucket's.
    pub n_val: Option<u32>,
    /// Whether fallbacks may answer.
    pub sloppy_quorum: Option<bool>,
    /// Whether a quorum of notfounds ends the request.
    pub basic_quorum: Option<bool>,
    /// Whether a notfound counts as a good reply.
    pub notfound_ok: Option<bool>,
    /// Milliseconds.
    pub timeout: Option<u32>,
    /// A context; if the object still has it, the answer is only that.
    pub if_modified: Option<Bytes>,
    /// Leave the values out of the answer.
    pub head: bool,
    /// Answer a deleted object's context.
    pub deleted_context: bool,
}

impl GetRequest {
    /// A read with every option at its default.
    pub fn new(bucket: Bucket, key: Bytes) -> GetRequest {
        GetRequest {
            bucket,
            key,
            r: Quorum::Default,
            pr: Quorum::Default,
            node_confirms: Quorum::Default,
            n_val: None,
            sloppy_quorum: None,
            basic_quorum: None,
            notfound_ok: None,
            timeout: None,
            if_modified: None,
            head: false,
            deleted_context: false,
        }
    }
}

/// How much of the resulting object a write answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Return {
    /// Only that it is done.
    #[default]
    Nothing,
    /// All siblings without their values.
    Head,
    /// All siblings.
    Body,
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub struct PutRequest {
    /// The bucket.
    pub bucket: Bucket,
    /// The key; if it is absent, the node invents one before anything else ([`PutRequest::invent_key`]).
    pub key: Option<Bytes>,
    /// Whether the node invented the key, and so has to tell it.
    pub key_invented: bool,
    /// The context that was read; absent for a blind write.
    pub context: Option<Bytes>,
    /// What the value carries; the time and the tombstone mark are the coordinator's to set.
    pub metadata: Metadata,
    /// The value.
    pub value: Bytes,
    /// Replies needed.
    pub w: Quorum,
    /// Durable replies among them.
    pub dw: Quorum,
    /// Primaries among them.
    pub pw: Quorum,
    /// Distinct nodes among them.
    pub node_confirms: Quorum,
    /// Replicas to write, at most the bucket's.
    pub n_val: Option<u32>,
    /// Whether fallbacks may take part.
    pub sloppy_quorum: Option<bool>,
    /// Milliseconds.
    pub timeout: Option<u32>,
    /// What to answer.
    pub returned: Return,
    /// Fail if there is an object.
    pub if_none_match: bool,
    /// Fail unless the object still has the context sent.
    pub if_not_modified: bool,
    /// Fail unless these hold.
    pub conditions: Option<Box<Conditions>>,
    /// Store under the context sent, without a new event.
    pub asis: bool,
}

impl PutRequest {
    /// A blind write with every option at its default.
    pub fn new(bucket: Bucket, key: Option<Bytes>, metadata: Metadata, value: Bytes) -> PutRequest {
        PutRequest {
            bucket,
            key,
            key_invented: false,
            context: None,
            metadata,
            value,
            w: Quorum::Default,
            dw: Quorum::Default,
            pw: Quorum::Default,
            node_confirms: Quorum::Default,
            n_val: None,
            sloppy_quorum: None,
            timeout: None,
            returned: Return::Nothing,
            if_none_match: false,
            if_not_modified: false,
            conditions: None,
            asis: false,
        }
    }
}

/// Letters and digits of an invented key, as long as Riak's: 160 bits.
const INVENTED_KEY_LEN: usize = 27;

impl PutRequest {
    /// Gives the object a key if the client did not: 160 random bits in base 62, so that two never meet.
    pub fn invent_key(&mut self, rng: &mut dyn Rng) {
        const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        if self.key.is_none() {
            let digit = |_| DIGITS[usize::try_from(rng.below(62)).expect("62 fits")];
            self.key = Some((0..INVENTED_KEY_LEN).map(digit).collect());
            self.key_invented = true;
        }
    }
}

/// A delete.
#[derive(Clone, Debug, PartialEq)]
pub struct DeleteRequest {
    /// The bucket.
    pub bucket: Bucket,
    /// The key.
    pub key: Bytes,
    /// The context that was read; absent to delete whatever is there.
    pub context: Option<Bytes>,
    /// Replies needed, in reading and in writing, where `r` or `w` do not say.
    pub rw: Quorum,
    /// Replies needed in reading.
    pub r: Quorum,
    /// Replies needed in writing.
    pub w: Quorum,
    /// Primaries among the replies in reading.
    pub pr: Quorum,
    /// Primaries among the replies in writing.
    pub pw: Quorum,
    /// Durable replies in writing.
    pub dw: Quorum,
    /// Replicas to write, at most the bucket's.
    pub n_val: Option<u32>,
    /// Whether fallbacks may take part.
    pub sloppy_quorum: Option<bool>,
    /// Milliseconds.
    pub timeout: Option<u32>,
}

impl DeleteRequest {
    /// A delete of whatever is there, with every option at its default.
    pub fn new(bucket: Bucket, key: Bytes) -> DeleteRequest {
        DeleteRequest {
            bucket,
            key,
            context: None,
            rw: Quorum::Default,
            r: Quorum::Default,
            w: Quorum::Default,
            pr: Quorum::Default,
            pw: Quorum::Default,
            dw: Quorum::Default,
            n_val: None,
            sloppy_quorum: None,
            timeout: None,
        }
    }
}

/// A listing of the buckets that hold an object.
#[derive(Clone, Debug, PartialEq)]
pub struct ListBucketsRequest {
    /// The bucket type.
    pub bucket_type: Bytes,
    /// Answer in pieces rather than in one.
    pub stream: bool,
    /// Milliseconds.
    pub timeout: Option<u32>,
}

/// A listing of a bucket's keys, always in pieces.
#[derive(Clone, Debug, PartialEq)]
pub struct ListKeysRequest {
    /// The bucket.
    pub bucket: Bucket,
    /// Milliseconds.
    pub timeout: Option<u32>,
}

impl Request {
    /// A write.
    pub fn put(put: PutRequest) -> Request {
        Request::Put(Box::new(put))
    }

    /// The bucket whose properties the request is under, if it is about one.
    pub fn bucket(&self) -> Option<&Bucket> {
        match self {
            Request::Get(get) => Some(&get.bucket),
            Request::Put(put) => Some(&put.bucket),
            Request::Delete(delete) => Some(&delete.bucket),
            Request::ListKeys(list) => Some(&list.bucket),
            Request::Index(index) => Some(&index.bucket),
            Request::Query(query) => Some(&query.bucket),
            Request::Fold(request) => match &request.fold.scope {
                Scope::Bucket(bucket) => Some(bucket),
                Scope::NVal(_) => None,
            },
            Request::GetProps(bucket)
            | Request::SetProps(bucket, _)
            | Request::ResetProps(bucket)
            | Request::GetPreflist(bucket, _) => Some(bucket),
            Request::ListBuckets(_)
            | Request::GetTypeProps(_)
            | Request::ChangeType(..)
            | Request::ListTypes
            | Request::ListMembers => None,
        }
    }

    /// The key the request is about, if it is about one and the key is known.
    pub fn key(&self) -> Option<&Bytes> {
        match self {
            Request::Get(get) => Some(&get.key),
            Request::Put(put) => put.key.as_ref(),
            Request::Delete(delete) => Some(&delete.key),
            Request::GetPreflist(_, key) => Some(key),
            _ => None,
        }
    }

    /// Whether requests for the same key must wait while this one runs.
    pub fn writes(&self) -> bool {
        matches!(self, Request::Put(_) | Request::Delete(_))
    }

    /// How long the client will wait, in milliseconds, if it says.
    pub fn timeout(&self) -> Option<u32> {
        match self {
            Request::Get(get) => get.timeout,
            Request::Put(put) => put.timeout,
            Request::Delete(delete) => delete.timeout,
            Request::ListBuckets(list) => list.timeout,
            Request::ListKeys(list) => list.timeout,
            Request::Query(query) => query.timeout,
            Request::Fold(fold) => Some(fold.timeout.unwrap_or(fold::TIMEOUT_DEFAULT)),
            // In an index query, unlike elsewhere, none means none.
            Request::Index(index) => {
                index.timeout.map(|timeout| if timeout == 0 { u32::MAX } else { timeout })
            }
            _ => None,
        }
    }

    /// Bytes of the value that comes with it.
    pub fn value_len(&self) -> usize {
        match self {
            Request::Put(put) => put.value.len(),
            _ => 0,
        }
    }
}
