//! The memtable: the entries of the newest writes, in memory and in order, until a flush makes a table of them.
//!
//! A skiplist in an arena (`skiplist`, `arena`) ordered by (key ascending, seq descending), and a hash index (`index`)
//! that finds a key's newest entry, or that there is none, without a search. One [`Memtable`] writes; any number of
//! [`MemtableReader`]s read, without a lock. An entry is opaque bytes here.
//!
//! Invariants:
//! - a reader sees an entry whole or not at all, and one that it has seen stays;
//! - what was inserted before a reader's call began, by any order the program makes, that call sees; what was deferred
//!   ([`Memtable::defer_hashed`]) it sees once it is linked, and before that only if it asks for the key's newest
//!   entry;
//! - entries are never changed or removed: a newer one goes before the older ones of its key;
//! - memory is given back all at once, when the writer, the readers and the cursors are gone.
//!
//! Steps of an insert: 1. the node is built in the arena; 2. the key's slot of the index is emptied, which sends
//! lookups to the list; 3. the node is linked, level by level from the lowest, each with a release store; 4. the slot
//! gets the node. A lookup asks the index, and the few that it cannot answer search the list from the top level.
//!
//! Left out: concurrent writers (one thread owns a shard), removal, and a limit: the owner compares [`Memtable::bytes`]
//! with its own. Models of the publication run with
//! `RUSTFLAGS="--cfg loom" cargo test -p engine --release --lib memtable::loom_tests`.

mod arena;
mod index;
mod skiplist;
mod sync;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::Arc;

use skiplist::{Inserter, SkipList};

pub use index::hash;
pub use skiplist::{Cursor, Iter};

/// What an entry is taken to need when the index is sized: a node of some 30 bytes, a key, a head of few siblings.
const ENTRY_BYTES_GUESS: usize = 128;

/// The smallest index, 16 KiB: one that starts far too small would be a chain of many.
const INDEX_KEYS_MIN: usize = 1 << 10;

/// The index is not sized for more than this many keys (128 MiB), whatever the hint: it grows if need be.
const INDEX_KEYS_MAX: usize = 8 << 20;

/// The writer's handle: inserts, and reads like any reader.
pub struct Memtable {
    inserter: Inserter,
}

/// A reader of a [`Memtable`], on any thread, which keeps its memory alive.
#[derive(Clone)]
pub struct MemtableReader {
    list: Arc<SkipList>,
}

impl Memtable {
    /// An empty memtable. The hint, the bytes it is to hold in the end, sizes its index and limits nothing.
    pub fn new(bytes_max_hint: usize) -> Memtable {
        let keys = (bytes_max_hint / ENTRY_BYTES_GUESS).clamp(INDEX_KEYS_MIN, INDEX_KEYS_MAX);
        Memtable { inserter: Inserter::new(keys) }
    }

    /// Inserts an entry, its parts joined. Panics if the (key, seq) is there already.
    pub fn insert(&mut self, key: &[u8], seq: u64, entry_parts: &[&[u8]]) {
        self.insert_hashed(key, hash(key), seq, entry_parts);
    }

    /// [`insert`](Self::insert) for a caller that has the key's [`hash`] already.
    pub fn insert_hashed(&mut self, key: &[u8], hash: u64, seq: u64, entry_parts: &[&[u8]]) {
        debug_assert_eq!(hash, index::hash(key), "the hash is that of the key");
        self.inserter.insert(key, hash, seq, entry_parts);
    }

    /// [`insert_hashed`](Self::insert_hashed), but the entry comes into the order, with others, by the next
    /// [`link`](Self::link) or insert at the latest: for many entries that is far less work. Until then lookups of the
    /// key's newest entry find it, and nothing else does. Its seq must be above those of all entries so far.
    pub fn defer_hashed(&mut self, key: &[u8], hash: u64, seq: u64, entry_parts: &[&[u8]]) {
        debug_assert_eq!(hash, index::hash(key), "the hash is that of the key");
        self.inserter.defer(key, hash, seq, entry_parts);
    }

    /// Brings what was deferred into the order: walks and lookups of any seq see it from now on.
    pub fn link(&mut self) {
        self.inserter.link_deferred();
    }

    /// Whether walks and lookups see all entries up to this seq.
    pub fn is_linked_to(&self, seq: u64) -> bool {
        self.inserter.is_linked_to(seq)
    }

    /// Has memory fetched that an insert of a key of this [`hash`] will look at: worth it if there is something else to
    /// do before.
    pub fn prefetch(&self, hash: u64) {
        self.inserter.list().prefetch(hash);
    }

    /// The newest entry of `key` with a seq of at most `seq_max`.
    pub fn get(&self, key: &[u8], seq_max: u64) -> Option<(u64, &[u8])> {
        self.get_hashed(key, hash(key), seq_max)
    }

    /// [`get`](Self::get) for a caller that has the key's [`hash`] already.
    pub fn get_hashed(&self, key: &[u8], hash: u64, seq_max: u64) -> Option<(u64, &[u8])> {
        get(self.inserter.list(), key, hash, seq_max)
    }

    /// Bytes that the entries take in memory, with their nodes. The index and the newest chunk's rest come on top.
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
        MemtableReader { list: Arc::clone(self.inserter.list()) }
    }
}

impl MemtableReader {
    /// The newest entry of `key` with a seq of at most `seq_max`.
    pub fn get(&self, key: &[u8], seq_max: u64) -> Option<(u64, &[u8])> {
        self.get_hashed(key, hash(key), seq_max)
    }

    /// Has memory fetched that a lookup of a key of this [`hash`] looks at first.
    pub fn prefetch(&self, hash: u64) {
        self.list.prefetch(hash);
    }

    /// [`get`](Self::get) for a caller that has the key's [`hash`] already.
    pub fn get_hashed(&self, key: &[u8], hash: u64, seq_max: u64) -> Option<(u64, &[u8])> {
        get(&self.list, key, hash, seq_max)
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

    /// Whether both read the same memtable.
    pub fn is_same(&self, other: &MemtableReader) -> bool {
        Arc::ptr_eq(&self.list, &other.list)
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

fn get<'a>(list: &'a SkipList, key: &[u8], hash: u64, seq_max: u64) -> Option<(u64, &'a [u8])> {
    debug_assert_eq!(hash, index::hash(key), "the hash is that of the key");
    list.get(key, hash, seq_max)
}
