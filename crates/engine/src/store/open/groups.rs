//! The consistent groups that a start finds ([`crate::proposals`]).
//!
//! 1. The tables' state of each group, as of the place from which all is replayed.
//! 2. Entries before that place, from the oldest on that tables do not have: they are stashed, and nothing else there
//!    counts but what removes entries.
//! 3. With the replay: entries are stashed, and applied where a commit mark says so.
//! 4. Entries behind a gap are dropped, and groups that have lost something are suspect.

use super::replay::Recovery;
use super::segments::to_u32;
use crate::compression::{Codec, Unreadable};
use crate::entry::{Entry, Jsn, Location, Seq};
use crate::error::Error;
use crate::journal::fault::{Fault, Remains};
use crate::journal::record::{FLAG_INLINE, FLAG_REPLACES, Kind, Record};
use crate::journal::scan::{Scanned, ScannedRecord, Scanner};
use crate::journal::segment::{self, Position};
use crate::manifest::ManifestState;
use crate::proposals::record::{MarkedRange, ProposedHead, StateHead, group_of, mark_of};
use crate::proposals::stash::Stashed;
use crate::proposals::{FoundContents, GroupNumber};
use crate::store::proposals::{LOST_ANYWHERE, enter_applied};
use crate::table::TableIter;
use base::FastMap;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A program that is told of no groups cannot tell states from keys.
const UNTOLD: Error = Error::Refused("a store with consistent groups, by a program that is told of none");

impl Recovery<'_> {
    /// 1. and 2. The groups before the replay begins.
    pub(super) fn find_groups(&mut self, state: &ManifestState) -> Result<(), Error> {
        let Some(known) = &state.groups else { return Ok(()) };
        if self.groups.state_tag.is_none() {
            return Err(UNTOLD);
        }
        self.know_states()?;
        if let Some((from, _)) = known.oldest.filter(|_| !base::planted!(ReplayFromFlush)) {
            self.stash_before(
                state,
                Position { segment: segment::SegmentId(from.segment), offset: from.offset },
            )?;
        }
        // All that was of no use there was counted with the flushes.
        self.groups.stash.take_dead();
        Ok(())
    }

    fn stash_before(&mut self, state: &ManifestState, from: Position) -> Result<(), Error> {
        let to = state.replay_position;
        let within = |id: u64| (from.segment.0..=to.segment).contains(&id);
        let named = state.segments.iter().map(|record| record.id).filter(|&id| within(id));
        if named.clone().any(|id| self.before.iter().all(|source| source.segment.0 != id)) {
            // It was told as damage.
            self.groups.note_lost(LOST_ANYWHERE);
        }
        for source in std::mem::take(&mut self.before).into_iter().filter(|source| within(source.segment.0)) {
            let start = if source.segment == from.segment { from.offset } else { source.start };
            let len = if source.segment.0 == to.segment { to.offset } else { source.len };
            if start >= len {
                continue;
            }
            // A seal that failed, or was cut off, leaves bytes behind the records. The numbers tell that no record is
            // lost.
            let later =
                state.segments.iter().filter(|record| within(record.id) && record.id > source.segment.0);
            let later = later.min_by_key(|record| record.id).map(|record| record.first_jsn);
            let mut scanner = Scanner::new(source.file, len, source.segment, start);
            while let Some(scanned) = scanner.next(self.disk)? {
                match scanned {
                    Scanned::Record(record) => self.stash_one(&record)?,
                    Scanned::Gap(fault) => self.lose_before(&fault),
                    Scanned::Tail { fault, blank: false } => self.lose_before(&fault.followed_by(later)),
                    Scanned::Tail { blank: true, .. } => {}
                }
            }
        }
        Ok(())
    }

    /// Of the records there, those that bring or remove entries.
    fn stash_one(&mut self, scanned: &ScannedRecord) -> Result<(), Error> {
        let record = scanned.record();
        match record.kind {
            Kind::Proposed => self.stash(scanned).map(drop),
            Kind::Delete => {
                if let Some(group) = self.group_of(record.key) {
                    self.groups.stash.clear(group);
                }
                Ok(())
            }
            Kind::Data => {
                if let Some(group) = self.group_of(record.key)
                    && StateHead::decode(record.head).is_some_and(|head| head.installed)
                {
                    self.groups.stash.clear(group);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Damage there: all but entries and states is in tables.
    fn lose_before(&mut self, fault: &Fault) {
        match &fault.remains {
            Some(remains) if remains.header.kind == Kind::Proposed => {
                self.report.damage.push(fault.damage());
                self.lose_entry(remains);
            }
            None if fault.may_have_lost_a_key() => {
                self.report.damage.push(fault.damage());
                self.lose_unknown(fault.lost.to_jsn);
            }
            _ => {}
        }
    }

    /// The states that tables have.
    fn know_states(&mut self) -> Result<(), Error> {
        let Some(tag) = self.groups.state_tag else { return Ok(()) };
        let mut newest = NewestStates::default();
        let tables: Vec<_> = self.version.tables().map(|(_, table)| Arc::clone(table)).collect();
        for table in tables {
            match self.know_states_in(TableIter::new(table), tag, &mut newest) {
                // The next use of the block will report it.
                Err(Error::Damaged(_) | Error::Malformed(_)) => self.groups.note_lost(LOST_ANYWHERE),
                other => other?,
            }
        }
        if !newest.unknown.is_empty() {
            self.groups.note_lost(LOST_ANYWHERE);
        }
        Ok(())
    }

    /// The states that a table has, where no other one had newer ones.
    fn know_states_in(
        &mut self,
        mut iter: TableIter,
        tag: u8,
        newest: &mut NewestStates,
    ) -> Result<(), Error> {
        iter.seek(self.disk, &[tag])?;
        while iter.valid() && iter.key().first() == Some(&tag) {
            let seq = iter.seq();
            if let Some(group) = group_of(tag, iter.key())
                && newest.seqs.get(&group).is_none_or(|known| *known < seq)
            {
                newest.seqs.insert(group, seq);
                newest.unknown.remove(&group);
                let entry = Entry::decode(iter.entry())?;
                let is_there = entry.location != Location::Deleted && !self.drops.covers(iter.key(), seq);
                match StateHead::decode(entry.head).filter(|_| is_there) {
                    Some(head) => self.groups.stash.know(group, &head),
                    None => {
                        self.groups.stash.remove(group);
                        if is_there {
                            newest.unknown.insert(group);
                        }
                    }
                }
            }
            iter.next(self.disk)?;
        }
        Ok(())
    }

    /// The group of which this is the state's key.
    pub(super) fn group_of(&self, key: &[u8]) -> Option<GroupNumber> {
        self.groups.state_tag.and_then(|tag| group_of(tag, key))
    }

    /// Stashes an entry, and returns the kind of its record.
    fn stash(&mut self, scanned: &ScannedRecord) -> Result<Location, Error> {
        let record = scanned.record();
        let Some((head, own_head)) = ProposedHead::split(record.head) else {
            return Err(Error::Malformed("entry of a group's log"));
        };
        let contents = contents_of(scanned, &record, own_head)?;
        let (offset, len) = (to_u32(scanned.offset)?, to_u32(scanned.len() as u64)?);
        let is_inline = record.flags & FLAG_INLINE != 0;
        let at = Position { segment: scanned.segment, offset: scanned.offset };
        let entry = Stashed { term: head.place.term, jsn: record.jsn, at, len, is_inline, contents };
        self.groups.stash.push(head.group, head.place.index, record.flags & FLAG_REPLACES != 0, entry);
        self.groups.stash.note_commit(head.group, head.commit);
        Ok(if is_inline { Location::Inline } else { Location::Journal { offset, len } })
    }

    /// An entry in what is replayed.
    pub(super) fn propose(&mut self, scanned: &ScannedRecord) -> Result<(), Error> {
        self.use_groups()?;
        let location = self.stash(scanned)?;
        self.count_replayed(scanned, location)
    }

    /// A commit mark: the entries that it speaks of take effect.
    pub(super) fn apply_mark(&mut self, scanned: &ScannedRecord) -> Result<(), Error> {
        self.use_groups()?;
        let record = scanned.record();
        let ranges = mark_of(record.value).ok_or(Error::Malformed("commit mark"))?;
        let count: u64 = ranges.iter().map(MarkedRange::count).sum();
        let mut before = record.seq.0.checked_sub(count).ok_or(Error::Malformed("commit mark"))?;
        for range in &ranges {
            self.apply_range(range, before, (record.jsn, record.seq));
            before += range.count();
        }
        self.count_replayed(scanned, Location::Inline)
    }

    /// Of `range` the first entry has the version after `before`.
    fn apply_range(&mut self, range: &MarkedRange, before: u64, (jsn, last): (Jsn, Seq)) {
        let MarkedRange { group, after, through, ref skipped } = *range;
        let stash = &mut self.groups.stash;
        stash.note_commit(group, through.index);
        let applied = stash.get(group).map_or(0, |known| known.applied.index);
        let found = stash.get(group).and_then(|known| known.term_at(through.index));
        if after > applied || found.is_some_and(|term| term != through.term) {
            // A mark before this one is lost, or an entry that it spoke of: all behind that is applied anew.
            return stash.lose_mark(group, through.index);
        }
        let mut end = through.index;
        if base::planted!(AppliedPastMark) {
            end = stash.get(group).map_or(end, |known| known.last());
        }
        for index in applied + 1..=end {
            let stash = &mut self.groups.stash;
            let Some((_, entry)) = stash.apply_next(group) else {
                stash.lose_mark(group, through.index);
                break;
            };
            if skipped.binary_search(&index).is_ok() {
                stash.bury(&entry);
            } else {
                let seq = Seq((before + (index - after)).min(last.0));
                enter_applied(&mut self.memtable, seq, &entry);
            }
            self.groups.stash.note_mark(group, jsn, last);
        }
    }

    /// A group's state in what is replayed. It speaks of what was applied then; if marks before it are lost, less is
    /// now.
    pub(super) fn apply_state(&mut self, group: GroupNumber, record: &Record<'_>) -> Result<(), Error> {
        self.use_groups()?;
        let Some(head) = StateHead::decode(record.head) else {
            return Err(Error::Malformed("state of a group"));
        };
        let stash = &mut self.groups.stash;
        let applied = stash.get(group).map_or(0, |known| known.applied.index);
        let is_first = stash.get(group).is_none_or(|known| known.state.is_none() && known.entries.is_empty());
        if head.installed || is_first {
            stash.install(group, head.applied);
        } else if head.applied.index > applied {
            stash.lose_mark(group, head.applied.index);
        }
        stash.note_commit(group, head.commit);
        if head.suspect_through > 0 {
            stash.lose_mark(group, head.suspect_through);
        }
        stash.set_state(group, head.state);
        let bytes = stash.get(group).map(|known| known.head(head.installed)).unwrap_or_default();
        let (jsn, location) = (record.jsn, Location::Inline);
        self.enter(
            record.key,
            record.seq,
            Entry { jsn, location, head: &bytes, inline: b"", expires_ms: None },
        );
        Ok(())
    }

    /// The record of an entry whose contents are damaged.
    pub(super) fn lose_entry(&mut self, remains: &Remains) {
        match ProposedHead::split(&remains.head) {
            Some((head, _)) => {
                self.groups.stash.note_commit(head.group, head.commit);
                let replaces = remains.header.flags & FLAG_REPLACES != 0;
                self.groups.stash.lose(head.group, head.place.index, replaces);
            }
            None => self.lose_unknown(Some(Jsn(remains.header.jsn.0 + 1))),
        }
    }

    /// Records below a number may be lost that were entries, or states; `None` if that number is not known.
    pub(super) fn lose_unknown(&mut self, before: Option<Jsn>) {
        self.groups.note_lost(before.unwrap_or(LOST_ANYWHERE));
        self.groups.stash.lose_all();
    }

    /// Damage in what is replayed to an entry, or to a mark, or to what may be one.
    pub(super) fn lose_of_groups(&mut self, fault: &Fault) {
        match &fault.remains {
            Some(remains) if remains.header.kind == Kind::Proposed => self.lose_entry(remains),
            Some(_) => self.groups.stash.lose_any_mark(),
            None => self.lose_unknown(fault.lost.to_jsn),
        }
    }

    fn use_groups(&mut self) -> Result<(), Error> {
        self.groups.is_used = true;
        if self.groups.state_tag.is_none() { Err(UNTOLD) } else { Ok(()) }
    }
}

/// The versions of the newest states of tables.
#[derive(Default)]
struct NewestStates {
    seqs: FastMap<GroupNumber, Seq>,
    /// Groups whose newest state is not understood.
    unknown: BTreeSet<GroupNumber>,
}

/// The contents of an entry's record, as they were given. A copy: a share would keep a window of the file.
fn contents_of(
    scanned: &ScannedRecord,
    record: &Record<'_>,
    own_head: &[u8],
) -> Result<FoundContents, Error> {
    let value = match Codec::of_flags(record.flags) {
        None => Bytes::copy_from_slice(record.value),
        Some(codec) => codec.decompress(record.value).map_err(|unreadable| match unreadable {
            Unreadable::Malformed => Error::Malformed("compressed value"),
            Unreadable::NotBuilt => Error::Format {
                file: segment::path_in_store(scanned.segment),
                what: "a value that is compressed with zstd, which this build leaves out".to_owned(),
            },
        })?,
    };
    if record.key.is_empty() {
        return Ok(FoundContents::Other(value));
    }
    let (key, head) = (Bytes::copy_from_slice(record.key), Bytes::copy_from_slice(own_head));
    Ok(FoundContents::Put { key, head, value })
}
