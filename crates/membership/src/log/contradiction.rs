//! Contradictions: another node has other entries as committed than this one.
//!
//! No step of the consensus leads there. A log does that is put back by other means than a restore, or whose node was
//! alone in its backup.
//!
//! 1. Entries that are pulled, a leader's entries and snapshots are compared with the committed entries here. News
//!    begin with the last entry that the other one has.
//! 2. Entries of a contradiction are not taken, and each node that has them is told of once.
//! 3. A log that a leader or a majority of its voters contradicts takes no part any more: it neither votes nor stands,
//!    appends or hands on entries. Of two logs the one alone is more likely to be wrong.
//!
//! Left out: entries that one of the two nodes no longer has. Their terms are compared where they are known.

use std::collections::BTreeSet;

use base::Monotonic;
use raft::eraftpb::{self, MessageType};
use ring::NodeId;

use super::entry::{Entry, Snapshot};
use super::{Log, Output, library};

/// The nodes with other committed entries than this one. Only members are heard, so they are bounded.
#[derive(Debug, Default)]
pub(super) struct Contradictions {
    nodes: BTreeSet<NodeId>,
    /// Whether one of them led.
    is_leaders: bool,
}

impl Log {
    /// Whether this log takes no part, since a leader or a majority of the voters has committed other entries.
    pub fn is_contradicted(&self) -> bool {
        let voters = self.voters().intersection(&self.contradictions.nodes).count();
        self.contradictions.is_leaders || 2 * voters > self.voters().len()
    }

    /// Takes note of a node with other committed entries.
    pub(super) fn contradict(&mut self, by: NodeId, leads: bool, now: Monotonic) {
        self.contradictions.is_leaders |= leads;
        if self.contradictions.nodes.insert(by) {
            self.told.push(Output::Contradicted { by });
        }
        if self.is_contradicted() {
            self.restart_consensus(now);
        }
    }

    /// Whether an entry that another has committed is another one than here, or is behind one of a later term.
    pub(super) fn contradicts_entry(&self, entry: &Entry) -> bool {
        let store = self.store();
        if entry.index > self.commit {
            return store.term_at(self.commit).is_some_and(|term| entry.term < term);
        }
        let is_other = store.entry(entry.index).is_some_and(|known| known != entry);
        is_other || self.contradicts_place(entry.index, entry.term)
    }

    /// Whether the entry at an index is of another term than the committed one here.
    fn contradicts_place(&self, index: u64, term: u64) -> bool {
        index <= self.commit && self.store().term_at(index).is_some_and(|known| known != term)
    }

    /// Whether a snapshot is of another history than the committed entries here.
    pub(super) fn contradicts_snapshot(&self, snapshot: &Snapshot) -> bool {
        let is_later = snapshot.index > self.commit;
        let is_behind = |term| snapshot.term < term;
        is_later && self.store().term_at(self.commit).is_some_and(is_behind)
            || self.contradicts_place(snapshot.index, snapshot.term)
    }

    /// Whether a leader's message is of another history than the committed entries here. One of an earlier term counts
    /// for nothing.
    pub(super) fn contradicts_message(&self, message: &eraftpb::Message) -> bool {
        if message.term < self.raw.raft.term {
            return false;
        }
        match message.get_msg_type() {
            MessageType::MsgAppend => {
                let committed = message.get_entries().iter().filter(|entry| entry.index <= self.commit);
                self.contradicts_place(message.index, message.log_term)
                    || committed.map(library::entry_from).any(|entry| self.contradicts_entry(&entry))
            }
            MessageType::MsgSnapshot => {
                self.contradicts_snapshot(&library::snapshot_from(message.get_snapshot()))
            }
            _ => false,
        }
    }
}
