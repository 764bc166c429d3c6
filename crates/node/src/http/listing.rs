//! Listings of keys and buckets: `{"keys":[…]}` as a whole, or one such object for each piece that comes.
//!
//! Both go out in chunks. A stream goes out as its pieces come, and tells a failure as `{"error":…}`. The first
//! [`HELD_MAX`] bytes of a whole listing are held back: one that fails within them, or runs out of time, answers
//! `{"error":"timeout"}` as in Riak. Beyond them it breaks off, without the end of its body: a part is never taken for
//! the whole.
//!
//! Names that are no UTF-8 are told beside (`names.rs`). Of a whole listing they come last, so they are held until
//! then:
//! [`ENCODED_MAX`] bytes of them at most. A stream tells them with each piece.

use bytes::Bytes;
use kv::{Bucket, Error, ListBucketsRequest, ListKeysRequest, Request, Response};
use protocol::http::target::Query;
use protocol::http::{Answer, Connection, chunk, last_chunk};
use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::{names, options};

/// The bytes of a whole listing that are held back, so that a failure can still be told: some 50,000 names. Connections
/// with a listing under way are few, so the memory is a small part of what their requests may take.
const HELD_MAX: usize = 1 << 20;

/// The most bytes of names that are no UTF-8 in a whole listing, percent-encoded: the same. A longer listing fails.
const ENCODED_MAX: usize = 1 << 20;

/// What an answer depends on beside what the node says.
#[derive(Debug)]
pub(super) struct Asked {
    /// `keys` or `buckets`.
    name: &'static str,
    stream: bool,
    begun: bool,
    /// Whether a name was written, so that the next one stands behind a comma.
    more: bool,
    /// The names of a whole listing that were not sent yet.
    held: String,
    /// The names of a whole listing that are no UTF-8, percent-encoded, with commas between.
    encoded: String,
}

impl Asked {
    fn new(name: &'static str, stream: bool) -> Asked {
        Asked { name, stream, begun: false, more: false, held: String::new(), encoded: String::new() }
    }
}

/// What became of an answer.
pub(super) enum Went {
    /// It is as it should be.
    Well,
    /// It broke off: the connection is to be closed.
    Broken,
}

/// The request for a bucket's keys; `None` if the query asks for none.
pub(super) fn keys(
    bucket: Bucket,
    query: &Query,
    connection: Connection,
) -> Result<Option<(Request, Asked)>, Fault> {
    let Some(stream) = wanted("keys", query, connection)? else { return Ok(None) };
    let request = Request::ListKeys(ListKeysRequest { bucket, timeout: options::timeout(query)? });
    Ok(Some((request, Asked::new("keys", stream))))
}

/// The request for a type's buckets; `None` if the query asks for none.
pub(super) fn buckets(
    bucket_type: Bytes,
    query: &Query,
    connection: Connection,
) -> Result<Option<(Request, Asked)>, Fault> {
    let Some(stream) = wanted("buckets", query, connection)? else { return Ok(None) };
    let timeout = options::timeout(query)?;
    let request = Request::ListBuckets(ListBucketsRequest { bucket_type, stream, timeout });
    Ok(Some((request, Asked::new("buckets", stream))))
}

/// Whether what is listed is to be streamed; `None` if it is not asked for.
fn wanted(name: &str, query: &Query, connection: Connection) -> Result<Option<bool>, Fault> {
    let stream = match query.get(name).map(|value| &value[..]) {
        Some(b"stream") => true,
        Some(b"true") => false,
        _ => return Ok(None),
    };
    if !connection.is_http11 {
        return Err(Fault::new(505, "listings come in chunks, which HTTP/1.0 does not have"));
    }
    Ok(Some(stream))
}

/// What is answered to a query that asks for nothing.
pub(super) fn nothing(connection: Connection, out: &mut Vec<u8>) {
    let mut answer = Answer::new(out, connection, 200);
    answer.header("Content-Type", "application/json");
    answer.body(b"{}");
}

/// Writes a part of the answer.
pub(super) fn respond(
    asked: &mut Asked,
    result: Result<Response, Error>,
    connection: Connection,
    out: &mut Vec<u8>,
) -> Went {
    let (names, done) = match result {
        Ok(Response::Keys { keys, done }) => (keys, done),
        Ok(Response::Buckets { names, done }) => (names, done),
        Ok(other) => unreachable!("the node was asked for a listing and answered {other:?}"),
        Err(error) => return asked.fail(&error, connection, out),
    };
    if asked.stream {
        asked.put_piece(&names, done, connection, out);
        return Went::Well;
    }
    asked.put_names(&names, done, connection, out)
}

impl Asked {
    /// Sends a piece of a stream.
    fn put_piece(&mut self, names: &[Bytes], done: bool, connection: Connection, out: &mut Vec<u8>) {
        self.begin(connection, out);
        if !names.is_empty() || done {
            let mut piece = Map::new();
            names::put_names(&mut piece, self.name, names.iter().map(|name| &name[..]));
            chunk(out, Value::Object(piece).to_string().as_bytes());
        }
        if done {
            last_chunk(out);
        }
    }

    /// Holds names of a whole listing back, or sends them.
    fn put_names(&mut self, names: &[Bytes], done: bool, connection: Connection, out: &mut Vec<u8>) -> Went {
        if self.encoded.len() > ENCODED_MAX {
            return Went::Broken;
        }
        names.iter().for_each(|name| self.hold(name));
        if self.encoded.len() > ENCODED_MAX {
            if self.begun {
                return Went::Broken;
            }
            let text =
                format!("more than {ENCODED_MAX} bytes of names that are no UTF-8: list them as a stream");
            Fault::bad(text).write(connection, out);
            // What comes of the listing yet is not to be sent.
            return Went::Broken;
        }
        if !done && !self.begun && self.held.len() < HELD_MAX {
            return Went::Well;
        }

        self.begin(connection, out);
        let mut text = std::mem::take(&mut self.held);
        if done {
            text.push(']');
            if !self.encoded.is_empty() {
                text.push_str(&format!(",\"{}\":[{}]", names::encoded_field(self.name), self.encoded));
            }
            text.push('}');
        }
        chunk(out, text.as_bytes());
        if done {
            last_chunk(out);
        }
        Went::Well
    }

    /// Holds a name of a whole listing back.
    fn hold(&mut self, name: &[u8]) {
        match std::str::from_utf8(name) {
            Ok(name) => {
                self.held.push_str(if std::mem::replace(&mut self.more, true) { "," } else { "" });
                self.held.push_str(&json!(name).to_string());
            }
            Err(_) => {
                self.encoded.push_str(if self.encoded.is_empty() { "" } else { "," });
                self.encoded.push_str(&json!(names::encoded(name)).to_string());
            }
        }
    }

    fn begin(&mut self, connection: Connection, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let mut answer = Answer::new(out, connection, 200);
        answer.header("Vary", "Accept-Encoding");
        answer.header("Content-Type", "application/json");
        answer.stream();
        if !self.stream {
            chunk(out, format!("{{\"{}\":[", self.name).as_bytes());
        }
    }

    fn fail(&self, error: &Error, connection: Connection, out: &mut Vec<u8>) -> Went {
        let fault = match error {
            // With 200, as in Riak.
            Error::Timeout => Fault::json(200, &json!({ "error": "timeout" })),
            error => Fault::from(error),
        };
        match (self.begun, self.stream) {
            (false, _) => fault.write(connection, out),
            (true, false) => return Went::Broken,
            (true, true) => {
                let text = match error {
                    Error::Timeout => fault.text.into_owned(),
                    _ => json!({ "error": fault.text }).to_string(),
                };
                chunk(out, text.as_bytes());
                last_chunk(out);
            }
        }
        Went::Well
    }
}
