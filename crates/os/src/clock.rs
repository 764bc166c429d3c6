//! The kernel's clocks.

use base::{Clock, Monotonic, Wall};
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

/// The origin of every monotonic reading of this process, so that readings of two clocks can be compared.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// `CLOCK_MONOTONIC`, counted from the first clock of the process, the wall clock, and `CLOCK_BOOTTIME` for leases. A
/// reading is no system call (about 25 ns).
#[derive(Clone, Copy, Debug)]
pub struct OsClock {
    start: Instant,
}

impl OsClock {
    /// A clock; all clocks of a process agree.
    pub fn new() -> OsClock {
        OsClock { start: *START }
    }
}

impl Default for OsClock {
    fn default() -> Self {
        OsClock::new()
    }
}

impl Clock for OsClock {
    fn now(&self) -> Monotonic {
        Monotonic(0) + self.start.elapsed()
    }

    fn wall(&self) -> Wall {
        // A clock set before 1970 reads as 1970: nothing that must be right depends on it.
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Wall(u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX))
    }

    fn lease(&self) -> Monotonic {
        // CLOCK_MONOTONIC stops while the machine is suspended.
        Monotonic(nanos_of(libc::CLOCK_BOOTTIME))
    }
}

/// The time of a processor that the calling thread has used. Unlike the time that passes, it does not grow while others
/// have the processor.
pub fn thread_cpu_time() -> Duration {
    Duration::from_nanos(nanos_of(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// The reading of a clock of the kernel that has no negative ones.
fn nanos_of(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call, which overwrites it. The library of C is asked, since rustix looks for the
    // kernel's shared object, which is not there where valgrind counts instructions.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "the kernel has these clocks since version 2.6.39");
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from(nanos).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_a_process_agree_and_never_go_back() {
        let (one, other) = (OsClock::new(), OsClock::new());
        let (a, b, c) = (one.now(), other.now(), one.now());
        assert!(a <= b && b <= c);
        let (a, b) = (one.lease(), other.lease());
        assert!(Monotonic(0) < a && a <= b, "all clocks of a machine count from its boot");
        assert!(one.wall() > Wall(1_700_000_000_000_000), "the wall clock counts microseconds since 1970");
    }

    #[test]
    fn time_of_other_threads_does_not_count() {
        let work = Duration::from_millis(50);
        let before = thread_cpu_time();
        let busy = std::thread::spawn(move || while thread_cpu_time() < work {});
        busy.join().unwrap();
        let waited = thread_cpu_time().saturating_sub(before);
        assert!(waited < work, "{waited:?} of a thread that waits");
    }
}
