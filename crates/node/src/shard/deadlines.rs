//! The earliest deadline of a shard: when its thread must wake, and when a turn has to look for expired requests.
//!
//! 1. Whatever is parked with a deadline notes it ([`Deadlines::note`]).
//! 2. The shell sleeps no longer than to [`Shard::next_deadline`]; a turn at or behind it calls [`Shard::expire`].
//! 3. That answers expired requests, and computes the earliest deadline of the others anew.
//!
//! Invariant: no parked deadline that lies in the future is earlier than the noted one. The noted one may be earlier
//! than all, since nothing is taken back when a request ends in time: noting then costs one comparison, and a turn
//! looks in vain once per noted deadline at most.

use crate::shard::Shard;
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

    /// Whether the earliest has come.
    #[inline]
    fn are_due(&self, now: Monotonic) -> bool {
        self.earliest <= now
    }
}

impl Shard {
    /// When the next turn has something to do for a deadline or a delay; `None` if nothing waits for one. A turn may
    /// come later, which delays answers of requests that have timed out.
    #[inline]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        (self.env.deadlines.earliest != NEVER).then_some(self.env.deadlines.earliest)
    }

    /// Expires requests past their deadline, if there may be any.
    #[inline]
    pub(crate) fn expire_if_due(&mut self, now: Monotonic) {
        if self.env.deadlines.are_due(now) {
            self.expire(now);
        }
    }

    /// Answers every request past its deadline, and begins work that was delayed until now.
    pub(crate) fn expire(&mut self, now: Monotonic) {
        self.env.deadlines = Deadlines::default();
        self.expire_objects(now);
        self.expire_listings(now);
        self.expire_searches(now);
        self.expire_changes(now);
        self.expire_forwards(now);
        self.begin_reaps(now);
        // A request that is past its deadline and still there waits for the disk: a note of it would wake the shard in
        // vain.
        let parked =
            self.objects.deadlines().chain(self.listings.deadlines()).chain(self.searches.deadlines());
        let parked = parked.chain(self.changes.deadlines()).chain(self.forwards.deadlines());
        let earliest = parked.chain(self.reaper.next_due()).filter(|deadline| *deadline > now).min();
        if let Some(earliest) = earliest {
            self.env.deadlines.note(earliest);
        }
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
