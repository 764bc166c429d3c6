//! Hash collections with a fixed hash, so that one seed gives one life.
//!
//! They are for keys that we number ourselves. A map keyed by bytes that a client chooses is a `BTreeMap`:
//! a fixed hash would let a client choose collisions.

/// A hash map with a fixed, fast hash; only for keys that no client can choose.
pub type FastMap<K, V> = rustc_hash::FxHashMap<K, V>;

/// A hash set with a fixed, fast hash; only for keys that no client can choose.
pub type FastSet<K> = rustc_hash::FxHashSet<K>;
