//! Groups that are to be woken, in order and at a pace.
//!
//! A shard has thousands of groups at rest. When a node dies or comes back, many of them have something to do, and not
//! all at once.
//!
//! * [`MarkedGroups`]: groups that settled while a voter was away. They are woken when it is back.
//! * [`WakeQueue`]: groups whose leader's node died. They stand for election, those with waiting requests first.
//!
//! Both give at most [`WAKES_PER_SECOND`] groups a second.

mod marked;
mod queue;

use std::time::Duration;

use base::Monotonic;

pub use self::marked::MarkedGroups;
pub use self::queue::{Urgency, WakeQueue};

/// Groups woken in a second: an election or a catch-up is some ten messages, so a tenth of what a core can do.
pub const WAKES_PER_SECOND: usize = 2_000;

/// Interval of wakes.
const WAKE_EVERY: Duration = Duration::from_millis(10);

/// Groups woken at once.
const WAKES_AT_ONCE: usize = WAKES_PER_SECOND / 100;

/// The pace of wakes.
#[derive(Default)]
struct Pace {
    next: Monotonic,
}

impl Pace {
    /// Takes the groups that may be woken now, in the order in which they are popped; the next ones come later. A
    /// queue that is empty makes no other one wait.
    fn take<T>(&mut self, now: Monotonic, mut pop: impl FnMut() -> Option<T>) -> Vec<T> {
        if now < self.next {
            return Vec::new();
        }

        let woken: Vec<T> = std::iter::from_fn(&mut pop).take(WAKES_AT_ONCE).collect();
        if !woken.is_empty() {
            self.next = now + WAKE_EVERY;
        }
        woken
    }
}
