//! How long requests take: histograms of the last minute and since the start, as operators read them.
//!
//! A bucket is an eighth of a doubling, so a figure is at most 13 % above the truth; there are as many as take any time
//! up to two minutes, and memory is fixed. The minute is six slots of ten seconds, the oldest of which is emptied when
//! its turn comes again, so a figure covers 50 to 60 seconds. Riak has figures of the minute for gets and puts alone.

use base::Monotonic;
use std::time::Duration;

/// Slots of the minute.
const SLOTS: usize = 6;

/// How long each lasts.
const SLOT: Duration = Duration::from_secs(10);

/// Parts of a doubling.
const PARTS: u32 = 8;

/// The part of a doubling at which its lower half ends: 11/8, the edge that is nearest to a square root of two.
const HALF: u32 = 3;

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

    /// Checks relations that hold between two times.
    fn invariants(&self) {
        assert!(self.count > 0 || self.sum == 0, "a sum is of times");
        assert!(self.max <= self.sum, "the longest is one of the times");
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

    /// Two counts for each doubling from `2^first` to `2^last` microseconds, each with its upper edge in microseconds.
    /// A count is of the times above the edge before. Times above the last edge are left out.
    pub fn halves(&self, first: u32, last: u32) -> impl Iterator<Item = (u64, u64)> {
        assert!(first <= last && last <= DOUBLINGS, "the counts end at 2^{DOUBLINGS} microseconds");
        let ends = (first..last).flat_map(|doubling| [PARTS * doubling, PARTS * doubling + HALF]);
        let ends = ends.chain([PARTS * last]).map(|end| end as usize);
        ends.scan(0, |begin, end| {
            let count = self.counts[*begin..end].iter().sum();
            *begin = end;
            Some((lower_bound(end), count))
        })
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

fn lower_bound(bucket: usize) -> u64 {
    bucket.checked_sub(1).map_or(0, upper_bound)
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
        let micros = micros_between(begun, now);
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

    /// Checks relations that hold after each input.
    fn invariants(&self) {
        self.all.invariants();
        let in_slots: u64 = self.slots.iter().map(Histogram::count).sum();
        assert!(in_slots <= self.all.count(), "the times of a minute are among all");
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

/// The operations of clients whose times are counted since the start alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    /// A delete.
    Delete,
    /// An index query, to its first answer.
    Index,
    /// A read of a consistent type.
    ConsistentGet,
    /// A write or a delete of a consistent type.
    ConsistentPut,
}

/// Times of requests of clients, from when they are begun to their replies.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    gets: Times,
    puts: Times,
    deletes: Histogram,
    indexes: Histogram,
    consistent_gets: Histogram,
    consistent_puts: Histogram,
}

/// The same, as they were read.
#[derive(Clone, Debug, Default)]
pub struct LatencyRead {
    /// Gets.
    pub gets: TimesRead,
    /// Puts.
    pub puts: TimesRead,
    /// Deletes, since the start.
    pub deletes: Histogram,
    /// Index queries, since the start, each to its first answer.
    pub indexes: Histogram,
    /// Reads of consistent types, since the start.
    pub consistent_gets: Histogram,
    /// Writes and deletes of consistent types, since the start.
    pub consistent_puts: Histogram,
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

    /// Counts another operation.
    pub fn add(&mut self, timed: Timed, begun: Monotonic, now: Monotonic) {
        let times = match timed {
            Timed::Delete => &mut self.deletes,
            Timed::Index => &mut self.indexes,
            Timed::ConsistentGet => &mut self.consistent_gets,
            Timed::ConsistentPut => &mut self.consistent_puts,
        };
        times.add(micros_between(begun, now));
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self) {
        [&self.gets, &self.puts].into_iter().for_each(Times::invariants);
        let others = [&self.deletes, &self.indexes, &self.consistent_gets, &self.consistent_puts];
        others.into_iter().for_each(Histogram::invariants);
    }

    /// All of them.
    pub fn read(&mut self, now: Monotonic) -> LatencyRead {
        LatencyRead {
            gets: self.gets.read(now),
            puts: self.puts.read(now),
            deletes: self.deletes.clone(),
            indexes: self.indexes.clone(),
            consistent_gets: self.consistent_gets.clone(),
            consistent_puts: self.consistent_puts.clone(),
        }
    }
}

impl LatencyRead {
    /// Adds those of another shard.
    pub fn join(&mut self, other: &LatencyRead) {
        self.gets.join(&other.gets);
        self.puts.join(&other.puts);
        self.deletes.join(&other.deletes);
        self.indexes.join(&other.indexes);
        self.consistent_gets.join(&other.consistent_gets);
        self.consistent_puts.join(&other.consistent_puts);
    }
}

fn micros_between(begun: Monotonic, now: Monotonic) -> u64 {
    u64::try_from(now.since(begun).as_micros()).unwrap_or(u64::MAX >> 8)
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
    }

    #[test]
    fn halves_of_doublings_add_up() {
        let mut histogram = Histogram::default();
        (1..=1_000).for_each(|micros| histogram.add(micros));
        let halves: Vec<(u64, u64)> = histogram.halves(6, 10).collect();
        let edges = [64, 88, 128, 176, 256, 352, 512, 704, 1_024];
        assert_eq!(halves.iter().map(|(edge, _)| *edge).collect::<Vec<_>>(), edges);
        let mut within = 0;
        for (edge, count) in halves {
            within += count;
            assert_eq!(within, (edge - 1).min(1_000), "below {edge}");
        }
        let all: u64 = histogram.halves(0, DOUBLINGS).map(|(_, count)| count).sum();
        assert_eq!(all, 1_000);
    }

    #[test]
    fn each_operation_has_its_times() {
        let mut latency = Latency::default();
        for timed in [Timed::Delete, Timed::Index, Timed::ConsistentGet, Timed::ConsistentPut] {
            latency.add(timed, at(0), at(1));
        }
        let mut read = latency.read(at(1));
        read.join(&latency.read(at(1)));
        for times in [&read.deletes, &read.indexes, &read.consistent_gets, &read.consistent_puts] {
            assert_eq!((times.count(), times.sum()), (2, 2_000_000));
        }
        assert_eq!(read.gets.all.count(), 0);
    }
}
