//! The walk of a fold through a snapshot, a bounded step at a time.
//!
//! Heads and buckets are visited as the cursor comes upon them. Objects, and heads whose record is to be read, are
//! gathered into a window first, by bytes and by number; the window's records are read in the order in which they
//! lie in the journal, those that lie close together at once (`read/stretches.rs`); then its items are visited, in key
//! order or in the order of the reads. So the disk's arm, or the page cache, goes one way through each window, and
//! memory is bounded by it.
//!
//! A record that is missing or damaged is counted and named, and the fold goes on. A damaged block of a table ends
//! it: which keys were in it is not known. A fold that goes past losses leaves the block out, and says so.

use super::request::{
    BLOCKS_KEPT_MAX, Control, DAMAGED_NAMED_MAX, FoldEnd, FoldRequest, JournalCheck, Place, Visited, What,
    after_prefix,
};
use crate::compression::Codec;
use crate::entry::{Entry, Jsn, Location, Seq};
use crate::error::{Damage, Error};
use crate::key_segments::KeySegments;
use crate::merge::{MergeIter, Source};
use crate::read::{RecordAt, Snapshot, Stretches};
use crate::table::Block;
use base::{Disk, Progress};
use bytes::Bytes;

/// Entries looked at in one step: about a millisecond.
const STEP_ENTRIES: usize = 4096;

/// Bytes read from the journal in one step, and records: what a job's slice may do.
const STEP_BYTES: usize = 1 << 20;
const STEP_RECORDS: usize = 64;

/// A window's values are held until they are visited in key order.
const WINDOW_VALUE_BYTES: usize = 4 << 20;
const WINDOW_VALUES: usize = 1024;

/// A window in the journal's order holds keys and heads only: the longer it is, the fewer passes over the journal.
const WINDOW_HEAD_BYTES: usize = 16 << 20;
const WINDOW_HEADS: usize = 64 << 10;

/// A fold under way.
pub(crate) struct FoldWalk {
    request: FoldRequest,
    snapshot: Snapshot,
    iter: MergeIter,
    /// The range that the cursor is in, and whether it has been sought.
    range: usize,
    sought: bool,
    window: Window,
    end: FoldEnd,
    /// Blocks of what was visited, and their numbers, where they are to be kept.
    blocks: Vec<(u32, Block)>,
}

/// What was gathered and not visited yet.
#[derive(Default)]
struct Window {
    /// In key order.
    items: Vec<Gathered>,
    /// The records that are to be read.
    records: Stretches,
    /// How many bytes of records, or of keys and heads, were gathered.
    bytes: usize,
    phase: Phase,
    /// The first item that has not been visited.
    visited: usize,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Gather,
    Read,
    Visit,
}

struct Gathered {
    range: usize,
    key: Bytes,
    seq: Seq,
    head: Bytes,
    expires_ms: Option<u64>,
    /// The inline value, or the one read, as it is stored: so a window holds what it is told to.
    value: Bytes,
    /// How that is compressed, and where it was read.
    packed: Option<(Codec, RecordAt)>,
    /// Its record failed, and was counted.
    lost: bool,
}

type Visit<'v> = &'v mut dyn FnMut(&Visited<'_>) -> Control;

impl FoldWalk {
    /// A walk through `snapshot`.
    pub fn new(request: FoldRequest, snapshot: Snapshot) -> Result<FoldWalk, Error> {
        request.check()?;
        // A range that has begun goes on from where it was resumed.
        for range in request.ranges.iter().filter(|_| !request.past_losses) {
            snapshot.lost.check_range(&range.start, &range.end)?;
        }
        let mut iter = match &request.segments {
            Some(segments) => snapshot.iter_of(segments),
            None => snapshot.iter(),
        };
        if request.past_losses {
            iter.cut_out();
        }
        let range = request.from.as_ref().map_or(0, |place| place.range);
        let (window, end, blocks) = (Window::default(), FoldEnd::default(), Vec::new());
        Ok(FoldWalk { request, snapshot, iter, range, sought: false, window, end, blocks })
    }

    /// Goes on for about a millisecond or a megabyte of the journal.
    pub fn step(&mut self, disk: &mut dyn Disk, visit: Visit<'_>) -> Result<Progress, Error> {
        match self.request.what {
            What::Heads(JournalCheck::None | JournalCheck::Presence) | What::Buckets(_) => {
                self.visit_heads(disk, visit)
            }
            _ => match self.window.phase {
                Phase::Gather => self.gather(disk),
                Phase::Read => self.read(disk, visit),
                Phase::Visit => Ok(self.visit_window(visit)),
            },
        }
    }

    /// The blocks that are to be kept, and their numbers.
    pub fn take_blocks(&mut self) -> Vec<(u32, Block)> {
        std::mem::take(&mut self.blocks)
    }

    /// How it ended, or where it is.
    pub fn end(mut self) -> FoldEnd {
        self.end.has_left_out = !self.iter.take_lost().is_empty();
        self.end
    }

    /// Where a walk that is given up before its end can be resumed.
    pub fn give_up(mut self) -> FoldEnd {
        let unvisited = self.window.items.get(self.window.visited);
        self.end.next = unvisited.map(Gathered::place).or_else(|| {
            if !self.sought {
                let start = self.request.ranges.get(self.range)?.start.clone();
                return Some(self.request.from.clone().unwrap_or(Place { range: self.range, key: start }));
            }
            self.behind_window()
        });
        self.end()
    }

    /// Puts the cursor at the first item of the current range, or of the next that has one. False at the end of all.
    fn settle(&mut self, disk: &mut dyn Disk) -> Result<bool, Error> {
        if self.request.segments.as_ref().is_some_and(KeySegments::is_empty) {
            return Ok(false);
        }
        while let Some(range) = self.request.ranges.get(self.range) {
            if !self.sought {
                let resumed = self.request.from.as_ref().filter(|place| place.range == self.range);
                let start = resumed.map_or(&range.start, |place| (&place.key).max(&range.start));
                self.iter.expect_end(&range.end);
                self.iter.seek(disk, start)?;
                self.sought = true;
            }
            if self.iter.item().is_some_and(|item| !range.ends_before(item.key)) {
                return Ok(true);
            }
            self.range += 1;
            self.sought = false;
        }
        Ok(false)
    }

    /// Where the cursor is.
    fn place(&self) -> Option<Place> {
        let key = Bytes::copy_from_slice(self.iter.item()?.key);
        Some(Place { range: self.range, key })
    }

    fn visit_heads(&mut self, disk: &mut dyn Disk, visit: Visit<'_>) -> Result<Progress, Error> {
        let mut looked_at = 0;
        while looked_at < STEP_ENTRIES {
            if !self.settle(disk)? {
                return Ok(Progress::Done);
            }
            if self.end.visited >= self.request.items_max {
                self.end.next = self.place();
                return Ok(Progress::Done);
            }
            let left = STEP_ENTRIES - looked_at;
            let (passed, control) = self.visit_range(disk, visit, left)?;
            looked_at += passed;
            if control == Control::Stop {
                self.end.next = if self.settle(disk)? { self.place() } else { None };
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::More)
    }

    /// Visits items of the current range, at most so many entries of it. Tells how many it has passed, and whether the
    /// visitor has had enough.
    fn visit_range(
        &mut self,
        disk: &mut dyn Disk,
        visit: Visit<'_>,
        entries_max: usize,
    ) -> Result<(usize, Control), Error> {
        let FoldWalk { request, snapshot, iter, range, sought, end, blocks, .. } = self;
        let key_range = &request.ranges[*range];
        let mut passed = 0;
        while passed < entries_max && end.visited < request.items_max {
            let Some(item) = iter.item().filter(|item| !key_range.ends_before(item.key)) else { break };
            passed += 1;
            if !request.has_segment_of(item.key) {
                iter.next(disk)?;
                continue;
            }
            let entry = Entry::decode(item.entry)?;
            if !is_wanted(request, snapshot, item.key, item.seq, &entry) {
                iter.next(disk)?;
                continue;
            }
            let (seq, head, expires_ms) = (item.seq, entry.head, entry.expires_ms);
            let mut is_damaged = false;
            if matches!(request.what, What::Heads(JournalCheck::Presence))
                && let Err(error) = check_presence(snapshot, seq, &entry)
            {
                is_damaged = true;
                count_damage(end, item.key, error);
                if !request.damaged_too {
                    iter.next(disk)?;
                    continue;
                }
            }
            let control = visit(&Visited { key: item.key, seq, head, value: None, expires_ms, is_damaged });
            end.visited += 1;
            if request.keeps_blocks {
                keep_block(blocks, iter.block());
            }
            match request.what {
                What::Buckets(bucket) => {
                    let len = bucket(item.key).min(item.key.len());
                    let after = after_prefix(&item.key[..len]);
                    if after.is_empty() {
                        // Nothing is behind this bucket, in this range or any that lies further on.
                        (*range, *sought) = (*range + 1, false);
                        return Ok((passed, control));
                    }
                    iter.seek(disk, &after)?;
                }
                _ => iter.next(disk)?,
            }
            if control == Control::Stop {
                return Ok((passed, control));
            }
        }
        Ok((passed.max(1), Control::Next))
    }

    /// Takes items into the window until it is full or nothing is left.
    fn gather(&mut self, disk: &mut dyn Disk) -> Result<Progress, Error> {
        let (bytes_max, items_max) = match self.request.what {
            What::Objects | What::Heads(_) => (WINDOW_VALUE_BYTES, WINDOW_VALUES),
            _ => (WINDOW_HEAD_BYTES, WINDOW_HEADS),
        };
        let left = self.request.items_max.saturating_sub(self.end.visited);
        for _ in 0..STEP_ENTRIES {
            let window = &self.window;
            let is_full = window.bytes >= bytes_max
                || window.items.len() >= items_max
                || window.items.len() as u64 >= left;
            if is_full || !self.settle(disk)? {
                if self.window.items.is_empty() {
                    self.end.next = if self.settle(disk)? { self.place() } else { None };
                    return Ok(Progress::Done);
                }
                self.window.records.sort();
                self.window.phase = Phase::Read;
                return Ok(Progress::More);
            }
            let item = self.iter.item().expect("settled at an item");
            let entry = Entry::decode(item.entry)?;
            if self.request.has_segment_of(item.key)
                && is_wanted(&self.request, &self.snapshot, item.key, item.seq, &entry)
            {
                let (key, seq) = (Bytes::copy_from_slice(item.key), item.seq);
                self.take(key, seq, &entry_of(&entry));
            }
            self.iter.next(disk)?;
        }
        Ok(Progress::More)
    }

    fn take(&mut self, key: Bytes, seq: Seq, entry: &Owned) {
        let index = self.window.items.len();
        let head = entry.head.clone();
        let value = if self.request.what.has_values() { entry.inline.clone() } else { Bytes::new() };
        self.window.bytes += key.len() + head.len() + value.len();
        let mut lost = false;
        if let Location::Journal { offset, len } = entry.location {
            if matches!(self.request.what, What::Objects | What::Heads(_)) {
                self.window.bytes += len as usize;
            }
            match RecordAt::new(&self.snapshot.segments, entry.jsn, seq, offset, len) {
                Ok(at) => self.window.records.push(at, index),
                Err(error) => {
                    lost = true;
                    count_damage(&mut self.end, &key, error);
                }
            }
        }
        self.window.items.push(Gathered {
            range: self.range,
            key,
            seq,
            head,
            expires_ms: entry.expires_ms,
            value,
            packed: None,
            lost,
        });
    }

    /// Reads records of the window, those that lie first in the journal first.
    fn read(&mut self, disk: &mut dyn Disk, visit: Visit<'_>) -> Result<Progress, Error> {
        let mut bytes = 0;
        for _ in 0..STEP_RECORDS {
            let Window { records, items, .. } = &mut self.window;
            let Some((at, index, data)) = records.next(disk) else {
                self.window.phase = Phase::Visit;
                return Ok(Progress::More);
            };
            bytes += at.len as usize;
            let item = &mut items[index];
            match data.and_then(|data| check_record(&at, item, data, self.request.what)) {
                Ok((value, codec)) => {
                    item.value = value;
                    item.packed = codec.map(|codec| (codec, at));
                }
                Err(error) => {
                    item.lost = true;
                    count_damage(&mut self.end, &item.key, error);
                    continue;
                }
            }
            if matches!(self.request.what, What::ObjectsByJournal) {
                let item = &mut self.window.items[index];
                let stop = visit_item(item, self.request.what, visit, &mut self.end) == Control::Stop;
                // Visited: what is left for the last phase is what has no record.
                self.window.items[index].lost = true;
                if stop {
                    self.end.next = self.window.items.first().map(Gathered::place);
                    return Ok(Progress::Done);
                }
            }
            if bytes >= STEP_BYTES {
                break;
            }
        }
        Ok(Progress::More)
    }

    /// Visits what the window holds, in key order.
    fn visit_window(&mut self, visit: Visit<'_>) -> Progress {
        for _ in 0..STEP_ENTRIES {
            let Some(item) = self.window.items.get_mut(self.window.visited) else {
                self.window = Window::default();
                return Progress::More;
            };
            self.window.visited += 1;
            if item.lost && !(self.request.damaged_too && matches!(self.request.what, What::Heads(_))) {
                continue;
            }
            if visit_item(item, self.request.what, visit, &mut self.end) == Control::Stop {
                let next = self.window.items.get(self.window.visited).map(Gathered::place);
                self.end.next = next.or_else(|| self.behind_window());
                return Progress::Done;
            }
        }
        Progress::More
    }

    /// Where the cursor is once the window is done: in its range, or at the start of the next.
    fn behind_window(&self) -> Option<Place> {
        if let Some(place) = self.place().filter(|_| self.sought) {
            return Some(place);
        }
        let range = self.range + usize::from(self.sought);
        Some(Place { range, key: self.request.ranges.get(range)?.start.clone() })
    }
}

impl Gathered {
    fn place(&self) -> Place {
        Place { range: self.range, key: self.key.clone() }
    }
}

/// An entry's parts, kept.
struct Owned {
    jsn: Jsn,
    location: Location,
    head: Bytes,
    inline: Bytes,
    expires_ms: Option<u64>,
}

fn entry_of(entry: &Entry<'_>) -> Owned {
    Owned {
        jsn: entry.jsn,
        location: entry.location,
        head: Bytes::copy_from_slice(entry.head),
        inline: Bytes::copy_from_slice(entry.inline),
        expires_ms: entry.expires_ms,
    }
}

/// Keeps the block of the item that is visited, once for all that are in it.
fn keep_block(kept: &mut Vec<(u32, Block)>, block: Option<(u32, &Block)>) {
    if let Some((number, block)) = block.filter(|_| kept.len() < BLOCKS_KEPT_MAX)
        && kept.last().is_none_or(|(last, of)| (*last, of.table()) != (number, block.table()))
    {
        kept.push((number, block.alone()));
    }
}

fn is_wanted(request: &FoldRequest, snapshot: &Snapshot, key: &[u8], seq: Seq, entry: &Entry<'_>) -> bool {
    !snapshot.is_gone(key, seq, entry)
        && request.modified.as_ref().is_none_or(|modified| modified.admits(key, entry.head))
}

/// Whether the journal has the record that an entry points at, by what is in memory of it.
fn check_presence(snapshot: &Snapshot, seq: Seq, entry: &Entry<'_>) -> Result<(), Error> {
    match entry.location {
        Location::Journal { offset, len } => {
            RecordAt::new(&snapshot.segments, entry.jsn, seq, offset, len).map(drop)
        }
        Location::Inline | Location::Deleted => Ok(()),
    }
}

/// The value as it is stored, if it is wanted; otherwise only whether the record passes.
fn check_record(
    at: &RecordAt,
    item: &Gathered,
    data: Bytes,
    what: What,
) -> Result<(Bytes, Option<Codec>), Error> {
    let is_alone = data.is_unique();
    let (value, codec) = at.check_stored(&item.key, data)?;
    Ok(match what {
        What::Heads(_) => (Bytes::new(), None),
        // Kept until the window is visited, which may hold what it is told to, and not all that lies between.
        What::Objects if !is_alone => (Bytes::copy_from_slice(&value), codec),
        _ => (value, codec),
    })
}

fn visit_item(item: &mut Gathered, what: What, visit: Visit<'_>, end: &mut FoldEnd) -> Control {
    let mut value = std::mem::take(&mut item.value);
    if let Some((codec, at)) = &item.packed {
        match at.decompress(*codec, &value) {
            Ok(whole) => value = whole,
            Err(error) => {
                count_damage(end, &item.key, error);
                return Control::Next;
            }
        }
    }
    end.visited += 1;
    let value = what.has_values().then_some(value);
    let Gathered { seq, head, expires_ms, lost: is_damaged, .. } = item;
    visit(&Visited {
        key: &item.key,
        seq: *seq,
        head,
        value,
        expires_ms: *expires_ms,
        is_damaged: *is_damaged,
    })
}

fn count_damage(end: &mut FoldEnd, key: &[u8], error: Error) {
    end.damaged += 1;
    if end.damaged_named.len() < DAMAGED_NAMED_MAX {
        let damage = match error {
            Error::Damaged(damage) => damage,
            // A disk that cannot read it, or a file that ends before it.
            other => Damage { file: other.to_string(), offset: 0, what: "the record cannot be read" },
        };
        end.damaged_named.push((Bytes::copy_from_slice(key), damage));
    }
}
