//! Index queries: `{"keys":[…]}`, or with terms `{"results":[{"term":"key"},…]}`, and a `continuation` where there may
//! be more.
//!
//! A stream is `multipart/mixed`: such an object in each part, the continuation in the last. What fails on the way is
//! told in a part of its own, `{"error":…}`.
//!
//! Names that are no UTF-8 are told beside (`names.rs`).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use kv::index::{Rows, Terms};
use kv::{Bucket, Error, IndexRequest, Request, Response};
use protocol::http::target::Query;
use protocol::http::{Answer, Connection, chunk, last_chunk};
use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::listing::Went;
use super::{names, options};

/// What separates the parts of a stream: nothing that JSON holds at the start of a line.
const BOUNDARY: &str = "annulet-index-query";

/// What an answer depends on beside what the node says.
#[derive(Debug)]
pub(super) struct Asked {
    with_terms: bool,
    stream: bool,
    begun: bool,
}

/// The request for an index query.
pub(super) fn request(
    bucket: Bucket,
    field: Bytes,
    terms: Terms,
    query: &Query,
    connection: Connection,
) -> Result<(Request, Asked), Fault> {
    let flag = |name| options::flag(query, name).map(|flag| flag.unwrap_or(false));
    let stream = flag("stream")?;
    if stream && !connection.is_http11 {
        return Err(Fault::new(505, "a stream comes in chunks, which HTTP/1.0 does not have"));
    }
    let continuation = query.get("continuation").map(|text| {
        // Who does not encode a plus sends a space.
        let text: Vec<u8> = text.iter().map(|&byte| if byte == b' ' { b'+' } else { byte }).collect();
        let place = BASE64_STANDARD.decode(&text).map(Bytes::from);
        place.map_err(|_| Fault::bad("Invalid continuation"))
    });
    let request = IndexRequest {
        return_terms: flag("return_terms")?,
        max_results: options::max_results(query)?,
        continuation: continuation.transpose()?,
        sort: flag("pagination_sort")?,
        term_regex: query.get("term_regex").cloned(),
        stream,
        timeout: options::timeout(query)?,
        ..IndexRequest::new(bucket, field, terms)
    };
    let with_terms = request.tells_terms();
    Ok((Request::Index(Box::new(request)), Asked { with_terms, stream, begun: false }))
}

/// Writes a part of the answer.
pub(super) fn respond(
    asked: &mut Asked,
    result: Result<Response, Error>,
    connection: Connection,
    out: &mut Vec<u8>,
) -> Went {
    match result {
        Ok(Response::Rows(rows)) if asked.stream => asked.go_on(&rows, connection, out),
        Ok(Response::Rows(rows)) => {
            let mut answer = Answer::new(out, connection, 200);
            answer.header("Vary", "Accept-Encoding");
            answer.header("Content-Type", "application/json");
            answer.body(asked.text(&rows).to_string().as_bytes());
        }
        Ok(other) => unreachable!("the node was asked an index query and answered {other:?}"),
        Err(error) => asked.fail(&error, connection, out),
    }
    Went::Well
}

impl Asked {
    fn text(&self, rows: &Rows) -> Value {
        let mut text = Map::new();
        if self.with_terms {
            let pairs = rows.rows.iter().map(|(term, key)| (term.unwrap_or_default(), key));
            names::put_pairs(&mut text, "results", pairs);
        } else {
            names::put_names(&mut text, "keys", rows.rows.iter().map(|(_, key)| key));
        }
        if let Some(place) = &rows.continuation {
            text.insert("continuation".to_owned(), BASE64_STANDARD.encode(place).into());
        }
        Value::Object(text)
    }

    fn go_on(&mut self, rows: &Rows, connection: Connection, out: &mut Vec<u8>) {
        self.begin(connection, out);
        if !rows.rows.is_empty() {
            part(&self.text(&Rows { continuation: None, ..rows.clone() }), out);
        }
        if let Some(place) = &rows.continuation {
            part(&json!({ "continuation": BASE64_STANDARD.encode(place) }), out);
        }
        if rows.done {
            end(out);
        }
    }

    fn begin(&mut self, connection: Connection, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let mut answer = Answer::new(out, connection, 200);
        answer.header("Vary", "Accept-Encoding");
        answer.header("Content-Type", format!("multipart/mixed;boundary={BOUNDARY}"));
        answer.stream();
    }

    fn fail(&mut self, error: &Error, connection: Connection, out: &mut Vec<u8>) {
        let fault = Fault::from(error);
        if self.begun {
            part(&json!({ "error": fault.text }), out);
            end(out);
        } else {
            fault.write(connection, out);
        }
    }
}

fn part(text: &Value, out: &mut Vec<u8>) {
    let part = format!("\r\n--{BOUNDARY}\r\nContent-Type: application/json\r\n\r\n{text}");
    chunk(out, part.as_bytes());
}

fn end(out: &mut Vec<u8>) {
    chunk(out, format!("\r\n--{BOUNDARY}--\r\n").as_bytes());
    last_chunk(out);
}
