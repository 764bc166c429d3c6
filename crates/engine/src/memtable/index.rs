//! The memtable's point index: from a key's hash to the newest node of the key, or to "never inserted", mostly by one
//! cache line of its own.
//!
//! An open-addressing hash table of buckets of one cache line each: seven pointers, and for each a tag, one byte of its
//! key's hash. A lookup compares all tags of a bucket at once and follows only pointers whose tag fits, and a bucket
//! that was full when a key came remembers so and sends lookups on to the next; both follow F14 (Bronson, Shi:
//! "Open-sourcing F14 for faster, more memory-efficient hash tables", 2019). It is an accelerator: it may answer
//! [`Found::Unknown`], and the list then answers.
//!
//! Invariants:
//! - one writer; readers take no lock. A tag, once set, stays, and a slot only ever holds nodes of the key it was
//!   claimed for;
//! - a key's slot is null from before a node of the key is linked in the list until after, and a null slot means "ask
//!   the list". So index and list never contradict each other: what was seen by either is seen by both from then on;
//! - clients choose the keys, and so may choose their hashes: a lookup reads [`PROBES`] buckets of a table at most, and
//!   a key that finds no place there stays out and is left to the list;
//! - a table that is full gets a successor twice its size, and a key is in one or the other: a wrong guess of the size
//!   costs a longer chain, and no insert ever moves the whole index.
//!
//! Steps of an insert: 1. [`Index::claim`] makes the key's slot null, or takes a new one; 2. the node is linked in the
//! list; 3. [`Claim::publish`] points the slot at it.
//!
//! Left out: removal; and most orderings. Tags and null slots are stored relaxed, since the list's release store, which
//! makes the insert visible, comes after them; only a pointer is published here, by release and acquire.

use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::prefetch::prefetch;
use xxhash_rust::xxh3::xxh3_64;

use super::sync::{AtomicPtr, AtomicU64};

/// Slots of a bucket: with the word of their tags they fill a cache line.
const SLOTS: usize = 7;

/// Keys for each bucket of a full table: 16 bytes a key. With 5 a lookup of a missing key would often meet only full
/// buckets, and at one in sixty have to search the list.
const BUCKET_KEYS: usize = 4;

/// The buckets a key may be in, from the one its hash names. In a full table one key in thousands finds no place in
/// them.
const PROBES: usize = 4;

/// A one in each byte of a word of tags.
const EACH_TAG: u64 = 0x0101_0101_0101_0101;

/// The flag, in the byte that is no slot's, of a bucket that a key was turned away from.
const OVERFLOWED: u64 = 1 << (8 * SLOTS);

/// The hash every filter and index of the engine is asked with, so that a lookup hashes its key once.
pub fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// A table from the hashes of keys to nodes `T`. Only the caller can tell what key a node has.
pub(super) struct Index<T> {
    /// Of these the last [`PROBES`] - 1 are no hash's first.
    buckets: Box<[Bucket<T>]>,
    keys_max: u64,
    /// Written by the one writer; an atomic only because readers share the index.
    keys: std::sync::atomic::AtomicU64,
    successor: OnceLock<Box<Index<T>>>,
}

/// What the index knows of a key.
pub(super) enum Found<'a, T> {
    /// The key's newest node, and its slot.
    Newest(&'a AtomicPtr<T>, NonNull<T>),
    /// The key was never inserted.
    Absent,
    /// The key is being inserted now, or found no place: the list knows.
    Unknown,
}

/// The writer's hold on the slot of a key that it is inserting a node of.
pub(super) struct Claim<'a, T> {
    /// None if the key found no place.
    slot: Option<&'a AtomicPtr<T>>,
    /// What was the key's newest node so far, if the index knows one.
    pub(super) newest: Option<NonNull<T>>,
}

#[repr(C, align(64))]
struct Bucket<T> {
    /// A byte for each slot, 0 while it is free, which slots are taken from the first on, and the flag.
    tags: AtomicU64,
    slots: [AtomicPtr<T>; SLOTS],
}

impl<T> Index<T> {
    /// An index whose first table is full at about `keys` keys.
    pub(super) fn new(keys: usize) -> Self {
        let homes = keys.div_ceil(BUCKET_KEYS).max(1);
        Self {
            buckets: (0..homes + PROBES - 1).map(|_| Bucket::new()).collect(),
            keys_max: (homes * BUCKET_KEYS) as u64,
            keys: std::sync::atomic::AtomicU64::new(0),
            successor: OnceLock::new(),
        }
    }

    /// The newest node of the key that has this hash, and that `is_key` tells the nodes of.
    pub(super) fn find(&self, hash: u64, is_key: impl Fn(NonNull<T>) -> bool) -> Found<'_, T> {
        let mut answer = Found::Absent;
        for table in self.chain() {
            match table.find_here(hash, &is_key) {
                Found::Newest(slot, node) => return Found::Newest(slot, node),
                Found::Unknown => answer = Found::Unknown,
                Found::Absent => {}
            }
        }
        answer
    }

    /// Fetches the bucket that the hash names, for whoever is about to look there.
    pub(super) fn prefetch(&self, hash: u64) {
        if let [home, ..] = self.newest_table().probe(hash) {
            prefetch(home);
        }
    }

    /// Readies the key's slot for a node that is about to be linked. Only the list's one writer calls this.
    pub(super) fn claim(&self, hash: u64, is_key: impl Fn(NonNull<T>) -> bool) -> Claim<'_, T> {
        if let Found::Newest(slot, node) = self.find(hash, is_key) {
            slot.store(ptr::null_mut(), Relaxed);
            return Claim { slot: Some(slot), newest: Some(node) };
        }
        Claim { slot: self.newest_table().add(hash), newest: None }
    }

    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |table| table.successor.get().map(|next| &**next))
    }

    /// The table that takes new keys.
    fn newest_table(&self) -> &Self {
        let newest = self.chain().last().expect("a chain holds at least its first table");
        if newest.keys.load(Relaxed) < newest.keys_max {
            return newest;
        }
        newest.successor.get_or_init(|| Box::new(Self::new(newest.keys_max as usize * 2)))
    }

    /// The buckets a key may be in, the first chosen by the hash's upper half, scaled to their number.
    fn probe(&self, hash: u64) -> &[Bucket<T>] {
        let homes = self.buckets.len() - (PROBES - 1);
        let home = (((hash >> 32) * homes as u64) >> 32) as usize;
        &self.buckets[home..home + PROBES]
    }

    /// [`find`](Self::find) in this table alone.
    fn find_here(&self, hash: u64, is_key: &impl Fn(NonNull<T>) -> bool) -> Found<'_, T> {
        let mut answer = Found::Absent;
        for bucket in self.probe(hash) {
            let tags = bucket.tags.load(Relaxed);
            for slot in slots_with(tags, tag(hash)) {
                let slot = &bucket.slots[slot];
                match NonNull::new(slot.load(Acquire)) {
                    Some(node) if is_key(node) => return Found::Newest(slot, node),
                    Some(_) => {}
                    None => answer = Found::Unknown,
                }
            }
            if tags & OVERFLOWED == 0 {
                return answer;
            }
        }
        Found::Unknown
    }

    /// A slot of this table for a key that has none yet, if there is a free one where lookups would look.
    fn add(&self, hash: u64) -> Option<&AtomicPtr<T>> {
        for bucket in self.probe(hash) {
            // Load and store, not an atomic or: there is one writer.
            let tags = bucket.tags.load(Relaxed);
            if let Some(slot) = slots_with(tags, 0).next() {
                bucket.tags.store(tags | tag(hash) << (8 * slot), Relaxed);
                self.keys.store(self.keys.load(Relaxed) + 1, Relaxed);
                return Some(&bucket.slots[slot]);
            }
            bucket.tags.store(tags | OVERFLOWED, Relaxed);
        }
        None
    }
}

impl<T> Claim<'_, T> {
    /// Whether lookups will find the key here.
    pub(super) fn has_slot(&self) -> bool {
        self.slot.is_some()
    }

    /// Makes `node`, which is linked now, what lookups of the key find.
    pub(super) fn publish(self, node: NonNull<T>) {
        if let Some(slot) = self.slot {
            // Whoever loads this pointer with acquire sees the whole node, and the link to it.
            slot.store(node.as_ptr(), Release);
        }
    }
}

impl<T> Bucket<T> {
    fn new() -> Self {
        let slots = std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        Self { tags: AtomicU64::new(0), slots }
    }
}

/// The hash's lowest byte, which its bucket does not depend on; but not 0, the tag of a free slot.
fn tag(hash: u64) -> u64 {
    (hash & 0xFF).max(1)
}

/// The slots that have the tag, from the first on.
fn slots_with(tags: u64, tag: u64) -> impl Iterator<Item = usize> {
    const LOW_BITS: u64 = 0x7F * EACH_TAG;
    let differing = tags ^ (tag * EACH_TAG);
    // In each byte the top bit, if and only if the byte is zero: no carry leaves a byte.
    let equal = !(((differing & LOW_BITS) + LOW_BITS) | differing | LOW_BITS) & (OVERFLOWED - 1);
    let some = |equal: u64| (equal != 0).then_some(equal);
    std::iter::successors(some(equal), move |equal| some(equal & (equal - 1)))
        .map(|equal| equal.trailing_zeros() as usize / 8)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::num::NonZero;

    use super::*;

    const KEYS: u64 = if cfg!(miri) { 500 } else { 50_000 };

    fn key_hash(key: u64) -> u64 {
        hash(&key.to_be_bytes())
    }

    /// Keys that are their own nodes: the index never looks behind a pointer.
    fn node(key: u64) -> NonNull<()> {
        NonNull::without_provenance(NonZero::<usize>::MIN.saturating_add(key as usize))
    }

    fn insert(index: &Index<()>, key: u64, hash: u64) {
        index.claim(hash, |other| other == node(key)).publish(node(key));
    }

    fn find(index: &Index<()>, key: u64, hash: u64) -> Found<'_, ()> {
        index.find(hash, |other| other == node(key))
    }

    fn filled(keys_hint: usize) -> Index<()> {
        let index = Index::new(keys_hint);
        (0..KEYS).for_each(|key| insert(&index, key, key_hash(key)));
        index
    }

    /// The shares of the keys that the index leaves to the list: of those it holds, and of those it does not.
    fn unknown_shares(index: &Index<()>) -> (f64, f64) {
        let unknown = |key: &u64| match find(index, *key, key_hash(*key)) {
            Found::Newest(_, found) => {
                assert!(found == node(*key) && *key < KEYS);
                false
            }
            Found::Absent => {
                assert!(*key >= KEYS);
                false
            }
            Found::Unknown => true,
        };
        let (held, missing) = ((0..KEYS).filter(unknown).count(), (KEYS..3 * KEYS).filter(unknown).count());
        (held as f64 / KEYS as f64, missing as f64 / (2 * KEYS) as f64)
    }

    #[test]
    #[cfg_attr(miri, ignore = "the shares of few keys vary")]
    fn a_full_table_knows_nearly_every_key() {
        let index = filled(KEYS as usize);
        let (held, missing) = unknown_shares(&index);
        assert!(held < 0.001 && missing < 0.003, "{held} {missing}");
        assert!(index.chain().count() <= 2);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the shares of few keys vary")]
    fn an_over_full_index_grows_by_a_chain() {
        let index = filled(100);
        let (held, missing) = unknown_shares(&index);
        assert!(held < 0.001 && missing < 0.012, "{held} {missing}");
        assert!((2..=10).contains(&index.chain().count()));
    }

    #[test]
    fn an_overwritten_key_keeps_its_slot() {
        let index = Index::new(1);
        (0..500).for_each(|_| insert(&index, 7, key_hash(7)));
        assert_eq!(index.chain().count(), 1);
        assert_eq!(index.keys.load(Relaxed), 1);
    }

    #[test]
    fn an_empty_index_holds_nothing() {
        let index = Index::<()>::new(0);
        assert!((0..KEYS).all(|key| matches!(find(&index, key, key_hash(key)), Found::Absent)));
    }

    #[test]
    fn a_claimed_key_is_unknown_until_it_is_published() {
        let index = Index::new(10);
        for _ in 0..2 {
            let claim = index.claim(9, |other| other == node(1));
            assert!(matches!(find(&index, 1, 9), Found::Unknown));
            claim.publish(node(1));
            assert!(matches!(find(&index, 1, 9), Found::Newest(_, found) if found == node(1)));
            assert!(matches!(find(&index, 2, 9), Found::Absent));
        }
    }

    #[test]
    fn keys_of_one_hash_are_known_up_to_a_bound_and_then_left_to_the_list() {
        let index = Index::new(1_000);
        (0..200).for_each(|key| insert(&index, key, 5));
        for key in 0..200 {
            let is_known = matches!(find(&index, key, 5), Found::Newest(_, found) if found == node(key));
            assert_eq!(is_known, key < (PROBES * SLOTS) as u64);
            assert!(is_known || matches!(find(&index, key, 5), Found::Unknown));
        }
        assert_eq!(index.chain().count(), 1);
    }

    #[test]
    fn slots_are_told_by_their_tags() {
        let tags = 0xFF_01_00_80_7F_01_00_02; // the uppermost byte is no slot's
        let each = [(0, &[1, 5][..]), (1, &[2, 6]), (2, &[0]), (0x7F, &[3]), (0x80, &[4]), (0xFF, &[])];
        for (tag, slots) in each {
            assert_eq!(slots_with(tags, tag).collect::<Vec<_>>(), slots);
        }
    }
}
