//! Histories: the requests of a run on single keys with their answers, for a checker of linearizability.
//!
//! 1. Workers record each request as a [`Line`] when its answer comes (`run/recorder.rs`).
//! 2. A [`Writer`] puts the lines into a file, which gets its name when the run has ended. So a file that was cut off
//!    is never judged.
//! 3. [`read()`] reads a file and refuses lines that no run can have written.
//! 4. [`check()`] judges the requests of each key with the checker of crate `strong`.
//!
//! Invariants: each write of a key has a value of its own; a process has one request at a time; a request that was sent
//! and has no line does not exist in a whole file.
//!
//! The layout is described in `docs/formats/bench-results.md`. Left out: requests without a value (heads, listings,
//! queries, pings), and histories of several generators in one file, whose clocks differ.

mod check;
mod pieces;
mod read;
mod write;

pub use check::{Offence, Report, check};
pub use read::{History, Request, read};
pub use strong::linearizability::STATES_MAX;
pub use write::Writer;

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The version of the layout. Readers refuse a greater one.
pub const FORMAT: u32 = 1;

/// A value that nobody has written: it is damaged, or there were several where one is possible.
pub const VALUE_WRONG: u64 = 0;

/// Values from here on were there before the run; those below are numbers of the run's writes, which have 32 bits.
pub const EARLIER_FROM: u64 = 1 << 32;

/// The first line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the layout.
    pub format: u32,
    /// Name of the workload.
    pub name: String,
}

/// The request of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Reads the value.
    Get,
    /// Writes a value without a condition.
    Put,
    /// Writes a value if there is none.
    PutOnce,
    /// Writes a value with the context of another.
    Cas,
    /// Deletes without a condition.
    Delete,
    /// Deletes with the context of a value.
    DeleteIf,
}

impl Op {
    /// Whether it writes a value.
    pub fn writes_value(self) -> bool {
        matches!(self, Op::Put | Op::PutOnce | Op::Cas)
    }

    /// Whether it carries the context of a value.
    pub fn has_context(self) -> bool {
        matches!(self, Op::Cas | Op::DeleteIf)
    }

    /// Whether a condition may fail.
    pub fn is_conditional(self) -> bool {
        self.has_context() || self == Op::PutOnce
    }
}

/// The class of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Done as asked; a read that found nothing included.
    Ok,
    /// The condition did not hold.
    Failed,
    /// Never applied.
    Unavailable,
    /// May be applied at any time after the call, or never.
    Timeout,
}

/// A line of a file: one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line<'a> {
    /// Number of the client, which has one request at a time. A client whose request timed out has no further one.
    pub process: u64,
    /// The request.
    pub op: Op,
    /// Bucket, a slash, and key; both escaped as in a URL.
    #[serde(borrow)]
    pub key: Cow<'a, str>,
    /// The value that was written, or was read; none for a delete, and for a read without a value.
    pub value: Option<u64>,
    /// The value whose context the request carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<u64>,
    /// Time of the call in nanoseconds since the start of the run.
    pub call: u64,
    /// Time of the answer, of the same clock.
    #[serde(rename = "return")]
    pub end: u64,
    /// The class of the answer.
    pub result: Class,
}

impl Line<'_> {
    /// Appends it to `out`.
    pub fn put(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(&mut *out, self).expect("numbers and text always have a form in JSON");
        out.push(b'\n');
    }
}

/// Replaces the content of `out` by the `key` of a line.
pub fn put_key(bucket: &[u8], key: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.clear();
    for (part, end) in [(bucket, "/"), (key, "")] {
        for &byte in part {
            if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                out.push(char::from(byte));
            } else {
                let digits = [byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)]));
                out.extend(['%', digits[0], digits[1]]);
            }
        }
        out.push_str(end);
    }
}

#[cfg(test)]
mod tests;
