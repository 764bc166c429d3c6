//! The journal's writing end: group commit and the change of segments.
//!
//! Records are encoded straight into the open group. [`Writer::flush`] hands the open group to the disk as one
//! operation, write and sync together, whenever none is under way; whatever queued meanwhile is the next
//! group. So a lone writer waits for nothing but the disk, and many writers share each sync, without a timer.
//! At durability `none` nobody waits, so a group is handed over when enough has gathered, or at a tick. So is a group
//! of commit marks alone: no answer waits for them.
//!
//! Invariants
//! * One group is under way at a time, so positions become durable in order.
//! * A group lies in one segment. The first of each, and any that may know more to be durable than the mark before it,
//!   begins with a mark that says what was durable when it was handed over; without durability, most have none.
//! * What was not synced is in two segments at most: one that has ended is durable before a group of the next one is
//!   synced, and before that one ends. So nothing in a newer segment is said to be durable before it.
//! * After a failed write or sync nothing more is written (fenced); what is durable stays what it was.
//! * So many bytes of a segment at most are written without a sync, whatever the durability: a sync, for which the next
//!   group waits, has no more to do than that. Where writers do not wait for syncs, a job makes most of them, and
//!   groups go on meanwhile.
//! * One sync is under way at a time: an error that the system tells once is told to the one that speaks of all before
//!   it.
//! * At durability `sync` the active segment's file has room ahead of its records, as zeros, so that a sync has no new
//!   length to make durable. Whoever seals the segment, closes the store or opens it after a crash cuts the file to
//!   what was written.
//! * A group that the disk has no room for is the first to be written, in its place, when there is room. What was
//!   written before it is synced meanwhile, as ever.
//!
//! `group.rs` is what goes to the disk at once, `writer/beside.rs` syncs without the groups. Making the next segment
//! ahead of need and sealing a full one are jobs (`prepare.rs`, `seal.rs`).

mod beside;

pub use beside::SyncBeside;

use super::buffer::{self, Spares};
use super::group::{Group, InFlight, Mark, Stated};
use super::record::{self, Kind};
use super::segment::{Position, SEGMENT_HEADER_BYTES, SealBuilder, SegmentId};
use crate::entry::{Jsn, Seq};
use crate::error::Error;
use base::disk::{DiskOp, FileId, Token};
use base::{Budget, Disk, DiskError, Reservation};
use beside::Ended;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes that may wait for the disk, unless the options say less: half a second of a fast disk's writing. Beyond it
/// writes are refused.
pub const WAITING_BYTES_MAX: usize = 64 << 20;

/// Batches of this size take their memory from the budget that stores share, if there is one; smaller ones are bounded
/// by the queue alone.
const LARGE_BATCH_BYTES: usize = 256 << 10;

/// At durability `none` nobody waits for a group, nor for one of commit marks alone. It is handed over when so much has
/// gathered, or at a tick: a wake-up of the writer thread for every few records would cost more than the records.
const LAZY_GROUP_BYTES: usize = 256 << 10;

/// A group that comes behind so many bytes of its segment which were not synced is. One sync of what gathers while a
/// memtable fills, some 200 MiB, would take a good part of a second, and what is written meanwhile would be tens of
/// megabytes of memory that is used once.
const UNSYNCED_BYTES_MAX: u64 = 16 << 20;

/// The active segment is given room in steps of so much: one sync in some thousands of lone writes makes a new length
/// durable, and it is all that a store takes of the disk without using it.
const ROOM_BYTES: u64 = 4 << 20;

/// How far past its target a segment may grow while the next one is still being made. Offsets have 32 bits.
const SEGMENT_OVERRUN_FACTOR: u64 = 4;

/// When a write may be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once it is in memory. It goes to the operating system with the next ticks, or when 256 KiB have gathered.
    None,
    /// Once the operating system has it; it is synced within [`Interval`](Durability::Interval)'s period.
    Interval,
    /// Once it is synced.
    Sync,
}

/// A segment that is ready to be written.
#[derive(Debug)]
pub struct ReadySegment {
    /// Its id.
    pub id: SegmentId,
    /// Its open file, which holds a synced header and nothing else.
    pub file: FileId,
}

/// Counters of the journal, since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalCounters {
    /// Records appended.
    pub records: u64,
    /// Groups written.
    pub groups: u64,
    /// Groups that were synced, and syncs without data.
    pub syncs: u64,
    /// Bytes handed to the disk.
    pub bytes: u64,
}

/// Where one record went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The record's number.
    pub jsn: Jsn,
    /// The version's number.
    pub seq: Seq,
    /// Its first byte in the active segment.
    pub offset: u32,
    /// Its length without padding.
    pub len: u32,
}

/// The writing end of the journal.
#[derive(Debug)]
pub struct Writer {
    token: Token,
    durability: Durability,
    segment_bytes_target: u64,
    active: ReadySegment,
    /// The end of the active segment, everything that is queued included.
    end: u64,
    heads: SealBuilder,
    /// The active segment's last mark, if it has any.
    stated: Option<Stated>,
    next: Option<ReadySegment>,
    open: Group,
    full: VecDeque<Group>,
    in_flight: Option<InFlight>,
    waiting_bytes: usize,
    /// Of them, those of large batches that have memory of the budget.
    reserved_bytes: usize,
    waiting_bytes_max: usize,
    budget: Option<Arc<Budget>>,
    next_jsn: Jsn,
    next_seq: Seq,
    written: Seq,
    /// All records with a number below these are written, and synced: some records have no seq.
    written_jsn: Jsn,
    durable_jsn: Jsn,
    /// Where the group ends that was written last, and its file.
    written_end: (FileId, Position),
    durable: Seq,
    durable_position: Position,
    /// What is to be durable though no group need be synced for it.
    durable_wanted: Jsn,
    /// Whether a sync is under way beside the groups.
    syncs_beside: bool,
    /// The segment before the active one, until it is sealed.
    ended: Option<Ended>,
    /// How long the file is that was written last, the room asked for included.
    reach: Position,
    /// Bytes by which files were made longer.
    taken: u64,
    /// Whether room is taken ahead of records.
    ahead: bool,
    /// Bytes handed to the disk of which no sync has begun, but those of a segment that has ended.
    unsynced: u64,
    sync_wanted: bool,
    push_wanted: bool,
    /// Somebody may wait for a record of the open group.
    open_is_awaited: bool,
    fenced: Option<String>,
    /// Why the first group that waits was not written, until it is.
    refused: Option<Error>,
    /// It may be tried once more.
    tries: bool,
    spares: Spares,
    counters: JournalCounters,
}

impl Writer {
    /// A writer at the start of `active`. `next_jsn` and `next_seq` were never used; everything before
    /// `next_seq` is durable.
    pub fn new(
        token: Token,
        durability: Durability,
        segment_bytes_target: u64,
        active: ReadySegment,
        next_jsn: Jsn,
        next_seq: Seq,
    ) -> Writer {
        let start = SEGMENT_HEADER_BYTES as u64;
        let last = Seq(next_seq.0 - 1);
        let open = Group::new(active.id, active.file, start, last, next_jsn);
        Writer {
            token,
            durability,
            segment_bytes_target,
            end: start,
            written_end: (active.file, Position { segment: active.id, offset: start }),
            durable_position: Position { segment: active.id, offset: start },
            active,
            heads: SealBuilder::new(),
            stated: None,
            next: None,
            open,
            full: VecDeque::new(),
            in_flight: None,
            waiting_bytes: 0,
            reserved_bytes: 0,
            waiting_bytes_max: WAITING_BYTES_MAX,
            budget: None,
            next_jsn,
            next_seq,
            written: last,
            written_jsn: next_jsn,
            durable_jsn: next_jsn,
            durable: last,
            durable_wanted: next_jsn,
            syncs_beside: false,
            ended: None,
            reach: Position::default(),
            taken: 0,
            ahead: true,
            unsynced: 0,
            sync_wanted: false,
            push_wanted: false,
            open_is_awaited: false,
            fenced: None,
            refused: None,
            tries: false,
            spares: Spares::default(),
            counters: JournalCounters::default(),
        }
    }

    /// Makes room for a batch of records of `bytes` in all, so that it will lie in one segment. Refuses when
    /// too much waits for the disk or a write has failed; then nothing of the batch may be appended.
    #[inline]
    pub fn begin_batch(&mut self, bytes: usize) -> Result<(), Error> {
        if let Some(cause) = &self.fenced {
            return Err(Error::Fenced(cause.clone()));
        }
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        let memory = match &self.budget {
            Some(budget) if bytes >= LARGE_BATCH_BYTES => {
                let full = || Error::Full { what: "the memory for records", limit: budget.limit() };
                Some(budget.reserve(bytes).ok_or_else(full)?)
            }
            _ => {
                let (waiting, limit) = (self.waiting_bytes(), self.waiting_bytes_max);
                if waiting + bytes > limit && waiting > 0 {
                    return Err(Error::Full { what: "the journal's queue", limit });
                }
                None
            }
        };
        if self.end + bytes as u64 > self.segment_bytes_target && self.end > SEGMENT_HEADER_BYTES as u64 {
            if self.next.is_some() {
                self.change_segment();
            } else if self.end + bytes as u64 > self.segment_bytes_target * SEGMENT_OVERRUN_FACTOR {
                let limit =
                    usize::try_from(self.segment_bytes_target * SEGMENT_OVERRUN_FACTOR).unwrap_or(usize::MAX);
                return Err(Error::Full { what: "the journal's segment", limit });
            }
        }
        if let Some(memory) = memory {
            self.reserved_bytes += memory.bytes();
            self.open.memory.push(memory);
        }
        Ok(())
    }

    /// Appends one record of a batch for which there is room. `flags` are [`record`]'s.
    #[inline]
    pub fn append(&mut self, kind: Kind, flags: u8, key: &[u8], head: &[u8], value: &[&[u8]]) -> Appended {
        self.append_taking(1, kind, flags, key, head, value)
    }

    /// [`Writer::append`] of a record that takes so many seqs: it says the last of them, or the next one if it takes
    /// none.
    #[inline]
    pub fn append_taking(
        &mut self,
        seqs: u64,
        kind: Kind,
        flags: u8,
        key: &[u8],
        head: &[u8],
        value: &[&[u8]],
    ) -> Appended {
        if self.open.data.is_empty() {
            self.open_group();
            self.open_is_awaited = false;
        }
        // What a commit mark tells is known again without it.
        self.open_is_awaited |= kind != Kind::CommitMark;
        let next_seq = Seq(self.next_seq.0 + seqs);
        let (jsn, seq) = (self.next_jsn, Seq(next_seq.0 - seqs.min(1)));
        let before = self.open.data.len();
        let (segment, offset) = (self.active.id, self.end);
        let value_len: usize = value.iter().map(|part| part.len()).sum();
        let room = record::padded_len(record::HEADER_BYTES + key.len() + head.len() + value_len);
        let out = self.open.data.end(room, &mut self.spares);
        let span = record::encode_record(out, segment, offset, kind, flags, jsn, seq, key, head, value);
        self.next_jsn = Jsn(jsn.0 + 1);
        self.next_seq = next_seq;
        self.advance(before);
        (self.open.last_seq, self.open.end_jsn) = (Seq(next_seq.0 - 1), self.next_jsn);
        self.counters.records += 1;
        Appended { jsn, seq, offset: span.offset, len: span.len }
    }

    /// Appends one data record whose version expires, in milliseconds since 1970.
    pub fn append_expiring(
        &mut self,
        flags: u8,
        key: &[u8],
        expires_ms: u64,
        head: &[u8],
        value: &[&[u8]],
    ) -> Appended {
        let mut expiring = Vec::with_capacity(record::EXPIRY_BYTES + head.len());
        expiring.extend_from_slice(&expires_ms.to_le_bytes());
        expiring.extend_from_slice(head);
        self.append(Kind::Data, flags | record::FLAG_EXPIRES, key, &expiring, value)
    }

    /// Counts the record just appended, which has no ledger entry, for the segment's end.
    pub fn count(&mut self, at: Appended) {
        self.heads.count(at.jsn, at.seq);
    }

    /// Remembers the head of the record just appended, for the block of heads at the segment's end.
    pub fn remember(&mut self, at: Appended, key: &[u8], entry_parts: &[&[u8]]) {
        self.heads.push(at.jsn, at.seq, key, entry_parts);
    }

    /// Whether [`Writer::flush`] would hand a group to the disk.
    pub fn can_flush(&self) -> bool {
        if self.refused.is_some() && !self.tries {
            return self.in_flight.is_none()
                && self.fenced.is_none()
                && self.must_sync_written()
                && self.may_sync();
        }
        let open = self.open.data.len();
        let is_lazy = self.durability == Durability::None || !self.open_is_awaited;
        let open_is_due = if is_lazy && !self.push_wanted { open >= LAZY_GROUP_BYTES } else { open > 0 };
        self.in_flight.is_none()
            && self.fenced.is_none()
            && (!self.full.is_empty() || open_is_due || self.sync_wanted)
            && (self.may_sync() || !self.syncs_next())
            && (self.ended.is_none() || !self.ends_segment_next())
    }

    /// Whether a group may be synced: all that was written to another file is durable, and no other sync is under way.
    fn may_sync(&self) -> bool {
        !self.syncs_beside && self.ended_unsynced().is_none()
    }

    /// Whether the next group is its segment's last.
    fn ends_segment_next(&self) -> bool {
        self.full.front().is_some_and(|group| group.seal.is_some())
    }

    /// Whether the next group is to be synced.
    fn syncs_next(&self) -> bool {
        let next = self.full.front().unwrap_or(&self.open);
        self.durability == Durability::Sync
            || self.sync_wanted
            || next.sync
            || self.unsynced + next.data.len() as u64 >= UNSYNCED_BYTES_MAX
    }

    /// Asks that what waits be handed to the disk, though nobody waits for it.
    pub fn want_push(&mut self) {
        self.push_wanted = !self.open.data.is_empty();
    }

    /// Hands the oldest waiting group to the disk unless one is under way or a write has failed; whether it did.
    pub fn flush(&mut self, disk: &mut dyn Disk) -> bool {
        if self.can_flush() && self.ends_segment_next() && self.full[0].data.is_empty() {
            // All of that segment was written before: there is nothing for the disk to do.
            let last = self.full.pop_front().expect("it was looked at");
            let end = Position { segment: last.segment, offset: last.offset };
            self.note_ended(last.file, end, last.seal.expect("it was looked at"));
        }
        let flushes = self.can_flush();
        if flushes {
            self.flush_next(disk);
        }
        flushes
    }

    fn flush_next(&mut self, disk: &mut dyn Disk) {
        if self.refused.is_some() && !self.tries {
            return self.sync_written(disk);
        }
        self.tries = false;
        let syncs = self.syncs_next();
        let mut group = self.full.pop_front().unwrap_or_else(|| {
            self.push_wanted = false;
            self.take_open()
        });
        group.sync = syncs;
        if group.sync && self.full.is_empty() && self.open.data.is_empty() {
            self.sync_wanted = false;
        }
        self.submit(group, disk);
    }

    /// Takes the disk's answer for the group under way.
    pub fn on_written(&mut self, result: Result<(), DiskError>) {
        let group = self.in_flight.take().expect("only a group under way can complete");
        let result = if base::planted!(FailedSyncForgotten) { Ok(()) } else { result };
        match result {
            Ok(()) => {
                self.waits_no_longer(&group);
                if group.len > 0 {
                    self.refused = None;
                }
                (self.written, self.written_jsn) = (group.last_seq, group.end_jsn);
                let end = Position { segment: group.segment, offset: group.offset + group.len as u64 };
                self.written_end = (group.file, end);
                if group.sync {
                    (self.durable, self.durable_jsn) = (group.last_seq, group.end_jsn);
                    self.durable_position = end;
                }
                self.spares.keep(group.data);
                if let Some(heads) = group.seal {
                    self.note_ended(group.file, end, heads);
                }
            }
            Err(error) if error.kind.is_passing() => {
                self.refused = Some(error.into());
                self.full.push_front(group.put_back());
            }
            Err(error) => {
                self.waits_no_longer(&group);
                self.fence(error.into());
            }
        }
    }

    fn waits_no_longer(&mut self, group: &InFlight) {
        self.waiting_bytes -= group.len;
        self.reserved_bytes -= group.memory.iter().map(Reservation::bytes).sum::<usize>();
    }

    /// Asks that everything appended so far be synced, whatever the durability.
    pub fn want_sync(&mut self) {
        if self.durable_jsn < self.next_jsn {
            self.sync_wanted = true;
        }
    }

    /// Gives the writer its next segment.
    pub fn provide(&mut self, next: ReadySegment) {
        assert!(self.next.is_none() && next.id > self.active.id, "segments come one at a time and in order");
        self.next = Some(next);
    }

    /// Whether the active segment has no record.
    pub fn is_active_empty(&self) -> bool {
        self.end == SEGMENT_HEADER_BYTES as u64
    }

    /// Ends the active segment before it is full, if the next one is there; whether it did. It is synced and sealed as
    /// any other.
    pub fn end_segment(&mut self) -> bool {
        let can = self.next.is_some() && self.fenced.is_none();
        if can {
            self.change_segment();
        }
        can
    }

    /// Whether a group of this segment is on its way to the disk, or waits for that, or it has ended and is not sealed
    /// yet.
    pub fn has_pending(&self, segment: SegmentId) -> bool {
        let in_flight = self.in_flight.as_ref().is_some_and(|group| group.segment == segment);
        let has_ended = self.ended.as_ref().is_some_and(|ended| ended.segment() == segment);
        in_flight || has_ended || self.full.iter().any(|group| group.segment == segment)
    }

    /// Whether the next segment should be made now: always one ahead.
    pub fn wants_segment(&self) -> bool {
        self.next.is_none() && self.fenced.is_none()
    }

    /// The bytes at `offset` of `segment` if they still wait for the disk.
    pub fn waiting(&self, segment: SegmentId, offset: u64, len: usize) -> Option<Bytes> {
        let holds = |at: SegmentId, start: u64, data_len: usize| {
            at == segment && offset >= start && offset + len as u64 <= start + data_len as u64
        };
        if let Some(group) = &self.in_flight
            && holds(group.segment, group.offset, group.len)
        {
            let from = usize::try_from(offset - group.offset).ok()?;
            return Some(buffer::slice(&group.data, from, len));
        }
        let group = self
            .full
            .iter()
            .chain([&self.open])
            .find(|group| holds(group.segment, group.offset, group.data.len()))?;
        let from = usize::try_from(offset - group.offset).ok()?;
        Some(group.data.copy(from, len))
    }

    /// The newest version appended.
    pub fn last_seq(&self) -> Seq {
        Seq(self.next_seq.0 - 1)
    }

    /// The newest version that may be acknowledged.
    pub fn acknowledged(&self) -> Seq {
        self.reached(self.durability)
    }

    /// The newest version that is as safe as `durability` asks.
    pub fn reached(&self, durability: Durability) -> Seq {
        match durability {
            Durability::None => match self.fenced {
                None => self.last_seq(),
                Some(_) => self.written,
            },
            Durability::Interval => self.written,
            Durability::Sync => self.durable,
        }
    }

    /// The newest version that the operating system has.
    pub fn written(&self) -> Seq {
        self.written
    }

    /// The newest version that no crash can lose.
    pub fn durable(&self) -> Seq {
        self.durable
    }

    /// No crash can lose a record with a number below this one.
    pub fn durable_jsn(&self) -> Jsn {
        self.durable_jsn
    }

    /// Where the next record will stand.
    pub fn position(&self) -> Position {
        Position { segment: self.active.id, offset: self.end }
    }

    /// The next record's number.
    pub fn next_jsn(&self) -> Jsn {
        self.next_jsn
    }

    /// The active segment's file.
    pub fn active(&self) -> (SegmentId, FileId) {
        (self.active.id, self.active.file)
    }

    /// Whether a group is under way that is to be synced.
    pub fn is_syncing(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|group| group.sync)
    }

    /// Bounds what waits for the disk, large batches also by a budget that stores share.
    pub fn bound(&mut self, waiting_bytes_max: usize, budget: Option<Arc<Budget>>) {
        (self.waiting_bytes_max, self.budget) = (waiting_bytes_max, budget);
    }

    /// Bytes that may wait for the disk.
    pub fn waiting_bytes_max(&self) -> usize {
        self.waiting_bytes_max
    }

    /// Bytes that wait for the disk, of which there may be [`Writer::waiting_bytes_max`].
    /// Large batches that have memory of a budget do not count.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes.saturating_sub(self.reserved_bytes)
    }

    /// Whether nothing waits for the disk.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_none()
            && self.full.is_empty()
            && self.open.data.is_empty()
            && self.ended.is_none()
            && !self.sync_wanted
    }

    /// Takes no more writes, because something else that they rest on has failed.
    pub fn fence(&mut self, cause: Error) {
        self.fenced.get_or_insert(cause.to_string());
    }

    /// The write that failed, if one has.
    pub fn fenced(&self) -> Option<&str> {
        self.fenced.as_deref()
    }

    /// The write that failed, if what was acknowledged before it is not any more: without durability that is what was
    /// not written yet.
    pub fn took_back(&self) -> Option<&str> {
        self.fenced().filter(|_| self.durability == Durability::None && self.written < self.last_seq())
    }

    /// Why the oldest waiting group is not written for now, if the disk had no room for it.
    pub fn refused(&self) -> Option<&Error> {
        self.refused.as_ref()
    }

    /// Lets [`Writer::flush`] try a group once more that the disk had no room for.
    pub fn try_again(&mut self) {
        self.tries = self.refused.is_some();
    }

    /// The active segment's file and where its records end, if it was given room beyond. Nothing waits for the disk.
    pub fn spare_room(&self) -> Option<(FileId, u64)> {
        assert!(self.is_idle(), "the file is cut where its records end");
        let Position { segment, offset } = self.reach;
        (segment == self.active.id && offset > self.end).then_some((self.active.file, self.end))
    }

    /// Bytes of the disk that were taken since the store was opened, by records or as room ahead of them.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether room is to be taken ahead of records, as long as the disk has some to spare.
    pub fn take_ahead(&mut self, ahead: bool) {
        self.ahead = ahead;
    }

    /// Counters since the store was opened.
    pub fn counters(&self) -> JournalCounters {
        self.counters
    }

    fn open_group(&mut self) {
        self.open.offset = self.end;
        if self.needs_mark() {
            let mark = Mark { jsn: self.next_jsn, seq: self.next_seq, durable: self.durable_position };
            self.open.begin(mark, &mut self.spares);
            self.stated = Some(Stated { durable: mark.durable, offset: self.end });
            self.advance(0);
        }
    }

    /// Whether the group that begins at the end is to have a mark. While a sync is under way or wanted, more may be
    /// durable when the group is handed over than is now.
    fn needs_mark(&self) -> bool {
        let syncs = self.is_syncing() || self.syncs_beside || self.sync_wanted;
        let (durable, segment) = (self.durable_position, self.active.id);
        syncs || self.stated.is_none_or(|stated| stated.needs_another(durable, segment, self.end))
    }

    fn advance(&mut self, open_len_before: usize) {
        let grown = self.open.data.len() - open_len_before;
        self.end += grown as u64;
        self.waiting_bytes += grown;
    }

    fn take_open(&mut self) -> Group {
        let fresh =
            Group::new(self.active.id, self.active.file, self.end, self.open.last_seq, self.open.end_jsn);
        std::mem::replace(&mut self.open, fresh)
    }

    fn change_segment(&mut self) {
        let mut last = self.take_open();
        last.seal = Some(std::mem::replace(&mut self.heads, SealBuilder::new()));
        self.full.push_back(last);
        self.active = self.next.take().expect("the caller has looked");
        self.stated = None;
        self.end = SEGMENT_HEADER_BYTES as u64;
        self.open.segment = self.active.id;
        self.open.file = self.active.file;
        self.open.offset = self.end;
    }

    fn must_sync_written(&self) -> bool {
        self.sync_wanted && self.durable_jsn < self.written_jsn
    }

    /// Syncs what was written before the group that was refused: all of it is in that group's segment, since one that
    /// has ended is waited for.
    fn sync_written(&mut self, disk: &mut dyn Disk) {
        let refused = self.full.front().expect("a group that is refused waits");
        let (written, end_jsn) = (self.written, self.written_jsn);
        let group = Group::new(refused.segment, refused.file, refused.offset, written, end_jsn);
        self.submit(Group { sync: true, ..group }, disk);
    }

    // The mark was written when the group was opened; more may be durable by now, and the more a mark claims,
    // the less damage can be mistaken for a torn tail.
    fn submit(&mut self, mut group: Group, disk: &mut dyn Disk) {
        if group.renew_mark(self.durable_position)
            && let Some(stated) = &mut self.stated
            && (group.segment, group.offset) == (self.active.id, stated.offset)
        {
            stated.durable = self.durable_position;
        }
        let len = group.data.len();
        let data = group.data.freeze();
        self.counters.groups += u64::from(len > 0);
        self.counters.syncs += u64::from(group.sync);
        self.counters.bytes += len as u64;
        self.unsynced = if group.sync { 0 } else { self.unsynced + len as u64 };
        let op = if len == 0 {
            DiskOp::Sync { file: group.file }
        } else {
            let room = self.take(group.segment, group.offset + len as u64, group.seal.is_some());
            let (file, offset, data) = (group.file, group.offset, data.clone());
            DiskOp::Write { file, offset, data, room, sync: group.sync }
        };
        self.in_flight = Some(InFlight {
            segment: group.segment,
            file: group.file,
            offset: group.offset,
            data,
            len,
            last_seq: group.last_seq,
            end_jsn: group.end_jsn,
            mark: group.mark,
            sync: group.sync,
            seal: group.seal,
            memory: group.memory,
        });
        disk.submit(op, self.token);
    }

    /// Counts what a group takes that ends at `end`, and tells for how much its segment is to have room: 0 if it has as
    /// much, or needs none. The last group of a segment needs none, nor do groups that are not synced one by one.
    fn take(&mut self, segment: SegmentId, end: u64, is_last: bool) -> u64 {
        if self.reach.segment != segment {
            self.reach = Position { segment, offset: SEGMENT_HEADER_BYTES as u64 };
        }
        if end <= self.reach.offset {
            return 0;
        }
        let ahead = match self.durability == Durability::Sync && !is_last && self.ahead {
            true => end.next_multiple_of(ROOM_BYTES).min(self.segment_bytes_target),
            false => 0,
        };
        let reach = end.max(ahead);
        self.taken += reach - self.reach.offset;
        self.reach.offset = reach;
        if ahead > end { ahead } else { 0 }
    }
}
