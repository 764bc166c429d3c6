//! Start and stop of a node.
//!
//! 1. Find the layout, or choose one. 2. Listen, so that a port in use is known before a store is touched.
//! 3. Open all stores, each on its thread. 4. Hand shard 0's bucket properties to all. 5. Serve until SIGTERM or
//!    SIGINT. 6. Answer what is under way, close connections, stop the stores cleanly.

use crate::config::Config;
use crate::error::Error;
use crate::http;
use crate::listen::listen;
use crate::mailbox::Mailboxes;
use crate::stats::{Stats, ThreadStats};
use crate::thread::{self, Common};
use engine::Options;
use engine::store::OpenReport;
use kv::BucketTable;
use node::riak::{Identity, RIAK_VERSION};
use node::{Layout, ShardId};
use os::OsDisk;
use ring::{Ring, RingSize, RingVersion};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc as std_mpsc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

/// Questions for statistics that wait at a shard's thread.
const CONTROL_QUEUE_MAX: usize = 64;

/// What is known once a node serves.
#[derive(Clone, Debug)]
pub struct Started {
    /// Where Riak's protocol buffers are served.
    pub pb: SocketAddr,
    /// Where HTTP is served.
    pub http: SocketAddr,
    /// The data folder.
    pub data: PathBuf,
    /// How it is laid out.
    pub layout: Layout,
    /// What opening each shard's store found.
    pub reports: Vec<OpenReport>,
}

/// Runs a node until it is told to stop. Blocks. `on_started` is called once it serves.
pub fn serve(config: Config, on_started: impl FnOnce(&Started)) -> Result<(), Error> {
    let layout = find_layout(&config)?;
    let pb_listeners = listen(config.pb_listen, layout.shards.into())?;
    let http_listener = listen(config.http_listen, 1)?.remove(0);
    let common = common(&config, layout);
    let (stop, stopped) = watch::channel(false);
    let mut controls = Vec::new();
    let mut threads = Vec::new();
    let mut opened = Vec::new();
    let pb = address_of(&pb_listeners[0], config.pb_listen)?;
    for (shard, listener) in pb_listeners.into_iter().enumerate() {
        let id = ShardId(u16::try_from(shard).expect("a node has fewer shards than that"));
        let (control, asked) = mpsc::channel(CONTROL_QUEUE_MAX);
        controls.push(control);
        let (thread, report) = start(&common, id, listener, asked, stopped.clone())?;
        threads.push(thread);
        opened.push(report);
    }
    let result = run(&config, &common, opened, http_listener, controls, pb, on_started);
    // Every thread stops when this is gone, also one that has not begun to serve.
    drop(stop);
    let mut closed = Ok(());
    for thread in threads {
        closed = closed.and(thread.join().expect("a shard's thread aborts the process rather than panic"));
    }
    result.and(closed)
}

type Openings =
    (std_mpsc::Receiver<Result<(OpenReport, Option<BucketTable>), Error>>, std_mpsc::Sender<BucketTable>);
type Thread = std::thread::JoinHandle<Result<(), Error>>;

/// Starts a shard's thread, which opens its store, tells what it found, and serves when it is given the table.
fn start(
    common: &Common,
    id: ShardId,
    listener: TcpListener,
    asked: mpsc::Receiver<oneshot::Sender<ThreadStats>>,
    stopped: watch::Receiver<bool>,
) -> Result<(Thread, Openings), Error> {
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
        tell.send(Ok((opened.report.clone(), opened.take_table()))).ok();
        // Without a table another shard has failed, and this one was not used.
        let Ok(table) = given_table.recv() else { return Ok(()) };
        opened.run(common, table, listener, asked, stopped)
    };
    let name = format!("annulet-shard-{}", id.0);
    let system = |cause| Error::System("cannot start a thread", cause);
    let thread = std::thread::Builder::new().name(name).spawn(body).map_err(system)?;
    Ok((thread, (told, give_table)))
}

fn run(
    config: &Config,
    common: &Common,
    opened: Vec<Openings>,
    http_listener: TcpListener,
    controls: Vec<mpsc::Sender<oneshot::Sender<ThreadStats>>>,
    pb: SocketAddr,
    on_started: impl FnOnce(&Started),
) -> Result<(), Error> {
    let system = |cause| Error::System("cannot start a runtime", cause);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
    let _entered = runtime.enter();
    let handler = |kind| signal(kind).map_err(|cause| Error::System("cannot handle signals", cause));
    let (mut terminate, mut interrupt) =
        (handler(SignalKind::terminate())?, handler(SignalKind::interrupt())?);
    let mut reports = Vec::new();
    let mut table = None;
    for (told, _) in &opened {
        let (report, of_keeper) = told.recv().expect("a thread tells before it ends")?;
        reports.push(report);
        table = table.or(of_keeper);
    }
    let table = table.expect("shard 0 has told its table");
    for (_, give_table) in &opened {
        give_table.send(table.clone()).expect("a thread waits for its table");
    }
    let http = address_of(&http_listener, config.http_listen)?;
    on_started(&Started { pb, http, data: common.data.clone(), layout: common.layout, reports });
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(http_listener).map_err(system)?;
        let ask = ask_all(common, controls);
        let serving = http::serve(listener, ask, Arc::clone(&common.connections), common.connections_max);
        tokio::select! {
            () = serving => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        Ok(())
    })
}

fn ask_all(common: &Common, controls: Vec<mpsc::Sender<oneshot::Sender<ThreadStats>>>) -> http::Ask {
    let common = common.clone();
    let controls = Arc::new(controls);
    Arc::new(move || {
        let (common, controls) = (common.clone(), Arc::clone(&controls));
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
            Stats::of(&identity.node, env!("CARGO_PKG_VERSION"), partitions, connections, &threads)
        })
    })
}

fn common(config: &Config, layout: Layout) -> Common {
    let options =
        Options { durability: config.durability, sync_interval: config.sync_interval, ..Options::default() };
    let identity = Identity { node: config.name.clone(), version: RIAK_VERSION.to_owned() };
    Common {
        data: config.data.clone(),
        layout,
        ring: Arc::new(Ring::of_one_node(RingVersion(1), layout.ring_size)),
        identity: Arc::new(identity),
        options,
        mailboxes: Arc::new(Mailboxes::new(layout.shards)),
        connections: Arc::new(AtomicUsize::new(0)),
        connections_max: config.connections_max,
        idle_timeout: config.idle_timeout,
    }
}

/// The layout of the data that is there, or of the data to be made.
fn find_layout(config: &Config) -> Result<Layout, Error> {
    let failed = |cause| Error::Store { folder: config.data.clone(), cause };
    let mut disk = OsDisk::blocking();
    let Some(layout) = Layout::read(&mut disk, &config.data).map_err(failed)? else {
        let shards = config.shards.unwrap_or_else(shards_default);
        return Ok(Layout { shards, ring_size: config.ring_size.unwrap_or_default() });
    };
    let differs = |what, has: u64, asked: u64| Error::Layout { data: config.data.clone(), what, has, asked };
    let has = u64::from(layout.ring_size.partitions());
    if let Some(asked) = config.ring_size.map(RingSize::partitions).filter(|&asked| u64::from(asked) != has) {
        return Err(differs("ring-size", has, asked.into()));
    }
    if let Some(asked) = config.shards.filter(|&asked| asked != layout.shards) {
        return Err(differs("shards", layout.shards.into(), asked.into()));
    }
    Ok(layout)
}

/// One shard for each core but one, which is left to the disk and job threads and to the kernel:
/// docs/decisions/0004-shards-and-runtimes.md has the figures.
fn shards_default() -> u16 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    u16::try_from(cores.saturating_sub(1).max(1))
        .unwrap_or(node::layout::SHARDS_MAX)
        .min(node::layout::SHARDS_MAX)
}

fn address_of(listener: &TcpListener, asked: SocketAddr) -> Result<SocketAddr, Error> {
    listener.local_addr().map_err(|cause| Error::Listen { address: asked, cause })
}
