//! Statistics of the whole node: those of all shards' threads, and of the parts that these share.
//!
//! 1. A question asks each thread for its statistics, all at once.
//! 2. They are summed up on another thread. Those of the node are added there: other nodes, health, purges, the doors,
//!    memory.
//!
//! Invariant: a thread that stops is left out, and nobody waits for it.
//!
//! Left out: the pages that show statistics (`figure_pages.rs`).

use crate::common::Common;
use crate::figure_pages::{Ask, Sum};
use crate::health;
use crate::peer::Doors;
use crate::stats::{Stats, ThreadStats};
use crate::system::DiskSpace;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{mpsc, oneshot};

/// Questions for statistics that wait at a shard's thread: that of the page under way, and of one whose client has
/// gone.
const QUESTIONS_MAX: usize = 2;

/// Questions for the statistics of a shard's thread, at that thread.
pub type StatsQuestions = mpsc::Receiver<oneshot::Sender<ThreadStats>>;

/// The way to the statistics of all threads.
pub struct NodeStats {
    common: Common,
    threads: Vec<mpsc::Sender<oneshot::Sender<ThreadStats>>>,
    /// The doors for other nodes; `None` for a node alone.
    doors: Option<Arc<Doors>>,
}

impl NodeStats {
    /// Of a node, and the ends of its questions at each thread.
    pub fn new(common: &Common, doors: Option<Arc<Doors>>) -> (NodeStats, Vec<StatsQuestions>) {
        let (threads, questions) = (0..common.layout.shards).map(|_| mpsc::channel(QUESTIONS_MAX)).unzip();
        (NodeStats { common: common.clone(), threads, doors }, questions)
    }

    /// As a question that anybody can put.
    pub fn into_ask(self) -> Ask {
        let stats = Arc::new(self);
        Arc::new(move || {
            let stats = Arc::clone(&stats);
            Box::pin(async move {
                let threads = stats.of_threads().await;
                Box::new(move || stats.of_node(&threads)) as Sum
            })
        })
    }

    async fn of_threads(&self) -> Vec<ThreadStats> {
        let mut asked = Vec::new();
        for thread in &self.threads {
            let (tell, told) = oneshot::channel();
            if thread.send(tell).await.is_ok() {
                asked.push(told);
            }
        }
        let mut threads = Vec::new();
        for told in asked {
            threads.extend(told.await);
        }
        threads
    }

    fn of_node(&self, threads: &[ThreadStats]) -> Stats {
        let common = &self.common;
        let connections = common.connections.load(Ordering::Relaxed);
        let partitions = common.layout.ring_size.partitions();
        let (node, version) = (&common.identity.node, env!("CARGO_PKG_VERSION"));
        let stats = Stats::of(node, version, partitions, connections, threads);
        let stats = stats.with_backends(&common.founding);

        let roster = common.peers.as_ref().map(|peers| peers.roster());
        let members = roster.as_ref().map_or(&common.members, |roster| roster.members());
        let names = members.all().map(|node| (node, &**members.name(node)));
        let refused = self.doors.as_ref().map_or(0, |doors| doors.refused());
        let stats = stats.with_peers(names, threads, refused);

        let stats = stats.with_reach(&common.membership.reach().unwrap_or_default());
        let certificates = common.peers.as_ref().map(|peers| peers.expiry()).unwrap_or_default();
        let state = health::state(&common.membership, &common.drain, certificates);
        let stats = stats.with_health(health::is_ready(&state), DiskSpace::of(&common.data), certificates);

        let stats = stats.with_purges(common.purges.figures()).with_doors(common.guard.figures());
        let stats = stats.with_options(&common.told);
        stats.with_memory(common.memory.limit, &common.budgets)
    }
}
