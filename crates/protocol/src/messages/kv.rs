//! Messages that read, write and list objects.

use bytes::Bytes;

/// `RpbPair`: a name with a value, in user metadata and indexes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Pair {
    /// The name.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub key: Bytes,
    /// The value.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub value: Option<Bytes>,
}

/// `RpbLink`: a named pointer to another object.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Link {
    /// The other object's bucket.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub bucket: Option<Bytes>,
    /// The other object's key.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub key: Option<Bytes>,
    /// What the link means.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub tag: Option<Bytes>,
}

/// `RpbContent`: one value of an object with its metadata.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Content {
    /// The value.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub value: Bytes,
    /// The media type.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub content_type: Option<Bytes>,
    /// The character set.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub charset: Option<Bytes>,
    /// The content encoding, such as gzip.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub content_encoding: Option<Bytes>,
    /// A tag that differs between values of a key. The server's to choose.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub vtag: Option<Bytes>,
    /// Links to other objects.
    #[prost(message, repeated, tag = "6")]
    pub links: Vec<Link>,
    /// When it was written: seconds since 1970. The server's to choose.
    #[prost(uint32, optional, tag = "7")]
    pub last_mod: Option<u32>,
    /// The microseconds of that second.
    #[prost(uint32, optional, tag = "8")]
    pub last_mod_usecs: Option<u32>,
    /// The client's own metadata.
    #[prost(message, repeated, tag = "9")]
    pub usermeta: Vec<Pair>,
    /// Secondary index entries.
    #[prost(message, repeated, tag = "10")]
    pub indexes: Vec<Pair>,
    /// Whether this sibling is a tombstone.
    #[prost(bool, optional, tag = "11")]
    pub deleted: Option<bool>,
}

/// `RpbGetReq` (9).
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetReq {
    /// The bucket.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub bucket: Bytes,
    /// The key.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub key: Bytes,
    /// Replies needed; see [`crate::Quorum`].
    #[prost(uint32, optional, tag = "3")]
    pub r: Option<u32>,
    /// Primaries among them.
    #[prost(uint32, optional, tag = "4")]
    pub pr: Option<u32>,
    /// Whether a quorum of notfounds ends the request.
    #[prost(bool, optional, tag = "5")]
    pub basic_quorum: Option<bool>,
    /// Whether a notfound counts as a good reply.
    #[prost(bool, optional, tag = "6")]
    pub notfound_ok: Option<bool>,
    /// A clock; if it is still the object's, only `unchanged` is answered.
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub if_modified: Option<Bytes>,
    /// Leave the values out of the answer.
    #[prost(bool, optional, tag = "8")]
    pub head: Option<bool>,
    /// Answer a tombstone's clock.
    #[prost(bool, optional, tag = "9")]
    pub deletedvclock: Option<bool>,
    /// Milliseconds.
    #[prost(uint32, optional, tag = "10")]
    pub timeout: Option<u32>,
    /// Whether fallbacks may answer.
    #[prost(bool, optional, tag = "11")]
    pub sloppy_quorum: Option<bool>,
    /// Replicas to ask, at most the bucket's.
    #[prost(uint32, optional, tag = "12")]
    pub n_val: Option<u32>,
    /// The bucket type; absent for the default one.
    #[prost(bytes = "bytes", optional, tag = "13")]
    pub bucket_type: Option<Bytes>,
    /// Distinct nodes among the replies.
    #[prost(uint32, optional, tag = "14")]
    pub node_confirms: Option<u32>,
}

/// `RpbGetResp` (10): nothing at all for an object that is not there.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetResp {
    /// The siblings.
    #[prost(message, repeated, tag = "1")]
    pub content: Vec<Content>,
    /// The object's clock.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub vclock: Option<Bytes>,
    /// Whether the clock sent as `if_modified` is the object's.
    #[prost(bool, optional, tag = "3")]
    pub unchanged: Option<bool>,
}

/// `RpbPutReq` (11).
#[derive(Clone, PartialEq, prost::Message)]
pub struct PutReq {
    /// The bucket.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub bucket: Bytes,
    /// The key; the server invents one if it is absent.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub key: Option<Bytes>,
    /// The clock that was read; absent for a blind write.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub vclock: Option<Bytes>,
    /// The value and its metadata.
    #[prost(message, required, tag = "4")]
    pub content: Content,
    /// Replies needed; see [`crate::Quorum`].
    #[prost(uint32, optional, tag = "5")]
    pub w: Option<u32>,
    /// Replies from a backend among them.
    #[prost(uint32, optional, tag = "6")]
    pub dw: Option<u32>,
    /// Answer the siblings that result.
    #[prost(bool, optional, tag = "7")]
    pub return_body: Option<bool>,
    /// Primaries among the replies.
    #[prost(uint32, optional, tag = "8")]
    pub pw: Option<u32>,
    /// Fail unless the object still has the clock sent.
    #[prost(bool, optional, tag = "9")]
    pub if_not_modified: Option<bool>,
    /// Fail if there is an object.
    #[prost(bool, optional, tag = "10")]
    pub if_none_match: Option<bool>,
    /// As `return_body`, with empty values.
    #[prost(bool, optional, tag = "11")]
    pub return_head: Option<bool>,
    /// Milliseconds.
    #[prost(uint32, optional, tag = "12")]
    pub timeout: Option<u32>,
    /// Store with the clock sent, without advancing it.
    #[prost(bool, optional, tag = "13")]
    pub asis: Option<bool>,
    /// Whether fallbacks may take part.
    #[prost(bool, optional, tag = "14")]
    pub sloppy_quorum: Option<bool>,
    /// Replicas to write, at most the bucket's.
    #[prost(uint32, optional, tag = "15")]
    pub n_val: Option<u32>,
    /// The bucket type; absent for the default one.
    #[prost(bytes = "bytes", optional, tag = "16")]
    pub bucket_type: Option<Bytes>,
    /// Distinct nodes among the replies.
    #[prost(uint32, optional, tag = "17")]
    pub node_confirms: Option<u32>,
}

/// `RpbPutResp` (12).
#[derive(Clone, PartialEq, prost::Message)]
pub struct PutResp {
    /// The siblings, if they were asked for.
    #[prost(message, repeated, tag = "1")]
    pub content: Vec<Content>,
    /// The object's clock, if they were.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub vclock: Option<Bytes>,
    /// The key, if the server invented it.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub key: Option<Bytes>,
}

/// `RpbDelReq` (13).
#[derive(Clone, PartialEq, prost::Message)]
pub struct DelReq {
    /// The bucket.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub bucket: Bytes,
    /// The key.
    #[prost(bytes = "bytes", required, tag = "2")]
    pub key: Bytes,
    /// Replies needed, in reading and in writing.
    #[prost(uint32, optional, tag = "3")]
    pub rw: Option<u32>,
    /// The clock that was read; absent to delete what is there.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub vclock: Option<Bytes>,
    /// Replies needed in reading.
    #[prost(uint32, optional, tag = "5")]
    pub r: Option<u32>,
    /// Replies needed in writing.
    #[prost(uint32, optional, tag = "6")]
    pub w: Option<u32>,
    /// Primaries among the replies in reading.
    #[prost(uint32, optional, tag = "7")]
    pub pr: Option<u32>,
    /// Primaries among the replies in writing.
    #[prost(uint32, optional, tag = "8")]
    pub pw: Option<u32>,
    /// Replies from a backend in writing.
    #[prost(uint32, optional, tag = "9")]
    pub dw: Option<u32>,
    /// Milliseconds.
    #[prost(uint32, optional, tag = "10")]
    pub timeout: Option<u32>,
    /// Whether fallbacks may take part.
    #[prost(bool, optional, tag = "11")]
    pub sloppy_quorum: Option<bool>,
    /// Replicas to write, at most the bucket's.
    #[prost(uint32, optional, tag = "12")]
    pub n_val: Option<u32>,
    /// The bucket type; absent for the default one.
    #[prost(bytes = "bytes", optional, tag = "13")]
    pub bucket_type: Option<Bytes>,
}

/// `RpbListBucketsReq` (15).
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListBucketsReq {
    /// Milliseconds.
    #[prost(uint32, optional, tag = "1")]
    pub timeout: Option<u32>,
    /// Answer in pieces, the last with `done`, instead of in one.
    #[prost(bool, optional, tag = "2")]
    pub stream: Option<bool>,
    /// The bucket type; absent for the default one.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub bucket_type: Option<Bytes>,
}

/// `RpbListBucketsResp` (16).
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListBucketsResp {
    /// Names of buckets.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub buckets: Vec<Bytes>,
    /// Whether a stream ends here.
    #[prost(bool, optional, tag = "2")]
    pub done: Option<bool>,
}

/// `RpbListKeysReq` (17).
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListKeysReq {
    /// The bucket.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub bucket: Bytes,
    /// Milliseconds.
    #[prost(uint32, optional, tag = "2")]
    pub timeout: Option<u32>,
    /// The bucket type; absent for the default one.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub bucket_type: Option<Bytes>,
}

/// `RpbListKeysResp` (18): always a stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListKeysResp {
    /// Some of the keys.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub keys: Vec<Bytes>,
    /// Whether the stream ends here.
    #[prost(bool, optional, tag = "2")]
    pub done: Option<bool>,
}
