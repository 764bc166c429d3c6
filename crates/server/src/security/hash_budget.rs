//! The budget of password hashes: failed logins get a bounded share of one processor.
//!
//! 1. [`HashBudget::admit`] sets the expected time of a hash aside, if the budget has room. An address that has failed
//!    of late leaves half of the budget to the others.
//! 2. [`HashBudget::settle`] replaces it by the real time of a wrong password, and gives it back for a right one. So
//!    clients that log in with their passwords use nothing up, however many they are.
//! 3. The time that is used comes back at the rate of [`SHARE_PERCENT`].
//!
//! A leaky bucket, as the limits of users in `security::Meters`, over time in place of units.
//!
//! Rooms are numbers of hashes, since a hash takes ten times as long on a slow machine. The share is of time.
//!
//! Invariant: over any time t, the admitted hashes of wrong passwords take at most [`SHARE_PERCENT`] of t, and
//! [`BURST`] hashes, and the time by which those under way exceed their expectation. The latter delays the next ones.

use base::Monotonic;
use std::time::Duration;

/// The percentage of a processor that wrong passwords get. The thread that hashes may use a tenth in each window of two
/// seconds: the rest up to that is for one hash more in a window, and for its work around the hashes.
const SHARE_PERCENT: u32 = 8;

/// Hashes at once: mistakes of people in the same moment.
const BURST: u32 = 12;

/// The part of these that is kept for addresses without a failure.
const RESERVE: u32 = 6;

/// The most that is owed, in hashes. Those of familiar addresses count without being refused, and must not shut out the
/// others for longer than some ten seconds.
const OWED_MAX: u32 = 60;

/// The time of a hash before the first one.
const FIRST_EXPECTED: Duration = Duration::from_millis(15);

/// The longest expectation: a thread that waited long for a processor has not hashed for so long.
const EXPECTED_MAX: Duration = Duration::from_secs(1);

/// The part of the last hash in the expectation is one of so many.
const SMOOTHING: u32 = 4;

/// The budget.
#[derive(Debug)]
pub(super) struct HashBudget {
    /// Time that was used and had not come back at `now`.
    owed: Duration,
    now: Monotonic,
    /// The expected time of a hash.
    expected: Duration,
}

/// Time that was set aside for a hash. It goes to [`HashBudget::settle`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(super) struct Reserved(Duration);

/// The end of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HashEnd {
    /// The password was right, after this time.
    Right(Duration),
    /// The password was wrong, after this time.
    Wrong(Duration),
    /// No hash was made.
    NotMade,
}

impl Default for HashBudget {
    fn default() -> HashBudget {
        HashBudget { owed: Duration::ZERO, now: Monotonic(0), expected: FIRST_EXPECTED }
    }
}

impl HashBudget {
    /// Expects hashes to take as long as one that was no login's.
    pub(super) fn expect_like(&mut self, took: Duration) {
        self.expected = took.min(EXPECTED_MAX);
    }

    /// Sets time aside for a hash; `None` if there is none. `has_failed` says that its address has failed of late.
    pub(super) fn admit(&mut self, has_failed: bool, now: Monotonic) -> Option<Reserved> {
        self.pass(now);
        let room = if has_failed { BURST - RESERVE } else { BURST };
        (self.owed + self.expected <= self.expected * room).then(|| self.reserve())
    }

    /// Sets time aside for a hash that is not refused.
    pub(super) fn admit_always(&mut self, now: Monotonic) -> Reserved {
        self.pass(now);
        self.reserve()
    }

    /// Takes the end of a hash.
    pub(super) fn settle(&mut self, reserved: Reserved, end: HashEnd, now: Monotonic) {
        self.pass(now);
        self.owed = self.owed.saturating_sub(reserved.0);
        match end {
            HashEnd::Right(took) => self.expect(took),
            HashEnd::Wrong(took) => {
                self.expect(took);
                self.owe(took);
            }
            HashEnd::NotMade => {}
        }
    }

    fn reserve(&mut self) -> Reserved {
        self.owe(self.expected);
        Reserved(self.expected)
    }

    fn owe(&mut self, time: Duration) {
        self.owed = (self.owed + time).min(self.expected * OWED_MAX);
    }

    fn expect(&mut self, took: Duration) {
        self.expected = ((self.expected * (SMOOTHING - 1) + took) / SMOOTHING).min(EXPECTED_MAX);
    }

    fn pass(&mut self, now: Monotonic) {
        self.owed = self.owed.saturating_sub(now.since(self.now) * SHARE_PERCENT / 100);
        self.now = self.now.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    fn at(millis: u64) -> Monotonic {
        Monotonic(0) + Duration::from_millis(millis)
    }

    /// Wrong passwords from now on until one is refused: their number.
    fn guess(budget: &mut HashBudget, has_failed: bool, now: Monotonic) -> usize {
        let hash = |budget: &mut HashBudget| {
            let reserved = budget.admit(has_failed, now)?;
            budget.settle(reserved, HashEnd::Wrong(FIRST_EXPECTED), now);
            Some(())
        };
        (0..1_000).take_while(|_| hash(budget).is_some()).count()
    }

    #[test]
    fn wrong_passwords_get_their_share_of_the_time() {
        let mut budget = HashBudget::default();
        assert_eq!(guess(&mut budget, false, at(0)), 12);
        assert_eq!((guess(&mut budget, false, at(187)), guess(&mut budget, false, at(188))), (0, 1));
        let later: usize = (1..=60).map(|second| guess(&mut budget, false, at(188 + 1_000 * second))).sum();
        assert_eq!(later, 320, "in a minute, of 15 ms each");
    }

    #[test]
    fn no_window_of_two_seconds_has_more_than_a_tenth() {
        const WINDOW: usize = 200;
        let mut budget = HashBudget::default();
        guess(&mut budget, false, at(0));
        // A hundred guesses a second, each 10 ms one: more than are admitted.
        let hashes: Vec<usize> = (1..6_000)
            .map(|step| {
                let now = at(10 * step);
                let Some(reserved) = budget.admit(false, now) else { return 0 };
                budget.settle(reserved, HashEnd::Wrong(FIRST_EXPECTED), now);
                1
            })
            .collect();
        let most = hashes.windows(WINDOW).map(|window| window.iter().sum::<usize>()).max().unwrap();
        assert!(FIRST_EXPECTED * most as u32 <= Duration::from_millis(2_000 / 10), "{most} hashes");
        assert!(FIRST_EXPECTED * hashes.iter().sum::<usize>() as u32 >= Duration::from_secs(60) / 13);
    }

    #[test]
    fn an_address_without_failures_has_a_reserve() {
        let mut budget = HashBudget::default();
        assert_eq!(guess(&mut budget, true, at(0)), 6);
        assert_eq!(guess(&mut budget, false, at(0)), 6);
    }

    #[test]
    fn right_passwords_use_nothing_up() {
        let mut budget = HashBudget::default();
        for _ in 0..1_000 {
            for end in [HashEnd::Right(FIRST_EXPECTED), HashEnd::NotMade] {
                let reserved = budget.admit(true, at(0)).unwrap();
                budget.settle(reserved, end, at(0));
            }
        }
        assert_eq!(budget.owed, Duration::ZERO);
    }

    #[test]
    fn a_slow_machine_has_as_many_hashes_at_once() {
        let slow = Duration::from_millis(400);
        let mut budget = HashBudget::default();
        budget.expect_like(slow);
        for _ in 0..BURST {
            let reserved = budget.admit(false, at(0)).unwrap();
            budget.settle(reserved, HashEnd::Wrong(slow), at(0));
        }
        assert_eq!(budget.admit(false, at(0)), None);
    }

    #[test]
    fn hashes_that_cannot_be_refused_shut_out_the_others_for_ten_seconds_at_most() {
        let mut budget = HashBudget::default();
        for _ in 0..1_000 {
            let reserved = budget.admit_always(at(0));
            budget.settle(reserved, HashEnd::Wrong(FIRST_EXPECTED), at(0));
        }
        assert_eq!(budget.admit(false, at(0)), None);
        assert!(budget.admit(false, at(10_000)).is_some());
    }

    /// The same rules over a list of all that was charged.
    #[derive(Default)]
    struct Model {
        /// Times and charges in nanoseconds, and the most that is owed after each; a negative charge gives back.
        charges: Vec<(i64, i64, i64)>,
    }

    impl Model {
        fn owed(&self, now: i64) -> i64 {
            let (mut owed, mut last) = (0, 0);
            for &(when, charge, max) in self.charges.iter().chain([&(now, 0, i64::MAX)]) {
                owed =
                    ((owed - (when - last) * i64::from(SHARE_PERCENT) / 100).max(0) + charge).clamp(0, max);
                last = when;
            }
            owed
        }

        fn charge(&mut self, now: i64, charge: Duration, expected: Duration) {
            self.charges.push((now, nanos(charge), 60 * nanos(expected)));
        }

        fn give_back(&mut self, now: i64, charge: Duration) {
            self.charges.push((now, -nanos(charge), i64::MAX));
        }
    }

    fn nanos(time: Duration) -> i64 {
        time.as_nanos() as i64
    }

    #[test]
    fn random_hashes_agree_with_the_model_and_keep_the_bound() {
        for seed in 0..20 {
            let mut rng = SplitMix64::new(seed);
            let (mut budget, mut model) = (HashBudget::default(), Model::default());
            let (mut under_way, mut wrong): (Vec<Reserved>, Vec<(i64, i64)>) = Default::default();
            let mut now = Monotonic(0);
            for _ in 0..1_500 {
                now = now + Duration::from_millis(rng.below(60));
                let then = now.0 as i64;
                let expected = budget.expected;
                if rng.below(3) < 2 {
                    let has_failed = rng.below(2) == 0;
                    let room = nanos(expected) * if has_failed { 6 } else { 12 };
                    let has_room = model.owed(then) + nanos(expected) <= room;
                    let reserved = budget.admit(has_failed, now);
                    assert_eq!(reserved.is_some(), has_room, "seed {seed}, {then} ns");
                    under_way.extend(reserved.inspect(|reserved| model.charge(then, reserved.0, expected)));
                } else if !under_way.is_empty() {
                    let reserved = under_way.swap_remove(rng.below(under_way.len() as u64) as usize);
                    let took = Duration::from_millis(5 + rng.below(30));
                    let is_right = rng.below(4) == 0;
                    model.give_back(then, reserved.0);
                    let end = if is_right { HashEnd::Right(took) } else { HashEnd::Wrong(took) };
                    budget.settle(reserved, end, now);
                    if !is_right {
                        model.charge(then, took, budget.expected);
                        wrong.push((then, nanos(took)));
                    }
                }
                budget.pass(now);
                assert_eq!(nanos(budget.owed), model.owed(then), "seed {seed}, {then} ns");
            }

            // No hash takes longer than 34 ms, and at most 12 expected ones are under way.
            assert!(wrong.len() > 50, "seed {seed}: the budget is used");
            let max = 34_000_000;
            for (first, &(from, _)) in wrong.iter().enumerate() {
                let mut sum = 0;
                for &(to, took) in &wrong[first..] {
                    sum += took;
                    assert!(
                        sum <= (to - from) * i64::from(SHARE_PERCENT) / 100 + (12 + 12 * 7) * max,
                        "seed {seed}: from {from} to {to}"
                    );
                }
            }
        }
    }
}
