//! Entries of groups that are not applied, and how far each group is.
//!
//! A pure machine: a store drives it when it writes, and a start when it replays what was written. Both go by the same
//! rules, so a start ends with what the store had.
//!
//! Rules for an entry of index `i`
//! 1. If there is one at `i` with the same term, it goes in its place alone.
//! 2. If there is one of another term, it and all above go: their leader's log has lost. The record says so
//!    ([`FLAG_REPLACES`](crate::journal::record::FLAG_REPLACES)), since a start may not have read what it replaces.
//! 3. An entry up to the last one applied is none, but replaces all the same.
//!
//! Invariants
//! * Indexes of a running store's entries follow one another from the last one applied on. A start may find gaps, where
//!   something was lost; [`Stash::settle`] drops what stands behind one, and the group is suspect.
//! * A group of which something is lost is suspect up to the highest index that is known of it, until its entries reach
//!   that again.
//!
//! Left out: bounds of one group, which are the owner's.

use super::record::StateHead;
use super::{FoundContents, FoundEntry, FoundGroup, GroupNumber, LogPlace};
use crate::compaction::DeadRecord;
use crate::entry::{Jsn, Seq};
use crate::journal::record::padded_len;
use crate::journal::segment::Position;
use base::FastMap;
use bytes::Bytes;
use std::collections::BTreeMap;

/// An entry that is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stashed {
    pub term: u64,
    pub jsn: Jsn,
    /// Where its record stands, and the length of that.
    pub at: Position,
    pub len: u32,
    /// Whether its value is to be kept in the ledger.
    pub is_inline: bool,
    pub contents: FoundContents,
}

impl Stashed {
    /// Its record in the account of its segment, once it is of no use: none if it is log only.
    fn dead(&self) -> Option<DeadRecord> {
        let bytes = u32::try_from(padded_len(self.len as usize)).unwrap_or(u32::MAX);
        self.has_value().then_some(DeadRecord { jsn: self.jsn, bytes })
    }

    /// Whether the ledger would point at its record.
    pub fn has_value(&self) -> bool {
        !self.is_inline && matches!(self.contents, FoundContents::Put { .. })
    }

    /// Its bytes in memory, about.
    pub fn bytes(&self) -> usize {
        bytes_of(&self.contents)
    }
}

/// Bytes of an entry in memory, about.
fn bytes_of(contents: &FoundContents) -> usize {
    let len = match contents {
        FoundContents::Put { key, head, value } => key.len() + head.len() + value.len(),
        FoundContents::Other(bytes) => bytes.len(),
    };
    len + size_of::<Stashed>()
}

/// The state of a group, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// The owner's state.
    pub state: Option<Bytes>,
    pub applied: LogPlace,
    pub commit: u64,
    /// The highest index that may have been acknowledged of what is missing.
    pub suspect_through: Option<u64>,
    pub entries: BTreeMap<u64, Stashed>,
    /// Entries behind a gap were dropped: the next one that is written says that they are gone.
    pub has_dropped: bool,
    /// The last mark since the ledger has got the group's state.
    pub marked: Option<(Jsn, Seq)>,
}

impl Group {
    fn new() -> Group {
        let applied = LogPlace::FOUNDED;
        Group {
            state: None,
            applied,
            commit: applied.index,
            suspect_through: None,
            entries: BTreeMap::new(),
            has_dropped: false,
            marked: None,
        }
    }

    /// The head of the state's ledger entry.
    pub fn head(&self, installed: bool) -> Vec<u8> {
        let (applied, commit, state) = (self.applied, self.commit, self.state.as_deref().unwrap_or_default());
        let suspect_through = self.suspect_through.unwrap_or(0);
        StateHead { installed, applied, commit, suspect_through, state }.encode()
    }

    /// The index of the last entry.
    pub fn last(&self) -> u64 {
        self.entries.last_key_value().map_or(self.applied.index, |(&index, _)| index)
    }

    /// The term of an entry that is not applied.
    pub fn term_at(&self, index: u64) -> Option<u64> {
        self.entries.get(&index).map(|entry| entry.term)
    }

    /// The highest index up to which entries follow one another.
    fn reach(&self) -> u64 {
        let following = (self.applied.index + 1..).zip(self.entries.keys());
        let count = following.take_while(|(expected, index)| expected == *index).count();
        self.applied.index + count as u64
    }

    /// Where the entries have reached what may have been acknowledged, nothing of that is missing any more.
    fn clear_suspicion(&mut self) {
        if self.suspect_through.is_some_and(|through| self.reach() >= through) {
            self.suspect_through = None;
        }
    }

    /// Something up to `index` was lost.
    fn suspect(&mut self, index: u64) {
        self.suspect_through = self.suspect_through.max(Some(index.max(self.last()).max(self.commit)));
    }
}

/// The entries of all groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stash {
    groups: FastMap<GroupNumber, Group>,
    bytes: usize,
    /// Records that are of no use any more, as of the last call of [`Stash::take_dead`].
    dead: Vec<DeadRecord>,
}

impl Stash {
    /// The state of a group, as far as it is known.
    pub fn get(&self, group: GroupNumber) -> Option<&Group> {
        self.groups.get(&group)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.groups.values().map(|known| known.entries.len()).sum()
    }

    /// Bytes of all entries in memory, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the entries that one of this place will replace.
    pub fn bytes_from(&self, group: GroupNumber, place: LogPlace) -> usize {
        let Some(known) = self.groups.get(&group) else { return 0 };
        match known.entries.get(&place.index) {
            Some(same) if same.term == place.term => same.bytes(),
            _ => known.entries.range(place.index..).map(|(_, entry)| entry.bytes()).sum(),
        }
    }

    fn group(&mut self, group: GroupNumber) -> &mut Group {
        self.groups.entry(group).or_insert_with(Group::new)
    }

    /// Takes the ledger's state of a group.
    pub fn know(&mut self, group: GroupNumber, head: &StateHead<'_>) {
        let known = self.group(group);
        known.state = Some(Bytes::copy_from_slice(head.state));
        (known.applied, known.commit) = (head.applied, head.commit);
        known.suspect_through = (head.suspect_through > head.applied.index).then_some(head.suspect_through);
    }

    /// A state that is written: with it the ledger has how far the group is.
    pub fn set_state(&mut self, group: GroupNumber, state: &[u8]) {
        let known = self.group(group);
        known.state = Some(Bytes::copy_from_slice(state));
        known.marked = None;
    }

    /// Entries up to `commit` are known to be committed.
    pub fn note_commit(&mut self, group: GroupNumber, commit: u64) {
        let known = self.group(group);
        known.commit = known.commit.max(commit);
    }

    /// A snapshot up to `place` takes the place of all entries.
    pub fn install(&mut self, group: GroupNumber, place: LogPlace) {
        self.drop_from(group, 0);
        let known = self.group(group);
        (known.applied, known.commit) = (place, place.index);
        known.suspect_through = known.suspect_through.filter(|&through| through > place.index);
    }

    /// Whether an entry that is written at this place replaces all from there on.
    pub fn replaces(&self, group: GroupNumber, place: LogPlace) -> bool {
        self.groups.get(&group).is_some_and(|known| {
            let is_other = |old: &Stashed| old.term != place.term;
            known.has_dropped || known.entries.get(&place.index).is_some_and(is_other)
        })
    }

    /// An entry that is written.
    pub fn push(&mut self, group: GroupNumber, index: u64, replaces: bool, entry: Stashed) {
        match replaces && !base::planted!(ConflictKept) {
            true => self.drop_from(group, index),
            false => self.drop_one(group, index),
        }
        let known = self.group(group);
        if index <= known.applied.index {
            self.dead.extend(entry.dead());
            return;
        }
        self.bytes += entry.bytes();
        let known = self.group(group);
        known.has_dropped &= !replaces;
        known.entries.insert(index, entry);
        known.clear_suspicion();
    }

    /// The record of an entry is damaged: what it replaced is gone, and so is it.
    pub fn lose(&mut self, group: GroupNumber, index: u64, replaces: bool) {
        let known = self.group(group);
        if index > known.applied.index {
            known.suspect(index);
        }
        if replaces { self.drop_from(group, index) } else { self.drop_one(group, index) }
    }

    /// Records are lost of which is not known what they were: entries, and what they replaced. Nobody can say which of
    /// the entries so far still count, so all are dropped.
    pub fn lose_all(&mut self) {
        let with_entries = self.groups.iter().filter(|(_, known)| !known.entries.is_empty());
        let numbers: Vec<GroupNumber> = with_entries.map(|(&number, _)| number).collect();
        for number in numbers {
            let known = self.group(number);
            known.suspect(known.applied.index);
            self.drop_from(number, 0);
            self.group(number).has_dropped = true;
        }
    }

    /// A commit mark of the group is lost, or speaks of what is not here: it may be behind what its owner knew.
    pub fn lose_mark(&mut self, group: GroupNumber, through: u64) {
        self.group(group).suspect(through);
    }

    /// The same of a mark of which is not known what groups it is of.
    pub fn lose_any_mark(&mut self) {
        self.groups.values_mut().filter(|known| !known.entries.is_empty()).for_each(|known| {
            let last = known.last();
            known.suspect(last);
        });
    }

    /// Takes an entry that is now applied: the one after the last. `None` if it is not here.
    pub fn apply_next(&mut self, group: GroupNumber) -> Option<(u64, Stashed)> {
        let known = self.groups.get_mut(&group)?;
        let index = known.applied.index + 1;
        let entry = known.entries.remove(&index)?;
        known.applied = LogPlace { index, term: entry.term };
        known.commit = known.commit.max(index);
        self.bytes -= entry.bytes();
        Some((index, entry))
    }

    /// An applied entry whose record is of no use: it is no version.
    pub fn bury(&mut self, entry: &Stashed) {
        self.dead.extend(entry.dead());
    }

    /// All entries of a group so far are gone, for a reason that was known before.
    pub fn clear(&mut self, group: GroupNumber) {
        match self.groups.get(&group).map(|known| known.state.is_some()) {
            Some(true) => {
                self.drop_from(group, 0);
                let known = self.group(group);
                known.commit = known.applied.index;
            }
            Some(false) => self.remove(group),
            None => {}
        }
    }

    /// The last mark of a group.
    pub fn note_mark(&mut self, group: GroupNumber, jsn: Jsn, seq: Seq) {
        self.group(group).marked = Some((jsn, seq));
    }

    /// The heads of the states of suspect groups, in order, to be written: with them the ledger has their progress.
    pub fn take_suspect_heads(&mut self) -> Vec<(GroupNumber, Vec<u8>)> {
        let is_suspect = |known: &Group| known.suspect_through.is_some() && known.state.is_some();
        let suspect = self.groups.iter_mut().filter(|(_, known)| is_suspect(known));
        let mut heads: Vec<(GroupNumber, Vec<u8>)> = suspect
            .map(|(&group, known)| {
                known.marked = None;
                (group, known.head(false))
            })
            .collect();
        heads.sort_unstable_by_key(|(group, _)| *group);
        heads
    }

    /// Removes all that is known of a group.
    pub fn remove(&mut self, group: GroupNumber) {
        if self.groups.contains_key(&group) {
            self.drop_from(group, 0);
            self.groups.remove(&group);
        }
    }

    /// Groups whose state the ledger does not have as of their last mark; from now on it does.
    pub fn take_marked(&mut self) -> Vec<(GroupNumber, Jsn, Seq)> {
        let take = |(&group, known): (&GroupNumber, &mut Group)| {
            known.marked.take().map(|(jsn, seq)| (group, jsn, seq))
        };
        self.groups.iter_mut().filter_map(take).collect()
    }

    /// The group whose entry was written first, and where that is.
    pub fn oldest(&self) -> Option<(GroupNumber, Position, Jsn)> {
        let entries =
            self.groups.iter().flat_map(|(&group, known)| known.entries.values().map(move |e| (group, e)));
        entries.map(|(group, entry)| (group, entry.at, entry.jsn)).min_by_key(|(_, _, jsn)| *jsn)
    }

    /// Records that have become of no use since the last call.
    pub fn take_dead(&mut self) -> Vec<DeadRecord> {
        std::mem::take(&mut self.dead)
    }

    /// Ends a replay: drops entries behind gaps, and returns the groups.
    pub fn settle(&mut self) -> Vec<FoundGroup> {
        let mut numbers: Vec<GroupNumber> = self.groups.keys().copied().collect();
        numbers.sort_unstable();
        for &number in &numbers {
            let known = self.group(number);
            // A mark may have been found behind the damage that made it suspect.
            known.clear_suspicion();
            if known.entries.is_empty() {
                // Most groups: nothing can be dropped.
                if known.commit > known.applied.index || known.state.is_none() {
                    known.suspect(known.applied.index);
                }
                known.has_dropped = false;
                continue;
            }
            let (reach, last) = (known.reach(), known.last());
            let entries = known.entries.range(..=reach).map(|(_, entry)| entry.term);
            let is_ordered =
                entries.clone().is_sorted() && entries.min().is_none_or(|t| t >= known.applied.term);
            if reach < last || known.commit > reach || known.state.is_none() || !is_ordered {
                known.suspect(last);
            }
            let (from, is_whole) = (if is_ordered { reach + 1 } else { 0 }, is_ordered && reach == last);
            self.drop_from(number, from);
            self.group(number).has_dropped = !is_whole;
        }
        numbers.into_iter().map(|number| self.found(number)).collect()
    }

    /// A group that is here, as an owner finds it.
    pub fn found(&self, group: GroupNumber) -> FoundGroup {
        let known = &self.groups[&group];
        let found = |(&index, entry): (&u64, &Stashed)| FoundEntry {
            place: LogPlace { index, term: entry.term },
            contents: entry.contents.clone(),
        };
        FoundGroup {
            group,
            state: known.state.clone(),
            applied: known.applied,
            commit: known.commit,
            entries: known.entries.iter().map(found).collect(),
            suspect_through: known.suspect_through,
        }
    }

    fn drop_one(&mut self, group: GroupNumber, index: u64) {
        if let Some(old) = self.group(group).entries.remove(&index) {
            self.bytes -= old.bytes();
            self.dead.extend(old.dead());
        }
    }

    fn drop_from(&mut self, group: GroupNumber, index: u64) {
        for (_, old) in self.group(group).entries.split_off(&index) {
            self.bytes -= old.bytes();
            self.dead.extend(old.dead());
        }
    }
}
