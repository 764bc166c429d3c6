//! Checkpoints of what the store's owner keeps beside the ledger ([`crate::checkpoint`]): which are wanted, and who
//! waits for them.

use super::Store;
use super::write::MEMTABLES_FROZEN_MAX;
use crate::checkpoint::{AsOf, CheckpointWanted, FoundCheckpoint, JoinRecords, Running, WriteRecord};
use crate::entry::Jsn;
use crate::fold::{Fold, FoldId, KeyRange, ReplacedVisitor, Replayed};
use base::spawn::Outcome;
use bytes::Bytes;

impl Store {
    /// Takes what the owner kept as of the tables that the start has found; `None` if it was not kept, or not taken for
    /// certain ([`OpenReport::checkpoint`](super::OpenReport)).
    pub fn take_checkpoint(&mut self) -> Option<FoundCheckpoint> {
        self.checkpoints.found.take()
    }

    /// From now on a memtable is flushed with a checkpoint: the owner is to look after each turn which are wanted.
    pub fn keep_checkpoints(&mut self, join: JoinRecords) {
        self.checkpoints.join = Some(join);
    }

    /// The next checkpoint that is wanted. To be given before the owner's thing is changed by a write after it.
    #[inline]
    pub fn wants_checkpoint(&self) -> Option<CheckpointWanted> {
        self.checkpoints.join?;
        let AsOf { seq, .. } = self.next_checkpoint()?;
        Some(CheckpointWanted { seq, whole: self.checkpoints.begins_anew() })
    }

    /// Gives the one that is wanted.
    ///
    /// # Panics
    /// If none is.
    pub fn checkpoint(&mut self, record: Bytes) {
        let as_of = self.next_checkpoint().expect("the owner gives what is wanted");
        self.checkpoints.given = as_of.jsn;
        self.checkpoints.queue.push_back((as_of, record));
        self.want_checkpoint();
    }

    fn next_checkpoint(&self) -> Option<AsOf> {
        let given = self.checkpoints.given;
        let frozen = self.frozen.iter().find(|frozen| frozen.end_jsn > given);
        // A stop says that all of the journal is in tables.
        let last = || {
            let is_due = self.drains() && self.memtable.is_empty() && self.writer.next_jsn() > given;
            is_due.then(|| AsOf { jsn: self.writer.next_jsn(), seq: self.writer.last_seq() })
        };
        frozen.map(|frozen| AsOf { jsn: frozen.end_jsn, seq: frozen.last_seq }).or_else(last)
    }

    /// Whether the manifest may say that records before this one are in tables.
    pub(super) fn has_checkpoint(&self, jsn: Jsn) -> bool {
        self.checkpoints.join.is_none() || self.checkpoints.durable >= jsn
    }

    pub(super) fn step_checkpoints(&mut self) {
        if let Some(running) = &self.checkpoints.running
            && let Some(done) = running.outcome.take()
        {
            let jsn = running.as_of.jsn;
            self.checkpoints.running = None;
            match done {
                Ok(written) => {
                    self.counters.checkpoints += 1;
                    self.counters.checkpoint_bytes += written.bytes;
                    (self.checkpoints.log, self.checkpoints.durable) = (Some(written.end), jsn);
                }
                // Whatever became of it: the next one replaces the file.
                Err(_) => self.checkpoints.give_up(jsn),
            }
        }
        if let Some(front) = self.frozen.front()
            && self.frozen.len() >= MEMTABLES_FROZEN_MAX
            && self.memtable.bytes() >= self.options.memtable_bytes_max / 2
            && self.checkpoints.given < front.end_jsn
        {
            let until = front.end_jsn;
            self.checkpoints.give_up(until);
        }
        self.want_checkpoint();
    }

    fn want_checkpoint(&mut self) {
        let Some(join) = self.checkpoints.join.filter(|_| self.checkpoints.running.is_none()) else { return };
        let Some((as_of, record)) = self.checkpoints.queue.pop_front() else { return };
        let outcome = Outcome::new();
        self.spawn.spawn(Box::new(WriteRecord {
            dir: self.dir.clone(),
            incarnation: self.manifest.incarnation,
            log: self.checkpoints.log,
            flushed: self.manifest.replay_jsn,
            as_of,
            record,
            join,
            outcome: outcome.clone(),
        }));
        self.checkpoints.running = Some(Running { as_of, outcome });
    }

    /// Visits the keys in `range` that the records replayed at the start were about, with their heads before and after;
    /// an event will bring the end.
    pub fn fold_replayed(&mut self, replayed: Replayed, range: KeyRange, visitor: ReplacedVisitor) -> FoldId {
        let id = FoldId(self.next_id());
        let (fold, job) = Fold::of_replayed(id, replayed, range, visitor);
        self.folds.push(fold);
        self.spawn.spawn(job);
        id
    }
}
