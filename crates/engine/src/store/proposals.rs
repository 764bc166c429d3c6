//! Entries of consistent groups ([`crate::proposals`]): proposed, and applied when they are committed.
//!
//! 1. A batch of a group: its state, which is a put, and its entries, one record each. They are synced when the turn
//!    ends.
//! 2. Entries that are applied: one commit mark for all. Their keys get versions, which the ledger has of the entries'
//!    own records; it has no state of the group until its memtable is put aside, or the next state is written.
//! 3. When a segment begins, entries in one that is two or more behind are appended again, with all of their group
//!    above them, so that what keeps segments from compaction is bounded.
//! 4. At the end of an open, the states of suspect groups are written: the damage may not be found again.
//!
//! Entries that are not applied are in memory as well.

use super::room::Brings;
use super::write::within;
use super::{Store, Write};
use crate::compaction::DeadRecord;
use crate::entry::{
    ENTRY_PREFIX_BYTES_MAX, Entry, HEAD_BYTES_MAX, Jsn, KEY_BYTES_MAX, Location, Seq, VALUE_BYTES_MAX,
    WrittenAt,
};
use crate::error::Error;
use crate::journal::record::{self, Kind};
use crate::journal::segment::Position;
use crate::manifest::{GroupsRecord, JournalPosition};
use crate::memtable::{self, Memtable};
use crate::proposals::record::{MarkedRange, PROPOSED_HEAD_BYTES, ProposedHead, put_mark, state_key};
use crate::proposals::stash::{Stash, Stashed};
use crate::proposals::{
    AppliedRange, Contents, FoundContents, FoundGroup, GroupBatch, GroupKeys, GroupNumber, LogPlace,
    PROPOSALS_BYTES_MAX, STATE_BYTES_MAX,
};
use bytes::Bytes;
use std::collections::BTreeSet;

/// Without a tag of states the store takes none.
const NO_GROUPS: Error = Error::Refused("an entry of a consistent group, in a store that keeps none");

/// It is not known which records were lost.
pub(super) const LOST_ANYWHERE: Jsn = Jsn(u64::MAX);

/// Entries are appended again once so many segments are newer than theirs.
const NEWER_SEGMENTS_MAX: usize = 2;

/// Bytes of a state's head beside the owner's part, at most.
const STATE_HEAD_BYTES_MAX: usize = 64;

/// The consistent groups of a store.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Whether entries are taken.
    pub(super) takes: bool,
    /// The first byte of the keys of states, if it is known.
    pub(super) state_tag: Option<u8>,
    pub(super) stash: Stash,
    /// Whether there ever was a group.
    pub(super) is_used: bool,
    /// States or entries may have been lost without a trace, in records below this number.
    pub(super) lost_before: Option<Jsn>,
    /// The groups that the open found, until they are taken.
    pub(super) found: Vec<FoundGroup>,
    /// A segment has begun since it was seen to that no entry is too old.
    pub(super) may_have_old: bool,
}

impl Groups {
    /// The groups before the journal is read.
    ///
    /// # Errors
    /// [`Error::Refused`] if the store keeps states under another tag.
    pub(super) fn new(keys: Option<GroupKeys>, known: Option<&GroupsRecord>) -> Result<Groups, Error> {
        let (told, known_tag) = (keys.map(|keys| keys.state_tag), known.and_then(|known| known.state_tag));
        if told.is_some_and(|told| known_tag.is_some_and(|known| known != told)) {
            return Err(Error::Refused("another tag for states of groups than the store has"));
        }
        Ok(Groups {
            takes: told.is_some(),
            state_tag: told.or(known_tag),
            is_used: known.is_some(),
            lost_before: known.is_some_and(|known| known.may_be_lost).then_some(LOST_ANYWHERE),
            may_have_old: true,
            ..Groups::default()
        })
    }

    /// Notes that states or entries may have been lost in records below a number.
    pub(super) fn note_lost(&mut self, before: Jsn) {
        self.lost_before = self.lost_before.max(Some(before));
    }

    /// The entry that was written first, of those that are not applied.
    pub(super) fn oldest(&self) -> Option<(JournalPosition, Jsn)> {
        self.stash.oldest().map(|(_, at, jsn)| (super::maintenance::position(at), jsn))
    }

    /// Fills in the fields of the manifest.
    pub(super) fn describe(&self, record: &mut Option<GroupsRecord>) {
        if self.is_used {
            let record = record.get_or_insert_default();
            (record.state_tag, record.may_be_lost) = (self.state_tag, self.lost_before.is_some());
        }
    }

    /// Enters the states of all groups whose marks a memtable has that is put aside: what it makes of keys, and how far
    /// their groups are, must come into tables together.
    pub(super) fn enter_states(&mut self, memtable: &mut Memtable) {
        let Some(tag) = self.state_tag else { return };
        for (group, jsn, seq) in self.stash.take_marked() {
            if base::planted!(FrozenWithoutGroupState) {
                continue;
            }
            let head = self.stash.get(group).map(|known| known.head(false)).unwrap_or_default();
            let entry = Entry { jsn, location: Location::Inline, head: &head, inline: b"", expires_ms: None };
            let mut bytes = Vec::with_capacity(ENTRY_PREFIX_BYTES_MAX + head.len());
            entry.encode(&mut bytes);
            memtable.insert(&state_key(tag, group), seq.0, &[&bytes]);
        }
    }

    /// The same for a memtable that has nothing else: without an entry it would never be put aside.
    pub(super) fn enter_states_if_alone(&mut self, memtable: &mut Memtable) {
        if memtable.is_empty() {
            self.enter_states(memtable);
        }
    }
}

impl Store {
    /// Appends a batch of a group, to be synced at the end of the turn; tells the number of its last record. It is safe
    /// once [`Store::synced_jsn`] is above that.
    ///
    /// # Errors
    /// As for [`Store::write`]; [`Error::Full`] if too much is unapplied, unless no entry has a key;
    /// [`Error::Refused`] if the store keeps no groups.
    pub fn propose(&mut self, batch: &GroupBatch<'_>) -> Result<Jsn, Error> {
        let Some(tag) =
            self.groups.as_ref().filter(|groups| groups.takes).and_then(|groups| groups.state_tag)
        else {
            return Err(NO_GROUPS);
        };
        let bytes = check_limits(batch)?;
        let is_value = batch.entries.iter().any(|entry| has_value(&entry.contents));
        if self.options.heads_only && is_value {
            return Err(Error::Refused("a value in a store of heads only"));
        }
        self.check_unapplied(batch)?;
        let brings = if is_value { Brings::Values } else { Brings::Heads };
        self.begin_records(brings, bytes)?;

        let groups = self.groups.as_mut().expect("just looked");
        groups.is_used = true;
        if let Some(place) = batch.install {
            assert!(batch.state.is_some(), "what is installed has a state");
            groups.stash.install(batch.group, place);
        }
        groups.stash.note_commit(batch.group, batch.commit);
        if let Some(state) = batch.state {
            groups.stash.set_state(batch.group, state);
            let known = groups.stash.get(batch.group).expect("just set");
            let head = known.head(batch.install.is_some());
            let more = if batch.entries.is_empty() { 0 } else { record::FLAG_MORE };
            self.put(&state_key(tag, batch.group), &head, &[], None, more);
        }
        self.append_entries(batch);
        self.writer.want_sync();
        self.freeze_if_full();
        Ok(Jsn(self.writer.next_jsn().0 - 1))
    }

    fn append_entries(&mut self, batch: &GroupBatch<'_>) {
        let last = batch.entries.len().saturating_sub(1);
        for (number, entry) in batch.entries.iter().enumerate() {
            let (group, place) = (batch.group, entry.place);
            let known = self.groups.as_ref().and_then(|groups| groups.stash.get(group));
            let known = known.expect("a group's first batch has its state");
            assert!(known.state.is_some(), "a group's first batch has its state");
            let (applied, last_index) = (known.applied.index, known.last());
            assert!(
                (applied + 1..=last_index + 1).contains(&place.index),
                "entry {} comes behind {applied} and up to one behind {last_index}",
                place.index
            );
            let head = ProposedHead { group, place, commit: known.commit };
            let more = if number < last { record::FLAG_MORE } else { 0 };
            let replaces = self.groups.as_ref().is_some_and(|groups| groups.stash.replaces(group, place));
            let flags = more | if replaces { record::FLAG_REPLACES } else { 0 };
            let stashed = self.append_entry(&head, &entry.contents, flags);
            let groups = self.groups.as_mut().expect("just looked");
            groups.stash.push(group, place.index, replaces, stashed);
        }
    }

    /// The record of an entry.
    fn append_entry(&mut self, head: &ProposedHead, contents: &Contents<'_>, flags: u8) -> Stashed {
        let (key, own_head, value): (&[u8], &[u8], &[&[u8]]) = match contents {
            Contents::Put { key, head, value } => (key, head, value),
            Contents::Other(bytes) => (b"", b"", std::slice::from_ref(bytes)),
        };
        let value_len: usize = value.iter().map(|part| part.len()).sum();
        self.counters.user_bytes += (key.len() + own_head.len() + value_len) as u64;
        self.counters.proposals += 1;
        let is_inline = key.is_empty() || value_len <= self.options.inline_value_bytes_max;
        let packed = match &mut self.compressor {
            Some(compressor) if !is_inline => compressor.on_receipt(value, value_len),
            _ => None,
        };
        let (flag, stored) = packed.unzip();
        if let Some(stored) = stored {
            self.counters.compressed.count(value_len, stored.len());
        }
        let stored = stored.as_ref().map_or(value, std::slice::from_ref);
        let flags = flags | flag.unwrap_or(0) | if is_inline { record::FLAG_INLINE } else { 0 };
        let record_head = [&head.encode()[..], own_head].concat();
        let at = self.writer.append_taking(0, Kind::Proposed, flags, key, &record_head, stored);
        self.writer.count(at);
        let (offset, len) = (at.offset, at.len);
        let location = if is_inline { Location::Inline } else { Location::Journal { offset, len } };
        self.accounts.count(location, len);
        let contents = match contents {
            Contents::Put { key, head, value } => FoundContents::Put {
                key: Bytes::copy_from_slice(key),
                head: Bytes::copy_from_slice(head),
                value: value.concat().into(),
            },
            Contents::Other(bytes) => FoundContents::Other(Bytes::copy_from_slice(bytes)),
        };
        let (jsn, term) = (at.jsn, head.place.term);
        let at = Position { segment: self.writer.active().0, offset: offset.into() };
        Stashed { term, jsn, at, len, is_inline, contents }
    }

    /// Applies entries that are committed, and tells the version of the last one; `None` if there are none. Later
    /// lookups see them at once. Each group is named once.
    ///
    /// # Errors
    /// As for [`Store::write`]; then nothing is applied, and it can be tried again.
    pub fn apply_proposals(&mut self, applied: &[AppliedRange<'_>]) -> Result<Option<Seq>, Error> {
        let Some(groups) = self.groups.as_ref().filter(|groups| groups.takes) else { return Err(NO_GROUPS) };
        let ranges = ranges_of(&groups.stash, applied);
        if ranges.is_empty() {
            return Ok(None);
        }
        let count = ranges.iter().map(MarkedRange::count).sum();
        let mut mark = Vec::new();
        put_mark(&mut mark, &ranges);
        within("a commit mark", mark.len(), VALUE_BYTES_MAX)?;
        // What is applied takes room in tables, as the heads of other batches do; its values are there already.
        self.begin_records(Brings::Heads, record::RECORD_OVERHEAD_BYTES_MAX + mark.len())?;
        let at = self.writer.append_taking(count, Kind::CommitMark, 0, b"", b"", &[&mark]);
        self.writer.count(at);
        self.accounts.count(Location::Inline, at.len);
        self.counters.proposals_applied += count;
        let mut seq = at.seq.0 - count;
        for range in &ranges {
            for index in range.after + 1..=range.through.index {
                seq += 1;
                let stash = &mut self.groups.as_mut().expect("just looked").stash;
                let (_, entry) = stash.apply_next(range.group).expect("they were looked at");
                if range.skipped.binary_search(&index).is_ok() {
                    stash.bury(&entry);
                } else {
                    enter_applied(&mut self.memtable, Seq(seq), &entry);
                }
            }
            let stash = &mut self.groups.as_mut().expect("just looked").stash;
            stash.note_mark(range.group, at.jsn, at.seq);
        }
        if let Some(groups) = &mut self.groups {
            groups.enter_states_if_alone(&mut self.memtable);
        }
        self.freeze_if_full();
        Ok(Some(at.seq))
    }

    /// Writes the states of suspect groups at the end of an open. The damage that makes them suspect may not be
    /// replayed again: it keeps no segment. Their few bytes are written on a full disk, too.
    ///
    /// # Errors
    /// As for [`Store::write`].
    pub(super) fn keep_suspicions(&mut self) -> Result<(), Error> {
        let Some(groups) = self.groups.as_mut() else { return Ok(()) };
        let Some(tag) = groups.state_tag else { return Ok(()) };
        for (group, head) in groups.stash.take_suspect_heads() {
            self.writer.begin_batch(record::RECORD_OVERHEAD_BYTES_MAX + head.len())?;
            self.note_segment();
            self.put(&state_key(tag, group), &head, &[], None, 0);
            self.writer.want_sync();
        }
        Ok(())
    }

    /// All records with a number below this one are synced.
    pub fn synced_jsn(&self) -> Jsn {
        self.writer.durable_jsn()
    }

    /// The groups that the open found. They are told once.
    pub fn take_groups(&mut self) -> Vec<FoundGroup> {
        self.groups.as_mut().map(|groups| std::mem::take(&mut groups.found)).unwrap_or_default()
    }

    /// The groups that the open found, before they are taken.
    pub fn found_groups(&self) -> &[FoundGroup] {
        self.groups.as_ref().map_or(&[], |groups| &groups.found)
    }

    /// A group as it is now, in the form in which an open finds it; none that has neither a state nor an entry.
    pub fn group(&self, group: GroupNumber) -> Option<FoundGroup> {
        let stash = &self.groups.as_ref()?.stash;
        stash.get(group).map(|_| stash.found(group))
    }

    /// Removes a group's state and its unapplied entries; tells the number of the record that says so.
    ///
    /// # Errors
    /// As for [`Store::write`].
    pub fn remove_group(&mut self, group: GroupNumber) -> Result<Jsn, Error> {
        let Some(tag) =
            self.groups.as_ref().filter(|groups| groups.takes).and_then(|groups| groups.state_tag)
        else {
            return Err(NO_GROUPS);
        };
        self.write(&[Write::Delete { key: &state_key(tag, group) }])?;
        self.groups.as_mut().expect("just looked").stash.remove(group);
        self.writer.want_sync();
        Ok(Jsn(self.writer.next_jsn().0 - 1))
    }

    /// Whether states or entries of groups that were written behind `since` may have been lost without a trace. It
    /// stays so until [`Store::forget_lost_groups`], but for losses of ranges of keys.
    pub fn may_have_lost_groups(&self, since: WrittenAt) -> bool {
        self.groups.as_ref().is_some_and(|groups| {
            let end = groups.state_tag.map(|tag| tag.checked_add(1));
            let is_in_range = groups.state_tag.is_some_and(|tag| {
                let end: &[u8] = &end.flatten().map_or(Vec::new(), |end| vec![end]);
                self.check_range_since(&[tag], end, since.seq).is_err()
            });
            groups.lost_before.is_some_and(|before| before > since.jsn) || is_in_range
        })
    }

    /// Notes that the owner knows of what may have been lost: its groups take part under another name from now on. The
    /// next manifest says so. Losses of ranges of keys go on to count ([`Store::accept_losses`]).
    pub fn forget_lost_groups(&mut self) {
        if let Some(groups) = self.groups.as_mut().filter(|groups| groups.lost_before.is_some()) {
            groups.lost_before = None;
            self.maintenance.edits.push(super::maintenance::Edit::default());
        }
    }

    /// Makes room in the journal for records that are no batch of writes.
    fn begin_records(&mut self, brings: Brings, bytes: usize) -> Result<(), Error> {
        if self.is_sealed_by_close() {
            return Err(Error::Closing);
        }
        self.check_backlog()?;
        self.check_room(|| brings, bytes)?;
        self.writer.begin_batch(bytes)?;
        self.note_segment();
        Ok(())
    }

    /// Refuses entries while too many are not applied. What the batch replaces does not count, nor do entries without a
    /// key: a new leader's first one may be what all others wait for.
    fn check_unapplied(&self, batch: &GroupBatch<'_>) -> Result<(), Error> {
        let stash = &self.groups.as_ref().expect("the caller has looked").stash;
        let new: usize = batch.entries.iter().map(|entry| contents_bytes(&entry.contents)).sum();
        let has_key = batch.entries.iter().any(|entry| matches!(entry.contents, Contents::Put { .. }));
        let replaced = match (batch.install, batch.entries.first()) {
            (Some(_), _) => stash.bytes_from(batch.group, LogPlace { index: 0, term: 0 }),
            (None, first) => first.map_or(0, |first| stash.bytes_from(batch.group, first.place)),
        };
        let kept = stash.bytes() - replaced;
        let is_alone = kept == 0 && batch.entries.len() == 1;
        if has_key && kept + new > PROPOSALS_BYTES_MAX && !is_alone {
            return Err(Error::Full { what: "the memory of unapplied entries", limit: PROPOSALS_BYTES_MAX });
        }
        Ok(())
    }

    /// Appends entries again that keep segments from compaction. What cannot be appended now is with a later turn.
    pub(super) fn append_old_again(&mut self) {
        let is_due = self.groups.as_ref().is_some_and(|groups| groups.may_have_old);
        if !is_due || self.is_sealed_by_close() {
            return;
        }
        while let Some((group, at, _)) = self.groups.as_ref().and_then(|groups| groups.stash.oldest()) {
            let newer = self.segments.iter().rev().take_while(|segment| segment.id != at.segment).count();
            if newer < NEWER_SEGMENTS_MAX {
                break;
            }
            if self.append_again(group).is_err() {
                return;
            }
        }
        if let Some(groups) = &mut self.groups {
            groups.may_have_old = false;
        }
    }

    /// Appends all entries of a group again, in the order of their indexes: a start that finds the first of them only
    /// now finds the others behind it.
    fn append_again(&mut self, group: GroupNumber) -> Result<(), Error> {
        let stash = &self.groups.as_ref().expect("the caller has looked").stash;
        let known = stash.get(group).expect("it has an entry");
        let (mut entries, commit) = (known.entries.clone(), known.commit);
        let of =
            |entry: &Stashed| record::RECORD_OVERHEAD_BYTES_MAX + PROPOSED_HEAD_BYTES + entry.len as usize;
        let bytes = entries.values().map(|entry| of(entry) + entry.bytes()).sum();
        self.check_room(|| Brings::Removals, bytes)?;
        self.writer.begin_batch(bytes)?;
        self.note_segment();
        // The caller gave them once.
        let (user_bytes, proposals) = (self.counters.user_bytes, self.counters.proposals);
        self.counters.proposals_again += entries.len() as u64;
        let is_reversed = base::planted!(ReappendTruncates);
        while let Some((index, entry)) = if is_reversed { entries.pop_last() } else { entries.pop_first() } {
            let more = if entries.is_empty() { 0 } else { record::FLAG_MORE };
            let replaces = if is_reversed { record::FLAG_REPLACES } else { 0 };
            let head = ProposedHead { group, place: LogPlace { index, term: entry.term }, commit };
            let again = self.append_found(&head, &entry.contents, more | replaces);
            self.groups.as_mut().expect("just looked").stash.push(group, index, false, again);
        }
        (self.counters.user_bytes, self.counters.proposals) = (user_bytes, proposals);
        self.writer.want_sync();
        Ok(())
    }

    fn append_found(&mut self, head: &ProposedHead, contents: &FoundContents, flags: u8) -> Stashed {
        match contents {
            FoundContents::Put { key, head: own_head, value } => {
                let contents = Contents::Put { key, head: own_head, value: &[value] };
                self.append_entry(head, &contents, flags)
            }
            FoundContents::Other(bytes) => self.append_entry(head, &Contents::Other(bytes), flags),
        }
    }

    /// Records of entries that have become of no use since the last call, to be counted with the next flush.
    pub(super) fn take_dead_entries(&mut self) -> Vec<DeadRecord> {
        self.groups.as_mut().map(|groups| groups.stash.take_dead()).unwrap_or_default()
    }
}

/// Enters a version that an entry makes, if it has a key; without a value to be kept the ledger points at its record.
pub(super) fn enter_applied(memtable: &mut Memtable, seq: Seq, entry: &Stashed) {
    let FoundContents::Put { key, head, value } = &entry.contents else { return };
    let offset = u32::try_from(entry.at.offset).expect("a segment ends below 4 GiB");
    let (location, inline): (_, &[u8]) = match entry.is_inline {
        true => (Location::Inline, value),
        false => (Location::Journal { offset, len: entry.len }, b""),
    };
    let mut prefix = Vec::with_capacity(ENTRY_PREFIX_BYTES_MAX);
    Entry { jsn: entry.jsn, location, head, inline, expires_ms: None }.encode_prefix(&mut prefix);
    memtable.defer_hashed(key, memtable::hash(key), seq.0, &[&prefix, head, inline]);
}

/// The ranges of a mark over these entries, all of which are there.
fn ranges_of(stash: &Stash, applied: &[AppliedRange<'_>]) -> Vec<MarkedRange> {
    let (mut ranges, mut groups) = (Vec::with_capacity(applied.len()), BTreeSet::new());
    for &AppliedRange { group, after, through, skipped } in applied {
        assert!(groups.insert(group), "a group is named once");
        let known = stash.get(group).expect("a group that applies entries is there");
        assert!(known.applied.index == after, "entries are applied in order");
        let last =
            if through.index == after { Some(known.applied.term) } else { known.term_at(through.index) };
        assert!(last == Some(through.term), "the entries that are applied are there");
        let is_within = |index: &u64| (after + 1..=through.index).contains(index);
        assert!(
            skipped.is_sorted_by(|a, b| a < b) && skipped.iter().all(is_within),
            "what is skipped is there"
        );
        if through.index > after {
            ranges.push(MarkedRange { group, after, through, skipped: skipped.to_vec() });
        }
    }
    ranges
}

/// Checks every part of the batch and tells how much of the journal it will take at most.
fn check_limits(batch: &GroupBatch<'_>) -> Result<usize, Error> {
    assert!(batch.state.is_some() || !batch.entries.is_empty(), "a batch of nothing");
    let state = batch.state.map_or(0, <[u8]>::len);
    within("a group's state", state, STATE_BYTES_MAX)?;
    let mut bytes = record::RECORD_OVERHEAD_BYTES_MAX + STATE_HEAD_BYTES_MAX + state;
    for entry in batch.entries {
        if let Contents::Put { key, head, .. } = entry.contents {
            assert!(!key.is_empty(), "a key that is set has a byte");
            within("a key", key.len(), KEY_BYTES_MAX)?;
            within("a head", head.len(), HEAD_BYTES_MAX - PROPOSED_HEAD_BYTES)?;
        }
        let len = contents_bytes(&entry.contents);
        within("an entry", len, VALUE_BYTES_MAX)?;
        bytes += record::RECORD_OVERHEAD_BYTES_MAX + PROPOSED_HEAD_BYTES + len;
    }
    within("a batch", bytes, VALUE_BYTES_MAX + HEAD_BYTES_MAX + KEY_BYTES_MAX)?;
    Ok(bytes)
}

fn contents_bytes(contents: &Contents<'_>) -> usize {
    match contents {
        Contents::Put { key, head, value } => {
            key.len() + head.len() + value.iter().map(|part| part.len()).sum::<usize>()
        }
        Contents::Other(bytes) => bytes.len(),
    }
}

fn has_value(contents: &Contents<'_>) -> bool {
    matches!(contents, Contents::Put { value, .. } if value.iter().any(|part| !part.is_empty()))
}
