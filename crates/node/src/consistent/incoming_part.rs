//! A part of a catch-up on its way into the store: it never replaces a version that is as new.
//!
//! 1. The heads of the part's keys are looked up. Entries that the group applies from then on are noted.
//! 2. The part goes to the journal without the items of which the store has an equal or a newer version.
//!
//! The store has newer versions where a voter that has dropped its keys is refilled while its log goes on, and where a
//! store has refused a part for a while.
//!
//! Invariant: a group receives one part at a time; the receiving end waits for its sync.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::Found;
use kv::consistent::stored_version;
use strong::catch_up::Item;
use strong::group::Entry;

/// The part that a group receives now.
#[derive(Debug, Default)]
pub(super) struct IncomingPart {
    /// The group's keys are dropped before.
    drops: bool,
    items: Vec<Item>,
    /// The index of the newest version that the ledger has of a key of the part. Epochs share one order of indexes.
    stored: BTreeMap<Bytes, u64>,
    /// Lookups that wait for the disk.
    missing: usize,
}

impl IncomingPart {
    /// A part whose keys are looked up next.
    pub fn new(drops: bool, items: Vec<Item>) -> IncomingPart {
        IncomingPart { drops, items, ..IncomingPart::default() }
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.items.is_empty()
    }

    /// Its keys.
    pub fn keys(&self) -> Vec<Bytes> {
        self.items.iter().map(|item| item.key.clone()).collect()
    }

    /// The lookup of a key waits for the disk.
    pub fn wait(&mut self) {
        self.missing += 1;
    }

    /// Takes the head of a key that had to wait; tells whether it was the last one. A store that left its groups
    /// meanwhile has no part.
    pub fn on_late(&mut self, key: &Bytes, found: Result<Option<Found>, engine::Error>) -> bool {
        if self.is_ready() {
            return false;
        }
        self.on_found(key, found);
        self.missing -= 1;
        self.is_ready()
    }

    /// Whether the group's keys are dropped before it is written.
    pub fn drops(&self) -> bool {
        self.drops
    }

    /// Whether no lookup of it waits for the disk.
    pub fn is_ready(&self) -> bool {
        self.missing == 0
    }

    /// The items that are newer than the versions in the ledger.
    pub fn newer_items(&self) -> impl Iterator<Item = &Item> {
        self.items
            .iter()
            .filter(|item| self.stored.get(&item.key).is_none_or(|stored| *stored < item.version.index()))
    }

    /// Notes the versions of entries that are applied now.
    pub fn on_applied(&mut self, entries: &[Entry]) {
        if self.items.is_empty() {
            return;
        }
        for entry in entries {
            if let Some(write) = entry.payload.write() {
                self.note(write.key.clone(), entry.index);
            }
        }
    }

    fn note(&mut self, key: Bytes, index: u64) {
        let stored = self.stored.entry(key).or_insert(index);
        *stored = index.max(*stored);
    }

    /// Takes the head of a key.
    pub fn on_found(&mut self, key: &Bytes, found: Result<Option<Found>, engine::Error>) {
        // A head that is damaged, or of another kind, is replaced.
        let version = found.ok().flatten().and_then(|found| stored_version(&found.head).ok());
        if let Some(version) = version {
            self.note(key.clone(), version.index());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strong::group::{Payload, Version, Write};

    fn item(key: &'static str, index: u64) -> Item {
        Item { key: Bytes::from_static(key.as_bytes()), version: Version::new(0, index), object: None }
    }

    fn newer(part: &IncomingPart) -> Vec<Item> {
        part.newer_items().cloned().collect()
    }

    #[test]
    fn an_item_that_the_log_has_overtaken_is_left_out() {
        let items = vec![item("a", 5), item("b", 6), item("c", 7)];
        let mut part = IncomingPart { items: items.clone(), ..IncomingPart::default() };
        assert_eq!(newer(&part), items);
        part.note(Bytes::from_static(b"b"), 4);
        assert_eq!(newer(&part), items, "an older version");

        let entry = |key: &'static [u8], index| {
            let write = Write { key: Bytes::from_static(key), object: None };
            Entry { index, term: 1, payload: Payload::Write(write) }
        };
        part.on_applied(&[entry(b"a", 5), entry(b"b", 8), entry(b"d", 9)]);
        assert_eq!(newer(&part), [item("c", 7)], "an equal and a newer version");
    }
}
