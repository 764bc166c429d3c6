//! How fast compaction may go: a number of bytes that its owner grants, and that it uses up.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// What may be saved up: more would let a compaction that begins after a quiet time take the disk for seconds.
const GRANTED_BYTES_MAX: i64 = 8 << 20;

/// The bytes that a compaction may still read and write before it has to pause.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    granted: AtomicI64,
    cancelled: AtomicBool,
}

impl Pace {
    /// Grants so many more bytes.
    pub fn grant(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let add = |granted: i64| Some(granted.saturating_add(bytes).min(GRANTED_BYTES_MAX));
        self.granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok();
    }

    /// Uses bytes up; a slice may use more than are left, and the next waits longer.
    pub fn spend(&self, bytes: u64) {
        self.granted.fetch_sub(i64::try_from(bytes).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Whether nothing is left.
    pub fn is_spent(&self) -> bool {
        self.granted.load(Ordering::Relaxed) <= 0
    }

    /// Asks the compaction to give up.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether it is to give up.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
