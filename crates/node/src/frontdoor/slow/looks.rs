//! When the waiting requests of a component are looked at, to find those that have come to be slow.
//!
//! A look goes through all of them, so looks are [`LOOKS_APART`] at least, and wait for room in the log: an overload
//! has few of them. The component notes each request that begins to wait, and looks when its deadlines are expired.

use crate::shard::env::Env;
use base::Monotonic;
use std::time::Duration;

/// The least time between two looks: a line may come so much later.
const LOOKS_APART: Duration = Duration::from_millis(20);

/// A look that is not needed.
const NEVER: Monotonic = Monotonic(u64::MAX);

/// When requests are looked at.
#[derive(Debug)]
pub(crate) struct SlowLooks {
    next: Monotonic,
    /// The earliest time of a look.
    earliest: Monotonic,
}

impl Default for SlowLooks {
    fn default() -> SlowLooks {
        SlowLooks { next: NEVER, earliest: Monotonic(0) }
    }
}

impl SlowLooks {
    /// A request waits that came then, and that no line tells of yet.
    pub fn note(&mut self, env: &mut Env, came: Monotonic) {
        let Some(threshold) = env.knobs.slow.threshold() else { return };
        let due = (came + threshold).max(self.earliest);
        if due < self.next {
            self.next = due;
            env.deadlines.note(due);
        }
    }

    /// The next look, if one is needed.
    pub fn next(&self) -> Option<Monotonic> {
        (self.next != NEVER).then_some(self.next)
    }

    /// Begins a look, if it is due. Requests that came then or earlier are slow; the component notes the others again.
    pub fn begin(&mut self, env: &Env, now: Monotonic) -> Option<Monotonic> {
        if now < self.next || base::planted!(SlowLineAtTheEnd) {
            return None;
        }
        self.next = NEVER;
        self.earliest = now + LOOKS_APART;
        let threshold = env.knobs.slow.threshold()?;
        let nanos = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
        now.0.checked_sub(nanos).map(Monotonic)
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self) {
        assert!(self.earliest <= self.next, "looks are some time apart");
    }

    /// Whether there is room for a line. Without it the look is over, and the next one waits for it.
    pub fn have_room(&mut self, env: &Env, now: Monotonic) -> bool {
        let room_at = env.knobs.slow.room_at();
        self.earliest = self.earliest.max(room_at);
        room_at <= now
    }
}
