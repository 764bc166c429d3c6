//! Time as the pure crates see it: two readings that are never mixed.

use std::ops::Add;
use std::time::Duration;

/// Nanoseconds since an arbitrary start of this process: for intervals, deadlines and scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Monotonic(pub u64);

/// Microseconds since 1970-01-01 UTC: for last-modified stamps shown to people. It may jump either way, so
/// nothing that must be right depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Wall(pub u64);

impl Wall {
    /// Whole milliseconds since 1970-01-01 UTC.
    pub fn millis(self) -> u64 {
        self.0 / 1000
    }
}

impl Monotonic {
    /// The time from `earlier` to `self`; zero if `earlier` is not earlier.
    pub fn since(self, earlier: Monotonic) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Monotonic {
    type Output = Monotonic;

    /// Saturates at the end of time (585 years) rather than wrap.
    fn add(self, after: Duration) -> Monotonic {
        Monotonic(self.0.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A source of time.
pub trait Clock: Send + Sync {
    /// The monotonic reading.
    fn now(&self) -> Monotonic;
    /// The wall clock reading.
    fn wall(&self) -> Wall;
    /// The lease clock: it runs also while the machine is suspended, at a rate within 5 % of true time. Its readings
    /// are never compared with those of [`now`](Clock::now), nor with those of another process.
    fn lease(&self) -> Monotonic;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_saturate() {
        let early = Monotonic(5);
        let late = early + Duration::from_nanos(7);
        assert_eq!(late.since(early), Duration::from_nanos(7));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(Monotonic(u64::MAX - 1) + Duration::from_secs(1), Monotonic(u64::MAX));
    }
}
