//! Where a key lies, and which shard serves it.

use base::rng::mix64;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::partition::RING_SIZE_MAX;

/// Longest canonical form that is hashed from the stack: what nearly all keys are below.
const STACK_LEN: usize = 256;
/// Bytes of a length in the canonical form.
const LEN_BYTES: usize = 4;

/// A point on the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// Where an object lies: XXH3-64 of its canonical bytes, which are the type and the bucket, each behind its
    /// length (u32, little-endian), then the key. The lengths keep (`a`, `bc`) apart from (`ab`, `c`).
    pub fn of_key(bucket_type: &[u8], bucket: &[u8], key: &[u8]) -> Position {
        let parts: [&[u8]; 5] = [&len_of(bucket_type), bucket_type, &len_of(bucket), bucket, key];
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len > STACK_LEN {
            let mut hash = Xxh3::new();
            parts.iter().for_each(|part| hash.update(part));
            return Position(hash.digest());
        }
        let mut bytes = [0; STACK_LEN];
        let mut at = 0;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Position(xxh3_64(&bytes[..len]))
    }

    /// The top `bits` bits, the prefix of a ledger key.
    ///
    /// # Panics
    /// Unless `bits` is from 1 to 16.
    pub fn prefix(self, bits: u32) -> u16 {
        assert!((1..=RING_SIZE_MAX.ilog2()).contains(&bits), "a prefix has 1 to 16 bits");
        u16::try_from(self.0 >> (64 - bits)).expect("it has at most 16 bits")
    }
}

/// The shard, of `shards`, that holds the positions with the prefix `prefix`, by the number of bits the store
/// was made with. The mix keeps a striped claim, in which a node owns each k-th partition, balanced.
///
/// # Panics
/// If there is no shard.
#[inline]
pub fn shard_of(prefix: u16, shards: u16) -> u16 {
    assert!(shards > 0, "a node has a shard");
    let shard = mix64(u64::from(prefix)) % u64::from(shards);
    u16::try_from(shard).expect("it is below a u16")
}

fn len_of(name: &[u8]) -> [u8; LEN_BYTES] {
    u32::try_from(name.len()).expect("names are far below 4 GiB").to_le_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn golden_positions() {
        assert_eq!(Position::of_key(b"default", b"bucket", b"key"), Position(0x15ac_a6a9_4c99_e976));
        assert_eq!(Position::of_key(b"default", b"bucket", &[b'k'; 1000]), Position(0x386f_8691_d539_cafc));
    }

    #[test]
    fn both_ways_to_hash_agree() {
        for len in 0..600 {
            let key = vec![b'k'; len];
            let canonical = [&[1, 0, 0, 0][..], b"t", &[2, 0, 0, 0], b"bb", &key].concat();
            assert_eq!(Position::of_key(b"t", b"bb", &key), Position(xxh3_64(&canonical)), "{len}");
        }
    }

    #[test]
    fn names_do_not_run_into_each_other() {
        let positions: BTreeSet<Position> =
            [["a", "bc", "d"], ["ab", "c", "d"], ["a", "b", "cd"], ["", "a", "bcd"]]
                .iter()
                .map(|[t, b, k]| Position::of_key(t.as_bytes(), b.as_bytes(), k.as_bytes()))
                .collect();
        assert_eq!(positions.len(), 4);
    }

    #[test]
    fn keys_spread_over_the_ring() {
        let mut counts = [0u32; 64];
        for n in 0..64_000u32 {
            let position = Position::of_key(b"default", b"b", n.to_string().as_bytes());
            counts[usize::from(position.prefix(6))] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn striped_partitions_spread_over_shards() {
        for (stride, shards) in [(1, 2), (2, 2), (4, 4), (5, 8), (8, 8)] {
            let mut counts = vec![0u32; usize::from(shards)];
            let mine = (0..1024u16).filter(|prefix| prefix % stride == 0);
            let total = mine.clone().count() as u32;
            mine.for_each(|prefix| counts[usize::from(shard_of(prefix, shards))] += 1);
            let fair = total / u32::from(shards);
            assert!(counts.iter().all(|&count| count > fair / 2 && count < fair * 2), "{stride} {counts:?}");
        }
    }
}
