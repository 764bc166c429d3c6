//! How much of a partition a rebuild goes through at once, and how long it rests then.
//!
//! A part is gone through on a job's thread. On a core that a shard has to share with it, requests wait until it is
//! done: once it runs, the kernel lets it go on for some milliseconds, whatever its priority. So while clients are
//! served
//!
//! 1. a part is short: that is what a request may wait for at each node that it asks;
//! 2. after it nothing is gone through for many times as long as it took, whether or not the partition came to its end
//!    with it: that is how few requests wait at all. Where a core is busy parts take longer, and so do the rests;
//! 3. it does not begin while requests wait for their turn here, for as long as a rest may be at most.
//!
//! When nobody has asked for a while parts are long, and follow each other at once.

use base::Monotonic;
use engine::fold::JournalCheck;
use std::time::Duration;

/// How long a rest is, in parts, of partitions whose trees are whole: they are made anew once in a week, so three hours
/// for a thousand million keys are soon enough.
const REST: u32 = 31;

/// The same of those that have none: until they do nothing is compared. As much as copies get (`throttle.rs`).
const REST_FIRST: u32 = 7;

/// The longest rest: a part that takes longer than a thirtieth of it waits for something that is broken rather than
/// busy.
const REST_MAX: Duration = Duration::from_secs(1);

/// What a part is at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartSize {
    pub keys: u64,
    /// How long it may take beyond its first key.
    pub time: Duration,
    /// Keys between two looks at the clock.
    pub look_every: u64,
}

impl PartSize {
    /// Of a rebuild with this check, while clients are served or not.
    pub fn of(check: JournalCheck, yields: bool) -> PartSize {
        // Values take a thousand times as long as heads if they are large.
        let look_every = if check == JournalCheck::Checksum { 1 } else { 256 };
        let (keys, millis) = match (yields, check) {
            (false, _) => (16_384, 4),
            // Their values are read before the first of them is seen: some three microseconds each.
            (true, JournalCheck::Checksum) => (256, 1),
            (true, _) => (4_096, 1),
        };
        PartSize { keys, time: Duration::from_millis(millis), look_every }
    }
}

/// When the next part may begin.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    next_at: Monotonic,
}

impl Parts {
    /// Whether it may begin now; `waits` says whether requests wait for their turn.
    pub fn may_begin(&self, waits: bool, now: Monotonic) -> bool {
        let put_off = if waits { REST_MAX } else { Duration::ZERO };
        self.next_at + put_off <= now
    }

    /// A part took so long. `yields` says whether clients are served, `is_first` whether its partition has no trees
    /// yet.
    pub fn end(&mut self, took: Duration, yields: bool, is_first: bool, now: Monotonic) {
        let rest = took.saturating_mul(if is_first { REST_FIRST } else { REST }).min(REST_MAX);
        self.next_at = if yields { now + rest } else { now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes through partitions of so many keys for ten seconds, at so many keys a millisecond, while clients are served
    /// or not. What share of the time parts were under way, and how long the longest took.
    fn run(keys: u64, per_milli: u64, (yields, is_first): (bool, bool)) -> (f64, Duration) {
        let (mut parts, mut now, mut left) = (Parts::default(), Monotonic(1), keys);
        let end = now + Duration::from_secs(10);
        let (mut busy, mut longest) = (Duration::ZERO, Duration::ZERO);
        while now < end {
            if !parts.may_begin(false, now) {
                now = now + Duration::from_micros(100);
                continue;
            }
            let size = PartSize::of(JournalCheck::Presence, yields);
            let micros = |keys: u64| Duration::from_micros(keys * 1000 / per_milli);
            let mut seen = 0;
            while seen < left.min(size.keys) && micros(seen) < size.time {
                seen += size.look_every.min(left.min(size.keys) - seen);
            }
            let took = micros(seen);
            (now, busy, longest) = (now + took, busy + took, longest.max(took));
            parts.end(took, yields, is_first, now);
            left = if left == seen { keys } else { left - seen };
        }
        (busy.as_secs_f64() / 10.0, longest)
    }

    /// There was no rest after the last part of a partition, so partitions of a few thousand keys were made one after
    /// the other without any.
    #[test]
    fn a_part_is_short_and_rare_while_clients_are_served_however_many_partitions_there_are() {
        for keys in [100, 3_000, 31_250, 1_000_000] {
            for per_milli in [50, 500, 3_400] {
                let (share, longest) = run(keys, per_milli, (true, false));
                assert!(share <= 1.0 / 31.0, "{share} with {keys} keys, {per_milli} in a millisecond");
                let one_look = Duration::from_micros(256 * 1000 / per_milli);
                assert!(longest <= Duration::from_millis(1) + one_look, "{longest:?}");
                let (first, _) = run(keys, per_milli, (true, true));
                assert!(share < first && first <= 1.0 / 7.0, "{first}");
            }
        }
    }

    #[test]
    fn nothing_rests_when_nobody_asks() {
        let (share, longest) = run(31_250, 3_400, (false, false));
        assert!(share > 0.99 && longest > Duration::from_millis(3), "{share} {longest:?}");
    }

    #[test]
    fn requests_that_wait_go_first_but_not_for_ever() {
        let mut parts = Parts::default();
        let now = Monotonic(0) + Duration::from_secs(5);
        parts.end(Duration::from_millis(1), true, false, now);
        let at = |millis| now + Duration::from_millis(millis);
        assert_eq!([30, 31].map(|millis| parts.may_begin(false, at(millis))), [false, true]);
        assert_eq!([31, 1030, 1031].map(|millis| parts.may_begin(true, at(millis))), [false, false, true]);
        // A disk that hangs does not stop a rebuild.
        parts.end(Duration::from_secs(60), true, false, now);
        assert!(parts.may_begin(false, now + REST_MAX));
    }

    #[test]
    fn values_are_looked_at_one_by_one() {
        let of = |check| PartSize::of(check, true);
        assert_eq!(of(JournalCheck::None), of(JournalCheck::Presence));
        assert!(of(JournalCheck::Checksum).look_every == 1 && of(JournalCheck::Checksum).keys == 256);
    }
}
