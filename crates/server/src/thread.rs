//! A shard's thread: its runtime, its listener, its loop, its connections.

use crate::admin_socket;
use crate::common::Common;
use crate::connections::Connections;
use crate::connects::Connects;
use crate::error::Error;
use crate::http::{self, HttpDoor};
use crate::local::Local;
use crate::node_stats::StatsQuestions;
use crate::pb;
use crate::peer::{self, Arrived, Links, Peers};
use crate::stats::ThreadStats;
use crate::stream::Stream;
use backends::{Kind, Settings};
use base::{Clock, Monotonic, Spawn};
use engine::store::{Concurrency, OpenReport, Platform};
use engine::{Machine, Options};
use kv::{BucketTable, Limits};
use node::store::Routed;
use node::{Adapter, FoundBirth, Reaping, Shard, ShardConfig, ShardId, Store, Topology, layout};
use os::{DiskCounters, JobThreads, OsClock, OsDisk, OsRng};
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, LocalSet};
use tokio::time::Instant;

/// How often deadlines, idle connections and the sync interval are looked at.
const TICK: Duration = Duration::from_millis(100);

/// The same while the shard has nothing to do: what wakes a core that sleeps is most of what an idle node costs. Such ticks fall on multiples of
/// it since the runtime began. Tokio looks at a timer that is further off when the stretch of 64 ms begins that it falls in, and once more when
/// it is due: with this that is one wake-up.
const QUIET_TICK: Duration = Duration::from_millis(16 * 64);

/// How often requests that wait to be begun are looked at while nothing else happens: they are refused in time.
const WAITING_LOOK: Duration = Duration::from_millis(5);

/// How often a node that has just started looks whether it knows who is there.
const PEERS_POLL: Duration = Duration::from_millis(5);

/// How long a clean stop waits for requests under way, and for others to hear of it.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// The shard whose store keeps the bucket properties.
const KEEPER: ShardId = ShardId(0);

/// Where a shard's thread takes its clients' connections from.
pub struct Listeners {
    /// Riak's protocol buffers.
    pub pb: TcpListener,
    /// HTTP.
    pub http: TcpListener,
    /// HTTPS, if the node serves it.
    pub https: Option<TcpListener>,
    /// The local socket: of one shard, if the node has one.
    pub local: Option<UnixListener>,
}

/// How the main thread talks to a shard's.
pub struct Lines {
    /// Brings what is known of the whole node.
    pub ask: http::Ask,
    /// Questions for statistics.
    pub control: StatsQuestions,
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
    /// What it found of the store's birth; `None` of a store that has none.
    pub birth: Option<FoundBirth>,
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
    let disk = OsDisk::blocking();
    disk.keep_open(os::files_max(common.layout.shards.into()));
    let counters = disk.counters();
    let Concurrency { readers, job_threads } = common.concurrency;
    let jobs = Arc::new(JobThreads::new(job_threads, &disk, Arc::clone(&wake)).map_err(system)?);
    let spawn = Arc::clone(&jobs) as Arc<dyn Spawn>;
    let failed = |folder: PathBuf| {
        |cause| match cause {
            engine::Error::Disk(disk) if disk.kind == base::DiskErrorKind::Locked => {
                Error::Locked(common.data.clone())
            }
            cause => Error::Store { folder, cause },
        }
    };
    let opened = match common.founding.backend {
        Kind::Annulet => {
            let threaded = disk.threaded_handle(readers, wake).map_err(system)?;
            open_engine(common, id, &folder, threaded, Arc::clone(&spawn))
        }
        backend => open_other(common, id, (backend, &folder), &disk, Arc::clone(&spawn)),
    };
    let Found { mut store, table, mut report, birth } = opened.map_err(failed(folder))?;
    let mut of_types = Vec::new();
    for (bucket_type, backend) in common.founding.types.iter() {
        let folder = layout::type_dir(&common.data, id.0, bucket_type);
        let opened = open_adapter(common, (backend, &folder), &disk, Arc::clone(&spawn));
        let (adapter, found) = opened.map_err(failed(folder))?;
        // What was there before is that of kept ones; a store in memory is new each time.
        report.created &= found.created;
        of_types.push((bucket_type.to_owned(), adapter));
    }
    if !of_types.is_empty() {
        store = Routed::new(store, of_types).into();
    }
    let birth = birth.filter(|_| common.founding.is_plain());
    Ok(Opened { id, store, table, report, birth, counters, _jobs: jobs })
}

/// An open store.
struct Found {
    store: Store,
    /// The bucket properties, if it keeps them.
    table: Option<BucketTable>,
    /// What opening it has found.
    report: OpenReport,
    /// The same of its birth; `None` of another backend's store.
    birth: Option<FoundBirth>,
}

fn open_engine(
    common: &Common,
    id: ShardId,
    folder: &Path,
    disk: OsDisk,
    spawn: Arc<dyn Spawn>,
) -> Result<Found, engine::Error> {
    let mut startup = disk.blocking_handle();
    let platform = Platform {
        startup: Box::new(disk.blocking_handle()),
        disk: Box::new(disk),
        spawn,
        rng: Box::new(OsRng::new()),
        clock: Arc::new(OsClock::new()),
    };
    let metadata = common.layout.metadata_with(id.0, &common.owner);
    let options = Options { metadata, ..common.options.clone() };
    let (mut store, report) = engine::Store::open(folder, options, platform)?;
    let table = (id == KEEPER).then(|| node::read_props(&mut store, &mut startup)).transpose()?;
    let birth = Some(node::read_birth(&mut store, &mut startup)?);
    Ok(Found { store: store.into(), table, report, birth })
}

fn open_other(
    common: &Common,
    id: ShardId,
    (backend, folder): (Kind, &Path),
    disk: &OsDisk,
    spawn: Arc<dyn Spawn>,
) -> Result<Found, engine::Error> {
    let (mut adapter, report) = open_adapter(common, (backend, folder), disk, spawn)?;
    let table = (id == KEEPER).then(|| node::read_props_of(&mut adapter)).transpose()?;
    Ok(Found { store: adapter.into(), table, report, birth: None })
}

fn open_adapter(
    common: &Common,
    (backend, folder): (Kind, &Path),
    disk: &OsDisk,
    spawn: Arc<dyn Spawn>,
) -> Result<(Adapter, OpenReport), engine::Error> {
    let settings = Settings {
        durability: common.options.durability,
        cache_bytes: common.options.block_cache_bytes,
        segment_bytes: common.options.segment_bytes_target,
        memory_bytes: None,
    };
    let machine = Machine::new(disk.blocking_handles(), OsClock::new(), OsRng::new());
    let platform = (spawn, Arc::new(OsClock::new()) as Arc<dyn Clock>);
    Adapter::open(backend, folder, &settings, machine, platform)
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
        listeners: Listeners,
        lines: Lines,
    ) -> Result<(), Error> {
        let system = |cause| Error::System("cannot start a runtime", cause);
        let began = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
        let config = ShardConfig {
            id: self.id,
            layout: common.layout,
            members: Arc::clone(&common.members),
            ring: Arc::clone(&common.topology.ring),
            limits: Limits { work_bytes_max: common.memory.work_bytes_max(), ..common.memory.limits() },
            clock: Arc::new(OsClock::new()),
            rng: Box::new(OsRng::new()),
            read_form: common.read_form,
            life: common.life,
            reaping: Reaping::after(common.delete_mode),
            anti_entropy: common.anti_entropy,
            rebuilding: common.rebuilding,
            gathered: Arc::clone(&common.budgets.answers),
            slow: Arc::clone(&common.slow),
            leases: common.leases.clone(),
        };
        let folder = layout::shard_dir(&common.data, self.id.0);
        let mut shard = Shard::new(config, self.store, table);
        shard.topology(Topology::clone(&common.topology));
        let links = common.peers.as_ref().map(|_| Links::new(self.id, common.memory.link_queues()));
        let local = Local::new(
            self.id,
            common.layout,
            shard,
            Arc::clone(&common.mailboxes),
            links,
            common.membership.clone(),
        );
        let local = Rc::new(local);
        let closed = LocalSet::new().block_on(&runtime, async move {
            let (budgets, request_max) = (common.budgets.clone(), common.memory.request_max());
            let connections = Connections::new(Arc::clone(&common.connections), budgets, request_max);
            let connections = Rc::new(connections);
            let undrained = Arc::clone(&common.undrained);
            if let Some(peers) = &common.peers {
                local.links().open(&local, peers);
                let memory = Arc::clone(&common.budgets.messages);
                let receive = peer::receive(lines.arrivals, Rc::clone(&local), Arc::clone(peers), memory);
                tokio::task::spawn_local(receive);
            }
            let connects = Rc::new(Connects::default());
            let pb = Protocol::Pb(Rc::clone(&connects));
            let (http, https) = (Protocol::Http(lines.ask.clone()), Protocol::Https(lines.ask.clone()));
            let doors = [(listeners.pb, pb), (listeners.http, http)];
            let doors = doors.into_iter().chain(listeners.https.map(|listener| (listener, https)));
            let mut accepting = doors
                .map(|(listener, protocol)| accept(listener, protocol, &local, &common, &connections))
                .collect::<io::Result<Vec<AbortHandle>>>()
                .map_err(system)?;
            if let Some(listener) = listeners.local {
                let accepts = accept_local(listener, lines.ask, &local, &common, &connections);
                accepting.push(accepts.map_err(system)?);
            }
            tokio::task::spawn_local(answer_control(
                lines.control,
                Rc::clone(&local),
                self.counters,
                connects,
            ));
            let (peers, progress) = (common.peers.as_deref(), Arc::clone(&common.progress));
            let turned = || progress.turned(self.id.0);
            drive(began, (&local, peers), &connections, lines.stop, &accepting, (&undrained, &turned)).await
        })?;
        closed.map_err(|cause| Error::Store { folder, cause })
    }
}

/// When the shard is to be ticked next, in a runtime that began then.
fn next_tick_after(ticked: Instant, began: Instant, is_quiet: bool) -> Instant {
    match is_quiet {
        true => {
            let since = (ticked - began).as_nanos() % QUIET_TICK.as_nanos();
            ticked + QUIET_TICK - Duration::from_nanos(since as u64)
        }
        false => ticked + TICK,
    }
}

/// The loop: turns when woken and at the shard's deadlines, ticks, and in the end the clean stop.
async fn drive(
    began: Instant,
    (local, peers): (&Rc<Local>, Option<&Peers>),
    connections: &Rc<Connections>,
    mut stop: watch::Receiver<bool>,
    accepting: &[AbortHandle],
    (undrained, turned): (&AtomicUsize, &dyn Fn()),
) -> Result<Result<(), engine::Error>, Error> {
    let clock = OsClock::new();
    let mut ticked = Instant::now();
    // The same moment by both clocks.
    let clock_began = (clock.now(), ticked);
    let mut wake = pin!(tokio::time::sleep_until(ticked));
    local.tick(clock.now());
    let mut stopping: Option<Monotonic> = None;
    let (mut drained, mut closing) = (false, false);
    loop {
        turned();
        let tick_at = next_tick_after(ticked, began, local.is_quiet());
        let deadline = local.next_deadline().map(|deadline| clock_began.1 + deadline.since(clock_began.0));
        let due = deadline.map_or(tick_at, |deadline| deadline.min(tick_at));
        if due != wake.deadline() {
            wake.as_mut().reset(due);
        }
        tokio::select! {
            biased;
            () = local.woken() => {
                local.turn();
                if local.has_more() {
                    // Answers and what has arrived go first, or nothing would end what those that wait are waiting for.
                    tokio::task::yield_now().await;
                }
            }
            () = tokio::time::sleep(WAITING_LOOK), if local.has_waiting() => local.turn(),
            () = &mut wake => {
                let woken = Instant::now();
                if woken < tick_at {
                    local.turn();
                } else {
                    ticked = woken;
                    local.tick(clock.now());
                    connections.sweep();
                }
            }
            // A sender that is gone means the same as a stop.
            _ = stop.changed(), if stopping.is_none() => {
                accepting.iter().for_each(AbortHandle::abort);
                connections.stop();
                local.begin_stop();
                // One that was not let in, as a copy of a data folder, has nobody to answer.
                let served = peers.is_none_or(|peers| peers.may_serve());
                stopping = Some(clock.now() + if served { DRAIN_MAX } else { Duration::ZERO });
            }
        }
        if let Some(closed) = local.take_closed() {
            return Ok(closed);
        }
        let Some(until) = stopping.filter(|_| !closing) else { continue };
        if (connections.is_empty() && local.is_drained()) != drained {
            drained = !drained;
            match drained {
                true => undrained.fetch_sub(1, Ordering::AcqRel),
                false => undrained.fetch_add(1, Ordering::AcqRel),
            };
        }
        if undrained.load(Ordering::Acquire) == 0 || clock.now() >= until {
            connections.abort_all();
            closing = true;
            local.begin_close();
        }
    }
}

/// What is spoken on a port.
#[derive(Clone)]
enum Protocol {
    Pb(Rc<Connects>),
    Http(http::Ask),
    Https(http::Ask),
}

/// Begins to accept connections.
fn accept(
    listener: TcpListener,
    protocol: Protocol,
    local: &Rc<Local>,
    common: &Common,
    connections: &Rc<Connections>,
) -> io::Result<AbortHandle> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (local, common, connections) = (Rc::clone(local), common.clone(), Rc::clone(connections));
    let task = tokio::task::spawn_local(async move {
        begin_to_accept(&local, &common).await;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => welcome(stream, &protocol, &local, &common, &connections),
                Err(error) => wait_after(&error).await,
            }
        }
    });
    Ok(task.abort_handle())
}

/// Begins to accept connections by the local socket. They are not among those that the limit of the node is for: an
/// operator gets in when the node is full.
fn accept_local(
    listener: UnixListener,
    ask: http::Ask,
    local: &Rc<Local>,
    common: &Common,
    connections: &Rc<Connections>,
) -> io::Result<AbortHandle> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let (local, common, connections) = (Rc::clone(local), common.clone(), Rc::clone(connections));
    let task = tokio::task::spawn_local(async move {
        begin_to_accept(&local, &common).await;
        let permits = Arc::new(Semaphore::new(admin_socket::CONNECTIONS_MAX));
        loop {
            let permit = Arc::clone(&permits).acquire_owned().await.expect("nobody closes it");
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    wait_after(&error).await;
                    continue;
                }
            };
            match stream.peer_cred().map(|client| client.uid()) {
                Ok(uid) if admin_socket::may_administer(uid) => {}
                client => {
                    tracing::warn!(?client, "a user of this machine is refused at the local socket");
                    continue;
                }
            }
            connections.add(common.idle_timeout, |id, about, patience| {
                let (wide, local) = (wide(&common, &ask, HttpDoor::Local), Rc::clone(&local));
                let served = http::serve(Stream::local(stream), local, wide, about, patience, id);
                let served = async move {
                    served.await;
                    drop(permit);
                };
                tokio::task::spawn_local(served).abort_handle()
            });
        }
    });
    Ok(task.abort_handle())
}

/// Waits until clients may be served. They wait in the listener's queue meanwhile.
async fn begin_to_accept(local: &Local, common: &Common) {
    while !local.knows_peers() || !common.peers.as_ref().is_none_or(|peers| peers.may_serve()) {
        tokio::time::sleep(PEERS_POLL).await;
    }
    common.progress.accepts();
}

/// Too many files are open, or a client was gone before it was accepted. Waits for the next tick rather than spin.
async fn wait_after(error: &io::Error) {
    tracing::warn!(%error, "cannot accept a connection");
    tokio::time::sleep(TICK).await;
}

/// Serves a connection, or says why not.
fn welcome(
    stream: tokio::net::TcpStream,
    protocol: &Protocol,
    local: &Rc<Local>,
    common: &Common,
    connections: &Rc<Connections>,
) {
    let limit = common.connections_max;
    let is_full = common.connections.load(Ordering::Relaxed) >= limit;
    match protocol {
        Protocol::Pb(_) if is_full => pb::refuse(&stream, limit),
        // A refusal would cost a handshake.
        Protocol::Https(_) if is_full => {}
        Protocol::Http(_) if is_full => http::refuse(&stream, OsClock::new().wall().0 / 1_000_000, limit),
        Protocol::Pb(connects) => connections.add(common.idle_timeout, |id, about, patience| {
            let local = Rc::clone(local);
            let node = (Arc::clone(&common.identity), Arc::clone(&common.guard));
            let connected = connects.begin(patience.now());
            let served = pb::serve(Stream::plain(stream), local, node, about, patience, id, connected);
            tokio::task::spawn_local(served).abort_handle()
        }),
        Protocol::Http(ask) | Protocol::Https(ask) => {
            connections.add(common.idle_timeout, |id, about, patience| {
                let is_https = matches!(protocol, Protocol::Https(_));
                let wide = wide(common, ask, if is_https { HttpDoor::Https } else { HttpDoor::Http });
                let served = http::serve(Stream::plain(stream), Rc::clone(local), wide, about, patience, id);
                tokio::task::spawn_local(served).abort_handle()
            })
        }
    }
}

/// The part of the node that a door of HTTP has.
fn wide(common: &Common, ask: &http::Ask, door: HttpDoor) -> http::Wide {
    let hosts = if door == HttpDoor::Https { &common.https_hosts } else { &common.hosts };
    http::Wide {
        stats: ask.clone(),
        membership: common.membership.clone(),
        backups: Arc::clone(&common.backups),
        trees: Arc::clone(&common.trees),
        compactions: Arc::clone(&common.compactions),
        groups: Arc::clone(&common.groups),
        purges: Arc::clone(&common.purges),
        hashing: common.hashing.clone(),
        has_births: common.founding.is_plain(),
        hosts: Arc::clone(hosts),
        guard: Arc::clone(&common.guard),
        door,
        http: common.http.clone(),
        drain: Arc::clone(&common.drain),
        log: Arc::clone(&common.log),
        slow: Arc::clone(&common.slow),
        peers: common.peers.clone(),
    }
}

async fn answer_control(
    mut control: StatsQuestions,
    local: Rc<Local>,
    counters: Arc<DiskCounters>,
    connects: Rc<Connects>,
) {
    let clock = OsClock::new();
    while let Some(ask) = control.recv().await {
        let stats = ThreadStats {
            shard: local.stats(),
            times: local.times(),
            disk: counters.snapshot(),
            peers: local.peer_figures(),
            connects: connects.read(clock.now()),
        };
        // Whoever asked may have given up.
        ask.send(stats).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_ticks_fall_on_multiples_of_their_length() {
        let began = Instant::now();
        let at = |nanos| began + Duration::from_nanos(nanos);
        let tick = QUIET_TICK.as_nanos() as u64;
        for (ticked, next) in [(0, tick), (1, tick), (tick - 1, tick), (tick, 2 * tick), (tick + 1, 2 * tick)]
        {
            assert_eq!(next_tick_after(at(ticked), began, true), at(next), "{ticked}");
        }
        assert_eq!(next_tick_after(at(5), began, false), at(5) + TICK);
    }
}
