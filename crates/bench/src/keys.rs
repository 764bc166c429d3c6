//! Which key comes next: the distributions.
//!
//! A distribution draws numbers; [`crate::names`] makes keys of them. Where draws depend on what a worker has written
//! itself ([`Shape::Latest`], [`Shape::Present`], [`Shape::Own`], [`Shape::OwnOldest`]) it looks at the worker's
//! [`Inserted`].
//!
//! The seeds' own: `pareto` is basho_bench's `pareto_int` (Lomax, shape 1.5, mean a fifth of the count; 2.7 % of draws
//! are beyond the count, unless truncated), `eighty-twenty` its `eightytwenty_int`. Zipf is drawn by
//! rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone discrete
//! distributions", 1996), and scrambled by a hash as in YCSB.

use crate::rng::{Rng, mix};
use std::sync::Arc;

/// A distribution, as a workload describes it.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// One after the other, each worker in its own part; the worker stops at the end.
    Sequential {
        /// The first.
        start: u64,
        /// How many.
        count: u64,
    },
    /// Each as likely.
    Uniform {
        /// How many.
        count: u64,
    },
    /// By rank: the i-th most wanted is asked for in proportion to 1 / i^theta.
    Zipf {
        /// How many.
        count: u64,
        /// The skew, between 0 and 1.
        theta: f64,
        /// Whether the most wanted are spread over all keys by a hash, or are the first ones.
        scrambled: bool,
    },
    /// Zipf by age: the worker's newest insert is the most wanted.
    Latest {
        /// The skew.
        theta: f64,
    },
    /// A share of the operations goes to a share of the keys, the first ones.
    Hotspot {
        /// How many.
        count: u64,
        /// The share of keys that is hot.
        hot_keys: f64,
        /// The share of draws that goes there.
        hot_draws: f64,
    },
    /// Lomax with shape 1.5 and mean 0.2 of the count.
    Pareto {
        /// How many.
        count: u64,
        /// Whether what falls beyond the count is drawn again.
        truncated: bool,
    },
    /// Lines of a file.
    File {
        /// The lines.
        lines: Arc<Vec<Vec<u8>>>,
        /// In their order, each worker its own part, over and over; or each as likely.
        in_order: bool,
    },
    /// Keys that must be there: those that were loaded before, and those that this worker has inserted in sequence.
    /// 80 % of draws go to a fifth of them.
    Present {
        /// Keys from 0 up to here were loaded before.
        loaded: u64,
    },
    /// A key that nobody has used.
    Unique,
    /// One of the worker's unique ones that is there.
    Own,
    /// The oldest of the worker's unique ones, which is to be deleted.
    OwnOldest,
}

/// What a worker has inserted itself, in sequence and by unique keys.
#[derive(Clone, Debug, Default)]
pub struct Inserted {
    /// Its sequential keys: the first, and one past the last that was acknowledged with all before it.
    pub sequence: Progress,
    /// The same of its unique keys.
    pub unique: Progress,
    /// Unique keys before it have been deleted, or will be.
    pub deleted: u64,
}

/// How far a sequence has come whose members are acknowledged in any order.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The first member.
    pub first: u64,
    /// One past the last member that was acknowledged with all before it.
    pub done: u64,
    /// Acknowledged members beyond it: at most as many as operations are outstanding, and those after a failed one.
    beyond: std::collections::BTreeSet<u64>,
}

/// Members that may be acknowledged beyond one that never was, before that one is given up.
const BEYOND_MAX: usize = 10_000;

impl Progress {
    /// A sequence that begins at `first`.
    pub fn starting(first: u64) -> Progress {
        Progress { first, done: first, beyond: Default::default() }
    }

    /// A member was acknowledged.
    pub fn acknowledge(&mut self, member: u64) {
        if member < self.done {
            return;
        }
        self.beyond.insert(member);
        while self.beyond.remove(&self.done) {
            self.done += 1;
        }
        // A write that failed leaves a hole, and who reads what must be there stays below it; but memory is bounded.
        if self.beyond.len() > BEYOND_MAX {
            self.beyond.clear();
        }
    }

    fn len(&self) -> u64 {
        self.done - self.first
    }
}

/// A distribution at work, in one worker.
#[derive(Clone, Debug)]
pub struct Keys {
    shape: Shape,
    zipf: Option<Zipf>,
    /// The next of a sequence and its end.
    next: u64,
    end: u64,
}

/// Unique keys begin here, above all that a distribution draws: the worker in the bits from 40 on, then a counter.
pub const UNIQUE_FROM: u64 = 1 << 52;

/// The first unique key of a worker.
pub fn unique_first(worker: u32) -> u64 {
    UNIQUE_FROM | u64::from(worker) << 36
}

/// The worker and the counter of a unique key.
pub fn unique_parts(id: u64) -> Option<(u32, u64)> {
    (id >= UNIQUE_FROM).then_some((((id & (UNIQUE_FROM - 1)) >> 36) as u32, id & ((1 << 36) - 1)))
}

impl Keys {
    /// The part of `worker` out of `workers`.
    pub fn new(shape: Shape, worker: u32, workers: u32) -> Keys {
        let (worker, workers) = (u64::from(worker), u64::from(workers));
        let part = |start: u64, count: u64| {
            let cut =
                |worker: u64| start + (u128::from(count) * u128::from(worker) / u128::from(workers)) as u64;
            (cut(worker), cut(worker + 1))
        };
        let (next, end) = match &shape {
            Shape::Sequential { start, count } => part(*start, *count),
            Shape::File { lines, in_order: true } => part(0, lines.len() as u64),
            _ => (0, 0),
        };
        let zipf = match shape {
            Shape::Zipf { count, theta, .. } => Some(Zipf::new(count, theta)),
            Shape::Latest { theta } => Some(Zipf::new(1, theta)),
            _ => None,
        };
        Keys { shape, zipf, next, end }
    }

    /// Goes on where an earlier run had come to: `next` is the first key of a sequence that it had not done.
    pub fn resume(&mut self, next: u64) {
        self.next = next.clamp(self.next, self.end);
    }

    /// Where a sequence stands.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// The next key; `None` when a sequence has ended, or nothing has been inserted that could be asked for.
    pub fn draw(&mut self, rng: &mut Rng, inserted: &Inserted) -> Option<u64> {
        match self.shape {
            Shape::Sequential { .. } => {
                let next = self.next;
                self.next += 1;
                (next < self.end).then_some(next)
            }
            Shape::Uniform { count } => Some(rng.below(count)),
            Shape::Zipf { count, scrambled, .. } => {
                let rank = self.zipf.as_ref()?.draw(rng);
                Some(if scrambled { mix(rank) % count } else { rank })
            }
            Shape::Latest { .. } => {
                let len = inserted.sequence.len();
                let zipf = self.zipf.as_mut().filter(|_| len > 0)?;
                zipf.set_count(len);
                Some(inserted.sequence.done - 1 - zipf.draw(rng).min(len - 1))
            }
            Shape::Hotspot { count, hot_keys, hot_draws } => Some(hotspot(rng, count, hot_keys, hot_draws)),
            Shape::Pareto { count, truncated } => loop {
                let key = pareto(rng.unit(), count);
                if !truncated || key < count {
                    break Some(key);
                }
            },
            Shape::File { ref lines, in_order } => {
                if !in_order {
                    return Some(rng.below(lines.len() as u64));
                }
                if self.next == self.end {
                    (self.next, self.end) = (0, lines.len() as u64);
                }
                self.next += 1;
                Some(self.next - 1)
            }
            Shape::Present { loaded } => {
                let count = loaded + inserted.sequence.len();
                let drawn = (count > 0).then(|| hotspot(rng, count, 0.2, 0.8))?;
                Some(if drawn < loaded { drawn } else { inserted.sequence.first + (drawn - loaded) })
            }
            Shape::Unique => {
                self.next += 1;
                Some(inserted.unique.first + self.next - 1)
            }
            Shape::Own | Shape::OwnOldest => {
                let from = inserted.deleted.max(inserted.unique.first);
                let count = inserted.unique.done.saturating_sub(from);
                let at = if self.shape == Shape::OwnOldest { 0 } else { rng.below(count.max(1)) };
                (count > 0).then_some(from + at)
            }
        }
    }
}

/// The key of a uniform number in (0, 1]: the floor of a Lomax variate of shape 1.5 and scale 0.1 count, whose mean is
/// a fifth of the count. Not above what other spaces of keys begin with.
pub fn pareto(unit: f64, count: u64) -> u64 {
    let drawn = (unit.powf(-1.0 / 1.5) - 1.0) * 0.1 * count as f64;
    (drawn as u64).min(UNIQUE_FROM - 1)
}

fn hotspot(rng: &mut Rng, count: u64, hot_keys: f64, hot_draws: f64) -> u64 {
    let hot = ((count as f64 * hot_keys) as u64).min(count);
    if hot == count || (hot > 0 && rng.unit() <= hot_draws) {
        return rng.below(hot);
    }
    hot + rng.below(count - hot)
}

/// Zipf's distribution over ranks from 0, by rejection-inversion: exact, in constant time and without tables, so the
/// count may grow. A uniform number is inverted through the integral of x^-theta, and rejected where that lies above
/// the steps.
#[derive(Clone, Debug)]
struct Zipf {
    count: f64,
    theta: f64,
    low: f64,
    high: f64,
    /// Draws this near below a rank need no second look.
    sure: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Zipf {
        let mut zipf = Zipf { count: 1.0, theta, low: 0.0, high: 0.0, sure: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - 2f64.powf(-theta));
        zipf.set_count(count);
        zipf
    }

    fn set_count(&mut self, count: u64) {
        self.count = count as f64;
        self.high = self.integral(self.count + 0.5);
    }

    fn integral(&self, x: f64) -> f64 {
        (x.powf(1.0 - self.theta) - 1.0) / (1.0 - self.theta)
    }

    fn inverse(&self, y: f64) -> f64 {
        (1.0 + y * (1.0 - self.theta)).powf(1.0 / (1.0 - self.theta))
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let drawn = self.high + rng.unit() * (self.low - self.high);
            let x = self.inverse(drawn);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.sure || drawn >= self.integral(rank + 0.5) - rank.powf(-self.theta) {
                return rank as u64 - 1;
            }
        }
    }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
