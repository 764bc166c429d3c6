//! Requests to the stores, by route, and the forms of their answers.
//!
//! 1. [`request_of`] makes a request of a route, with the form that its answer is to have.
//! 2. [`AnswerForm::respond`] writes the answer in that form. An object may need another request before.
//!
//! Left out: pages that no store answers (`question.rs`).

use bytes::Bytes;
use kv::{Error, Request, Response};
use protocol::http::target::Query;
use protocol::http::{Connection, Head, Method};

use super::fault::Fault;
use super::listing::Went;
use super::route::{Form, Route};
use super::{admin, fold, index, listing, object, preflist, props, query};

/// The form of the answer under way, by the request that it is to.
#[derive(Debug)]
pub(super) enum AnswerForm {
    Nothing,
    Object(object::Asked),
    Preflist,
    Props(props::Asked),
    Listing(listing::Asked),
    Index(index::Asked),
    Query,
    Fold,
    Admin(admin::Asked),
}

/// The state of an answer after a response of the stores.
pub(super) enum Responded {
    /// What there is of it is written.
    Whole,
    /// It ended in the middle: the connection cannot go on.
    Broken,
    /// Another request comes before it.
    Asks(Request),
}

impl AnswerForm {
    /// Writes a response of the stores.
    pub fn respond(
        &mut self,
        result: Result<Response, Error>,
        connection: Connection,
        out: &mut Vec<u8>,
    ) -> Responded {
        match self {
            AnswerForm::Object(asked) => {
                if let Some(next) = object::respond(asked, result, connection, out) {
                    return Responded::Asks(next);
                }
            }
            AnswerForm::Preflist => preflist::respond(result, connection, out),
            AnswerForm::Props(asked) => props::respond(asked, result, connection, out),
            AnswerForm::Admin(asked) => admin::respond(asked, result, connection, out),
            AnswerForm::Listing(asked) => return listing::respond(asked, result, connection, out).into(),
            AnswerForm::Index(asked) => return index::respond(asked, result, connection, out).into(),
            AnswerForm::Query => query::respond(result, connection, out),
            AnswerForm::Fold => fold::respond(result, connection, out),
            AnswerForm::Nothing => unreachable!("the node answers what it was asked"),
        }
        Responded::Whole
    }
}

impl From<Went> for Responded {
    fn from(went: Went) -> Responded {
        match went {
            Went::Well => Responded::Whole,
            Went::Broken => Responded::Broken,
        }
    }
}

/// The request that a route asks of the stores, and the form of its answer; `None` if nothing is to be listed.
pub(super) fn request_of(
    route: Route,
    head: &Head,
    query: &Query,
    body: Bytes,
    connection: Connection,
) -> Result<Option<(Request, AnswerForm)>, Fault> {
    Ok(Some(match route {
        Route::Object(place, key) => {
            let (request, asked) = object::request(place, Some(key), head, query, body)?;
            (request, AnswerForm::Object(asked))
        }
        Route::Preflist(place, key) => (Request::GetPreflist(place.bucket, key), AnswerForm::Preflist),
        Route::Keys(place) if head.method == Method::Post => {
            let (request, asked) = object::request(place, None, head, query, body)?;
            (request, AnswerForm::Object(asked))
        }
        // The oldest form has a bucket's properties and its keys in one place.
        Route::Keys(place)
            if place.form == Form::Riak && query.get("keys").is_none_or(|it| it == "false") =>
        {
            let (request, asked) = props::of_bucket(place.bucket, head.method, &body)?;
            (request, AnswerForm::Props(asked))
        }
        Route::Keys(place) => {
            let listing = listing::keys(place.bucket, query, connection)?;
            return Ok(listing.map(|(request, asked)| (request, AnswerForm::Listing(asked))));
        }
        Route::Buckets(bucket_type) => {
            let listing = listing::buckets(bucket_type, query, connection)?;
            return Ok(listing.map(|(request, asked)| (request, AnswerForm::Listing(asked))));
        }
        Route::Index(place, field, terms) => {
            let (request, asked) = index::request(place.bucket, field, terms, query, connection)?;
            (request, AnswerForm::Index(asked))
        }
        Route::Query(place) => (query::request(place.bucket, &body)?, AnswerForm::Query),
        Route::Fold(path) => (fold::request(path, query)?, AnswerForm::Fold),
        Route::Props(place) => {
            let (request, asked) = props::of_bucket(place.bucket, head.method, &body)?;
            (request, AnswerForm::Props(asked))
        }
        Route::TypeProps(name) => {
            let (request, asked) = props::of_type(name, head.method, &body)?;
            (request, AnswerForm::Props(asked))
        }
        Route::Root
        | Route::Ping
        | Route::Ready
        | Route::Live
        | Route::Stats
        | Route::Metrics
        | Route::Admin(_)
        | Route::Unbuilt(_)
        | Route::WrongTerms(_) => unreachable!("answered above"),
    }))
}
