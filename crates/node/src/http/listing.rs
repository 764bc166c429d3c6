//! Listings of keys and buckets: `{"keys":[…]}` as a whole, or one such object for each piece that comes.
//!
//! Either form goes out as its pieces come, in chunks, so that a listing holds a page at a time. A whole listing that
//! fails on its way cannot say so any more: it breaks off, without the end of its body. A stream tells `{"error":…}`.
//!
//! Names are text in JSON; what is no UTF-8 in them is replaced. Clients whose names are not text list by protocol buffers.

use bytes::Bytes;
use kv::{Bucket, Error, ListBucketsRequest, ListKeysRequest, Request, Response};
use protocol::http::target::Query;
use protocol::http::{Answer, Connection, chunk, last_chunk};
use serde_json::{Value, json};

use super::fault::Fault;
use super::options;

/// What an answer depends on beside what the node says.
#[derive(Debug)]
pub(super) struct Asked {
    /// `keys` or `buckets`.
    name: &'static str,
    stream: bool,
    begun: bool,
    /// Whether a name was written, so that the next one stands behind a comma.
    more: bool,
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
    Ok(Some((request, Asked { name: "keys", stream, begun: false, more: false })))
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
    Ok(Some((request, Asked { name: "buckets", stream, begun: false, more: false })))
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
    asked.begin(connection, out);
    let mut text = String::new();
    if asked.stream {
        if !names.is_empty() || done {
            let names: Vec<Value> = names.iter().map(|name| json!(String::from_utf8_lossy(name))).collect();
            text = json!({ asked.name: names }).to_string();
        }
    } else {
        for name in &names {
            text.push_str(if std::mem::replace(&mut asked.more, true) { "," } else { "" });
            text.push_str(&json!(String::from_utf8_lossy(name)).to_string());
        }
        text.push_str(if done { "]}" } else { "" });
    }
    chunk(out, text.as_bytes());
    if done {
        last_chunk(out);
    }
    Went::Well
}

impl Asked {
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
        let fault = Fault::from(error);
        match (self.begun, self.stream) {
            (false, _) => fault.write(connection, out),
            (true, false) => return Went::Broken,
            (true, true) => {
                chunk(out, json!({ "error": fault.text }).to_string().as_bytes());
                last_chunk(out);
            }
        }
        Went::Well
    }
}
