//! Virtual time, and the clocks through which each node sees it wrongly.

use base::{Clock, Monotonic, Wall};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The world's true time. The scheduler moves it; nobody inside a node may see it.
// Relaxed throughout: a world runs in one thread; the atomics only make the handles `Send` and `Sync`.
#[derive(Clone, Debug, Default)]
pub struct SimTime(Arc<AtomicU64>);

impl SimTime {
    /// The true time.
    pub fn now(&self) -> Monotonic {
        Monotonic(self.0.load(Relaxed))
    }

    /// Moves the true time on to `to`.
    pub(crate) fn advance(&self, to: Monotonic) {
        let before = self.0.swap(to.0, Relaxed);
        assert!(before <= to.0, "time ran backwards");
    }
}

/// One node's clock: it runs fast or slow, its monotonic reading starts anew with each process, and its wall
/// reading jumps when told to. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct SimClock(Arc<State>);

#[derive(Debug)]
struct State {
    time: SimTime,
    /// What the clock gains on the true time, in parts of a million.
    drift_ppm: i32,
    /// The local time at which the process began.
    started: AtomicU64,
    /// What the wall clock shows at local time zero, in microseconds since 1970.
    wall_base: AtomicI64,
}

/// Where wall clocks begin: 2026-01-01 UTC, in microseconds since 1970.
pub const WALL_EPOCH: Wall = Wall(1_767_225_600_000_000);

/// No quartz is off by more; a drift beyond it is a bug of the caller.
const DRIFT_PPM_MAX: i32 = 100_000;

impl SimClock {
    /// A clock that gains `drift_ppm` millionths on the true time.
    pub fn new(time: SimTime, drift_ppm: i32) -> SimClock {
        assert!(drift_ppm.abs() <= DRIFT_PPM_MAX, "a clock that wrong is broken");
        let wall_base = AtomicI64::new(i64::try_from(WALL_EPOCH.0).expect("2026 fits 63 bits"));
        SimClock(Arc::new(State { time, drift_ppm, started: AtomicU64::new(0), wall_base }))
    }

    /// Lets the wall clock jump by `micros`, either way.
    pub fn jump(&self, micros: i64) {
        self.0.wall_base.fetch_add(micros, Relaxed);
    }

    /// Begins a new process: its monotonic reading starts at zero.
    pub fn restart(&self) {
        self.0.started.store(self.local(), Relaxed);
    }

    /// After how much true time this clock will read `deadline`: for scheduling a node's timer.
    pub fn until(&self, deadline: Monotonic) -> Duration {
        let local = u128::from(deadline.0.saturating_sub(self.now().0));
        let whole = 1_000_000_u128;
        let rate = whole.saturating_add_signed(i128::from(self.0.drift_ppm));
        // Rounded up: a timer must not find its deadline still ahead.
        Duration::from_nanos(u64::try_from((local * whole).div_ceil(rate)).unwrap_or(u64::MAX))
    }

    /// The true time since the world began, as this clock counts it.
    fn local(&self) -> u64 {
        let time = i128::from(self.0.time.now().0);
        let local = time + time * i128::from(self.0.drift_ppm) / 1_000_000;
        u64::try_from(local).expect("a world ends long before 64 bits of nanoseconds do")
    }
}

impl Clock for SimClock {
    fn now(&self) -> Monotonic {
        Monotonic(self.local() - self.0.started.load(Relaxed))
    }

    fn wall(&self) -> Wall {
        let since = i64::try_from(self.local() / 1000).expect("microseconds of 64 bits of nanoseconds fit");
        Wall(u64::try_from(self.0.wall_base.load(Relaxed).saturating_add(since)).unwrap_or(0))
    }

    fn lease(&self) -> Monotonic {
        self.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn clocks_drift_jump_and_restart_apart() {
        let time = SimTime::default();
        let fast = SimClock::new(time.clone(), 1000);
        let slow = SimClock::new(time.clone(), -1000);
        time.advance(Monotonic(1000 * SECOND));
        assert_eq!(fast.now(), Monotonic(1001 * SECOND));
        assert_eq!(slow.now(), Monotonic(999 * SECOND));
        assert_eq!(fast.wall().0 - WALL_EPOCH.0, 1_001_000_000);

        fast.jump(-5_000_000);
        assert_eq!(fast.wall().0 - WALL_EPOCH.0, 996_000_000);
        assert_eq!(fast.now(), Monotonic(1001 * SECOND), "a jump is of the wall clock only");

        fast.restart();
        assert_eq!(fast.now(), Monotonic(0));
        assert_eq!(slow.now(), Monotonic(999 * SECOND));
    }

    #[test]
    fn a_timer_is_never_early() {
        for drift_ppm in [-100_000, -7, 0, 3, 100_000] {
            let time = SimTime::default();
            let clock = SimClock::new(time.clone(), drift_ppm);
            let deadline = Monotonic(123_456_789);
            time.advance(time.now() + clock.until(deadline));
            assert!((deadline.0..deadline.0 + 3).contains(&clock.now().0), "{drift_ppm}: {:?}", clock.now());
            assert_eq!(clock.until(deadline), Duration::ZERO);
        }
    }
}
