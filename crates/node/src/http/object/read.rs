//! Requests that read: GET, HEAD, and a DELETE's first half.

use bytes::Bytes;
use kv::{DeleteRequest, GetRequest};
use protocol::http::target::Query;
use protocol::http::{Head, Method};

use super::headers;
use crate::http::fault::Fault;
use crate::http::options::{flag, n_val, quorum, timeout};
use crate::http::route::Place;

pub(super) fn get(place: &Place, key: Bytes, head: &Head, query: &Query) -> Result<GetRequest, Fault> {
    Ok(GetRequest {
        r: quorum(query, "r")?,
        pr: quorum(query, "pr")?,
        node_confirms: quorum(query, "node_confirms")?,
        n_val: n_val(query)?,
        sloppy_quorum: flag(query, "sloppy_quorum")?,
        basic_quorum: flag(query, "basic_quorum")?,
        notfound_ok: flag(query, "notfound_ok")?,
        timeout: timeout(query)?,
        head: head.method == Method::Head,
        deleted_context: true,
        ..GetRequest::new(place.bucket.clone(), key)
    })
}

/// The read that tells whether there is something to delete, and the delete. `w` and `dw` are the delete's alone.
pub(super) fn delete(
    place: &Place,
    key: Bytes,
    head: &Head,
    query: &Query,
) -> Result<(GetRequest, DeleteRequest), Fault> {
    let rw = quorum(query, "rw")?;
    let mut check = get(place, key.clone(), head, query)?;
    check.r = check.r.or(rw);
    check.head = true;
    let delete = DeleteRequest {
        context: headers::context(head, headers::VCLOCK)?,
        rw,
        r: quorum(query, "r")?,
        w: quorum(query, "w")?,
        pr: quorum(query, "pr")?,
        pw: quorum(query, "pw")?,
        dw: quorum(query, "dw")?,
        n_val: check.n_val,
        sloppy_quorum: check.sloppy_quorum,
        timeout: check.timeout,
        ..DeleteRequest::new(place.bucket.clone(), key)
    };
    Ok((check, delete))
}
