//! A file of a history, read strictly: the verdict on a file that no run has written would mean nothing.

use super::{Class, FORMAT, Header, Line, Op};
use crate::Error;
use base::FastMap;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use strong::linearizability::{Action, Operation, Outcome};

/// Bytes of a line at most: a bucket and a key of 65,535 bytes each, all of them escaped, and the numbers.
const LINE_MAX: u64 = 512 << 10;

/// A request of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number of the client.
    pub process: u64,
    /// The request and its answer, as the checker wants it.
    pub operation: Operation,
}

/// The requests of each key, in the order of their calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// By bucket and key, as in [`Line::key`].
    pub keys: BTreeMap<String, Vec<Request>>,
}

/// Reads a file.
///
/// # Errors
/// [`Error::Io`] if it cannot be read; [`Error::Damaged`] with the number of the line if it is not a whole history.
pub fn read(path: &Path) -> Result<History, Error> {
    let file = File::open(path).map_err(Error::file(path))?;
    read_from(BufReader::new(file), path)
}

/// Reads a history; `path` is for messages.
pub(super) fn read_from(mut input: impl BufRead, path: &Path) -> Result<History, Error> {
    let (mut reader, mut line, mut number) = (Reader::default(), String::new(), 0_u64);
    loop {
        line.clear();
        number += 1;
        let len = (&mut input).take(LINE_MAX).read_line(&mut line).map_err(Error::file(path))?;
        let damaged = |what: String| Error::damaged(path, format!("line {number}: {what}"));
        if len == 0 && number > 1 {
            break;
        }
        let whole = line.strip_suffix('\n').ok_or_else(|| damaged("it is not whole".to_owned()))?;
        if number == 1 { check_header(whole) } else { reader.take(whole) }.map_err(damaged)?;
    }
    Ok(reader.end())
}

fn check_header(text: &str) -> Result<(), String> {
    let header: Header = serde_json::from_str(text).map_err(|error| format!("no header: {error}"))?;
    if header.format > FORMAT {
        return Err(format!("format {} is newer than this program, which reads {FORMAT}", header.format));
    }
    Ok(())
}

/// The lines so far.
#[derive(Default)]
struct Reader {
    history: History,
    /// The last answer of each process; none after one that timed out.
    processes: FastMap<u64, Option<u64>>,
    /// Values that were written, by key.
    written: BTreeMap<String, BTreeSet<u64>>,
}

impl Reader {
    fn take(&mut self, text: &str) -> Result<(), String> {
        let line: Line<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let operation = operation(&line)?;
        if line.call > line.end {
            return Err("its answer comes before its call".to_owned());
        }
        let last = Some(line.end).filter(|_| line.result != Class::Timeout);
        match self.processes.insert(line.process, last) {
            Some(None) => return Err(format!("process {} goes on after a timeout", line.process)),
            Some(Some(end)) if end > line.call => {
                return Err(format!("process {} has two requests at a time", line.process));
            }
            _ => {}
        }
        if let Some(value) = line.value.filter(|_| line.op.writes_value()) {
            let written = self.written.entry(line.key.clone().into_owned()).or_default();
            if !written.insert(value) {
                return Err(format!("value {value} is written twice"));
            }
        }
        let requests = self.history.keys.entry(line.key.into_owned()).or_default();
        requests.push(Request { process: line.process, operation });
        Ok(())
    }

    fn end(mut self) -> History {
        for requests in self.history.keys.values_mut() {
            requests.sort_by_key(|it| (it.operation.call, it.operation.end));
        }
        self.history
    }
}

/// The checker's form of a line.
fn operation(line: &Line<'_>) -> Result<Operation, String> {
    let missing = |what: &str| format!("a {} without {what}", name(line.op));
    let value = || line.value.ok_or_else(|| missing("a value"));
    let expected = || line.expected.ok_or_else(|| missing("an expected value"));
    let action = match line.op {
        Op::Get => Action::Get,
        Op::Put => Action::Put(value()?),
        Op::PutOnce => Action::PutOnce(value()?),
        Op::Cas => Action::Cas { expected: expected()?, value: value()? },
        Op::Delete => Action::Delete,
        Op::DeleteIf => Action::DeleteIf { expected: expected()? },
    };
    let outcome = match line.result {
        Class::Ok if line.op == Op::Get => Outcome::Read(line.value),
        Class::Ok => Outcome::Done,
        Class::Failed if line.op.is_conditional() => Outcome::Failed,
        Class::Failed => return Err(format!("a {} has no condition that fails", name(line.op))),
        Class::Unavailable => Outcome::Unavailable,
        Class::Timeout => Outcome::Timeout,
    };
    Ok(Operation { call: line.call, end: line.end, action, outcome })
}

fn name(op: Op) -> &'static str {
    match op {
        Op::Get => "get",
        Op::Put => "put",
        Op::PutOnce => "put_once",
        Op::Cas => "cas",
        Op::Delete => "delete",
        Op::DeleteIf => "delete_if",
    }
}

impl Request {
    /// Its line in the file.
    pub fn line<'a>(&self, key: &'a str) -> Line<'a> {
        let Operation { call, end, action, outcome } = self.operation;
        let (op, written, expected) = match action {
            Action::Get => (Op::Get, None, None),
            Action::Put(value) => (Op::Put, Some(value), None),
            Action::PutOnce(value) => (Op::PutOnce, Some(value), None),
            Action::Cas { expected, value } => (Op::Cas, Some(value), Some(expected)),
            Action::Delete => (Op::Delete, None, None),
            Action::DeleteIf { expected } => (Op::DeleteIf, None, Some(expected)),
        };
        let (value, result) = match outcome {
            Outcome::Read(value) => (value, Class::Ok),
            Outcome::Done => (written, Class::Ok),
            Outcome::Failed => (written, Class::Failed),
            Outcome::Unavailable => (written, Class::Unavailable),
            Outcome::Timeout => (written, Class::Timeout),
        };
        Line { process: self.process, op, key: Cow::Borrowed(key), value, expected, call, end, result }
    }
}
