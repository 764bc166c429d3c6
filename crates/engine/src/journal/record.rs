//! One record of the journal: its bytes and its checks.
//!
//! ```text
//!  0 magic u32       4 header_crc u32   8 key_crc u32    12 value_crc u32
//! 16 kind u8        17 flags u8        18 zero u16       20 key_len u32
//! 24 jsn u64        32 seq u64         40 head_len u32   44 value_len u32
//! 48 key | head | value | zeros to a multiple of 8
//! ```
//!
//! The head of a record whose version expires begins with the time, 8 bytes; `head_len` counts them.
//!
//! * `header_crc` covers the segment's number, the record's offset in it and bytes 8 to 48, so neither a
//!   misdirected block nor a stale one passes, and lengths are believed only after this check.
//! * `key_crc` covers key and head, `value_crc` the value; both stand in the checked header. So damage to a
//!   value still names its key, and damage to a key still says how long the record is and which number it had.
//!
//! A value may be compressed ([`crate::compression`]): to a record it is bytes like others. Left out: what a head or a
//! value means.

use super::segment::SegmentId;
use crate::entry::{HEAD_BYTES_MAX, Jsn, KEY_BYTES_MAX, Seq, VALUE_BYTES_MAX};
use base::checksum::{crc32c, crc32c_append};
use std::ops::Range;

/// The bytes before the key.
pub const HEADER_BYTES: usize = 48;

/// Every record begins at a multiple of this: a scan that lost its way tries only these places.
pub const ALIGN: usize = 8;

/// What a record begins with: the place to try when a scan has lost its way. Not text in any encoding.
pub const MAGIC: u32 = u32::from_le_bytes([0xF1, b'R', b'J', 0x9E]);

/// What a record takes beyond its key, head and value.
pub const RECORD_OVERHEAD_BYTES_MAX: usize = HEADER_BYTES + ALIGN - 1;

/// The longest record. Well below 4 GiB, so lengths and sums of them fit 32 bits.
pub const RECORD_BYTES_MAX: usize = HEADER_BYTES + KEY_BYTES_MAX + HEAD_BYTES_MAX + VALUE_BYTES_MAX;

const _: () = assert!(HEADER_BYTES.is_multiple_of(ALIGN) && RECORD_BYTES_MAX < (u32::MAX / 2) as usize);

/// What a record is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A version of a key.
    Data = 1,
    /// A key is gone from the ledger; head and value are empty.
    Delete = 2,
    /// A range of keys is gone: the key is its first, the head its end.
    RangeDrop = 3,
    /// An entry of a consistent group's log; the head begins with group, term, index and commit index
    /// ([`crate::proposals`]).
    Proposed = 4,
    /// A consistency group's term, vote and commit index.
    HardState = 5,
    /// Entries of consistent groups' logs take effect.
    CommitMark = 6,
    /// A consistency group's log is no longer needed up to an index.
    TruncateMark = 7,
    /// Begins every append; the head is the position before which all was synced when it was written
    /// ([`durable_mark`](super::segment::durable_mark)).
    GroupMark = 8,
    /// A part of a sealed segment's block of heads, as it was written first: each with its whole seq.
    HeadsV1 = 9,
    /// Ends a sealed segment.
    Seal = 10,
    /// Says where the records of a compacted segment stand.
    Index = 11,
    /// A part of a sealed segment's block of heads.
    Heads = 12,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::*;
        let all = [
            Data,
            Delete,
            RangeDrop,
            Proposed,
            HardState,
            CommitMark,
            TruncateMark,
            GroupMark,
            HeadsV1,
            Seal,
            Index,
            Heads,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Whether the record has a jsn of its own. The others carry the next record's.
    pub fn is_numbered(self) -> bool {
        !(matches!(self, Kind::GroupMark | Kind::Seal | Kind::Index) || self.is_heads())
    }

    /// Whether it is a part of a block of heads.
    pub fn is_heads(self) -> bool {
        matches!(self, Kind::Heads | Kind::HeadsV1)
    }

    /// Whether the record has a seq of its own. The others carry the next one, or none.
    pub fn takes_seq(self) -> bool {
        self.is_numbered() && self != Kind::Proposed
    }

    /// Whether the record may have a value that the ledger does not keep.
    pub fn has_value(self) -> bool {
        matches!(self, Kind::Data | Kind::Proposed)
    }

    /// The jsn of the record after one of this kind that says `jsn`.
    pub fn jsn_after(self, jsn: Jsn) -> Jsn {
        Jsn(jsn.0.saturating_add(u64::from(self.is_numbered())))
    }

    /// The seq after a record of this kind that says `seq`, if it says one.
    pub fn seq_after(self, seq: Seq) -> Option<Seq> {
        let after = Seq(seq.0.saturating_add(u64::from(self.takes_seq())));
        (seq > Seq(0)).then_some(after)
    }
}

/// Flag: the value is kept in the ledger's entry; the record is log only.
pub const FLAG_INLINE: u8 = 1;

/// Flag: the atomic batch goes on with the next record.
pub const FLAG_MORE: u8 = 2;

/// Flag: the version expires; the head begins with when, in milliseconds since 1970.
pub const FLAG_EXPIRES: u8 = 4;

/// What [`FLAG_EXPIRES`] puts before a head.
pub const EXPIRY_BYTES: usize = 8;

/// Flag: the value is compressed with LZ4 ([`crate::compression`]).
pub const FLAG_LZ4: u8 = 8;

/// Flag: the value is compressed with Zstandard.
pub const FLAG_ZSTD: u8 = 16;

/// Flag: entries of the same group that were written before, from the same index on, are gone (of [`Kind::Proposed`]).
pub const FLAG_REPLACES: u8 = 32;

const FLAGS_KNOWN: u8 = FLAG_INLINE | FLAG_MORE | FLAG_EXPIRES | FLAG_LZ4 | FLAG_ZSTD | FLAG_REPLACES;

/// Where a record was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSpan {
    /// Its first byte in the segment.
    pub offset: u32,
    /// Its length without padding: what a reader reads.
    pub len: u32,
}

impl RecordSpan {
    /// Where the next record begins.
    pub fn end(self) -> u64 {
        u64::from(self.offset) + padded_len(self.len as usize) as u64
    }
}

/// A record of `len` bytes with its padding.
pub fn padded_len(len: usize) -> usize {
    len.next_multiple_of(ALIGN)
}

/// Appends a record to `out`; its first byte will stand at `offset` of `segment`. `value` comes in parts that
/// follow one another. One pass: nothing is copied but into `out`. Panics if a part is over its limit or the
/// place does not fit a segment: callers check sizes.
#[allow(
    clippy::too_many_arguments,
    reason = "a record's fields; a struct of them would be taken apart at once"
)]
pub fn encode_record(
    out: &mut Vec<u8>,
    segment: SegmentId,
    offset: u64,
    kind: Kind,
    flags: u8,
    jsn: Jsn,
    seq: Seq,
    key: &[u8],
    head: &[u8],
    value: &[&[u8]],
) -> RecordSpan {
    let value_len = value.iter().map(|part| part.len()).sum();
    let len = HEADER_BYTES + key.len() + head.len() + value_len;
    let start = out.len();
    out.reserve(padded_len(len));
    out.extend_from_slice(&[0; HEADER_BYTES]);
    out.extend_from_slice(key);
    out.extend_from_slice(head);
    let value_start = out.len();
    for part in value {
        out.extend_from_slice(part);
    }
    let header = Header {
        kind,
        flags,
        jsn,
        seq,
        key_crc: crc32c(&out[start + HEADER_BYTES..value_start]),
        value_crc: crc32c(&out[value_start..]),
        key_len: field_len(key.len(), KEY_BYTES_MAX),
        head_len: field_len(head.len(), HEAD_BYTES_MAX),
        value_len: field_len(value_len, VALUE_BYTES_MAX),
    };
    let span = header.write(segment, offset, &mut out[start..]);
    out.resize(start + padded_len(len), 0);
    span
}

fn field_len(len: usize, limit: usize) -> u32 {
    assert!(len <= limit, "a part of {len} bytes in a record; the limit is {limit}");
    u32::try_from(len).expect("every limit of a record's part fits 32 bits")
}

/// A record's fixed part, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the record is for.
    pub kind: Kind,
    /// Its flags.
    pub flags: u8,
    /// Its number, or the next record's ([`Kind::is_numbered`]).
    pub jsn: Jsn,
    /// When it became visible; zero where the kind has no seq.
    pub seq: Seq,
    /// The checksum of key and head.
    pub key_crc: u32,
    /// The checksum of the value.
    pub value_crc: u32,
    /// The key's length.
    pub key_len: u32,
    /// The head's length.
    pub head_len: u32,
    /// The value's length.
    pub value_len: u32,
}

impl Header {
    /// Reads and checks the fixed part of the record that stands at `offset` of `segment`.
    pub fn parse(bytes: &[u8], segment: SegmentId, offset: u64) -> Result<Header, ParseError<'static>> {
        let Some(fixed) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(ParseError::Truncated { needs: HEADER_BYTES });
        };
        if get_u32(fixed, 0) != MAGIC || !passes(get_u32(fixed, 4), header_crc(fixed, segment, offset)) {
            return Err(ParseError::BadHeader);
        }
        let header = Header {
            kind: Kind::from_byte(fixed[16]).ok_or(ParseError::Unknown("record kind"))?,
            flags: fixed[17],
            jsn: Jsn(get_u64(fixed, 24)),
            seq: Seq(get_u64(fixed, 32)),
            key_crc: get_u32(fixed, 8),
            value_crc: get_u32(fixed, 12),
            key_len: get_u32(fixed, 20),
            head_len: get_u32(fixed, 40),
            value_len: get_u32(fixed, 44),
        };
        if header.flags & !FLAGS_KNOWN != 0 || fixed[18..20] != [0, 0] {
            return Err(ParseError::Unknown("record flag"));
        }
        if header.key_len as usize > KEY_BYTES_MAX
            || header.head_len as usize > HEAD_BYTES_MAX
            || header.value_len as usize > VALUE_BYTES_MAX
        {
            return Err(ParseError::Unknown("record length over its limit"));
        }
        if header.flags & FLAG_EXPIRES != 0
            && (header.kind != Kind::Data || (header.head_len as usize) < EXPIRY_BYTES)
        {
            return Err(ParseError::Unknown("expiry of a record that has none"));
        }
        if header.flags & FLAG_REPLACES != 0 && header.kind != Kind::Proposed {
            return Err(ParseError::Unknown("replacement of entries by a record that is none"));
        }
        if header.flags & (FLAG_LZ4 | FLAG_ZSTD) != 0
            && (!header.kind.has_value()
                || header.flags & FLAG_INLINE != 0
                || header.flags & (FLAG_LZ4 | FLAG_ZSTD) == FLAG_LZ4 | FLAG_ZSTD)
        {
            return Err(ParseError::Unknown("compression of a record that cannot have it"));
        }
        Ok(header)
    }

    /// Puts the header in front of a record whose other bytes are there. It is for the writers of segments.
    pub(crate) fn write(&self, segment: SegmentId, offset: u64, record: &mut [u8]) -> RecordSpan {
        assert!(offset.is_multiple_of(ALIGN as u64), "a record at offset {offset}");
        let fixed = record.first_chunk_mut::<HEADER_BYTES>().expect("the caller left room for the header");
        fixed[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        fixed[8..12].copy_from_slice(&self.key_crc.to_le_bytes());
        fixed[12..16].copy_from_slice(&self.value_crc.to_le_bytes());
        fixed[16] = self.kind as u8;
        fixed[17] = self.flags;
        fixed[20..24].copy_from_slice(&self.key_len.to_le_bytes());
        fixed[24..32].copy_from_slice(&self.jsn.0.to_le_bytes());
        fixed[32..40].copy_from_slice(&self.seq.0.to_le_bytes());
        fixed[40..44].copy_from_slice(&self.head_len.to_le_bytes());
        fixed[44..48].copy_from_slice(&self.value_len.to_le_bytes());
        let crc = header_crc(fixed, segment, offset);
        fixed[4..8].copy_from_slice(&crc.to_le_bytes());
        RecordSpan {
            offset: u32::try_from(offset).expect("a segment ends below 4 GiB"),
            len: u32::try_from(self.record_len()).expect("a record is shorter than 4 GiB"),
        }
    }

    /// The whole record's length without padding.
    pub fn record_len(&self) -> usize {
        self.value_range().end
    }

    /// Where the key stands in the record.
    pub fn key_range(&self) -> Range<usize> {
        HEADER_BYTES..HEADER_BYTES + self.key_len as usize
    }

    /// Where the head stands in the record.
    pub fn head_range(&self) -> Range<usize> {
        let start = self.key_range().end;
        start..start + self.head_len as usize
    }

    /// Where the value stands in the record.
    pub fn value_range(&self) -> Range<usize> {
        let start = self.head_range().end;
        start..start + self.value_len as usize
    }

    /// Checks what follows the header. `bytes` begin with the record; as much of the padding as they hold is
    /// checked, too.
    pub(crate) fn parse_body<'a>(&self, bytes: &'a [u8]) -> Result<Record<'a>, ParseError<'a>> {
        let len = self.record_len();
        if bytes.len() < len {
            return Err(ParseError::Truncated { needs: len });
        }
        let (key, head, value) = self.split(bytes);
        if !passes(self.key_crc, crc32c(&bytes[HEADER_BYTES..self.value_range().start])) {
            return Err(ParseError::BadKey { header: *self });
        }
        if !passes(self.value_crc, crc32c(value)) {
            return Err(ParseError::BadValue { header: *self, key, head, what: "value checksum" });
        }
        let padding = &bytes[len..padded_len(len).min(bytes.len())];
        if padding.iter().any(|&byte| byte != 0) {
            return Err(ParseError::BadValue { header: *self, key, head, what: "record padding" });
        }
        Ok(self.record(bytes))
    }

    /// Cuts checked bytes up.
    pub(super) fn record<'a>(&self, bytes: &'a [u8]) -> Record<'a> {
        let (key, head, value) = self.split(bytes);
        let (expires_ms, head) = self.split_expiry(head);
        let (kind, flags, jsn, seq) = (self.kind, self.flags, self.jsn, self.seq);
        Record { kind, flags, jsn, seq, key, head, value, expires_ms }
    }

    /// When the version ends, and the rest of the record's `head`.
    pub fn split_expiry<'a>(&self, head: &'a [u8]) -> (Option<u64>, &'a [u8]) {
        match head.split_first_chunk::<EXPIRY_BYTES>() {
            Some((expiry, rest)) if self.flags & FLAG_EXPIRES != 0 => {
                (Some(u64::from_le_bytes(*expiry)), rest)
            }
            _ => (None, head),
        }
    }

    fn split<'a>(&self, bytes: &'a [u8]) -> (&'a [u8], &'a [u8], &'a [u8]) {
        (&bytes[self.key_range()], &bytes[self.head_range()], &bytes[self.value_range()])
    }
}

/// A whole, checked record, borrowed from where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it is for.
    pub kind: Kind,
    /// Its flags.
    pub flags: u8,
    /// Its number, or the next record's ([`Kind::is_numbered`]).
    pub jsn: Jsn,
    /// When it became visible; zero where the kind has no seq.
    pub seq: Seq,
    /// Its key.
    pub key: &'a [u8],
    /// Its head, without what [`FLAG_EXPIRES`] puts before it.
    pub head: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// When the version ends, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

impl Record<'_> {
    /// Where the value stands in the record's bytes: to slice shared bytes without a copy.
    pub fn value_range(&self) -> Range<usize> {
        let start = HEADER_BYTES + self.key.len() + self.head.len();
        start..start + self.value.len()
    }
}

/// Why bytes are no whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError<'a> {
    /// There are fewer bytes than `needs`, which is the header's length or, the header being good, the record's.
    Truncated {
        /// How many bytes there must be, from the record's first.
        needs: usize,
    },
    /// No record begins here, or its header is damaged: nothing is known.
    BadHeader,
    /// The header passed its check and says something that this program does not know.
    Unknown(&'static str),
    /// Key or head are damaged: the record's number and length are known, its key is not.
    BadKey {
        /// The good header.
        header: Header,
    },
    /// Header, key and head are good, and what follows is damaged.
    BadValue {
        /// The good header.
        header: Header,
        /// The good key.
        key: &'a [u8],
        /// The good head.
        head: &'a [u8],
        /// What failed.
        what: &'static str,
    },
}

/// Reads and checks the record that `bytes` begin with and that stands at `offset` of `segment`. More bytes may
/// follow it; the padding need not be there.
pub fn parse(bytes: &[u8], segment: SegmentId, offset: u64) -> Result<Record<'_>, ParseError<'_>> {
    Header::parse(bytes, segment, offset)?.parse_body(bytes)
}

/// The one place where a record's checksum is compared.
fn passes(stored: u32, computed: u32) -> bool {
    stored == computed || base::planted!(RecordWithoutChecksum)
}

fn header_crc(fixed: &[u8; HEADER_BYTES], segment: SegmentId, offset: u64) -> u32 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&segment.0.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c_append(crc32c(&place), &fixed[8..])
}

/// Reads a number out of a structure whose length has been checked.
pub(super) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the structure's length was checked"))
}

/// Reads a number out of a structure whose length has been checked.
pub(super) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the structure's length was checked"))
}
