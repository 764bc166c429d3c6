//! The store of a shard: opened with its disk, its threads and its backends, before anything is served.
//!
//! 1. The store of all bucket types is opened: the engine, or another backend.
//! 2. Stores of bucket types with a backend of their own are opened, and requests are routed to them.
//!
//! Invariant: the bucket properties are read from the store of shard 0 alone.
//!
//! Left out: the shard around the store (`thread.rs`).

use crate::common::Common;
use crate::error::Error;
use backends::{Kind, Settings};
use base::{Clock, Spawn};
use engine::store::{Concurrency, OpenReport, Platform};
use engine::{Machine, Options};
use kv::BucketTable;
use node::peer::NodeId;
use node::store::Routed;
use node::{Adapter, FoundBirth, ShardId, Store, layout};
use os::{DiskCounters, JobThreads, OsClock, OsDisk, OsRng};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The shard whose store keeps the bucket properties.
const KEEPER: ShardId = ShardId(0);

/// An open store with its disk and threads.
pub struct OpenedStore {
    /// The store.
    pub store: Store,
    /// The bucket properties, if it keeps them.
    pub table: Option<BucketTable>,
    /// The finds of the open.
    pub report: OpenReport,
    /// The birth that it found; `None` of a store that has none.
    pub birth: Option<FoundBirth>,
    /// The work of its disk.
    pub counters: Arc<DiskCounters>,
    /// Its threads, which are kept until the store is closed.
    pub jobs: Arc<JobThreads>,
}

impl OpenedStore {
    /// Opens a shard's store. Blocks.
    pub fn open(common: &Common, id: ShardId) -> Result<OpenedStore, Error> {
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
        Ok(OpenedStore { store, table, report, birth, counters, jobs })
    }
}

/// An open store.
struct Found {
    store: Store,
    /// The bucket properties, if it keeps them.
    table: Option<BucketTable>,
    /// The finds of its open.
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
    let first_memtable_percent = first_memtable_percent(common.members.here(), id);
    let options = Options { metadata, first_memtable_percent, ..common.options.clone() };
    let (mut store, report) = engine::Store::open(folder, options, platform)?;
    let table = (id == KEEPER).then(|| node::read_props(&mut store, &mut startup)).transpose()?;
    let birth = Some(node::read_birth(&mut store, &mut startup, common.members.here())?);
    Ok(Found { store: store.into(), table, report, birth })
}

/// The part of a memtable that the first one of a store may take, in per cent, from a quarter on. It is spread over the
/// replicas of a partition, which are nodes, and over the shards of a machine, so that few of them flush at a time: by
/// multiples of irrational numbers, which lie far apart for neighbours.
fn first_memtable_percent(NodeId(node): NodeId, ShardId(shard): ShardId) -> u8 {
    const GOLDEN: u32 = 618;
    const ROOT_OF_TWO: u32 = 414;
    let part = (u32::from(node) * GOLDEN + u32::from(shard) * ROOT_OF_TWO) % 1000;
    u8::try_from(25 + part * 75 / 1000).expect("it is at most 100")
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The shortest distance between two of the parts, on the circle from one flush to the next.
    fn nearest(parts: &[u8]) -> u8 {
        let distance = |a: u8, b: u8| a.abs_diff(b).min(100 - a.abs_diff(b));
        let pairs = parts.iter().enumerate().flat_map(|(at, a)| parts[..at].iter().map(|b| distance(*a, *b)));
        pairs.min().expect("there are two")
    }

    #[test]
    fn neighbours_fill_different_parts_of_their_first_memtable() {
        for first in 0..1000 {
            let of_nodes: Vec<u8> =
                (first..first + 3).map(|node| first_memtable_percent(NodeId(node), ShardId(0))).collect();
            assert!(of_nodes.iter().all(|part| (25..=100).contains(part)), "{of_nodes:?}");
            assert!(nearest(&of_nodes) >= 15, "{of_nodes:?} of nodes from {first}");
            let of_shards: Vec<u8> =
                (0..4).map(|shard| first_memtable_percent(NodeId(first), ShardId(shard))).collect();
            assert!(nearest(&of_shards) >= 10, "{of_shards:?} of shards of node {first}");
        }
    }
}
