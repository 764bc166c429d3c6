//! Requests: what a client's frame asks for.
//!
//! Decoding has three ends, as in Riak: a request; a refusal that leaves the connection open (a code nobody
//! serves, an empty name); a malformed message, after whose answer the connection is closed because the
//! peer's idea of the protocol cannot be trusted any further.
//!
//! Stricter than Riak in one place: a get without its required key is malformed here, where Riak looks for
//! an object named by nothing and answers that there is none.

use bytes::Bytes;
use prost::Message;

use crate::codes;
use crate::errors;
use crate::frame::put_message;
use crate::messages::*;
use crate::shape::{self, Shape};

/// A client's request. Names (bucket, key, bucket type) are never empty. The largest messages are in boxes, where they
/// are decoded: requests of all kinds are moved a few times.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Is anyone there?
    Ping,
    /// Which client id does this connection hold?
    GetClientId,
    /// Hold this client id.
    SetClientId(SetClientIdReq),
    /// Which node and version is this?
    GetServerInfo,
    /// Read an object.
    Get(GetReq),
    /// Write an object.
    Put(Box<PutReq>),
    /// Delete an object.
    Del(DelReq),
    /// List the buckets of a type.
    ListBuckets(ListBucketsReq),
    /// List the keys of a bucket.
    ListKeys(ListKeysReq),
    /// Find keys by the terms of an index.
    Index(Box<IndexReq>),
    /// Read a bucket's properties.
    GetBucket(GetBucketReq),
    /// Change a bucket's properties.
    SetBucket(Box<SetBucketReq>),
    /// Give a bucket its type's properties again.
    ResetBucket(ResetBucketReq),
    /// Read a bucket type's properties.
    GetBucketType(GetBucketTypeReq),
    /// Change a bucket type's properties.
    SetBucketType(Box<SetBucketTypeReq>),
    /// Which vnodes hold this key?
    GetPreflist(GetPreflistReq),
    /// Go through all buckets with so many replicas, under this code.
    FoldNVal(u8, FoldNValReq),
    /// Go through a bucket, under this code.
    FoldRange(u8, FoldRangeReq),
    /// This user logs in.
    Auth(AuthReq),
    /// Go on under TLS.
    StartTls,
}

/// Why a frame is not a request. Its `Display` is the text to answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Nobody serves this message code; the connection stays open.
    #[error("Unknown message code: {0}")]
    UnknownCode(u8),
    /// The message is sound but asks for what cannot be; the connection stays open.
    #[error("{0}")]
    Refused(&'static str),
    /// The body is not the message its code says; the connection is closed after the answer.
    #[error("Error processing incoming message: {0}")]
    Malformed(String),
}

impl DecodeError {
    /// Whether the connection is to be closed after the answer.
    pub fn closes(&self) -> bool {
        matches!(self, DecodeError::Malformed(_))
    }
}

impl Request {
    /// Decodes a frame. Byte strings in the result are slices of `body`.
    pub fn decode(code: u8, body: Bytes) -> Result<Request, DecodeError> {
        let request = match code {
            codes::GET_REQ => Request::Get(message(&shape::GET, body)?),
            codes::PUT_REQ => Request::Put(message(&shape::PUT, body)?),
            codes::DEL_REQ => Request::Del(message(&shape::DEL, body)?),
            codes::PING_REQ => empty(Request::Ping, &body)?,
            codes::GET_CLIENT_ID_REQ => empty(Request::GetClientId, &body)?,
            codes::SET_CLIENT_ID_REQ => Request::SetClientId(message(&shape::SET_CLIENT_ID, body)?),
            codes::GET_SERVER_INFO_REQ => empty(Request::GetServerInfo, &body)?,
            codes::LIST_BUCKETS_REQ => Request::ListBuckets(message(&shape::LIST_BUCKETS, body)?),
            codes::LIST_KEYS_REQ => Request::ListKeys(message(&shape::LIST_KEYS, body)?),
            codes::INDEX_REQ => Request::Index(message(&shape::INDEX, body)?),
            codes::GET_BUCKET_REQ => Request::GetBucket(message(&shape::GET_BUCKET, body)?),
            codes::SET_BUCKET_REQ => Request::SetBucket(message(&shape::SET_BUCKET, body)?),
            codes::RESET_BUCKET_REQ => Request::ResetBucket(message(&shape::RESET_BUCKET, body)?),
            codes::GET_BUCKET_TYPE_REQ => Request::GetBucketType(message(&shape::GET_BUCKET_TYPE, body)?),
            codes::SET_BUCKET_TYPE_REQ => Request::SetBucketType(message(&shape::SET_BUCKET_TYPE, body)?),
            codes::GET_PREFLIST_REQ => Request::GetPreflist(message(&shape::GET_PREFLIST, body)?),
            codes::FOLD_ROOT_REQ | codes::FOLD_BRANCH_REQ | codes::FOLD_CLOCKS_NVAL_REQ => {
                Request::FoldNVal(code, message(&shape::FOLD_NVAL, body)?)
            }
            codes::FOLD_LIST_BUCKETS_REQ => Request::FoldNVal(code, message(&shape::FOLD_BUCKETS, body)?),
            codes::FOLD_TREE_REQ => Request::FoldRange(code, message(&shape::FOLD_TREE, body)?),
            codes::FOLD_FIND_KEYS_REQ => Request::FoldRange(code, message(&shape::FOLD_FIND_KEYS, body)?),
            codes::FOLD_STATS_REQ => Request::FoldRange(code, message(&shape::FOLD_RANGE, body)?),
            codes::FOLD_CLOCKS_RANGE_REQ | codes::FOLD_FIND_TOMBS_REQ => {
                Request::FoldRange(code, message(&shape::FOLD_SEGMENTS, body)?)
            }
            codes::FOLD_REAP_REQ | codes::FOLD_ERASE_REQ => {
                Request::FoldRange(code, message(&shape::FOLD_CHANGE, body)?)
            }
            codes::AUTH_REQ => Request::Auth(message(&shape::AUTH, body)?),
            codes::START_TLS => empty(Request::StartTls, &body)?,
            // An answer's code is no request's, as any other that nobody serves.
            _ => return Err(DecodeError::UnknownCode(code)),
        };
        request.check_names()?;
        Ok(request)
    }

    /// The message code this request came under.
    pub fn code(&self) -> u8 {
        match self {
            Request::Ping => codes::PING_REQ,
            Request::GetClientId => codes::GET_CLIENT_ID_REQ,
            Request::SetClientId(_) => codes::SET_CLIENT_ID_REQ,
            Request::GetServerInfo => codes::GET_SERVER_INFO_REQ,
            Request::Get(_) => codes::GET_REQ,
            Request::Put(_) => codes::PUT_REQ,
            Request::Del(_) => codes::DEL_REQ,
            Request::ListBuckets(_) => codes::LIST_BUCKETS_REQ,
            Request::ListKeys(_) => codes::LIST_KEYS_REQ,
            Request::Index(_) => codes::INDEX_REQ,
            Request::GetBucket(_) => codes::GET_BUCKET_REQ,
            Request::SetBucket(_) => codes::SET_BUCKET_REQ,
            Request::ResetBucket(_) => codes::RESET_BUCKET_REQ,
            Request::GetBucketType(_) => codes::GET_BUCKET_TYPE_REQ,
            Request::SetBucketType(_) => codes::SET_BUCKET_TYPE_REQ,
            Request::GetPreflist(_) => codes::GET_PREFLIST_REQ,
            Request::FoldNVal(code, _) | Request::FoldRange(code, _) => *code,
            Request::Auth(_) => codes::AUTH_REQ,
            Request::StartTls => codes::START_TLS,
        }
    }

    /// Appends this request as a frame, which is what a client does with it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Request::SetClientId(m) => put_message(out, self.code(), m),
            Request::Get(m) => put_message(out, self.code(), m),
            Request::Put(m) => put_message(out, self.code(), m),
            Request::Del(m) => put_message(out, self.code(), m),
            Request::ListBuckets(m) => put_message(out, self.code(), m),
            Request::ListKeys(m) => put_message(out, self.code(), m),
            Request::Index(m) => put_message(out, self.code(), m),
            Request::GetBucket(m) => put_message(out, self.code(), m),
            Request::SetBucket(m) => put_message(out, self.code(), m),
            Request::ResetBucket(m) => put_message(out, self.code(), m),
            Request::GetBucketType(m) => put_message(out, self.code(), m),
            Request::SetBucketType(m) => put_message(out, self.code(), m),
            Request::GetPreflist(m) => put_message(out, self.code(), m),
            Request::FoldNVal(_, m) => put_message(out, self.code(), m),
            Request::FoldRange(_, m) => put_message(out, self.code(), m),
            Request::Auth(m) => put_message(out, self.code(), m),
            Request::Ping | Request::GetClientId | Request::GetServerInfo | Request::StartTls => {
                put_message(out, self.code(), &());
            }
        }
    }

    /// The bucket type, bucket and key this request names, as far as it names them.
    fn names(&self) -> (Option<&Bytes>, Option<&Bytes>, Option<&Bytes>) {
        match self {
            Request::Get(m) => (m.bucket_type.as_ref(), Some(&m.bucket), Some(&m.key)),
            Request::Put(m) => (m.bucket_type.as_ref(), Some(&m.bucket), m.key.as_ref()),
            Request::Del(m) => (m.bucket_type.as_ref(), Some(&m.bucket), Some(&m.key)),
            Request::ListBuckets(m) => (m.bucket_type.as_ref(), None, None),
            Request::ListKeys(m) => (m.bucket_type.as_ref(), Some(&m.bucket), None),
            Request::Index(m) => (m.bucket_type.as_ref(), Some(&m.bucket), None),
            Request::GetBucket(m) => (m.bucket_type.as_ref(), Some(&m.bucket), None),
            Request::SetBucket(m) => (m.bucket_type.as_ref(), Some(&m.bucket), None),
            Request::ResetBucket(m) => (m.bucket_type.as_ref(), Some(&m.bucket), None),
            Request::GetBucketType(m) => (Some(&m.bucket_type), None, None),
            Request::SetBucketType(m) => (Some(&m.bucket_type), None, None),
            Request::GetPreflist(m) => (m.bucket_type.as_ref(), Some(&m.bucket), Some(&m.key)),
            Request::FoldRange(_, m) => (m.bucket_type.as_ref(), Some(&m.bucket), None),
            Request::Ping
            | Request::FoldNVal(..)
            | Request::GetClientId
            | Request::SetClientId(_)
            | Request::GetServerInfo
            | Request::Auth(_)
            | Request::StartTls => (None, None, None),
        }
    }

    /// No name may be empty. In Riak's order: of several empty names the bucket is told first.
    fn check_names(&self) -> Result<(), DecodeError> {
        let (bucket_type, bucket, key) = self.names();
        let rules =
            [(bucket, errors::EMPTY_BUCKET), (key, errors::EMPTY_KEY), (bucket_type, errors::EMPTY_TYPE)];
        for (name, text) in rules {
            if name.is_some_and(Bytes::is_empty) {
                return Err(DecodeError::Refused(text));
            }
        }
        Ok(())
    }
}

fn message<M: Message + Default>(shape: &Shape, body: Bytes) -> Result<M, DecodeError> {
    shape::check(shape, &body).map_err(DecodeError::Malformed)?;
    M::decode(body).map_err(|error| DecodeError::Malformed(error.to_string()))
}

/// A request that is only its code; unknown fields are skipped here as anywhere.
fn empty(request: Request, body: &[u8]) -> Result<Request, DecodeError> {
    shape::check(&shape::EMPTY, body).map_err(DecodeError::Malformed)?;
    Ok(request)
}
