//! The log as the consensus library reads it: hard state, configuration and entries, in memory.
//!
//! An entry stands here as soon as it was handed out to be written; the library counts it as written when the caller
//! says so. Applied entries may be trimmed from the front; a voter that needs one of those needs catch-up.
//!
//! Invariant: entries have no gap, and follow the base.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use raft::eraftpb;
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use super::configuration::Configuration;
use super::entry::{Entry, Payload};
use super::identity::VoterId;
use super::state::HardState;

/// A group's log.
pub(super) struct Log {
    pub(super) hard: HardState,
    /// Committed when the library began.
    pub(super) commit: u64,
    /// Index and term of the entry before the first one.
    pub(super) base: (u64, u64),
    /// The configuration as of the last applied entry, or a later committed one.
    pub(super) configuration: Configuration,
    /// The configuration of the last entry that has one.
    pub(super) in_force: Configuration,
    /// Index and term of the snapshot that a voter, by its number, has all parts of.
    pub(super) snapshots: BTreeMap<u64, (u64, u64)>,
    /// Numbers of voters for which the library asked in vain; it reads the log through a shared reference.
    asked: RefCell<BTreeSet<u64>>,
    entries: VecDeque<Logged>,
    /// Bytes of all entries.
    bytes: usize,
}

/// An entry, and its payload as the library has it: both are of the same bytes.
struct Logged {
    entry: Entry,
    data: Bytes,
}

impl Logged {
    fn to_library(&self) -> eraftpb::Entry {
        let mut entry = eraftpb::Entry::default();
        (entry.index, entry.term) = (self.entry.index, self.entry.term);
        entry.data = self.data.clone();
        entry
    }
}

impl Log {
    pub(super) fn new(hard: HardState, commit: u64, base: (u64, u64), configuration: Configuration) -> Log {
        let (snapshots, asked, entries) = (BTreeMap::new(), RefCell::default(), VecDeque::new());
        let in_force = configuration.clone();
        Log { hard, commit, base, configuration, in_force, snapshots, asked, entries, bytes: 0 }
    }

    /// Takes the numbers of voters for which the library asked for a snapshot in vain.
    pub(super) fn take_asked(&mut self) -> BTreeSet<u64> {
        self.asked.take()
    }

    /// Puts a snapshot in the place of all entries.
    pub(super) fn install(&mut self, base: (u64, u64), configuration: Configuration) {
        self.entries.clear();
        self.in_force.clone_from(&configuration);
        (self.base, self.configuration, self.bytes) = (base, configuration, 0);
    }

    /// Bytes of all entries in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops entries from the front, up to an index, until at most `bytes` are left.
    pub(super) fn trim(&mut self, through: u64, bytes: usize) {
        while self.bytes > bytes
            && let Some(Logged { entry: first, .. }) =
                self.entries.pop_front_if(|first| first.entry.index <= through)
        {
            self.base = (first.index, first.term);
            self.bytes -= first.size();
        }
    }

    /// Index and term of the last entry.
    pub(super) fn last(&self) -> (u64, u64) {
        self.entries.back().map_or(self.base, |last| (last.entry.index, last.entry.term))
    }

    pub(super) fn entry(&self, index: u64) -> Option<&Entry> {
        let after_base = index.checked_sub(self.base.0 + 1)?;
        self.entries.get(usize::try_from(after_base).ok()?).map(|logged| &logged.entry)
    }

    /// The term of an entry, if it or the base is at that index.
    pub(super) fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.base.0 { Some(self.base.1) } else { self.entry(index).map(|entry| entry.term) }
    }

    /// Entries in a range of indexes, as far as there are any.
    pub(super) fn range(&self, after: u64, through: u64) -> impl Iterator<Item = &Entry> {
        self.logged(after, through).map(|logged| &logged.entry)
    }

    fn logged(&self, after: u64, through: u64) -> impl Iterator<Item = &Logged> {
        // Entries have no gap.
        let place = |index: u64| usize::try_from(index.saturating_sub(self.base.0)).unwrap_or(usize::MAX);
        let end = place(through).min(self.entries.len());
        self.entries.range(place(after).min(end)..end)
    }

    /// The last configuration behind an index.
    pub(super) fn last_configuration(&self, after: u64) -> Option<&Configuration> {
        let entries = self.entries.iter().map(|logged| &logged.entry).rev();
        let entries = entries.take_while(|entry| entry.index > after);
        entries.map(|entry| &entry.payload).find_map(Payload::configuration)
    }

    /// Appends an entry. One of the same index and term replaces itself alone; one of another term replaces itself and
    /// all above.
    pub(super) fn push(&mut self, entry: Entry) {
        let data = entry.payload.encode();
        self.push_logged(Logged { entry, data });
    }

    /// Appends an entry that the library has made or taken.
    pub(super) fn push_of_library(&mut self, entry: Entry, library: &eraftpb::Entry) {
        self.push_logged(Logged { entry, data: library.data.clone() });
    }

    fn push_logged(&mut self, logged: Logged) {
        let entry = &logged.entry;
        assert!(entry.index > self.base.0, "an entry follows the base");
        if self.term_at(entry.index) == Some(entry.term) {
            let at = usize::try_from(entry.index - self.base.0 - 1).expect("it is in memory");
            let replaced = std::mem::replace(&mut self.entries[at], logged);
            self.bytes = self.bytes - replaced.entry.size() + self.entries[at].entry.size();
            return;
        }
        while let Some(last) = self.entries.pop_back_if(|last| last.entry.index >= entry.index) {
            self.bytes -= last.entry.size();
        }
        assert_eq!(entry.index, self.last().0 + 1, "entries have no gap");
        self.bytes += entry.size();
        self.entries.push_back(logged);
    }

    pub(super) fn invariants(&self) {
        debug_assert!(!self.entries.is_empty() || self.bytes == 0, "bytes are of entries");
        if let (Some(first), Some(last)) = (self.entries.front(), self.entries.back()) {
            let (first, last) = (&first.entry, &last.entry);
            debug_assert_eq!(first.index, self.base.0 + 1, "entries follow the base");
            debug_assert_eq!(last.index - first.index + 1, self.entries.len() as u64, "entries have no gap");
            debug_assert!(last.term <= self.hard.term, "no entry is of a later term");
        }
    }
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let mut hard = eraftpb::HardState::default();
        (hard.term, hard.commit) = (self.hard.term, self.commit);
        hard.vote = self.hard.vote.map_or(0, VoterId::number);
        Ok(RaftState::new(hard, self.in_force.conf_state()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<eraftpb::Entry>> {
        if low <= self.base.0 {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last().0 + 1 {
            return Err(StorageError::Unavailable.into());
        }
        let mut entries: Vec<_> = self.logged(low - 1, high - 1).map(Logged::to_library).collect();
        raft::util::limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match self.term_at(index) {
            Some(term) => Ok(term),
            None if index < self.base.0 => Err(StorageError::Compacted.into()),
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last().0)
    }

    /// Metadata of a snapshot; its data is the index through which tombstones are reaped.
    fn snapshot(&self, _: u64, to: u64) -> raft::Result<eraftpb::Snapshot> {
        let Some(&(index, term)) = self.snapshots.get(&to) else {
            self.asked.borrow_mut().insert(to);
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        };
        let data = self.hard.reaped.to_le_bytes().to_vec().into();
        let mut snapshot = eraftpb::Snapshot { data, ..eraftpb::Snapshot::default() };
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (index, term);
        metadata.set_conf_state(self.configuration.conf_state());
        Ok(snapshot)
    }
}
