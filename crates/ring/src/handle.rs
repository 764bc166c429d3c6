//! How a new ring reaches its readers.
//!
//! A reader owns a reference to the ring it last saw. To read, it compares one atomic number; only if that moved
//! does it fetch the new ring, and if the publisher is at work that instant it reads the old one once more. So a
//! reader never waits, and two readers share no cache line that either writes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use crate::ring::Ring;

/// Publishes rings.
#[derive(Debug, Clone)]
pub struct RingHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The version of `ring`, stored after it.
    version: AtomicU64,
    ring: Mutex<Arc<Ring>>,
}

impl RingHandle {
    /// A handle on `ring`.
    pub fn new(ring: Ring) -> RingHandle {
        let version = AtomicU64::new(ring.version().0);
        RingHandle { shared: Arc::new(Shared { version, ring: Mutex::new(Arc::new(ring)) }) }
    }

    /// Publishes `ring` if it is later than the one there is; says whether it was.
    pub fn publish(&self, ring: Ring) -> bool {
        // A poisoned lock cannot guard a broken ring: it is replaced in one step.
        let mut current = self.shared.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.version() <= current.version() {
            return false;
        }
        let version = ring.version().0;
        let old = std::mem::replace(&mut *current, Arc::new(ring));
        self.shared.version.store(version, Ordering::Release);
        // A large ring takes a while to free, if this was its last reader: not while others look.
        drop(current);
        drop(old);
        true
    }

    /// A reader, which starts with the ring there is. Each thread has its own.
    pub fn reader(&self) -> RingReader {
        let ring = self.shared.ring.lock().unwrap_or_else(PoisonError::into_inner).clone();
        RingReader { shared: self.shared.clone(), ring }
    }
}

/// Reads the ring that was published last.
#[derive(Debug, Clone)]
pub struct RingReader {
    shared: Arc<Shared>,
    ring: Arc<Ring>,
}

impl RingReader {
    /// The ring. Does not wait.
    pub fn get(&mut self) -> &Arc<Ring> {
        if self.shared.version.load(Ordering::Acquire) != self.ring.version().0 {
            self.refresh();
        }
        &self.ring
    }

    #[cold]
    fn refresh(&mut self) {
        match self.shared.ring.try_lock() {
            Ok(ring) => self.ring = ring.clone(),
            Err(TryLockError::Poisoned(ring)) => self.ring = ring.into_inner().clone(),
            // The next look sees it.
            Err(TryLockError::WouldBlock) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::RingVersion;
    use crate::size::RingSize;

    fn ring(version: u64) -> Ring {
        Ring::of_one_node(RingVersion(version), RingSize::default())
    }

    #[test]
    fn readers_see_the_latest_ring_and_never_an_older_one() {
        let handle = RingHandle::new(ring(3));
        let mut reader = handle.reader();
        assert_eq!(reader.get().version(), RingVersion(3));
        assert!(handle.publish(ring(5)));
        assert!(!handle.publish(ring(4)) && !handle.publish(ring(5)));
        assert_eq!(reader.get().version(), RingVersion(5));
        assert_eq!(handle.reader().get().version(), RingVersion(5));
    }

    #[test]
    fn versions_only_grow_under_every_reader() {
        const LAST: u64 = 2_000;
        let handle = RingHandle::new(ring(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let mut reader = handle.reader();
                scope.spawn(move || {
                    let mut seen = RingVersion(0);
                    while seen < RingVersion(LAST) {
                        let now = reader.get().version();
                        assert!(now >= seen, "{now:?} after {seen:?}");
                        seen = now;
                        std::thread::yield_now();
                    }
                });
            }
            (1..=LAST).for_each(|version| assert!(handle.publish(ring(version))));
        });
    }
}
