//! How other terminals reach the process that runs `annulet dev N`: a socket in the folder of its nodes.
//!
//! The process holds a lock on the folder as long as it lives, so there is one for each folder, and a socket without a
//! lock is a dead one's. A connection carries one request and its answer, both text: a line `kill 2 3`, answered by
//! `ok` or `refused` on a line, and the text to show.

use super::supervisor::Event;
use crate::failure::{FAILED, Failure};
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

const SOCKET: &str = "control";
const LOCK: &str = "lock";

/// A request names some nodes; an answer has a line for each, or two.
const REQUEST_BYTES_MAX: u64 = 1 << 10;
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Requests at a time: each has a thread until it is answered.
const REQUESTS_MAX: usize = 16;

/// How long a request may take to arrive.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);

/// How long an answer is waited for: a node with much to recover takes its time until it serves.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(600);

/// A request. Nodes are numbers from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Status,
    /// The variables with which the command line asks this node, or the first that serves.
    Env(Vec<u16>),
    Kill(Vec<u16>),
    Stop(Vec<u16>),
    Start(Vec<u16>),
}

/// The text to show; `Err` if the request cannot be carried out.
pub(super) type Answer = Result<String, String>;

impl fmt::Display for Request {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, nodes) = match self {
            Request::Status => ("status", &[][..]),
            Request::Env(nodes) => ("env", &nodes[..]),
            Request::Kill(nodes) => ("kill", &nodes[..]),
            Request::Stop(nodes) => ("stop", &nodes[..]),
            Request::Start(nodes) => ("start", &nodes[..]),
        };
        write!(out, "{word}")?;
        nodes.iter().try_for_each(|node| write!(out, " {node}"))
    }
}

impl Request {
    fn read(line: &str) -> Option<Request> {
        let mut words = line.split_whitespace();
        let word = words.next()?;
        let nodes = words.map(str::parse).collect::<Result<Vec<u16>, _>>().ok()?;
        match (word, nodes.is_empty()) {
            ("status", true) => Some(Request::Status),
            ("env", _) if nodes.len() <= 1 => Some(Request::Env(nodes)),
            ("kill", false) => Some(Request::Kill(nodes)),
            ("stop", false) => Some(Request::Stop(nodes)),
            ("start", false) => Some(Request::Start(nodes)),
            _ => None,
        }
    }
}

/// Takes the lock of a folder of nodes, until it is dropped.
pub(super) fn lock(data: &Path) -> Result<File, Failure> {
    let path = data.join(LOCK);
    let failed = |error: io::Error| Failure::new(FAILED, format!("{}: {error}", path.display()));
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let what = format!("a cluster runs on {} already: `annulet dev status` shows it", data.display());
            Err(Failure::new(FAILED, what))
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// The name of the socket through an open folder: the name of a socket is short, and that of a folder may be long.
fn socket_in(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

/// Takes requests from now on, and has each told with the way to its answer. The caller holds the lock.
pub(super) fn listen(data: &Path, tell: Sender<Event>) -> io::Result<()> {
    let folder = File::open(data)?;
    let path = socket_in(&folder);
    // The socket is of a process that is gone, which would hold the lock.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::thread::spawn(move || {
        let open = Arc::new(AtomicUsize::new(0));
        for stream in listener.incoming().flatten() {
            if open.fetch_add(1, Ordering::Relaxed) >= REQUESTS_MAX {
                open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (open, tell) = (Arc::clone(&open), tell.clone());
            std::thread::spawn(move || {
                // One who asks and leaves has no answer.
                serve(stream, &tell).ok();
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    Ok(())
}

fn serve(mut stream: UnixStream, tell: &Sender<Event>) -> io::Result<()> {
    stream.set_read_timeout(Some(REQUEST_TIME_MAX))?;
    let mut line = String::new();
    BufReader::new((&stream).take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    let answer = match Request::read(&line) {
        None => Err(format!("the running cluster does not know {:?}", line.trim())),
        Some(request) => {
            let (answer, answered) = mpsc::channel();
            tell.send(Event::Asked(request, answer)).ok();
            answered.recv().unwrap_or_else(|_| Err("the cluster is being stopped".to_owned()))
        }
    };
    let (word, text) = match &answer {
        Ok(text) => ("ok", text),
        Err(text) => ("refused", text),
    };
    stream.write_all(format!("{word}\n{text}").as_bytes())
}

/// Why there is no answer.
pub(super) enum Error {
    /// No process runs nodes of this folder.
    NotRunning,
    /// It cannot be done, for this reason.
    Refused(String),
    /// The process cannot be reached.
    Io(io::Error),
}

/// Asks the process that runs the nodes of a folder.
pub(super) fn ask(data: &Path, request: &Request) -> Result<String, Error> {
    let connected = File::open(data).and_then(|folder| UnixStream::connect(socket_in(&folder)));
    let mut stream = connected.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Error::NotRunning,
        _ => Error::Io(error),
    })?;
    let mut answer = String::new();
    let asked = stream
        .set_read_timeout(Some(ANSWER_TIME_MAX))
        .and_then(|()| stream.write_all(format!("{request}\n").as_bytes()))
        .and_then(|()| stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer));
    asked.map_err(Error::Io)?;
    match answer.split_once('\n') {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some(("refused", text)) => Err(Error::Refused(text.to_owned())),
        _ => Err(Error::Refused("the cluster was stopped before it answered".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        for request in [
            Request::Status,
            Request::Env(vec![]),
            Request::Env(vec![3]),
            Request::Kill(vec![2]),
            Request::Stop(vec![1, 3]),
            Request::Start(vec![16]),
        ] {
            assert_eq!(Request::read(&request.to_string()), Some(request));
        }
        for line in ["", "kill", "kill x", "status 1", "pause 1", "kill -9"] {
            assert_eq!(Request::read(line), None, "{line}");
        }
    }
}
