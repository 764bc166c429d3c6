//! A worker's part of the history: its requests under way, and lines that wait to be written.
//!
//! 1. [`Recorder::sent`] notes a request when it goes out; a slot of the worker has one at a time.
//! 2. [`Recorder::answered`] makes a line of it. A request without an answer is a line at the end of the run, or when
//!    its connection breaks: *timeout*, for it may take effect at any time.
//! 3. Lines are handed over when there are [`LINES_LEN`] bytes of them, and at the end.
//!
//! Each slot is a process. After a timeout it becomes another one, since the old request may still take effect.

use super::worker::Message;
use crate::driver::ErrorKind;
use crate::history::{Class, Line, Op, put_key};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;

/// Bytes of lines that are handed over together: few messages, and little that a killed run loses.
const LINES_LEN: usize = 64 << 10;

/// A request, as its history sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The request.
    pub op: Op,
    /// The value written, if it writes one.
    pub value: Option<u64>,
    /// The value whose context it carries.
    pub expected: Option<u64>,
}

/// Its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A read's value.
    Read(Option<u64>),
    /// Done as asked.
    Done,
    /// The condition of the write did not hold.
    Failed,
    /// Of this kind of error, on a consistent bucket type or another store.
    Error {
        /// The kind.
        kind: ErrorKind,
        /// Whether *unavailable* and *overload* say that nothing was applied.
        is_consistent: bool,
    },
}

impl Ended {
    fn class(self) -> Class {
        match self {
            Ended::Read(_) | Ended::Done => Class::Ok,
            Ended::Failed => Class::Failed,
            Ended::Error { kind: ErrorKind::Unavailable | ErrorKind::Overload, is_consistent: true } => {
                Class::Unavailable
            }
            Ended::Error { kind, .. } if kind.is_certain() => Class::Unavailable,
            Ended::Error { .. } => Class::Timeout,
        }
    }
}

/// A slot's process, and its request under way.
#[derive(Clone, Debug, Default)]
struct Process {
    number: Option<u64>,
    sent: Option<(Sent, u64)>,
    key: String,
}

/// A worker's part.
pub struct Recorder<'a> {
    /// The next process's number, of all workers.
    next: &'a AtomicU64,
    slots: Vec<Process>,
    lines: Vec<u8>,
    out: Sender<Message>,
}

impl<'a> Recorder<'a> {
    /// For a worker with so many slots.
    pub fn new(next: &'a AtomicU64, slots: usize, out: Sender<Message>) -> Recorder<'a> {
        Recorder { next, slots: vec![Process::default(); slots], lines: Vec::new(), out }
    }

    /// A slot's request goes out.
    pub fn sent(&mut self, slot: u32, sent: Sent, (bucket, key): (&[u8], &[u8]), now: u64) {
        let process = &mut self.slots[slot as usize];
        assert!(process.sent.is_none(), "a slot has one request at a time");
        process.sent = Some((sent, now));
        put_key(bucket, key, &mut process.key);
    }

    /// A slot's request was not done, and another one follows in its place.
    pub fn forget(&mut self, slot: u32) {
        self.slots[slot as usize].sent = None;
    }

    /// A slot's request has ended; nothing happens if it was none of a history.
    pub fn answered(&mut self, slot: u32, ended: Ended, now: u64) {
        let process = &mut self.slots[slot as usize];
        let Some((sent, call)) = process.sent.take() else { return };
        let number = *process.number.get_or_insert_with(|| self.next.fetch_add(1, Ordering::Relaxed));
        let result = ended.class();
        let value = if let Ended::Read(value) = ended { value } else { sent.value };
        let (op, expected, key) = (sent.op, sent.expected, Cow::Borrowed(&*process.key));
        let line = Line { process: number, op, key, value, expected, call, end: now, result };
        line.put(&mut self.lines);
        if result == Class::Timeout {
            process.number = None;
        }
        if self.lines.len() >= LINES_LEN {
            self.hand_over();
        }
    }

    /// The worker has ended: requests under way have no answer.
    pub fn end(&mut self, now: u64) {
        for slot in 0..self.slots.len() as u32 {
            self.answered(slot, Ended::Error { kind: ErrorKind::NoAnswer, is_consistent: true }, now);
        }
        self.hand_over();
    }

    fn hand_over(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        if !lines.is_empty() {
            // Nobody listens only where the collector has failed, which it tells itself.
            self.out.send(Message::History(lines)).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const KEY: (&[u8], &[u8]) = (b"b", b"k/1");

    fn lines_of(record: impl FnOnce(&mut Recorder<'_>)) -> Vec<String> {
        let (next, (out, lines)) = (AtomicU64::new(7), mpsc::channel());
        let mut recorder = Recorder::new(&next, 2, out);
        record(&mut recorder);
        recorder.end(99);
        let lines = lines.try_iter().map(|message| match message {
            Message::History(lines) => String::from_utf8(lines).unwrap(),
            _ => panic!("lines"),
        });
        lines.collect::<String>().lines().map(str::to_owned).collect()
    }

    fn error(kind: ErrorKind) -> Ended {
        Ended::Error { kind, is_consistent: true }
    }

    #[test]
    fn a_process_ends_with_a_request_that_timed_out() {
        let get = Sent { op: Op::Get, value: None, expected: None };
        let put = Sent { op: Op::PutOnce, value: Some(3), expected: None };
        let lines = lines_of(|it| {
            it.sent(0, get, KEY, 1);
            it.sent(1, put, KEY, 2);
            it.answered(1, error(ErrorKind::Timeout), 3);
            it.answered(0, Ended::Read(Some(3)), 4);
            it.sent(0, get, KEY, 5);
            it.answered(0, Ended::Read(None), 6);
            it.sent(1, put, KEY, 7);
            it.answered(1, error(ErrorKind::Unavailable), 8);
            // It has no answer when the run ends.
            it.sent(1, put, KEY, 9);
        });
        assert_eq!(
            lines,
            [
                r#"{"process":7,"op":"put_once","key":"b/k%2F1","value":3,"call":2,"return":3,"result":"timeout"}"#,
                r#"{"process":8,"op":"get","key":"b/k%2F1","value":3,"call":1,"return":4,"result":"ok"}"#,
                r#"{"process":8,"op":"get","key":"b/k%2F1","value":null,"call":5,"return":6,"result":"ok"}"#,
                r#"{"process":9,"op":"put_once","key":"b/k%2F1","value":3,"call":7,"return":8,"result":"unavailable"}"#,
                r#"{"process":9,"op":"put_once","key":"b/k%2F1","value":3,"call":9,"return":99,"result":"timeout"}"#,
            ]
        );
    }

    #[test]
    fn every_error_has_its_class() {
        let unavailable = |is_consistent| {
            let is_unavailable =
                |kind: &ErrorKind| Ended::Error { kind: *kind, is_consistent }.class() == Class::Unavailable;
            ErrorKind::ALL.into_iter().filter(is_unavailable).map(ErrorKind::name).collect::<Vec<_>>()
        };
        // All others may have been applied.
        assert_eq!(unavailable(true), ["overload", "unavailable", "precondition", "refused", "unsupported"]);
        assert_eq!(unavailable(false), ["precondition", "refused", "unsupported"]);
    }

    #[test]
    fn a_request_that_is_sent_again_has_one_line() {
        let cas = Sent { op: Op::Cas, value: Some(4), expected: Some(3) };
        let lines = lines_of(|it| {
            it.sent(0, cas, KEY, 1);
            it.forget(0);
            it.sent(0, cas, KEY, 2);
            it.answered(0, Ended::Failed, 3);
        });
        let line = r#"{"process":7,"op":"cas","key":"b/k%2F1","value":4,"expected":3,"call":2,"return":3,"result":"failed"}"#;
        assert_eq!(lines, [line]);
    }
}
