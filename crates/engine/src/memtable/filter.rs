//! The memtable's filter: answers "this key was never inserted" from one cache line, without a search.
//!
//! A blocked Bloom filter (Putze, Sanders, Singler: "Cache-, Hash- and Space-Efficient Bloom Filters", 2007), with one
//! bit in each word of the block as in Impala's and Parquet's split blocks.
//!
//! Invariants:
//! - one writer; readers take no lock. A key is in the filter before it is in the list, so a reader that happens
//!   after an insert finds both;
//! - bits are only ever set. A filter that is full gets a successor twice its size, and a key is then in one or the
//!   other: a wrong guess of the size costs a longer chain, not a useless filter.
//!
//! Left out: the orderings. Everything here is relaxed, since what makes an insert visible is the list's release store.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use xxhash_rust::xxh3::xxh3_64;

use super::sync::AtomicU64;

/// Words of a block: 8 of 8 bytes are one cache line.
const BLOCK_WORDS: usize = 8;

/// Bits for each key: about 1 % of wrong answers when full, where each would cost one search of the list.
const KEY_BITS: usize = 12;

/// Odd, and irregular in binary (2^64 over the golden ratio): its product spreads the hash over the top bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The hash every filter of the engine is asked with, so that a lookup hashes its key once.
pub fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// A set of key hashes that may claim to hold one it does not.
pub(super) struct Filter {
    blocks: Box<[Block]>,
    keys_max: u64,
    /// Written by the one writer; an atomic only because readers share the filter.
    keys: std::sync::atomic::AtomicU64,
    successor: OnceLock<Box<Filter>>,
}

#[repr(align(64))]
struct Block([AtomicU64; BLOCK_WORDS]);

impl Filter {
    /// A filter that is full at about `keys` keys.
    pub(super) fn new(keys: usize) -> Self {
        let blocks = (keys * KEY_BITS).div_ceil(BLOCK_WORDS * 64).max(1);
        Self {
            blocks: (0..blocks).map(|_| Block::new()).collect(),
            keys_max: (blocks * BLOCK_WORDS * 64 / KEY_BITS) as u64,
            keys: std::sync::atomic::AtomicU64::new(0),
            successor: OnceLock::new(),
        }
    }

    /// True if the hash was inserted, and seldom if not.
    pub(super) fn contains(&self, hash: u64) -> bool {
        self.chain().any(|filter| filter.block(hash).contains(hash))
    }

    /// Adds a hash. Only the memtable's one writer calls this: a second one could lose bits.
    pub(super) fn insert(&self, hash: u64) {
        if self.contains(hash) {
            return; // an overwrite, or bits that others have set: another copy would only fill the filter
        }
        let newest = self.chain().last().expect("a chain holds at least its first filter");
        let keys = newest.keys.load(Relaxed);
        if keys < newest.keys_max {
            newest.keys.store(keys + 1, Relaxed);
            newest.block(hash).insert(hash);
        } else {
            newest.successor.get_or_init(|| Box::new(Filter::new(newest.keys_max as usize * 2))).insert(hash);
        }
    }

    fn chain(&self) -> impl Iterator<Item = &Filter> {
        std::iter::successors(Some(self), |filter| filter.successor.get().map(|next| &**next))
    }

    /// The block is chosen by the hash's upper half, scaled to the number of blocks.
    fn block(&self, hash: u64) -> &Block {
        &self.blocks[(((hash >> 32) * self.blocks.len() as u64) >> 32) as usize]
    }
}

impl Block {
    fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    fn contains(&self, hash: u64) -> bool {
        // No early exit: the line is here after the first word, and a branch that guesses wrong costs more.
        let missing = self
            .0
            .iter()
            .zip(masks(hash))
            .fold(0, |missing, (word, mask)| missing | (mask & !word.load(Relaxed)));
        missing == 0
    }

    fn insert(&self, hash: u64) {
        for (word, mask) in self.0.iter().zip(masks(hash)) {
            // Load and store, not an atomic or: there is one writer.
            word.store(word.load(Relaxed) | mask, Relaxed);
        }
    }
}

/// One bit for each word of a block, from 6-bit slices of the hash's product.
fn masks(hash: u64) -> impl Iterator<Item = u64> {
    let bits = hash.wrapping_mul(SPREAD);
    (0..BLOCK_WORDS).map(move |word| 1 << ((bits >> (58 - 6 * word)) & 63))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const KEYS: u64 = if cfg!(miri) { 500 } else { 50_000 };

    fn key_hash(key: u64) -> u64 {
        hash(&key.to_be_bytes())
    }

    fn wrong_share(filter: &Filter) -> f64 {
        let wrong = (KEYS..5 * KEYS).filter(|key| filter.contains(key_hash(*key))).count();
        wrong as f64 / (4 * KEYS) as f64
    }

    #[test]
    fn holds_every_key_and_few_others() {
        let filter = Filter::new(KEYS as usize);
        (0..KEYS).for_each(|key| filter.insert(key_hash(key)));
        assert!((0..KEYS).all(|key| filter.contains(key_hash(key))));
        assert!(wrong_share(&filter) < 0.015, "{}", wrong_share(&filter));
    }

    #[test]
    fn an_over_full_filter_grows_by_a_chain() {
        let filter = Filter::new(100);
        (0..KEYS).for_each(|key| filter.insert(key_hash(key)));
        assert!((0..KEYS).all(|key| filter.contains(key_hash(key))));
        assert!((2..=10).contains(&filter.chain().count()));
        assert!(wrong_share(&filter) < 0.06, "{}", wrong_share(&filter));
    }

    #[test]
    fn an_overwritten_key_counts_once() {
        let filter = Filter::new(1);
        (0..500).for_each(|_| filter.insert(key_hash(7)));
        assert_eq!(filter.chain().count(), 1);
        assert_eq!(filter.keys.load(Relaxed), 1);
    }

    #[test]
    fn an_empty_filter_holds_nothing() {
        let filter = Filter::new(0);
        assert!((0..KEYS).all(|key| !filter.contains(key_hash(key))));
    }
}
