//! What is known of each partition's trees, for operators: when they were made and compared, and what was found.
//!
//! Notes are of this process; a partition that goes takes its own with it.

use crate::peer::NodeId;
use base::Monotonic;
use engine::fold::JournalCheck;
use ring::Partition;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How it stands with the trees of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreesStatus {
    /// The partition of the ring in force.
    pub partition: Partition,
    /// Whether it has trees; until then it is not compared.
    pub is_whole: bool,
    /// Whether they are to be made, or made anew.
    pub is_due: bool,
    /// Keys in them.
    pub keys: u64,
    /// How long ago they were last made from the heads.
    pub made: Option<Duration>,
    /// What was looked for then.
    pub check: Option<JournalCheck>,
    /// Rebuilds that have found other heads than the trees told.
    pub others: u64,
    /// Keys whose values rebuilds have found missing or damaged.
    pub damaged: u64,
    /// Whether a comparison of them is under way, or waits to be.
    pub is_comparing: bool,
    /// How long ago they were last compared with another node's, and whose.
    pub compared: Option<(Duration, NodeId)>,
    /// Keys that exchanges begun here have found to differ.
    pub differed: u64,
    /// Those of them that were read with their replicas, which repairs these.
    pub repaired: u64,
}

#[derive(Default)]
struct Note {
    made: Option<(Monotonic, JournalCheck)>,
    others: u64,
    damaged: u64,
    compared: Option<(Monotonic, NodeId)>,
    differed: u64,
    repaired: u64,
}

/// Notes by the first prefixes of partitions.
#[derive(Default)]
pub(crate) struct Notes(BTreeMap<u16, Note>);

impl Notes {
    /// Forgets all partitions but these.
    pub fn retain(&mut self, firsts: &BTreeSet<u16>) {
        self.0.retain(|first, _| firsts.contains(first));
    }

    fn of(&mut self, first: u16) -> &mut Note {
        self.0.entry(first).or_default()
    }

    /// Its trees were made with this check; whether they are others than before.
    pub fn set_made(&mut self, first: u16, check: JournalCheck, is_other: bool, now: Monotonic) {
        let note = self.of(first);
        note.made = Some((now, check));
        note.others += u64::from(is_other);
    }

    /// So many keys were found to have lost their values.
    pub fn add_damaged(&mut self, first: u16, keys: u64) {
        self.of(first).damaged += keys;
    }

    /// Its trees were compared with another node's.
    pub fn set_compared(&mut self, first: u16, with: NodeId, now: Monotonic) {
        self.of(first).compared = Some((now, with));
    }

    /// An exchange has found so many keys to differ.
    pub fn add_differed(&mut self, first: u16, keys: u64) {
        self.of(first).differed += keys;
    }

    /// One of them was read.
    pub fn add_repaired(&mut self, first: u16) {
        self.of(first).repaired += 1;
    }

    /// The status of a partition as far as it is noted here.
    pub fn status(&self, first: u16, partition: Partition, now: Monotonic) -> TreesStatus {
        let default = Note::default();
        let note = self.0.get(&first).unwrap_or(&default);
        TreesStatus {
            partition,
            is_whole: false,
            is_due: false,
            keys: 0,
            made: note.made.map(|(at, _)| now.since(at)),
            check: note.made.map(|(_, check)| check),
            others: note.others,
            damaged: note.damaged,
            is_comparing: false,
            compared: note.compared.map(|(at, with)| (now.since(at), with)),
            differed: note.differed,
            repaired: note.repaired,
        }
    }
}
