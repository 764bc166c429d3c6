//! etcd's v3 API: Range, Put and DeleteRange of single keys, by gRPC over HTTP/2.
//!
//! The one driver that has a runtime: `h2` wants one. It belongs to the worker's thread and runs in [`Driver::poll`] only. A
//! *keeper*, a task for each connection, makes it, serves it until it breaks, and makes it anew after [`RECONNECT_AFTER`]; each
//! operation is a task, and a stream of its connection. Both tell the driver by one channel what came of them.
//!
//! A key is its bucket, a slash and its name. Reads are linearizable, as they are if nobody says otherwise. There are
//! no contexts in use, no index entries, and no listings.

mod call;
mod messages;

use super::pool::RECONNECT_AFTER;
use super::{Answer, Command, Driver, ErrorKind, Request, Sink};
use crate::Error;
use bytes::Bytes;
use call::{Ended, Method, Templates};
use h2::client::SendRequest;
use messages::{DeleteRangeRequest, PutRequest, RangeRequest, framed};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::{JoinHandle, yield_now};

/// What tasks have told and the driver has not heard; who tells more waits, which costs a turn.
const EVENTS_MAX: usize = 1024;

/// The runtime's own timer counts in these; shorter waits are slept through in pieces.
const TICK: Duration = Duration::from_millis(1);

/// A piece: an answer that comes while something else is due in less than [`TICK`] is seen so much later at most.
const NAP: Duration = Duration::from_micros(50);

/// Room for what the server sends unasked: of one answer, and of all on a connection.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;

enum What {
    Opened(SendRequest<Bytes>),
    Broken(String),
    /// An operation of this life of the connection.
    Ended {
        life: u64,
        token: u32,
        ended: Ended,
    },
}

struct Event {
    at: usize,
    /// Whose it is: those of a keeper that was ended mean nothing.
    keeper: u64,
    what: What,
}

struct Connection {
    address: SocketAddr,
    templates: Templates,
    keeper: u64,
    task: JoinHandle<()>,
    /// Where requests go, if it is open.
    sender: Option<SendRequest<Bytes>>,
    /// Counts how often it was opened.
    life: u64,
    under_way: usize,
    /// A reconnect that is under way as an operation.
    reconnect: Option<u32>,
}

/// Connections to members.
pub struct Etcd {
    /// Dropped before the rest: no task goes on.
    runtime: Runtime,
    connections: Vec<Connection>,
    /// Connections that take a request, those that have been idle for the longest first; each as often as it takes.
    free: VecDeque<u32>,
    pipeline: usize,
    timeout: Duration,
    events: Receiver<Event>,
    tell: Sender<Event>,
    /// Operations that were not sent.
    failed: Vec<(u32, ErrorKind, &'static str)>,
    trouble: Option<String>,
}

impl Etcd {
    /// `count` connections over the addresses, each with `pipeline` operations under way at most.
    pub fn connect(
        addresses: &[SocketAddr],
        count: usize,
        pipeline: usize,
        timeout: Duration,
    ) -> Result<Etcd, Error> {
        let failure = |error| Error::Io { what: "a runtime".to_owned(), error };
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(failure)?;
        let (tell, events) = mpsc::channel(EVENTS_MAX);
        let connect = |(at, &address): (usize, &SocketAddr)| -> Result<Connection, Error> {
            let keeper = Keeper { at, keeper: 0, address, timeout, tell: tell.clone() };
            Ok(Connection {
                address,
                templates: Templates::new(address)?,
                keeper: 0,
                task: runtime.spawn(keeper.keep()),
                sender: None,
                life: 0,
                under_way: 0,
                reconnect: None,
            })
        };
        let connections = addresses.iter().cycle().take(count).enumerate().map(connect);
        let connections = connections.collect::<Result<Vec<_>, Error>>()?;
        let (free, failed) = (VecDeque::new(), Vec::new());
        Ok(Etcd { runtime, connections, free, pipeline, timeout, events, tell, failed, trouble: None })
    }

    /// Waits for something to happen.
    fn wait(&mut self, timeout: Duration) -> Option<Event> {
        let (runtime, events) = (&self.runtime, &mut self.events);
        if timeout >= 2 * TICK {
            let next = async { tokio::time::timeout(timeout - TICK, events.recv()).await };
            return runtime.block_on(next).ok().flatten();
        }
        let until = Instant::now() + timeout;
        loop {
            // Tasks have their turn, and sockets are looked at, before this goes on.
            runtime.block_on(yield_now());
            let left = until.saturating_duration_since(Instant::now());
            match events.try_recv() {
                Ok(event) => return Some(event),
                Err(_) if left.is_zero() => return None,
                Err(_) => std::thread::sleep(left.min(NAP)),
            }
        }
    }

    fn on_event(&mut self, event: Event, sink: &mut dyn Sink) {
        let (at, it) = (event.at, &mut self.connections[event.at]);
        if event.keeper != it.keeper {
            return;
        }
        match event.what {
            What::Opened(sender) => {
                (it.sender, it.life, it.under_way) = (Some(sender), it.life + 1, 0);
                if let Some(token) = it.reconnect.take() {
                    sink.answered(token, Answer::Done);
                }
                self.free.extend(std::iter::repeat_n(at as u32, self.pipeline));
            }
            What::Broken(what) => {
                it.sender = None;
                if let Some(token) = it.reconnect.take() {
                    sink.answered(token, Answer::Failed { kind: ErrorKind::Refused, text: &what });
                }
                self.free.retain(|free| *free as usize != at);
                self.trouble = Some(format!("{}: {what}", it.address));
            }
            What::Ended { life, token, ended } => {
                if life == it.life {
                    it.under_way -= 1;
                    if it.sender.is_some() {
                        self.free.push_back(at as u32);
                    }
                }
                match ended {
                    Ended::Found(value) => {
                        let values = [0..value.len()];
                        sink.answered(token, Answer::Found { context: &[], values: &values, body: &value });
                    }
                    Ended::NotFound => sink.answered(token, Answer::NotFound),
                    Ended::Done => sink.answered(token, Answer::Done),
                    Ended::Failed(kind, text) => sink.answered(token, Answer::Failed { kind, text: &text }),
                }
            }
        }
    }

    /// Closes a connection that nothing is under way on, and opens it again.
    fn reconnect(&mut self, at: usize, token: u32) {
        let it = &mut self.connections[at];
        it.task.abort();
        (it.sender, it.reconnect, it.keeper) = (None, Some(token), it.keeper + 1);
        let (keeper, address, timeout) = (it.keeper, it.address, self.timeout);
        let keeper = Keeper { at, keeper, address, timeout, tell: self.tell.clone() };
        it.task = self.runtime.spawn(keeper.keep());
        self.free.retain(|free| *free as usize != at);
    }
}

impl Driver for Etcd {
    fn ready(&self) -> usize {
        self.free.len()
    }

    fn is_connected(&self) -> bool {
        self.connections.iter().all(|it| it.sender.is_some())
    }

    fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    fn submit(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let token = request.token;
        let at = self.free.pop_front().expect("whoever submits has asked whether there is room") as usize;
        let it = &mut self.connections[at];
        let key = || Bytes::from([request.bucket, b"/", request.key].concat());
        let (method, message) = match request.command {
            Command::Get => (Method::Get, framed(&RangeRequest { key: key(), keys_only: false })),
            Command::Head => (Method::Head, framed(&RangeRequest { key: key(), keys_only: true })),
            Command::Put { value, .. } => {
                let put = PutRequest { key: key(), value: Bytes::copy_from_slice(value) };
                (Method::Put, framed(&put))
            }
            Command::Delete { .. } => (Method::Delete, framed(&DeleteRangeRequest { key: key() })),
            Command::Ping => (Method::Status, framed(&())),
            Command::Reconnect if it.under_way == 0 => {
                self.reconnect(at, token);
                return Ok(());
            }
            refused => {
                let (kind, text) = match refused {
                    // Closing it would fail what is under way on it.
                    Command::Reconnect => (ErrorKind::Other, "the connection is in use"),
                    Command::Query(_) => (ErrorKind::Unsupported, "etcd has no index queries"),
                    _ => (ErrorKind::Unsupported, "etcd has no buckets to list"),
                };
                self.free.push_back(at as u32);
                self.failed.push((token, kind, text));
                return Ok(());
            }
        };
        let sender = it.sender.clone().expect("a connection that takes requests is open");
        it.under_way += 1;
        let (keeper, life, timeout, tell) = (it.keeper, it.life, self.timeout, self.tell.clone());
        let call = call::call(sender, it.templates.request(method), method, message);
        self.runtime.spawn(async move {
            let ended = tokio::time::timeout(timeout, call).await;
            let no_answer = |_| Ended::Failed(ErrorKind::NoAnswer, "no answer in time".to_owned());
            let what = What::Ended { life, token, ended: ended.unwrap_or_else(no_answer) };
            // Nobody listens only when the run is over.
            tell.send(Event { at, keeper, what }).await.ok();
        });
        Ok(())
    }

    fn poll(&mut self, timeout: Duration, sink: &mut dyn Sink) -> Result<(), Error> {
        let timeout = if self.failed.is_empty() { timeout } else { Duration::ZERO };
        let mut next = self.wait(timeout);
        while let Some(event) = next {
            self.on_event(event, sink);
            next = self.events.try_recv().ok();
        }
        for (token, kind, text) in self.failed.drain(..) {
            sink.answered(token, Answer::Failed { kind, text });
        }
        Ok(())
    }
}

/// Keeps a connection.
struct Keeper {
    at: usize,
    keeper: u64,
    address: SocketAddr,
    timeout: Duration,
    tell: Sender<Event>,
}

impl Keeper {
    async fn keep(self) {
        loop {
            let what = match tokio::time::timeout(self.timeout, self.open()).await {
                Ok(Ok((sender, connection))) => {
                    self.tell(What::Opened(sender)).await;
                    match connection.await {
                        Ok(()) => "the server closed the connection".to_owned(),
                        Err(error) => error.to_string(),
                    }
                }
                Ok(Err(what)) => what,
                Err(_) => "no connection in time".to_owned(),
            };
            self.tell(What::Broken(what)).await;
            tokio::time::sleep(RECONNECT_AFTER).await;
        }
    }

    async fn tell(&self, what: What) {
        // Nobody listens only when the run is over.
        self.tell.send(Event { at: self.at, keeper: self.keeper, what }).await.ok();
    }

    async fn open(&self) -> Result<(SendRequest<Bytes>, h2::client::Connection<TcpStream, Bytes>), String> {
        let socket = TcpStream::connect(self.address).await.map_err(|error| error.to_string())?;
        socket.set_nodelay(true).map_err(|error| error.to_string())?;
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
        builder.handshake(socket).await.map_err(|error| error.to_string())
    }
}
