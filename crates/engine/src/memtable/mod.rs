//! The memtable: the entries of the newest writes, in memory and in order, until a flush makes a table of them.
//!
//! A skiplist in an arena (`skiplist`, `arena`) ordered by (key ascending, seq descending), and a filter (`filter`)
//! that ends most lookups of a missing key without a search. One [`Memtable`] writes; any number of [`MemtableReader`]s
//! read, without a lock. An entry is opaque bytes here.
//!
//! Invariants:
//! - a reader sees an entry whole or not at all, and one that it has seen stays;
//! - what was inserted before a reader's call began, by any order the program makes, that call sees;
//! - entries are never changed or removed: a newer one goes before the older ones of its key;
//! - memory is given back all at once, when the writer, the readers and the cursors are gone.
//!
//! Steps of an insert: 1. the key's hash goes into the filter; 2. the node is built in the arena; 3. it is linked, level
//! by level from the lowest, each with a release store. A lookup asks the filter, then searches from the top level.
//!
//! Left out: concurrent writers (one thread owns a shard), removal, and a limit: the owner compares [`Memtable::bytes`]
//! with its own. Models of the publication run with
//! `RUSTFLAGS="--cfg loom" cargo test -p engine --release --lib memtable::loom_tests`.

mod arena;
mod filter;
mod skiplist;
mod sync;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::Arc;

use filter::Filter;
use skiplist::{Inserter, SkipList};

pub use filter::hash;
pub use skiplist::{Cursor, Iter};

/// What an entry is taken to need when the filter is sized: a node of some 30 bytes, a key, a head of few siblings.
const ENTRY_BYTES_GUESS: usize = 128;

/// The smallest filter, 4 KiB less a little: one that starts far too small would be a chain of many.
const FILTER_KEYS_MIN: usize = 2_700;

/// The filter is not sized for more than this many keys (48 MiB), whatever the hint: it grows if need be.
const FILTER_KEYS_MAX: usize = 32 << 20;

/// The writer's handle: inserts, and reads like any reader.
pub struct Memtable {
    inserter: Inserter,
    filter: Arc<Filter>,
}

/// A reader of a [`Memtable`], on any thread, which keeps its memory alive.
#[derive(Clone)]
pub struct MemtableReader {
    list: Arc<SkipList>,
    filter: Arc<Filter>,
}

impl Memtable {
    /// An empty memtable. The hint, the bytes it is to hold in the end, sizes its filter and limits nothing.
    pub fn new(bytes_max_hint: usize) -> Memtable {
        let keys = (bytes_max_hint / ENTRY_BYTES_GUESS).clamp(FILTER_KEYS_MIN, FILTER_KEYS_MAX);
        Memtable { inserter: Inserter::new(), filter: Arc::new(Filter::new(keys)) }
    }

    /// Inserts an entry, its parts joined. Panics if the (key, seq) is there already.
    pub fn insert(&mut self, key: &[u8], seq: u64, entry_parts: &[&[u8]]) {
        self.filter.insert(hash(key));
        self.inserter.insert(key, seq, entry_parts);
    }

    /// The newest entry of `key` with a seq of at most `seq_max`.
    pub fn get(&self, key: &[u8], seq_max: u64) -> Option<(u64, &[u8])> {
        self.get_hashed(key, hash(key), seq_max)
    }

    /// [`get`](Self::get) for a caller that has the key's [`hash`] already.
    pub fn get_hashed(&self, key: &[u8], hash: u64, seq_max: u64) -> Option<(u64, &[u8])> {
        get(self.inserter.list(), &self.filter, key, hash, seq_max)
    }

    /// Bytes that the entries take in memory, with their nodes. The filter and the newest chunk's rest come on top.
    pub fn bytes(&self) -> usize {
        self.inserter.list().bytes()
    }

    /// The number of entries: each (key, seq) is one.
    pub fn len(&self) -> usize {
        self.inserter.list().len()
    }

    /// True if nothing was inserted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A reader, which sees also what is inserted later.
    pub fn reader(&self) -> MemtableReader {
        MemtableReader { list: Arc::clone(self.inserter.list()), filter: Arc::clone(&self.filter) }
    }
}

impl MemtableReader {
    /// The newest entry of `key` with a seq of at most `seq_max`.
    pub fn get(&self, key: &[u8], seq_max: u64) -> Option<(u64, &[u8])> {
        self.get_hashed(key, hash(key), seq_max)
    }

    /// [`get`](Self::get) for a caller that has the key's [`hash`] already.
    pub fn get_hashed(&self, key: &[u8], hash: u64, seq_max: u64) -> Option<(u64, &[u8])> {
        get(&self.list, &self.filter, key, hash, seq_max)
    }

    /// All entries, in order.
    pub fn iter(&self) -> Iter<'_> {
        self.list.iter()
    }

    /// The entries whose key is `key` or after it, in order.
    pub fn iter_from(&self, key: &[u8]) -> Iter<'_> {
        self.list.iter_from(key, u64::MAX)
    }

    /// A cursor that owns its share of the memtable; it is at no entry until it seeks.
    pub fn cursor(&self) -> Cursor {
        Cursor::new(Arc::clone(&self.list))
    }

    /// Bytes that the entries take in memory, as [`Memtable::bytes`].
    pub fn bytes(&self) -> usize {
        self.list.bytes()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True if nothing was inserted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn get<'a>(
    list: &'a SkipList,
    filter: &Filter,
    key: &[u8],
    hash: u64,
    seq_max: u64,
) -> Option<(u64, &'a [u8])> {
    debug_assert_eq!(hash, filter::hash(key), "the hash is that of the key");
    if filter.contains(hash) { list.get(key, seq_max) } else { None }
}
