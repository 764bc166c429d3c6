//! A shard's thread: its runtime, with the shard, its connections and its loop.
//!
//! 1. The shard is made of its open store and the bucket properties.
//! 2. Links to other nodes and the doors for clients open, which its tasks serve.
//! 3. The loop runs until the store is closed (`shard_loop.rs`).
//!
//! Invariant: everything of the shard is on this thread; other threads reach it by mail and by the lines of the main
//! thread.

use crate::accept::Acceptor;
use crate::common::Common;
use crate::connections::Connections;
use crate::connects::Connects;
use crate::error::Error;
use crate::figure_pages::FigurePages;
use crate::local::Local;
use crate::node_stats::StatsQuestions;
use crate::peer::{self, Arrived, Links};
use crate::shard_loop::drive;
use crate::shard_store::OpenedStore;
use crate::stats::ThreadStats;
use base::Clock;
use kv::{BucketTable, Limits};
use node::{Reaping, Shard, ShardConfig, ShardId, Topology, layout};
use os::{DiskCounters, OsClock, OsRng};
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;
use tokio::time::Instant;

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
    /// The figures of the whole node.
    pub(crate) figures: Arc<FigurePages>,
    /// Questions for statistics.
    pub control: StatsQuestions,
    /// Connections of other nodes.
    pub arrivals: mpsc::Receiver<Arrived>,
    /// Whether to stop.
    pub stop: watch::Receiver<bool>,
}

/// Serves until told to stop, then stops cleanly. Blocks.
pub fn run(
    id: ShardId,
    (opened, table): (OpenedStore, BucketTable),
    common: Common,
    listeners: Listeners,
    lines: Lines,
) -> Result<(), Error> {
    // The threads of the disk are kept until the store is closed.
    let OpenedStore { store, counters, jobs: _jobs, .. } = opened;
    let system = |cause: io::Error| Error::System("cannot start a runtime", cause);
    let began = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
    let folder = layout::shard_dir(&common.data, id.0);
    let mut shard = Shard::new(config(id, &common), store, table);
    shard.topology(Topology::clone(&common.topology));
    let links = common.peers.as_ref().map(|_| Links::new(id, common.memory.link_queues()));
    let (mailboxes, membership) = (Arc::clone(&common.mailboxes), common.membership.clone());
    let local = Rc::new(Local::new(id, common.layout, shard, mailboxes, links, membership));

    let closed = LocalSet::new().block_on(&runtime, async move {
        let (budgets, request_max) = (common.budgets.clone(), common.memory.request_max());
        let connections = Connections::new(Arc::clone(&common.connections), budgets, request_max);
        let connections = Rc::new(connections);
        if let Some(peers) = &common.peers {
            local.links().open(&local, peers);
            let memory = Arc::clone(&common.budgets.messages);
            let receive = peer::receive(lines.arrivals, Rc::clone(&local), Arc::clone(peers), memory);
            tokio::task::spawn_local(receive);
        }

        let connects = Rc::new(Connects::default());
        let doors = Acceptor::new(&local, &common, &connections, &connects, lines.figures);
        let accepting = doors.open(listeners).map_err(system)?;
        tokio::task::spawn_local(answer_questions(lines.control, Rc::clone(&local), counters, connects));

        let (peers, progress) = (common.peers.as_deref(), Arc::clone(&common.progress));
        let turned = || progress.turned(id.0);
        let shared = (&*common.undrained, &turned as &dyn Fn());
        drive(began, (&local, peers), &connections, lines.stop, &accepting, shared).await
    })?;
    closed.map_err(|cause| Error::Store { folder, cause })
}

fn config(id: ShardId, common: &Common) -> ShardConfig {
    ShardConfig {
        id,
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
    }
}

/// Answers questions for the thread's statistics.
async fn answer_questions(
    mut questions: StatsQuestions,
    local: Rc<Local>,
    counters: Arc<DiskCounters>,
    connects: Rc<Connects>,
) {
    let clock = OsClock::new();
    while let Some(answer) = questions.recv().await {
        let stats = ThreadStats {
            shard: local.stats(),
            times: local.times(),
            disk: counters.snapshot(),
            peers: local.peer_figures(),
            connects: connects.read(clock.now()),
        };
        // Whoever asked may have given up.
        answer.send(stats).ok();
    }
}
