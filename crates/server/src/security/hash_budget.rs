//! The budget of password hashes: failed logins get a bounded share of one processor.
//!
//! 1. [`HashBudget::has_room`] says whether the budget has room for the expected time of one hash more. An address that
//!    has failed of late leaves half of the budget to the others.
//! 2. [`HashBudget::note_wrong`] takes the time of a wrong password. That of a right one ([`HashBudget::note_right`])
//!    uses nothing up. So clients that log in with their passwords are not put off, however many they are.
//! 3. The time that is used comes back at the rate of [`SHARE_PERCENT`].
//!
//! A leaky bucket, as the limits of users in `security::Meters`, over time in place of units. Times are of the
//! processor, so that a busy machine makes no hash dearer.
//!
//! Rooms are numbers of hashes, since a hash takes ten times as long on a slow machine. The share is of time.
//!
//! Invariant: over any time t, hashes of wrong passwords that had room take at most [`SHARE_PERCENT`] of t, and
//! [`BURST`] hashes, and the time by which the last one exceeds its expectation. One hash is made at a time.

use base::Monotonic;
use std::time::Duration;

/// The percentage of a processor that wrong passwords get. Requests that meet a hash on their processor are slower:
/// with 8 % of one, on a machine of two, the slowest hundredth of the reads took a quarter longer. The thread that
/// hashes may use a tenth; the rest is for bursts, and for its work around the hashes.
const SHARE_PERCENT: u32 = 5;

/// Hashes at once: mistakes of people in the same moment.
const BURST: u32 = 12;

/// The part of these that is kept for addresses without a failure.
const RESERVE: u32 = 6;

/// The most that is owed, in hashes. Those of familiar addresses count without being refused, and must not shut out the
/// others for longer than some ten seconds.
const OWED_MAX: u32 = 40;

/// The time of a hash before the first one.
const FIRST_EXPECTED: Duration = Duration::from_millis(15);

/// The longest expectation: an imported hash of very many rounds says little of the others.
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

    /// Whether there is time for one hash more. `has_failed` says that its address has failed of late.
    pub(super) fn has_room(&mut self, has_failed: bool, now: Monotonic) -> bool {
        self.pass(now);
        let room = if has_failed { BURST - RESERVE } else { BURST };
        self.owed + self.expected <= self.expected * room
    }

    /// Takes the time of a right password.
    pub(super) fn note_right(&mut self, took: Duration) {
        self.expect(took);
    }

    /// Takes the time of a wrong password, whether or not it had room.
    pub(super) fn note_wrong(&mut self, took: Duration, now: Monotonic) {
        self.pass(now);
        self.expect(took);
        self.owed = (self.owed + took).min(self.expected * OWED_MAX);
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

    /// A wrong password, if it has room.
    fn hash(budget: &mut HashBudget, has_failed: bool, took: Duration, now: Monotonic) -> bool {
        let has_room = budget.has_room(has_failed, now);
        if has_room {
            budget.note_wrong(took, now);
        }
        has_room
    }

    /// Wrong passwords from now on until one is refused: their number.
    fn guess(budget: &mut HashBudget, has_failed: bool, now: Monotonic) -> usize {
        (0..1_000).take_while(|_| hash(budget, has_failed, FIRST_EXPECTED, now)).count()
    }

    #[test]
    fn wrong_passwords_get_their_share_of_the_time() {
        let mut budget = HashBudget::default();
        assert_eq!(guess(&mut budget, false, at(0)), 12);
        assert_eq!((guess(&mut budget, false, at(299)), guess(&mut budget, false, at(300))), (0, 1));
        let later: usize = (1..=60).map(|second| guess(&mut budget, false, at(300 + 1_000 * second))).sum();
        assert_eq!(later, 200, "in a minute, of 15 ms each");
    }

    #[test]
    fn no_window_of_two_seconds_has_more_than_a_tenth() {
        const WINDOW: usize = 200;
        let mut budget = HashBudget::default();
        guess(&mut budget, false, at(0));
        // A hundred guesses a second, each 10 ms one: more than are admitted.
        let hashes: Vec<usize> = (1..6_000)
            .map(|step| usize::from(hash(&mut budget, false, FIRST_EXPECTED, at(10 * step))))
            .collect();
        let most = hashes.windows(WINDOW).map(|window| window.iter().sum::<usize>()).max().unwrap();
        assert!(FIRST_EXPECTED * most as u32 <= Duration::from_millis(2_000 / 10), "{most} hashes");
        assert!(FIRST_EXPECTED * hashes.iter().sum::<usize>() as u32 >= Duration::from_secs(60) / 21);
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
            assert!(budget.has_room(true, at(0)));
            budget.note_right(FIRST_EXPECTED);
        }
        assert_eq!(budget.owed, Duration::ZERO);
    }

    #[test]
    fn a_slow_machine_has_as_many_hashes_at_once() {
        let slow = Duration::from_millis(400);
        let mut budget = HashBudget::default();
        budget.expect_like(slow);
        assert!((0..BURST).all(|_| hash(&mut budget, false, slow, at(0))));
        assert!(!budget.has_room(false, at(0)));
    }

    #[test]
    fn hashes_that_cannot_be_refused_shut_out_the_others_for_ten_seconds_at_most() {
        let mut budget = HashBudget::default();
        (0..1_000).for_each(|_| budget.note_wrong(FIRST_EXPECTED, at(0)));
        assert!(!budget.has_room(false, at(0)));
        assert!(budget.has_room(false, at(10_000)));
    }

    /// The same rules over a list of all that was charged.
    #[derive(Default)]
    struct Model {
        /// Times and charges in nanoseconds, and the most that is owed after each.
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
    }

    fn nanos(time: Duration) -> i64 {
        time.as_nanos() as i64
    }

    #[test]
    fn random_hashes_agree_with_the_model_and_keep_the_bound() {
        for seed in 0..20 {
            let mut rng = SplitMix64::new(seed);
            let (mut budget, mut model) = (HashBudget::default(), Model::default());
            let mut wrong: Vec<(i64, i64)> = Vec::new();
            let mut now = Monotonic(0);
            for _ in 0..1_500 {
                now = now + Duration::from_millis(rng.below(120));
                let then = now.0 as i64;
                let (has_failed, expected) = (rng.below(2) == 0, nanos(budget.expected));
                let room = expected * if has_failed { 6 } else { 12 };
                let has_room = model.owed(then) + expected <= room;
                assert_eq!(budget.has_room(has_failed, now), has_room, "seed {seed}, {then} ns");
                if has_room {
                    let took = Duration::from_millis(10 + rng.below(25));
                    if rng.below(4) == 0 {
                        budget.note_right(took);
                    } else {
                        budget.note_wrong(took, now);
                        model.charges.push((then, nanos(took), i64::from(OWED_MAX) * nanos(budget.expected)));
                        wrong.push((then, nanos(took)));
                    }
                }
                assert_eq!(nanos(budget.owed), model.owed(then), "seed {seed}, {then} ns");
            }

            // No hash takes longer than 34 ms. Less than 40 of them are owed, so that nothing is forgotten.
            assert!(wrong.len() > 50, "seed {seed}: the budget is used");
            let burst = i64::from(BURST) * 34_000_000;
            for (first, &(from, _)) in wrong.iter().enumerate() {
                let mut sum = 0;
                for &(to, took) in &wrong[first..] {
                    sum += took;
                    assert!(
                        sum <= (to - from) * i64::from(SHARE_PERCENT) / 100 + burst,
                        "seed {seed}: from {from} to {to}"
                    );
                }
            }
        }
    }
}
