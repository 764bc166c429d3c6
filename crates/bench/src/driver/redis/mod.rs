//! Redis: GET, SET, EXISTS, DEL and PING, to one server ([`Redis`]) or a cluster of them ([`RedisCluster`]).
//!
//! A key is its bucket, a colon and its name. There are no contexts, so an update is a GET and a SET; there are no
//! index entries and no listings.

mod cluster;
pub mod resp;
mod slots;

pub use cluster::RedisCluster;

use super::pool::{Asked, Codec, Decoded};
use super::{Answer, Command, ErrorKind, Request};
use resp::{Value, put_request};
use std::ops::Range;

/// Between a bucket and a key.
const COLON: &[u8] = b":";

/// The protocol's codec.
pub struct Redis {
    /// The database, which is selected at first: a server that does not let clients in says so then.
    database: u32,
    value: [Range<usize>; 1],
    text: String,
}

impl Redis {
    /// For a database.
    pub fn new(database: u32) -> Redis {
        Redis { database, value: [0..0], text: String::new() }
    }
}

impl Codec for Redis {
    fn encode(&mut self, request: &Request<'_>, _stream: u16, out: &mut Vec<u8>) {
        let key: &[&[u8]] = &[request.bucket, COLON, request.key];
        match request.command {
            Command::Get => put_request(out, &[&[b"GET"], key]),
            Command::Head => put_request(out, &[&[b"EXISTS"], key]),
            Command::Put { value, .. } => put_request(out, &[&[b"SET"], key, &[value]]),
            Command::Delete { .. } => put_request(out, &[&[b"DEL"], key]),
            // What is refused does not come here.
            _ => put_request(out, &[&[b"PING"]]),
        }
    }

    fn frame_len(&self, _asked: Asked, input: &[u8]) -> Result<Option<usize>, String> {
        resp::frame_len(input).map_err(str::to_owned)
    }

    fn decode<'a>(&'a mut self, asked: Asked, _listed: u64, frame: &'a [u8]) -> Decoded<'a> {
        let nonsense = Answer::Failed { kind: ErrorKind::Protocol, text: "an answer that cannot be read" };
        if asked == Asked::Frame && !frame.starts_with(b"-") {
            self.value = [0..frame.len()];
            return Decoded::Answer(Answer::Found { context: &[], values: &self.value, body: frame });
        }
        Decoded::Answer(match (asked, resp::parse(frame)) {
            (_, Ok(Value::Error(text))) => {
                self.text.clear();
                self.text.push_str(&String::from_utf8_lossy(text));
                Answer::Failed { kind: kind_of(&self.text), text: &self.text }
            }
            (Asked::Read, Ok(Value::Bulk(None))) | (Asked::Head, Ok(Value::Integer(0))) => Answer::NotFound,
            (Asked::Read, Ok(Value::Bulk(Some(value)))) => {
                // The value and the end of its line are the last of the frame.
                let end = frame.len() - 2;
                self.value = [end - value.len()..end];
                Answer::Found { context: &[], values: &self.value, body: frame }
            }
            (Asked::Head, Ok(Value::Integer(_))) => Answer::Done,
            (Asked::Write | Asked::Unheard, Ok(Value::Simple(_) | Value::Integer(_))) => Answer::Done,
            _ => nonsense,
        })
    }

    fn closes(&self, _frame: &[u8]) -> bool {
        false
    }

    fn refuses(&self, command: &Command<'_>) -> Option<&'static str> {
        match command {
            Command::Query(_) => Some("Redis has no index queries"),
            Command::ListKeys | Command::ListBuckets => Some("Redis has no buckets to list"),
            _ => None,
        }
    }

    fn greet(&self, step: usize, out: &mut Vec<u8>) -> bool {
        let has_step = step == 0;
        if has_step {
            put_request(out, &[&[b"SELECT"], &[self.database.to_string().as_bytes()]]);
        }
        has_step
    }

    fn greeted(&mut self, _step: usize, frame: &[u8]) -> Result<(), String> {
        match resp::parse(frame)? {
            Value::Error(text) => Err(String::from_utf8_lossy(text).into_owned()),
            _ => Ok(()),
        }
    }
}

/// The kind of an error, which its first word tells.
fn kind_of(text: &str) -> ErrorKind {
    match text.split(' ').next().unwrap_or_default() {
        "CLUSTERDOWN" | "TRYAGAIN" | "LOADING" | "MASTERDOWN" | "NOREPLICAS" | "READONLY" => {
            ErrorKind::Unavailable
        }
        "BUSY" | "OOM" => ErrorKind::Overload,
        "ERR" if text.starts_with("ERR unknown command") => ErrorKind::Unsupported,
        "ERR" if text.starts_with("ERR max number of clients") => ErrorKind::Overload,
        _ => ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests;
