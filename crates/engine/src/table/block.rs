//! A block: some 4 KiB of a table's entries, read and checked at once.
//!
//! ```text
//! crc u32 | count u16 | prefix_len u16 | tag u8 * count | offset u16 * count | prefix | entries
//! entry: suffix_len varint | suffix | seq varint | ledger entry
//! ```
//!
//! What all keys of the block begin with stands once; an entry has the rest of its key and goes up to the next
//! one. That saves nearly what restart points save, since the keys of 4 KiB are neighbours, and nothing is decoded
//! that is not compared. A lookup scans the tags, a byte of each key's hash, and so goes to the one entry: two
//! waits for memory where halving a cold block would take six. Seeks halve it, by the offsets, which count from
//! the first entry. The checksum covers the table's id and the block's place as well, so that a block read from
//! the wrong place fails.

use super::fields::Fields;
use super::keys::common_prefix;
use super::{TableId, damage};
use crate::Seq;
use crate::entry::{get_varint, put_varint};
use crate::error::Damage;
use crate::memtable::hash;
use crate::prefetch::prefetch;
use base::checksum::{crc32c, crc32c_append};
use bytes::Bytes;
use std::cmp::Ordering;
use std::ops::Range;

/// A block is ended before it would grow past this: one page of memory and of most devices. An entry that is
/// larger has a block of its own.
pub const BLOCK_BYTES_TARGET: usize = 4 << 10;

const CRC_BYTES: usize = 4;
const HEADER_BYTES: usize = CRC_BYTES + 2 + 2;
const OFFSET_BYTES: usize = 2;
/// The tag and the offset of an entry.
const ITEM_BYTES: usize = 1 + OFFSET_BYTES;

/// What is read of memory at once.
const LINE_BYTES: usize = 64;

/// Behind the first one, lines in which tags, offsets and the prefix of an ordinary block lie: of some seventy entries.
const FRONT_LINES: usize = 4;

/// A block of a table, its checksum verified. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Block {
    bytes: Bytes,
    table: TableId,
    offset: u64,
    count: u16,
    /// Where the prefix and the entries begin in `bytes`.
    prefix_at: u32,
    entries_at: u32,
}

/// Where an entry and its parts lie in a block's bytes.
pub(crate) struct Item {
    pub suffix: Range<usize>,
    pub seq: Seq,
    pub entry: Range<usize>,
}

impl Block {
    /// Checks the block read from `offset` of `table`.
    pub fn parse(bytes: Bytes, table: TableId, offset: u64) -> Result<Block, Damage> {
        let Some((crc, content)) = bytes.split_first_chunk::<CRC_BYTES>() else {
            return Err(damage(table, offset, "the block is too short"));
        };
        if u32::from_le_bytes(*crc) != block_crc(table, offset, content) {
            return Err(damage(table, offset, "the block's checksum"));
        }
        Block::layout(bytes, table, offset).ok_or_else(|| damage(table, offset, "the block's layout"))
    }

    /// Finds the parts of a block. The checksum says that they are what was written; that the writer was right
    /// is checked entry by entry, as they are used.
    fn layout(bytes: Bytes, table: TableId, offset: u64) -> Option<Block> {
        let mut fields = Fields::new(bytes.get(CRC_BYTES..)?);
        let count = fields.u16()?;
        let prefix_len = u32::from(fields.u16()?);
        let prefix_at = HEADER_BYTES as u32 + u32::from(count) * ITEM_BYTES as u32;
        let entries_at = prefix_at + prefix_len;
        let sane = count > 0 && entries_at as usize <= bytes.len();
        sane.then_some(Block { bytes, table, offset, count, prefix_at, entries_at })
    }

    /// The version of `key` in this block: its seq and its ledger entry. [`Block::share`] keeps the latter.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Result<Option<(Seq, &[u8])>, Damage> {
        self.find_hashed(key, hash(key))
    }

    /// [`Block::find`] for a caller that has the key's hash already.
    #[inline]
    pub fn find_hashed(&self, key: &[u8], hash: u64) -> Result<Option<(Seq, &[u8])>, Damage> {
        debug_assert_eq!(hash, self::hash(key), "the hash is that of the key");
        // Which of these lines are looked at is known one by one, and each is a wait.
        let front = self.bytes.as_ptr();
        (1..=FRONT_LINES).for_each(|line| prefetch(front.wrapping_add(line * LINE_BYTES)));
        let Some(suffix) = key.strip_prefix(self.prefix()) else { return Ok(None) };
        let tag = tag(hash);
        let tags = &self.bytes[HEADER_BYTES..HEADER_BYTES + self.count()];
        for index in places_of(tag, tags) {
            let item = self.item(index)?;
            if self.bytes[item.suffix] == *suffix {
                return Ok(Some((item.seq, &self.bytes[item.entry])));
            }
        }
        Ok(None)
    }

    /// The entry as bytes of its own, not copied. `entry` must be a part of this block.
    pub fn share(&self, entry: &[u8]) -> Bytes {
        self.bytes.slice_ref(entry)
    }

    /// The same in memory of its own: the bytes of one that was read with others keep those, too.
    pub fn alone(&self) -> Block {
        Block { bytes: Bytes::copy_from_slice(&self.bytes), ..self.clone() }
    }

    /// The table that it is of.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// How many entries there are; at least one.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Bytes of memory it takes.
    pub fn memory(&self) -> usize {
        self.bytes.len() + size_of::<Block>()
    }

    /// What all keys begin with.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.bytes[self.prefix_at as usize..self.entries_at as usize]
    }

    /// The block's bytes, into which an [`Item`] points.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The first entry whose key is `key` or after it, and whether it is `key` itself.
    pub(super) fn search(&self, key: &[u8]) -> Result<(usize, bool), Damage> {
        let Some(suffix) = key.strip_prefix(self.prefix()) else {
            return Ok((if key < self.prefix() { 0 } else { self.count() }, false));
        };
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.suffix(middle).ok_or_else(|| self.malformed())?.cmp(suffix) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok((middle, true)),
                Ordering::Greater => high = middle,
            }
        }
        Ok((low, false))
    }

    /// The entry at `index`, which must be below [`Block::count`].
    #[inline]
    pub(crate) fn item(&self, index: usize) -> Result<Item, Damage> {
        self.try_item(index).ok_or_else(|| self.malformed())
    }

    /// Puts the entries from `index` on into `items`, in the place of what is there.
    pub(crate) fn items_from(&self, index: usize, items: &mut Vec<Item>) -> Result<(), Damage> {
        items.clear();
        let offsets = self.bytes.get(self.offset_at(index)..self.prefix_at as usize).unwrap_or_default();
        let offsets = offsets.as_chunks::<OFFSET_BYTES>().0;
        let place =
            |offset: &[u8; OFFSET_BYTES]| self.entries_at as usize + usize::from(u16::from_le_bytes(*offset));
        let Some((first, others)) = offsets.split_first() else { return Err(self.malformed()) };
        items.reserve(offsets.len());
        let mut start = place(first);
        for next in others {
            // One ends where the next one begins.
            let end = place(next);
            items.push(item_in(&self.bytes, start..end).ok_or_else(|| self.malformed())?);
            start = end;
        }
        items.push(item_in(&self.bytes, start..self.bytes.len()).ok_or_else(|| self.malformed())?);
        Ok(())
    }

    #[inline]
    fn try_item(&self, index: usize) -> Option<Item> {
        let bytes = &self.bytes[..];
        let entries_at = self.entries_at as usize;
        // Behind its own offset stands that of the next one, where it ends.
        let (start, end) = match *bytes.get(self.offset_at(index)..)? {
            [a, b, c, d, ..] if index + 1 < self.count() => {
                (u16::from_le_bytes([a, b]), entries_at + usize::from(u16::from_le_bytes([c, d])))
            }
            [a, b, ..] => (u16::from_le_bytes([a, b]), bytes.len()),
            _ => return None,
        };
        item_in(bytes, entries_at + usize::from(start)..end)
    }

    #[inline]
    fn suffix(&self, index: usize) -> Option<&[u8]> {
        let rest = self.bytes.get(self.entry_start(index)?..)?;
        let mut fields = Fields::new(rest);
        let len = usize::try_from(fields.varint()?).ok()?;
        fields.take(len)
    }

    #[inline]
    fn entry_start(&self, index: usize) -> Option<usize> {
        let offset = self.bytes.get(self.offset_at(index)..)?.first_chunk()?;
        Some(self.entries_at as usize + usize::from(u16::from_le_bytes(*offset)))
    }

    /// Where the offset of the entry at `index` stands.
    #[inline]
    fn offset_at(&self, index: usize) -> usize {
        HEADER_BYTES + self.count() + index * OFFSET_BYTES
    }

    #[cold]
    fn malformed(&self) -> Damage {
        damage(self.table, self.offset, "an entry in the block")
    }
}

/// The entry that lies in a block's bytes from one place to another.
#[inline]
fn item_in(bytes: &[u8], at: Range<usize>) -> Option<Item> {
    let end = at.end;
    let mut fields = Fields::new(bytes.get(at)?);
    let suffix_len = usize::try_from(fields.varint()?).ok()?;
    let rest = fields.rest();
    let suffix_start = end - rest.len();
    let mut rest = rest.get(suffix_len..)?;
    let seq = Seq(get_varint(&mut rest)?);
    Some(Item { suffix: suffix_start..suffix_start + suffix_len, seq, entry: end - rest.len()..end })
}

/// The byte of a key's hash that the filter depends on least.
fn tag(hash: u64) -> u8 {
    hash.to_le_bytes()[3]
}

/// Where a tag stands among all, eight of which are looked at together.
#[inline]
fn places_of(tag: u8, tags: &[u8]) -> impl Iterator<Item = usize> {
    const LOW_BITS: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    let (words, rest) = tags.as_chunks::<8>();
    let in_words = words.iter().enumerate().flat_map(move |(number, word)| {
        let differing = u64::from_le_bytes(*word) ^ u64::from_le_bytes([tag; 8]);
        // In each byte the top bit, if and only if the byte is zero: no carry leaves a byte.
        let equal = !(((differing & LOW_BITS) + LOW_BITS) | differing | LOW_BITS);
        let some = |equal: u64| (equal != 0).then_some(equal);
        std::iter::successors(some(equal), move |equal| some(equal & (equal - 1)))
            .map(move |equal| number * 8 + equal.trailing_zeros() as usize / 8)
    });
    let before = words.len() * 8;
    in_words.chain((0..rest.len()).filter(move |&index| rest[index] == tag).map(move |index| before + index))
}

fn block_crc(table: TableId, offset: u64, content: &[u8]) -> u32 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&table.0.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c_append(crc32c(&place), content)
}

/// Collects the entries of one block, since what they have in common is known only at the end.
#[derive(Default)]
pub(super) struct BlockBuilder {
    keys: Vec<u8>,
    tags: Vec<u8>,
    /// `seq varint | ledger entry` of each.
    values: Vec<u8>,
    /// Where the key and the value of each entry end.
    ends: Vec<(usize, usize)>,
    prefix_len: usize,
}

impl BlockBuilder {
    /// Whether the block should be written before `key` comes into it: it has entries and would get too large.
    pub fn is_full_for(&self, key: &[u8], entry: &[u8]) -> bool {
        // The suffix's length takes at most 2 bytes in a block of this size, the new seq at most 10.
        const LEN_BYTES_MAX: usize = 2;
        const SEQ_BYTES_MAX: usize = 10;
        let count = self.ends.len() + 1;
        let saved = (count - 1) * self.prefix_len_with(key);
        let bytes = self.keys.len() + key.len() + self.values.len() + SEQ_BYTES_MAX + entry.len();
        !self.is_empty()
            && HEADER_BYTES + bytes - saved + count * (ITEM_BYTES + LEN_BYTES_MAX) > BLOCK_BYTES_TARGET
    }

    /// Adds an entry, with its key's hash; keys come in ascending order.
    pub fn add(&mut self, key: &[u8], hash: u64, seq: Seq, entry: &[u8]) {
        // A prefix's length has 16 bits. Only the key of a block of its own can be longer.
        self.prefix_len = self.prefix_len_with(key).min(usize::from(u16::MAX));
        self.keys.extend_from_slice(key);
        self.tags.push(tag(hash));
        put_varint(&mut self.values, seq.0);
        self.values.extend_from_slice(entry);
        self.ends.push((self.keys.len(), self.values.len()));
    }

    /// True when nothing was added.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Appends the block that will stand at `offset` of `table`, and begins a new one.
    pub fn finish(&mut self, table: TableId, offset: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let count = u16::try_from(self.ends.len()).expect("an entry takes more than a byte of 4 KiB");
        let prefix_len = u16::try_from(self.prefix_len).expect("bounded by add");
        out.extend_from_slice(&[0; CRC_BYTES]);
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&prefix_len.to_le_bytes());
        out.extend_from_slice(&self.tags);
        let offsets_at = out.len();
        out.resize(offsets_at + self.ends.len() * OFFSET_BYTES, 0);
        out.extend_from_slice(&self.keys[..self.prefix_len]);
        self.put_entries(offsets_at, out);
        let crc = block_crc(table, offset, &out[start + CRC_BYTES..]);
        out[start..start + CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
        self.keys.clear();
        self.tags.clear();
        self.values.clear();
        self.ends.clear();
        self.prefix_len = 0;
    }

    fn put_entries(&self, offsets_at: usize, out: &mut Vec<u8>) {
        let entries_at = out.len();
        let (mut key_start, mut value_start) = (0, 0);
        for (index, &(key_end, value_end)) in self.ends.iter().enumerate() {
            let offset = u16::try_from(out.len() - entries_at).expect("only a block of one entry is larger");
            let at = offsets_at + index * OFFSET_BYTES;
            out[at..at + OFFSET_BYTES].copy_from_slice(&offset.to_le_bytes());
            let suffix = &self.keys[key_start + self.prefix_len..key_end];
            put_varint(out, suffix.len() as u64);
            out.extend_from_slice(suffix);
            out.extend_from_slice(&self.values[value_start..value_end]);
            (key_start, value_start) = (key_end, value_end);
        }
    }

    fn prefix_len_with(&self, key: &[u8]) -> usize {
        if self.is_empty() { key.len() } else { common_prefix(&self.keys[..self.prefix_len], key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{Rng, SplitMix64};

    fn built(keys: &[&[u8]]) -> Bytes {
        let mut builder = BlockBuilder::default();
        for (index, key) in keys.iter().enumerate() {
            builder.add(key, hash(key), Seq(index as u64), b"entry");
        }
        let mut out = Vec::new();
        builder.finish(TableId(7), 4096, &mut out);
        out.into()
    }

    #[test]
    fn golden_bytes() {
        let bytes = built(&[b"key-a", b"key-bc"]);
        let tags = [tag(hash(b"key-a")), tag(hash(b"key-bc"))];
        let expected =
            [&b"\x02\x00\x04\x00"[..], &tags, b"\x00\x00\x08\x00key-\x01a\x00entry\x02bc\x01entry"].concat();
        assert_eq!(bytes[4..], expected[..]);
        assert_eq!(bytes[..4], block_crc(TableId(7), 4096, &expected).to_le_bytes());
    }

    #[test]
    fn tags_are_found_wherever_they_stand() {
        let mut rng = SplitMix64::new(8);
        for len in 0..70 {
            // Few values, among them those whose bits lie near a byte's ends.
            let tags: Vec<u8> = (0..len).map(|_| [0, 1, 0x7F, 0x80, 0xFF][rng.below(5) as usize]).collect();
            for tag in [0, 1, 0x7F, 0x80, 0xFF, 2] {
                let expected: Vec<usize> = (0..len).filter(|&index| tags[index] == tag).collect();
                assert_eq!(places_of(tag, &tags).collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn a_block_in_the_wrong_place_is_damage() {
        let bytes = built(&[b"a", b"b"]);
        assert!(Block::parse(bytes.clone(), TableId(7), 4096).is_ok());
        assert!(Block::parse(bytes.clone(), TableId(8), 4096).is_err());
        assert!(Block::parse(bytes.clone(), TableId(7), 0).is_err());
        assert!(Block::parse(bytes.slice(..bytes.len() - 1), TableId(7), 4096).is_err());
    }

    #[test]
    fn keys_around_the_prefix_are_told_apart() {
        let block = Block::parse(built(&[b"key", b"key-a", b"key-b"]), TableId(7), 4096).unwrap();
        assert_eq!(block.prefix(), b"key");
        for (probe, expected) in
            [(&b""[..], 0), (b"ke", 0), (b"kex", 0), (b"key\0", 1), (b"key-aa", 2), (b"key-c", 3), (b"z", 3)]
        {
            assert_eq!(block.search(probe).unwrap(), (expected, false), "{probe:?}");
        }
        let (seq, entry) = block.find(b"key-a").unwrap().unwrap();
        assert_eq!((seq, block.share(entry)), (Seq(1), Bytes::from_static(b"entry")));
    }

    /// A checksum over nonsense: what a bug in a writer would leave.
    #[test]
    fn nonsense_with_a_good_checksum_never_panics() {
        let mut rng = SplitMix64::new(3);
        let good = built(&[b"key-a", b"key-b", b"key-bc", b"key-d"]);
        for _ in 0..20_000 {
            let mut bytes = good[4..].to_vec();
            if rng.chance(1, 2) {
                bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            }
            for _ in 0..rng.below(4) {
                if !bytes.is_empty() {
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] = rng.next_u64() as u8;
                }
            }
            let crc = block_crc(TableId(7), 4096, &bytes);
            let bytes = [&crc.to_le_bytes()[..], &bytes].concat();
            if let Ok(block) = Block::parse(bytes.into(), TableId(7), 4096) {
                for index in 0..block.count() {
                    block.item(index).ok();
                }
                block.find(b"key-bc").ok();
            }
        }
    }
}
