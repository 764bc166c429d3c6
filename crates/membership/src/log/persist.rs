//! A log and its file: what is written, and how it is read again.

use base::{Monotonic, Rng};
use bytes::{Bytes, BytesMut};
use protocol::peer::Malformed;

use super::entry::Snapshot;
use super::file::{self, FileError, Record};
use super::{Identity, Log};
use crate::state::State;

/// A file is replaced by a snapshot after this many entries.
pub(super) const COMPACT_AFTER: u64 = 256;

/// Entries before a snapshot that stay, for those who need only the difference.
const KEPT: u64 = 128;

impl Log {
    /// The log that a file holds, and how many of the file's bytes are sound: what is behind them is torn, and is to be cut off
    /// before anything is appended.
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
        let mut log = Log::empty(identity, rng, now);
        let mut commit = 0;
        for record in records {
            match record {
                Record::Hard { epoch, term, voted } => {
                    (log.epoch, log.term, log.voted) = (epoch, term, voted)
                }
                Record::Base { epoch, snapshot } => {
                    (log.epoch, log.base) = (epoch, snapshot);
                    log.entries.clear();
                    commit = log.base.index;
                }
                Record::Entry(entry) => {
                    log.entries.retain(|known| known.index < entry.index);
                    let follows = log.entries.back().map_or(log.base.index, |last| last.index);
                    if entry.index > follows + 1 {
                        return Err(Malformed("entries with a gap").into());
                    }
                    log.entries.push_back(entry);
                }
                Record::Commit(index) => commit = commit.max(index),
            }
        }
        if commit > log.last().0 {
            return Err(Malformed("a committed entry is missing").into());
        }
        if !log.base.state.is_empty() {
            log.state = Some(State::decode(log.base.state.clone())?);
            log.commit = log.base.index;
        }
        log.advance(commit, now);
        if log.voters().iter().eq([&log.identity.node]) {
            log.deadline = now;
        }
        log.records.clear();
        log.told.clear();
        Ok((log, sound))
    }

    pub(super) fn put_hard(&mut self) {
        Record::Hard { epoch: self.epoch, term: self.term, voted: self.voted }.put(&mut self.records);
    }

    /// Replaces many entries by the state that they led to.
    pub(super) fn compact(&mut self) {
        let Some(state) = &self.state else { return };
        if self.commit - self.base.index < COMPACT_AFTER {
            return;
        }
        let term = self.term_at(self.commit).expect("it was just applied");
        let voters = self.voters_at(self.commit).clone();
        self.base = Snapshot { index: self.commit, term, voters, state: state.encode() };
        let keep_from = self.commit.saturating_sub(KEPT);
        self.entries.retain(|entry| entry.index > keep_from);
        self.replace = true;
    }

    /// The whole file, as it is to be.
    pub(super) fn whole_file(&self) -> Bytes {
        let mut out = BytesMut::new();
        file::put_header(&mut out, self.identity.cluster, self.identity.node);
        Record::Base { epoch: self.epoch, snapshot: self.base.clone() }.put(&mut out);
        Record::Hard { epoch: self.epoch, term: self.term, voted: self.voted }.put(&mut out);
        self.entries.iter().for_each(|entry| Record::Entry(entry.clone()).put(&mut out));
        Record::Commit(self.commit).put(&mut out);
        out.freeze()
    }
}
