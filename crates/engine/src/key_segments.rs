//! Key segments: what all keys are divided into by their hashes, and some of them, to be visited.
//!
//! The segment of a key is the first bits of its hash, which is the one that filters and indexes have
//! ([`crate::memtable::hash`]): of the whole ledger key, so replicas that write the same keys agree on it. Whoever
//! compares hash trees asks for the keys of the leaves that differ. Not to be confused with the segments of the
//! journal.
//!
//! Follows leveled's segment lists, whose ids have 16 bits. Here they have up to [`SEGMENT_BITS_MAX`]; tables name the
//! blocks of at least 20 bits' worth of segments exactly (docs/formats/table.md), and what is visited is exact in any
//! case.

use crate::error::Error;
use crate::memtable::hash;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Bits of a segment's number: four billion segments are more than a store has keys.
pub const SEGMENT_BITS_MAX: u32 = 32;

/// Segments of one fold: each costs a look into every table, and beyond so many a fold over all is no dearer.
pub const KEY_SEGMENTS_MAX: usize = 4096;

/// Some of the segments that keys are divided into. A clone shares them.
///
/// ```
/// # fn main() -> Result<(), engine::Error> {
/// use engine::fold::KeySegments;
///
/// // Of a million segments, those of two keys.
/// let numbers = [b"one", b"two"].map(|key| KeySegments::number_of(key, 20));
/// let segments = KeySegments::new(20, numbers)?;
/// assert!(segments.contains(b"one") && segments.contains(b"two"));
/// assert!(!segments.contains(b"three"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySegments {
    bits: u32,
    /// Ascending, each once.
    numbers: Arc<[u32]>,
}

impl KeySegments {
    /// Those of these numbers, of 2^`bits` segments.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if they are more than [`KEY_SEGMENTS_MAX`], `bits` is more than [`SEGMENT_BITS_MAX`], or a
    /// number is of none of so many segments.
    pub fn new(bits: u32, numbers: impl IntoIterator<Item = u32>) -> Result<KeySegments, Error> {
        let too_large = |what, len: u64, limit: u64| {
            let size = |number| usize::try_from(number).unwrap_or(usize::MAX);
            Err(Error::TooLarge { what, len: size(len), limit: size(limit) })
        };
        if bits > SEGMENT_BITS_MAX {
            return too_large("the bits of a segment's number", bits.into(), SEGMENT_BITS_MAX.into());
        }
        let mut numbers: Vec<u32> = numbers.into_iter().take(KEY_SEGMENTS_MAX + 1).collect();
        if numbers.len() > KEY_SEGMENTS_MAX {
            return too_large("a list of key segments", numbers.len() as u64, KEY_SEGMENTS_MAX as u64);
        }
        numbers.sort_unstable();
        numbers.dedup();
        let last = (1u64 << bits) - 1;
        match numbers.last() {
            Some(&number) if u64::from(number) > last => {
                too_large("the number of a key segment", number.into(), last)
            }
            _ => Ok(KeySegments { bits, numbers: numbers.into() }),
        }
    }

    /// The segment of a key, of 2^`bits`.
    ///
    /// # Panics
    /// If `bits` is more than [`SEGMENT_BITS_MAX`].
    pub fn number_of(key: &[u8], bits: u32) -> u32 {
        assert!(bits <= SEGMENT_BITS_MAX, "a segment's number has at most 32 bits");
        number_of(hash(key), bits)
    }

    /// Whether a key is in one of them.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.numbers.binary_search(&number_of(hash(key), self.bits)).is_ok()
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The first `bits` bits of their keys' hashes, as ranges that ascend.
    pub(crate) fn hashes(&self, bits: u32) -> impl Iterator<Item = RangeInclusive<u64>> {
        self.numbers.iter().map(move |&number| {
            let number = u64::from(number);
            match bits.checked_sub(self.bits) {
                Some(more) => number << more..=((number + 1) << more) - 1,
                None => {
                    let start = number >> (self.bits - bits);
                    start..=start
                }
            }
        })
    }
}

fn number_of(hash: u64, bits: u32) -> u32 {
    // Shifted by 64 it would be left as it is.
    ((hash >> 32) >> (32 - bits)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_list_of_segments_is_refused() {
        assert!(KeySegments::new(33, []).is_err());
        assert!(KeySegments::new(20, [1 << 20]).is_err());
        assert!(KeySegments::new(0, [1]).is_err());
        assert!(KeySegments::new(20, 0..=KEY_SEGMENTS_MAX as u32).is_err());
        assert_eq!(KeySegments::new(20, 0..KEY_SEGMENTS_MAX as u32).unwrap().len(), KEY_SEGMENTS_MAX);
    }

    #[test]
    fn a_number_is_the_first_bits_of_the_hash() {
        for key in [&b""[..], b"a", b"key"] {
            let top = hash(key);
            assert_eq!(KeySegments::number_of(key, 32), (top >> 32) as u32);
            assert_eq!(KeySegments::number_of(key, 20), (top >> 44) as u32);
            assert_eq!(KeySegments::number_of(key, 0), 0);
            for bits in [0, 1, 20, 32] {
                let one = KeySegments::new(bits, [KeySegments::number_of(key, bits)]).unwrap();
                assert!(one.contains(key));
                for of in [4, 16, 20, 32] {
                    assert!(one.hashes(of).any(|range| range.contains(&(top >> (64 - of)))), "{bits} {of}");
                }
            }
        }
    }

    #[test]
    fn ranges_have_what_the_segments_have() {
        let two = KeySegments::new(4, [9, 3, 9]).unwrap();
        assert_eq!(two.hashes(4).collect::<Vec<_>>(), [3..=3, 9..=9]);
        assert_eq!(two.hashes(8).collect::<Vec<_>>(), [0x30..=0x3F, 0x90..=0x9F]);
        assert_eq!(two.hashes(2).collect::<Vec<_>>(), [0..=0, 2..=2]);
        assert_eq!(KeySegments::new(0, [0]).unwrap().hashes(8).collect::<Vec<_>>(), [0..=0xFF]);
    }
}
