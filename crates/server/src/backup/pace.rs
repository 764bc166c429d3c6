//! The rests of a backup's thread, which keep it from taking more than its part.
//!
//! After each slice it rests for [`REST`] times as long as the slice took, so that a busy machine slows it down; and it
//! stays below a rate.
//!
//! Left out: time that can be simulated. A backup runs on a thread of its own, and nobody waits for it.

use std::time::{Duration, Instant};

/// The rest after a slice, in slices: the backup gets a quarter of the time that it would take alone.
const REST: u32 = 3;

/// The longest rest: a slice that takes longer than a third of it meets a broken disk rather than a busy one.
const REST_MAX: Duration = Duration::from_millis(500);

/// The pace that keeps a backup from taking more than its part.
pub(super) struct BackupPace {
    bytes_per_second: u64,
    since: Instant,
}

impl BackupPace {
    /// Of a backup that begins now.
    pub(super) fn new(bytes_per_second: u64) -> BackupPace {
        BackupPace { bytes_per_second, since: Instant::now() }
    }

    /// Rests after a slice of so many bytes.
    pub(super) fn rest(&mut self, bytes: u64) {
        if bytes > 0 {
            let took = self.since.elapsed();
            let whole = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
            let rest = took.saturating_mul(REST).min(REST_MAX).max(whole.saturating_sub(took));
            std::thread::sleep(rest);
        }
        self.since = Instant::now();
    }
}
