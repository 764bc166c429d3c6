//! The bytes of a store: its superblock, and blocks with their records. The layout is docs/formats/backends.md.
//!
//! Invariants:
//!
//! * A record passes its check only in the block, at the offset and in the life of the block that it was written in:
//!   what a block has of an earlier life, or what a client puts into a value, is never taken for one. So its checksum
//!   begins with a random number of the store's own, and the number of that life.
//! * Checksums of records are XXH3 since version 2. A CRC over a head or value that ends with its own CRC, as bucket
//!   properties do, is the same for all of one length: a torn record with the head of an earlier life passed.
//! * A block whose life is over ends with an end record, which says where the log goes on.
//! * A record says up to where its block was known to be synced when it was written: a fault before the largest such
//!   mark that is found behind it is damage, any other may be what a crash left (as in the journal, decision 3).
//!
//! Left out: reading and writing; values are checked by whoever looks at them.

use super::index::ALIGN;
use crate::little::{get_u32, get_u64};
use base::checksum::{crc32c, crc32c_append};
use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const SUPERBLOCK_MAGIC: [u8; 8] = *b"ANNULETU";
const BLOCK_MAGIC: [u8; 8] = *b"ANNULETB";
/// The version of superblocks and of the records in their stores; an older store keeps its own.
const VERSION: u16 = 2;
const VERSION_CRC: u16 = 1;

/// The version of a block's header.
const BLOCK_VERSION: u16 = 1;

/// The superblock's length.
pub const SUPERBLOCK_BYTES: usize = 32;

/// The length of what a block begins with.
pub const BLOCK_HEADER_BYTES: usize = 32;

/// The length of a record before its key.
pub const HEADER_BYTES: usize = 28;

/// What an end record takes: every block keeps so much for it.
pub const END_BYTES: usize = padded(HEADER_BYTES + 4);

const MORE: u8 = 1;

/// What a record takes with its padding.
pub const fn padded(len: usize) -> usize {
    len.next_multiple_of(ALIGN)
}

/// What a store is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The version, which says how records are checked.
    pub version: u16,
    /// The length of its blocks.
    pub block_bytes: u32,
    /// The random number of its own.
    pub salt: u64,
}

impl Superblock {
    /// That of a new store.
    pub fn new(block_bytes: u32, salt: u64) -> Superblock {
        Superblock { version: VERSION, block_bytes, salt }
    }

    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(SUPERBLOCK_BYTES);
        out.extend_from_slice(&SUPERBLOCK_MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&self.block_bytes.to_le_bytes());
        out.extend_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        Bytes::from(out)
    }

    /// Reads one; `Err` has the version of one that is not ours, or 0 where it is damaged.
    pub fn parse(bytes: &[u8]) -> Result<Superblock, u16> {
        let bytes: &[u8; SUPERBLOCK_BYTES] = bytes.try_into().map_err(|_| 0u16)?;
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        let is_whole = bytes[..8] == SUPERBLOCK_MAGIC && crc32c(&bytes[..28]) == get_u32(bytes, 28);
        match (is_whole, version) {
            (true, VERSION_CRC | VERSION) => {
                Ok(Superblock { version, block_bytes: get_u32(bytes, 16), salt: get_u64(bytes, 20) })
            }
            (true, version) => Err(version),
            (false, _) => Err(0),
        }
    }

    /// A life of a block.
    pub fn life(&self, block: u32, seq: u64) -> Life {
        let mut crc = crc32c(&self.salt.to_le_bytes());
        crc = crc32c_append(crc, &block.to_le_bytes());
        Life { crc: crc32c_append(crc, &seq.to_le_bytes()), seed: self.seed(block, seq), block, seq }
    }

    /// The seed of the checksums of a life's records; none where they are CRCs.
    fn seed(&self, block: u32, seq: u64) -> Option<u64> {
        let mut life = [0; 20];
        life[..8].copy_from_slice(&self.salt.to_le_bytes());
        life[8..12].copy_from_slice(&block.to_le_bytes());
        life[12..].copy_from_slice(&seq.to_le_bytes());
        (self.version != VERSION_CRC).then(|| xxh3_64(&life))
    }

    /// The number of the life that a block is in; `None` if what it begins with is not sound.
    pub fn parse_header(&self, block: u32, bytes: &[u8]) -> Option<u64> {
        let seq = get_u64(bytes.get(..BLOCK_HEADER_BYTES)?, 16);
        (bytes[..BLOCK_HEADER_BYTES] == self.life(block, seq).header()).then_some(seq)
    }
}

/// A time for which a block is part of the log: what its checksums begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    crc: u32,
    seed: Option<u64>,
    /// The block.
    pub block: u32,
    /// The life's number: the log is the blocks in the order of these.
    pub seq: u64,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A key's head and value.
    Put,
    /// A key is deleted.
    Delete,
    /// The block ends; the value is the number of the block where the log goes on.
    End,
}

/// A record, whose key and head have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it says.
    pub kind: Kind,
    /// Whether the next record is of the same batch.
    pub more: bool,
    /// Up to where the block was synced when it was written.
    pub synced: u32,
    /// The key.
    pub key: &'a [u8],
    /// The head.
    pub head: &'a [u8],
    /// The value, which is not checked; shorter than it was if `bytes` were.
    pub value: &'a [u8],
    value_len: usize,
    value_checksum: u32,
    has_crcs: bool,
}

impl Record<'_> {
    /// Its length without padding.
    pub fn stored_len(&self) -> usize {
        HEADER_BYTES + self.key.len() + self.head.len() + self.value_len
    }

    /// Whether the value is there as it was written.
    pub fn is_whole(&self) -> bool {
        self.value.len() == self.value_len && value_checksum(self.value, self.has_crcs) == self.value_checksum
    }

    /// Where the log goes on behind an end record.
    pub fn next(&self) -> Option<u32> {
        let next = self.value.first_chunk().filter(|_| self.kind == Kind::End && self.is_whole())?;
        Some(u32::from_le_bytes(*next))
    }
}

impl Life {
    /// What the block begins with.
    pub fn header(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut out = [0; BLOCK_HEADER_BYTES];
        out[..8].copy_from_slice(&BLOCK_MAGIC);
        out[8..10].copy_from_slice(&BLOCK_VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.block.to_le_bytes());
        out[16..24].copy_from_slice(&self.seq.to_le_bytes());
        let crc = crc32c_append(self.crc, &out[..28]);
        out[28..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Adds a record, which will be at `offset`, to `out`.
    #[allow(clippy::too_many_arguments, reason = "they are the parts of a record")]
    pub fn push(
        &self,
        out: &mut Vec<u8>,
        offset: u32,
        synced: u32,
        kind: Kind,
        more: bool,
        key: &[u8],
        head: &[u8],
        value: &[u8],
    ) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&value_checksum(value, self.seed.is_none()).to_le_bytes());
        let kind = match kind {
            Kind::Put => 1,
            Kind::Delete => 2,
            Kind::End => 3,
        };
        out.extend_from_slice(&[kind, if more { MORE } else { 0 }, 0, 0]);
        out.extend_from_slice(&synced.to_le_bytes());
        for part in [key, head, value] {
            let len = u32::try_from(part.len()).expect("a record is shorter than its block");
            out.extend_from_slice(&len.to_le_bytes());
        }
        out.extend_from_slice(key);
        out.extend_from_slice(head);
        let checksum = self.checksum(offset, &out[start + 4..]);
        out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(value);
        out.resize(start + padded(out.len() - start), 0);
    }

    /// Reads the record at `offset`, which is what `bytes` begin with; they may end with it or after its head, or have
    /// more. `None` if there is none.
    pub fn parse<'a>(&self, bytes: &'a [u8], offset: u32) -> Option<Record<'a>> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let kind = match header[8] {
            1 => Kind::Put,
            2 => Kind::Delete,
            3 => Kind::End,
            _ => return None,
        };
        if header[9] > MORE || header[10..12] != [0, 0] {
            return None;
        }
        let [key_len, head_len, value_len] = [16, 20, 24].map(|at| get_u32(header, at) as usize);
        let front = rest.get(..key_len.checked_add(head_len)?)?;
        if self.checksum(offset, &bytes[4..HEADER_BYTES + front.len()]) != get_u32(header, 0) {
            return None;
        }
        let (key, head) = front.split_at(key_len);
        let value = &rest[front.len()..];
        Some(Record {
            kind,
            more: header[9] == MORE,
            synced: get_u32(header, 12),
            key,
            head,
            value: &value[..value_len.min(value.len())],
            value_len,
            value_checksum: get_u32(header, 4),
            has_crcs: self.seed.is_none(),
        })
    }

    /// The checksum of a record at `offset`, of its bytes from behind the checksum to the end of its head.
    fn checksum(&self, offset: u32, bytes: &[u8]) -> u32 {
        match self.seed {
            Some(seed) => xxh3_64_with_seed(bytes, seed.wrapping_add(offset.into())) as u32,
            None => crc32c_append(crc32c_append(self.crc, &offset.to_le_bytes()), bytes),
        }
    }

    /// How long the front of the record is that `bytes` begin with, as far as can be said before it is checked.
    pub fn front_len(bytes: &[u8]) -> Option<usize> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        HEADER_BYTES.checked_add(get_u32(header, 16) as usize)?.checked_add(get_u32(header, 20) as usize)
    }

    /// Reads what a block has in this life. `check_values`: a record whose value is damaged is a fault.
    pub fn read<'a>(&self, bytes: &'a [u8], check_values: bool) -> Content<'a> {
        let mut content = Content { records: Vec::new(), end: BLOCK_HEADER_BYTES as u32, next: None };
        let (mut offset, mut batch) = (BLOCK_HEADER_BYTES, content.records.len());
        while let Some(record) = bytes.get(offset..).and_then(|rest| self.parse(rest, offset as u32)) {
            if check_values && !record.is_whole() {
                break;
            }
            if record.kind == Kind::End {
                // Behind a part of a batch it is none of ours.
                content.next = record.next().filter(|_| batch == content.records.len());
                break;
            }
            content.records.push((offset as u32, record));
            offset += padded(record.stored_len());
            if !record.more {
                (batch, content.end) = (content.records.len(), offset as u32);
            }
        }
        content.records.truncate(batch);
        content
    }

    /// Whether a fault at `from` is damage: something behind it was written when that was synced already.
    pub fn is_damage(&self, bytes: &[u8], from: u32) -> bool {
        let offsets =
            (BLOCK_HEADER_BYTES..bytes.len()).step_by(ALIGN).filter(|&offset| offset >= from as usize);
        let mut behind = offsets.filter_map(|offset| self.parse(&bytes[offset..], offset as u32));
        behind.any(|record| record.synced > from)
    }
}

/// The checksum of a value.
fn value_checksum(value: &[u8], is_crc: bool) -> u32 {
    if is_crc { crc32c(value) } else { xxh3_64(value) as u32 }
}

/// What a block has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content<'a> {
    /// The records of whole batches, and where they are.
    pub records: Vec<(u32, Record<'a>)>,
    /// Where the last of them ends.
    pub end: u32,
    /// Where the log goes on, if the life ended; otherwise there is a fault at `end`, or nothing.
    pub next: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STORE: Superblock =
        Superblock { version: VERSION, block_bytes: 128 << 10, salt: 0x0102_0304_0506_0708 };

    /// A store that an earlier program made.
    const STORE_CRC: Superblock = Superblock { version: VERSION_CRC, ..STORE };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn block_of(store: Superblock) -> Vec<u8> {
        let life = store.life(5, 9);
        let mut out = life.header().to_vec();
        life.push(&mut out, 32, 0, Kind::Put, true, b"key", b"head", b"value");
        life.push(&mut out, 80, 0, Kind::Delete, false, b"gone", b"", b"");
        life.push(&mut out, 112, 112, Kind::End, false, b"", b"", &7u32.to_le_bytes());
        out
    }

    #[test]
    fn their_bytes_stay_what_they_are() {
        for (store, superblock, block) in [(STORE, SUPERBLOCK, BLOCK), (STORE_CRC, SUPERBLOCK_CRC, BLOCK_CRC)]
        {
            assert_eq!(hex(&store.encode()), superblock);
            assert_eq!(hex(&block_of(store)), block);
            assert_eq!(Superblock::parse(&store.encode()), Ok(store));
        }
    }

    #[test]
    fn a_head_of_an_earlier_life_does_not_pass_with_its_own_crc() {
        let head =
            |number: u32| [&number.to_le_bytes()[..], &crc32c(&number.to_le_bytes()).to_le_bytes()].concat();
        let record = |store: Superblock, seq: u64, number: u32| {
            let mut out = Vec::new();
            store.life(5, seq).push(&mut out, 32, 0, Kind::Put, false, b"key", &head(number), b"");
            out
        };
        let torn = |store: Superblock| {
            let (earlier, later) = (record(store, 7, 3436), record(store, 9, 3493));
            [&later[..HEADER_BYTES], &earlier[HEADER_BYTES..]].concat()
        };
        assert_eq!(STORE.life(5, 9).parse(&torn(STORE), 32), None);
        let passed = torn(STORE_CRC);
        assert_eq!(STORE_CRC.life(5, 9).parse(&passed, 32).map(|record| record.head), Some(&head(3436)[..]));
    }

    #[test]
    fn a_block_is_read_as_it_was_written() {
        [STORE, STORE_CRC].into_iter().for_each(read_as_written);
    }

    fn read_as_written(store: Superblock) {
        let bytes = block_of(store);
        assert_eq!(store.parse_header(5, &bytes), Some(9));
        let content = store.life(5, 9).read(&bytes, true);
        let [(32, put), (80, delete)] = content.records[..] else { panic!("{content:?}") };
        assert_eq!(
            (put.kind, put.key, put.head, put.value),
            (Kind::Put, &b"key"[..], &b"head"[..], &b"value"[..])
        );
        assert_eq!((delete.kind, delete.key, delete.more), (Kind::Delete, &b"gone"[..], false));
        assert_eq!((content.end, content.next), (112, Some(7)));
        // Not in another life, place or store.
        for (block, seq, salt) in [(5, 8, store.salt), (6, 9, store.salt), (5, 9, 0)] {
            let other = Superblock { salt, ..store };
            assert_eq!(other.life(block, seq).read(&bytes, false).records, [], "{block} {seq}");
        }
        assert_eq!(store.life(5, 9).parse(&bytes[32..], 48), None);
    }

    #[test]
    fn a_changed_byte_is_seen() {
        [STORE, STORE_CRC].into_iter().for_each(changed_byte_is_seen);
    }

    fn changed_byte_is_seen(store: Superblock) {
        let (bytes, life) = (block_of(store), store.life(5, 9));
        let whole = life.read(&bytes, true);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            // Padding is nothing.
            let is_padding = (72..80).contains(&at);
            let seen = life.read(&changed, true);
            assert_eq!(seen == whole, is_padding || at < BLOCK_HEADER_BYTES, "byte {at}");
            assert_eq!(store.parse_header(5, &changed).is_none(), at < BLOCK_HEADER_BYTES, "byte {at}");
            // The end was written when all before it was synced.
            let is_damage = at < 112 && seen.next.is_none() && life.is_damage(&changed, seen.end);
            assert_eq!(is_damage, (32..112).contains(&at) && !is_padding, "byte {at}");
        }
        for len in 0..bytes.len() {
            assert!(life.read(&bytes[..len], true).next.is_none(), "cut at {len}");
        }
        let superblock = store.encode();
        for at in 0..superblock.len() {
            let mut changed = superblock.to_vec();
            changed[at] ^= 1;
            assert_eq!(Superblock::parse(&changed), Err(0), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_block_has_is_read_or_is_none(noise in prop::collection::vec(any::<u8>(), 0..400), at in 32usize..200) {
            for store in [STORE, STORE_CRC] {
                let life = store.life(5, 9);
                let mut bytes = block_of(store);
                bytes.resize(bytes.len().max(at), 0);
                bytes.splice(at.., noise.iter().copied());
                for bytes in [&noise, &bytes] {
                    prop_assert!(Superblock::parse(bytes).is_err());
                    store.parse_header(5, bytes);
                    let content = life.read(bytes, true);
                    prop_assert!(content.end as usize <= bytes.len().max(BLOCK_HEADER_BYTES).next_multiple_of(ALIGN));
                    life.is_damage(bytes, content.end);
                }
            }
        }
    }

    const SUPERBLOCK: &str = "414e4e554c45545502000000000000000000020008070605040302011ae81035";

    const BLOCK: &str = "\
414e4e554c455442010000000500000009000000000000000000000024f114cfd16f8c5cf0f09d9b01010000000000000300000004000000050000006b657968\
65616476616c75650000000000000000b7e3b086c294d3380200000000000000040000000000000000000000676f6e652ed132a44cc128160300000070000000\
00000000000000000400000007000000";

    const SUPERBLOCK_CRC: &str = "414e4e554c4554550100000000000000000002000807060504030201ddf0d46c";

    const BLOCK_CRC: &str = "\
414e4e554c455442010000000500000009000000000000000000000024f114cfe316f9e96303e0e101010000000000000300000004000000050000006b657968\
65616476616c75650000000000000000811fbdfa000000000200000000000000040000000000000000000000676f6e657d96c25f0df367510300000070000000\
00000000000000000400000007000000";
}
