//! Latency histograms that merge without loss.
//!
//! The buckets are those of an HdrHistogram with three significant digits and a unit of one nanosecond: values below
//! 2,048 ns have a bucket each, and above it every doubling has 1,024, so a bucket is never wider than a thousandth of
//! its values. [`Recorder`] counts into an array; [`Histogram`] is what leaves it: the buckets that hold anything, in
//! order, with the exact smallest, largest, sum and sum of squares, so that mean and root mean square are exact.
//!
//! Invariants: a histogram's buckets ascend and none is empty; merging is associative and commutative to the bit, as
//! every field is an integer. Percentiles are never averaged: merge first, then ask.

/// Buckets below the first doubling.
const LINEAR: u64 = 2048;

/// Buckets of each doubling.
const PER_DOUBLING: u64 = LINEAR / 2;

/// Longer latencies count as this in the buckets (their exact value still counts in sum and maximum): 73 minutes, more
/// than any time limit of a request.
pub const VALUE_MAX: u64 = (1 << 42) - 1;

/// Buckets in all.
const BUCKETS: usize = bucket_of(VALUE_MAX) as usize + 1;

/// The bucket of a value in nanoseconds.
#[inline]
pub const fn bucket_of(value: u64) -> u32 {
    let value = if value > VALUE_MAX { VALUE_MAX } else { value };
    if value < LINEAR {
        return value as u32;
    }
    let shift = 63 - value.leading_zeros() - PER_DOUBLING.trailing_zeros();
    shift * PER_DOUBLING as u32 + (value >> shift) as u32
}

/// The smallest and the largest value of a bucket.
pub const fn bounds_of(bucket: u32) -> (u64, u64) {
    let bucket = bucket as u64;
    if bucket < LINEAR {
        return (bucket, bucket);
    }
    let shift = bucket / PER_DOUBLING - 1;
    let low = (bucket - shift * PER_DOUBLING) << shift;
    (low, low + (1 << shift) - 1)
}

/// The highest bucket there is.
pub const BUCKET_MAX: u32 = BUCKETS as u32 - 1;

/// Counts values as they come, cheaply.
#[derive(Clone)]
pub struct Recorder {
    counts: Box<[u32]>,
    /// The buckets that may hold something.
    touched: Option<(u32, u32)>,
    count: u64,
    min: u64,
    max: u64,
    sum: u128,
    squares: u128,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            touched: None,
            count: 0,
            min: u64::MAX,
            max: 0,
            sum: 0,
            squares: 0,
        }
    }
}

impl Recorder {
    /// Counts one value in nanoseconds. At most 2^32 of a bucket between two calls of [`Recorder::take`].
    #[inline]
    pub fn record(&mut self, value: u64) {
        let bucket = bucket_of(value);
        self.counts[bucket as usize] += 1;
        self.touched = Some(match self.touched {
            None => (bucket, bucket),
            Some((low, high)) => (low.min(bucket), high.max(bucket)),
        });
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += u128::from(value);
        self.squares += u128::from(value) * u128::from(value);
    }

    /// Whether nothing has been counted since the last take.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What was counted; the recorder is empty again.
    pub fn take(&mut self) -> Histogram {
        let Some((low, high)) = self.touched.take() else { return Histogram::default() };
        let mut buckets = Vec::new();
        for bucket in low..=high {
            let count = std::mem::take(&mut self.counts[bucket as usize]);
            if count > 0 {
                buckets.push((bucket, u64::from(count)));
            }
        }
        let taken = Histogram {
            buckets,
            count: self.count,
            min: self.min,
            max: self.max,
            sum: self.sum,
            squares: self.squares,
        };
        (self.count, self.min, self.max, self.sum, self.squares) = (0, u64::MAX, 0, 0, 0);
        taken
    }
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Bucket and count, ascending, none of them empty.
    buckets: Vec<(u32, u64)>,
    count: u64,
    min: u64,
    max: u64,
    sum: u128,
    squares: u128,
}

/// A histogram as it is kept outside of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Bucket and count, ascending, none of them empty.
    pub buckets: Vec<(u32, u64)>,
    /// The smallest value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
    /// The sum of all values.
    pub sum: u128,
    /// The sum of their squares.
    pub squares: u128,
}

impl Histogram {
    /// The histogram of these parts; `None` where they are not those of one that holds anything.
    pub fn of(parts: Parts) -> Option<Histogram> {
        let Parts { buckets, min, max, sum, squares } = parts;
        let ascends = buckets.is_sorted_by(|(a, _), (b, _)| a < b);
        let ends = buckets.first().zip(buckets.last());
        let fits = ends.is_some_and(|(first, last)| first.0 == bucket_of(min) && last.0 == bucket_of(max));
        let count = buckets.iter().try_fold(0u64, |sum, &(_, count)| match count {
            0 => None,
            count => sum.checked_add(count),
        })?;
        (ascends && fits).then_some(Histogram { buckets, count, min, max, sum, squares })
    }

    /// Bucket and count, ascending, none of them empty.
    pub fn buckets(&self) -> &[(u32, u64)] {
        &self.buckets
    }

    /// The sum of the squares of all values in nanoseconds, exactly.
    pub fn squares(&self) -> u128 {
        self.squares
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The smallest value in nanoseconds, exactly; 0 of none.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// The largest value in nanoseconds, exactly; 0 of none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The sum of all values in nanoseconds, exactly.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The mean in nanoseconds; 0 of none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The root of the mean of squares in nanoseconds; 0 of none.
    pub fn rms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { (self.squares as f64 / self.count as f64).sqrt() }
    }

    /// The value in nanoseconds that `percent` of all values do not exceed, to a thousandth above; 0 of none.
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = ((percent * self.count as f64 / 100.0).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for &(bucket, count) in &self.buckets {
            seen += count;
            if seen >= rank {
                return bounds_of(bucket).1.min(self.max).max(self.min);
            }
        }
        self.max
    }

    /// The share of values above `limit` nanoseconds, from 0 to 1; a bucket that the limit falls into does not count.
    pub fn share_above(&self, limit: u64) -> f64 {
        let above: u64 = self
            .buckets
            .iter()
            .filter(|(bucket, _)| bounds_of(*bucket).0 > limit)
            .map(|(_, count)| count)
            .sum();
        if self.count == 0 { 0.0 } else { above as f64 / self.count as f64 }
    }

    /// The buckets that hold anything, ascending: the largest value in nanoseconds, and how many.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets.iter().map(|&(bucket, count)| (bounds_of(bucket).1, count))
    }

    /// Adds the values of another.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            self.clone_from(other);
            return;
        }
        let mut merged = Vec::with_capacity(self.buckets.len() + other.buckets.len());
        let (mut left, mut right) = (self.buckets.iter().peekable(), other.buckets.iter().peekable());
        while let (Some(&&(a, here)), Some(&&(b, there))) = (left.peek(), right.peek()) {
            merged.push(match a.cmp(&b) {
                std::cmp::Ordering::Less => (a, here),
                std::cmp::Ordering::Greater => (b, there),
                std::cmp::Ordering::Equal => (a, here + there),
            });
            if a <= b {
                left.next();
            }
            if b <= a {
                right.next();
            }
        }
        merged.extend(left.chain(right));
        self.buckets = merged;
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.squares += other.squares;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut recorder = Recorder::default();
        values.iter().for_each(|&value| recorder.record(value));
        recorder.take()
    }

    #[test]
    fn buckets_tile_the_values_and_are_narrow() {
        let mut next = 0;
        for bucket in 0..=BUCKET_MAX {
            let (low, high) = bounds_of(bucket);
            assert_eq!(low, next);
            assert_eq!((bucket_of(low), bucket_of(high)), (bucket, bucket));
            assert!((high - low) * 1024 <= low.max(1) || high == low, "{low} to {high}");
            next = high + 1;
        }
        assert_eq!(next, VALUE_MAX + 1);
        assert_eq!(bucket_of(u64::MAX), BUCKET_MAX);
    }

    #[test]
    fn figures_are_those_of_the_values() {
        let all: Vec<u64> = (1..=1000).map(|micros| micros * 1000).collect();
        let histogram = of(&all);
        assert_eq!((histogram.count(), histogram.min(), histogram.max()), (1000, 1000, 1_000_000));
        assert_eq!(histogram.mean(), 500_500.0);
        assert!((histogram.rms() - 577_783.2).abs() < 1.0, "{}", histogram.rms());
        assert!((histogram.percentile(50.0) as f64 / 500_000.0 - 1.0).abs() < 0.001);
        assert!((histogram.percentile(99.9) as f64 / 999_000.0 - 1.0).abs() < 0.001);
        assert_eq!((histogram.percentile(0.0), histogram.percentile(100.0)), (1000, 1_000_000));
        assert!((histogram.share_above(900_000) - 0.1).abs() < 0.002);
        let none = Histogram::default();
        assert_eq!((none.percentile(99.0), none.mean(), none.rms(), none.share_above(1)), (0, 0.0, 0.0, 0.0));
    }

    #[test]
    fn a_taken_recorder_is_empty() {
        let mut recorder = Recorder::default();
        recorder.record(7);
        assert_eq!(recorder.take().count(), 1);
        assert!(recorder.is_empty() && recorder.take().is_empty());
        recorder.record(9);
        assert_eq!(recorder.take(), of(&[9]));
    }

    #[test]
    fn parts_that_make_no_sense_are_none() {
        let parts = Parts { buckets: vec![(1, 2), (5, 1)], min: 1, max: 5, sum: 7, squares: 27 };
        let whole = of(&[1, 1, 5]);
        assert_eq!(Histogram::of(parts.clone()), Some(whole));
        let with =
            |buckets: &[(u32, u64)]| Histogram::of(Parts { buckets: buckets.to_vec(), ..parts.clone() });
        assert_eq!(with(&[(5, 1), (1, 2)]), None);
        assert_eq!(with(&[(1, 2), (1, 1), (5, 1)]), None);
        assert_eq!(with(&[(1, 0), (5, 1)]), None);
        assert_eq!(with(&[(1, u64::MAX), (5, 1)]), None);
        assert_eq!(with(&[]), None);
        assert_eq!(Histogram::of(Parts { min: 2, ..parts.clone() }), None);
        assert_eq!(Histogram::of(Parts { max: 6, ..parts }), None);
    }

    proptest! {
        #[test]
        fn merging_loses_nothing(parts in prop::collection::vec(prop::collection::vec(0u64..1 << 44, 0..50), 1..6)) {
            let whole = of(&parts.concat());
            let mut forth = Histogram::default();
            parts.iter().for_each(|part| forth.merge(&of(part)));
            let mut back = Histogram::default();
            parts.iter().rev().for_each(|part| back.merge(&of(part)));
            prop_assert_eq!(&forth, &whole);
            prop_assert_eq!(&back, &whole);
        }
    }
}
