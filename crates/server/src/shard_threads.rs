//! The threads of a node's shards, as its main thread sees them.
//!
//! 1. Each thread opens its store, and reports its finds ([`ShardThreads::start`]).
//! 2. When all stores are open, each thread gets the bucket properties of shard 0, and serves
//!    ([`ShardThreads::share_table`]).
//! 3. At the end all threads stop cleanly, and are joined ([`ShardThreads::join`]).
//!
//! Invariant: no thread serves before all stores are open. If one cannot be opened, the others end unused.
//!
//! Left out: the work of a thread (`thread.rs`).

use crate::common::Common;
use crate::error::Error;
use crate::figure_pages::FigurePages;
use crate::node_stats::StatsQuestions;
use crate::peer::Arrived;
use crate::shard_store::OpenedStore;
use crate::thread::{self, Lines, Listeners};
use engine::store::OpenReport;
use kv::BucketTable;
use node::{FoundBirth, ShardId};
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, watch};

/// Connections of other nodes that wait at a shard's thread: it takes them at once, between two turns.
const ARRIVALS_MAX: usize = 16;

/// The report of a shard's thread when its store is open.
struct Told {
    report: OpenReport,
    /// Of the store's birth; `None` of a store that has none.
    birth: Option<FoundBirth>,
    /// The bucket properties, of shard 0.
    table: Option<BucketTable>,
}

/// One thread.
struct ShardThread {
    /// The finds of its store's open.
    told: std_mpsc::Receiver<Result<Told, Error>>,
    /// The bucket properties, which it waits for.
    give_table: std_mpsc::Sender<BucketTable>,
    join: JoinHandle<Result<(), Error>>,
}

/// The threads, by shard.
pub struct ShardThreads {
    threads: Vec<ShardThread>,
    /// Connections of other nodes go this way.
    arrivals: Vec<mpsc::Sender<Arrived>>,
    /// Every thread stops when this is gone, also one that has not begun to serve.
    stop: watch::Sender<bool>,
}

impl ShardThreads {
    /// Starts a thread for each of these listeners, which open their stores.
    pub fn start(
        common: &Common,
        listeners: Vec<Listeners>,
        figures: &Arc<FigurePages>,
        questions: Vec<StatsQuestions>,
    ) -> Result<ShardThreads, Error> {
        let (stop, stopped) = watch::channel(false);
        let mut started = ShardThreads { threads: Vec::new(), arrivals: Vec::new(), stop };
        for (shard, (listeners, control)) in listeners.into_iter().zip(questions).enumerate() {
            let id = ShardId(u16::try_from(shard).expect("a node has fewer shards than that"));
            let (arrive, arrivals) = mpsc::channel(ARRIVALS_MAX);
            let lines = Lines { figures: Arc::clone(figures), control, arrivals, stop: stopped.clone() };
            started.threads.push(ShardThread::start(common, id, listeners, lines)?);
            started.arrivals.push(arrive);
        }
        Ok(started)
    }

    /// Waits until all stores are open, and gives every thread the bucket properties. Births are told of all stores, or
    /// of none.
    pub fn share_table(&self) -> Result<(Vec<OpenReport>, Vec<FoundBirth>), Error> {
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

    /// The ways of connections of other nodes to the threads, by shard; none the second time.
    pub fn take_arrivals(&mut self) -> Vec<mpsc::Sender<Arrived>> {
        std::mem::take(&mut self.arrivals)
    }

    /// Stops all threads cleanly, and waits for their ends.
    pub fn join(self) -> Result<(), Error> {
        drop(self.stop);
        // A thread that was given no table ends when nobody can give it one any more.
        let joins: Vec<_> = self.threads.into_iter().map(|thread| thread.join).collect();
        let mut closed = Ok(());
        for join in joins {
            closed = closed.and(join.join().expect("a shard's thread aborts the process rather than panic"));
        }
        closed
    }
}

impl ShardThread {
    /// Starts a thread, which opens its store, reports its finds, and serves when it is given the table.
    fn start(common: &Common, id: ShardId, listeners: Listeners, lines: Lines) -> Result<ShardThread, Error> {
        let (tell, told) = std_mpsc::channel();
        let (give_table, given_table) = std_mpsc::channel();
        let common = common.clone();
        let body = move || {
            let mut opened = match OpenedStore::open(&common, id) {
                Ok(opened) => opened,
                Err(error) => {
                    tell.send(Err(error)).ok();
                    return Ok(());
                }
            };
            let (report, birth, table) = (opened.report.clone(), opened.birth, opened.table.take());
            tell.send(Ok(Told { report, birth, table })).ok();
            // Without a table another shard has failed, and this one was not used.
            let Ok(table) = given_table.recv() else { return Ok(()) };
            thread::run(id, (opened, table), common, listeners, lines)
        };
        let name = format!("annulet-shard-{}", id.0);
        let system = |cause| Error::System("cannot start a thread", cause);
        let join = std::thread::Builder::new().name(name).spawn(body).map_err(system)?;
        Ok(ShardThread { told, give_table, join })
    }
}
