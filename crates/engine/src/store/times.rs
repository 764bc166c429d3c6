//! How long things took, as a histogram of fixed size: for operators, not for decisions.
//!
//! A bucket for each power of two of microseconds: a quantile is known to a factor of two, which tells a page cache
//! from a disk and a disk from a stall, and counting costs a few instructions.

use std::time::Duration;

/// Buckets: the last one is for whatever took 2^30 microseconds, eighteen minutes, or more.
const BUCKETS: usize = 32;

/// How long things of one kind took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Bucket 0 counts what took less than a microsecond, bucket n what took less than 2^n.
    buckets: [u64; BUCKETS],
    total: Duration,
    longest: Duration,
}

impl Times {
    /// Adds what another has counted.
    pub fn join(&mut self, other: &Times) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(bucket, count)| *bucket += count);
        self.total = self.total.saturating_add(other.total);
        self.longest = self.longest.max(other.longest);
    }

    pub(super) fn count(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        self.total = self.total.saturating_add(took);
        self.longest = self.longest.max(took);
    }

    /// How many there were.
    pub fn number(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All of them together.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// The longest.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// A time that `thousandths` of all were below, to a factor of two: the upper end of a bucket, or the longest of
    /// all if that is less. Zero if there were none.
    pub fn quantile(&self, thousandths: u64) -> Duration {
        let rank = self.number().saturating_mul(thousandths.min(1000)).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_micros(1 << bucket).min(self.longest);
            }
        }
        Duration::ZERO
    }

    /// How many took less than 2^`n` microseconds, for each `n` from 0 on; the last is all of them.
    pub fn cumulative(&self) -> impl Iterator<Item = u64> {
        self.buckets.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_factor_of_two() {
        let mut times = Times::default();
        assert_eq!((times.number(), times.quantile(500)), (0, Duration::ZERO));
        for micros in 1..=1000 {
            times.count(Duration::from_micros(micros));
        }
        for thousandths in [1, 10, 500, 990, 1000] {
            let (told, exact) = (times.quantile(thousandths), Duration::from_micros(thousandths));
            assert!(exact <= told && told <= exact * 2, "{thousandths}: {told:?}");
        }
        assert_eq!(times.longest(), Duration::from_millis(1));
        assert_eq!(times.total(), Duration::from_micros(500_500));
        assert_eq!(times.cumulative().take(4).collect::<Vec<_>>(), [0, 1, 3, 7]);
        assert_eq!(times.cumulative().last(), Some(1000));
    }

    #[test]
    fn joined_times_are_as_if_counted_together() {
        let (mut one, mut two, mut all) = (Times::default(), Times::default(), Times::default());
        for micros in 0..100 {
            let took = Duration::from_micros(micros * micros);
            if micros % 3 == 0 {
                one.count(took)
            } else {
                two.count(took)
            }
            all.count(took);
        }
        one.join(&two);
        assert_eq!(one, all);
    }

    #[test]
    fn any_duration_has_a_bucket() {
        let mut times = Times::default();
        times.count(Duration::ZERO);
        times.count(Duration::MAX);
        times.count(Duration::MAX);
        assert_eq!((times.number(), times.longest()), (3, Duration::MAX));
        assert_eq!(times.quantile(1), Duration::from_micros(1));
    }
}
