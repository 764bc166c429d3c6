//! Requests that write: PUT and POST.

use bytes::Bytes;
use kv::{PutRequest, Return};
use protocol::http::Head;
use protocol::http::target::Query;

use super::accepted::Accepted;
use super::headers;
use crate::http::fault::Fault;
use crate::http::options::{flag, n_val, quorum, timeout};
use crate::http::route::Place;

pub(super) fn put(
    place: &Place,
    key: Option<Bytes>,
    head: &Head,
    query: &Query,
    value: Bytes,
) -> Result<PutRequest, Fault> {
    let metadata = headers::metadata(head, &place.bucket)?;
    // What is written is also what would be answered, so it must be acceptable.
    let content_type = metadata.content_type.as_deref().unwrap_or_default();
    Accepted::of(head).check_write(content_type, metadata.charset.as_deref())?;
    check_sync_on_write(query)?;
    let (seen, unless_modified) =
        (headers::context(head, headers::VCLOCK)?, headers::context(head, headers::IF_NOT_MODIFIED)?);
    if let (Some(seen), Some(unless_modified)) = (&seen, &unless_modified)
        && seen != unless_modified
    {
        return Err(Fault::bad("X-Riak-Vclock and X-Riak-If-Not-Modified are not the same"));
    }
    // A tombstone counts as absent there, and so it does for the standard's `*`.
    let if_none_match = head.header("if-none-match").is_some_and(|value| value.trim_ascii() == b"*");
    let mut conditions = headers::conditions(head, false);
    if if_none_match && let Some(conditions) = &mut conditions {
        conditions.if_none_match = None;
    }
    // Anything but the word itself is no, as in Riak.
    let returns_body = query.get("returnbody").is_some_and(|value| value == "true");
    let returned = if returns_body { Return::Body } else { Return::Nothing };
    // Both are a write's in Riak, too, but a write there reads first.
    for name in ["r", "pr"] {
        quorum(query, name)?;
    }
    Ok(PutRequest {
        if_not_modified: unless_modified.is_some(),
        context: seen.or(unless_modified),
        w: quorum(query, "w")?,
        dw: quorum(query, "dw")?,
        pw: quorum(query, "pw")?,
        node_confirms: quorum(query, "node_confirms")?,
        n_val: n_val(query)?,
        sloppy_quorum: flag(query, "sloppy_quorum")?,
        timeout: timeout(query)?,
        returned,
        if_none_match,
        asis: flag(query, "asis")? == Some(true),
        conditions: conditions.filter(|conditions| !conditions.is_empty()),
        ..PutRequest::new(place.bucket.clone(), key, metadata, value)
    })
}

/// The word is checked; when a write is durable is the node's to say (its option `durability`).
fn check_sync_on_write(query: &Query) -> Result<(), Fault> {
    match query.get("sync_on_write").map(|value| &value[..]) {
        None | Some(b"default" | b"backend" | b"one" | b"all") => Ok(()),
        Some(_) => Err(Fault::bad(
            "sync_on_write query parameter must be one of the following words: 'default', 'backend', 'one' or 'all'",
        )),
    }
}
