//! A table's segments: in which blocks the keys of a segment may be ([`KeySegments`]).
//!
//! ```text
//! bucket_len varint * 2^b | bucket * 2^b          bucket: crc u32 | (hash u16 | step varint) * keys
//! ```
//!
//! A key is in the bucket that the first `b` bits of its hash name, with the 16 bits behind them, and with its block:
//! by how many that is further on than the one before. So the keys of a segment are found by one look at a bucket,
//! which has some 24 keys in 80 bytes, and a table is written without sorting them. The lengths are kept in memory once
//! they were read, a byte for some 24 keys and nothing else. Reading all lengths once and a bucket for each key that is
//! looked for takes least with buckets of about that size (decision 77). Those of version 3 have eight times as many
//! keys, and lengths of four bytes.

use super::TableId;
use super::fields::Fields;
use crate::entry::put_varint;
use crate::key_segments::KeySegments;
use base::checksum::{crc32c, crc32c_append};
use std::ops::Range;

/// With 16 bits in a bucket a million segments are told from each other in the smallest table.
const BITS_MIN: u32 = 4;

/// Bits of a hash that stand in a bucket.
const KEY_BITS: u32 = 16;

const CRC_BYTES: usize = 4;

/// How many bytes a key takes here, about.
pub(super) const KEY_BYTES: usize = 3;

/// Bytes between two buckets that are read with them rather than with a read of their own: a few buckets. Few of those
/// that are looked for are so near to each other.
const GAP_BYTES: u64 = 512;

/// How the hashes of a table are divided into buckets, and how these lengths are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buckets {
    /// How many bits of the hash name the bucket.
    bits: u32,
    /// Whether each length is a varint, and not four bytes.
    has_varints: bool,
}

impl Buckets {
    /// Those of a table of so many entries, in this version of the format.
    pub fn of(entries: u64, version: u32) -> Buckets {
        // So many keys a bucket has at most on average, and half as many at least, up to some 16 million, far more than
        // a table has.
        let (keys_max, bits_max) = if version > 3 { (32, 19) } else { (256, 16) };
        let buckets: u64 = entries.div_ceil(keys_max).next_power_of_two();
        Buckets { bits: buckets.ilog2().clamp(BITS_MIN, bits_max), has_varints: version > 3 }
    }

    /// How long their lengths are together, if that is always the same.
    pub fn directory_len(self) -> Option<usize> {
        (!self.has_varints).then_some(4 << self.bits)
    }

    fn put_len(self, len: usize, out: &mut Vec<u8>) {
        let len = u32::try_from(len).expect("a table is far below 4 GiB");
        match self.has_varints {
            true => put_varint(out, len.into()),
            false => out.extend_from_slice(&len.to_le_bytes()),
        }
    }

    /// Where each bucket ends, from the directory's start on; `None` if these are no lengths of such buckets.
    fn ends(self, directory: &[u8]) -> Option<Vec<u64>> {
        let mut fields = Fields::new(directory);
        let mut ends = Vec::with_capacity(1 << self.bits);
        let mut end = directory.len() as u64;
        while !fields.rest().is_empty() {
            let len = if self.has_varints { fields.varint()? } else { fields.u32()?.into() };
            end = end.checked_add(len)?;
            ends.push(end);
        }
        (ends.len() == 1 << self.bits).then_some(ends)
    }
}

/// The directory of segments that were written: its length and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Directory {
    pub len: usize,
    pub crc: u32,
}

/// Of where the bucket is meant to be, and what is in it.
fn bucket_crc(table: TableId, bucket: u64, keys: &[u8]) -> u32 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&table.0.to_le_bytes());
    place[8..].copy_from_slice(&bucket.to_le_bytes());
    crc32c_append(crc32c(&place), keys)
}

/// Appends the segments of keys of `table` with these hashes, in the order of the keys; `ends` says for each block how
/// many keys are in it and those before it.
pub(super) fn encode(
    table: TableId,
    buckets: Buckets,
    hashes: &[u64],
    ends: &[usize],
    out: &mut Vec<u8>,
) -> Directory {
    let sorted = sort(buckets.bits, hashes, ends);
    let mut keys = Vec::with_capacity(hashes.len() * (KEY_BYTES + 1));
    let mut bucket_ends = Vec::with_capacity(sorted.ends.len());
    let mut start = 0;
    for &end in &sorted.ends {
        let mut last = 0;
        for &(low, block) in &sorted.keys[start as usize..end as usize] {
            keys.extend_from_slice(&low.to_le_bytes());
            put_varint(&mut keys, u64::from(block - last));
            last = block;
        }
        start = end;
        bucket_ends.push(keys.len());
    }
    let directory_at = out.len();
    let lens = || std::iter::once(0).chain(bucket_ends.iter().copied()).zip(&bucket_ends);
    for (start, end) in lens() {
        buckets.put_len(CRC_BYTES + end - start, out);
    }
    let directory = Directory { len: out.len() - directory_at, crc: crc32c(&out[directory_at..]) };
    for (number, (start, &end)) in (0..).zip(lens()) {
        let bucket = &keys[start..end];
        out.extend_from_slice(&bucket_crc(table, number, bucket).to_le_bytes());
        out.extend_from_slice(bucket);
    }
    directory
}

/// Keys by their buckets, in their order.
struct Sorted {
    /// What of its hash stands in the bucket, and the block, of each key.
    keys: Vec<(u16, u32)>,
    /// How many keys are in each bucket and those before it.
    ends: Vec<u32>,
}

/// Sorts by counting.
fn sort(bits: u32, hashes: &[u64], block_ends: &[usize]) -> Sorted {
    debug_assert_eq!(block_ends.last().copied().unwrap_or(0), hashes.len(), "each key is in a block");
    let bucket_of = |hash: u64| (hash >> (64 - bits)) as usize;
    let mut places = vec![0u32; (1 << bits) + 1];
    for &hash in hashes {
        places[bucket_of(hash) + 1] += 1;
    }
    for bucket in 0..1 << bits {
        places[bucket + 1] += places[bucket];
    }
    let mut keys = vec![(0, 0); hashes.len()];
    let mut start = 0;
    for (block, &end) in (0u32..).zip(block_ends) {
        for &hash in &hashes[start..end] {
            let place = &mut places[bucket_of(hash)];
            keys[*place as usize] = ((hash >> (64 - bits - KEY_BITS)) as u16, block);
            *place += 1;
        }
        start = end;
    }
    // Each place has moved on to the end of its bucket.
    places.pop();
    Sorted { keys, ends: places }
}

/// Where the buckets are that may have keys of some segments.
#[derive(Debug)]
pub(super) struct Wanted {
    /// What is to be looked for, ascending.
    looks: Vec<Look>,
}

/// A stretch of the hashes in one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    bucket: u64,
    /// The bucket's bytes in the part of the file.
    at: Range<u64>,
    first: u16,
    last: u16,
}

impl Wanted {
    /// Reads the buckets' lengths, of segments of `len` bytes; `None` if they are none.
    pub fn new(directory: &[u8], buckets: Buckets, len: u64, wanted: &KeySegments) -> Option<Wanted> {
        let bits = buckets.bits;
        let ends = buckets.ends(directory).filter(|ends| ends.last() == Some(&len))?;
        let mut looks: Vec<Look> = Vec::new();
        for hashes in wanted.hashes(bits + KEY_BITS) {
            let (first, last) = (*hashes.start(), *hashes.end());
            for bucket in first >> KEY_BITS..=last >> KEY_BITS {
                let at = bucket as usize;
                let start = if at == 0 { directory.len() as u64 } else { ends[at - 1] };
                let look = Look {
                    bucket,
                    at: start..ends[at],
                    first: if bucket == first >> KEY_BITS { first as u16 } else { 0 },
                    last: if bucket == last >> KEY_BITS { last as u16 } else { u16::MAX },
                };
                // More segments than there are stretches of hashes: several have the same.
                if looks.last() != Some(&look) {
                    looks.push(look);
                }
            }
        }
        Some(Wanted { looks })
    }

    /// The stretches of bytes to be read, ascending, and how many looks each is for.
    pub fn reads(&self) -> Vec<(Range<u64>, usize)> {
        let mut reads: Vec<(Range<u64>, usize)> = Vec::new();
        for look in &self.looks {
            match reads.last_mut() {
                Some((read, looks)) if look.at.start <= read.end + GAP_BYTES => {
                    read.end = look.at.end;
                    *looks += 1;
                }
                _ => reads.push((look.at.clone(), 1)),
            }
        }
        reads
    }

    /// Looks into the bytes that were read, from `start` on, for the next `count` looks; the blocks that they name, of
    /// so many, come to `found`. `Err` says where the part is damaged.
    pub fn find(
        &mut self,
        table: TableId,
        count: usize,
        start: u64,
        bytes: &[u8],
        blocks: usize,
        found: &mut Vec<u32>,
    ) -> Result<(), (u64, &'static str)> {
        let mut checked = None;
        for look in self.looks.drain(..count) {
            let at = look.at.start;
            let place = (at - start) as usize..(look.at.end - start) as usize;
            let bucket = bytes.get(place).ok_or((at, "the file ends early"))?;
            let (crc, keys) = bucket.split_first_chunk().ok_or((at, "a bucket's layout"))?;
            if checked != Some(at) && u32::from_le_bytes(*crc) != bucket_crc(table, look.bucket, keys) {
                return Err((at, "a bucket's checksum"));
            }
            checked = Some(at);
            look.find_in(keys, blocks, found).ok_or((at, "a bucket's layout"))?;
        }
        Ok(())
    }
}

impl Look {
    /// Appends the blocks of a bucket's keys that it is for.
    fn find_in(&self, keys: &[u8], blocks: usize, found: &mut Vec<u32>) -> Option<()> {
        let (mut fields, mut block) = (Fields::new(keys), 0u64);
        let wanted = self.first..=self.last;
        while !fields.rest().is_empty() {
            let low = fields.u16()?;
            block = block.checked_add(fields.varint()?)?;
            if wanted.contains(&low) {
                if block >= blocks as u64 {
                    return None;
                }
                found.push(block as u32);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::TABLE_VERSION;
    use base::rng::{Rng, SplitMix64};

    #[test]
    fn tables_of_any_size_have_buckets() {
        for (entries, version_3, bits) in [
            (0, 4, 4),
            (1, 4, 4),
            (512, 4, 4),
            (513, 4, 5),
            (4096, 4, 7),
            (4097, 5, 8),
            (150_000, 10, 13),
            (1 << 40, 16, 19),
        ] {
            assert_eq!(Buckets::of(entries, 3), Buckets { bits: version_3, has_varints: false }, "{entries}");
            assert_eq!(Buckets::of(entries, TABLE_VERSION), Buckets { bits, has_varints: true }, "{entries}");
        }
    }

    #[test]
    fn golden_bytes() {
        // Two keys in bucket 1, in blocks 0 and 130, one in bucket 15.
        let hashes = [0x1234_5678 << 32, 0x1FED_0000 << 32, 0xFFFF_F000 << 32];
        let ends: Vec<usize> = (0..132).map(|block| if block < 130 { 1 } else { block - 128 }).collect();
        for has_varints in [false, true] {
            let mut bytes = Vec::new();
            let directory = encode(TableId(7), Buckets { bits: 4, has_varints }, &hashes, &ends, &mut bytes);
            let mut lens = [4u32; 16];
            (lens[1], lens[15]) = (11, 8);
            let mut expected: Vec<u8> = match has_varints {
                true => lens.iter().map(|len| *len as u8).collect(),
                false => lens.iter().flat_map(|len| len.to_le_bytes()).collect(),
            };
            assert_eq!(directory, Directory { len: expected.len(), crc: crc32c(&expected) });
            for bucket in 0..16 {
                let keys: &[u8] = match bucket {
                    1 => &[0x45, 0x23, 0, 0xD0, 0xFE, 0x82, 1],
                    15 => &[0xFF, 0xFF, 0x83, 1],
                    _ => &[],
                };
                expected.extend_from_slice(&bucket_crc(TableId(7), bucket, keys).to_le_bytes());
                expected.extend_from_slice(keys);
            }
            assert_eq!(bytes, expected);
        }
    }

    /// All blocks that the part names.
    fn looked_up(
        bytes: &[u8],
        directory: Directory,
        entries: u64,
        blocks: usize,
        wanted: &KeySegments,
    ) -> Option<Vec<u32>> {
        let buckets = Buckets::of(entries, TABLE_VERSION);
        let directory = bytes.get(..directory.len)?;
        let mut wanted = Wanted::new(directory, buckets, bytes.len() as u64, wanted)?;
        let mut found = Vec::new();
        for (read, count) in wanted.reads() {
            let part = bytes.get(read.start as usize..read.end as usize)?;
            wanted.find(TableId(7), count, read.start, part, blocks, &mut found).ok()?;
        }
        assert!(wanted.looks.is_empty());
        found.sort_unstable();
        found.dedup();
        Some(found)
    }

    #[test]
    fn the_blocks_of_a_segment_are_found_and_few_others() {
        let mut rng = SplitMix64::new(9);
        for keys in [1usize, 300, 20_000] {
            let hashes: Vec<u64> = (0..keys).map(|_| rng.next_u64()).collect();
            let ends: Vec<usize> = (1..=keys.div_ceil(7)).map(|block| (block * 7).min(keys)).collect();
            let mut bytes = Vec::new();
            let buckets = Buckets::of(keys as u64, TABLE_VERSION);
            let directory = encode(TableId(7), buckets, &hashes, &ends, &mut bytes);
            for bits in [0, 3, 12, 20, 32] {
                let some: Vec<u32> =
                    (0..40).map(|_| ((rng.next_u64() >> 32) >> (32 - bits)) as u32).collect();
                let some = some.into_iter().chain([((hashes[0] >> 32) >> (32 - bits)) as u32]);
                let wanted = KeySegments::new(bits, some).unwrap();
                let found = looked_up(&bytes, directory, keys as u64, ends.len(), &wanted).unwrap();
                let exact = bits.min(buckets.bits + KEY_BITS);
                let ranges: Vec<_> = wanted.hashes(exact).collect();
                let is_wanted = |hash: u64| {
                    ranges.iter().any(|range| range.contains(&((u128::from(hash) >> (64 - exact)) as u64)))
                };
                let mut expected: Vec<u32> =
                    (0..keys).filter(|&at| is_wanted(hashes[at])).map(|at| (at / 7) as u32).collect();
                expected.dedup();
                assert_eq!(found, expected, "{keys} keys, {bits} bits");
            }
        }
    }

    #[test]
    fn nonsense_with_good_checksums_never_panics() {
        let mut rng = SplitMix64::new(4);
        let hashes: Vec<u64> = (0..200).map(|_| rng.next_u64()).collect();
        let mut good = Vec::new();
        let buckets = Buckets::of(200, TABLE_VERSION);
        let directory = encode(TableId(7), buckets, &hashes, &[50, 100, 200], &mut good);
        let wanted = KeySegments::new(0, [0]).unwrap();
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            for _ in 0..rng.below(4) {
                if !bytes.is_empty() {
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] = rng.next_u64() as u8;
                }
            }
            looked_up(&bytes, directory, 200, 3, &wanted);
            let look = Look { bucket: 0, at: 0..0, first: 0, last: u16::MAX };
            look.find_in(&bytes, 3, &mut Vec::new());
        }
        assert_eq!(looked_up(&good, directory, 200, 3, &wanted), Some(vec![0, 1, 2]));
    }
}
