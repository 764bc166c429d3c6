//! An immutable sorted array of keys, laid out for binary search.
//!
//! What all keys begin with is kept once. The next eight bytes of each key, as a number, stand in an array of
//! their own: the search runs over that, eight keys to a cache line and no pointer followed. Keys that have those
//! eight bytes in common are an array again, with what they all begin with kept once, and so on: a partition's
//! number, a bucket's name and a client's key cost one search each, whatever their lengths. Masstree (Mao, Kohler
//! and Morris, 2012) slices keys like this. Every sixteenth number stands once more in an array of its own, which is
//! small enough to stay in a cache: so a search waits for memory once, where halving all of it would wait at each of
//! the last steps.

use crate::prefetch::prefetch;

const HINT_BYTES: usize = size_of::<u64>();

/// Of so many hints one is a top: two lines of memory, both of which are asked for at once.
const STRIDE: usize = 16;

/// Hints in a line of memory.
const LINE_HINTS: usize = 8;

/// Keys in strictly ascending order.
#[derive(Debug, Default)]
pub struct KeyArray {
    prefix: Box<[u8]>,
    /// For each slot the eight bytes after the prefix; those of short keys as if they went on with zeroes.
    hints: Box<[u64]>,
    /// Each [`STRIDE`]th hint, from the first on.
    tops: Box<[u64]>,
    /// For each slot, and one more, how many keys are before it; empty if each slot has one key.
    firsts: Box<[u32]>,
    /// For each slot where its key ends in `suffixes`; it begins where the one before ends. Empty if hints tell all:
    /// what stands after the prefix has eight bytes at most and no zero at its end, as what tells two keys of a table's
    /// blocks apart mostly does.
    ends: Box<[u32]>,
    /// What stands after the prefix, of slots with a key of their own.
    suffixes: Box<[u8]>,
    /// The slots whose keys are an array again.
    children: Box<[(u32, KeyArray)]>,
}

/// So many keys with the same hint become an array; fewer have slots of their own, and are compared.
const CHILD_KEYS_MIN: usize = 4;

/// Arrays are nested at most so deep: zeroes at the ends of keys could nest them without end.
const DEPTH_MAX: usize = 6;

impl KeyArray {
    /// The array of `keys`; `None` if they are not strictly ascending or too long together (4 GiB).
    pub fn new<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Option<KeyArray> {
        let keys: Vec<&[u8]> = keys.collect();
        if !keys.is_sorted_by(|a, b| a < b) {
            return None;
        }
        KeyArray::build(&keys, 1)
    }

    fn build(keys: &[&[u8]], depth: usize) -> Option<KeyArray> {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
            return Some(KeyArray::default());
        };
        let prefix = &first[..common_prefix(first, last)];
        let (mut hints, mut firsts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let (mut suffixes, mut children) = (Vec::new(), Vec::new());
        let rests: Vec<&[u8]> = keys.iter().map(|key| &key[prefix.len()..]).collect();
        let are_hints = rests.iter().all(|rest| rest.len() <= HINT_BYTES && rest.last() != Some(&0));
        let mut at = 0usize;
        for same in rests.chunk_by(|a, b| hint(a) == hint(b)) {
            let nested = same.len() >= CHILD_KEYS_MIN && depth < DEPTH_MAX;
            if nested {
                children.push((u32::try_from(hints.len()).ok()?, KeyArray::build(same, depth + 1)?));
            }
            for rest in if nested { &same[..1] } else { same } {
                hints.push(hint(rest));
                firsts.push(u32::try_from(at).ok()?);
                suffixes.extend_from_slice(if nested { &[] } else { rest });
                ends.push(u32::try_from(suffixes.len()).ok()?);
                at += if nested { same.len() } else { 1 };
            }
        }
        firsts.push(u32::try_from(at).ok()?);
        if at == hints.len() {
            firsts = Vec::new();
        }
        if are_hints {
            assert!(firsts.is_empty(), "hints of different keys differ");
            (ends, suffixes) = (Vec::new(), Vec::new());
        }
        Some(KeyArray {
            prefix: prefix.into(),
            tops: hints.iter().step_by(STRIDE).copied().collect(),
            hints: hints.into(),
            firsts: firsts.into(),
            ends: ends.into(),
            suffixes: suffixes.into(),
            children: children.into(),
        })
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.firsts.last().map_or(self.hints.len(), |&count| count as usize)
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.hints.is_empty()
    }

    /// How many keys are at most `key`: one more than the index of the last such key.
    pub fn count_at_most(&self, key: &[u8]) -> usize {
        self.count_at_most_near(key, |_| ())
    }

    /// [`KeyArray::count_at_most`], which tells `near`, before it looks closely, from which count on the answer is
    /// among some
    /// [`STRIDE`]: for whoever will want memory that is numbered like the keys. It may tell nothing.
    #[inline]
    pub(super) fn count_at_most_near(&self, key: &[u8], near: impl FnOnce(usize)) -> usize {
        let Some(rest) = key.strip_prefix(&*self.prefix) else {
            return if key < &*self.prefix { 0 } else { self.len() };
        };
        let hint = hint(rest);
        let slot = self.slot_of(hint, near);
        if self.hints.get(slot) != Some(&hint) {
            return self.first(slot);
        }
        if self.ends.is_empty() {
            // What has the same hint begins with the key.
            return slot + 1;
        }
        if let Ok(child) = self.children.binary_search_by_key(&slot, |(slot, _)| *slot as usize) {
            return self.first(slot) + self.children[child].1.count_at_most(rest);
        }
        // One key, or a few: the whole rests decide.
        let same = self.hints[slot..].partition_point(|&other| other == hint);
        let (mut low, mut high) = (slot, slot + same);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.suffix(middle) <= rest { low = middle + 1 } else { high = middle }
        }
        self.first(low)
    }

    /// The first slot whose hint is at least `hint`.
    #[inline]
    fn slot_of(&self, hint: u64, near: impl FnOnce(usize)) -> usize {
        // It is behind the last top that is less, and not behind the next.
        let Some(top) = self.tops.partition_point(|&top| top < hint).checked_sub(1) else { return 0 };
        let start = top * STRIDE;
        let some = &self.hints[start..self.hints.len().min(start + STRIDE)];
        some.iter().step_by(LINE_HINTS).for_each(|line| prefetch(line));
        if self.firsts.is_empty() {
            near(start);
        }
        start + some.partition_point(|&other| other < hint)
    }

    /// How many keys are before a slot.
    #[inline]
    fn first(&self, slot: usize) -> usize {
        self.firsts.get(slot).map_or(slot, |&first| first as usize)
    }

    /// The key at `index`, if there are so many.
    pub fn get(&self, index: usize) -> Option<Vec<u8>> {
        if index >= self.len() {
            return None;
        }
        let slot = match self.firsts.is_empty() {
            true => index,
            false => self.firsts.partition_point(|&first| first as usize <= index) - 1,
        };
        let mut key = self.prefix.to_vec();
        match self.children.binary_search_by_key(&slot, |(slot, _)| *slot as usize) {
            Ok(child) => key.extend(self.children[child].1.get(index - self.first(slot))?),
            Err(_) if self.ends.is_empty() => {
                let hint = self.hints[slot];
                let zeroes = (hint.trailing_zeros() / u8::BITS) as usize;
                key.extend_from_slice(&hint.to_be_bytes()[..HINT_BYTES - zeroes]);
            }
            Err(_) => key.extend_from_slice(self.suffix(slot)),
        }
        Some(key)
    }

    /// Bytes of memory it takes.
    pub fn memory(&self) -> usize {
        let children: usize = self.children.iter().map(|(_, child)| child.memory()).sum();
        let slots = (self.hints.len() + self.tops.len()) * 8 + (self.firsts.len() + self.ends.len()) * 4;
        size_of::<KeyArray>() + self.prefix.len() + slots + self.suffixes.len() + children
    }

    fn suffix(&self, slot: usize) -> &[u8] {
        let start = if slot == 0 { 0 } else { self.ends[slot - 1] as usize };
        &self.suffixes[start..self.ends[slot] as usize]
    }
}

/// The first eight bytes as a number that orders like them; a shorter key is as if it went on with zeroes.
#[inline]
pub(crate) fn hint(suffix: &[u8]) -> u64 {
    match suffix.first_chunk::<HINT_BYTES>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; HINT_BYTES];
            bytes[..suffix.len()].copy_from_slice(suffix);
            u64::from_be_bytes(bytes)
        }
    }
}

/// How many bytes `a` and `b` begin with in common.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    // Eight bytes at a time: every entry that is written comes past here.
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let start = words.take_while(|(a, b)| a == b).count() * 8;
    start + a[start..].iter().zip(&b[start..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    #[test]
    fn zeroes_at_the_end_are_told_apart() {
        let keys: Vec<Vec<u8>> = (0..200).map(|len| vec![0; len]).collect();
        let array = KeyArray::new(keys.iter().map(Vec::as_slice)).unwrap();
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(array.count_at_most(key), index + 1);
            assert_eq!(array.count_at_most(&[&key[..], &[1]].concat()), 200);
        }
    }

    #[test]
    fn disorder_is_refused() {
        let build = |keys: &[&'static [u8]]| KeyArray::new(keys.iter().copied()).is_some();
        assert!(build(&[]) && build(&[b""]) && build(&[b"a", b"a\0", b"b"]));
        assert!(!build(&[b"b", b"a"]) && !build(&[b"a", b"a"]) && !build(&[b"a", b"c", b"b", b"d"]));
        assert!(!build(&[b"xa", b"a", b"xb"]));
    }

    #[test]
    fn short_keys_are_their_hints() {
        let array = |keys: &[&'static str]| KeyArray::new(keys.iter().map(|key| key.as_bytes())).unwrap();
        let short = array(&["ab", "aba", "b"]);
        assert!(short.ends.is_empty() && short.suffixes.is_empty());
        assert_eq!(short.get(2), Some(b"b".to_vec()));
        let long = array(&["ab", "aba", "abcdefghij", "b"]);
        assert_eq!((long.ends.len(), long.get(2)), (4, Some(b"abcdefghij".to_vec())), "one is too long");
        let zero = array(&["a", "a\0", "b"]);
        assert_eq!(zero.ends.len(), 3, "a zero at the end is not told by a hint");
    }

    proptest! {
        #[test]
        fn it_counts_like_a_set(
            prefix in vec(0u8..3, 0..4),
            // Few byte values, so that keys have much in common and end in zeroes.
            keys in btree_set(vec(0u8..2, 0..40).prop_map(|bits| bits.chunks(3).flat_map(|c| [c[0]; 5]).collect::<Vec<u8>>()), 0..80),
            probes in vec(vec(0u8..3, 0..70), 0..60),
        ) {
            let join = |suffix: &Vec<u8>| [&prefix[..], suffix].concat();
            let keys: Vec<Vec<u8>> = keys.iter().map(join).collect();
            let array = KeyArray::new(keys.iter().map(Vec::as_slice)).unwrap();
            for (at, key) in keys.iter().enumerate() {
                let found = array.get(at);
                prop_assert_eq!(found.as_ref(), Some(key));
            }
            prop_assert_eq!(array.get(keys.len()), None);
            for probe in probes.iter().map(join).chain(probes.clone()).chain(keys.clone()) {
                prop_assert_eq!(array.count_at_most(&probe), keys.iter().filter(|key| **key <= probe).count());
            }
        }
    }
}
