//! The index in memory: by a key's digest, where its newest record is and how many of it there are on the disk.
//!
//! 24 bytes an entry and one of the map's own, in maps that are from seven sixteenths to seven eighths full, and are
//! made larger one at a time: 29 to 58 bytes a key.
//!
//! Invariants:
//!
//! * A key has an entry as long as a record of it is on the disk.
//! * An entry counts the key's records on the disk, the newest included, but for a key that has had [`COUNT_MAX`]: such
//!   a count stays, and what hangs on it waits for the next start, which counts anew.

use super::digest::Digest;
use base::collections::FastMap;

/// Parts of the index, each a map: what must be moved at once when one grows, and stands there twice then, is so small
/// a part.
const MAPS: usize = 1024;

/// Records are at multiples of it.
pub const ALIGN: usize = 16;

/// How far records of a key are counted.
pub const COUNT_MAX: u16 = (1 << COUNT_BITS) - 1;

/// A block has at most so many units of [`ALIGN`]: an offset and a length fit so many bits.
const UNIT_BITS: u32 = 20;
const COUNT_BITS: u32 = 12;

/// Blocks are no longer than places can say.
pub const BLOCK_BYTES_MAX: u32 = 8 << 20;
const _: () = assert!(BLOCK_BYTES_MAX as usize / ALIGN < 1 << UNIT_BITS);

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of its block.
    pub block: u32,
    /// Its first byte in the block.
    pub offset: u32,
    /// Its length, padding included.
    pub len: u32,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its newest record.
    pub place: Place,
    /// Whether that says that the key is deleted.
    pub is_delete: bool,
    /// Records of it on the disk.
    pub count: u16,
}

impl Entry {
    /// Whether its newest record must stay: it has the value, or covers an older one.
    pub fn is_live(&self) -> bool {
        !self.is_delete || self.count > 1
    }
}

/// An entry in three words: block | offset and count | length and kind.
#[derive(Clone, Copy)]
struct Packed([u32; 3]);

impl Packed {
    fn new(entry: Entry) -> Packed {
        let Place { block, offset, len } = entry.place;
        let (offset, len) = (offset / ALIGN as u32, len / ALIGN as u32);
        assert!(offset < 1 << UNIT_BITS && len < 1 << UNIT_BITS && entry.count <= COUNT_MAX, "{entry:?}");
        Packed([block, offset << COUNT_BITS | u32::from(entry.count), len << 1 | u32::from(entry.is_delete)])
    }

    fn entry(self) -> Entry {
        let Packed([block, second, third]) = self;
        let (offset, len) = ((second >> COUNT_BITS) * ALIGN as u32, (third >> 1) * ALIGN as u32);
        let count = (second & u32::from(COUNT_MAX)) as u16;
        Entry { place: Place { block, offset, len }, is_delete: third & 1 == 1, count }
    }
}

/// What a map knows of a digest, whose other bits choose the map.
type Rest = [u32; 3];

/// The index.
pub struct Index {
    maps: Box<[FastMap<Rest, Packed>]>,
}

impl Index {
    /// One with nothing in it.
    pub fn new() -> Index {
        Index { maps: std::iter::repeat_with(FastMap::default).take(MAPS).collect() }
    }

    /// What is known of a key.
    pub fn get(&self, digest: Digest) -> Option<Entry> {
        let (map, rest) = split(digest);
        self.maps[map].get(&rest).map(|packed| packed.entry())
    }

    /// Sets what is known of a key.
    pub fn set(&mut self, digest: Digest, entry: Entry) {
        let (map, rest) = split(digest);
        self.maps[map].insert(rest, Packed::new(entry));
    }

    /// Forgets a key.
    pub fn remove(&mut self, digest: Digest) {
        let (map, rest) = split(digest);
        self.maps[map].remove(&rest);
    }

    /// The memory that it takes: entries that a map has room for, and a byte for each.
    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        let of = |map: &FastMap<Rest, Packed>| {
            // A map tells of seven eighths of its room, which is a power of two.
            let room = (map.capacity() * 8 / 7).next_power_of_two();
            size_of_val(map) + room * (size_of::<(Rest, Packed)>() + 1) + 16
        };
        self.maps.iter().map(of).sum()
    }

    /// How many keys it knows, deleted ones included.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.maps.iter().map(|map| map.len()).sum()
    }
}

fn split(Digest(low, high): Digest) -> (usize, Rest) {
    ((low as u32) as usize % MAPS, [(low >> 32) as u32, high as u32, (high >> 32) as u32])
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_entry_is_what_was_packed(block: u32, offset in 0..1u32 << UNIT_BITS, len in 0..1u32 << UNIT_BITS, is_delete: bool, count in 0..=COUNT_MAX) {
            let place = Place { block, offset: offset * ALIGN as u32, len: len * ALIGN as u32 };
            let entry = Entry { place, is_delete, count };
            prop_assert_eq!(Packed::new(entry).entry(), entry);
        }
    }

    #[test]
    fn a_key_takes_64_bytes_at_most() {
        assert_eq!(size_of::<(Rest, Packed)>(), 24);
        let (mut rng, mut index) = (SplitMix64::new(1), Index::new());
        let entry = Entry { place: Place { block: 1, offset: 32, len: 48 }, is_delete: false, count: 1 };
        for number in 1..=1_000_000 {
            index.set(Digest(rng.next_u64(), rng.next_u64()), entry);
            if number % 25_000 == 0 {
                let of_key = index.memory_bytes() as f64 / number as f64;
                assert!(of_key <= 64.0, "{of_key} bytes for each of {number} keys");
            }
        }
    }
}
