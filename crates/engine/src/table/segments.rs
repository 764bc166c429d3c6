//! A table's segments: in which blocks the keys of a segment may be ([`KeySegments`]).
//!
//! ```text
//! bucket_len u32 * 2^b | bucket * 2^b          bucket: crc u32 | (hash u16 | step varint) * keys
//! ```
//!
//! A key is in the bucket that the first `b` bits of its hash name, with the 16 bits behind them, and with its block: by how many that
//! is further on than the one before. So the keys of a segment are found by one look at a bucket, which has some
//! 200 keys in a few hundred bytes, and a table is written without sorting them. The lengths are kept in memory once they were read,
//! a byte for 64 keys and nothing else.

use super::TableId;
use super::fields::Fields;
use crate::entry::put_varint;
use crate::key_segments::KeySegments;
use base::checksum::{crc32c, crc32c_append};
use std::ops::Range;

/// A bucket has at most so many keys on average, and half as many at least.
const BUCKET_KEYS_MAX: usize = 256;

/// With 16 bits in a bucket a million segments are told from each other in the smallest table.
const BITS_MIN: u32 = 4;

/// As many as there are in a bucket: some 16 million keys, far more than a table has.
const BITS_MAX: u32 = 16;

/// Bits of a hash that stand in a bucket.
const KEY_BITS: u32 = 16;

const LEN_BYTES: usize = 4;
const CRC_BYTES: usize = 4;

/// How many bytes a key takes here, about.
pub(super) const KEY_BYTES: usize = 3;

/// Bytes between two buckets that are read with them rather than with a read of their own: about a bucket, so that most of what is read is
/// what was asked for.
const GAP_BYTES: u64 = 512;

/// How many bits of the hash name the bucket, in a table of so many entries.
fn bucket_bits(entries: u64) -> u32 {
    let buckets = entries.div_ceil(BUCKET_KEYS_MAX as u64).next_power_of_two();
    buckets.ilog2().clamp(BITS_MIN, BITS_MAX)
}

/// How long the lengths of the buckets are together.
pub(super) fn directory_len(entries: u64) -> usize {
    LEN_BYTES << bucket_bits(entries)
}

/// Of where the bucket is meant to be, and what is in it.
fn bucket_crc(table: TableId, bucket: u64, keys: &[u8]) -> u32 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&table.0.to_le_bytes());
    place[8..].copy_from_slice(&bucket.to_le_bytes());
    crc32c_append(crc32c(&place), keys)
}

/// Appends the segments of keys of `table` with these hashes, in the order of the keys; `ends` says for each block how many keys
/// are in it and those before it. Gives the checksum of the buckets' lengths.
pub(super) fn encode(table: TableId, hashes: &[u64], ends: &[usize], out: &mut Vec<u8>) -> u32 {
    let bits = bucket_bits(hashes.len() as u64);
    let room = (hashes.len() * (KEY_BYTES + 1)) >> bits;
    let mut buckets = vec![(Vec::with_capacity(room), 0); 1 << bits];
    let mut start = 0;
    for (block, &end) in (0u64..).zip(ends) {
        for hash in &hashes[start..end] {
            let (bucket, last) = &mut buckets[(hash >> (64 - bits)) as usize];
            let low = (hash >> (64 - bits - KEY_BITS)) as u16;
            bucket.extend_from_slice(&low.to_le_bytes());
            put_varint(bucket, block - *last);
            *last = block;
        }
        start = end;
    }
    debug_assert_eq!(start, hashes.len(), "each key is in a block");
    let directory_at = out.len();
    for (bucket, _) in &buckets {
        let len = u32::try_from(CRC_BYTES + bucket.len()).expect("a table is far below 4 GiB");
        out.extend_from_slice(&len.to_le_bytes());
    }
    let crc = crc32c(&out[directory_at..]);
    for (number, (bucket, _)) in (0..).zip(&buckets) {
        out.extend_from_slice(&bucket_crc(table, number, bucket).to_le_bytes());
        out.extend_from_slice(bucket);
    }
    crc
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
    /// Reads the buckets' lengths, of a table with so many entries whose segments are `len` bytes; `None` if they are none.
    pub fn new(directory: &[u8], entries: u64, len: u64, wanted: &KeySegments) -> Option<Wanted> {
        let bits = bucket_bits(entries);
        let (lens, []) = directory.as_chunks::<LEN_BYTES>() else { return None };
        let mut ends = Vec::with_capacity(1 << bits);
        let mut end = directory.len() as u64;
        for bytes in lens {
            end += u64::from(u32::from_le_bytes(*bytes));
            ends.push(end);
        }
        if ends.len() != 1 << bits || end != len {
            return None;
        }
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

    /// Looks into the bytes that were read, from `start` on, for the next `count` looks; the blocks that they name, of so many,
    /// come to `found`. `Err` says where the part is damaged.
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
    use base::rng::{Rng, SplitMix64};

    #[test]
    fn tables_of_any_size_have_buckets() {
        for (entries, bits) in [(0, 4), (1, 4), (4096, 4), (4097, 5), (8192, 5), (150_000, 10), (1 << 40, 16)]
        {
            assert_eq!(bucket_bits(entries), bits, "{entries}");
        }
    }

    #[test]
    fn golden_bytes() {
        let mut bytes = Vec::new();
        // Two keys in bucket 1, in blocks 0 and 130, one in bucket 15.
        let hashes = [0x1234_5678 << 32, 0x1FED_0000 << 32, 0xFFFF_F000 << 32];
        let ends: Vec<usize> = (0..132).map(|block| if block < 130 { 1 } else { block - 128 }).collect();
        let crc = encode(TableId(7), &hashes, &ends, &mut bytes);
        let mut lens = [4u32; 16];
        (lens[1], lens[15]) = (11, 8);
        let mut expected: Vec<u8> = lens.iter().flat_map(|len| len.to_le_bytes()).collect();
        assert_eq!(crc, crc32c(&expected));
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

    /// All blocks that the part names.
    fn looked_up(bytes: &[u8], entries: u64, blocks: usize, wanted: &KeySegments) -> Option<Vec<u32>> {
        let directory = bytes.get(..directory_len(entries))?;
        let mut wanted = Wanted::new(directory, entries, bytes.len() as u64, wanted)?;
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
            encode(TableId(7), &hashes, &ends, &mut bytes);
            for bits in [0, 3, 12, 20, 32] {
                let some: Vec<u32> =
                    (0..40).map(|_| ((rng.next_u64() >> 32) >> (32 - bits)) as u32).collect();
                let some = some.into_iter().chain([((hashes[0] >> 32) >> (32 - bits)) as u32]);
                let wanted = KeySegments::new(bits, some).unwrap();
                let found = looked_up(&bytes, keys as u64, ends.len(), &wanted).unwrap();
                let exact = bits.min(bucket_bits(keys as u64) + KEY_BITS);
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
        encode(TableId(7), &hashes, &[50, 100, 200], &mut good);
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
            looked_up(&bytes, 200, 3, &wanted);
            let look = Look { bucket: 0, at: 0..0, first: 0, last: u16::MAX };
            look.find_in(&bytes, 3, &mut Vec::new());
        }
        assert_eq!(looked_up(&good, 200, 3, &wanted), Some(vec![0, 1, 2]));
    }
}
