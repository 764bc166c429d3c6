//! Start and stop of a node.
//!
//! 1. Find the layout, or choose one. 2. Listen, so that a port in use is known before a store is touched.
//! 3. Find out which node of which cluster this is, or become one. 4. Open all stores, each on its thread. 5. Hand
//!    shard 0's bucket properties to all, and begin to take part in the cluster. 6. Serve until SIGTERM or SIGINT;
//!    SIGHUP reads certificates again. 7. Answer what is under way, close connections, stop the stores cleanly.

use crate::admin_socket::{self, AdminSocketFile};
use crate::client_ports::{self, ClientAddresses, ClientPorts};
use crate::common::Common;
use crate::compute_threads::ComputeThreads;
use crate::config::{Cluster, Config};
use crate::data_folder::{find_founding, find_layout};
use crate::error::Error;
use crate::figure_pages::FigurePages;
use crate::levels::LogLevels;
use crate::listen::{bound, listen};
use crate::membership::{self, End, Entering, Part};
use crate::memory::{MemoryLimit, memory_limit};
use crate::node_stats::NodeStats;
use crate::peer::{self, Arrived, Doors, Tls};
use crate::progress::{Progress, Stage};
use crate::security::{Policies, reload};
use crate::shard_threads::ShardThreads;
use crate::signals::{ReloadSignal, StopSignals, listen_to_signals};
use base::Rng;
use engine::store::OpenReport;
use node::Layout;
use node::store::founding::{self, Founding};
use os::{OsDisk, OsRng};
use ring::MemberState;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

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
    let compute = ComputeThreads::start().map_err(|cause| Error::System("cannot start a thread", cause))?;
    let compute = Arc::new(compute);
    let guard = client_ports::guard(&config, cluster.as_ref(), &policies, &compute)?;
    let founding = find_founding(&config)?;
    follow_founding(&mut config, &founding);
    let (mut layout, owner) = find_layout(&config)?;

    let (clients, mut listeners) = ClientPorts::open(&mut config, layout.shards.into())?;
    let (peers, address_of_peers) = cluster.as_ref().map(listen_to_peers).transpose()?.unzip();

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
    let common =
        Common::new(&config, (layout, founding), owner, (&part, tls), (membership, &memory), outside)?;
    let doors = common.peers.as_ref().map(|peers| Arc::new(Doors::new(Arc::clone(peers))));
    let (stats, questions) = NodeStats::new(&common, doors.clone());
    if let Some(peers) = &common.peers {
        peers.hold_links();
    }

    let figures = FigurePages::new(stats.into_ask(), compute);
    let mut threads = ShardThreads::start(&common, listeners, &figures, questions)?;
    let node = Node { addresses, common, memory, doors, peers, admin_file, part, inbox };
    let result = node.run(&mut threads, on_started);
    result.and(threads.join())
}

/// Has the options follow the data that is there.
fn follow_founding(config: &mut Config, founding: &Founding) {
    config.backend = Some(founding.backend);
    config.type_backends = Some(founding.types.clone());
    if let Some(backend) = founding.other_backend()
        && config.anti_entropy.take().is_some()
    {
        tracing::info!("anti-entropy is off: the backend {backend} has no snapshots for hash trees");
    }
}

/// A node, as its main thread sees it.
struct Node {
    common: Common,
    memory: MemoryLimit,
    addresses: Addresses,
    doors: Option<Arc<Doors>>,
    peers: Option<TcpListener>,
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
    /// Serves when all stores are open, and ends its part in the cluster afterwards.
    fn run(mut self, threads: &mut ShardThreads, on_started: impl FnOnce(&Started)) -> Result<(), Error> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(no_runtime)?;
        let _entered = runtime.enter();
        let signals = listen_to_signals()?;

        let (reports, births) = threads.share_table()?;
        let ring_bits = u8::try_from(self.common.layout.ring_size.bits()).expect("a prefix has 16 bits");
        self.part.set_births(births, ring_bits);
        let started = self.started(reports);
        let Node { common, memory, doors, peers, admin_file, part, inbox, .. } = self;
        let (end, ended) = mpsc::channel(1);
        let membership = start_membership(&common, part, inbox, end)?;
        common.tell_memory(&memory);
        common.progress.reach(Stage::Waiting);
        on_started(&started);

        let arrivals = threads.take_arrivals();
        let doors = peers.zip(doors).map(|(listener, doors)| (listener, doors, arrivals));
        let result = serve_until_stopped(&runtime, &common, doors, signals, ended);
        // The lock of the data folder goes with the membership.
        drop(admin_file);
        common.membership.stop();
        membership.join().expect("a thread aborts the process rather than panic");
        result
    }

    /// The facts that are known when its stores are open.
    fn started(&self, reports: Vec<OpenReport>) -> Started {
        let (common, clients) = (&self.common, self.addresses.clients);
        let members = self.part.state().members();
        Started {
            pb: clients.pb,
            http: clients.http,
            https: clients.https,
            peers: self.addresses.peers,
            members: members.len(),
            is_joining: members[&self.part.node()].member.state == MemberState::Joining,
            data: common.data.clone(),
            layout: common.layout,
            memory: self.memory.clone(),
            value_bytes_max: common.memory.value_max,
            founding: common.founding.clone(),
            reports,
        }
    }
}

/// The door for other nodes: its listener, its guard, and the ways of connections to the shards' threads.
type PeerDoors = (TcpListener, Arc<Doors>, Vec<mpsc::Sender<Arrived>>);

/// Lets other nodes in, and waits for the end: a signal, or that of the part in the cluster. Blocks.
fn serve_until_stopped(
    runtime: &Runtime,
    common: &Common,
    doors: Option<PeerDoors>,
    (mut stop, mut hang_up): (StopSignals, ReloadSignal),
    mut ended: mpsc::Receiver<End>,
) -> Result<(), Error> {
    runtime.block_on(async {
        if let Some(peers) = &common.peers {
            tokio::spawn(peer::ask_first(Arc::clone(peers)));
        }
        if let Some((listener, doors, arrivals)) = doors {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(no_runtime)?;
            tokio::spawn(peer::serve(listener, doors, arrivals));
        }
        let guard = Arc::clone(&common.guard);
        tokio::spawn(
            async move { tokio::join!(guard.audit().tell_suppressed(), guard.usage().tell_refused()) },
        );

        tokio::select! {
            () = reload_at(&mut hang_up, common) => {}
            () = stop.next() => {}
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
                () = stop.next() => {}
            }
        }
        tracing::info!("stopping");
        Ok(())
    })
}

fn no_runtime(cause: io::Error) -> Error {
    Error::System("cannot start a runtime", cause)
}

/// Listens to the other nodes of a cluster.
fn listen_to_peers(cluster: &Cluster) -> Result<(TcpListener, SocketAddr), Error> {
    let listener = listen(cluster.listen_option, &cluster.listen, 1)?.remove(0);
    let address = bound(cluster.listen_option, &cluster.listen, &listener)?;
    Ok((listener, address))
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
async fn reload_at(hang_up: &mut ReloadSignal, common: &Common) {
    loop {
        hang_up.next().await;
        // The outcome is in the log.
        reload(Arc::clone(&common.guard), common.peers.clone()).await.ok();
    }
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
