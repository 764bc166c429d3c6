//! Cassandra's native protocol, version 4: prepared statements over a table of one value for each bucket and key.
//!
//! 1. [`make_schema`] makes keyspace and table, where they are not there, once for each run.
//! 2. Each connection begins with STARTUP and prepares the four statements; then each operation is an EXECUTE. What a
//!    statement is known as depends on its text alone, so that all connections share it.
//! 3. A server that has forgotten a statement has done nothing: its connection begins anew.
//!
//! There are no contexts: the write with the newest time, which is the server's, is the one that is read. There are no
//! index entries and no listings. A server that wants a password is told apart, and not answered.

pub mod frame;
mod schema;

pub use schema::make_schema;

use super::pool::{Asked, Codec, Decoded};
use super::{Answer, Command, ErrorKind, Request};
use crate::workload::{CassandraPlan, Consistency};
use frame::{Message, opcode, put_long, put_request, put_short};
use std::ops::Range;

/// Values follow, and nothing is to be said of the columns of rows.
const EXECUTE_FLAGS: u8 = 0x01 | 0x02;

/// Of the frames of a greeting.
const GREETING_STREAM: u16 = 0;

const WANTS_PASSWORD: &str = "the server wants a password, which this driver does not send";

/// A prepared statement.
#[derive(Clone, Copy)]
enum Statement {
    Get,
    Head,
    Put,
    Delete,
}

const STATEMENTS: usize = 4;

/// The protocol's codec.
pub struct Cassandra {
    consistency: u16,
    texts: [String; STATEMENTS],
    /// What they are known as.
    ids: [Vec<u8>; STATEMENTS],
    value: [Range<usize>; 1],
    text: String,
}

impl Cassandra {
    /// For a table that is there.
    pub fn new(plan: &CassandraPlan) -> Cassandra {
        let (table, key) = (format!("{}.{}", plan.keyspace, plan.table), "WHERE bucket = ? AND key = ?");
        Cassandra {
            consistency: level(plan.consistency),
            texts: [
                format!("SELECT value FROM {table} {key}"),
                format!("SELECT key FROM {table} {key}"),
                format!("INSERT INTO {table} (bucket, key, value) VALUES (?, ?, ?)"),
                format!("DELETE FROM {table} {key}"),
            ],
            ids: Default::default(),
            value: [0..0],
            text: String::new(),
        }
    }

    fn put_execute(&self, out: &mut Vec<u8>, stream: u16, statement: Statement, values: &[&[u8]]) {
        put_request(out, stream, opcode::EXECUTE, |out| {
            put_short(out, &self.ids[statement as usize]);
            out.extend_from_slice(&self.consistency.to_be_bytes());
            out.push(EXECUTE_FLAGS);
            out.extend_from_slice(&(values.len() as u16).to_be_bytes());
            for value in values {
                put_long(out, value);
            }
        });
    }
}

impl Codec for Cassandra {
    fn encode(&mut self, request: &Request<'_>, stream: u16, out: &mut Vec<u8>) {
        let (bucket, key) = (request.bucket, request.key);
        match request.command {
            Command::Get => self.put_execute(out, stream, Statement::Get, &[bucket, key]),
            Command::Head => self.put_execute(out, stream, Statement::Head, &[bucket, key]),
            Command::Put { value, .. } => {
                self.put_execute(out, stream, Statement::Put, &[bucket, key, value]);
            }
            Command::Delete { .. } => self.put_execute(out, stream, Statement::Delete, &[bucket, key]),
            // What is refused does not come here.
            _ => put_request(out, stream, opcode::OPTIONS, |_| {}),
        }
    }

    fn frame_len(&self, _asked: Asked, input: &[u8]) -> Result<Option<usize>, String> {
        frame::frame_len(input).map_err(str::to_owned)
    }

    fn decode<'a>(&'a mut self, asked: Asked, _listed: u64, bytes: &'a [u8]) -> Decoded<'a> {
        let nonsense = Answer::Failed { kind: ErrorKind::Protocol, text: "an answer that cannot be read" };
        Decoded::Answer(match (asked, frame::parse(bytes)) {
            (_, Some(Message::Error { code: UNPREPARED, .. })) => return Decoded::Renew,
            (_, Some(Message::Error { code, text })) => {
                self.text.clear();
                self.text.push_str(text);
                Answer::Failed { kind: kind_of(code), text: &self.text }
            }
            (Asked::Read, Some(Message::Rows(Some(Some(at))))) => {
                self.value = [at];
                Answer::Found { context: &[], values: &self.value, body: bytes }
            }
            (Asked::Head, Some(Message::Rows(Some(_)))) => Answer::Done,
            (Asked::Read | Asked::Head, Some(Message::Rows(_))) => Answer::NotFound,
            (Asked::Write, Some(Message::Done | Message::Supported)) => Answer::Done,
            _ => nonsense,
        })
    }

    fn closes(&self, _frame: &[u8]) -> bool {
        false
    }

    fn stream(&self, bytes: &[u8]) -> Option<u16> {
        Some(frame::stream(bytes))
    }

    fn refuses(&self, command: &Command<'_>) -> Option<&'static str> {
        match command {
            Command::Query(_) => Some("the table of a Cassandra has no index"),
            Command::ListKeys | Command::ListBuckets => Some("the table of a Cassandra is not listed"),
            _ => None,
        }
    }

    fn greet(&self, step: usize, out: &mut Vec<u8>) -> bool {
        match (step, step.checked_sub(1).and_then(|at| self.texts.get(at))) {
            (0, _) => put_startup(out),
            (_, Some(text)) => put_request(out, GREETING_STREAM, opcode::PREPARE, |out| {
                put_long(out, text.as_bytes());
            }),
            _ => return false,
        }
        true
    }

    fn greeted(&mut self, step: usize, bytes: &[u8]) -> Result<(), String> {
        match (step, frame::parse(bytes)) {
            (0, Some(Message::Ready)) => Ok(()),
            (0, Some(Message::Authenticate)) => Err(WANTS_PASSWORD.to_owned()),
            (1..=STATEMENTS, Some(Message::Prepared(id))) => {
                self.ids[step - 1] = id.to_vec();
                Ok(())
            }
            (_, Some(Message::Error { text, .. })) => Err(text.to_owned()),
            _ => Err("an answer that cannot be read".to_owned()),
        }
    }
}

fn put_startup(out: &mut Vec<u8>) {
    put_request(out, GREETING_STREAM, opcode::STARTUP, |out| {
        out.extend_from_slice(&1u16.to_be_bytes());
        put_short(out, b"CQL_VERSION");
        put_short(out, b"3.0.0");
    });
}

/// The protocol's number of a level.
fn level(consistency: Consistency) -> u16 {
    match consistency {
        Consistency::One => 0x01,
        Consistency::Two => 0x02,
        Consistency::Three => 0x03,
        Consistency::Quorum => 0x04,
        Consistency::All => 0x05,
        Consistency::LocalQuorum => 0x06,
        Consistency::LocalOne => 0x0A,
    }
}

/// The server does not know a statement.
const UNPREPARED: u32 = 0x2500;

/// The kind of an error, by the protocol's number.
fn kind_of(code: u32) -> ErrorKind {
    match code {
        // Unavailable, bootstrapping, and replicas that have failed at a read or a write.
        0x1000 | 0x1002 | 0x1300 | 0x1500 => ErrorKind::Unavailable,
        0x1001 => ErrorKind::Overload,
        // Of a write and of a read.
        0x1100 | 0x1200 => ErrorKind::Timeout,
        // The protocol, the syntax.
        0x000A | 0x2000 => ErrorKind::Unsupported,
        _ => ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests;
