//! The versions of several stores in one row: what a shard, which waits for one number, is told of them.
//!
//! Each store numbers its versions itself. Here each write gets the next number of the row, and until its store has
//! acknowledged it the two numbers are kept side by side. So a version may be acknowledged once all before it may, of
//! whichever store.
//!
//! Invariant: in a store's list both numbers ascend.

use engine::{Error, Found, Seq};
use std::collections::VecDeque;

/// The numbers of a list of stores.
pub struct Numbers {
    last: Seq,
    /// Of each store: its own number of a write that was not acknowledged when it was last looked at, and the row's.
    waiting: Vec<VecDeque<(Seq, Seq)>>,
}

impl Numbers {
    /// Of so many stores that were just opened.
    pub fn new(stores: usize) -> Numbers {
        Numbers { last: Seq(0), waiting: vec![VecDeque::new(); stores] }
    }

    /// The number of the last write.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// The number of a write that these stores have taken, each by a number of its own.
    pub fn take(&mut self, taken: impl IntoIterator<Item = (usize, Seq)>) -> Seq {
        self.last = Seq(self.last.0 + 1);
        for (store, own) in taken {
            let waiting = &mut self.waiting[store];
            debug_assert!(waiting.back().is_none_or(|(last, _)| *last < own), "a store's numbers ascend");
            waiting.push_back((own, self.last));
        }
        self.last
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self) {
        for (first, last) in self.waiting.iter().filter_map(|waiting| waiting.front().zip(waiting.back())) {
            assert!(first <= last, "in a store's list both numbers ascend");
            assert!(last.1 <= self.last, "a write has a number of the row");
        }
    }

    /// A store has acknowledged its own versions up to this one.
    pub fn acknowledge(&mut self, store: usize, own: Seq) {
        while self.waiting[store].pop_front_if(|(waiting, _)| *waiting <= own).is_some() {}
    }

    /// Up to where all may be acknowledged, where each store has acknowledged its own up to what `own` says.
    pub fn acknowledged(&self, own: impl Fn(usize) -> Seq) -> Seq {
        let first = |(store, waiting): (usize, &VecDeque<(Seq, Seq)>)| {
            let own = own(store);
            waiting.iter().find(|(number, _)| *number > own).map(|(_, number)| Seq(number.0 - 1))
        };
        self.waiting.iter().enumerate().filter_map(first).min().unwrap_or(self.last)
    }

    /// A version that a store has found, with the number that it has here.
    pub fn found(
        &self,
        store: usize,
        found: Result<Option<Found>, Error>,
        acknowledged: Seq,
    ) -> Result<Option<Found>, Error> {
        Ok(found?.map(|found| Found { seq: self.of(store, found.seq, acknowledged), ..found }))
    }

    /// The number of a version that a store has by its own, where it has acknowledged its own up to `acknowledged`; 0
    /// if that is among them.
    pub fn of(&self, store: usize, own: Seq, acknowledged: Seq) -> Seq {
        if own <= acknowledged {
            return Seq(0);
        }
        // A store may number the parts of a batch: the number of its last is the write's.
        let waiting = &self.waiting[store];
        let at = waiting.partition_point(|(number, _)| *number < own);
        waiting.get(at).map_or(self.last, |(_, number)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_a_write_that_waits_waits_for_it() {
        let mut numbers = Numbers::new(2);
        // The first store numbers its own in tens, as if each batch had ten parts.
        assert_eq!(numbers.take([(0, Seq(10))]), Seq(1));
        assert_eq!(numbers.take([(1, Seq(1))]), Seq(2));
        assert_eq!(numbers.take([(0, Seq(20)), (1, Seq(2))]), Seq(3));
        let acknowledged = |numbers: &Numbers, own: [u64; 2]| numbers.acknowledged(|store| Seq(own[store])).0;
        assert_eq!(acknowledged(&numbers, [0, 0]), 0);
        assert_eq!(acknowledged(&numbers, [0, 2]), 0, "the first waits");
        assert_eq!(acknowledged(&numbers, [10, 0]), 1);
        assert_eq!(acknowledged(&numbers, [10, 1]), 2);
        assert_eq!(acknowledged(&numbers, [20, 1]), 2);
        assert_eq!(acknowledged(&numbers, [20, 2]), 3);
        numbers.acknowledge(1, Seq(1));
        numbers.acknowledge(0, Seq(10));
        assert_eq!(acknowledged(&numbers, [10, 1]), 2, "the same of what was forgotten");
        assert_eq!(numbers.of(0, Seq(10), Seq(10)), Seq(0));
        assert_eq!(numbers.of(0, Seq(11), Seq(10)), Seq(3), "a part of a batch");
        assert_eq!(numbers.of(1, Seq(2), Seq(1)), Seq(3));
        numbers.acknowledge(0, Seq(20));
        numbers.acknowledge(1, Seq(2));
        assert_eq!((acknowledged(&numbers, [20, 2]), numbers.last()), (3, Seq(3)));
    }
}
