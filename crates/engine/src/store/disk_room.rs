//! Figures of one disk that all stores on it share.
//!
//! Every store sees the same free space. A job therefore claims its room first and holds the claim until its end, so
//! that two jobs do not count on the same bytes. Bytes that journals have taken, and bytes of memtables that must be
//! flushed, are added up over all stores. A look at the free space serves all of them.
//!
//! Clones of one set of options share it: those of a node's shards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The shared figures of one disk. A clone is of the same disk.
#[derive(Clone)]
pub struct DiskRoom {
    stores: u64,
    shared: Arc<Shared>,
}

/// The answer to a look at the free space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Free bytes; `None` if the disk cannot tell.
    pub free: Option<u64>,
    /// Bytes that all journals had taken at the question.
    pub all_taken: u64,
}

#[derive(Default)]
struct Shared {
    /// The last look of any store, and the number of looks.
    found: Mutex<Found>,
    looks: AtomicU64,
    taken: AtomicU64,
    claimed: AtomicU64,
    /// Bytes of memtables that are not in tables yet.
    unflushed: AtomicU64,
}

impl Default for DiskRoom {
    /// That of one store with a disk of its own.
    fn default() -> DiskRoom {
        DiskRoom::of(1)
    }
}

impl std::fmt::Debug for DiskRoom {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "DiskRoom(of {} stores)", self.stores)
    }
}

impl DiskRoom {
    /// The figures of a disk with this many stores.
    pub fn of(stores: usize) -> DiskRoom {
        DiskRoom { stores: stores.max(1) as u64, shared: Arc::default() }
    }

    /// Stores on the disk.
    pub(super) fn stores(&self) -> u64 {
        self.stores
    }

    /// Adds bytes that a journal has taken; the sum of all journals since their stores were opened.
    pub(super) fn note_taken(&self, bytes: u64) -> u64 {
        if bytes == 0 {
            return self.shared.taken.load(Ordering::Relaxed);
        }
        self.shared.taken.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// Keeps the answer of a look for the other stores; the number of looks.
    pub(super) fn note_found(&self, found: Found) -> u64 {
        *self.shared.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
        self.shared.looks.fetch_add(1, Ordering::Release) + 1
    }

    /// The answer of the last look and the number of looks, if that is more than `known`.
    pub(super) fn found_since(&self, known: u64) -> Option<(Found, u64)> {
        let looks = self.shared.looks.load(Ordering::Acquire);
        let found = || *self.shared.found.lock().unwrap_or_else(PoisonError::into_inner);
        (looks > known).then(|| (found(), looks))
    }

    /// A store's part in the bytes that must be flushed, 0 at first.
    pub(super) fn unflushed(&self) -> Unflushed {
        Unflushed { room: self.clone(), bytes: 0 }
    }

    /// The unclaimed part of `free` bytes.
    pub(super) fn unclaimed(&self, free: u64) -> u64 {
        free.saturating_sub(self.shared.claimed.load(Ordering::Relaxed))
    }

    /// Claims `bytes` of `free` for a job; `None` if other claims leave less. A claim of 0 bytes always succeeds.
    pub(super) fn claim(&self, bytes: u64, free: u64) -> Option<Claim> {
        let fits = |claimed: u64| claimed.checked_add(bytes).filter(|&all| bytes == 0 || all <= free);
        let claimed = &self.shared.claimed;
        claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Claim { room: self.clone(), bytes })
    }
}

/// Bytes of a store's memtables that must be flushed, until this is dropped.
#[derive(Debug)]
pub(super) struct Unflushed {
    room: DiskRoom,
    bytes: u64,
}

impl Unflushed {
    /// Sets the store's part.
    pub(super) fn note(&mut self, bytes: u64) {
        if bytes == self.bytes {
            return;
        }
        let all = &self.room.shared.unflushed;
        match bytes.checked_sub(self.bytes) {
            Some(more) => all.fetch_add(more, Ordering::Relaxed),
            None => all.fetch_sub(self.bytes - bytes, Ordering::Relaxed),
        };
        self.bytes = bytes;
    }

    /// The sum of all stores.
    pub(super) fn of_all(&self) -> u64 {
        self.room.shared.unflushed.load(Ordering::Relaxed)
    }
}

impl Drop for Unflushed {
    fn drop(&mut self) {
        self.note(0);
    }
}

/// Room that a job has claimed; given back on drop.
#[derive(Debug)]
pub(super) struct Claim {
    room: DiskRoom,
    bytes: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.room.shared.claimed.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_do_not_claim_the_same_bytes() {
        let (one, free) = (DiskRoom::of(2), 100);
        let two = one.clone();
        let first = one.claim(60, free).expect("all of it is free");
        assert!(two.claim(60, free).is_none());
        assert_eq!(two.unclaimed(free), 40);
        assert!(two.claim(0, 0).is_some(), "what takes nothing fits on a full disk");
        let second = two.claim(40, free).expect("it fits beside the first");
        drop(first);
        assert!(one.claim(60, free).is_some());
        drop(second);
        assert!(one.claim(u64::MAX, free).is_none());
        assert_eq!(one.unclaimed(free), free);
    }

    #[test]
    fn what_one_store_finds_the_others_learn() {
        let one = DiskRoom::of(2);
        assert_eq!(one.found_since(0), None);
        let found = Found { free: Some(9), all_taken: 4 };
        assert_eq!(one.note_found(found), 1);
        assert_eq!(one.found_since(0), Some((found, 1)));
        assert_eq!(one.found_since(1), None);
    }

    #[test]
    fn what_is_not_flushed_is_counted_for_all_stores_until_they_close() {
        let one = DiskRoom::of(2);
        let (mut first, mut second) = (one.unflushed(), one.unflushed());
        first.note(70);
        second.note(50);
        first.note(20);
        assert_eq!((first.of_all(), second.of_all()), (70, 70));
        drop(first);
        assert_eq!(second.of_all(), 50);
    }

    #[test]
    fn what_one_journal_takes_the_others_know() {
        let one = DiskRoom::of(2);
        assert_eq!((one.note_taken(5), one.clone().note_taken(7), one.note_taken(0)), (5, 12, 12));
        assert_eq!(DiskRoom::default().note_taken(0), 0);
    }
}
