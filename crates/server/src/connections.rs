//! The connections of a thread, and how long each may wait for its client.
//!
//! A connection says when it begins to wait and for how long; the sweep, a few times a second, ends those whose time
//! is up, so that no request pays for a timer. One that reads by [`Patience::read`] is told, and may say a last word.
//! A stop of the node is told to readers, too ([`crate::connection_end`]).

use crate::connection_end::{TURN_MAX, silence_after};
use crate::memory::MemoryBudgets;
use crate::stream::Stream;
use base::{Clock, FastMap, Monotonic, Reservation};
use bytes::BytesMut;
use os::OsClock;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::task::AbortHandle;

/// How long a connection may take to say its last word.
const LAST_WORD_MAX: Duration = Duration::from_secs(5);

/// A thread takes memory for small requests that are not complete from the node's budget in steps of this: some
/// thousand connections' heads, and seldom enough to cost nothing.
const HELD_STEP_BYTES: usize = 1 << 20;

/// The connections of a thread.
pub struct Connections {
    /// Bytes of small requests that are not complete, and what is reserved for them.
    held: Cell<usize>,
    reserved: RefCell<Option<Reservation>>,
    budgets: MemoryBudgets,
    request_max: usize,
    open: RefCell<FastMap<u64, Connection>>,
    last_id: Cell<u64>,
    times: Rc<Times>,
    everywhere: Arc<AtomicUsize>,
}

/// The times of the last tick, which are exact enough and cost nothing to read.
struct Times {
    clock: OsClock,
    now: Cell<Monotonic>,
    seconds: Cell<u64>,
    /// The begin of the node's stop.
    stopping: Cell<Option<Monotonic>>,
}

struct Connection {
    patience: Patience,
    task: Option<AbortHandle>,
}

/// How long a connection waits for its client, to send or to receive.
#[derive(Clone)]
pub struct Patience(Rc<Waiting>);

struct Waiting {
    /// `None` while it does not.
    until: Cell<Option<Monotonic>>,
    is_over: Cell<bool>,
    /// Of a connection that wants to be told when its time is up.
    waker: RefCell<Option<Waker>>,
    /// It waits in [`Patience::read`].
    reads: Cell<bool>,
    idle_timeout: Duration,
    times: Rc<Times>,
}

/// What a connection holds of a small request that is not complete; a large one has memory of its own.
pub struct Held {
    about: Rc<Connections>,
    bytes: usize,
}

impl Held {
    /// Nothing.
    pub fn new(about: &Rc<Connections>) -> Held {
        Held { about: Rc::clone(about), bytes: 0 }
    }

    /// It holds so much now. Whether that may be.
    pub fn set(&mut self, bytes: usize) -> bool {
        if bytes == self.bytes {
            return true;
        }
        let all = self.about.held.get() - self.bytes + bytes;
        self.about.held.set(all);
        self.bytes = bytes;
        self.about.reserve(all) || bytes == 0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// What came of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// So many bytes; none if the client has ended its side.
    Bytes(usize),
    /// Nothing in time.
    TimedOut,
    /// Nothing until the node's stop began: the client has another time now.
    Stopping,
}

impl Patience {
    /// It waits for its client from now on, for as long as any may be idle.
    pub fn begin(&self) {
        self.begin_until(self.now() + self.0.idle_timeout);
    }

    /// It waits for its client until then; in a stop, no longer than for a turn of the client.
    pub fn begin_until(&self, until: Monotonic) {
        let until = match self.0.times.stopping.get() {
            None => until,
            Some(_) => until.min(self.0.times.clock.now() + TURN_MAX),
        };
        self.0.until.set(Some(until));
    }

    /// The client has done its part.
    pub fn end(&self) {
        self.0.until.set(None);
    }

    /// It may wait again: what it did with its last word was not to end.
    pub fn renew(&self) {
        self.0.is_over.set(false);
    }

    /// The time, as of the last tick.
    pub fn now(&self) -> Monotonic {
        self.0.times.now.get()
    }

    /// The time in seconds since 1970, as of the last tick.
    pub fn seconds(&self) -> u64 {
        self.0.times.seconds.get()
    }

    /// How long any connection may be idle.
    pub fn idle_timeout(&self) -> Duration {
        self.0.idle_timeout
    }

    /// Reads what is there, waiting for some until then.
    pub async fn read(
        &self,
        stream: &mut Stream,
        input: &mut BytesMut,
        until: Monotonic,
    ) -> io::Result<Read> {
        self.begin_until(until);
        let times = &self.0.times;
        let knew_stop = times.stopping.get().is_some();
        loop {
            let ready = poll_fn(|context| {
                if self.0.is_over.get() {
                    return Poll::Ready(Err(Read::TimedOut));
                }
                let ready = stream.poll_read_ready(context).map(Ok);
                if ready.is_pending() {
                    if !knew_stop && times.stopping.get().is_some() {
                        return Poll::Ready(Err(Read::Stopping));
                    }
                    let mut waker = self.0.waker.borrow_mut();
                    if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                        *waker = Some(context.waker().clone());
                    }
                }
                ready
            });
            self.0.reads.set(true);
            let ready = ready.await;
            self.0.reads.set(false);
            match ready {
                Ok(ready) => ready?,
                Err(ended) => return Ok(ended),
            }
            match stream.try_read_buf(input) {
                Ok(read) => {
                    self.end();
                    return Ok(Read::Bytes(read));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Connections {
    /// Reads what is there between two requests, in a stop: a silence of the client ends the wait.
    pub async fn read_in_stop(&self, stream: &mut Stream, input: &mut BytesMut) -> io::Result<Read> {
        let since = self.since_stop().expect("the node stops");
        let Some(silence) = silence_after(since) else { return Ok(Read::TimedOut) };
        loop {
            let ready = poll_fn(|context| stream.poll_read_ready(context));
            match tokio::time::timeout(silence, ready).await {
                Ok(ready) => ready?,
                Err(_) if stream.has_input() => continue,
                Err(_) => return Ok(Read::TimedOut),
            }
            match stream.try_read_buf(input) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.map(Read::Bytes),
            }
        }
    }

    /// None yet, with the node's memory, for requests of `request_max` bytes at most. `everywhere` counts those of all
    /// threads.
    pub fn new(everywhere: Arc<AtomicUsize>, budgets: MemoryBudgets, request_max: usize) -> Connections {
        let clock = OsClock::new();
        let times = Times {
            now: Cell::new(clock.now()),
            seconds: Cell::new(clock.wall().0 / MICROS),
            stopping: Cell::new(None),
            clock,
        };
        Connections {
            held: Cell::new(0),
            reserved: RefCell::default(),
            budgets,
            request_max,
            open: RefCell::default(),
            last_id: Cell::new(0),
            times: Rc::new(times),
            everywhere,
        }
    }

    /// The node's memory for large pieces.
    pub fn budgets(&self) -> &MemoryBudgets {
        &self.budgets
    }

    /// The largest request that is taken.
    pub fn request_max(&self) -> usize {
        self.request_max
    }

    /// Has so much reserved for small requests, in steps; whether it could be.
    fn reserve(&self, bytes: usize) -> bool {
        let mut reserved = self.reserved.borrow_mut();
        let has = reserved.as_ref().map_or(0, Reservation::bytes);
        if bytes <= has && has - bytes <= 2 * HELD_STEP_BYTES {
            return true;
        }
        let wanted = bytes.next_multiple_of(HELD_STEP_BYTES);
        match &mut *reserved {
            Some(reserved) => reserved.resize(wanted),
            None => {
                *reserved = self.budgets.requests.reserve(wanted);
                reserved.is_some()
            }
        }
    }

    /// Adds one, whose task `start` begins, given its number and its patience.
    pub fn add(
        self: &Rc<Self>,
        idle_timeout: Duration,
        start: impl FnOnce(u64, Rc<Connections>, Patience) -> AbortHandle,
    ) {
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        self.everywhere.fetch_add(1, Ordering::Relaxed);
        let patience = Patience(Rc::new(Waiting {
            until: Cell::new(Some(self.times.now.get() + idle_timeout)),
            is_over: Cell::new(false),
            waker: RefCell::default(),
            reads: Cell::new(false),
            idle_timeout,
            times: Rc::clone(&self.times),
        }));
        self.open.borrow_mut().insert(id, Connection { patience: patience.clone(), task: None });
        let task = start(id, Rc::clone(self), patience);
        if let Some(connection) = self.open.borrow_mut().get_mut(&id) {
            connection.task = Some(task);
        }
    }

    /// The connection has ended.
    pub fn remove(&self, id: u64) {
        if self.open.borrow_mut().remove(&id).is_some() {
            self.everywhere.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the node stops.
    pub fn stopping(&self) -> bool {
        self.times.stopping.get().is_some()
    }

    /// The time since the begin of the node's stop; `None` while it does not stop.
    fn since_stop(&self) -> Option<Duration> {
        self.times.stopping.get().map(|begun| self.times.clock.now().since(begun))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Tells readers of the stop. Others that wait for their client have [`TURN_MAX`].
    pub fn stop(&self) {
        let now = self.times.clock.now();
        self.times.stopping.set(Some(now));
        for connection in self.open.borrow().values() {
            let waiting = &connection.patience.0;
            match waiting.waker.take() {
                Some(waker) if waiting.reads.get() => waker.wake(),
                _ => waiting.until.set(waiting.until.get().map(|until| until.min(now + TURN_MAX))),
            }
        }
    }

    /// Ends all.
    pub fn abort_all(&self) {
        self.end(|_| true);
    }

    /// Ends those whose client has taken too long.
    pub fn sweep(&self) {
        let now = self.times.clock.now();
        self.times.now.set(now);
        self.times.seconds.set(self.times.clock.wall().0 / MICROS);
        self.end(|connection| {
            let waiting = &connection.patience.0;
            if waiting.until.get().is_none_or(|until| until > now) {
                return false;
            }
            let Some(waker) = waiting.waker.take() else { return true };
            waiting.is_over.set(true);
            waiting.until.set(Some(now + LAST_WORD_MAX));
            waker.wake();
            false
        });
    }

    fn end(&self, which: impl Fn(&Connection) -> bool) {
        self.open.borrow_mut().retain(|_, connection| {
            let ends = which(connection);
            if ends && let Some(task) = &connection.task {
                task.abort();
                self.everywhere.fetch_sub(1, Ordering::Relaxed);
            }
            !ends
        });
    }
}

const MICROS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryPlan;
    use std::io::Write as _;
    use tokio::net::UnixStream;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn none() -> Rc<Connections> {
        let budgets = MemoryBudgets::new(&MemoryPlan::new(1 << 30, 1, 0));
        Rc::new(Connections::new(Arc::default(), budgets, 1 << 20))
    }

    /// A client's end and ours.
    fn pair() -> (std::os::unix::net::UnixStream, Stream) {
        let (client, ours) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (client, Stream::local(UnixStream::from_std(ours).unwrap()))
    }

    /// The patience of a connection whose task does nothing.
    fn patience_of(connections: &Rc<Connections>) -> Patience {
        let mut found = None;
        connections.add(Duration::from_secs(60), |_, _, patience| {
            found = Some(patience);
            tokio::spawn(std::future::pending::<()>()).abort_handle()
        });
        found.unwrap()
    }

    #[test]
    fn a_reader_is_told_of_a_stop_and_keeps_its_connection() {
        runtime().block_on(async {
            let (connections, (_client, mut stream)) = (none(), pair());
            let patience = patience_of(&connections);
            let mut input = BytesMut::new();
            let until = patience.now() + Duration::from_secs(60);
            let read = async { patience.read(&mut stream, &mut input, until).await.unwrap() };
            let stop = async { connections.stop() };
            assert_eq!(tokio::join!(read, stop).0, Read::Stopping);
            connections.sweep();
            assert!(!connections.is_empty());
        });
    }

    #[test]
    fn in_a_stop_a_request_is_read_and_a_silence_ends_the_wait() {
        runtime().block_on(async {
            let (connections, (mut client, mut stream)) = (none(), pair());
            let mut input = BytesMut::new();
            connections.stop();
            client.write_all(b"ping").unwrap();
            let read = connections.read_in_stop(&mut stream, &mut input).await.unwrap();
            assert_eq!((read, &input[..]), (Read::Bytes(4), &b"ping"[..]));
            let read = connections.read_in_stop(&mut stream, &mut input).await.unwrap();
            assert_eq!(read, Read::TimedOut);
            drop(client);
            assert_eq!(connections.read_in_stop(&mut stream, &mut input).await.unwrap(), Read::Bytes(0));
        });
    }

    #[test]
    fn what_connections_hold_is_counted_together_and_given_back() {
        let plan = MemoryPlan { requests: 3 << 20, ..MemoryPlan::new(1 << 30, 1, 0) };
        let budgets = MemoryBudgets::new(&plan);
        let connections = Rc::new(Connections::new(Arc::default(), budgets.clone(), 1 << 20));
        let (mut one, mut other) = (Held::new(&connections), Held::new(&connections));
        assert!(one.set((3 << 20) - 1));
        assert!(other.set(1) && !other.set(2));
        assert!(other.set(0), "who holds nothing is not too much");
        assert!(!other.set(2));
        drop(one);
        assert!(other.set(3 << 20));
        assert_eq!(budgets.requests.used(), 3 << 20);
        drop(other);
        assert_eq!((connections.held.get(), budgets.requests.used()), (0, 0));
    }
}
