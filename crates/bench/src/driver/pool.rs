//! Connections to servers: non-blocking sockets, requests in a pipeline, one epoll set.
//!
//! An operation costs one `send` and one `recv` at most, and its share of an `epoll_wait`. With several operations under way on
//! one connection it costs its share of these, too: what requests put into a connection's output since the last poll goes out
//! together, and one `recv` brings all answers that are there. The bytes are a [`Codec`]'s business.
//!
//! Each connection belongs to one address; addresses get as many or one more. A connection that breaks fails what was
//! owed on it and is made anew after [`RECONNECT_AFTER`]; meanwhile there is room for fewer operations, so that a server
//! that is down costs its share of the load and not a storm of errors.

use super::{Answer, Command, Driver, ErrorKind, Request, Sink};
use crate::Error;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::VecDeque;
use std::io::{self, ErrorKind as IoKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Room for input at first, for each operation that may be under way; grows to the largest answer.
const INPUT_LEN: usize = 16 << 10;

/// No connection has more room at first, however many operations are under way on it.
const INPUT_LEN_MAX: usize = 128 << 10;

/// No answer is longer.
const ANSWER_MAX: usize = 256 << 20;

/// How long a broken connection waits before it is made anew.
const RECONNECT_AFTER: Duration = Duration::from_millis(100);

/// How often time limits are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Ready sockets that one wait tells of.
const EVENTS_MAX: usize = 256;

/// What an answer is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A read.
    Read,
    /// A read without the value.
    Head,
    /// A write, a delete, a ping.
    Write,
    /// A listing: an answer may have several frames.
    List,
    /// An index query.
    Rows,
}

/// What a frame came to.
pub enum Decoded<'a> {
    /// The answer.
    Answer(Answer<'a>),
    /// A part of it: more frames follow.
    Part(u64),
}

/// A protocol: requests to bytes, bytes to answers.
pub trait Codec {
    /// Appends a request.
    fn encode(&mut self, request: &Request<'_>, out: &mut Vec<u8>);

    /// The length of the frame at the front of `input`, as far as it can be told yet. An error ends the connection.
    fn frame_len(&self, asked: Asked, input: &[u8]) -> Result<Option<usize>, String>;

    /// What a whole frame says. `listed` is what earlier parts of it came to.
    fn decode<'a>(&'a mut self, asked: Asked, listed: u64, frame: &'a [u8]) -> Decoded<'a>;

    /// Whether the server closes the connection after this frame.
    fn closes(&self, frame: &[u8]) -> bool;
}

#[derive(Clone, Copy)]
struct Owed {
    token: u32,
    asked: Asked,
    listed: u64,
    sent: Instant,
}

enum State {
    Connecting,
    Open,
    /// Until then.
    Broken(Instant),
}

struct Connection {
    address: SocketAddr,
    socket: Option<Socket>,
    state: State,
    owed: VecDeque<Owed>,
    out: Vec<u8>,
    /// How much of `out` has been sent.
    sent: usize,
    input: Vec<u8>,
    filled: usize,
    /// Whether epoll tells when it takes more.
    waits_for_room: bool,
    /// A reconnect that is under way as an operation.
    reconnect: Option<Owed>,
    since: Instant,
}

/// Connections.
pub struct Pool<C> {
    codec: C,
    epoll: OwnedFd,
    /// What the last wait told of: connections and what they are ready for.
    events: Vec<(usize, EventFlags)>,
    connections: Vec<Connection>,
    /// Connections that take a request, those that have been idle for the longest first; each as often as it takes.
    free: VecDeque<u32>,
    /// Connections with something to send.
    dirty: Vec<u32>,
    pipeline: usize,
    timeout: Duration,
    looked: Instant,
    /// Answers that are owed by nobody any more.
    failed: Vec<(u32, ErrorKind, String)>,
}

impl<C: Codec> Pool<C> {
    /// `count` connections over the addresses, each with `pipeline` operations under way at most.
    pub fn connect(
        codec: C,
        addresses: &[SocketAddr],
        count: usize,
        pipeline: usize,
        timeout: Duration,
    ) -> Result<Pool<C>, Error> {
        let now = Instant::now();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failure("epoll"))?;
        let connections = addresses.iter().cycle().take(count).map(|&address| Connection::new(address, now));
        let mut pool = Pool {
            codec,
            epoll,
            events: Vec::with_capacity(EVENTS_MAX),
            connections: connections.collect(),
            free: VecDeque::new(),
            dirty: Vec::new(),
            pipeline,
            timeout,
            looked: now,
            failed: Vec::new(),
        };
        for at in 0..pool.connections.len() {
            pool.begin_connect(at)?;
        }
        Ok(pool)
    }

    /// Whether every connection is open.
    pub fn is_connected(&self) -> bool {
        self.connections.iter().all(|it| matches!(it.state, State::Open))
    }

    fn begin_connect(&mut self, at: usize) -> Result<(), Error> {
        let it = &mut self.connections[at];
        it.since = Instant::now();
        match open(it.address) {
            Ok(socket) => {
                let (data, flags) = (EventData::new_u64(at as u64), EventFlags::OUT | EventFlags::IN);
                epoll::add(&self.epoll, &socket, data, flags).map_err(failure("epoll"))?;
                it.socket = Some(socket);
                it.state = State::Connecting;
            }
            Err(error) => self.break_off(at, ErrorKind::Refused, &error.to_string()),
        }
        Ok(())
    }

    /// Ends a connection: what is owed on it has failed.
    fn break_off(&mut self, at: usize, kind: ErrorKind, what: &str) {
        let it = &mut self.connections[at];
        // Closing takes it out of the epoll set.
        it.socket = None;
        it.state = State::Broken(Instant::now() + RECONNECT_AFTER);
        let failed = it.owed.drain(..).chain(it.reconnect.take());
        self.failed.extend(failed.map(|owed| (owed.token, kind, what.to_owned())));
        it.out.clear();
        (it.sent, it.filled, it.waits_for_room) = (0, 0, false);
        self.free.retain(|&free| free as usize != at);
    }

    fn opened(&mut self, at: usize) -> Result<(), Error> {
        let it = &mut self.connections[at];
        it.state = State::Open;
        it.waits_for_room = true;
        self.watch(at, false)?;
        self.free.extend(std::iter::repeat_n(at as u32, self.pipeline));
        Ok(())
    }

    /// Says whether epoll should tell when the socket takes more.
    fn watch(&mut self, at: usize, room: bool) -> Result<(), Error> {
        let it = &mut self.connections[at];
        let Some(socket) = it.socket.as_ref().filter(|_| it.waits_for_room != room) else { return Ok(()) };
        it.waits_for_room = room;
        let flags = if room { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        epoll::modify(&self.epoll, socket, EventData::new_u64(at as u64), flags).map_err(failure("epoll"))
    }

    fn flush(&mut self, at: usize) -> Result<(), Error> {
        let it = &mut self.connections[at];
        let Some(socket) = it.socket.as_mut().filter(|_| matches!(it.state, State::Open)) else {
            return Ok(());
        };
        while it.sent < it.out.len() {
            match socket.write(&it.out[it.sent..]) {
                Ok(count) => it.sent += count,
                Err(error) if error.kind() == IoKind::Interrupted => {}
                Err(error) if error.kind() == IoKind::WouldBlock => return self.watch(at, true),
                Err(error) => {
                    self.break_off(at, ErrorKind::Disconnected, &error.to_string());
                    return Ok(());
                }
            }
        }
        it.out.clear();
        it.sent = 0;
        self.watch(at, false)
    }

    fn on_event(&mut self, at: usize, flags: EventFlags, sink: &mut dyn Sink) -> Result<(), Error> {
        if matches!(self.connections[at].state, State::Connecting) {
            return self.on_connected(at, sink);
        }
        if flags.contains(EventFlags::OUT) {
            self.flush(at)?;
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.receive(at, sink);
        }
        Ok(())
    }

    fn on_connected(&mut self, at: usize, sink: &mut dyn Sink) -> Result<(), Error> {
        let Some(socket) = &self.connections[at].socket else { return Ok(()) };
        match socket.take_error() {
            Ok(None) => {
                self.opened(at)?;
                if let Some(owed) = self.connections[at].reconnect.take() {
                    sink.answered(owed.token, Answer::Done);
                }
            }
            Ok(Some(error)) | Err(error) => self.break_off(at, ErrorKind::Refused, &error.to_string()),
        }
        Ok(())
    }

    fn receive(&mut self, at: usize, sink: &mut dyn Sink) {
        let it = &mut self.connections[at];
        let Some(socket) = &mut it.socket else { return };
        if it.filled == it.input.len() {
            let first = (INPUT_LEN * self.pipeline).min(INPUT_LEN_MAX);
            it.input.resize((2 * it.input.len()).max(first), 0);
        }
        match socket.read(&mut it.input[it.filled..]) {
            Ok(0) => return self.break_off(at, ErrorKind::Disconnected, "the server closed the connection"),
            Ok(count) => it.filled += count,
            Err(error) if matches!(error.kind(), IoKind::WouldBlock | IoKind::Interrupted) => return,
            Err(error) => return self.break_off(at, ErrorKind::Disconnected, &error.to_string()),
        }
        if let Err(what) = self.take_answers(at, sink) {
            self.break_off(at, ErrorKind::Protocol, &what);
        }
    }

    /// Takes all whole answers off a connection's input.
    fn take_answers(&mut self, at: usize, sink: &mut dyn Sink) -> Result<(), String> {
        let it = &mut self.connections[at];
        let mut begin = 0;
        let mut closing = false;
        while begin < it.filled {
            let Some(&owed) = it.owed.front() else {
                return Err("an answer that nobody asked for".to_owned());
            };
            let input = &it.input[begin..it.filled];
            let Some(len) = self.codec.frame_len(owed.asked, input)? else { break };
            if len > ANSWER_MAX {
                return Err(format!("an answer of {len} bytes"));
            }
            if len > input.len() {
                // Room for the rest at once: a large value is not read in small pieces.
                let room = begin + len;
                if room > it.input.len() {
                    it.input.resize(room, 0);
                }
                break;
            }
            let frame = &it.input[begin..begin + len];
            closing |= self.codec.closes(frame);
            match self.codec.decode(owed.asked, owed.listed, frame) {
                Decoded::Part(listed) => {
                    if let Some(front) = it.owed.front_mut() {
                        front.listed = listed;
                    }
                }
                Decoded::Answer(answer) => {
                    it.owed.pop_front();
                    self.free.push_back(at as u32);
                    sink.answered(owed.token, answer);
                }
            }
            begin += len;
        }
        it.input.copy_within(begin..it.filled, 0);
        it.filled -= begin;
        if closing {
            self.break_off(at, ErrorKind::Disconnected, "the server closed the connection");
            // It said so: no reason to wait.
            self.connections[at].state = State::Broken(Instant::now());
        }
        Ok(())
    }

    /// Gives up what has waited too long, and makes broken connections anew.
    fn look(&mut self, now: Instant) -> Result<(), Error> {
        self.looked = now;
        for at in 0..self.connections.len() {
            let it = &self.connections[at];
            match it.state {
                State::Broken(until) if until <= now => self.begin_connect(at)?,
                State::Connecting if now - it.since > self.timeout => {
                    self.break_off(at, ErrorKind::Refused, "no connection in time");
                }
                State::Open if it.owed.front().is_some_and(|owed| now - owed.sent > self.timeout) => {
                    self.break_off(at, ErrorKind::NoAnswer, "no answer in time");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn tell_failed(&mut self, sink: &mut dyn Sink) {
        for (token, kind, text) in self.failed.drain(..) {
            sink.answered(token, Answer::Failed { kind, text: &text });
        }
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let whole = Duration::from_millis(1);
        let sleep = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        let mut now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !timeout.is_zero() && timeout < whole * 20 {
            // epoll_wait counts in milliseconds; an open loop starts something every few microseconds.
            let mut set = [PollFd::new(&self.epoll, PollFlags::IN)];
            match poll(&mut set, Some(&sleep)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failure("poll")(error)),
            }
        } else {
            now = sleep;
        }
        self.events.clear();
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        match epoll::wait(&self.epoll, &mut room[..], Some(&now)) {
            Ok((ready, _)) => {
                self.events.extend(ready.iter().map(|event| (event.data.u64() as usize, event.flags)));
                Ok(())
            }
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(failure("epoll")(error)),
        }
    }
}

impl<C: Codec> Driver for Pool<C> {
    fn ready(&self) -> usize {
        self.free.len()
    }

    fn submit(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let at = self.free.pop_front().expect("whoever submits has asked whether there is room") as usize;
        let asked = match request.command {
            Command::Get => Asked::Read,
            Command::Head => Asked::Head,
            Command::Put { .. } | Command::Delete | Command::Ping | Command::Reconnect => Asked::Write,
            Command::Query(_) => Asked::Rows,
            Command::ListKeys | Command::ListBuckets => Asked::List,
        };
        let owed = Owed { token: request.token, asked, listed: 0, sent: Instant::now() };
        if matches!(request.command, Command::Reconnect) {
            if !self.connections[at].owed.is_empty() {
                // Others are under way on it: closing it would fail them.
                self.free.push_back(at as u32);
                self.failed.push((request.token, ErrorKind::Other, "the connection is in use".to_owned()));
                return Ok(());
            }
            self.break_off(at, ErrorKind::Disconnected, "");
            self.connections[at].reconnect = Some(owed);
            return self.begin_connect(at);
        }
        let it = &mut self.connections[at];
        if it.out.is_empty() {
            self.dirty.push(at as u32);
        }
        self.codec.encode(request, &mut it.out);
        it.owed.push_back(owed);
        Ok(())
    }

    fn poll(&mut self, timeout: Duration, sink: &mut dyn Sink) -> Result<(), Error> {
        let mut dirty = std::mem::take(&mut self.dirty);
        for at in dirty.drain(..) {
            self.flush(at as usize)?;
        }
        self.dirty = dirty;
        let timeout = if self.failed.is_empty() { timeout.min(LOOK_EVERY) } else { Duration::ZERO };
        self.wait(timeout)?;
        let events = std::mem::take(&mut self.events);
        for &(at, flags) in &events {
            self.on_event(at, flags, sink)?;
        }
        self.events = events;
        let now = Instant::now();
        if now - self.looked >= LOOK_EVERY {
            self.look(now)?;
        }
        self.tell_failed(sink);
        Ok(())
    }
}

impl Connection {
    fn new(address: SocketAddr, now: Instant) -> Connection {
        Connection {
            address,
            socket: None,
            state: State::Broken(now),
            owed: VecDeque::new(),
            out: Vec::new(),
            sent: 0,
            input: Vec::new(),
            filled: 0,
            waits_for_room: false,
            reconnect: None,
            since: now,
        }
    }
}

/// Begins a connection without waiting for it.
fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&address.into()) {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
            Ok(socket)
        }
        Err(error) => Err(error),
    }
}

fn failure(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Error {
    move |error| Error::Io { what: what.to_owned(), error: error.into() }
}
