//! What a start has replayed: each key that the journal's last records were about, as the tables have it and as it is
//! now.
//!
//! The memtables of the replay are gone through one by one, oldest first, each in key order. What a key was before is
//! looked up in the older ones and the tables: so what changes from one memtable to the next is told apart, and
//! neighbours share blocks.

use super::job::{Ended, Fold, FoldId};
use super::request::{FoldEnd, KeyRange};
use crate::entry::{Entry, Seq};
use crate::error::Error;
use crate::memtable::MemtableReader;
use crate::merge::{MemtableSource, Source};
use crate::read::{SharedBlocks, Snapshot};
use base::spawn::Outcome;
use base::{Disk, Job, Progress};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Keys looked up in one step: each may be a read.
const STEP_KEYS: usize = 256;

/// Keys come in order, so a few blocks will do.
const CACHE_BYTES: usize = 1 << 20;

/// The memtables of a replay, and the ledger as it was then.
pub struct Replayed {
    /// Oldest first, each with the last version in it.
    pub(crate) parts: Vec<(MemtableReader, Seq)>,
    pub(crate) snapshot: Snapshot,
}

/// A key that was replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Of the memtable that it was replayed into, the last version. Ascending from one to the next.
    pub last_seq: Seq,
    /// Its head with all that is older than this memtable; `None` if it was not there.
    pub before: Option<&'a [u8]>,
    /// Its head with this memtable.
    pub after: Option<&'a [u8]>,
}

/// Sees each of them on the job's thread.
pub type ReplacedVisitor = Box<dyn FnMut(&Replaced<'_>) + Send>;

impl Fold {
    /// A fold over what was replayed, and the job that makes it.
    pub fn of_replayed(
        id: FoldId,
        replayed: Replayed,
        range: KeyRange,
        visitor: ReplacedVisitor,
    ) -> (Fold, Box<dyn Job>) {
        let (cancelled, outcome) = (Arc::new(AtomicBool::new(false)), Outcome::new());
        let fold = Fold { id, cancelled: Arc::clone(&cancelled), outcome: outcome.clone() };
        let cache = SharedBlocks::new(CACHE_BYTES);
        let walk = Walk { replayed, range, part: 0, source: None, cache, visited: 0 };
        (fold, Box::new(ReplayedJob { walk, visitor, cancelled, outcome }))
    }
}

struct Walk {
    replayed: Replayed,
    range: KeyRange,
    part: usize,
    /// Of the part, once it is begun.
    source: Option<MemtableSource>,
    cache: SharedBlocks,
    visited: u64,
}

impl Walk {
    fn step(&mut self, disk: &mut dyn Disk, visit: &mut ReplacedVisitor) -> Result<Progress, Error> {
        let Replayed { parts, snapshot } = &self.replayed;
        let mut left = STEP_KEYS;
        while let Some((memtable, last_seq)) = parts.get(self.part) {
            let source = match &mut self.source {
                Some(source) => source,
                none => {
                    let source = none.insert(MemtableSource::new(memtable, snapshot.seq));
                    source.seek(disk, &self.range.start)?;
                    source
                }
            };
            // The older ones are the last of a snapshot's.
            let older = snapshot.memtables.len() - self.part;
            let before = Snapshot { memtables: snapshot.memtables[older..].to_vec(), ..snapshot.clone() };
            while let Some(item) = source.item().filter(|item| !self.range.ends_before(item.key)) {
                if left == 0 {
                    return Ok(Progress::More);
                }
                left -= 1;
                let old = before.head(item.key, disk, &self.cache)?;
                let entry = Entry::decode(item.entry)?;
                let is_gone = snapshot.is_gone(item.key, item.seq, &entry);
                let key = item.key.to_vec();
                visit(&Replaced {
                    key: &key,
                    last_seq: *last_seq,
                    before: old.as_deref(),
                    after: (!is_gone).then_some(entry.head),
                });
                self.visited += 1;
                // The first of a key is the newest.
                while source.item().is_some_and(|item| item.key == key) {
                    source.next(disk)?;
                }
            }
            (self.part, self.source) = (self.part + 1, None);
        }
        Ok(Progress::Done)
    }
}

struct ReplayedJob {
    walk: Walk,
    visitor: ReplacedVisitor,
    cancelled: Arc<AtomicBool>,
    outcome: Outcome<Ended>,
}

impl Job for ReplayedJob {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        let step = match self.cancelled.load(Ordering::Relaxed) {
            true => Ok(Progress::Done),
            false => self.walk.step(disk, &mut self.visitor),
        };
        let end = match step {
            Ok(Progress::More) => return Progress::More,
            Ok(Progress::Done) => Ok(FoldEnd { visited: self.walk.visited, ..FoldEnd::default() }),
            Err(error) => Err(error),
        };
        // Nobody looks these keys up next.
        self.outcome.set((end, Vec::new()));
        Progress::Done
    }
}
