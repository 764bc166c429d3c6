//! How long requests take: histograms of the last minute and since the start, as operators read them.
//!
//! A bucket is an eighth of a doubling, so a figure is at most 13 % above the truth; there are as many as take any time
//! up to two minutes, and memory is fixed. The minute is six slots of ten seconds, the oldest of which is emptied when
//! its turn comes again, so a figure covers 50 to 60 seconds.

use base::Monotonic;
use std::time::Duration;

/// Slots of the minute.
const SLOTS: usize = 6;

/// How long each lasts.
const SLOT: Duration = Duration::from_secs(10);

/// Parts of a doubling.
const PARTS: u32 = 8;

/// Doublings from a microsecond to two minutes; what takes longer counts as that.
const DOUBLINGS: u32 = 27;

const BUCKETS: usize = (PARTS * DOUBLINGS) as usize;

/// Times, in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: Box::new([0; BUCKETS]), count: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    fn add(&mut self, micros: u64) {
        self.counts[bucket_of(micros)] += 1;
        self.count += 1;
        self.sum += micros;
        self.max = self.max.max(micros);
    }

    /// Adds what another has counted.
    pub fn join(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All of them together, in microseconds.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Their mean, in microseconds; 0 if there were none.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// The longest, in microseconds.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The time, in microseconds, that `percent` of a hundred did not exceed.
    pub fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.count * percent).div_ceil(100);
        let mut passed = 0;
        for (at, count) in self.counts.iter().enumerate() {
            passed += count;
            if passed >= rank && passed > 0 {
                return upper_bound(at).min(self.max);
            }
        }
        0
    }

    /// How many took at most `2^doublings` microseconds.
    pub fn count_within(&self, doublings: u32) -> u64 {
        let end = (PARTS * doublings.min(DOUBLINGS)) as usize;
        self.counts[..end].iter().sum()
    }
}

// Bucket 8d + p has what is below (1 + (p + 1) / 8) * 2^d microseconds and not below the one before.
fn bucket_of(micros: u64) -> usize {
    let doubling = micros.max(1).ilog2();
    if doubling >= DOUBLINGS {
        return BUCKETS - 1;
    }
    let part = (micros.max(1) << 3 >> doubling) & u64::from(PARTS - 1);
    (PARTS * doubling) as usize + usize::try_from(part).expect("a part is below eight")
}

fn upper_bound(bucket: usize) -> u64 {
    let (doubling, part) = (bucket as u64 / u64::from(PARTS), bucket as u64 % u64::from(PARTS));
    ((u64::from(PARTS) + part + 1) << doubling) / u64::from(PARTS)
}

/// Times of one kind of request.
#[derive(Clone, Debug, Default)]
struct Times {
    slots: [Histogram; SLOTS],
    /// The number of the newest slot.
    newest: u64,
    all: Histogram,
}

impl Times {
    /// Counts a request that began then and ends now.
    pub fn add(&mut self, begun: Monotonic, now: Monotonic) {
        let micros = u64::try_from(now.since(begun).as_micros()).unwrap_or(u64::MAX >> 8);
        self.turn(now);
        self.slots[(self.newest % SLOTS as u64) as usize].add(micros);
        self.all.add(micros);
    }

    fn turn(&mut self, now: Monotonic) {
        let slot = now.0 / u64::try_from(SLOT.as_nanos()).expect("ten seconds");
        let passed = slot.saturating_sub(self.newest).min(SLOTS as u64);
        for at in 1..=passed {
            self.slots[((self.newest + at) % SLOTS as u64) as usize] = Histogram::default();
        }
        if passed == SLOTS as u64 {
            self.slots.iter_mut().for_each(|slot| *slot = Histogram::default());
        }
        self.newest = self.newest.max(slot);
    }

    /// Those of the last minute, and all.
    pub fn read(&mut self, now: Monotonic) -> TimesRead {
        self.turn(now);
        let mut minute = Histogram::default();
        self.slots.iter().for_each(|slot| minute.join(slot));
        TimesRead { minute, all: self.all.clone() }
    }
}

/// Times of one kind of request, as they were read.
#[derive(Clone, Debug, Default)]
pub struct TimesRead {
    /// Of the last minute.
    pub minute: Histogram,
    /// Since the start.
    pub all: Histogram,
}

impl TimesRead {
    /// Adds those of another shard.
    pub fn join(&mut self, other: &TimesRead) {
        self.minute.join(&other.minute);
        self.all.join(&other.all);
    }
}

/// Times of gets and puts of clients, from when they are begun to their replies.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    gets: Times,
    puts: Times,
}

impl Latency {
    /// Counts a get.
    pub fn add_get(&mut self, begun: Monotonic, now: Monotonic) {
        self.gets.add(begun, now);
    }

    /// Counts a put.
    pub fn add_put(&mut self, begun: Monotonic, now: Monotonic) {
        self.puts.add(begun, now);
    }

    /// Those of gets and of puts.
    pub fn read(&mut self, now: Monotonic) -> (TimesRead, TimesRead) {
        (self.gets.read(now), self.puts.read(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn every_time_is_in_a_bucket_that_ends_above_it() {
        for micros in (0..5_000).chain((1..27).flat_map(|d| [(1u64 << d) - 1, 1 << d, (1 << d) + 1])) {
            let bucket = bucket_of(micros);
            assert!(upper_bound(bucket) >= micros, "{micros}");
            assert!(upper_bound(bucket) <= micros + micros / 8 + 1, "{micros}");
            assert!(bucket == 0 || upper_bound(bucket - 1) <= micros.max(1), "{micros}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_minute_forgets() {
        let mut times = Times::default();
        for second in 0..100 {
            times.add(at(second), at(second) + Duration::from_micros(100));
        }
        let read = times.read(at(100));
        assert_eq!(read.all.count(), 100);
        assert!((50..=60).contains(&read.minute.count()), "{}", read.minute.count());
        assert_eq!((read.minute.mean(), read.minute.max(), read.minute.percentile(50)), (100, 100, 100));
        assert_eq!(times.read(at(1_000)).minute, Histogram::default());
        assert_eq!(Histogram::default().percentile(99), 0);
    }

    #[test]
    fn percentiles_are_close() {
        let mut histogram = Histogram::default();
        (1..=1_000).for_each(|micros| histogram.add(micros));
        for (percent, exact) in [(50, 500), (95, 950), (99, 990), (100, 1_000)] {
            let told = histogram.percentile(percent);
            assert!(told >= exact && told <= exact + exact / 8, "{percent}: {told}");
        }
        assert_eq!((histogram.count_within(8), histogram.count_within(40)), (255, 1_000));
    }
}
