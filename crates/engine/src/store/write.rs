//! Writing: one batch, all of it or nothing.
//!
//! 1. Check the limits.
//! 2. Make room in the journal.
//! 3. Append each record to the journal's open group.
//! 4. Put each entry into the memtable: at once visible to read-modify-writes, not yet acknowledged. It comes into the
//!    memtable's order with others, when enough have gathered or somebody asks for a snapshot; where others read, when
//!    the turn ends.
//! 5. Freeze the memtable if it is full (`freeze.rs`), as in step 2 where a segment begins and it spans many.
//!
//! The disk comes later, when the turn ends ([`Store::turn`]).

use super::room::Brings;
use super::{Durability, Store};
use crate::drops::{DROPS_MAX, RangeDrop};
use crate::entry::{
    ENTRY_PREFIX_BYTES_MAX, Entry, HEAD_BYTES_MAX, KEY_BYTES_MAX, Location, Seq, VALUE_BYTES_MAX,
};
use crate::error::Error;
use crate::journal::record::{self, Kind};
use crate::journal::writer;
use crate::memtable;
use crate::store::segments::Segment;
use bytes::Bytes;
use std::sync::Arc;

/// Frozen memtables that may wait for their flush. With the active one they bound the ledger's memory; beyond
/// it writes are refused until a flush is done.
pub const MEMTABLES_FROZEN_MAX: usize = 2;

/// Tables in level 0 beyond which writes are refused until a merge is done, or twice as many as are merged at a time,
/// if that is more: each costs every lookup a filter.
pub const LEVEL0_TABLES_MAX: usize = 32;

/// Writes in one batch: it must lie in one segment and be replayed at once.
pub const BATCH_WRITES_MAX: usize = 4096;

/// One write of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Write<'a> {
    /// Sets a key's head and value.
    Put {
        /// The key.
        key: &'a [u8],
        /// The head.
        head: &'a [u8],
        /// The value, in parts that are joined in the journal.
        value: &'a [&'a [u8]],
    },
    /// Sets a key's head and value until a time; from then on it is as if it had been deleted.
    PutUntil {
        /// The key.
        key: &'a [u8],
        /// The head.
        head: &'a [u8],
        /// The value, in parts that are joined in the journal.
        value: &'a [&'a [u8]],
        /// When the version ends, in milliseconds since 1970-01-01 UTC, by the store's clock.
        expires_ms: u64,
    },
    /// Removes a key, whether or not it is there.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Removes every key in a range, at once and at the cost of one small record; the range can be written again
    /// right away, in the same batch even. See [`crate::drops`].
    DropRange {
        /// The first key.
        start: &'a [u8],
        /// The key behind the last one; empty for no end.
        end: &'a [u8],
    },
}

impl<'a> Write<'a> {
    /// The key that it is about; `None` of a range.
    pub(super) fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Write::Put { key, .. } | Write::PutUntil { key, .. } | Write::Delete { key } => Some(key),
            Write::DropRange { .. } => None,
        }
    }
}

impl Store {
    /// Applies a batch and tells the version of its last write: the batch may be acknowledged once
    /// [`Store::acknowledged`] has reached it.
    pub fn write(&mut self, batch: &[Write<'_>]) -> Result<Seq, Error> {
        within("a batch's number of writes", batch.len(), BATCH_WRITES_MAX)?;
        self.write_all(batch)
    }

    /// [`Store::write`] of a batch whose number of writes was seen to.
    pub(super) fn write_all(&mut self, batch: &[Write<'_>]) -> Result<Seq, Error> {
        self.check_backlog()?;
        self.begin_batch(batch)?;
        let last = batch.len() - 1;
        for (index, write) in batch.iter().enumerate() {
            let more = if index < last { record::FLAG_MORE } else { 0 };
            self.apply(write, more);
        }
        self.freeze_if_full();
        Ok(self.writer.last_seq())
    }

    /// [`Store::write`] with a durability of its own: the batch may be acknowledged once
    /// [`Store::reached`] has come to it. A weaker one than the store's does not make it visible earlier.
    pub fn write_with(&mut self, batch: &[Write<'_>], durability: Durability) -> Result<Seq, Error> {
        let seq = self.write(batch)?;
        match durability {
            Durability::None => {}
            Durability::Interval => self.writer.want_push(),
            Durability::Sync => self.writer.want_sync(),
        }
        Ok(seq)
    }

    /// Refuses a write while too much waits for its flush or merge.
    pub(super) fn check_backlog(&self) -> Result<(), Error> {
        if base::planted!(NoBackPressure) {
            return Ok(());
        }
        if self.frozen.len() >= MEMTABLES_FROZEN_MAX && self.is_memtable_full() {
            let limit = self.options.memtable_bytes_max * (MEMTABLES_FROZEN_MAX + 1);
            return Err(Error::Full { what: "the memory of unflushed heads", limit });
        }
        if self.version.level(0).len() >= self.level0_limit() {
            return Err(Error::Full { what: "level 0 of the ledger", limit: self.level0_limit() });
        }
        Ok(())
    }

    /// Checks a batch, and makes room for it in the journal.
    pub(super) fn begin_batch(&mut self, batch: &[Write<'_>]) -> Result<(), Error> {
        assert!(!batch.is_empty(), "a batch without a write");
        let bytes = check_limits(batch)?;
        if self.is_sealed_by_close() {
            return Err(Error::Closing);
        }
        if self.options.heads_only && batch.iter().any(has_value) {
            return Err(Error::Refused("a value in a store of heads only"));
        }
        self.check_drops(batch)?;
        self.check_room(|| brings(batch), bytes)?;
        self.writer.begin_batch(bytes)?;
        self.note_segment();
        Ok(())
    }

    /// The record is made while the memtable's memory is on its way.
    fn apply(&mut self, write: &Write<'_>, more: u8) {
        match *write {
            Write::Put { key, head, value } => self.put(key, head, value, None, more),
            Write::PutUntil { key, head, value, expires_ms } => {
                self.put(key, head, value, Some(expires_ms), more);
            }
            Write::Delete { key } => {
                self.counters.user_bytes += key.len() as u64;
                let hash = self.hash_ahead(key);
                let at = self.writer.append(Kind::Delete, more, key, &[], &[]);
                self.enter(key, hash, at, Location::Deleted, &[], &[], None);
            }
            Write::DropRange { start, end } => {
                let at = self.writer.append(Kind::RangeDrop, more, start, end, &[]);
                self.writer.count(at);
                let (start, end) = (Bytes::copy_from_slice(start), Bytes::copy_from_slice(end));
                self.drops = self.drops.with(RangeDrop { start, end, seq: at.seq });
                if let Some(building) = &mut self.building {
                    building.read_again(at.seq);
                }
                // Tables let go of what was dropped once no crash can undo the drop.
                self.writer.want_sync();
            }
        }
    }

    pub(super) fn put(
        &mut self,
        key: &[u8],
        head: &[u8],
        value: &[&[u8]],
        expires_ms: Option<u64>,
        more: u8,
    ) {
        let hash = self.hash_ahead(key);
        let (at, location) = self.append_put(key, head, value, expires_ms, more);
        if location == Location::Inline {
            let mut inline = std::mem::take(&mut self.scratch_inline);
            inline.clear();
            value.iter().for_each(|part| inline.extend_from_slice(part));
            self.enter(key, hash, at, Location::Inline, head, &inline, expires_ms);
            self.scratch_inline = inline;
        } else {
            self.enter(key, hash, at, location, head, &[], expires_ms);
        }
    }

    /// The record of a put; the ledger entry is the caller's to make.
    pub(super) fn append_put(
        &mut self,
        key: &[u8],
        head: &[u8],
        value: &[&[u8]],
        expires_ms: Option<u64>,
        more: u8,
    ) -> (writer::Appended, Location) {
        let value_len: usize = value.iter().map(|part| part.len()).sum();
        self.counters.user_bytes += (key.len() + head.len() + value_len) as u64;
        let is_inline = value_len <= self.options.inline_value_bytes_max;
        let packed = match &mut self.compressor {
            Some(compressor) if !is_inline => compressor.on_receipt(value, value_len),
            _ => None,
        };
        let (flag, stored) = packed.unzip();
        if let Some(stored) = stored {
            self.counters.compressed.count(value_len, stored.len());
        }
        let value = stored.as_ref().map_or(value, std::slice::from_ref);
        let flags = more | flag.unwrap_or(0) | if is_inline { record::FLAG_INLINE } else { 0 };
        let at = match expires_ms {
            None => self.writer.append(Kind::Data, flags, key, head, value),
            Some(expires_ms) => self.writer.append_expiring(flags, key, expires_ms, head, value),
        };
        let in_journal = Location::Journal { offset: at.offset, len: at.len };
        (at, if is_inline { Location::Inline } else { in_journal })
    }

    fn hash_ahead(&self, key: &[u8]) -> u64 {
        let hash = memtable::hash(key);
        self.memtable.prefetch(hash);
        hash
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one entry, and where it goes")]
    fn enter(
        &mut self,
        key: &[u8],
        hash: u64,
        at: writer::Appended,
        location: Location,
        head: &[u8],
        inline: &[u8],
        expires_ms: Option<u64>,
    ) {
        let mut prefix = std::mem::take(&mut self.scratch_prefix);
        prefix.clear();
        prefix.reserve(ENTRY_PREFIX_BYTES_MAX);
        Entry { jsn: at.jsn, location, head, inline, expires_ms }.encode_prefix(&mut prefix);
        let parts: [&[u8]; 3] = [&prefix, head, inline];
        self.memtable.defer_hashed(key, hash, at.seq.0, &parts);
        self.writer.remember(at, key, &parts);
        self.accounts.count(location, at.len);
        self.scratch_prefix = prefix;
    }

    fn check_drops(&self, batch: &[Write<'_>]) -> Result<(), Error> {
        let new = batch.iter().filter(|write| matches!(write, Write::DropRange { .. })).count();
        if new > 0 && self.drops.len() + new > DROPS_MAX {
            return Err(Error::Full { what: "the list of dropped ranges", limit: DROPS_MAX });
        }
        Ok(())
    }

    // A segment begins when the writer says so; readers must find it before its first record is asked for.
    pub(super) fn note_segment(&mut self) {
        let (id, file) = self.writer.active();
        if self.segments.iter().last().is_none_or(|last| last.id != id) {
            let first_jsn = self.writer.next_jsn();
            Arc::make_mut(&mut self.segments).push(Segment { id, file, first_jsn, index: None });
            self.accounts.begin(id);
            if let Some(groups) = &mut self.groups {
                groups.may_have_old = true;
            }
            self.freeze_if_long();
        }
    }
}

/// What a batch takes room for.
fn brings(batch: &[Write<'_>]) -> Brings {
    if batch.iter().any(has_value) {
        return Brings::Values;
    }
    let removes = |write: &Write<'_>| matches!(write, Write::Delete { .. } | Write::DropRange { .. });
    if batch.iter().all(removes) { Brings::Removals } else { Brings::Heads }
}

fn has_value(write: &Write<'_>) -> bool {
    match write {
        Write::Put { value, .. } | Write::PutUntil { value, .. } => value.iter().any(|part| !part.is_empty()),
        Write::Delete { .. } | Write::DropRange { .. } => false,
    }
}

/// Checks every write of the batch and tells how much of the journal it will take at most.
fn check_limits(batch: &[Write<'_>]) -> Result<usize, Error> {
    let mut bytes = 0;
    for write in batch {
        let (key, head, value): (&[u8], &[u8], usize) = match *write {
            Write::Put { key, head, value } | Write::PutUntil { key, head, value, .. } => {
                (key, head, value.iter().map(|part| part.len()).sum())
            }
            Write::Delete { key } => (key, &[], 0),
            Write::DropRange { start, end } => {
                within("a range's end", end.len(), KEY_BYTES_MAX)?;
                (start, end, 0)
            }
        };
        within("a key", key.len(), KEY_BYTES_MAX)?;
        let expiry_bytes = if matches!(write, Write::PutUntil { .. }) { record::EXPIRY_BYTES } else { 0 };
        within("a head", head.len(), HEAD_BYTES_MAX - expiry_bytes)?;
        within("a value", value, VALUE_BYTES_MAX)?;
        bytes += record::RECORD_OVERHEAD_BYTES_MAX + expiry_bytes + key.len() + head.len() + value;
    }
    within("a batch", bytes, VALUE_BYTES_MAX + HEAD_BYTES_MAX + KEY_BYTES_MAX)?;
    Ok(bytes)
}

pub(super) fn within(what: &'static str, len: usize, limit: usize) -> Result<(), Error> {
    if len > limit { Err(Error::TooLarge { what, len, limit }) } else { Ok(()) }
}
