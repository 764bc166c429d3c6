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
use engine::{Found, Lookup, Want};
use kv::consistent::stored_version;
use strong::catch_up::Item;
use strong::group::Entry;

use super::ConsistentGroups;
use super::group::GroupKey;
use super::serve::WaitingLookup;
use crate::shard::env::Env;

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

    fn on_found(&mut self, key: &Bytes, found: Result<Option<Found>, engine::Error>) {
        // A head that is damaged, or of another kind, is replaced.
        let version = found.ok().flatten().and_then(|found| stored_version(&found.head).ok());
        if let Some(version) = version {
            self.note(key.clone(), version.index());
        }
    }
}

impl ConsistentGroups {
    /// Takes a part that the receiving end of a group wants written.
    pub(super) fn take_part(&mut self, env: &mut Env, key: GroupKey, drops: bool, items: Vec<Item>) {
        let deletions = items.iter().filter(|item| item.object.is_none());
        if let Some(last) = deletions.map(|item| item.version.index()).max() {
            self.note_deletion(env, key, last);
        }

        let Some(held) = self.groups.get_mut(&key) else { return };
        debug_assert!(held.part.items.is_empty(), "the receiving end waits for the part before");
        let mut part = IncomingPart { drops, items, ..IncomingPart::default() };
        let keys: Vec<Bytes> = part.items.iter().map(|item| item.key.clone()).collect();
        for name in keys {
            match env.store.lookup_since(&name, Want::Head, held.dropped_at) {
                Lookup::Done(found) => part.on_found(&name, found),
                Lookup::NeedsIo(id) => {
                    part.missing += 1;
                    self.served.wait_for(id, WaitingLookup::Incoming { group: key, key: name });
                }
            }
        }

        let is_ready = part.missing == 0;
        held.part = part;
        if is_ready {
            self.write_part(env, key);
        }
    }

    /// Takes the head of a key of a part.
    pub(super) fn on_incoming_found(
        &mut self,
        env: &mut Env,
        group: GroupKey,
        key: &Bytes,
        found: Result<Option<Found>, engine::Error>,
    ) {
        // A store that left its groups meanwhile has no part.
        let Some(held) = self.groups.get_mut(&group).filter(|held| held.part.missing > 0) else { return };
        held.part.on_found(key, found);
        held.part.missing -= 1;
        if held.part.missing == 0 {
            self.write_part(env, group);
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
