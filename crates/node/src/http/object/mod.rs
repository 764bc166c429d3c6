//! Objects: requests for one, and how it is answered.
//!
//! * `read`, `write`: from a request's head and body to the node's request. `headers` reads metadata and conditions.
//! * `accepted`: what of it the client takes, and in which coding.
//! * `answer`: from what the node found to a response: one sibling as the body, several as a list or in parts.
//!
//! A delete is two requests to the node: what is there decides between 404 and the delete.

mod accepted;
mod answer;
mod headers;
mod read;
mod write;

use bytes::Bytes;
use kv::{Conditions, DeleteRequest, Request};
use protocol::http::target::Query;
use protocol::http::{Head, Method};

use super::fault::Fault;
use super::route::Place;

use accepted::Accepted;

pub(super) use answer::respond;

/// What an answer depends on beside what the node says.
#[derive(Debug)]
pub(super) struct Asked {
    place: Place,
    step: Step,
    /// The sibling that is wanted, if one is named.
    vtag: Option<Bytes>,
    accepted: Accepted,
    conditions: Option<Box<Conditions>>,
    /// Whether a write depends on the context that it names, whose failure has a status of its own.
    by_context: bool,
}

/// What the node was asked.
#[derive(Debug)]
enum Step {
    Get,
    Put,
    /// To read what is to be deleted.
    Check(Box<DeleteRequest>),
    Delete,
}

/// The node's request that is asked for.
pub(super) fn request(
    place: Place,
    key: Option<Bytes>,
    head: &Head,
    query: &Query,
    body: Bytes,
) -> Result<(Request, Asked), Fault> {
    let asked = |step, conditions| Asked {
        place: place.clone(),
        step,
        vtag: query.get("vtag").cloned(),
        accepted: Accepted::of(head),
        conditions,
        by_context: false,
    };
    match (head.method, key) {
        (Method::Get | Method::Head, Some(key)) => {
            let request = read::get(&place, key, head, query)?;
            let conditions = headers::conditions(head, true);
            Ok((Request::Get(request), asked(Step::Get, conditions)))
        }
        (Method::Delete, Some(key)) => {
            let (check, delete) = read::delete(&place, key, head, query)?;
            let conditions = headers::conditions(head, false);
            Ok((Request::Get(check), asked(Step::Check(Box::new(delete)), conditions)))
        }
        (Method::Put | Method::Post, key) => {
            let request = write::put(&place, key, head, query, body)?;
            let by_context = request.if_not_modified;
            Ok((Request::put(request), Asked { by_context, ..asked(Step::Put, None) }))
        }
        _ => unreachable!("the session has looked at the method"),
    }
}
