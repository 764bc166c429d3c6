//! The time of new versions: a hybrid logical clock for each shard.
//!
//! Where the newest write wins, times decide between versions of which neither had seen the other. Wall clocks of nodes
//! differ, so a write that came later could get the earlier time and be acknowledged, but never shown.
//!
//! 1. A new version gets the latest of: the wall clock, the newest time seen by this shard plus one, the newest time
//!    among the versions of its key in hand plus one ([`VersionClock::next`]).
//! 2. The shard sees the times of all versions that it writes, joins, or is told of by replicas
//!    ([`VersionClock::see`]).
//! 3. The newest time seen goes on as time passes ([`VersionClock::tick`]), a little slower than it: a client may come
//!    from a node that is ahead before the version does. So what is seen once is forgotten in the end, after a clock
//!    was mended.
//!
//! Invariants
//! * Times of one shard ascend, also when the wall clock goes back.
//! * A time more than [`AHEAD_MAX`] ahead of the wall clock moves only the key that it belongs to: one broken clock
//!   does not set the clocks of the whole cluster.
//! * Two shards with different strides that have taken the same time, and no later one, give their next versions
//!   different times.
//! * At the end of the range times stay equal; then causality alone orders the writes of a key.
//!
//! A clock is *doubtful* for [`AHEAD_MAX`] after the start of its process, which has forgotten what the one before had
//! seen, and once it has met a time too far ahead. Then writes that need not read look at the key first, where this
//! node holds it.
//!
//! Left out: memory across restarts.

use base::{Monotonic, Wall};
use ring::NodeId;
use std::time::Duration;

/// How far ahead of the wall clock a time may be that the shard's clock takes: far beyond what synchronized clocks
/// differ by, and short enough that times shown to people, and ends that are reckoned from them, stay plausible.
pub const AHEAD_MAX: Duration = Duration::from_secs(600);

/// The shortest time between two warnings of one shard: each version from such a clock would give one.
pub const WARNING_EVERY: Duration = Duration::from_secs(60);

/// The part of the passing time by which the newest time seen falls behind: ten minutes are forgotten in 33 hours, and
/// a version seen a second ago is known to 5 ms.
const FORGETS: u64 = 200;

/// The same where the newest time is more than [`AHEAD_MAX`] ahead: the wall clock was put back.
const FORGETS_FAR: u64 = 2;

/// The most that passes between two ticks, in microseconds: twice what a quiet shard's take. A wall clock that leaps
/// says more.
const UNTICKED_MAX: u64 = 2 * MICROS;

/// Strides of shards. While wall clocks are behind a version, its next times come from its own: without strides they
/// would be the same at each shard, and the versions of a key that is written once nearly so.
const STRIDES: u64 = 256;

const MICROS: u64 = 1_000_000;

/// A version whose time is too far ahead, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeAhead {
    /// By how much, in whole seconds.
    pub seconds: u64,
    /// The node that wrote it, if that is known.
    pub writer: Option<NodeId>,
}

/// The clock of one shard.
#[derive(Debug, Default)]
pub struct VersionClock {
    /// The newest time given or seen, in microseconds since 1970, carried on to the last tick.
    newest: u64,
    /// The wall clock at that moment.
    at: Wall,
    ticked: Option<Monotonic>,
    /// Microseconds that a time of another shard is passed by, beside the one.
    stride: u64,
    /// Until when the process before may have seen newer times, in microseconds since 1970.
    unsettled_until: u64,
    /// Times that were too far ahead to be taken.
    refused: u64,
    /// The farthest of them since the last warning.
    farthest: Option<TimeAhead>,
    warned: Option<Monotonic>,
}

impl VersionClock {
    /// The clock of a process that begins at this time. `random` is drawn for this shard.
    pub fn starting(wall: Wall, random: u64) -> VersionClock {
        let stride = random % STRIDES;
        VersionClock { stride, unsettled_until: ahead_of(wall), ..VersionClock::default() }
    }

    /// Whether stored versions may have times that this clock is not beyond.
    pub fn is_doubtful(&self, wall: Wall) -> bool {
        self.refused > 0 || wall.0 < self.unsettled_until
    }

    /// The time of a new version of a key, in microseconds since 1970. `in_hand` is the newest time among the versions
    /// of the key that the coordinator knows, 0 if it knows none.
    pub fn next(&mut self, wall: Wall, in_hand: u64) -> u64 {
        let before = self.newest;
        let own = wall.0.max(self.running(wall).saturating_add(1));
        let time = own.max(in_hand.saturating_add(1));
        if time == own || !is_ahead(time, wall) {
            (self.newest, self.at) = (time, wall);
        }

        debug_assert!(time > before || time == u64::MAX, "a new version is later than all that was seen");
        self.invariants(before);
        time
    }

    /// Asserts relations that hold after each step, where the newest time was this one.
    #[inline]
    pub fn invariants(&self, before: u64) {
        debug_assert!(before <= self.newest, "the clock does not go back");
        debug_assert!(self.warned.is_none() || self.refused > 0, "a warning is about a time refused");
        let is_far = |it: TimeAhead| self.refused > 0 && it.seconds >= AHEAD_MAX.as_secs();
        debug_assert!(self.farthest.is_none_or(is_far), "a time refused is farther ahead than times taken");
    }

    /// Takes note of the time of a version. `writer` is the node that wrote it, if that is known.
    #[inline]
    pub fn see(&mut self, time: u64, wall: Wall, writer: Option<NodeId>) {
        if time <= self.newest {
            return;
        }
        let before = self.newest;
        if is_ahead(time, wall) {
            self.refuse(time - wall.0, writer);
        } else if time > self.running(wall) {
            (self.newest, self.at) = (time.saturating_add(self.stride), wall);
        }
        self.invariants(before);
    }

    /// Time passes: to be called every second at least.
    pub fn tick(&mut self, wall: Wall, now: Monotonic) {
        let since = self.ticked.map_or(0, |ticked| now.since(ticked).as_micros());
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        self.ticked = Some(now);
        let passed = wall.0.checked_sub(self.at.0).map_or(since, |passed| passed.min(since));
        let before = self.newest;
        (self.newest, self.at) = (self.after(passed, wall), wall);
        self.invariants(before);
    }

    /// The newest time, plus the time since.
    fn running(&self, wall: Wall) -> u64 {
        self.after(wall.0.saturating_sub(self.at.0).min(UNTICKED_MAX), wall)
    }

    fn after(&self, passed: u64, wall: Wall) -> u64 {
        let forgets = if is_ahead(self.newest, wall) { FORGETS_FAR } else { FORGETS };
        self.newest.saturating_add(passed - passed / forgets)
    }

    fn refuse(&mut self, micros: u64, writer: Option<NodeId>) {
        self.refused += 1;
        let seconds = micros / MICROS;
        let is_farther =
            |known: TimeAhead| (seconds, writer.is_some()) > (known.seconds, known.writer.is_some());
        if self.farthest.is_none_or(is_farther) {
            self.farthest = Some(TimeAhead { seconds, writer });
        }
    }

    /// How many times were too far ahead to be taken.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The warning for the log: the farthest time refused since the last warning, at most once in [`WARNING_EVERY`].
    pub fn take_warning(&mut self, now: Monotonic) -> Option<TimeAhead> {
        if self.farthest.is_none() || self.warned.is_some_and(|warned| now.since(warned) < WARNING_EVERY) {
            return None;
        }
        self.warned = Some(now);
        self.farthest.take()
    }
}

fn is_ahead(time: u64, wall: Wall) -> bool {
    time > ahead_of(wall)
}

/// The latest time that is taken.
fn ahead_of(wall: Wall) -> u64 {
    wall.0.saturating_add(AHEAD_MAX.as_secs() * MICROS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600 * MICROS;
    const MINUTE: u64 = 60 * MICROS;
    const NOON: Wall = Wall(1_800_000_000 * MICROS);

    #[test]
    fn times_ascend_whatever_the_wall_clock_does() {
        let mut clock = VersionClock::default();
        let walls = [NOON, NOON, Wall(NOON.0 - HOUR), Wall(0), Wall(NOON.0 + 1), Wall(NOON.0 + HOUR)];
        let times = walls.map(|wall| clock.next(wall, 0));
        assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
        assert_eq!((times[0], times[5]), (NOON.0, NOON.0 + HOUR), "a clock that is right is not changed");
    }

    #[test]
    fn a_new_version_is_newer_than_all_that_was_seen() {
        let mut clock = VersionClock::default();
        clock.see(NOON.0 + 9 * MINUTE, NOON, None);
        assert_eq!(clock.next(NOON, 0), NOON.0 + 9 * MINUTE + 1);
        assert_eq!(clock.next(NOON, NOON.0 + 10 * MINUTE - 1), NOON.0 + 10 * MINUTE);
        assert_eq!(clock.next(NOON, 0), NOON.0 + 10 * MINUTE + 1, "times given count as seen");
        assert_eq!(clock.refused(), 0);
    }

    #[test]
    fn shards_that_have_seen_the_same_version_give_their_next_ones_different_times() {
        let next = |random, in_hand| {
            let mut clock = VersionClock::starting(NOON, random);
            clock.see(NOON.0 + MINUTE, NOON, None);
            [clock.next(NOON, in_hand), clock.next(NOON, in_hand)]
        };
        assert_eq!(next(0, 0), [NOON.0 + MINUTE + 1, NOON.0 + MINUTE + 2]);
        assert_eq!(
            next(STRIDES + 7, 0),
            [NOON.0 + MINUTE + 8, NOON.0 + MINUTE + 9],
            "its own times are close"
        );
        assert_eq!(next(7, NOON.0 + MINUTE), next(7, 0), "a time in hand is one that was seen");
        assert_eq!(next(7, NOON.0 + HOUR), [NOON.0 + HOUR + 1; 2], "too far ahead to be taken");
    }

    #[test]
    fn what_was_seen_goes_on_and_is_forgotten_slowly() {
        let second = |seconds: u64| (Wall(NOON.0 + seconds * MICROS), Monotonic(seconds * 1_000_000_000));
        let mut clock = VersionClock::default();
        clock.tick(second(0).0, second(0).1);
        clock.see(NOON.0 + 9 * MINUTE, NOON, None);
        // The node that is ahead writes again, and this one hears of it from a client only.
        for now in 1..=10 {
            let (wall, now) = second(now);
            clock.tick(wall, now);
            let ahead = clock.next(wall, 0) - wall.0;
            assert!((9 * MINUTE - MICROS / 10..=9 * MINUTE).contains(&ahead), "{ahead}");
        }
        // A wall clock that leaps there and back carries nothing along.
        clock.tick(Wall(0), second(11).1);
        clock.tick(second(12).0, second(12).1);
        assert!(clock.next(second(12).0, 0) < second(12).0.0 + 9 * MINUTE);
        for now in 13..=36 * 3600 {
            clock.tick(second(now).0, second(now).1);
        }
        let (wall, _) = second(36 * 3600);
        assert_eq!(clock.next(wall, 0), wall.0, "forgotten");
    }

    #[test]
    fn a_time_far_ahead_moves_its_own_key_only() {
        let mut clock = VersionClock::default();
        let ahead = NOON.0 + HOUR;
        clock.see(ahead, NOON, Some(NodeId(3)));
        assert_eq!(clock.next(NOON, 0), NOON.0);
        assert_eq!(clock.next(NOON, ahead), ahead + 1);
        assert_eq!(clock.next(NOON, 0), NOON.0 + 1);
        assert_eq!(clock.refused(), 1);
    }

    #[test]
    fn a_clock_is_doubtful_at_first_and_after_a_time_far_ahead() {
        let later = |minutes| Wall(NOON.0 + minutes * MINUTE);
        let mut clock = VersionClock::starting(NOON, 0);
        assert_eq!([0, 9, 10].map(|minutes| clock.is_doubtful(later(minutes))), [true, true, false]);
        assert!(clock.is_doubtful(Wall(NOON.0 - HOUR)), "a clock that was put back");
        clock.see(later(11).0, later(10), None);
        assert!(!clock.is_doubtful(later(10)));
        clock.see(later(120).0, later(10), None);
        assert!(clock.is_doubtful(later(10)));
    }

    #[test]
    fn the_end_of_the_range_is_no_overflow() {
        let mut clock = VersionClock::default();
        for time in [u64::MAX, u64::MAX - 1, i64::MAX as u64, 1 << 63] {
            clock.see(time, NOON, None);
            assert_eq!(clock.next(NOON, time), time.saturating_add(1));
        }
        assert!(clock.next(NOON, 0) < NOON.0 + MINUTE, "none of them was taken");
        let mut clock = VersionClock::default();
        clock.see(u64::MAX, Wall(u64::MAX - 5), None);
        assert_eq!([clock.next(NOON, 0), clock.next(Wall(u64::MAX), 0)], [u64::MAX; 2]);
    }

    #[test]
    fn warnings_are_few_and_name_the_farthest() {
        let mut clock = VersionClock::default();
        let at = |seconds: u64| Monotonic(seconds * 1_000_000_000);
        assert_eq!(clock.take_warning(at(0)), None);
        let (near, far) = (NOON.0 + HOUR, NOON.0 + 2 * HOUR);
        clock.see(far, NOON, None);
        clock.see(far, NOON, Some(NodeId(2)));
        clock.see(near, NOON, Some(NodeId(1)));
        let warning = TimeAhead { seconds: 7200, writer: Some(NodeId(2)) };
        assert_eq!(clock.take_warning(at(1)), Some(warning));
        clock.see(near, NOON, Some(NodeId(1)));
        assert_eq!(clock.take_warning(at(60)), None);
        assert_eq!(clock.take_warning(at(61)), Some(TimeAhead { seconds: 3600, writer: Some(NodeId(1)) }));
        assert_eq!((clock.take_warning(at(200)), clock.refused()), (None, 4));
    }
}
