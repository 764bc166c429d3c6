//! The earliest deadline of a shard: when its thread must wake, and when a turn has to look for expired requests.
//!
//! 1. Whatever is parked with a deadline notes it ([`Deadlines::note`]).
//! 2. The shell sleeps no longer than to [`crate::Shard::next_deadline`]; a turn at or behind it
//!    expires requests.
//! 3. That answers expired requests, and computes the earliest deadline of the others anew.
//!
//! Invariant: no parked deadline that lies in the future is earlier than the noted one. The noted one may be earlier
//! than all, since nothing is taken back when a request ends in time: noting then costs one comparison, and a turn
//! looks in vain once per noted deadline at most.

use base::Monotonic;

/// A deadline that never comes.
const NEVER: Monotonic = Monotonic(u64::MAX);

/// The earliest deadline.
pub(crate) struct Deadlines {
    earliest: Monotonic,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines { earliest: NEVER }
    }
}

impl Deadlines {
    /// Takes note of a deadline.
    #[inline]
    pub fn note(&mut self, deadline: Monotonic) {
        self.earliest = self.earliest.min(deadline);
    }

    /// The earliest; `None` if there is none.
    #[inline]
    pub fn earliest(&self) -> Option<Monotonic> {
        (self.earliest != NEVER).then_some(self.earliest)
    }

    /// Whether the earliest has come.
    #[inline]
    pub fn are_due(&self, now: Monotonic) -> bool {
        self.earliest <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_deadline_is_kept() {
        let mut deadlines = Deadlines::default();
        assert!(!deadlines.are_due(Monotonic(u64::MAX - 1)));
        [7, 5, 9].into_iter().for_each(|at| deadlines.note(Monotonic(at)));
        assert!(!deadlines.are_due(Monotonic(4)));
        assert!(deadlines.are_due(Monotonic(5)));
    }
}
