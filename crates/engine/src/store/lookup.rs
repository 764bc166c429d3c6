//! Finding a key's newest version: the steps, and how they wait for the disk without holding up the shard.
//!
//! 1. The memtables, newest first.
//! 2. Each table that may hold the key, newest first: filter, index, block.
//! 3. If a value is wanted and is not inline: its record in the journal, one read.
//!
//! A step that would wait for the disk parks the lookup; when the disk has answered it is taken up again. A
//! lookup that waited for a block begins anew with that block at hand, which costs little and always answers
//! the newest version. A lookup that waited for its record has its version already and only checks the record.

use super::Store;
use crate::entry::{Entry, Jsn, Location, Seq, is_over};
use crate::error::Error;
use crate::manifest::TableCursor;
use crate::memtable;
use crate::read::RecordAt;
use crate::table::{Block, BlockHandle, Table};
use base::budget::LARGE_BYTES;
use base::disk::{DiskAnswer, DiskOp, FileId, Token};
use base::{Disk, DiskError, Monotonic, Reservation};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// Lookups that may wait for the disk at once. Each holds a key and one read: 4,096 of them are far more than
/// any disk has use for at a time.
pub const LOOKUPS_PARKED_MAX: usize = 4096;

/// What a lookup is to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The head only: never reads the journal.
    Head,
    /// Head and value.
    Value,
}

/// A version that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// When it became visible.
    pub seq: Seq,
    /// Its head.
    pub head: Bytes,
    /// Its value, if it was wanted.
    pub value: Option<Bytes>,
    /// When it ends, in milliseconds since 1970; `None` for never.
    pub expires_ms: Option<u64>,
}

/// Names a lookup that waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LookupId(pub u64);

/// A lookup's answer, or the promise of one.
#[derive(Debug)]
pub enum Lookup {
    /// The newest version, or none.
    Done(Result<Option<Found>, Error>),
    /// It waits for the disk; an event will carry the id.
    NeedsIo(LookupId),
}

/// A lookup that waits.
#[derive(Debug)]
pub(super) struct Parked {
    key: Box<[u8]>,
    want: Want,
    /// The owner's drop of the key; 0 for none.
    dropped_at: Seq,
    read: PendingRead,
    /// The turn in which it was.
    since: Monotonic,
}

#[derive(Debug)]
enum PendingRead {
    Block {
        table: Arc<Table>,
        handle: BlockHandle,
    },
    /// With the memory that is reserved for it, if it is large.
    Record(RecordAt, Option<Reservation>),
}

/// A block that a lookup waited for.
struct BlockAtHand<'a> {
    table: &'a Arc<Table>,
    index: u32,
    block: Block,
}

enum Step {
    Answer(Option<Found>),
    Read(PendingRead),
}

/// What a table's block has of a key.
struct Hit {
    seq: Seq,
    jsn: Jsn,
    location: Location,
    expires_ms: Option<u64>,
    /// Empty where head and value will come from the journal.
    head: Bytes,
    inline: Bytes,
}

impl Hit {
    /// The version of `key` in `block`, which is shared only for the parts that are wanted.
    fn find(block: &Block, key: &[u8], hash: u64, want: Want) -> Result<Option<Hit>, Error> {
        let Some((seq, bytes)) = block.find_hashed(key, hash)? else { return Ok(None) };
        let Entry { jsn, location, head, inline, expires_ms } = Entry::decode(bytes)?;
        let from_journal = want == Want::Value && matches!(location, Location::Journal { .. });
        let head = if from_journal { Bytes::new() } else { block.share(head) };
        Ok(Some(Hit { seq, jsn, location, expires_ms, head, inline: block.share(inline) }))
    }
}

impl Store {
    /// Finds the newest version of `key`.
    pub fn lookup(&mut self, key: &[u8], want: Want) -> Lookup {
        self.lookup_since(key, want, Seq(0))
    }

    /// The same for an owner that has dropped `key` with the version `dropped_at`, and written it anew if it is still
    /// there: versions that were lost before are none that are missing.
    pub fn lookup_since(&mut self, key: &[u8], want: Want, dropped_at: Seq) -> Lookup {
        match self.lookup_step(key, want, dropped_at, None) {
            Ok(Step::Answer(found)) => Lookup::Done(Ok(found)),
            Ok(Step::Read(read)) => self.park((key.into(), want, dropped_at), read),
            Err(error) => Lookup::Done(Err(error)),
        }
    }

    /// Takes the disk's answer for a parked lookup; `None` when it has to wait once more.
    pub(super) fn resume_lookup(
        &mut self,
        id: LookupId,
        result: Result<DiskAnswer, DiskError>,
    ) -> Option<(LookupId, Result<Option<Found>, Error>)> {
        let mut parked = self.parked.remove(&id).expect("a read completes once");
        self.read_times.count(self.turned_at.since(parked.since));
        match self.resume(&mut parked, result) {
            Ok(Step::Answer(found)) => Some((id, Ok(found))),
            Ok(Step::Read(read)) => {
                self.submit_read(id, &read);
                self.parked.insert(id, Parked { read, since: self.turned_at, ..parked });
                None
            }
            Err(error) => Some((id, Err(error))),
        }
    }

    fn resume(&mut self, parked: &mut Parked, result: Result<DiskAnswer, DiskError>) -> Result<Step, Error> {
        let data = match result? {
            DiskAnswer::Data(data) => data,
            other => unreachable!("a read answered {other:?}"),
        };
        match &mut parked.read {
            PendingRead::Record(at, memory) => {
                at.check(&parked.key, held(data, memory.take())).map(|found| Step::Answer(Some(found)))
            }
            PendingRead::Block { table, handle } => {
                let block = Block::parse(data, table.id(), handle.offset)?;
                self.cache.insert(table.id(), handle.index, block.clone());
                let at_hand = BlockAtHand { table, index: handle.index, block };
                self.lookup_step(&parked.key, parked.want, parked.dropped_at, Some(at_hand))
            }
        }
    }

    fn lookup_step(
        &mut self,
        key: &[u8],
        want: Want,
        dropped_at: Seq,
        at_hand: Option<BlockAtHand<'_>>,
    ) -> Result<Step, Error> {
        let hash = memtable::hash(key);
        // Before the memtables, so that what they wait for is waited for together with that.
        let cursor = self.version.cursor(key, |table| table.prefetch_filter(hash));
        let found = self.in_memtables(key, hash);
        if let Some((seq, entry)) = found {
            let entry = Entry::decode(entry)?;
            self.check_fence(seq)?;
            self.lost.check_found(key, seq)?;
            if self.is_gone(key, seq, entry.location, entry.expires_ms) {
                return Ok(Step::Answer(None));
            }
            let head = if want == Want::Value && matches!(entry.location, Location::Journal { .. }) {
                Bytes::new()
            } else {
                Bytes::copy_from_slice(entry.head)
            };
            let inline = Bytes::copy_from_slice(if want == Want::Value { entry.inline } else { &[] });
            let (jsn, location, expires_ms) = (entry.jsn, entry.location, entry.expires_ms);
            self.counters.found_in_memtable += 1;
            return self.finish(key, want, seq, jsn, location, head, inline, expires_ms);
        }
        self.in_tables((key, hash, dropped_at), cursor, want, at_hand)
    }

    fn in_memtables(&self, key: &[u8], hash: u64) -> Option<(Seq, &[u8])> {
        let newest = self.memtable.get_hashed(key, hash, u64::MAX);
        let found = newest.or_else(|| {
            self.frozen.iter().rev().find_map(|frozen| frozen.reader.get_hashed(key, hash, u64::MAX))
        });
        found.map(|(seq, entry)| (Seq(seq), entry))
    }

    // Shares of what is shared are counted by atomic operations, before which the processor waits for all that it has
    // asked memory for: so none is taken before something is found.
    fn in_tables(
        &mut self,
        (key, hash, dropped_at): (&[u8], u64, Seq),
        mut cursor: TableCursor,
        want: Want,
        at_hand: Option<BlockAtHand<'_>>,
    ) -> Result<Step, Error> {
        let Store { version, cache, disk, counters, .. } = self;
        let mut hit = None;
        while let Some(table) = version.next_table_if(key, &mut cursor, |table| {
            let passes = table.may_contain(hash);
            counters.filtered += u64::from(!passes);
            passes
        }) {
            let Some(handle) = table.find_block(key) else { continue };
            let look = |block: &Block| Hit::find(block, key, hash, want);
            hit = match &at_hand {
                Some(hand) if hand.table.id() == table.id() && hand.index == handle.index => {
                    look(&hand.block)
                }
                _ => match cache.with(table.id(), handle.index, look) {
                    Some(looked) => looked,
                    None => match read_block(&mut **disk, table, handle)? {
                        Some(block) => {
                            let looked = look(&block);
                            cache.insert(table.id(), handle.index, block);
                            looked
                        }
                        None => {
                            return Ok(Step::Read(PendingRead::Block { table: Arc::clone(table), handle }));
                        }
                    },
                },
            }?;
            if hit.is_some() {
                break;
            }
            counters.false_positives += 1;
        }
        let Some(Hit { seq, jsn, location, expires_ms, head, inline }) = hit else {
            self.lost.check_missing_since(key, dropped_at)?;
            self.counters.missing += 1;
            return Ok(Step::Answer(None));
        };
        self.lost.check_found(key, seq)?;
        if self.is_gone(key, seq, location, expires_ms) {
            return Ok(Step::Answer(None));
        }
        self.counters.found_in_level[cursor.level()] += 1;
        self.finish(key, want, seq, jsn, location, head, inline, expires_ms)
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of one entry, already taken apart by its two callers"
    )]
    fn finish(
        &mut self,
        key: &[u8],
        want: Want,
        seq: Seq,
        jsn: Jsn,
        location: Location,
        head: Bytes,
        inline: Bytes,
        expires_ms: Option<u64>,
    ) -> Result<Step, Error> {
        match (location, want) {
            (Location::Deleted, _) => Ok(Step::Answer(None)),
            (_, Want::Head) => Ok(Step::Answer(Some(Found { seq, head, value: None, expires_ms }))),
            (Location::Inline, Want::Value) => {
                Ok(Step::Answer(Some(Found { seq, head, value: Some(inline), expires_ms })))
            }
            (Location::Journal { offset, len }, Want::Value) => self.value(key, seq, jsn, offset, len),
        }
    }

    fn value(&mut self, key: &[u8], seq: Seq, jsn: Jsn, offset: u32, len: u32) -> Result<Step, Error> {
        let at = RecordAt::new(&self.segments, jsn, seq, offset, len)?;
        let (from, len) = (u64::from(at.offset), at.len as usize);
        let memory = self.memory_for(len)?;
        if let Some(data) = self.writer.waiting(at.segment, from, len) {
            return at.check(key, held(data, memory)).map(|found| Step::Answer(Some(found)));
        }
        self.counters.journal_reads_wanted += 1;
        match try_read(&mut *self.disk, at.file, from, len) {
            Some(data) => at.check(key, held(data, memory)).map(|found| Step::Answer(Some(found))),
            None => Ok(Step::Read(PendingRead::Record(at, memory))),
        }
    }

    /// Reserves memory for a record that is to be read, if it is large.
    fn memory_for(&self, len: usize) -> Result<Option<Reservation>, Error> {
        match &self.options.value_budget {
            Some(budget) if len >= LARGE_BYTES => {
                let full = || Error::Full { what: "the memory for values", limit: budget.limit() };
                budget.reserve(len).map(Some).ok_or_else(full)
            }
            _ => Ok(None),
        }
    }

    /// Whether the newest version of `key` is no answer: a deletion, ended by now, or dropped with its range.
    fn is_gone(&self, key: &[u8], seq: Seq, location: Location, expires_ms: Option<u64>) -> bool {
        location == Location::Deleted
            || expires_ms.is_some_and(|expires_ms| is_over(expires_ms, self.now_ms()))
            || self.drops.covers(key, seq)
    }

    fn park(&mut self, (key, want, dropped_at): (Box<[u8]>, Want, Seq), read: PendingRead) -> Lookup {
        if self.parked.len() >= LOOKUPS_PARKED_MAX {
            return Lookup::Done(Err(Error::Full {
                what: "the list of waiting lookups",
                limit: LOOKUPS_PARKED_MAX,
            }));
        }
        let id = LookupId(self.next_id());
        self.submit_read(id, &read);
        let since = self.turned_at;
        self.parked.insert(id, Parked { key, want, dropped_at, read, since });
        Lookup::NeedsIo(id)
    }

    fn submit_read(&mut self, id: LookupId, read: &PendingRead) {
        let op = match read {
            PendingRead::Block { table, handle } => {
                DiskOp::Read { file: table.file(), offset: handle.offset, len: handle.len as usize }
            }
            PendingRead::Record(at, _) => {
                DiskOp::Read { file: at.file, offset: u64::from(at.offset), len: at.len as usize }
            }
        };
        self.disk.submit(op, Token(id.0));
    }

    // After a failed write or sync nothing is known of what was not durable by then.
    fn check_fence(&self, seq: Seq) -> Result<(), Error> {
        if seq <= self.writer.acknowledged() {
            return Ok(());
        }
        self.held_up().map_or(Ok(()), Err)
    }
}

/// Data that gives its memory back with its last slice.
fn held(data: Bytes, memory: Option<Reservation>) -> Bytes {
    match memory {
        Some(memory) => memory.hold(data),
        None => data,
    }
}

/// A block from the operating system's cache, without waiting.
fn read_block(disk: &mut dyn Disk, table: &Table, handle: BlockHandle) -> Result<Option<Block>, Error> {
    let Some(data) = try_read(disk, table.file(), handle.offset, handle.len as usize) else {
        return Ok(None);
    };
    Ok(Some(Block::parse(data, table.id(), handle.offset)?))
}

/// What a disk has in memory of a file, if it is all that is asked for.
pub(crate) fn try_read(disk: &mut dyn Disk, file: FileId, offset: u64, len: usize) -> Option<Bytes> {
    let mut buffer = BytesMut::zeroed(len);
    match disk.try_read(file, offset, &mut buffer) {
        Some(read) if read == len => Some(buffer.freeze()),
        _ => None,
    }
}
