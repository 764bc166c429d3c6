//! A set of prefixes: a part of a covering set, and the filter of a scan of entries.
//!
//! A bit for each, since the prefixes of a node lie scattered over the ring: 2 KiB for a ring of 16,384 partitions.

/// Bits of a word.
const WORD: usize = 64;

/// Words of the largest set: prefixes have 16 bits.
const WORDS_MAX: usize = (1 << 16) / WORD;

/// Prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixSet {
    /// The last one is not zero.
    words: Vec<u64>,
}

impl PrefixSet {
    /// Whether it has this one.
    #[inline]
    pub fn contains(&self, prefix: u16) -> bool {
        let (word, bit) = place(prefix);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Asserts that two sets of the same prefixes have the same words.
    #[inline]
    pub fn invariants(&self) {
        debug_assert!(self.words.last() != Some(&0), "the last word has the greatest prefix");
    }

    /// Adds one.
    pub fn insert(&mut self, prefix: u16) {
        let (word, bit) = place(prefix);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
        self.invariants();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The least one.
    pub fn first(&self) -> Option<u16> {
        self.reach(0)
    }

    /// The least one from `prefix` on.
    pub fn reach(&self, prefix: u16) -> Option<u16> {
        let (first, bit) = place(prefix);
        let words = self.words.iter().enumerate().skip(first);
        words
            .map(|(at, &word)| (at, if at == first { word & !(bit - 1) } else { word }))
            .find(|&(_, word)| word != 0)
            .map(|(at, word)| number(at, word.trailing_zeros()))
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        let bits = |(at, &word): (usize, &u64)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(number(at, bit))
            })
        };
        self.words.iter().enumerate().flat_map(bits)
    }

    /// Those that `other` has too.
    pub fn intersection(&self, other: &PrefixSet) -> PrefixSet {
        PrefixSet::trimmed(self.words.iter().zip(&other.words).map(|(one, other)| one & other).collect())
    }

    /// Those that `other` has not.
    pub fn difference(&self, other: &PrefixSet) -> PrefixSet {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        PrefixSet::trimmed(self.words.iter().zip(others).map(|(one, other)| one & !other).collect())
    }

    /// The words, for the link.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The set of these words; `None` if there are more than prefixes have bits for, or the last is zero.
    pub fn from_words(words: Vec<u64>) -> Option<PrefixSet> {
        (words.len() <= WORDS_MAX && words.last() != Some(&0)).then_some(PrefixSet { words })
    }

    fn trimmed(mut words: Vec<u64>) -> PrefixSet {
        while words.pop_if(|word| *word == 0).is_some() {}
        PrefixSet { words }
    }
}

impl FromIterator<u16> for PrefixSet {
    fn from_iter<T: IntoIterator<Item = u16>>(prefixes: T) -> PrefixSet {
        let mut set = PrefixSet::default();
        prefixes.into_iter().for_each(|prefix| set.insert(prefix));
        set
    }
}

fn place(prefix: u16) -> (usize, u64) {
    (usize::from(prefix) / WORD, 1 << (usize::from(prefix) % WORD))
}

fn number(word: usize, bit: u32) -> u16 {
    u16::try_from(word * WORD).expect("a set has words for 16 bits") + bit as u16
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn some() -> impl Strategy<Value = BTreeSet<u16>> {
        let prefix = prop_oneof![0u16..200, any::<u16>(), Just(u16::MAX)];
        prop::collection::btree_set(prefix, 0..60)
    }

    proptest! {
        #[test]
        fn it_is_a_set(a in some(), b in some(), at in any::<u16>()) {
            let set: PrefixSet = a.iter().copied().collect();
            let other: PrefixSet = b.iter().copied().collect();
            let all = |set: &PrefixSet| set.iter().collect::<BTreeSet<_>>();
            prop_assert_eq!(&all(&set), &a);
            prop_assert_eq!((set.len(), set.is_empty()), (a.len(), a.is_empty()));
            prop_assert_eq!(set.contains(at), a.contains(&at));
            prop_assert_eq!(set.reach(at), a.range(at..).next().copied());
            prop_assert_eq!(set.first(), a.first().copied());
            prop_assert_eq!(all(&set.intersection(&other)), &a & &b);
            prop_assert_eq!(all(&set.difference(&other)), &a - &b);
            prop_assert_eq!(PrefixSet::from_words(set.words().to_vec()), Some(set.clone()));
            prop_assert_eq!(set.intersection(&other).difference(&other), PrefixSet::default());
        }
    }

    #[test]
    fn words_that_no_set_has_are_refused() {
        assert_eq!(PrefixSet::from_words(vec![1, 0]), None);
        assert_eq!(PrefixSet::from_words(vec![1; WORDS_MAX + 1]), None);
        assert_eq!(PrefixSet::from_words(vec![1; WORDS_MAX]).unwrap().len(), WORDS_MAX);
    }
}
