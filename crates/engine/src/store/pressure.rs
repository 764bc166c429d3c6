//! Backpressure: how near the store is to a limit beyond which it refuses writes, and how long an owner should let a
//! write wait so that it never gets there.
//!
//! What is bounded is memory (memtables that wait for their flush), level 0 (tables that wait for a merge) and the
//! journal's queue. Each may fill to half of its limit for nothing; from there on writes are to be slowed, by more the
//! fuller it is, so that a load that is too fast meets a wait of microseconds that grows until both are even, and no
//! stall. A store cannot wait itself: it only says so. Whoever does not listen is refused at the limit.
//!
//! Writes are slowed by the *backlog*: what is still to be read by flushes and merges, of the same limits. What is used
//! of a limit moves in steps, a frozen memtable a third and a table of level 0 a thirty-second of it, though the work
//! behind it goes on evenly; waits by that would come in steps as well, of ten times what it takes or of nothing
//! (decision 72).
//!
//! By the backlog of compaction they are slowed, too, though no store refuses anything for it: how far the journal is
//! above its target, as long as something is under way that brings it down (decision 81), and not by the steps in which
//! that is found (decision 87). On a disk that is nearly full deletions are slowed by how much of the reserve they have
//! used (`room.rs`). [`Store::must_be_paced`] tells an owner which of the two it is.

use super::Store;
use super::write::{LEVEL0_TABLES_MAX, MEMTABLES_FROZEN_MAX};
use std::time::Duration;

/// What a write waits at a limit. A thousand writes a second are slower than any disk that still works; a longer wait
/// would itself be a stall.
pub const PACE_MAX: Duration = Duration::from_millis(1);

/// A limit reached, in thousandths.
pub(super) const FULL: u64 = 1000;

/// From here on, in thousandths of a limit, writes are slowed.
pub(super) const SLOW_FROM: u64 = 500;

/// The journal must grow no more, in thousandths of the way to where writes wait longest for its sake: with the default
/// target it is three and a half times what lives.
pub(super) const SPACE_FULL: u64 = 3 * FULL;

impl Store {
    /// How much of the limit that is nearest is used, in thousandths: at 1000 writes are refused.
    pub fn pressure(&self) -> u64 {
        let share = |used: usize, limit: usize| (used as u64).saturating_mul(FULL) / (limit as u64).max(1);
        let memtables = (MEMTABLES_FROZEN_MAX + 1) * self.options.memtable_bytes_max;
        share(self.frozen.len() * self.options.memtable_bytes_max + self.memtable.bytes(), memtables)
            .max(share(self.version.level(0).len(), self.level0_limit()))
            .max(share(self.writer.waiting_bytes(), self.writer.waiting_bytes_max()))
    }

    /// Tables in level 0 beyond which writes are refused: room for merges that come late, whatever size they begin at.
    pub(super) fn level0_limit(&self) -> usize {
        LEVEL0_TABLES_MAX.max(2 * self.options.level0_tables_max)
    }

    /// How much of the nearest limit is still to be flushed, merged or written, in thousandths.
    fn backlog(&self) -> u64 {
        let share = |left: u64, limit: u64| left.saturating_mul(FULL) / limit.max(1);
        let memtables = (MEMTABLES_FROZEN_MAX + 1) * self.options.memtable_bytes_max;
        share(self.unflushed_bytes(), memtables as u64)
            .max(self.unmerged_tables() / self.level0_limit() as u64)
            .max(share(self.writer.waiting_bytes() as u64, self.writer.waiting_bytes_max() as u64))
    }

    /// How long the owner should wait before its next write, if it can: nothing up to a backlog of half of every limit,
    /// then more with its square, [`PACE_MAX`] at the limit.
    pub fn pace(&self) -> Duration {
        pace(self.backlog().max(self.lag()).max(self.reserve_used_thousandths()))
    }

    /// Whether writes that do not wait for so long will be refused, or the journal grow without end. Else they are
    /// slowed to keep the journal small and for nothing else, and one that has waited for long enough may go ahead.
    pub fn must_be_paced(&self) -> bool {
        self.backlog().max(self.reserve_used_thousandths()) > SLOW_FROM || self.unreclaimed() >= SPACE_FULL
    }
}

fn pace(pressure: u64) -> Duration {
    let over = pressure.min(FULL).saturating_sub(SLOW_FROM);
    let nanos = u64::try_from(PACE_MAX.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(nanos * over * over / ((FULL - SLOW_FROM) * (FULL - SLOW_FROM)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_slowed_smoothly() {
        assert_eq!(pace(0), Duration::ZERO);
        assert_eq!(pace(SLOW_FROM), Duration::ZERO);
        assert_eq!(pace(750), PACE_MAX / 4);
        assert_eq!(pace(FULL), PACE_MAX);
        assert_eq!(pace(u64::MAX), PACE_MAX);
        for pressure in 0..FULL {
            let step = pace(pressure + 1) - pace(pressure);
            assert!(step <= PACE_MAX / 200, "from {pressure} on the wait grows by {step:?} at once");
        }
    }
}
