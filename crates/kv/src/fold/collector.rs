//! Collects the findings of a fold from the heads of one shard.

use std::collections::BTreeMap;

use bytes::Bytes;
use object::{HeadView, key};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Finds, Fold, KeyClock, Purge, Sum, TreeSize};
use crate::bucket::Bucket;
use crate::error::Error;
use crate::stored_head::{damaged, view};

/// Keys that a page tells of at most.
pub const PAGE_ITEMS_MAX: usize = 16_384;

/// Bytes of a page's names, about: as for listings, a page is held in memory at both ends of a connection.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// The bytes of a ledger key before the names: a tag and the prefix, which depends on the ring.
const BEFORE_NAMES: usize = 3;

/// The bits of a place.
const PLACE_BITS: u32 = 32;

const MICROS: u64 = 1_000_000;

/// The place of an object's key: the first 32 bits of a hash of its type, its bucket and its key.
pub fn place(ledger_key: &[u8]) -> u32 {
    let names = ledger_key.get(BEFORE_NAMES..).unwrap_or_default();
    (xxh3_64(names) >> 32) as u32
}

/// The hash of a key at this place with this context, in the bytes that clients get. Another `seed` makes another hash.
pub fn leaf(place: u32, clock: &[u8], seed: Option<u32>) -> u32 {
    let seed = u64::from(place) | seed.map_or(0, |seed| (u64::from(seed) + 1) << PLACE_BITS);
    (xxh3_64_with_seed(clock, seed) >> 32) as u32
}

/// What became of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The next key may say more.
    GoOn,
    /// Its bucket says nothing more.
    SkipBucket,
    /// So much was found that the page ends here.
    Full,
}

/// Takes what heads say, up to a page.
#[derive(Debug)]
pub struct FoldCollector {
    fold: Fold,
    /// Places must begin with one of the numbers of each list, of so many bits.
    groups: Vec<(u32, Vec<u32>)>,
    sum: Sum,
    items: usize,
    bytes: usize,
    /// Memory for a context.
    clock: Vec<u8>,
    /// When it is, in milliseconds since 1970: what has ended by then is no object.
    now_ms: u64,
}

impl FoldCollector {
    /// That of a fold at a time in milliseconds since 1970, with nothing taken.
    pub fn new(fold: Fold, now_ms: u64) -> FoldCollector {
        let segments = fold.segments.as_ref().map(|it| (it.size.bits(), it.numbers.clone()));
        let branches = match &fold.finds {
            Finds::Branches(numbers) => Some((TreeSize::Large.branch_bits(), numbers.clone())),
            _ => None,
        };
        let mut groups: Vec<(u32, Vec<u32>)> = segments.into_iter().chain(branches).collect();
        groups.iter_mut().for_each(|(_, numbers)| numbers.sort_unstable());
        let sum = Sum::nothing(&fold.finds);
        FoldCollector { fold, groups, sum, items: 0, bytes: 0, clock: Vec::new(), now_ms }
    }

    /// Takes what this head says, if the fold is over its key. That it is in scope is for the caller to know.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is no head, or this no object's ledger key.
    pub fn take(&mut self, ledger_key: &[u8], head: &[u8]) -> Result<Taken, Error> {
        if cfg!(debug_assertions) {
            self.invariants();
        }
        let place = place(ledger_key);
        let is_in = |(bits, numbers): &(u32, Vec<u32>)| {
            numbers.binary_search(&(place >> (PLACE_BITS - bits))).is_ok()
        };
        if !self.groups.iter().all(is_in) {
            return Ok(Taken::GoOn);
        }
        let (head, head_len) = (view(head)?, head.len());
        if !self.is_modified_then(&head) {
            return Ok(Taken::GoOn);
        }
        let is_there = !head.is_gone(self.now_ms);
        let siblings = u32::try_from(head.sibling_count()).unwrap_or(u32::MAX);
        let bytes = head.values_len() + head_len as u64;
        match self.fold.finds {
            Finds::Root | Finds::Branches(_) => self.hash(place, &head, None),
            Finds::Tree { seed, .. } => self.hash(place, &head, seed),
            Finds::Tombs if is_there => {}
            Finds::Objects if !is_there => {}
            Finds::Clocks | Finds::Tombs | Finds::Objects => self.clock(ledger_key, &head)?,
            Finds::Count(purge) => {
                if let Sum::Count(count) = &mut self.sum
                    && is_there == (purge == Purge::Erase)
                {
                    *count += 1;
                }
            }
            // What is deleted is neither large nor an object.
            _ if !is_there => {}
            Finds::Siblings(above) if siblings > above => self.key(ledger_key, siblings.into())?,
            Finds::Sizes(above) if bytes > above.into() => self.key(ledger_key, bytes)?,
            Finds::Siblings(_) | Finds::Sizes(_) => {}
            Finds::Stats => {
                if let Sum::Stats(stats) = &mut self.sum {
                    stats.count(bytes, siblings);
                }
            }
            Finds::Buckets => self.bucket(ledger_key)?,
        }
        Ok(match self.fold.finds {
            _ if self.items >= PAGE_ITEMS_MAX || self.bytes >= PAGE_BYTES_MAX => Taken::Full,
            Finds::Buckets if is_there => Taken::SkipBucket,
            _ => Taken::GoOn,
        })
    }

    /// Asserts that the counters are those of the page.
    pub fn invariants(&self) {
        let held = match &self.sum {
            Sum::Clocks(clocks) => clocks.len(),
            Sum::Keys(keys) => keys.len(),
            Sum::Buckets(buckets) => buckets.len(),
            Sum::Hashes(_) | Sum::Stats(_) | Sum::Count(_) => 0,
        };
        debug_assert_eq!(self.items, held, "the items counted are those that are held");
        if let Sum::Stats(stats) = &self.sum {
            let of = |counts: &BTreeMap<u32, u64>| counts.values().sum::<u64>();
            debug_assert_eq!(of(&stats.sizes), stats.count, "each object has one size");
            debug_assert_eq!(of(&stats.siblings), stats.count, "each object has one number of siblings");
        }
    }

    /// What was taken.
    pub fn end(&mut self) -> Sum {
        if cfg!(debug_assertions) {
            self.invariants();
        }
        let mut sum = std::mem::replace(&mut self.sum, Sum::nothing(&self.fold.finds));
        if let Sum::Hashes(hashes) = &mut sum {
            hashes.sort_unstable_by_key(|(number, _)| *number);
            hashes.dedup_by(|(next, leaf), (number, hash)| {
                let is_same = next == number;
                *hash ^= if is_same { *leaf } else { 0 };
                is_same
            });
        }
        debug_assert!(sum.is_of(&self.fold), "a shard tells a sum that the asker takes");
        sum
    }

    fn is_modified_then(&self, head: &HeadView<'_>) -> bool {
        let Some(modified) = self.fold.modified else { return true };
        let last = head.siblings().map(|sibling| sibling.last_modified).max().unwrap_or(0) / MICROS;
        (modified.from..=modified.to).contains(&last)
    }

    fn hash(&mut self, place: u32, head: &HeadView<'_>, seed: Option<u32>) {
        self.clock.clear();
        head.context().write_client_bytes(&mut self.clock);
        if let (Sum::Hashes(hashes), Some(bits)) = (&mut self.sum, self.fold.finds.bits()) {
            hashes.push((place >> (PLACE_BITS - bits), leaf(place, &self.clock, seed)));
        }
    }

    fn clock(&mut self, ledger_key: &[u8], head: &HeadView<'_>) -> Result<(), Error> {
        let (bucket, key) = names(ledger_key)?;
        let mut clock = Vec::with_capacity(head.context().client_len());
        head.context().write_client_bytes(&mut clock);
        let clock = KeyClock { bucket, key, clock: clock.into() };
        (self.items, self.bytes) = (self.items + 1, self.bytes + clock.bytes());
        if let Sum::Clocks(clocks) = &mut self.sum {
            clocks.push(clock);
        }
        Ok(())
    }

    fn key(&mut self, ledger_key: &[u8], number: u64) -> Result<(), Error> {
        let (_, key) = names(ledger_key)?;
        (self.items, self.bytes) = (self.items + 1, self.bytes + key.len());
        if let Sum::Keys(keys) = &mut self.sum {
            keys.push((key, number));
        }
        Ok(())
    }

    fn bucket(&mut self, ledger_key: &[u8]) -> Result<(), Error> {
        let (bucket, _) = names(ledger_key)?;
        let len = bucket.bucket_type.len() + bucket.name.len();
        if let Sum::Buckets(buckets) = &mut self.sum
            && buckets.insert(bucket)
        {
            (self.items, self.bytes) = (self.items + 1, self.bytes + len);
        }
        Ok(())
    }
}

fn names(ledger_key: &[u8]) -> Result<(Bucket, Bytes), Error> {
    let parts = key::decode_object_key(ledger_key).map_err(damaged)?;
    let bucket_type = Bytes::copy_from_slice(&parts.bucket_type);
    let bucket = Bucket { bucket_type, name: Bytes::copy_from_slice(&parts.bucket) };
    Ok((bucket, Bytes::copy_from_slice(parts.key)))
}
