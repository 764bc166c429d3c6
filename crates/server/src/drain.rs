//! The wait between "not ready" and closed doors, so that balancers turn elsewhere before a connection is refused.
//!
//! 1. A balancer asks `/health/ready`; that is noted.
//! 2. A stop begins: the answer is 503 from now on. If one asked within [`ASKED_MAX`], the doors stay open for the
//!    wait.
//! 3. Then the clean stop takes its course.
//!
//! Where no balancer asks, a stop does not wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest time since the last question for which a balancer is taken to be there: its questions are seconds apart.
const ASKED_MAX: Duration = Duration::from_secs(30);

/// The wait of a node.
pub(crate) struct Drain {
    wait: Duration,
    asked: Mutex<Option<Instant>>,
    has_begun: AtomicBool,
}

impl Drain {
    /// A wait of this length.
    pub(crate) fn new(wait: Duration) -> Drain {
        Drain { wait, asked: Mutex::default(), has_begun: AtomicBool::new(false) }
    }

    /// Readiness was asked for.
    pub(crate) fn note_asked(&self, now: Instant) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// Begins: the node is not ready any more. Returns how long its doors stay open.
    pub(crate) fn begin(&self, now: Instant) -> Duration {
        self.has_begun.store(true, Ordering::Relaxed);
        let asked = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_watched = asked.is_some_and(|asked| now.duration_since(asked) <= ASKED_MAX);
        if is_watched { self.wait } else { Duration::ZERO }
    }

    /// Whether it has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_watched_node_waits() {
        let (wait, begun) = (Duration::from_secs(5), Instant::now());
        let drain = Drain::new(wait);
        assert!(!drain.has_begun());
        assert_eq!((drain.begin(begun), drain.has_begun()), (Duration::ZERO, true), "no balancer asks");
        drain.note_asked(begun);
        assert_eq!(drain.begin(begun + ASKED_MAX), wait);
        assert_eq!(drain.begin(begun + ASKED_MAX + Duration::from_nanos(1)), Duration::ZERO, "it is gone");
    }
}
