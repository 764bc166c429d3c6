//! The manifest's content and its encoding.
//!
//! ```text
//! magic 8 | version u32 | crc u32 | total_len u64 | body
//! ```
//!
//! The checksum covers everything but itself, and these 24 bytes are the same in every version, so that damage is
//! told from a newer version's manifest. The body is fixed-size fields, then counted lists: docs/formats/manifest.md.

use super::version::LEVELS;
use crate::compaction::Account;
use crate::drops::RangeDrop;
use crate::entry::{Jsn, Seq};
use crate::error::{Damage, Error};
use crate::lost::{LOST_HERE, LostRange};
use crate::table::fields::{Fields, put_bytes};
use crate::table::{Table, TableId, TableMeta};
use base::checksum::{crc32c, crc32c_append};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The newest version that is read. It is written for stores with consistent groups, and the one before for all others:
/// the program before opens those.
pub const MANIFEST_VERSION: u32 = 5;

/// The version without groups.
const MANIFEST_VERSION_PLAIN: u32 = 4;

/// The oldest version that is read. It and the next one have no accounts of segments; its tables have no entries that
/// expire, and it has no range drops. Before version 4 there is one lost range at most, of all keys.
const MANIFEST_VERSION_MIN: u32 = 1;

/// Keys and values of the application's metadata together: it is written with every flush.
pub const METADATA_BYTES_MAX: usize = 64 << 10;

const MAGIC: [u8; 8] = *b"ANULMANI";
const CRC_AT: usize = 12;
const HEADER_BYTES: usize = 24;

/// A place in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct JournalPosition {
    /// The segment's number.
    pub segment: u64,
    /// A byte in it.
    pub offset: u64,
}

/// What is known after a clean stop, and only then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanStop {
    /// The last dot that was given out: the next start need not skip to the lease's end.
    pub dot_counter: u64,
    /// Where the journal ends, exactly: anything else there is damage, since nothing can be torn.
    pub journal_end: JournalPosition,
}

/// A table that belongs to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRecord {
    /// Its number.
    pub id: TableId,
    /// Its file's length.
    pub len: u64,
    /// What it holds: if the table is lost, so much is known of the loss.
    pub meta: TableMeta,
}

impl TableRecord {
    /// The record of an open table.
    pub fn of(table: &Arc<Table>) -> TableRecord {
        TableRecord { id: table.id(), len: table.len(), meta: table.meta().clone() }
    }

    /// The keys of which it had versions, when it is lost.
    pub fn lost(&self, damage: Damage) -> LostRange {
        let meta = &self.meta;
        LostRange::of_keys(&meta.min_key, &meta.max_key, Seq(meta.max_seq.0 + 1), damage)
    }

    /// Whether `table` is the one meant: a file of the same name that came from elsewhere is not.
    pub fn describes(&self, table: &Table) -> bool {
        self.id == table.id() && self.len == table.len() && self.meta == *table.meta()
    }
}

/// A segment that belongs to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRecord {
    /// Its number.
    pub id: u64,
    /// The first record's jsn.
    pub first_jsn: Jsn,
    /// The last record's jsn, as far as it is known: exact when sealed.
    pub last_jsn: Jsn,
    /// Its file's length in use, as far as it is known: exact when sealed.
    pub len: u64,
    /// Whether nothing will be appended any more.
    pub sealed: bool,
    /// Its bytes by their use, of the records before the replay position.
    pub account: Account,
}

/// Facts of consistent groups ([`crate::proposals`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupsRecord {
    /// The first byte of the keys of states; none after a rebuild that could not know it.
    pub state_tag: Option<u8>,
    /// The oldest entry that the tables do not have, of those before the replay position, and where it is.
    pub oldest: Option<(JournalPosition, Jsn)>,
    /// Whether states or entries may have been lost without a trace, and the owner does not know it yet.
    pub may_be_lost: bool,
}

/// All that must be known to open a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestState {
    /// A random number, of this life of the store: the actor of its dots.
    pub incarnation: u64,
    /// No dot at or above this has been given out.
    pub dot_lease_end: u64,
    /// What a clean stop leaves; `None` while the store is open.
    pub clean: Option<CleanStop>,
    /// No table has this number or a higher one.
    pub next_table_id: TableId,
    /// No segment that was known had this number or a higher one.
    pub next_segment_id: u64,
    /// Records before this one are in tables.
    pub replay_jsn: Jsn,
    /// Where that record is, or where it will be.
    pub replay_position: JournalPosition,
    /// The greatest seq in any table.
    pub last_seq: Seq,
    /// The greatest jsn that was known.
    pub last_jsn: Jsn,
    /// The tables by level; level 0 has the newest first. At most [`LEVELS`].
    pub levels: Vec<Vec<TableRecord>>,
    /// The segments.
    pub segments: Vec<SegmentRecord>,
    /// What the application keeps here, up to [`METADATA_BYTES_MAX`].
    pub metadata: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Where versions were lost. It must outlive whoever found them: once what is left around them is in other tables,
    /// nobody would find the gap again.
    pub lost: Vec<LostRange>,
    /// Ranges that were dropped and may still have versions in tables, in the order of their seqs.
    pub drops: Vec<RangeDrop>,
    /// Consistent groups; none in a store that never had one.
    pub groups: Option<GroupsRecord>,
}

impl ManifestState {
    /// The file's bytes. [`Error::TooLarge`] if there is too much metadata.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let len = self.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        if len > METADATA_BYTES_MAX {
            return Err(Error::TooLarge { what: "the metadata", len, limit: METADATA_BYTES_MAX });
        }
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        let version = if self.groups.is_some() { MANIFEST_VERSION } else { MANIFEST_VERSION_PLAIN };
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&[0; HEADER_BYTES - CRC_AT]);
        self.put_body(&mut out);
        let len = out.len() as u64;
        out[CRC_AT + 4..HEADER_BYTES].copy_from_slice(&len.to_le_bytes());
        let crc = checksum(&out);
        out[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        Ok(out)
    }

    /// Reads the bytes of `file`. Damage, a newer version and a writer's mistake are errors of their own kinds.
    pub fn decode(bytes: &[u8], file: &str) -> Result<ManifestState, Error> {
        let damage = |what| Error::from(Damage { file: file.to_owned(), offset: 0, what });
        let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(damage("too short for a header"));
        };
        let mut fields = Fields::new(&header[8..]);
        let (Some(version), Some(crc), Some(len)) = (fields.u32(), fields.u32(), fields.u64()) else {
            unreachable!("the header has these three");
        };
        if header[..8] != MAGIC || crc != checksum(bytes) {
            return Err(damage("the checksum"));
        }
        if len != bytes.len() as u64 {
            return Err(damage("the length"));
        }
        if !(MANIFEST_VERSION_MIN..=MANIFEST_VERSION).contains(&version) {
            let what =
                format!("a manifest of version {version}; this program knows up to {MANIFEST_VERSION}");
            return Err(Error::Format { file: file.to_owned(), what });
        }
        body_of(body, version).ok_or(Error::Malformed("manifest"))
    }

    fn put_body(&self, out: &mut Vec<u8>) {
        let clean =
            self.clean.unwrap_or(CleanStop { dot_counter: 0, journal_end: JournalPosition::default() });
        for number in [
            self.incarnation,
            self.dot_lease_end,
            u64::from(self.clean.is_some()),
            clean.dot_counter,
            clean.journal_end.segment,
            clean.journal_end.offset,
            self.next_table_id.0,
            self.next_segment_id,
            self.replay_jsn.0,
            self.replay_position.segment,
            self.replay_position.offset,
            self.last_seq.0,
            self.last_jsn.0,
        ] {
            put_u64(out, number);
        }
        put_u64(out, self.levels.len() as u64);
        for level in &self.levels {
            put_u64(out, level.len() as u64);
            for table in level {
                put_u64(out, table.id.0);
                put_u64(out, table.len);
                table.meta.encode(out);
            }
        }
        put_u64(out, self.segments.len() as u64);
        for segment in &self.segments {
            put_u64(out, segment.id);
            put_u64(out, segment.first_jsn.0);
            put_u64(out, segment.last_jsn.0);
            put_u64(out, segment.len);
            put_u64(out, u64::from(segment.sealed));
            put_u64(out, segment.account.value_bytes);
            put_u64(out, segment.account.log_bytes);
            put_u64(out, segment.account.dead_bytes);
        }
        put_u64(out, self.metadata.len() as u64);
        for (key, value) in &self.metadata {
            put_bytes(out, key);
            put_bytes(out, value);
        }
        put_u64(out, self.lost.len() as u64);
        for range in &self.lost {
            put_u64(out, range.below.0);
            put_bytes(out, range.damage.file.as_bytes());
            put_u64(out, range.damage.offset);
            put_bytes(out, &range.start);
            put_bytes(out, &range.end);
        }
        put_u64(out, self.drops.len() as u64);
        for drop in &self.drops {
            put_u64(out, drop.seq.0);
            put_bytes(out, &drop.start);
            put_bytes(out, &drop.end);
        }
        if let Some(groups) = &self.groups {
            let (position, jsn) = groups.oldest.unwrap_or_default();
            for number in [
                groups.state_tag.map_or(NO_STATE_TAG, u64::from),
                u64::from(groups.oldest.is_some()),
                position.segment,
                position.offset,
                jsn.0,
                u64::from(groups.may_be_lost),
            ] {
                put_u64(out, number);
            }
        }
    }
}

/// The byte for no tag of states.
const NO_STATE_TAG: u64 = 256;

fn body_of(body: &[u8], version: u32) -> Option<ManifestState> {
    let mut fields = Fields::new(body);
    let mut state = ManifestState {
        incarnation: fields.u64()?,
        dot_lease_end: fields.u64()?,
        clean: clean_of(&mut fields)?,
        next_table_id: TableId(fields.u64()?),
        next_segment_id: fields.u64()?,
        replay_jsn: Jsn(fields.u64()?),
        replay_position: position_of(&mut fields)?,
        last_seq: Seq(fields.u64()?),
        last_jsn: Jsn(fields.u64()?),
        ..ManifestState::default()
    };
    let levels = fields.usize()?;
    if levels > LEVELS {
        return None;
    }
    for _ in 0..levels {
        // Lists grow as their items are read, so a count that is too large costs nothing.
        let mut tables = Vec::new();
        for _ in 0..fields.usize()? {
            let (id, len) = (TableId(fields.u64()?), fields.u64()?);
            tables.push(TableRecord { id, len, meta: TableMeta::decode(&mut fields, version > 1)? });
        }
        state.levels.push(tables);
    }
    for _ in 0..fields.usize()? {
        state.segments.push(SegmentRecord {
            id: fields.u64()?,
            first_jsn: Jsn(fields.u64()?),
            last_jsn: Jsn(fields.u64()?),
            len: fields.u64()?,
            sealed: flag(&mut fields)?,
            account: if version > 2 { account_of(&mut fields)? } else { Account::default() },
        });
    }
    for _ in 0..fields.usize()? {
        let (key, value) = (fields.bytes()?, fields.bytes()?);
        if state.metadata.insert(key.to_vec(), value.to_vec()).is_some() {
            return None;
        }
    }
    state.lost = lost_of(&mut fields, version)?;
    if version > 1 {
        state.drops = drops_of(&mut fields)?;
    }
    if version > MANIFEST_VERSION_PLAIN {
        state.groups = Some(groups_of(&mut fields)?);
    }
    fields.end()?;
    Some(state)
}

fn groups_of(fields: &mut Fields<'_>) -> Option<GroupsRecord> {
    let state_tag = match fields.u64()? {
        NO_STATE_TAG => None,
        tag => Some(u8::try_from(tag).ok()?),
    };
    let is_any = flag(fields)?;
    let oldest = (position_of(fields)?, Jsn(fields.u64()?));
    Some(GroupsRecord { state_tag, oldest: is_any.then_some(oldest), may_be_lost: flag(fields)? })
}

fn drops_of(fields: &mut Fields<'_>) -> Option<Vec<RangeDrop>> {
    let mut drops: Vec<RangeDrop> = Vec::new();
    for _ in 0..fields.usize()? {
        let seq = Seq(fields.u64()?);
        let (start, end) = (Bytes::copy_from_slice(fields.bytes()?), Bytes::copy_from_slice(fields.bytes()?));
        if drops.last().is_some_and(|last| last.seq >= seq) {
            return None;
        }
        drops.push(RangeDrop { start, end, seq });
    }
    Some(drops)
}

/// Before version 4 there was one range at most, of all keys.
fn lost_of(fields: &mut Fields<'_>, version: u32) -> Option<Vec<LostRange>> {
    let count = if version > 3 { fields.usize()? } else { usize::from(flag(fields)?) };
    let mut lost = Vec::new();
    for _ in 0..count {
        let below = Seq(fields.u64()?);
        let file = std::str::from_utf8(fields.bytes()?).ok()?.to_owned();
        let damage = Damage { file, offset: fields.u64()?, what: LOST_HERE };
        let mut range = LostRange::everything(below, damage);
        if version > 3 {
            range.start = Bytes::copy_from_slice(fields.bytes()?);
            range.end = Bytes::copy_from_slice(fields.bytes()?);
        }
        lost.push(range);
    }
    Some(lost)
}

fn account_of(fields: &mut Fields<'_>) -> Option<Account> {
    Some(Account { value_bytes: fields.u64()?, log_bytes: fields.u64()?, dead_bytes: fields.u64()? })
}

fn clean_of(fields: &mut Fields<'_>) -> Option<Option<CleanStop>> {
    let clean = flag(fields)?;
    let stop = CleanStop { dot_counter: fields.u64()?, journal_end: position_of(fields)? };
    Some(clean.then_some(stop))
}

fn position_of(fields: &mut Fields<'_>) -> Option<JournalPosition> {
    Some(JournalPosition { segment: fields.u64()?, offset: fields.u64()? })
}

fn flag(fields: &mut Fields<'_>) -> Option<bool> {
    match fields.u64()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Over everything but the checksum's own four bytes.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c_append(crc32c(&bytes[..CRC_AT]), &bytes[CRC_AT + 4..])
}
