//! What the consensus library reads: hard state, voters, snapshot and entries, in memory. The file has the same, and
//! has it first: within a step all that is here is written before anything that rests on it is sent.
//!
//! Invariants: entries have no gap; there is an entry, or the base, for every index from the base on; `applied` follows
//! `conf`.

use std::collections::VecDeque;

use raft::eraftpb;
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use super::entry::{Conf, Entry, Snapshot};
use super::library::{self, id_of};
use ring::NodeId;

/// A log as the library's storage.
pub(super) struct Store {
    pub(super) term: u64,
    pub(super) voted: Option<NodeId>,
    /// The last entry that is known to be committed.
    pub(super) commit: u64,
    pub(super) base: Snapshot,
    /// Who votes after the applied entries.
    pub(super) conf: Conf,
    /// Without a gap up to the last; they may begin before the base's end.
    pub(super) entries: VecDeque<Entry>,
}

impl Default for Store {
    fn default() -> Store {
        let (conf, base, entries) = (Conf::default(), Snapshot::none(), VecDeque::new());
        Store { term: 0, voted: None, commit: 0, base, conf, entries }
    }
}

impl Store {
    /// Index and term of the last entry.
    pub(super) fn last(&self) -> (u64, u64) {
        match self.entries.back().filter(|last| last.index > self.base.index) {
            Some(last) => (last.index, last.term),
            None => (self.base.index, self.base.term),
        }
    }

    pub(super) fn entry(&self, index: u64) -> Option<&Entry> {
        let first = self.entries.front()?.index;
        self.entries.get(usize::try_from(index.checked_sub(first)?).ok()?)
    }

    /// The term of an entry, if it is still known.
    pub(super) fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.base.index {
            Some(self.base.term)
        } else {
            self.entry(index).map(|entry| entry.term)
        }
    }

    /// Appends an entry, in place of those that it does not follow.
    pub(super) fn push(&mut self, entry: Entry) {
        while self.entries.back().is_some_and(|last| last.index >= entry.index) {
            self.entries.pop_back();
        }
        assert!(entry.index <= self.last().0 + 1, "entries have no gap");
        self.entries.push_back(entry);
    }

    /// Puts a snapshot in the place of what it holds.
    pub(super) fn install(&mut self, snapshot: Snapshot) {
        if self.term_at(snapshot.index) == Some(snapshot.term) {
            self.entries.retain(|entry| entry.index > snapshot.index);
        } else {
            self.entries.clear();
        }
        self.commit = snapshot.index;
        self.conf = snapshot.conf.clone();
        self.base = snapshot;
        if self.term < self.base.term {
            (self.term, self.voted) = (self.base.term, None);
        }
    }

    /// Relations that hold after each step.
    pub(super) fn invariants(&self) {
        let (last, last_term) = self.last();
        debug_assert!(self.base.index <= self.commit, "a snapshot holds committed entries");
        debug_assert!(self.commit <= last, "committed entries are stored");
        debug_assert!(last_term <= self.term, "the present term is not below that of an entry");
        debug_assert!(self.conf.voters.is_disjoint(&self.conf.learners), "a learner does not vote");
        if let (Some(first), Some(last)) = (self.entries.front(), self.entries.back()) {
            debug_assert_eq!(last.index - first.index, self.entries.len() as u64 - 1, "entries have no gap");
            debug_assert!(
                first.index <= self.base.index.saturating_add(1) && self.base.index <= last.index,
                "entries reach the snapshot's end or follow it"
            );
        }
    }

    /// The first entry whose predecessor's term is known.
    fn first(&self) -> u64 {
        match self.entries.front() {
            Some(first) if first.index <= self.base.index => first.index + 1,
            _ => self.base.index + 1,
        }
    }
}

impl Storage for Store {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let mut hard = eraftpb::HardState::default();
        (hard.term, hard.vote, hard.commit) = (self.term, self.voted.map_or(0, id_of), self.commit);
        Ok(RaftState::new(hard, library::conf_state(&self.conf)))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<eraftpb::Entry>> {
        if low < self.first() {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last().0 + 1 {
            return Err(StorageError::Unavailable.into());
        }
        let from = self.entries.partition_point(|entry| entry.index < low);
        let wanted = self.entries.range(from..).take_while(|entry| entry.index < high);
        let mut entries: Vec<eraftpb::Entry> = wanted.map(library::entry_of).collect();
        raft::util::limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match self.term_at(index) {
            Some(term) => Ok(term),
            None if index < self.first() => Err(StorageError::Compacted.into()),
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last().0)
    }

    fn snapshot(&self, request_index: u64, _: u64) -> raft::Result<eraftpb::Snapshot> {
        if self.base.index < request_index {
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        Ok(library::snapshot_of(&self.base))
    }
}
