//! What stands around the records of a segment: its name, its header, and the seal that ends it.
//!
//! ```text
//! header (64) | records | heads records | index record | seal record | trailer (32)
//! ```
//!
//! A segment's block of heads repeats key, seq and ledger entry of every data and delete record, so that the
//! ledger can be rebuilt without reading values. Only a compacted segment has an index ([`SegmentIndex`]). The trailer
//! is the file's last bytes and says where the seal is. Header and trailer have a checksum of their own. Records say
//! where they stand themselves, so they can be read though the header is damaged.
//!
//! A segment is used in this order: the header is written and synced, and the directory is synced; records are
//! appended; heads, seal and trailer are appended and synced; then nothing changes any more.

use super::index::SegmentIndex;
use super::record::{HEADER_BYTES, Header, Kind, Record, encode_record, get_u32, get_u64, padded_len};
use crate::entry::{Jsn, Seq, get_varint, put_varint};
use crate::error::Error;
use base::checksum::crc32c;
use bytes::Bytes;

/// A segment's number: its place in the order of segments. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SegmentId(pub u64);

/// The top bit of the number of a segment that compaction wrote.
const COMPACTED: u64 = 1 << 63;

impl SegmentId {
    /// The compacted segment of this number.
    pub fn compacted(number: u64) -> SegmentId {
        SegmentId(number | COMPACTED)
    }

    /// Whether compaction wrote it: its numbers have gaps and its id says nothing of its place in the journal, so it
    /// is never replayed; an index says where its records stand.
    pub fn is_compacted(self) -> bool {
        self.0 & COMPACTED != 0
    }

    /// Its number, without what tells the two sorts from each other.
    pub fn number(self) -> u64 {
        self.0 & !COMPACTED
    }

    /// The version of its format.
    fn version(self) -> u16 {
        if self.is_compacted() { VERSION_COMPACTED } else { VERSION }
    }
}

/// A place in the journal. Positions are ordered as they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// The segment.
    pub segment: SegmentId,
    /// The byte in it.
    pub offset: u64,
}

/// Bytes of a group mark's head: a segment and an offset.
pub(super) const DURABLE_MARK_BYTES: usize = 16;

/// The head of a group mark: all before `durable` was synced when the group was written.
pub fn durable_mark(durable: Position) -> [u8; DURABLE_MARK_BYTES] {
    let mut bytes = [0; DURABLE_MARK_BYTES];
    bytes[..8].copy_from_slice(&durable.segment.0.to_le_bytes());
    bytes[8..].copy_from_slice(&durable.offset.to_le_bytes());
    bytes
}

/// What a group mark's head says was synced.
pub fn parse_durable_mark(head: &[u8]) -> Option<Position> {
    let head: &[u8; DURABLE_MARK_BYTES] = head.try_into().ok()?;
    Some(Position { segment: SegmentId(get_u64(head, 0)), offset: get_u64(head, 8) })
}

/// The version of the format: header, records, seal and trailer together.
pub const VERSION: u16 = 1;

/// The version of the segments that compaction writes: the header says for which numbers they stand, and an index
/// says where records are.
pub const VERSION_COMPACTED: u16 = 2;

/// The header's length: the first record's offset.
pub const SEGMENT_HEADER_BYTES: usize = 64;

/// The trailer's length.
pub const TRAILER_BYTES: usize = 32;

/// Where a part of the block of heads ends: a read of recovery's own size. One entry may make it longer.
pub const HEADS_CHUNK_BYTES: usize = 1 << 20;

const HEADER_MAGIC: [u8; 8] = *b"ANNULETJ";
const TRAILER_MAGIC: [u8; 8] = *b"ANNULETE";
/// The journal's folder in the store's.
pub const FOLDER: &str = "journal";

const SUFFIX: &str = ".seg";
const SEAL_HEAD_BYTES: usize = 56;

/// The file's name in the journal's folder.
pub fn file_name(segment: SegmentId) -> String {
    format!("{:016x}{SUFFIX}", segment.0)
}

/// The file's name relative to the store's folder, for errors.
pub fn path_in_store(segment: SegmentId) -> String {
    format!("{FOLDER}/{}", file_name(segment))
}

/// The segment that has this name; `None` for any other file.
pub fn parse_file_name(name: &str) -> Option<SegmentId> {
    let digits = name.strip_suffix(SUFFIX)?;
    let segment = SegmentId(u64::from_str_radix(digits, 16).ok()?);
    (file_name(segment) == name).then_some(segment)
}

/// What a segment's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The segment's number, again: a renamed or misdirected file is noticed.
    pub segment: SegmentId,
    /// The incarnation of the store that made it.
    pub incarnation: u64,
    /// For a compacted segment: the numbers for all of which it stands, whatever is left of them.
    pub stands_for: (Jsn, Jsn),
}

/// Why a header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// It is short, fails its checksum, or is another segment's.
    Damaged,
    /// A newer program wrote it, in this version of the format.
    Version(u16),
}

/// The header of a new segment.
pub fn encode_header(segment: SegmentId, incarnation: u64) -> [u8; SEGMENT_HEADER_BYTES] {
    encode_compacted_header(segment, incarnation, (Jsn(0), Jsn(0)))
}

/// The header of a segment that stands for the numbers from the first to before the second.
pub fn encode_compacted_header(
    segment: SegmentId,
    incarnation: u64,
    stands_for: (Jsn, Jsn),
) -> [u8; SEGMENT_HEADER_BYTES] {
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    bytes[0..8].copy_from_slice(&HEADER_MAGIC);
    bytes[8..10].copy_from_slice(&segment.version().to_le_bytes());
    bytes[16..24].copy_from_slice(&segment.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&incarnation.to_le_bytes());
    bytes[32..40].copy_from_slice(&stands_for.0.0.to_le_bytes());
    bytes[40..48].copy_from_slice(&stands_for.1.0.to_le_bytes());
    let crc = crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Checks the header of the file that is named for `segment`.
pub fn parse_header(bytes: &[u8], segment: SegmentId) -> Result<SegmentHeader, HeaderError> {
    let bytes = bytes.first_chunk::<SEGMENT_HEADER_BYTES>().ok_or(HeaderError::Damaged)?;
    if bytes[0..8] != HEADER_MAGIC || get_u32(bytes, 60) != crc32c(&bytes[..60]) {
        return Err(HeaderError::Damaged);
    }
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    if version != segment.version() {
        return Err(HeaderError::Version(version));
    }
    let stands_for = (Jsn(get_u64(bytes, 32)), Jsn(get_u64(bytes, 40)));
    let (id, incarnation) = (SegmentId(get_u64(bytes, 16)), get_u64(bytes, 24));
    let header = SegmentHeader { segment: id, incarnation, stands_for };
    if header.segment == segment { Ok(header) } else { Err(HeaderError::Damaged) }
}

/// What a seal says of its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Seal {
    /// The first record's number.
    pub first_jsn: Jsn,
    /// The number after the last record's.
    pub end_jsn: Jsn,
    /// The lowest seq of a record.
    pub min_seq: Seq,
    /// The highest seq of a record.
    pub max_seq: Seq,
    /// How many numbered records there are.
    pub records: u64,
    /// How many entries the block of heads has. Where it is less than `records`, a rebuild reads the records,
    /// too, for those of other kinds.
    pub heads: u64,
    /// Where the records end and the first heads record stands (or the seal, when there is no head).
    pub heads_offset: u64,
    /// Where the record with the index stands; 0 where there is none.
    pub index_offset: u64,
}

impl Seal {
    fn to_bytes(self) -> Vec<u8> {
        let fields = [
            self.first_jsn.0,
            self.end_jsn.0,
            self.min_seq.0,
            self.max_seq.0,
            self.records,
            self.heads,
            self.heads_offset,
        ];
        let index = (self.index_offset > 0).then_some(self.index_offset);
        fields.into_iter().chain(index).flat_map(u64::to_le_bytes).collect()
    }

    /// Reads a record of the kind [`Kind::Seal`].
    pub fn from_record(record: &Record<'_>) -> Result<Seal, Error> {
        let (bytes, index): (&[u8; SEAL_HEAD_BYTES], &[u8]) =
            record.head.split_first_chunk().ok_or(Error::Malformed("seal"))?;
        let index_offset = match index.len() {
            0 => 0,
            8 => get_u64(index, 0),
            _ => return Err(Error::Malformed("seal")),
        };
        let field = |index: usize| get_u64(bytes, index * 8);
        Ok(Seal {
            first_jsn: Jsn(field(0)),
            end_jsn: Jsn(field(1)),
            min_seq: Seq(field(2)),
            max_seq: Seq(field(3)),
            records: field(4),
            heads: field(5),
            heads_offset: field(6),
            index_offset,
        })
    }
}

/// The last bytes of a sealed segment.
pub fn encode_trailer(segment: SegmentId, seal_offset: u64) -> [u8; TRAILER_BYTES] {
    let mut bytes = [0; TRAILER_BYTES];
    bytes[0..8].copy_from_slice(&TRAILER_MAGIC);
    bytes[8..16].copy_from_slice(&seal_offset.to_le_bytes());
    bytes[16..24].copy_from_slice(&segment.0.to_le_bytes());
    bytes[24..26].copy_from_slice(&segment.version().to_le_bytes());
    let crc = crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Where the seal stands, if `bytes` are the trailer of `segment`.
pub fn parse_trailer(bytes: &[u8], segment: SegmentId) -> Option<u64> {
    let seal_offset = get_u64(bytes.first_chunk::<TRAILER_BYTES>()?, 8);
    (bytes == encode_trailer(segment, seal_offset)).then_some(seal_offset)
}

/// Gathers a segment's heads while it is written. Heads are laid down as the records that they will be, so
/// sealing copies nothing: a segment of small values has tens of megabytes of them.
#[derive(Debug, Default)]
pub struct SealBuilder {
    full: Vec<(Vec<u8>, u32)>,
    open: Vec<u8>,
    /// Of the last head in `open`.
    last_seq: Seq,
    full_bytes: usize,
    seal: Seal,
    index: Option<Vec<u8>>,
}

/// The end of a segment, ready to be appended.
#[derive(Debug)]
pub struct SealedEnd {
    /// To be written one after another from where the records end; each about a megabyte, one slice of a job.
    pub parts: Vec<Bytes>,
    /// What the seal says.
    pub seal: Seal,
    /// Where the seal stands.
    pub seal_offset: u64,
    /// The file's length when all is written.
    pub end: u64,
}

impl SealBuilder {
    /// A builder for a segment that has no record yet.
    pub fn new() -> SealBuilder {
        SealBuilder::default()
    }

    /// Counts a numbered record of a kind that has no ledger entry. Numbers ascend.
    pub fn count(&mut self, jsn: Jsn, seq: Seq) {
        let seal = &mut self.seal;
        if seal.records == 0 {
            (seal.first_jsn, seal.min_seq, seal.max_seq) = (jsn, seq, seq);
        } else {
            assert!(jsn >= seal.end_jsn, "numbers ascend in a segment");
        }
        seal.end_jsn = Jsn(jsn.0 + 1);
        seal.min_seq = seal.min_seq.min(seq);
        seal.max_seq = seal.max_seq.max(seq);
        seal.records += 1;
    }

    /// Counts a data or delete record and keeps its ledger entry, which comes in parts that follow one another.
    pub fn push(&mut self, jsn: Jsn, seq: Seq, key: &[u8], entry: &[&[u8]]) {
        self.count(jsn, seq);
        if self.open.is_empty() {
            self.open.reserve(HEADER_BYTES + HEADS_CHUNK_BYTES);
            self.open.extend_from_slice(&[0; HEADER_BYTES]);
            self.last_seq = Seq(0);
        }
        let out = &mut self.open;
        put_varint(out, key.len() as u64);
        out.extend_from_slice(key);
        put_varint(out, step(self.last_seq, seq));
        self.last_seq = seq;
        put_varint(out, entry.iter().map(|part| part.len() as u64).sum());
        for part in entry {
            out.extend_from_slice(part);
        }
        self.seal.heads += 1;
        if self.open.len() >= HEADS_CHUNK_BYTES {
            self.close_chunk();
        }
    }

    /// Adds the index of a compacted segment.
    pub fn with_index(mut self, index: &SegmentIndex) -> SealBuilder {
        self.index = Some(index.encode());
        self
    }

    /// The bytes gathered: what the end of the segment will take, near enough.
    pub fn bytes(&self) -> usize {
        self.full_bytes + self.open.len()
    }

    /// How many numbered records were counted.
    pub fn records(&self) -> u64 {
        self.seal.records
    }

    /// The end of `segment`, whose records end at `data_end`. A segment without records is not sealed.
    pub fn finish(mut self, segment: SegmentId, data_end: u64) -> SealedEnd {
        assert!(self.seal.records > 0, "a segment without records is removed, not sealed");
        if !self.open.is_empty() {
            self.close_chunk();
        }
        self.seal.heads_offset = data_end;
        let next_jsn = self.seal.end_jsn;
        let mut parts = Vec::with_capacity(self.full.len() + 1);
        let mut at = data_end;
        for (mut chunk, value_crc) in self.full {
            let header = heads_header(next_jsn, value_crc, chunk.len() - HEADER_BYTES);
            at = header.write(segment, at, &mut chunk).end();
            chunk.resize(padded_len(chunk.len()), 0);
            parts.push(Bytes::from(chunk));
        }
        let mut last = Vec::new();
        if let Some(index) = &self.index {
            self.seal.index_offset = at;
            let (kind, value) = (Kind::Index, [&index[..]]);
            at = encode_record(&mut last, segment, at, kind, 0, next_jsn, Seq(0), b"", b"", &value).end();
        }
        let (seal_offset, seal) = (at, self.seal.to_bytes());
        let span =
            encode_record(&mut last, segment, seal_offset, Kind::Seal, 0, next_jsn, Seq(0), b"", &seal, &[]);
        last.extend_from_slice(&encode_trailer(segment, seal_offset));
        parts.push(Bytes::from(last));
        SealedEnd { parts, seal: self.seal, seal_offset, end: span.end() + TRAILER_BYTES as u64 }
    }

    /// The checksum is taken here and not at the end, so that sealing does not stall a shard.
    fn close_chunk(&mut self) {
        let chunk = std::mem::take(&mut self.open);
        let crc = crc32c(&chunk[HEADER_BYTES..]);
        self.full_bytes += chunk.len();
        self.full.push((chunk, crc));
    }
}

fn heads_header(next_jsn: Jsn, value_crc: u32, value_len: usize) -> Header {
    Header {
        kind: Kind::Heads,
        flags: 0,
        jsn: next_jsn,
        seq: Seq(0),
        key_crc: crc32c(b""),
        value_crc,
        key_len: 0,
        head_len: 0,
        value_len: u32::try_from(value_len).expect("a chunk is a few megabytes long"),
    }
}

/// One entry of a block of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// The record's key.
    pub key: &'a [u8],
    /// The record's seq.
    pub seq: Seq,
    /// The ledger entry's bytes ([`crate::Entry`]).
    pub entry: &'a [u8],
}

/// The way from a seq to the next one: mostly one up, and after a compaction whichever, so a sign goes below the
/// number.
fn step(from: Seq, to: Seq) -> u64 {
    let difference = to.0.wrapping_sub(from.0) as i64;
    ((difference << 1) ^ (difference >> 63)) as u64
}

/// Where a [`step`] leads.
fn after_step(from: Seq, step: u64) -> Seq {
    Seq(from.0.wrapping_add((step >> 1) ^ (step & 1).wrapping_neg()))
}

/// Goes through the entries of one heads record's value, in the order of their records.
#[derive(Clone, Debug)]
pub struct Heads<'a> {
    rest: &'a [u8],
    /// Of the entry before, if seqs are steps.
    last_seq: Option<Seq>,
}

impl<'a> Heads<'a> {
    /// The entries of `value`, of a record of this kind.
    pub fn new(kind: Kind, value: &'a [u8]) -> Heads<'a> {
        Heads { rest: value, last_seq: (kind != Kind::HeadsV1).then_some(Seq(0)) }
    }

    fn take_bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(get_varint(&mut self.rest)?).ok()?;
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }

    fn take_head(&mut self) -> Option<Head<'a>> {
        let key = self.take_bytes()?;
        let number = get_varint(&mut self.rest)?;
        let seq = self.last_seq.map_or(Seq(number), |last| after_step(last, number));
        self.last_seq = self.last_seq.and(Some(seq));
        let entry = self.take_bytes()?;
        Some(Head { key, seq, entry })
    }
}

impl<'a> Iterator for Heads<'a> {
    type Item = Result<Head<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let head = self.take_head();
        if head.is_none() {
            // What follows nonsense is nonsense.
            self.rest = &[];
        }
        Some(head.ok_or(Error::Malformed("block of heads")))
    }
}
