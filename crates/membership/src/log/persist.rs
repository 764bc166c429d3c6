//! A log and its file: writes and recovery.

use base::{Monotonic, Rng};
use bytes::{Bytes, BytesMut};
use protocol::peer::Malformed;
use ring::NodeId;

use super::entry::{Epoch, Snapshot};
use super::file::{self, FileError, Record};
use super::hold::Hold;
use super::message::ENTRIES_MAX;
use super::store::Store;
use super::{Identity, Log};
use crate::ClusterId;
use crate::state::State;

/// A file is replaced by a snapshot after this many entries.
pub(super) const COMPACT_AFTER: u64 = 256;

/// Entries before a snapshot that stay, for those who need only the difference.
const KEPT: u64 = 128;

const _: () = assert!(KEPT < COMPACT_AFTER, "a snapshot makes the file smaller");
const _: () =
    assert!(ENTRIES_MAX as u64 <= KEPT, "a node that lacks one message of entries needs no snapshot");

impl Log {
    /// Cluster and node of the log in a file.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn owner_of(bytes: &Bytes) -> Result<(ClusterId, NodeId), FileError> {
        file::owner(bytes)
    }

    /// The log that a file holds, and how many of the file's bytes are sound: what is behind them is torn, and is to be
    /// cut off before anything is appended.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn open(
        identity: Identity,
        bytes: &Bytes,
        rng: Box<dyn Rng>,
        now: Monotonic,
    ) -> Result<(Log, usize), FileError> {
        let (records, sound) = file::read(bytes, identity.cluster, identity.node)?;
        let (mut epoch, mut store, mut is_restored) = (Epoch::NONE, Store::default(), false);
        for record in records {
            match record {
                Record::Hard { epoch: of, term, voted } => {
                    (epoch, store.term, store.voted) = (of, term, voted)
                }
                Record::Base { epoch: of, snapshot } => {
                    epoch = of;
                    store.entries.clear();
                    (store.commit, store.conf) = (snapshot.index, snapshot.conf.clone());
                    store.base = snapshot;
                }
                Record::Entry(entry) => {
                    store.entries.retain(|known| known.index < entry.index);
                    let follows = store.entries.back().map_or(store.base.index, |last| last.index);
                    if entry.index > follows.saturating_add(1) {
                        return Err(Malformed("entries with a gap").into());
                    }
                    store.entries.push_back(entry);
                }
                Record::Commit(index) => store.commit = store.commit.max(index),
                Record::Restored => is_restored = true,
            }
        }
        if store.commit > store.last().0 || store.commit < store.base.index {
            return Err(Malformed("a committed entry is missing").into());
        }
        if store.entries.back().is_some_and(|last| last.index < store.base.index) {
            return Err(Malformed("entries end before the snapshot").into());
        }
        if store.term < store.last().1 {
            return Err(Malformed("entries of a later term").into());
        }
        let mut log = Log::of(identity, store, rng, now);
        log.epoch = epoch;
        log.hold = is_restored.then(|| Hold::new(now));
        if !log.store().base.state.is_empty() {
            log.state = Some(State::decode(log.store().base.state.clone())?);
        }
        log.drain(now);
        // All of that is in the file.
        log.records.clear();
        log.told.clear();
        log.sends.clear();
        Ok((log, sound))
    }

    pub(super) fn put_hard(&mut self) {
        let Store { term, voted, .. } = *self.raw.store();
        Record::Hard { epoch: self.epoch, term, voted }.put(&mut self.records);
    }

    /// Replaces many entries by the state that they led to.
    pub(super) fn compact(&mut self) {
        let Some(state) = &self.state else { return };
        if self.commit - self.store().base.index < COMPACT_AFTER {
            return;
        }
        let base = self.snapshot_of(state);
        let keep_from = self.commit.saturating_sub(KEPT);
        let store = self.raw.mut_store();
        store.base = base;
        store.entries.retain(|entry| entry.index > keep_from);
        self.replace = true;
    }

    /// The state as it is, at the last committed entry.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.state.as_ref().map_or_else(|| self.store().base.clone(), |state| self.snapshot_of(state))
    }

    fn snapshot_of(&self, state: &State) -> Snapshot {
        let store = self.store();
        let term = store.term_at(self.commit).expect("the last committed entry is known");
        Snapshot { index: self.commit, term, conf: store.conf.clone(), state: state.encode() }
    }

    /// The whole file, as it is to be.
    pub(super) fn whole_file(&self) -> Bytes {
        let mut out = BytesMut::new();
        let Store { term, voted, commit, base, entries, .. } = self.store();
        file::put_header(&mut out, self.identity.cluster, self.identity.node);
        Record::Base { epoch: self.epoch, snapshot: base.clone() }.put(&mut out);
        Record::Hard { epoch: self.epoch, term: *term, voted: *voted }.put(&mut out);
        entries.iter().for_each(|entry| Record::Entry(entry.clone()).put(&mut out));
        Record::Commit(*commit).put(&mut out);
        if self.hold.is_some() {
            Record::Restored.put(&mut out);
        }
        out.freeze()
    }
}
