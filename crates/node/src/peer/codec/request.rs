//! A client's request that another node is to coordinate, and the answer to it.
//!
//! Only puts and deletes are passed on: any node coordinates a read, and listings and properties are not spread by
//! passing a client's request on. The leader of a consistent group executes reads, too.

use super::EncodeError;
use super::field::{Field, record, variants};
use crate::peer::{LeaderAnswer, NodeId};
use bytes::{BufMut, Bytes, BytesMut};
use kv::{
    Conditions, DeleteRequest, Error, Found, GetRequest, PutRequest, Quorum, Request, Response, Return, Tags,
};
use object::index::IndexEntry;
use object::{Link, Metadata};
use protocol::peer::{Malformed, Reader};

const PUT: u8 = 1;
const DELETE: u8 = 2;
/// A put with conditions before it: a node that does not know them does not take it for one without.
const PUT_IF: u8 = 3;
const GET: u8 = 4;
const DONE: u8 = 1;
const DELETED: u8 = 2;
const FAILED: u8 = 3;
const FOUND: u8 = 4;
const NOT_FOUND: u8 = 5;
const UNCHANGED: u8 = 6;
const NOT_LEADER: u8 = 7;

record!(PutRequest {
    bucket, key, key_invented, context, metadata, w, dw, pw, node_confirms, n_val, sloppy_quorum, timeout, returned,
    if_none_match, if_not_modified, asis; value
} without conditions);

record!(Conditions { if_match, if_none_match, if_modified_since, if_unmodified_since });

variants!(Tags, "no such tags" {
    1 Any,
    2 Named { 0: tags },
});

record!(DeleteRequest { bucket, key, context, rw, r, w, pr, pw, dw, n_val, sloppy_quorum, timeout });

record!(Metadata {
    content_type,
    charset,
    content_encoding,
    links,
    user_meta,
    indexes,
    last_modified,
    deleted
} without expires_ms);

record!(Link { bucket, key, tag });
record!(IndexEntry { field, value });

variants!(Quorum, "no such quorum" {
    1 Default,
    2 One,
    3 Quorum,
    4 All,
    5 Exactly { 0: count },
});

variants!(Return, "no such part of an object" {
    1 Nothing,
    2 Head,
    3 Body,
});

record!(Found { head, newest_only; value });

/// Appends a request's fields, and returns the value that comes after them.
pub(super) fn put_request<'a>(
    request: &'a Request,
    out: &mut BytesMut,
) -> Result<Option<&'a Bytes>, EncodeError> {
    match request {
        Request::Put(put) => {
            match &put.conditions {
                None => out.put_u8(PUT),
                Some(conditions) => {
                    out.put_u8(PUT_IF);
                    conditions.put(out);
                }
            }
            put.put(out);
            Ok(Some(&put.value))
        }
        Request::Delete(delete) => {
            out.put_u8(DELETE);
            delete.put(out);
            Ok(None)
        }
        _ => Err(EncodeError::Unspoken),
    }
}

/// Takes a request.
pub(super) fn take_request(from: &mut Reader) -> Result<Request, Malformed> {
    match from.u8()? {
        PUT => Ok(Request::put(Field::take(from)?)),
        PUT_IF => {
            let conditions = Some(Box::new(Conditions::take(from)?));
            Ok(Request::put(PutRequest { conditions, ..PutRequest::take(from)? }))
        }
        DELETE => Ok(Request::Delete(Field::take(from)?)),
        _ => Err(Malformed("no such request")),
    }
}

/// Appends the fields of the answer to a request, and returns the value that comes after them.
pub(super) fn put_result<'a>(
    result: &'a Result<Response, Error>,
    out: &mut BytesMut,
) -> Result<Option<&'a Bytes>, EncodeError> {
    match result {
        Ok(Response::Put { key, object }) => {
            out.put_u8(DONE);
            key.put(out);
            object.put(out);
            Ok(object.as_ref().and_then(|object| object.value.as_ref()))
        }
        Ok(Response::Deleted) => {
            out.put_u8(DELETED);
            Ok(None)
        }
        Ok(_) => Err(EncodeError::Unspoken),
        Err(error) => {
            out.put_u8(FAILED);
            error.put(out);
            Ok(None)
        }
    }
}

/// Takes the answer to a request.
pub(super) fn take_result(from: &mut Reader) -> Result<Result<Response, Error>, Malformed> {
    match from.u8()? {
        DONE => {
            let key = Field::take(from)?;
            Ok(Ok(Response::Put { key, object: Field::take(from)? }))
        }
        DELETED => Ok(Ok(Response::Deleted)),
        FAILED => Ok(Err(Field::take(from)?)),
        _ => Err(Malformed("no such answer")),
    }
}

/// Appends the fields of a request to a leader, and returns the value that comes after them. Of a read they are those
/// that a consistent type goes by.
pub(super) fn put_leader_request<'a>(
    request: &'a Request,
    out: &mut BytesMut,
) -> Result<Option<&'a Bytes>, EncodeError> {
    let Request::Get(get) = request else { return put_request(request, out) };
    out.put_u8(GET);
    get.bucket.put(out);
    get.key.put(out);
    get.if_modified.put(out);
    get.head.put(out);
    get.deleted_context.put(out);
    Ok(None)
}

/// Takes a request to a leader.
pub(super) fn take_leader_request(from: &mut Reader) -> Result<Request, Malformed> {
    if from.peek() != Some(GET) {
        return take_request(from);
    }
    from.u8()?;
    let (bucket, key) = (Field::take(from)?, Field::take(from)?);
    let (if_modified, head, deleted_context) = (Field::take(from)?, Field::take(from)?, Field::take(from)?);
    Ok(Request::Get(GetRequest { if_modified, head, deleted_context, ..GetRequest::new(bucket, key) }))
}

/// Appends the fields of a leader's answer, and returns the value that comes after them.
pub(super) fn put_leader_answer<'a>(
    answer: &'a LeaderAnswer,
    out: &mut BytesMut,
) -> Result<Option<&'a Bytes>, EncodeError> {
    match answer {
        LeaderAnswer::NotLeader { leader } => {
            out.put_u8(NOT_LEADER);
            leader.map(|node| node.0).put(out);
            Ok(None)
        }
        LeaderAnswer::Done(result) => match &**result {
            Ok(Response::Found(found)) => {
                out.put_u8(FOUND);
                found.put(out);
                Ok(found.value.as_ref())
            }
            Ok(Response::NotFound { deleted_context }) => {
                out.put_u8(NOT_FOUND);
                deleted_context.put(out);
                Ok(None)
            }
            Ok(Response::Unchanged) => {
                out.put_u8(UNCHANGED);
                Ok(None)
            }
            _ => put_result(result, out),
        },
    }
}

/// Takes a leader's answer.
pub(super) fn take_leader_answer(from: &mut Reader) -> Result<LeaderAnswer, Malformed> {
    let result = match from.peek() {
        Some(kind @ (FOUND | NOT_FOUND | UNCHANGED | NOT_LEADER)) => {
            from.u8()?;
            match kind {
                FOUND => Ok(Response::Found(Field::take(from)?)),
                NOT_FOUND => Ok(Response::NotFound { deleted_context: Field::take(from)? }),
                UNCHANGED => Ok(Response::Unchanged),
                _ => {
                    let leader = <Option<u16> as Field>::take(from)?.map(NodeId);
                    return Ok(LeaderAnswer::NotLeader { leader });
                }
            }
        }
        _ => take_result(from)?,
    };
    Ok(LeaderAnswer::Done(Box::new(result)))
}
