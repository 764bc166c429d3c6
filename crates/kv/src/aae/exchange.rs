//! How the keys are found that two nodes hold differently, of one tree.
//!
//! 1. *Branches*: the other is told the hashes of all groups of [`BRANCH_BITS`] bits, and answers which differ there.
//! 2. *Segments*: the same of what is under those, as fine as both trees tell apart.
//! 3. *Confirmation*: after a pause they are compared once more. A write is not at all replicas at the same moment;
//!    what differs both times is worth looking at.
//! 4. *Crossings*: of the columns in which the keys of those segments can be, the other tells which differ. A key that
//!    differs is where a row and a column cross that do.
//! 5. *Keys*: both nodes look for the keys there, with the hashes of their heads, page by page. If none of them
//!    differs, or the crossings are too many, for all keys of the segments.
//! 6. Those that differ are to be repaired, page by page too. Then it is over.
//!
//! Invariants: what the other answers is believed only of what it was asked; every list has a bound, and what is left
//! out is found by a later exchange.

use super::tree::{CROSS_BITS, across};
use super::{Axis, Grouping, Tree, TreeAsk, TreeId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Roots in one question: some forty kilobytes.
pub const ROOTS_MAX: usize = 4096;

/// The bits of a branch: a thousand of them are told in eight kilobytes.
const BRANCH_BITS: u32 = 10;

/// Branches that are looked into in one exchange: with a thousand segments each 128 kilobytes.
const BRANCHES_MAX: usize = 16;

/// Segments of one exchange: as many as a fold finds for little more than a look into each table.
pub const SEGMENTS_MAX: usize = 128;

/// Keys on a page: as many as the segments of one exchange mostly have.
pub const KEYS_MAX: usize = 1024;

/// How long what differs may take to become equal by itself: a write on its way to a replica.
pub const CONFIRM_AFTER: Duration = Duration::from_millis(500);

/// A ledger key and the hash of its head.
pub type KeyHash = (Bytes, u32);

/// Some of the keys that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// Ascending.
    pub keys: Vec<KeyHash>,
    /// Where to go on; `None` if there are no more.
    pub next: Option<Bytes>,
}

/// The keys that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Of how many segments: 2^`bits`.
    pub bits: u32,
    /// Which of them.
    pub segments: Vec<u32>,
    /// From this key on.
    pub from: Option<Bytes>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// It begins.
    Start,
    /// The other node's answer to groups.
    Groups {
        /// The bits that its tree tells apart.
        bits: u32,
        /// The groups that differ.
        differ: Vec<u32>,
    },
    /// The pause is over.
    Resumed,
    /// The keys that the other node has.
    Theirs(KeyPage),
    /// The keys that this node has.
    Ours(KeyPage),
    /// What was to be repaired is.
    Repaired,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Nothing for now.
    Wait,
    /// Ask the other node.
    Ask(TreeAsk),
    /// Go on after [`CONFIRM_AFTER`].
    Pause,
    /// Look for these keys here, and ask the other node for the same.
    Keys(Range),
    /// Read these keys, so that their replicas are repaired.
    Repair(Vec<Bytes>),
    /// It is over.
    Over(Outcome),
}

/// What has come of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Segments that differed, and did so after a pause.
    pub segments: usize,
    /// Keys that differed.
    pub keys: u64,
}

/// An exchange under way.
#[derive(Debug)]
pub struct Exchange {
    tree: TreeId,
    phase: Phase,
    outcome: Outcome,
    /// The segments of which only crossings are looked at.
    uncrossed: Option<Range>,
}

#[derive(Debug)]
enum Phase {
    Branches,
    Segments { bits: u32, asked: BTreeSet<u32> },
    Pausing { bits: u32, segments: Vec<u32> },
    Confirming { bits: u32, segments: Vec<u32> },
    Crossing { bits: u32, segments: Vec<u32>, asked: BTreeSet<u32> },
    Keys { range: Range, ours: Option<KeyPage>, theirs: Option<KeyPage> },
    Repairing { range: Option<Range> },
}

impl Exchange {
    /// One about this tree.
    pub fn new(tree: TreeId) -> Exchange {
        Exchange { tree, phase: Phase::Branches, outcome: Outcome::default(), uncrossed: None }
    }

    /// What it is about.
    pub fn tree(&self) -> TreeId {
        self.tree
    }

    /// Takes what happened, with this node's tree as it is now, and says what to do next. What does not belong to what
    /// it waits for is left alone.
    pub fn step(&mut self, input: Input, tree: &Tree) -> Output {
        let output = self.advance(input, tree);

        if cfg!(debug_assertions) {
            self.invariants();
        }
        output
    }

    /// Asserts relations that hold after each step.
    pub fn invariants(&self) {
        let Outcome { segments: differing, keys } = self.outcome;
        debug_assert!(keys == 0 || differing > 0, "a key that differs is in a segment that does");
        match &self.phase {
            Phase::Pausing { segments, .. } | Phase::Confirming { segments, .. } => {
                let is_bounded = (1..=SEGMENTS_MAX).contains(&segments.len());
                debug_assert!(is_bounded, "the segments of an exchange are bounded");
            }
            Phase::Crossing { segments, asked, .. } => {
                debug_assert_eq!(segments.len(), differing, "the segments confirmed are looked into");
                let columns = segments.len() << CROSS_BITS;
                debug_assert!(asked.len() <= columns, "a segment has its columns, and some share them");
            }
            Phase::Keys { range, ours, theirs } => {
                debug_assert!(
                    ours.is_none() || theirs.is_none(),
                    "two pages are compared when both are here"
                );
                let is_finer = |whole: &Range| range.bits == whole.bits + CROSS_BITS;
                let is_crossing = self.uncrossed.as_ref().is_none_or(is_finer);
                debug_assert!(is_crossing, "crossings are finer than the segments that wait");
            }
            Phase::Branches | Phase::Segments { .. } | Phase::Repairing { .. } => {}
        }
    }

    fn advance(&mut self, input: Input, tree: &Tree) -> Output {
        let phase = std::mem::replace(&mut self.phase, Phase::Branches);
        match (phase, input) {
            (Phase::Branches, Input::Start) => {
                let bits = BRANCH_BITS.min(tree.bits());
                self.ask(bits, tree.groups(0, 0, bits))
            }
            (Phase::Branches, Input::Groups { bits, differ }) => self.on_branches(bits, differ, tree),
            (Phase::Segments { bits, asked }, Input::Groups { differ, .. }) => {
                let mut segments: Vec<u32> = differ.into_iter().filter(|it| asked.contains(it)).collect();
                segments.truncate(SEGMENTS_MAX);
                self.pause(bits, segments)
            }
            (Phase::Pausing { bits, segments }, Input::Resumed) => {
                let groups = segments.iter().map(|&number| (number, tree.group(number, bits))).collect();
                self.phase = Phase::Confirming { bits, segments };
                self.ask(bits, groups)
            }
            (Phase::Confirming { bits, segments }, Input::Groups { differ, .. }) => {
                let differ: BTreeSet<u32> = differ.into_iter().collect();
                let segments: Vec<u32> = segments.into_iter().filter(|it| differ.contains(it)).collect();
                self.outcome.segments = segments.len();
                match segments.is_empty() {
                    true => Output::Over(self.outcome),
                    false => self.ask_columns(bits, segments, tree),
                }
            }
            (Phase::Crossing { bits, segments, asked }, Input::Groups { differ, .. }) => {
                let columns = differ.into_iter().filter(|it| asked.contains(it)).collect();
                self.on_columns(bits, segments, &columns)
            }
            (Phase::Keys { range, theirs, .. }, Input::Ours(page)) => self.on_page(range, Some(page), theirs),
            (Phase::Keys { range, ours, .. }, Input::Theirs(page)) => self.on_page(range, ours, Some(page)),
            (Phase::Repairing { range }, Input::Repaired) => self.look_on(range),
            (phase, _) => {
                self.phase = phase;
                Output::Wait
            }
        }
    }

    fn ask(&self, bits: u32, groups: Vec<(u32, u32)>) -> Output {
        Output::Ask(TreeAsk::Groups { tree: self.tree, by: Grouping { axis: Axis::Rows, bits }, groups })
    }

    fn on_branches(&mut self, theirs: u32, differ: Vec<u32>, tree: &Tree) -> Output {
        let branch_bits = BRANCH_BITS.min(tree.bits()).min(theirs);
        // Where the other tells fewer apart than it was asked for, it says so, and they are asked for once more.
        if branch_bits < BRANCH_BITS.min(tree.bits()) && branch_bits >= super::BITS_MIN {
            let asked = tree.groups(0, 0, branch_bits);
            self.phase = Phase::Segments { bits: branch_bits, asked: asked.iter().map(|it| it.0).collect() };
            return self.ask(branch_bits, asked);
        }
        let mut differ: Vec<u32> =
            differ.into_iter().filter(|&it| u64::from(it) < 1 << branch_bits).collect();
        differ.sort_unstable();
        differ.dedup();
        let bits = tree.bits().min(theirs);
        if bits <= branch_bits || differ.is_empty() {
            differ.truncate(SEGMENTS_MAX);
            return self.pause(branch_bits, differ);
        }
        differ.truncate(BRANCHES_MAX);
        let groups: Vec<(u32, u32)> =
            differ.into_iter().flat_map(|branch| tree.groups(branch, branch_bits, bits)).collect();
        self.phase = Phase::Segments { bits, asked: groups.iter().map(|it| it.0).collect() };
        self.ask(bits, groups)
    }

    fn pause(&mut self, bits: u32, segments: Vec<u32>) -> Output {
        if segments.is_empty() {
            return Output::Over(self.outcome);
        }
        self.phase = Phase::Pausing { bits, segments };
        Output::Pause
    }

    fn ask_columns(&mut self, bits: u32, segments: Vec<u32>, tree: &Tree) -> Output {
        let by = Grouping { axis: Axis::Columns, bits };
        let columns = segments.iter().flat_map(|&row| across(row, bits)).map(|(column, _)| column);
        let asked: BTreeSet<u32> = columns.collect();
        let groups = asked.iter().map(|&column| (column, tree.group_by(by, column))).collect();
        self.phase = Phase::Crossing { bits, segments, asked };
        Output::Ask(TreeAsk::Groups { tree: self.tree, by, groups })
    }

    /// Where nearly all of them cross much differs: then it is all looked at.
    fn on_columns(&mut self, bits: u32, segments: Vec<u32>, columns: &BTreeSet<u32>) -> Output {
        let all = segments.iter().flat_map(|&row| across(row, bits));
        let crossings: Vec<u32> =
            all.filter(|(column, _)| columns.contains(column)).map(|(_, crossing)| crossing).collect();
        let whole = Range { bits, segments, from: None };
        if crossings.is_empty() || crossings.len() > SEGMENTS_MAX {
            return self.look_for_keys(whole);
        }
        self.uncrossed = Some(whole);
        self.look_for_keys(Range { bits: bits + CROSS_BITS, segments: crossings, from: None })
    }

    /// Goes on with the keys that are left. Where crossings have none that differ, differences cancel each other there,
    /// or a tree is wrong.
    fn look_on(&mut self, range: Option<Range>) -> Output {
        let nothing_found = self.outcome.keys == 0;
        match range.or_else(|| self.uncrossed.take().filter(|_| nothing_found)) {
            Some(range) => self.look_for_keys(range),
            None => Output::Over(self.outcome),
        }
    }

    fn look_for_keys(&mut self, range: Range) -> Output {
        self.phase = Phase::Keys { range: range.clone(), ours: None, theirs: None };
        Output::Keys(range)
    }

    fn on_page(&mut self, range: Range, ours: Option<KeyPage>, theirs: Option<KeyPage>) -> Output {
        let (Some(ours), Some(theirs)) = (&ours, &theirs) else {
            self.phase = Phase::Keys { range, ours, theirs };
            return Output::Wait;
        };
        // Up to where both have looked.
        let next = match (&ours.next, &theirs.next) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.as_ref().or(other.as_ref()),
        };
        // A page that does not come any further ends it.
        let next = next.filter(|next| range.from.as_ref().is_none_or(|from| *next > from)).cloned();
        let differ = differing(ours, theirs, next.as_ref());
        let range = next.map(|next| Range { from: Some(next), ..range });
        if differ.is_empty() {
            return self.look_on(range);
        }
        self.outcome.keys += differ.len() as u64;
        self.phase = Phase::Repairing { range };
        Output::Repair(differ)
    }
}

/// The keys before `end` that only one of the two has, or with another hash.
fn differing(ours: &KeyPage, theirs: &KeyPage, end: Option<&Bytes>) -> Vec<Bytes> {
    let is_in = |key: &&KeyHash| end.is_none_or(|end| key.0 < *end);
    let mut differ: BTreeMap<&Bytes, u32> =
        ours.keys.iter().filter(is_in).map(|(key, hash)| (key, *hash)).collect();
    for (key, hash) in theirs.keys.iter().filter(is_in) {
        match differ.get(key) {
            Some(ours) if ours == hash => drop(differ.remove(key)),
            _ => drop(differ.insert(key, *hash)),
        }
    }
    differ.into_keys().cloned().collect()
}

#[cfg(test)]
mod tests;
