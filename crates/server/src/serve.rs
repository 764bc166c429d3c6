//! Start and stop of a node.
//!
//! 1. Find the layout, or choose one. 2. Listen, so that a port in use is known before a store is touched.
//! 3. Find out which node of which cluster this is, or become one. 4. Open all stores, each on its thread. 5. Hand shard 0's
//!    bucket properties to all, and begin to take part in the cluster. 6. Serve until SIGTERM or SIGINT; SIGHUP
//!    reads certificates again. 7. Answer what is under way, close connections, stop the stores cleanly.

use crate::admin_socket::{self, AdminSocketFile};
use crate::backup::Backups;
use crate::client_ports::{self, ClientAddresses, ClientPorts};
use crate::compact::Compactions;
use crate::config::{Cluster, Config, SETTINGS, Size};
use crate::drain::Drain;
use crate::error::Error;
use crate::groups::NodeGroups;
use crate::health;
use crate::http;
use crate::levels::LogLevels;
use crate::listen::{bound, listen};
use crate::machine;
use crate::mailbox::Mailboxes;
use crate::membership::{self, End, Entering, Part};
use crate::memory::{MEMORY_MIN, MemoryBudgets, MemoryLimit, MemoryPlan, SHARD_MEMORY_MIN, memory_limit};
use crate::peer::{self, Arrived, Doors, Peers, Tls};
use crate::progress::{Progress, Stage};
use crate::security::{DoorGuard, Hashing, Policies, reload};
use crate::stats::{Stats, ThreadStats};
use crate::system::DiskSpace;
use crate::thread::{self, Common, Lines, Listeners};
use crate::trees::NodeTrees;
use base::Rng;
use engine::store::{OpenReport, Resources};
use engine::{Durability, Options};
use kv::BucketTable;
use node::layout::Owner;
use node::riak::{Identity, RIAK_VERSION};
use node::store::TypeBackends;
use node::store::founding::{self, Founding};
use node::{FoundBirth, GROUPS, INDEXING, Layout, LeaseConfig, ShardId, SlowRequests, layout};
use os::{OsClock, OsDisk, OsRng};
use ring::{MemberState, RingSize};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc as std_mpsc;
use std::time::Instant;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

/// Questions for statistics that wait at a shard's thread.
const CONTROL_QUEUE_MAX: usize = 64;

/// Connections of other nodes that wait at a shard's thread: it takes them at once, between two turns.
const ARRIVALS_MAX: usize = 16;

/// Connections that a node takes however little memory it has.
const CONNECTIONS_MIN: usize = 64;

/// What is known once a node serves.
#[derive(Clone, Debug)]
pub struct Started {
    /// Where Riak's protocol buffers are served.
    pub pb: SocketAddr,
    /// Where HTTP is served.
    pub http: SocketAddr,
    /// Where HTTPS is served, if it is.
    pub https: Option<SocketAddr>,
    /// Where this node listens to the others; `None` for a node alone.
    pub peers: Option<SocketAddr>,
    /// How many members the cluster has, as far as this one has heard.
    pub members: usize,
    /// Whether this one waits for a plan that gives it something.
    pub is_joining: bool,
    /// The data folder.
    pub data: PathBuf,
    /// How it is laid out.
    pub layout: Layout,
    /// How much memory it may use, and what says so.
    pub memory: MemoryLimit,
    /// The largest value that it has memory for.
    pub value_bytes_max: u64,
    /// What its stores are.
    pub founding: Founding,
    /// What opening each shard's store found.
    pub reports: Vec<OpenReport>,
}

/// Runs a node until it is told to stop, and notes its progress. Blocks. `on_started` is called once its stores
/// are open.
pub fn serve(
    mut config: Config,
    (progress, log): (&Arc<Progress>, Arc<dyn LogLevels>),
    on_started: impl FnOnce(&Started),
) -> Result<(), Error> {
    if let Some(what) = os::dangling_link(&config.data) {
        return Err(Error::Options("data", what));
    }
    let cluster = config.cluster().map_err(|(name, what)| Error::Options(name, what))?;
    let tls = cluster.as_ref().map(|it| Tls::load(&it.ca, &it.cert, &it.key, &config.name)).transpose()?;
    let policies = Arc::new(Policies::new());
    let guard = client_ports::guard(&config, cluster.as_ref(), &policies)?;
    let founding = find_founding(&config)?;
    config.backend = Some(founding.backend);
    config.type_backends = Some(founding.types.clone());
    if let Some(backend) = founding.other_backend()
        && config.anti_entropy.take().is_some()
    {
        tracing::info!("anti-entropy is off: the backend {backend} has no snapshots for hash trees");
    }
    let (mut layout, owner) = find_layout(&config)?;
    let (clients, mut listeners) = ClientPorts::open(&mut config, layout.shards.into())?;
    let (peers, address_of_peers) = match &cluster {
        Some(it) => {
            let listener = listen(it.listen_option, &it.listen, 1)?.remove(0);
            let address = bound(it.listen_option, &it.listen, &listener)?;
            (Some(listener), Some(address))
        }
        None => (None, None),
    };
    let (membership, inbox) = membership::queue(layout.shards);
    let entering = Entering { config: &config, owner: owner.as_ref(), layout };
    let entered = match (&cluster, &tls, address_of_peers) {
        (Some(cluster), Some(tls), Some(here)) => entering.member(cluster, here, tls)?,
        _ => entering.alone()?,
    };
    if owner.is_none() {
        // A newcomer orders its keys as the cluster does.
        let state = &entered.standing.state;
        (layout.ring_size, layout.prefixes) = (state.size(), state.prefixes());
    }
    let (is_new, owner) = (owner.is_none(), owner.unwrap_or_else(|| entered.owner()));
    // 0 is for no process in particular.
    let life = OsRng::new().next_u64().max(1);
    let part = Part::open(entered, &config.data, life, &membership, &policies)?;
    if let Some(cluster) = &cluster {
        tell_differences(cluster, &part);
    }
    if is_new && !founding.is_plain() {
        let metadata = layout.metadata_with(0, &owner);
        founding::write(&mut OsDisk::blocking(), &config.data, &founding, &metadata)
            .map_err(|cause| Error::Store { folder: config.data.clone(), cause })?;
    }
    // The policy of the cluster's log is known from here on, and no client is served yet.
    clients.check_exposure(policies.current().settings().mode, config.insecure)?;
    // The folder's lock is held from here on.
    let (admin_socket, admin_file) = listen_locally(&config).unzip();
    let listener_count = usize::from(layout.shards) * clients.addresses().count();
    progress.expect(layout.shards, listener_count + usize::from(admin_socket.is_some()));
    listeners[0].local = admin_socket;
    let memory = memory_limit(config.memory.map(|size| size.0));
    let addresses = Addresses { clients: clients.addresses(), peers: address_of_peers };
    let log_of_cluster = membership.clone();
    guard.rehash_by(Box::new(move |command| log_of_cluster.propose_policy(command)));
    let outside = (clients, Arc::clone(progress), log, Arc::new(guard));
    let common = common(&config, (layout, founding), owner, (&part, tls), (membership, &memory), outside)?;
    let (stop, stopped) = watch::channel(false);
    let threads = Vec::new();
    let mut node = Node { addresses, common, memory, doors: None, peers, threads, admin_file, part, inbox };
    node.doors = node.common.peers.as_ref().map(|peers| Arc::new(Doors::new(Arc::clone(peers))));
    let (controls, asked): (Vec<_>, Vec<_>) =
        (0..layout.shards).map(|_| mpsc::channel(CONTROL_QUEUE_MAX)).unzip();
    let ask = ask_all(&node.common, controls, node.doors.clone());
    if let Some(peers) = &node.common.peers {
        peers.hold_links();
    }
    let mut joins = Vec::new();
    for (shard, (listeners, control)) in listeners.into_iter().zip(asked).enumerate() {
        let id = ShardId(u16::try_from(shard).expect("a node has fewer shards than that"));
        let (arrive, arrivals) = mpsc::channel(ARRIVALS_MAX);
        let lines = Lines { ask: ask.clone(), control, arrivals, stop: stopped.clone() };
        let (join, thread) = start(&node.common, id, listeners, lines, arrive)?;
        joins.push(join);
        node.threads.push(thread);
    }
    let result = node.run(on_started);
    // Every thread stops when this is gone, also one that has not begun to serve.
    drop(stop);
    let mut closed = Ok(());
    for join in joins {
        closed = closed.and(join.join().expect("a shard's thread aborts the process rather than panic"));
    }
    result.and(closed)
}

/// What a shard's thread tells when its store is open.
struct Told {
    report: OpenReport,
    /// Of the store's birth; `None` of a store that has none.
    birth: Option<FoundBirth>,
    /// The bucket properties, of shard 0.
    table: Option<BucketTable>,
}

/// What the main thread has of a shard's.
struct Thread {
    /// What opening its store found.
    told: std_mpsc::Receiver<Result<Told, Error>>,
    /// The bucket properties, which it waits for.
    give_table: std_mpsc::Sender<BucketTable>,
    /// Connections of other nodes.
    arrive: mpsc::Sender<Arrived>,
}

type Join = std::thread::JoinHandle<Result<(), Error>>;

/// Starts a shard's thread, which opens its store, tells what it found, and serves when it is given the table.
fn start(
    common: &Common,
    id: ShardId,
    listeners: Listeners,
    lines: Lines,
    arrive: mpsc::Sender<Arrived>,
) -> Result<(Join, Thread), Error> {
    let (tell, told) = std_mpsc::channel();
    let (give_table, given_table) = std_mpsc::channel();
    let common = common.clone();
    let body = move || {
        let mut opened = match thread::open(&common, id) {
            Ok(opened) => opened,
            Err(error) => {
                tell.send(Err(error)).ok();
                return Ok(());
            }
        };
        let (report, birth, table) = (opened.report.clone(), opened.birth, opened.take_table());
        tell.send(Ok(Told { report, birth, table })).ok();
        // Without a table another shard has failed, and this one was not used.
        let Ok(table) = given_table.recv() else { return Ok(()) };
        opened.run(common, table, listeners, lines)
    };
    let name = format!("annulet-shard-{}", id.0);
    let system = |cause| Error::System("cannot start a thread", cause);
    let join = std::thread::Builder::new().name(name).spawn(body).map_err(system)?;
    Ok((join, Thread { told, give_table, arrive }))
}

/// A node, as its main thread sees it.
struct Node {
    common: Common,
    memory: MemoryLimit,
    addresses: Addresses,
    doors: Option<Arc<Doors>>,
    peers: Option<TcpListener>,
    threads: Vec<Thread>,
    /// The file of the local socket. It goes before the data folder's lock, which is with `part`.
    admin_file: Option<AdminSocketFile>,
    /// What agrees with the other nodes, on a thread that starts when the stores are open.
    part: Part,
    inbox: membership::Inbox,
}

/// Where it listens.
struct Addresses {
    clients: ClientAddresses,
    peers: Option<SocketAddr>,
}

impl Node {
    fn run(mut self, on_started: impl FnOnce(&Started)) -> Result<(), Error> {
        let system = |cause| Error::System("cannot start a runtime", cause);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
        let _entered = runtime.enter();
        let handler = |kind| signal(kind).map_err(|cause| Error::System("cannot handle signals", cause));
        let (mut terminate, mut interrupt) =
            (handler(SignalKind::terminate())?, handler(SignalKind::interrupt())?);
        let mut hang_up = handler(SignalKind::hangup())?;
        let (reports, births) = self.share_table()?;
        let ring_bits = u8::try_from(self.common.layout.ring_size.bits()).expect("a prefix has 16 bits");
        self.part.set_births(births, ring_bits);
        let Node { common, memory, addresses, doors, peers, threads, admin_file, part, inbox } = self;
        let (end, mut ended) = mpsc::channel(1);
        let members = part.state().members();
        let (count, state) = (members.len(), members[&part.node()].member.state);
        let membership = start_membership(&common, part, inbox, end)?;
        tell_memory(&memory, &common);
        common.progress.reach(Stage::Waiting);
        on_started(&Started {
            pb: addresses.clients.pb,
            http: addresses.clients.http,
            https: addresses.clients.https,
            peers: addresses.peers,
            members: count,
            is_joining: state == MemberState::Joining,
            data: common.data.clone(),
            layout: common.layout,
            memory,
            value_bytes_max: common.memory.value_max,
            founding: common.founding.clone(),
            reports,
        });
        let arrivals = threads.into_iter().map(|thread| thread.arrive).collect();
        let result = runtime.block_on(async {
            if let Some(peers) = &common.peers {
                tokio::spawn(peer::ask_first(Arc::clone(peers)));
            }
            if let (Some(listener), Some(doors)) = (peers, doors) {
                let listener = tokio::net::TcpListener::from_std(listener).map_err(system)?;
                tokio::spawn(peer::serve(listener, doors, arrivals));
            }
            let guard = Arc::clone(&common.guard);
            tokio::spawn(async move { tokio::join!(guard.audit().tell_suppressed(), guard.usage().tell_refused()) });
            let reloads = reload_at(&mut hang_up, &common);
            tokio::select! {
                () = reloads => {}
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                Some(end) = ended.recv() => match end {
                    End::Lost(why) => return Err(Error::Membership(why)),
                    End::Left => tracing::info!("this node has left its cluster: its data folder can be deleted"),
                },
            }
            common.progress.reach(Stage::Stopping);
            let wait = common.drain.begin(Instant::now());
            if !wait.is_zero() {
                tracing::info!("not ready any more; clients are served for {wait:?}, or until another signal");
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            }
            tracing::info!("stopping");
            Ok(())
        });
        // The lock of the data folder goes with the membership.
        drop(admin_file);
        common.membership.stop();
        membership.join().expect("a thread aborts the process rather than panic");
        result
    }

    /// Waits until all stores are open, and gives every thread the bucket properties. Births are told of all stores, or
    /// of none.
    fn share_table(&self) -> Result<(Vec<OpenReport>, Vec<FoundBirth>), Error> {
        let (mut reports, mut births) = (Vec::new(), Vec::new());
        let mut table = None;
        for thread in &self.threads {
            let told = thread.told.recv().expect("a thread tells before it ends")?;
            reports.push(told.report);
            births.extend(told.birth);
            table = table.or(told.table);
        }
        let table = table.expect("shard 0 has told its table");
        for thread in &self.threads {
            thread.give_table.send(table.clone()).expect("a thread waits for its table");
        }
        Ok((reports, births))
    }
}

/// Listens at the local socket. A node without it serves its clients all the same.
fn listen_locally(config: &Config) -> Option<(UnixListener, AdminSocketFile)> {
    let listening = admin_socket::listen(&config.data);
    let failed = |error: &io::Error| {
        tracing::warn!(%error, "no local socket: `annulet admin --data` does not reach this node");
    };
    listening.inspect_err(failed).ok()
}

/// Reads certificates again at each SIGHUP, until it is dropped. A signal that comes meanwhile has one more reload.
async fn reload_at(hang_up: &mut Signal, common: &Common) {
    while hang_up.recv().await.is_some() {
        // The outcome is in the log.
        reload(Arc::clone(&common.guard), common.peers.clone()).await.ok();
    }
    std::future::pending().await
}

/// Starts the thread that takes part in the cluster; it tells when it cannot go on.
fn start_membership(
    common: &Common,
    part: Part,
    inbox: membership::Inbox,
    ended: mpsc::Sender<End>,
) -> Result<std::thread::JoinHandle<()>, Error> {
    let (mailboxes, peers) = (Arc::clone(&common.mailboxes), common.peers.clone());
    let body = move || {
        if let Err(end) = part.run(&inbox, &mailboxes, peers.as_deref()) {
            // Nobody listens while the node stops anyway.
            ended.try_send(end).ok();
        }
    };
    let thread = std::thread::Builder::new().name("annulet-membership".to_owned());
    thread.spawn(body).map_err(|cause| Error::System("cannot start a thread", cause))
}

fn ask_all(
    common: &Common,
    controls: Vec<mpsc::Sender<oneshot::Sender<ThreadStats>>>,
    doors: Option<Arc<Doors>>,
) -> http::Ask {
    let common = common.clone();
    let controls = Arc::new(controls);
    Arc::new(move || {
        let (common, controls, doors) = (common.clone(), Arc::clone(&controls), doors.clone());
        Box::pin(async move {
            let mut threads = Vec::new();
            for control in controls.iter() {
                let (tell, told) = oneshot::channel();
                if control.send(tell).await.is_ok()
                    && let Ok(stats) = told.await
                {
                    threads.push(stats);
                }
            }
            let identity = &common.identity;
            let connections = common.connections.load(Ordering::Relaxed);
            let partitions = common.layout.ring_size.partitions();
            let stats =
                Stats::of(&identity.node, env!("CARGO_PKG_VERSION"), partitions, connections, &threads);
            let stats = stats.with_backends(&common.founding);
            let roster = common.peers.as_ref().map(|peers| peers.roster());
            let members = roster.as_ref().map_or(&common.members, |roster| roster.members());
            let names = members.all().map(|node| (node, &**members.name(node)));
            let stats = stats.with_peers(names, &threads, doors.map_or(0, |doors| doors.refused()));
            let stats = stats.with_reach(&common.membership.reach().unwrap_or_default());
            let certificates = common.peers.as_ref().map(|peers| peers.expiry()).unwrap_or_default();
            let state = health::state(&common.membership, &common.drain, certificates);
            let stats =
                stats.with_health(health::is_ready(&state), DiskSpace::of(&common.data), certificates);
            let stats = stats.with_purges(common.purges.figures()).with_doors(common.guard.figures());
            let stats = stats.with_options(&common.told);
            stats.with_memory(common.memory.limit, &common.budgets)
        })
    })
}

/// Says what rules the node's memory, and where that is little.
fn tell_memory(memory: &MemoryLimit, common: &Common) {
    let (plan, mib) = (&common.memory, |bytes: u64| bytes >> 20);
    tracing::info!(
        "memory: {} MiB ({}); values up to {} MiB",
        mib(plan.limit),
        memory.source,
        mib(plan.value_max)
    );
    if plan.limit < MEMORY_MIN {
        tracing::warn!("the memory is below {} MiB: the node may need more than that", mib(MEMORY_MIN));
    } else if plan.sum() > plan.limit {
        tracing::warn!(
            "{} shards need {} MiB: the node may need more memory than it has",
            common.layout.shards,
            mib(plan.sum())
        );
    }
}

/// Says where the configuration is not what counts.
fn tell_differences(cluster: &Cluster, part: &Part) {
    let state = part.state();
    let asked = cluster.members.iter().map(|member| &*member.name);
    let has = state.members().values().map(|record| &*record.member.name);
    if !cluster.members.is_empty() && !has.clone().eq(asked) {
        let names: Vec<&str> = has.collect();
        tracing::info!(
            "the members are {}: the option cluster only lists the founding nodes",
            names.join(", ")
        );
    }
}

/// Parts of a node that are not of its data: its ports for clients, its progress, its log, and the guard of its doors.
type Outside = (ClientPorts, Arc<Progress>, Arc<dyn LogLevels>, Arc<DoorGuard>);

fn common(
    config: &Config,
    (layout, founding): (Layout, Founding),
    owner: Owner,
    (part, tls): (&Part, Option<Tls>),
    (membership, memory): (membership::Handle, &MemoryLimit),
    (clients, progress, log, guard): Outside,
) -> Result<Common, Error> {
    let removed = || Error::Membership(::membership::Stop::Removed.to_string());
    let roster = part.roster().ok_or_else(removed)?;
    let members = Arc::clone(roster.members());
    let identity = part.identity();
    let life = identity.start;
    let leases =
        LeaseConfig::starting(part.node(), life, layout.shards, config.strong_reads, &OsClock::new());
    let listed = config.cluster.clone();
    let peers = tls.map(|tls| Arc::new(Peers::new(tls, identity, roster, listed, membership.clone())));
    let topology =
        membership::topology(part.node(), part.state(), part.state().published()).ok_or_else(removed)?;
    let resources = machine::resources(memory.bytes, layout.shards);
    let mut options = options(config, &resources);
    let stores = machine::stores_bytes(&options, layout.shards);
    let memory = MemoryPlan::new(memory.bytes, layout.shards, stores);
    let budgets = MemoryBudgets::new(&memory);
    options.journal_queue_bytes_max = memory.journal_queue();
    options.journal_budget = Some(Arc::clone(&budgets.records));
    options.value_budget = Some(Arc::clone(&budgets.values));
    let mailboxes = Arc::new(Mailboxes::new(layout.shards));
    let cluster = match &owner {
        Owner::Alone => None,
        Owner::Founder(_) | Owner::Member { .. } => Some(part.state().cluster().to_string()),
    };
    let backups = Backups::new(
        (config.data.clone(), config.backup_root()),
        (config.name.clone(), cluster),
        (layout.shards, options.reserve_bytes.saturating_mul(layout.shards.into())),
        Arc::clone(&mailboxes),
    );
    let compactions = Compactions::new(layout.shards, Arc::clone(&mailboxes));
    let groups = NodeGroups::new(layout.shards, Arc::clone(&mailboxes));
    let trees = NodeTrees::new(layout.shards, Arc::clone(&mailboxes), config.tree_rebuild_check);
    let identity = Identity { node: config.name.clone(), version: RIAK_VERSION.to_owned() };
    Ok(Common {
        data: config.data.clone(),
        layout,
        owner: Arc::new(owner),
        members,
        topology: Arc::new(topology),
        peers,
        identity: Arc::new(identity),
        told: Arc::new(told(config, layout, &options)),
        founding,
        options,
        budgets,
        concurrency: resources.concurrency(),
        read_form: config.read_form,
        life,
        leases,
        delete_mode: config.delete_mode,
        anti_entropy: config.anti_entropy,
        rebuilding: config.rebuilding(),
        trees: Arc::new(trees),
        compactions: Arc::new(compactions),
        groups: Arc::new(groups),
        mailboxes,
        membership,
        backups: Arc::new(backups),
        purges: Arc::default(),
        hashing: Hashing::new(),
        progress,
        hosts: Arc::new(clients.http_names),
        https_hosts: Arc::new(clients.https_names),
        guard,
        http: config.http_listen.clone(),
        drain: Arc::new(Drain::new(config.drain_wait)),
        log,
        slow: SlowRequests::new(config.slow, config.slow_keys),
        connections: Arc::new(AtomicUsize::new(0)),
        connections_max: config.connections_max.min(memory.connections_max().max(CONNECTIONS_MIN)),
        memory,
        idle_timeout: config.idle_timeout,
        undrained: Arc::new(AtomicUsize::new(layout.shards.into())),
    })
}

/// How each shard's store is opened: as fits the machine, but for what was said.
fn options(config: &Config, resources: &Resources) -> Options {
    let fit = resources.options();
    let said = |size: Option<Size>| size.map(|Size(bytes)| usize::try_from(bytes).unwrap_or(usize::MAX));
    Options {
        durability: config.durability,
        sync_interval: config.sync_interval,
        compression: config.compression,
        compress_at: config.compress_at,
        zstd_level: config.zstd_level,
        memtable_bytes_max: said(config.memtable).unwrap_or(fit.memtable_bytes_max),
        block_cache_bytes: said(config.block_cache).unwrap_or(fit.block_cache_bytes),
        reserve_bytes: config.disk_reserve.map_or(fit.reserve_bytes, |size| size.0),
        scrub_period: config.scrub_period,
        waste_retention: config.waste_retention,
        space_target_percent: config.space_target,
        indexing: Some(INDEXING),
        groups: Some(GROUPS),
        space_target_idle_percent: fit.space_target_idle_percent.min(config.space_target),
        ..fit
    }
}

/// Every option in force, as text: those of the node by their names, and under `engine` those of its stores.
fn told(config: &Config, layout: Layout, engine: &Options) -> BTreeMap<String, String> {
    let own = SETTINGS.iter().map(|setting| (setting.name.to_owned(), setting.show(config)));
    let fixed = [
        ("ring_size", layout.ring_size.partitions().to_string()),
        ("shards", layout.shards.to_string()),
        ("engine", format!("{engine:?}")),
    ];
    own.chain(fixed.map(|(name, value)| (name.to_owned(), value))).collect()
}

/// What the stores of the data that is there are, or those of the data to be made.
fn find_founding(config: &Config) -> Result<Founding, Error> {
    let failed = |cause| Error::Store { folder: config.data.clone(), cause };
    let found = layout::read_founding(&mut OsDisk::blocking(), &config.data).map_err(failed)?;
    let (asked_backend, asked_types) = (config.backend, config.type_backends.as_ref());
    let founding = match found {
        Some(has) => {
            if let Some(asked) = asked_backend.filter(|&asked| asked != has.backend) {
                return Err(differs(config, "backend", &has.backend.name(), &asked.name()));
            }
            if let Some(asked) = asked_types.filter(|&asked| *asked != has.types) {
                let (has, asked) = (or_none(&has.types), or_none(asked));
                return Err(differs(config, "type-backends", &has, &asked));
            }
            has
        }
        None => Founding {
            backend: asked_backend.unwrap_or_default(),
            types: asked_types.cloned().unwrap_or_default(),
        },
    };
    match founding.other_backend() {
        Some(backend) if config.durability == Durability::Interval => {
            let what = format!("the backend {backend} supports durability none and sync, not interval");
            Err(Error::Options("durability", what))
        }
        _ => Ok(founding),
    }
}

fn or_none(types: &TypeBackends) -> String {
    if types.is_empty() { "none".to_owned() } else { types.to_string() }
}

fn differs(config: &Config, what: &'static str, has: &dyn Display, asked: &dyn Display) -> Error {
    Error::Layout { data: config.data.clone(), what, has: has.to_string(), asked: asked.to_string() }
}

/// The layout of the data that is there and whose it is, or the layout of the data to be made.
fn find_layout(config: &Config) -> Result<(Layout, Option<Owner>), Error> {
    let failed = |cause| Error::Store { folder: config.data.clone(), cause };
    let mut disk = OsDisk::blocking();
    let Some(layout) = Layout::read(&mut disk, &config.data).map_err(failed)? else {
        let shards = config
            .shards
            .unwrap_or_else(|| shards_default(memory_limit(config.memory.map(|size| size.0)).bytes));
        return Ok((Layout::new(shards, config.ring_size.unwrap_or_default()), None));
    };
    let has = layout.ring_size.partitions();
    if let Some(asked) = config.ring_size.map(RingSize::partitions).filter(|&asked| asked != has) {
        return Err(differs(config, "ring-size", &has, &asked));
    }
    if let Some(asked) = config.shards.filter(|&asked| asked != layout.shards) {
        return Err(differs(config, "shards", &layout.shards, &asked));
    }
    Ok((layout, Layout::read_owner(&mut disk, &config.data).map_err(failed)?))
}

/// One shard for each core but one, which is left to the disk and job threads and to the kernel:
/// docs/decisions/0004 has the figures. And no more than have the memory that each takes for
/// itself.
pub fn shards_default(memory: u64) -> u16 {
    let of_memory = usize::try_from(memory / SHARD_MEMORY_MIN).unwrap_or(usize::MAX);
    u16::try_from(machine::cores().saturating_sub(1).min(of_memory).max(1))
        .unwrap_or(node::layout::SHARDS_MAX)
        .min(node::layout::SHARDS_MAX)
}
