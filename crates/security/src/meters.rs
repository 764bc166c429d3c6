//! The use that users make of their limits, in one node.
//!
//! 1. [`Meters::admit`] decides on a request: each limit that it is under has room, or the request is refused and
//!    nothing is charged.
//! 2. [`Meters::charge`] adds the bytes of its answer, which nobody knew before. A user may owe for these: the next
//!    requests are refused until the time has paid for them.
//! 3. [`Meters::take_refused`] gives the numbers of refusals by user, for the audit log.
//!
//! A limit has room for the units of one second at once ([`BURST`]); then they come back evenly. This is the generic
//! cell rate algorithm (ITU-T I.371): one time for each limit, at which all that was charged is paid.
//!
//! Invariants: over any time t, at most (t + 1 s) x rate operations and one are admitted. A refusal is counted once.
//! Users that owe nothing and have no refusals are forgotten, so the table follows the users of late. A debt is at most
//! [`DEBT_MAX`]: an answer that costs more is an excess.

use std::num::NonZeroU64;
use std::time::Duration;

use base::{FastMap, Monotonic};
use bytes::Bytes;

use crate::limits::{Limits, Rates};
use crate::name::Name;

/// The time whose units a limit has at once.
const BURST: Duration = Duration::from_secs(1);

/// The longest debt of a limit. After a large answer, or once a limit that was too low is raised, a user waits no
/// longer.
const DEBT_MAX: Duration = Duration::from_secs(60);

/// Users from whose number on those that owe nothing are forgotten: a hundred kilobytes.
const FORGET_FROM: usize = 1024;

/// The use of limits by user.
#[derive(Debug, Default)]
pub struct Meters {
    users: FastMap<Bytes, UserMeters>,
    /// Users in the table before it is looked through again.
    forget_at: usize,
}

#[derive(Debug, Default)]
struct UserMeters {
    all: RateMeters,
    /// Of bucket types with limits: a user has few.
    types: Vec<(Bytes, RateMeters)>,
    refused: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct RateMeters {
    operations: Meter,
    bytes: Meter,
}

/// When all that was charged is paid; `None` before the first charge.
#[derive(Clone, Copy, Debug, Default)]
struct Meter(Option<Monotonic>);

impl Meter {
    /// The time until there is room for so many units; zero if there is. More than a second's need a limit of which
    /// nothing is owed.
    fn wait(self, units: u64, rate: Option<NonZeroU64>, now: Monotonic) -> Duration {
        let (Some(rate), Some(paid)) = (rate, self.0) else { return Duration::ZERO };
        let room = BURST.saturating_sub(cost(units, rate));
        paid.since(now).saturating_sub(room)
    }

    fn charge(&mut self, units: u64, rate: Option<NonZeroU64>, now: Monotonic) {
        let Some(rate) = rate else { return };
        let from = self.0.map_or(now, |paid| paid.max(now));
        self.0 = Some((from + cost(units, rate)).min(now + DEBT_MAX));
    }

    fn is_paid(self, now: Monotonic) -> bool {
        self.0.is_none_or(|paid| paid <= now)
    }
}

/// The time that pays for units.
fn cost(units: u64, rate: NonZeroU64) -> Duration {
    let nanos = u128::from(units) * 1_000_000_000 / u128::from(rate.get());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl RateMeters {
    fn wait(self, (operations, bytes): (u64, u64), rates: Rates, now: Monotonic) -> Duration {
        let wait = self.operations.wait(operations, rates.operations, now);
        wait.max(self.bytes.wait(bytes, rates.bytes, now))
    }

    fn charge(&mut self, (operations, bytes): (u64, u64), rates: Rates, now: Monotonic) {
        self.operations.charge(operations, rates.operations, now);
        self.bytes.charge(bytes, rates.bytes, now);
    }

    fn is_paid(self, now: Monotonic) -> bool {
        self.operations.is_paid(now) && self.bytes.is_paid(now)
    }
}

impl UserMeters {
    fn of_type(&mut self, bucket_type: &[u8]) -> &mut RateMeters {
        let place = self.types.iter().position(|(name, _)| name == bucket_type).unwrap_or_else(|| {
            self.types.push((Bytes::copy_from_slice(bucket_type), RateMeters::default()));
            self.types.len() - 1
        });
        &mut self.types[place].1
    }

    fn is_idle(&self, now: Monotonic) -> bool {
        self.refused == 0 && self.all.is_paid(now) && self.types.iter().all(|(_, meters)| meters.is_paid(now))
    }
}

impl Meters {
    /// Decides on a request of a user on a bucket type (empty without one) that brings so many bytes of a value.
    ///
    /// # Errors
    /// The time until a limit has room again, more than zero.
    pub fn admit(
        &mut self,
        user: &Name,
        (limits, bucket_type): (&Limits, &[u8]),
        bytes: u64,
        now: Monotonic,
    ) -> Result<(), Duration> {
        self.forget_idle(now);
        let meters = self.users.entry(user.as_bytes().clone()).or_default();
        let on_type = limits.on_type(bucket_type);
        let mut wait = meters.all.wait((1, bytes), limits.all, now);
        if let Some(rates) = on_type {
            wait = wait.max(meters.of_type(bucket_type).wait((1, bytes), rates, now));
        }
        if wait > Duration::ZERO {
            meters.refused += 1;
            return Err(wait);
        }
        meters.all.charge((1, bytes), limits.all, now);
        if let Some(rates) = on_type {
            meters.of_type(bucket_type).charge((1, bytes), rates, now);
        }
        Ok(())
    }

    /// Charges the bytes of an answer.
    pub fn charge(
        &mut self,
        user: &Name,
        (limits, bucket_type): (&Limits, &[u8]),
        bytes: u64,
        now: Monotonic,
    ) {
        let meters = self.users.entry(user.as_bytes().clone()).or_default();
        meters.all.charge((0, bytes), limits.all, now);
        if let Some(rates) = limits.on_type(bucket_type) {
            meters.of_type(bucket_type).charge((0, bytes), rates, now);
        }
    }

    /// Takes the numbers of refusals since the last call, by ascending name.
    pub fn take_refused(&mut self) -> Vec<(Bytes, u64)> {
        let refused = self.users.iter_mut().filter(|(_, meters)| meters.refused > 0);
        let mut refused: Vec<(Bytes, u64)> =
            refused.map(|(name, meters)| (name.clone(), std::mem::take(&mut meters.refused))).collect();
        refused.sort();
        refused
    }

    /// Forgets users that owe nothing, each time that the table has doubled.
    fn forget_idle(&mut self, now: Monotonic) {
        if self.users.len() < self.forget_at.max(FORGET_FROM) {
            return;
        }
        self.users.retain(|_, meters| !meters.is_idle(now));
        self.forget_at = 2 * self.users.len();
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

    fn name(name: &str) -> Name {
        Name::create(name.as_bytes()).unwrap()
    }

    fn limits(options: &[(&'static str, &'static str)]) -> Box<Limits> {
        let options = options.iter().map(|(name, value)| (Bytes::from(*name), Bytes::from(*value)));
        Limits::of(&options.collect()).unwrap()
    }

    #[test]
    fn a_second_of_operations_comes_at_once_and_then_one_by_one() {
        let (mut meters, alice, limits) = (Meters::default(), name("alice"), limits(&[("ops_per_s", "10")]));
        let mut ask = |millis| meters.admit(&alice, (&limits, b"t"), 0, at(millis));
        assert!((0..10).all(|_| ask(0).is_ok()));
        let wait = ask(0).unwrap_err();
        assert!(wait > Duration::ZERO && wait <= Duration::from_millis(100), "{wait:?}");
        assert!(ask(99).is_err());
        assert!(ask(101).is_ok() && ask(101).is_err());
        assert!((0..10).all(|_| ask(5_000).is_ok()), "no more than a second is saved");
        assert!(ask(5_000).is_err());
        assert_eq!(meters.take_refused(), [(Bytes::from("alice"), 4)]);
        assert_eq!(meters.take_refused(), []);
    }

    #[test]
    fn a_large_answer_is_paid_for_before_the_next_request() {
        let (mut meters, alice) = (Meters::default(), name("alice"));
        let limits = limits(&[("bytes_per_s", "1000")]);
        assert!(meters.admit(&alice, (&limits, b"t"), 0, at(0)).is_ok());
        meters.charge(&alice, (&limits, b"t"), 5_000, at(0));
        let wait = meters.admit(&alice, (&limits, b"t"), 0, at(0)).unwrap_err();
        assert_eq!(wait.as_secs_f64().round(), 4.0);
        assert!(meters.admit(&alice, (&limits, b"t"), 0, at(3_999)).is_err());
        assert!(meters.admit(&alice, (&limits, b"t"), 0, at(4_001)).is_ok());
    }

    #[test]
    fn a_limit_on_a_type_leaves_the_others_alone() {
        let (mut meters, alice, bob) = (Meters::default(), name("alice"), name("bob"));
        let limits = limits(&[("ops_per_s/logs", "1"), ("ops_per_s", "3")]);
        assert!(meters.admit(&alice, (&limits, b"logs"), 0, at(0)).is_ok());
        assert!(meters.admit(&alice, (&limits, b"logs"), 0, at(0)).is_err());
        assert!(meters.admit(&alice, (&limits, b"t"), 0, at(0)).is_ok(), "the refusal charged nothing");
        assert!(meters.admit(&alice, (&limits, b""), 0, at(0)).is_ok());
        assert!(meters.admit(&alice, (&limits, b"t"), 0, at(0)).is_err(), "three in all");
        assert!(meters.admit(&bob, (&limits, b"logs"), 0, at(0)).is_ok(), "another user");
    }

    #[test]
    fn no_time_has_more_operations_than_the_limit() {
        for seed in 0..20 {
            let mut rng = SplitMix64::new(seed);
            let rate = 1 + rng.below(50);
            let (mut meters, alice) = (Meters::default(), name("alice"));
            let text: &'static str = Box::leak(rate.to_string().into_boxed_str());
            let limits = limits(&[("ops_per_s", text)]);
            let (mut now, mut admitted, mut refused, mut told) = (0, Vec::new(), 0, 0);
            for _ in 0..2_000 {
                now += rng.below(40);
                match meters.admit(&alice, (&limits, b"t"), 0, at(now)) {
                    Ok(()) => admitted.push(now),
                    Err(_) => refused += 1,
                }
                if rng.below(100) == 0 {
                    told += meters.take_refused().iter().map(|(_, count)| count).sum::<u64>();
                }
            }
            told += meters.take_refused().iter().map(|(_, count)| count).sum::<u64>();
            assert_eq!(told, refused, "each refusal is told once");
            for (first, &from) in admitted.iter().enumerate() {
                for (count, &to) in admitted[first..].iter().enumerate() {
                    let max = (to - from + 1_000) as f64 / 1_000.0 * rate as f64 + 1.0;
                    assert!((count + 1) as f64 <= max, "seed {seed}: {} from {from} to {to}", count + 1);
                }
            }
            assert!(admitted.len() as u64 >= (now / 1_000).min(2_000 / rate), "the limit is used");
        }
    }

    #[test]
    fn users_that_owe_nothing_are_forgotten() {
        let (mut meters, limits) = (Meters::default(), limits(&[("ops_per_s", "1000")]));
        for number in 0..20_000_u64 {
            let user = name(&format!("u{number}"));
            assert!(meters.admit(&user, (&limits, b"t"), 0, at(number)).is_ok());
            assert!(meters.users.len() <= FORGET_FROM + 1);
        }
    }

    #[test]
    fn no_debt_is_longer_than_a_minute() {
        let (mut meters, alice) = (Meters::default(), name("alice"));
        let limits = limits(&[("bytes_per_s", "1")]);
        for _ in 0..1_000 {
            meters.charge(&alice, (&limits, b"t"), u64::MAX, at(0));
        }
        let mut ask = |millis| meters.admit(&alice, (&limits, b"t"), 0, at(millis));
        assert_eq!(ask(0), Err(DEBT_MAX - BURST));
        assert_eq!(ask(59_000), Ok(()));
    }

    #[test]
    fn a_value_of_many_seconds_needs_a_limit_without_debt() {
        let (mut meters, alice) = (Meters::default(), name("alice"));
        let limits = limits(&[("bytes_per_s", "1000")]);
        let mut put = |bytes, millis| meters.admit(&alice, (&limits, b"t"), bytes, at(millis));
        assert_eq!(put(10_000, 0), Ok(()));
        assert_eq!(put(10_000, 9_000), Err(Duration::from_secs(1)));
        assert_eq!(put(10_000, 10_000), Ok(()));
    }
}
