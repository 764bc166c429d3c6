//! A table's filter: says "not here" for 98 of 100 absent keys, from one cache line.
//!
//! A blocked Bloom filter (Putze, Sanders and Singler, 2007): the upper half of a key's hash picks a line of 512
//! bits, the lower half the bits in it. The memtable has none: its index of keys says "not here" by itself.

use crate::prefetch::prefetch;

/// 64 bytes, read from memory at once.
#[repr(align(64))]
#[derive(Clone, Copy, Debug)]
struct Line([u64; LINE_WORDS]);

const LINE_WORDS: usize = 8;
const LINE_BYTES: usize = LINE_WORDS * 8;

/// How much filter each key gets. Any number is read: a table says how many lines it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilterBits {
    /// 9 bits give about 1.7 % of false answers and leave room for the index in the 10 bits of memory that a key may
    /// take; one more saves a quarter of those (decision 13).
    #[default]
    Usual,
    /// 14 bits give some 0.3 %: for level 0, whose tables are asked first, one after another, by every lookup, and
    /// which has few of a store's keys (decision 32).
    Many,
}

impl FilterBits {
    /// Bits for each key.
    pub(super) fn per_key(self) -> usize {
        match self {
            FilterBits::Usual => 9,
            FilterBits::Many => 14,
        }
    }
}

/// Bits set for each key: the best for 9 bits, less one because a line's load varies; for 14 a few more would be
/// better, and one number is enough for whoever asks.
const PROBES: u32 = 6;

/// Odd, and irregular in binary (2^32 over the golden ratio): multiplying by it gives the next probe.
const STEP: u32 = 0x9E37_79B9;

/// A set of key hashes that may claim a hash it was not given.
#[derive(Debug)]
pub(super) struct Filter {
    lines: Box<[Line]>,
}

impl Filter {
    /// The filter of `hashes`.
    pub fn new(hashes: &[u64], bits: FilterBits) -> Filter {
        let lines = (hashes.len() * bits.per_key()).div_ceil(LINE_BYTES * 8).max(1);
        let mut lines = vec![Line([0; LINE_WORDS]); lines];
        for &hash in hashes {
            let at = line_of(hash, lines.len());
            for (word, bit) in probes(hash) {
                lines[at].0[word] |= 1 << bit;
            }
        }
        Filter { lines: lines.into() }
    }

    /// False if the hash was certainly not given.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let line = &self.lines[line_of(hash, self.lines.len())];
        // No early exit: the line is there, and a branch that is taken every other time costs more.
        probes(hash).fold(1, |all, (word, bit)| all & (line.0[word] >> bit)) & 1 == 1
    }

    /// Has the line fetched that [`Filter::may_contain`] will look at.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.lines[line_of(hash, self.lines.len())]);
    }

    /// Appends the lines.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for word in self.lines.iter().flat_map(|line| line.0) {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Reads what [`Filter::encode`] wrote; `None` if these are not whole lines, or none.
    pub fn decode(bytes: &[u8]) -> Option<Filter> {
        let (lines, rest) = bytes.as_chunks::<LINE_BYTES>();
        if lines.is_empty() || !rest.is_empty() {
            return None;
        }
        let line = |bytes: &[u8; LINE_BYTES]| {
            let mut line = Line([0; LINE_WORDS]);
            for (word, bytes) in line.0.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            line
        };
        Some(Filter { lines: lines.iter().map(line).collect() })
    }

    /// Bytes of memory it takes.
    pub fn memory(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }
}

/// The upper half of the hash, scaled to the number of lines.
#[inline]
fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// The word and the bit in it of each probe: nine bits off the top of a product.
#[inline]
fn probes(hash: u64) -> impl Iterator<Item = (usize, u32)> {
    let mut state = (hash & 0xFFFF_FFFF) as u32;
    (0..PROBES).map(move |_| {
        state = state.wrapping_mul(STEP);
        ((state >> 29) as usize, (state >> 23) & 63)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{Rng, SplitMix64};

    #[test]
    fn every_key_is_found_and_few_others() {
        let mut rng = SplitMix64::new(1);
        let hashes: Vec<u64> = (0..50_000).map(|_| rng.next_u64()).collect();
        for (bits, wrong_max) in [(FilterBits::Usual, 2_200), (FilterBits::Many, 450)] {
            let mut bytes = Vec::new();
            Filter::new(&hashes, bits).encode(&mut bytes);
            let filter = Filter::decode(&bytes).unwrap();
            assert!(hashes.iter().all(|&hash| filter.may_contain(hash)));
            let wrong = (0..100_000).filter(|_| filter.may_contain(rng.next_u64())).count();
            assert!(wrong < wrong_max, "{wrong} of 100,000 absent keys with {bits:?}");
        }
    }

    #[test]
    fn only_whole_lines_are_read() {
        for len in [0, 1, 63, 65, 127] {
            assert!(Filter::decode(&vec![0; len]).is_none());
        }
        assert!(!Filter::decode(&[0; 64]).unwrap().may_contain(7));
        assert!(Filter::decode(&[0xFF; 128]).unwrap().may_contain(7));
    }
}
