//! Secondary index entries: keys of the ledger that a store keeps beside its objects.
//!
//! An entry is a key with an empty head and no value, in a space of keys of its own. Which entries an object has is
//! read out of its head ([`Indexing`]), so the index is derived, and can always be made again. It is kept exact by four
//! rules:
//!
//! 1. Whoever replaces an object says what head it had ([`Store::write_over`](crate::Store::write_over)). The store
//!    derives what goes and what comes (`change.rs`) and writes it in one batch with the object: a record for each
//!    entry. So a replay asks nothing of the ledger, and a crash, a merge or a compaction treats entries like other
//!    keys.
//! 2. An entry ends when its object does, and goes when its object's range is dropped, at whatever place its own key is
//!    ([`DroppedRanges`](crate::drops::DroppedRanges)).
//! 3. A mark, the first key of the space, says that all entries are there. Where it is missing (a folder of an older
//!    program, a ledger that was made again, of whose entries nobody knows which still hold) they are made anew in the
//!    background (`build.rs`), and until then nobody may ask ([`Store::is_indexed`](crate::Store::is_indexed)).
//! 4. Where a version was lost, or cannot be read when it is replaced, its entries are not known: the whole space is
//!    dropped, mark and all, in the batch that replaces it, and rule 3 applies.
//!
//! Left out: what entries mean. Their order, and whose they are, is their owner's affair.
//!
//! Follows leveled's index specs, which a vnode derives from the object that it has read before it writes.

mod build;
mod change;

pub(crate) use build::{Building, Page, Step};
pub use change::Change;
pub(crate) use change::entries;

use std::fmt;
use std::ops::Range;

/// Reads the entries out of an object's key and head, and hands over the key of each.
pub type EntriesOf = fn(key: &[u8], head: &[u8], each: &mut dyn FnMut(&[u8]));

/// What a store must know of its owner's keys to keep entries beside them.
#[derive(Clone, Copy)]
pub struct Indexing {
    /// Whether a head has entries; may say so of one that has none. Asked at each write, so it is to be quick.
    pub may_have: fn(head: &[u8]) -> bool,
    /// Says which entries an object has, in any order; the same may come twice. None of a key that is no object's.
    pub entries_of: EntriesOf,
    /// The key of the object that an entry is about.
    pub object_of: fn(entry: &[u8]) -> Option<Vec<u8>>,
    /// All objects' keys.
    pub objects: (&'static [u8], &'static [u8]),
    /// All entries' keys. The first is the mark, and no entry's.
    pub entries: (&'static [u8], &'static [u8]),
}

/// What an object was before it is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before<'a> {
    /// It was not there.
    Nothing,
    /// A version was there.
    Version {
        /// Its head.
        head: &'a [u8],
        /// When it ends, in milliseconds since 1970; `None` for never.
        expires_ms: Option<u64>,
    },
    /// It cannot be read.
    Unknown,
}

impl Indexing {
    /// Whether a key is in the space of objects.
    #[inline]
    pub fn is_object(&self, key: &[u8]) -> bool {
        self.objects.0 <= key && key < self.objects.1
    }

    /// Whether a key is in the space of entries.
    #[inline]
    pub fn is_entry(&self, key: &[u8]) -> bool {
        self.entries.0 <= key && key < self.entries.1
    }

    /// The key of the mark, which says that all entries are there.
    pub fn mark(&self) -> &'static [u8] {
        self.entries.0
    }

    /// Whether a range has a place for objects.
    pub(crate) fn has_objects(&self, range: Range<&[u8]>) -> bool {
        overlap(&range, self.objects)
    }

    /// Whether a range has a place for entries.
    pub(crate) fn has_entries(&self, range: Range<&[u8]>) -> bool {
        overlap(&range, self.entries)
    }
}

/// An empty end is none.
fn overlap(range: &Range<&[u8]>, (start, end): (&[u8], &[u8])) -> bool {
    range.start < end && (range.end.is_empty() || start < range.end)
}

impl fmt::Debug for Indexing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space =
            |(start, end): (&[u8], &[u8])| format!("{}..{}", start.escape_ascii(), end.escape_ascii());
        f.write_str(&format!("objects {}, entries {}", space(self.objects), space(self.entries)))
    }
}

/// Two descriptions of the same keys.
impl PartialEq for Indexing {
    fn eq(&self, other: &Indexing) -> bool {
        (self.objects, self.entries) == (other.objects, other.entries)
    }
}

impl Eq for Indexing {}

#[cfg(test)]
pub(crate) mod testing {
    //! Keys for tests: objects begin with `o`, entries are `x`, a term of one byte, and the object's key behind its
    //! `o`. A head is the terms, one after the other; `-` is none.

    use super::Indexing;

    pub const INDEXING: Indexing = Indexing {
        may_have: |head| head.iter().any(|&term| term != b'-'),
        entries_of: |key, head, each| {
            let Some(name) = key.strip_prefix(b"o") else { return };
            for &term in head.iter().filter(|&&term| term != b'-') {
                each(&[&[b'x', term], name].concat());
            }
        },
        object_of: |entry| Some([b"o", entry.strip_prefix(b"x")?.get(1..)?].concat()),
        objects: (b"o", b"p"),
        entries: (b"x", b"y"),
    };
}
