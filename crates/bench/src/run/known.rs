//! Contexts that a worker knows: those of its last read or write of each key of a consistent bucket type.

use crate::check::Key;
use base::FastMap;

/// Keys whose contexts a worker keeps; some 100 bytes each. Others are read again.
const KNOWN_MAX: usize = 100_000;

/// A version of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Context of a write that follows it; not empty.
    pub context: Vec<u8>,
    /// Its value, as the history has it.
    pub value: u64,
}

/// Known versions by key.
#[derive(Debug, Default)]
pub struct Known(FastMap<Key, Version>);

impl Known {
    /// The last known version of a key.
    pub fn get(&self, key: Key) -> Option<&Version> {
        self.0.get(&key)
    }

    /// A read or a write has told the version of a key; no context: it has none, or that is not known.
    pub fn set(&mut self, key: Key, context: &[u8], value: u64) {
        if context.is_empty() {
            return self.forget(key);
        }
        if self.0.len() >= KNOWN_MAX && !self.0.contains_key(&key) {
            return;
        }
        let version = self.0.entry(key).or_default();
        version.context.clear();
        version.context.extend_from_slice(context);
        version.value = value;
    }

    /// Nothing is known of a key any more.
    pub fn forget(&mut self, key: Key) {
        self.0.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_version_of_a_key_is_known() {
        let mut known = Known::default();
        known.set(1, b"long", 7);
        known.set(1, b"new", 8);
        assert_eq!(known.get(1), Some(&Version { context: b"new".to_vec(), value: 8 }));
        known.set(1, b"", 9);
        assert_eq!(known.get(1), None);
    }

    #[test]
    fn contexts_are_bounded() {
        let mut known = Known::default();
        (0..=KNOWN_MAX as u64).for_each(|key| known.set(key, b"c", key));
        assert_eq!((known.get(KNOWN_MAX as u64), known.0.len()), (None, KNOWN_MAX));
        known.set(0, b"d", 1);
        assert_eq!(known.get(0).map(|it| it.value), Some(1), "a known key goes on");
    }
}
