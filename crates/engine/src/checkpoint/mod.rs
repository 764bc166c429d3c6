//! Checkpoints of what a store's owner keeps beside the ledger: something that every write changes, and that would have
//! to be made from all heads after a start.
//!
//! 1. A memtable that is put aside for its flush *wants* a checkpoint: what the owner's thing is with everything in
//!    that memtable and nothing after it, told whole or as what has changed since the one before.
//! 2. The owner gives it, an opaque record, which a job writes to a log beside the manifest.
//! 3. The manifest says that the memtable is in tables once that record is durable.
//! 4. At a start the records up to the one that the manifest's tables have are given back. Later ones are cut off:
//!    their numbers will be given to other records. What the replay has brought beyond the tables is visited
//!    ([`Replayed`]).
//!
//! Invariants
//! * What is given back is neither ahead of the tables nor behind them. Where that is not certain, since versions were
//!   lost or a range was dropped, nothing is given back, and the log goes.
//! * A log that cannot be written holds up no flush: it is given up, and begun anew with the next checkpoint, told
//!   whole.
//! * No write waits: where memtables become scarce and the owner has given nothing, the flush goes on without it.
//!
//! Left out: what is in a record. The owner's function joins records into one when the log has become long.

mod log;

pub(crate) use log::{AsOf, CHECKPOINT_FILE, FoundLog, LogEnd, Running, WriteRecord, find, remove};

use crate::entry::{Jsn, Seq};
use crate::fold::Replayed;
use bytes::Bytes;
use std::collections::VecDeque;

/// Makes one record, told whole, of a log's records; `None` if they are none of the owner's.
pub type JoinRecords = fn(&[Bytes]) -> Option<Bytes>;

/// What a checkpoint is wanted of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointWanted {
    /// The last version that is in it.
    pub seq: Seq,
    /// Whether it is to be told whole: there is none before it.
    pub whole: bool,
}

/// A checkpoint that a start has found: what the owner kept as of the tables, and what the journal has brought beyond
/// them.
pub struct FoundCheckpoint {
    /// Its records, in their order; the first is told whole.
    pub records: Vec<Bytes>,
    /// For [`Store::fold_replayed`](crate::Store::fold_replayed). It holds memory until it is dropped.
    pub replayed: Replayed,
}

/// Why a log of checkpoints was not taken at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// It cannot be read, or is none of this store's.
    Damaged,
    /// None of its records says what the tables have.
    Other,
    /// Versions were lost.
    Losses,
    /// A range was dropped after it.
    Drops,
}

impl std::fmt::Display for NotTaken {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            NotTaken::Damaged => "its log is damaged",
            NotTaken::Other => "none of its records describes the tables",
            NotTaken::Losses => "versions were lost",
            NotTaken::Drops => "a range was dropped since",
        })
    }
}

/// The checkpoints of an open store.
#[derive(Default)]
pub(crate) struct Checkpoints {
    /// `None` while the owner keeps none.
    pub join: Option<JoinRecords>,
    /// What a start has found, until the owner takes it.
    pub found: Option<FoundCheckpoint>,
    /// The log as it is on the disk; `None` if it is to be begun.
    pub log: Option<LogEnd>,
    /// Those that begin before this record were given, or gone without.
    pub given: Jsn,
    /// Flushes up to this record need not wait.
    pub durable: Jsn,
    /// At most as many as there are memtables put aside, and one at the stop.
    pub queue: VecDeque<(AsOf, Bytes)>,
    pub running: Option<Running>,
    /// Whether the stop has come to its last one.
    ends: bool,
}

impl Checkpoints {
    /// Those of a store whose tables have the records before `flushed`.
    pub fn of(log: Option<LogEnd>, found: Option<FoundCheckpoint>, flushed: Jsn) -> Checkpoints {
        Checkpoints { log, found, given: flushed, durable: flushed, ..Checkpoints::default() }
    }

    /// Whether the next one is to be told whole.
    pub fn begins_anew(&self) -> bool {
        self.log.is_none() && self.running.is_none() && self.queue.is_empty()
    }

    /// All memtables are flushed for the stop. Where there is no log one is begun once, though nothing may have been
    /// written.
    pub fn end(&mut self) {
        if !std::mem::replace(&mut self.ends, true) && self.begins_anew() {
            (self.given, self.durable) = (Jsn(0), Jsn(0));
        }
    }

    /// Goes without those up to this record, and begins the log anew.
    pub fn give_up(&mut self, until: Jsn) {
        assert!(self.running.is_none(), "what is being written is of a memtable that waits for it");
        self.log = None;
        self.queue.clear();
        self.given = self.given.max(until);
        self.durable = self.given;
    }
}
