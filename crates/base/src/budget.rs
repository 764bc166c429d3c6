//! A budget of bytes that several threads share, for memory in large pieces.
//!
//! A piece is reserved before it is allocated. A reservation can move into the [`Bytes`] that it is for
//! ([`Reservation::hold`]): then the bytes are given back when the last slice of that memory is dropped, wherever
//! slices have gone.
//!
//! Invariants: what is reserved is at most the limit, but for one piece that is larger than the limit and was reserved
//! while nothing else was, so that no limit stops everything; every byte is given back once.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Pieces below this size are not reserved one by one: their number is bounded elsewhere, and an atomic operation for
/// each would cost more than it saves.
pub const LARGE_BYTES: usize = 16 << 10;

/// Bytes that may be held at once.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
    refused: AtomicU64,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Budget> {
        Arc::new(Budget { limit, used: AtomicUsize::new(0), refused: AtomicU64::new(0) })
    }

    /// A budget without a limit, for programs that bound their memory in another way.
    pub fn unlimited() -> Arc<Budget> {
        Budget::new(usize::MAX)
    }

    /// Reserves `bytes`; `None`, which is counted, if they are too many at the moment.
    pub fn reserve(self: &Arc<Budget>, bytes: usize) -> Option<Reservation> {
        let reserved = self.try_reserve(bytes);
        if reserved.is_none() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        reserved
    }

    /// [`Budget::reserve`] for a caller that will try again, which is no refusal.
    pub fn try_reserve(self: &Arc<Budget>, bytes: usize) -> Option<Reservation> {
        self.take(bytes).then(|| Reservation { budget: Arc::clone(self), bytes })
    }

    /// Bytes that may be reserved at once.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that are reserved.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// How often bytes were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| {
            let sum = used.checked_add(bytes)?;
            (sum <= self.limit || used == 0).then_some(sum)
        };
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

/// Bytes of a budget, given back on drop.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Reservation {
    /// Bytes that are reserved.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves so many in place of what is reserved; false, which is counted, if they are too many at the moment, and
    /// then nothing changes.
    pub fn resize(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes {
            if !self.budget.take(bytes - self.bytes) {
                self.budget.refused.fetch_add(1, Ordering::Relaxed);
                return false;
            }
        } else {
            self.budget.used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        true
    }

    /// `bytes`, whose memory this is for: given back when the last slice of them is dropped.
    pub fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _reservation: self })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Memory and its reservation.
struct Held {
    bytes: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_within_the_limit_and_given_back() {
        let budget = Budget::new(10);
        let mut one = budget.reserve(6).unwrap();
        assert!(budget.reserve(5).is_none() && budget.try_reserve(5).is_none());
        let other = budget.reserve(4).unwrap();
        assert!(!one.resize(7) && one.bytes() == 6);
        drop(other);
        assert!(one.resize(9) && one.resize(2));
        assert_eq!((budget.used(), budget.refused(), budget.limit()), (2, 2, 10));
        drop(one);
        let oversized = budget.reserve(11).unwrap();
        assert!(budget.reserve(1).is_none(), "a piece above the limit is alone");
        drop(oversized);
        assert_eq!(budget.used(), 0);
        assert!(Budget::unlimited().reserve(usize::MAX).is_some());
    }

    #[test]
    fn held_bytes_count_until_their_last_slice_is_dropped() {
        let budget = Budget::new(10);
        let held = budget.reserve(8).unwrap().hold(Bytes::from_static(b"12345678"));
        let slice = held.slice(2..4);
        drop(held);
        assert_eq!((budget.used(), &slice[..]), (8, &b"34"[..]));
        let copy = slice.clone();
        drop(slice);
        assert_eq!(budget.used(), 8);
        drop(copy);
        assert_eq!(budget.used(), 0);
    }
}
