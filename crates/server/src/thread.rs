//! A shard's thread: its runtime, its listener, its loop, its connections.

use crate::error::Error;
use crate::local::Local;
use crate::mailbox::Mailboxes;
use crate::pb;
use crate::peer::{self, Arrived, Links, Peers};
use crate::stats::ThreadStats;
use base::{Clock, FastMap, Monotonic};
use engine::store::{OpenReport, Platform};
use engine::{Options, Store};
use kv::{BucketTable, Limits, ReadForm};
use node::riak::Identity;
use node::{Layout, Members, Shard, ShardConfig, ShardId, layout};
use os::{DiskCounters, JobThreads, OsClock, OsDisk, OsRng};
use ring::Ring;
use std::cell::{Cell, RefCell};
use std::net::TcpListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, LocalSet};

/// Threads of a shard that read what is not in memory: enough to keep a device's queue from running empty.
const READERS: usize = 4;

/// Threads of a shard for flushes, merges and scans.
const JOB_THREADS: usize = 1;

/// How often deadlines, idle connections and the sync interval are looked at.
const TICK: Duration = Duration::from_millis(100);

/// How often requests that wait to be begun are looked at while nothing else happens: they are refused in time.
const WAITING_LOOK: Duration = Duration::from_millis(5);

/// How often a node that has just started looks whether it knows who is there.
const PEERS_POLL: Duration = Duration::from_millis(5);

/// How long a clean stop waits for requests under way.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// What all threads are told.
#[derive(Clone)]
pub struct Common {
    /// The data folder.
    pub data: PathBuf,
    /// How it is laid out.
    pub layout: Layout,
    /// The nodes of the cluster, and which of them this is.
    pub members: Arc<Members>,
    /// Who owns what.
    pub ring: Arc<Ring>,
    /// What links to other nodes need; `None` for a node alone.
    pub peers: Option<Arc<Peers>>,
    /// What the node says of itself.
    pub identity: Arc<Identity>,
    /// How stores are opened.
    pub options: Options,
    /// How reads ask their replicas.
    pub read_form: ReadForm,
    /// Messages between threads.
    pub mailboxes: Arc<Mailboxes>,
    /// Connections that are open in all threads.
    pub connections: Arc<AtomicUsize>,
    /// How many there may be.
    pub connections_max: usize,
    /// How long one may say nothing.
    pub idle_timeout: Duration,
}

/// How the main thread talks to a shard's.
pub struct Lines {
    /// Questions for statistics.
    pub control: mpsc::Receiver<oneshot::Sender<ThreadStats>>,
    /// Connections of other nodes.
    pub arrivals: mpsc::Receiver<Arrived>,
    /// Whether to stop.
    pub stop: watch::Receiver<bool>,
}

/// An open store with its disk and threads, not yet serving.
pub struct Opened {
    id: ShardId,
    store: Store,
    table: Option<BucketTable>,
    /// What opening found.
    pub report: OpenReport,
    counters: Arc<DiskCounters>,
    // Kept until the store is closed.
    _jobs: Arc<JobThreads>,
}

/// Opens a shard's store. Blocks.
pub fn open(common: &Common, id: ShardId) -> Result<Opened, Error> {
    let folder = layout::shard_dir(&common.data, id.0);
    let system = |cause| Error::System("cannot start a thread", cause);
    let notify = Arc::clone(&common.mailboxes.of(id).wake);
    let wake: os::Wake = Arc::new(move || notify.notify_one());
    let disk = OsDisk::threaded(READERS, Arc::clone(&wake)).map_err(system)?;
    let mut startup = disk.blocking_handle();
    let counters = disk.counters();
    let jobs = Arc::new(JobThreads::new(JOB_THREADS, &disk, wake).map_err(system)?);
    let mut options = common.options.clone();
    options.metadata = common.layout.metadata_with(id.0, &common.members);
    let platform = Platform {
        disk: Box::new(disk),
        startup: Box::new(startup.blocking_handle()),
        spawn: Arc::clone(&jobs) as Arc<dyn base::Spawn>,
        rng: Box::new(OsRng::new()),
        clock: Arc::new(OsClock::new()),
    };
    let failed = |cause: engine::Error| match cause {
        engine::Error::Disk(disk) if disk.kind == base::DiskErrorKind::Locked => {
            Error::Locked(common.data.clone())
        }
        cause => Error::Store { folder: folder.clone(), cause },
    };
    let (store, report) = Store::open(&folder, options, platform).map_err(failed)?;
    let table = match id {
        ShardId(0) => Some(Shard::read_props(&store, &mut startup).map_err(failed)?),
        _ => None,
    };
    Ok(Opened { id, store, table, report, counters, _jobs: jobs })
}

impl Opened {
    /// The bucket properties, which shard 0 keeps.
    pub fn take_table(&mut self) -> Option<BucketTable> {
        self.table.take()
    }

    /// Serves until told to stop, then stops cleanly. Blocks.
    pub fn run(
        self,
        common: Common,
        table: BucketTable,
        listener: TcpListener,
        lines: Lines,
    ) -> Result<(), Error> {
        let system = |cause| Error::System("cannot start a runtime", cause);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
        let config = ShardConfig {
            id: self.id,
            layout: common.layout,
            members: Arc::clone(&common.members),
            ring: Arc::clone(&common.ring),
            limits: Limits::default(),
            clock: Arc::new(OsClock::new()),
            rng: Box::new(OsRng::new()),
            read_form: common.read_form,
        };
        let folder = layout::shard_dir(&common.data, self.id.0);
        let shard = Shard::new(config, self.store, table);
        let links = common.peers.as_ref().map(|peers| Links::new(self.id, peers));
        let local = Local::new(self.id, common.layout, shard, Arc::clone(&common.mailboxes), links);
        let local = Rc::new(local);
        let closed = LocalSet::new().block_on(&runtime, async move {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(system)?;
            let connections = Rc::new(Connections::new(Arc::clone(&common.connections)));
            let idle_timeout = common.idle_timeout;
            if let Some(peers) = &common.peers {
                local.links().open(&local, peers);
                let members = Arc::clone(&common.members);
                tokio::task::spawn_local(peer::receive(lines.arrivals, Rc::clone(&local), members));
            }
            let accept = tokio::task::spawn_local(accept(
                listener,
                Rc::clone(&local),
                common,
                Rc::clone(&connections),
            ));
            tokio::task::spawn_local(answer_control(lines.control, Rc::clone(&local), self.counters));
            drive(&local, &connections, idle_timeout, lines.stop, accept.abort_handle()).await
        })?;
        closed.map_err(|cause| Error::Store { folder, cause })
    }
}

/// The loop: turns when woken, ticks, and in the end the clean stop.
async fn drive(
    local: &Rc<Local>,
    connections: &Rc<Connections>,
    idle_timeout: Duration,
    mut stop: watch::Receiver<bool>,
    accept: AbortHandle,
) -> Result<Result<(), engine::Error>, Error> {
    let clock = OsClock::new();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut stopping: Option<Monotonic> = None;
    let mut closing = false;
    loop {
        tokio::select! {
            biased;
            () = local.woken() => {
                local.turn();
                if local.can_begin() {
                    // Answers and what has arrived go first, or nothing would end what those that wait are waiting for.
                    tokio::task::yield_now().await;
                }
            }
            () = tokio::time::sleep(WAITING_LOOK), if local.has_waiting() => local.turn(),
            _ = ticks.tick() => {
                let now = clock.now();
                local.tick(now);
                connections.sweep(now, idle_timeout);
            }
            // A sender that is gone means the same as a stop.
            _ = stop.changed(), if stopping.is_none() => {
                accept.abort();
                connections.stop();
                stopping = Some(clock.now() + DRAIN_MAX);
            }
        }
        if let Some(closed) = local.take_closed() {
            return Ok(closed);
        }
        if let Some(until) = stopping
            && !closing
            && (connections.is_empty() || clock.now() >= until)
        {
            connections.abort_all();
            closing = true;
            local.begin_close();
        }
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    local: Rc<Local>,
    common: Common,
    connections: Rc<Connections>,
) {
    // Clients wait in the listener's queue meanwhile.
    while !local.knows_peers() {
        tokio::time::sleep(PEERS_POLL).await;
    }
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if common.connections.load(Ordering::Relaxed) >= common.connections_max {
                    refuse(stream, common.connections_max);
                    continue;
                }
                let (local, identity) = (Rc::clone(&local), Arc::clone(&common.identity));
                connections.add(|id, about, idle| {
                    tokio::task::spawn_local(pb::serve(stream, local, identity, about, idle, id))
                        .abort_handle()
                });
            }
            // Too many open files, or a client that was gone before it was accepted. Wait for the next tick
            // rather than spin.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(TICK).await;
            }
        }
    }
}

/// Tells the client why, if that fits into the socket's buffer, and closes.
fn refuse(stream: tokio::net::TcpStream, limit: usize) {
    let mut out = Vec::new();
    protocol::response::error(&mut out, &format!("too many connections: the limit is {limit}"));
    if stream.try_write(&out).is_err() {
        tracing::debug!("a refused client does not listen");
    }
}

async fn answer_control(
    mut control: mpsc::Receiver<oneshot::Sender<ThreadStats>>,
    local: Rc<Local>,
    counters: Arc<DiskCounters>,
) {
    while let Some(ask) = control.recv().await {
        let stats =
            ThreadStats { shard: local.stats(), disk: counters.snapshot(), peers: local.peer_figures() };
        // Whoever asked may have given up.
        ask.send(stats).ok();
    }
}

/// The connections of a thread.
pub struct Connections {
    open: RefCell<FastMap<u64, Connection>>,
    last_id: Cell<u64>,
    stopping: Cell<bool>,
    /// The time of the last tick, which is exact enough for idle times and costs nothing to read.
    now: Rc<Cell<Monotonic>>,
    everywhere: Arc<AtomicUsize>,
}

struct Connection {
    idle: Idle,
    task: Option<AbortHandle>,
}

/// Since when a connection has waited for its client, to send or to receive. `None` while it does not.
#[derive(Clone)]
pub struct Idle {
    since: Rc<Cell<Option<Monotonic>>>,
    now: Rc<Cell<Monotonic>>,
}

impl Idle {
    /// It waits for its client from now on.
    pub fn begin(&self) {
        self.since.set(Some(self.now.get()));
    }

    /// The client has done its part.
    pub fn end(&self) {
        self.since.set(None);
    }
}

impl Connections {
    fn new(everywhere: Arc<AtomicUsize>) -> Connections {
        Connections {
            open: RefCell::default(),
            last_id: Cell::new(0),
            stopping: Cell::new(false),
            now: Rc::new(Cell::new(OsClock::new().now())),
            everywhere,
        }
    }

    fn add(self: &Rc<Self>, start: impl FnOnce(u64, Rc<Connections>, Idle) -> AbortHandle) {
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        self.everywhere.fetch_add(1, Ordering::Relaxed);
        let since = Rc::new(Cell::new(Some(self.now.get())));
        let idle = Idle { since, now: Rc::clone(&self.now) };
        self.open.borrow_mut().insert(id, Connection { idle: idle.clone(), task: None });
        let task = start(id, Rc::clone(self), idle);
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

    /// Whether connections are to end when their request is answered.
    pub fn stopping(&self) -> bool {
        self.stopping.get()
    }

    fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Ends those that wait for their client, and has the others end after their answer.
    fn stop(&self) {
        self.stopping.set(true);
        self.end(|connection| connection.idle.since.get().is_some());
    }

    fn abort_all(&self) {
        self.end(|_| true);
    }

    /// Ends those whose client has neither sent nor taken anything for too long.
    fn sweep(&self, now: Monotonic, idle_timeout: Duration) {
        self.now.set(now);
        self.end(|connection| {
            connection.idle.since.get().is_some_and(|since| now.since(since) >= idle_timeout)
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
