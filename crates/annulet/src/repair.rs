//! The repair of a store by `annulet check --repair`: its ledger is made again from the journal, with all processors,
//! and with a line a second that says how far it has come. One that was interrupted goes on where it was.

use crate::failure::{FAILED, Failure, UNUSABLE};
use crate::plural::count;
use base::{Job, Progress};
use engine::manifest;
use engine::recovery::{RebuildProgress, repair_store};
use engine::{Embedded, Machine, Options};
use node::layout::{Layout, SHARDS_MAX, shard_dir};
use node::{GROUPS, INDEXING};
use os::{OsClock, OsDisk, OsRng};
use ring::RingSize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How often it says how far it has come.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// How the data in `dir` is laid out, as any shard's manifest says.
pub fn layout(dir: &Path) -> Option<Layout> {
    metadata(dir).and_then(|metadata| Layout::of_metadata(&metadata).ok())
}

fn metadata(dir: &Path) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
    (0..SHARDS_MAX).map(|shard| shard_dir(dir, shard)).filter(|folder| folder.is_dir()).find_map(|folder| {
        let found = manifest::find(&mut OsDisk::blocking(), &folder).ok().flatten()?;
        Some(found.state.metadata).filter(|metadata| !metadata.is_empty())
    })
}

/// What the store in `store` remembers for its node, if its own manifest does not say so: what the other shards of
/// `dir` remember, or what can be told without them.
pub fn options(
    dir: &Path,
    store: &Path,
    ring_size: Option<u32>,
    partitions_max: Option<u32>,
) -> Result<Options, Failure> {
    let mut options = options_of(store);
    let shards: Vec<u16> = (0..SHARDS_MAX).filter(|shard| shard_dir(dir, *shard).is_dir()).collect();
    let Some(shard) = shards.iter().copied().find(|shard| shard_dir(dir, *shard) == store) else {
        return Ok(options);
    };
    options.indexing = Some(INDEXING);
    options.groups = Some(GROUPS);
    let unusable = |text: &str| Failure::new(UNUSABLE, format!("{}: {text}", dir.display()));
    options.metadata = match (metadata(dir), ring_size) {
        (Some(mut metadata), _) => {
            let layout = Layout::of_metadata(&metadata).map_err(|error| unusable(&error.to_string()))?;
            metadata.extend(layout.metadata(shard));
            metadata
        }
        (None, Some(ring_size_then)) => {
            let size = |size: u32| RingSize::new(size).map_err(|error| unusable(&error.to_string()));
            let ring_size = size(ring_size_then)?;
            let prefixes = partitions_max.map_or(Ok(ring_size.finest()), size)?;
            if prefixes < ring_size {
                return Err(unusable("--partitions-max is less than --ring-size"));
            }
            let shards = u16::try_from(shards.len()).unwrap_or(SHARDS_MAX);
            Layout { shards, ring_size, prefixes }.metadata(shard)
        }
        (None, None) => {
            return Err(unusable("no shard's manifest can be read: give the size of the ring (--ring-size)"));
        }
    };
    Ok(options)
}

/// What the store in `store` is opened with. A node's keeps index entries; of another's keys nothing is known.
pub fn options_of(store: &Path) -> Options {
    let found = manifest::find(&mut OsDisk::blocking(), store).ok().flatten();
    let is_nodes = found.is_some_and(|found| Layout::of_metadata(&found.state.metadata).is_ok());
    let (indexing, groups) = (is_nodes.then_some(INDEXING), is_nodes.then_some(GROUPS));
    Options { indexing, groups, ..Options::default() }
}

/// Makes the ledger of the store in `store` again.
pub fn repair(out: &mut impl Write, store: &Path, folder: &Path, options: &Options) -> Result<(), Failure> {
    let mut disk = OsDisk::blocking();
    let handles = disk.blocking_handles();
    let progress: Arc<RebuildProgress> = Arc::default();
    let shown = Arc::clone(&progress);
    let mut run = |_: &mut dyn base::Disk, jobs: Vec<Box<dyn Job>>| {
        in_parallel(jobs, &handles, || drop(tell(folder, &shown)));
    };
    let report = repair_store(&mut disk, store, options, &mut OsRng::new(), &mut run, &progress)
        .map_err(|error| Failure::new(FAILED, format!("{}: {error}", store.display())))?;
    let ranges = match report.lost.len() {
        0 => "nothing is lost".to_owned(),
        1 => "keys of one range may be lost".to_owned(),
        some => format!("keys of {some} ranges may be lost"),
    };
    let (keys, segments) = (report.keys, report.segments);
    let (keys, segments) = (count(keys, "key"), count(segments, "segment"));
    writeln!(out, "repaired  {}: {keys} from {segments}; {ranges}", folder.display())?;
    Ok(())
}

/// Gives up what is lost in the store in `store`, and says what that is.
pub fn accept_losses(out: &mut impl Write, store: &Path, folder: &Path) -> Result<(), Failure> {
    let failed = |error: engine::Error| Failure::new(FAILED, format!("{}: {error}", store.display()));
    let machine = Machine::new(OsDisk::blocking().blocking_handles(), OsClock::new(), OsRng::new());
    let mut opened = Embedded::open(store, options_of(store), machine).map_err(failed)?;
    let accepted = opened.store().accept_losses();
    opened.close().map_err(failed)?;
    for range in accepted {
        let (from, to) = (range.start.escape_ascii(), range.end.escape_ascii());
        writeln!(
            out,
            "accepted  {}: keys from \"{from}\" up to \"{to}\": {}",
            folder.display(),
            range.damage
        )?;
    }
    Ok(())
}

/// Runs jobs on as many threads as there are processors, and calls `tell` now and then until all have ended.
fn in_parallel(jobs: Vec<Box<dyn Job>>, handles: &(impl Fn() -> OsDisk + Sync), mut tell: impl FnMut()) {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let queue = Mutex::new(jobs.into_iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (done, ended) = channel::<()>();
    thread::scope(|scope| {
        for _ in 0..threads {
            let done = done.clone();
            scope.spawn(move || {
                let mut disk = handles();
                while let Some(mut job) = next() {
                    while job.slice(&mut disk) == Progress::More {}
                }
                drop(done);
            });
        }
        drop(done);
        while ended.recv_timeout(TELL_EVERY) == Err(RecvTimeoutError::Timeout) {
            tell();
        }
    });
}

fn tell(folder: &Path, progress: &RebuildProgress) -> io::Result<()> {
    let of = |done: u64, all: u64| done.saturating_mul(100).checked_div(all).unwrap_or(0).min(100);
    let (segments, read) = (progress.segments.load(Relaxed), progress.segments_read.load(Relaxed));
    let (entries, joined) = (progress.entries.load(Relaxed), progress.entries_joined.load(Relaxed));
    let mut err = io::stderr();
    match entries {
        0 => writeln!(err, "{}: {read} of {} read", folder.display(), count(segments, "segment")),
        _ => writeln!(
            err,
            "{}: {} % of {} sorted",
            folder.display(),
            of(joined, entries),
            count(entries, "head")
        ),
    }
}
