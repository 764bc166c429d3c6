//! Connections to servers: non-blocking sockets, requests in a pipeline, one epoll set.
//!
//! An operation costs one `send` and one `recv` at most, and its share of an `epoll_wait`. With several operations
//! under way on one connection it costs its share of these, too: what requests put into a connection's output since the
//! last poll goes out together, and one `recv` brings all answers that are there. The bytes are a [`Codec`]'s business.
//!
//! Each connection belongs to one address; addresses get as many or one more. Connections that can stand for each other
//! are a group: all of them, unless whoever has the pool knows which server must be asked ([`Pool::add_group`]). A new
//! connection is greeted first, step by step, if the protocol wants that. A connection that breaks fails what was owed
//! on it and is made anew after [`RECONNECT_AFTER`]; meanwhile there is room for fewer operations, so that a server
//! that is down costs its share of the load and not a storm of errors.

use super::transport::Transport;
use super::{Answer, Command, Driver, ErrorKind, Request, Sink};
use crate::Error;
use crate::login::ServerTls;
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
pub const RECONNECT_AFTER: Duration = Duration::from_millis(100);

/// How often time limits are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Steps of a greeting at most: a codec that goes on is at fault.
const GREETING_MAX: usize = 16;

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
    /// Something that whoever asked reads himself: the whole frame is the value.
    Frame,
    /// Something whose answer nobody waits for.
    Unheard,
}

/// What a frame came to.
pub enum Decoded<'a> {
    /// The answer.
    Answer(Answer<'a>),
    /// A part of it: more frames follow.
    Part(u64),
    /// Nothing was done, for the connection must be greeted anew: it is, when nothing is under way on it any more.
    Renew,
}

/// A protocol: requests to bytes, bytes to answers.
pub trait Codec {
    /// Appends a request. Its connection has no other of this `stream` under way.
    fn encode(&mut self, request: &Request<'_>, stream: u16, out: &mut Vec<u8>);

    /// The length of the frame at the front of `input`, as far as it can be told yet. An error ends the connection.
    fn frame_len(&self, asked: Asked, input: &[u8]) -> Result<Option<usize>, String>;

    /// What a whole frame says. `listed` is what earlier parts of it came to.
    fn decode<'a>(&'a mut self, asked: Asked, listed: u64, frame: &'a [u8]) -> Decoded<'a>;

    /// Whether the server closes the connection after this frame.
    fn closes(&self, frame: &[u8]) -> bool;

    /// Of which stream the request is that a whole frame answers; `None`: it is the oldest one.
    fn stream(&self, _frame: &[u8]) -> Option<u16> {
        None
    }

    /// Why a server cannot be asked this.
    fn refuses(&self, _command: &Command<'_>) -> Option<&'static str> {
        None
    }

    /// Appends what a new connection begins with; `false` if there is no such step, and it takes requests.
    fn greet(&self, _step: usize, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// Reads the answer to a step. An error ends the connection.
    fn greeted(&mut self, _step: usize, _frame: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// TLS that begins with the connection.
    fn tls_at_first(&self) -> Option<&ServerTls> {
        None
    }

    /// TLS that begins behind the answer to this step.
    fn tls_after(&self, _step: usize) -> Option<&ServerTls> {
        None
    }
}

#[derive(Clone, Copy)]
struct Owed {
    token: u32,
    asked: Asked,
    listed: u64,
    sent: Instant,
    /// Of an operation, which has taken room on its connection.
    stream: Option<u16>,
}

enum State {
    Connecting,
    /// At this step.
    Greeting(usize),
    Open,
    /// Until then.
    Broken(Instant),
}

struct Connection {
    address: SocketAddr,
    group: usize,
    socket: Option<Transport>,
    state: State,
    owed: VecDeque<Owed>,
    /// Streams that no request has.
    streams: Vec<u16>,
    /// Whether it takes no request any more, and is made anew when none is under way.
    is_retired: bool,
    /// Whether a request was answered on it.
    is_proven: bool,
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
    /// Of each group the connections that take a request, those that have been idle for the longest first; each as
    /// often as it takes.
    free: Vec<VecDeque<u32>>,
    /// Connections with something to send.
    dirty: Vec<u32>,
    pipeline: usize,
    timeout: Duration,
    looked: Instant,
    /// Answers that are owed by nobody any more.
    failed: Vec<(u32, ErrorKind, String)>,
    /// Why the last connection that was not made was not.
    trouble: Option<String>,
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
        let mut pool = Pool::new(codec, pipeline, timeout)?;
        pool.add_group(addresses, count)?;
        Ok(pool)
    }

    /// No connections yet.
    pub fn new(codec: C, pipeline: usize, timeout: Duration) -> Result<Pool<C>, Error> {
        Ok(Pool {
            codec,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failure("epoll"))?,
            events: Vec::with_capacity(EVENTS_MAX),
            connections: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            pipeline,
            timeout,
            looked: Instant::now(),
            failed: Vec::new(),
            trouble: None,
        })
    }

    /// `count` more connections over the addresses, as a group whose number is one higher than that of the one before.
    pub fn add_group(&mut self, addresses: &[SocketAddr], count: usize) -> Result<(), Error> {
        let (group, first) = (self.free.len(), self.connections.len());
        self.free.push(VecDeque::new());
        let addresses = addresses.iter().cycle().take(count);
        self.connections.extend(addresses.map(|&address| Connection::new(address, group, self.pipeline)));
        (first..self.connections.len()).try_for_each(|at| self.begin_connect(at))
    }

    /// How many operations a group takes.
    pub fn room(&self, group: usize) -> usize {
        self.free[group].len()
    }

    /// Asks a server of a group for something beside the operations; `false` if none of it is there.
    pub fn send(&mut self, group: usize, token: u32, asked: Asked, request: &[u8]) -> bool {
        let is_open = |it: &Connection| it.group == group && matches!(it.state, State::Open);
        let Some(at) = self.connections.iter().position(is_open) else { return false };
        self.mark_dirty(at);
        let it = &mut self.connections[at];
        it.out.extend_from_slice(request);
        it.owed.push_back(Owed { token, asked, listed: 0, sent: Instant::now(), stream: None });
        true
    }

    fn mark_dirty(&mut self, at: usize) {
        if self.connections[at].out.is_empty() {
            self.dirty.push(at as u32);
        }
    }

    fn begin_connect(&mut self, at: usize) -> Result<(), Error> {
        let it = &mut self.connections[at];
        it.since = Instant::now();
        match open(it.address) {
            Ok(socket) => {
                let (data, flags) = (EventData::new_u64(at as u64), EventFlags::OUT | EventFlags::IN);
                epoll::add(&self.epoll, &socket, data, flags).map_err(failure("epoll"))?;
                it.socket = Some(Transport::new(socket));
                it.state = State::Connecting;
            }
            Err(error) => self.break_off(at, ErrorKind::Refused, &error.to_string()),
        }
        Ok(())
    }

    /// Ends a connection: what is owed on it has failed.
    fn break_off(&mut self, at: usize, kind: ErrorKind, what: &str) {
        let it = &mut self.connections[at];
        if matches!(it.state, State::Connecting | State::Greeting(_)) && !what.is_empty() {
            self.trouble = Some(format!("{}: {what}", it.address));
        }
        // Closing takes it out of the epoll set.
        it.socket = None;
        it.state = State::Broken(Instant::now() + RECONNECT_AFTER);
        let owed = it.owed.drain(..).inspect(|owed| it.streams.extend(owed.stream));
        let failed = owed.filter(|owed| owed.asked != Asked::Unheard).chain(it.reconnect.take());
        self.failed.extend(failed.map(|owed| (owed.token, kind, what.to_owned())));
        it.out.clear();
        (it.sent, it.filled, it.waits_for_room) = (0, 0, false);
        (it.is_retired, it.is_proven) = (false, false);
        let group = it.group;
        self.free[group].retain(|&free| free as usize != at);
    }

    /// Greets a connection, or lets it take requests.
    fn greet(&mut self, at: usize, step: usize, sink: &mut dyn Sink) -> Result<(), Error> {
        let it = &mut self.connections[at];
        it.state = State::Greeting(step);
        if step < GREETING_MAX && self.codec.greet(step, &mut it.out) {
            return self.flush(at);
        }
        it.state = State::Open;
        let group = it.group;
        if let Some(owed) = it.reconnect.take() {
            sink.answered(owed.token, Answer::Done);
        }
        self.free[group].extend(std::iter::repeat_n(at as u32, self.pipeline));
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
        let takes_it = matches!(it.state, State::Open | State::Greeting(_));
        let Some(socket) = it.socket.as_mut().filter(|_| takes_it) else { return Ok(()) };
        while it.sent < it.out.len() {
            match socket.write(&it.out[it.sent..]) {
                Ok(count) => it.sent += count,
                Err(error) if error.kind() == IoKind::Interrupted => {}
                Err(error) if error.kind() == IoKind::WouldBlock => {
                    let waits = socket.waits_for_room();
                    return self.watch(at, waits);
                }
                Err(error) => {
                    self.break_off(at, ErrorKind::Disconnected, &error.to_string());
                    return Ok(());
                }
            }
        }
        let flushed = socket.flush();
        it.out.clear();
        it.sent = 0;
        match flushed {
            Ok(()) => self.watch(at, false),
            Err(error) if error.kind() == IoKind::WouldBlock => self.watch(at, true),
            Err(error) => {
                self.break_off(at, ErrorKind::Disconnected, &error.to_string());
                Ok(())
            }
        }
    }

    fn on_event(&mut self, at: usize, flags: EventFlags, sink: &mut dyn Sink) -> Result<(), Error> {
        if matches!(self.connections[at].state, State::Connecting) {
            return self.on_connected(at, sink);
        }
        if flags.contains(EventFlags::OUT) {
            self.flush(at)?;
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.receive(at, sink)?;
            // Under TLS one event may bring more than a read takes.
            while self.connections[at].socket.as_mut().is_some_and(Transport::has_plaintext) {
                self.receive(at, sink)?;
            }
            // What waited for the handshake goes out with its end.
            if !self.connections[at].out.is_empty() {
                self.flush(at)?;
            }
        }
        Ok(())
    }

    fn on_connected(&mut self, at: usize, sink: &mut dyn Sink) -> Result<(), Error> {
        let Some(socket) = &self.connections[at].socket else { return Ok(()) };
        match socket.take_error() {
            Ok(None) => {
                let it = &mut self.connections[at];
                it.waits_for_room = true;
                let secured = it.secure(self.codec.tls_at_first());
                self.watch(at, false)?;
                match secured {
                    Ok(()) => self.greet(at, 0, sink)?,
                    Err(what) => self.break_off(at, ErrorKind::Protocol, &what),
                }
            }
            Ok(Some(error)) | Err(error) => self.break_off(at, ErrorKind::Refused, &error.to_string()),
        }
        Ok(())
    }

    fn receive(&mut self, at: usize, sink: &mut dyn Sink) -> Result<(), Error> {
        let it = &mut self.connections[at];
        let Some(socket) = &mut it.socket else { return Ok(()) };
        if it.filled == it.input.len() {
            let first = (INPUT_LEN * self.pipeline).min(INPUT_LEN_MAX);
            it.input.resize((2 * it.input.len()).max(first), 0);
        }
        let ended = match socket.read(&mut it.input[it.filled..]) {
            Ok(0) => Some("the server closed the connection".to_owned()),
            Ok(count) => {
                it.filled += count;
                None
            }
            Err(error) if matches!(error.kind(), IoKind::WouldBlock | IoKind::Interrupted) => return Ok(()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(what) = ended {
            self.break_off(at, ErrorKind::Disconnected, &what);
            return Ok(());
        }
        let taken = match it.state {
            State::Greeting(step) => match self.take_greeting(at, step) {
                Ok(true) => return self.on_greeted(at, step, sink),
                taken => taken.map(|_| ()),
            },
            _ => self.take_answers(at, sink),
        };
        if let Err(what) = taken {
            self.break_off(at, ErrorKind::Protocol, &what);
        }
        Ok(())
    }

    /// Goes on behind a step of the greeting, under TLS if that begins there.
    fn on_greeted(&mut self, at: usize, step: usize, sink: &mut dyn Sink) -> Result<(), Error> {
        match self.connections[at].secure(self.codec.tls_after(step)) {
            Ok(()) => self.greet(at, step + 1, sink),
            Err(what) => {
                self.break_off(at, ErrorKind::Protocol, &what);
                Ok(())
            }
        }
    }

    /// Takes the answer to a step of the greeting; whether it is there.
    fn take_greeting(&mut self, at: usize, step: usize) -> Result<bool, String> {
        let it = &mut self.connections[at];
        let Some(len) = self.codec.frame_len(Asked::Write, &it.input[..it.filled])? else { return Ok(false) };
        if len > INPUT_LEN {
            return Err(format!("a greeting of {len} bytes"));
        }
        if len > it.filled {
            return Ok(false);
        }
        self.codec.greeted(step, &it.input[..len])?;
        if len < it.filled {
            return Err("an answer without a request".to_owned());
        }
        it.filled = 0;
        Ok(true)
    }

    /// Takes all whole answers off a connection's input.
    fn take_answers(&mut self, at: usize, sink: &mut dyn Sink) -> Result<(), String> {
        let it = &mut self.connections[at];
        let mut begin = 0;
        let mut closing = false;
        while begin < it.filled {
            let nobody = "an answer without a request";
            let oldest = it.owed.front().ok_or(nobody)?;
            let input = &it.input[begin..it.filled];
            let Some(len) = self.codec.frame_len(oldest.asked, input)? else { break };
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
            let place = match self.codec.stream(frame) {
                Some(stream) => it.owed.iter().position(|owed| owed.stream == Some(stream)).ok_or(nobody)?,
                None => 0,
            };
            begin += len;
            let owed = it.owed[place];
            let answer = match self.codec.decode(owed.asked, owed.listed, frame) {
                Decoded::Part(listed) => {
                    it.owed[place].listed = listed;
                    continue;
                }
                Decoded::Answer(answer) => {
                    it.is_proven = true;
                    answer
                }
                Decoded::Renew => {
                    it.is_retired = true;
                    self.free[it.group].retain(|&free| free as usize != at);
                    // If greeting it has not helped, it will not help again.
                    let text = "the server does not know a statement that it has just prepared";
                    if it.is_proven { Answer::Again } else { Answer::Failed { kind: ErrorKind::Other, text } }
                }
            };
            it.owed.remove(place);
            it.streams.extend(owed.stream);
            if owed.stream.is_some() && !it.is_retired {
                self.free[it.group].push_back(at as u32);
            }
            if owed.asked != Asked::Unheard {
                sink.answered(owed.token, answer);
            }
        }
        it.input.copy_within(begin..it.filled, 0);
        it.filled -= begin;
        if closing || it.is_retired && it.owed.is_empty() {
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
                State::Connecting | State::Greeting(_) if now - it.since > self.timeout => {
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

impl<C: Codec> Pool<C> {
    /// Begins an operation in a group that has room, behind a request whose answer nobody waits for unless it is empty.
    pub fn submit_to(&mut self, group: usize, before: &[u8], request: &Request<'_>) -> Result<(), Error> {
        if let Some(why) = self.codec.refuses(&request.command) {
            self.failed.push((request.token, ErrorKind::Unsupported, why.to_owned()));
            return Ok(());
        }
        let asked = match request.command {
            Command::Get => Asked::Read,
            Command::Head => Asked::Head,
            Command::Put { .. } | Command::Delete { .. } | Command::Ping | Command::Reconnect => Asked::Write,
            Command::Query(_) => Asked::Rows,
            Command::ListKeys | Command::ListBuckets => Asked::List,
        };
        let free = self.free[group].pop_front();
        let at = free.expect("whoever submits has asked whether there is room") as usize;
        let mut owed = Owed { token: request.token, asked, listed: 0, sent: Instant::now(), stream: None };
        if matches!(request.command, Command::Reconnect) {
            if !self.connections[at].owed.is_empty() {
                // Others are under way on it: closing it would fail them.
                self.free[group].push_back(at as u32);
                self.failed.push((request.token, ErrorKind::Other, "the connection is in use".to_owned()));
                return Ok(());
            }
            self.break_off(at, ErrorKind::Disconnected, "");
            self.connections[at].reconnect = Some(owed);
            return self.begin_connect(at);
        }
        self.mark_dirty(at);
        let it = &mut self.connections[at];
        if !before.is_empty() {
            it.out.extend_from_slice(before);
            it.owed.push_back(Owed { asked: Asked::Unheard, ..owed });
        }
        let stream = it.streams.pop().expect("a connection has a stream for each operation that it takes");
        self.codec.encode(request, stream, &mut it.out);
        owed.stream = Some(stream);
        it.owed.push_back(owed);
        Ok(())
    }
}

impl<C: Codec> Driver for Pool<C> {
    fn ready(&self) -> usize {
        self.room(0)
    }

    fn is_connected(&self) -> bool {
        self.connections.iter().all(|it| matches!(it.state, State::Open))
    }

    fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    fn submit(&mut self, request: &Request<'_>) -> Result<(), Error> {
        self.submit_to(0, &[], request)
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
    /// Goes on under TLS, if there is any.
    fn secure(&mut self, tls: Option<&ServerTls>) -> Result<(), String> {
        if let Some((tls, socket)) = tls.zip(self.socket.as_mut()) {
            socket.secure(tls.connection(self.address)?);
        }
        Ok(())
    }

    /// One that takes `pipeline` operations.
    fn new(address: SocketAddr, group: usize, pipeline: usize) -> Connection {
        let now = Instant::now();
        let streams = 0..u16::try_from(pipeline).expect("a workload's pipelines are far shorter");
        Connection {
            address,
            group,
            socket: None,
            state: State::Broken(now),
            owed: VecDeque::new(),
            streams: streams.rev().collect(),
            is_retired: false,
            is_proven: false,
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
