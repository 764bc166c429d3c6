//! The world's one queue of events, in virtual time.
//!
//! Events of the same instant come in an order drawn from the seed: what a real machine leaves open is open
//! here too, and still replays.

use crate::clock::SimTime;
use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use std::collections::BTreeMap;
use std::time::Duration;

/// The name of a scheduled event, to cancel it by: when it is due, the draw that orders its instant, and its
/// number, which makes it unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId {
    due: Monotonic,
    draw: u64,
    number: u64,
}

/// A queue of events that moves the time on as they are taken.
#[derive(Debug)]
pub struct Scheduler<E> {
    time: SimTime,
    rng: SplitMix64,
    scheduled: u64,
    events: BTreeMap<EventId, E>,
}

impl<E> Scheduler<E> {
    /// An empty queue that moves `time`.
    pub fn new(time: SimTime, rng: SplitMix64) -> Scheduler<E> {
        Scheduler { time, rng, scheduled: 0, events: BTreeMap::new() }
    }

    /// The true time.
    pub fn now(&self) -> Monotonic {
        self.time.now()
    }

    /// Schedules `event` at `due`, or now if that is past.
    pub fn at(&mut self, due: Monotonic, event: E) -> EventId {
        self.scheduled += 1;
        let id = EventId { due: due.max(self.now()), draw: self.rng.next_u64(), number: self.scheduled };
        self.events.insert(id, event);
        id
    }

    /// Schedules `event` in `delay`.
    pub fn after(&mut self, delay: Duration, event: E) -> EventId {
        self.at(self.now() + delay, event)
    }

    /// Takes back an event that has not come yet.
    pub fn cancel(&mut self, id: EventId) -> Option<E> {
        self.events.remove(&id)
    }

    /// Takes back every event for which `keep` is false: those of a node that has died.
    pub fn retain(&mut self, mut keep: impl FnMut(&E) -> bool) {
        self.events.retain(|_, event| keep(event));
    }

    /// The next event. The time is now its time.
    pub fn pop(&mut self) -> Option<E> {
        let (id, event) = self.events.pop_first()?;
        self.time.advance(id.due);
        Some(event)
    }

    /// How many events are to come.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// True when nothing is to come.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    fn scheduler(seed: u64) -> Scheduler<u32> {
        Scheduler::new(SimTime::default(), Seed(seed).stream("scheduler", 0))
    }

    fn drain(scheduler: &mut Scheduler<u32>) -> Vec<u32> {
        std::iter::from_fn(|| scheduler.pop()).collect()
    }

    #[test]
    fn time_orders_and_moves_on() {
        let mut scheduler = scheduler(1);
        scheduler.after(Duration::from_nanos(20), 2);
        let cancelled = scheduler.after(Duration::from_nanos(15), 9);
        scheduler.after(Duration::from_nanos(10), 1);
        assert_eq!(scheduler.cancel(cancelled), Some(9));
        assert_eq!((scheduler.pop(), scheduler.now()), (Some(1), Monotonic(10)));
        scheduler.at(Monotonic(3), 7);
        assert_eq!((scheduler.pop(), scheduler.now()), (Some(7), Monotonic(10)), "the past is now");
        assert_eq!((scheduler.pop(), scheduler.now()), (Some(2), Monotonic(20)));
        assert!(scheduler.is_empty());
    }

    #[test]
    fn the_seed_orders_an_instant() {
        let order = |seed| {
            let mut scheduler = scheduler(seed);
            (0..20).for_each(|n| {
                scheduler.at(Monotonic(5), n);
            });
            drain(&mut scheduler)
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert_ne!(order(1), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn the_dead_get_no_events() {
        let mut scheduler = scheduler(1);
        (0..6).for_each(|n| {
            scheduler.at(Monotonic(u64::from(n)), n);
        });
        scheduler.retain(|n| n % 2 == 0);
        assert_eq!(drain(&mut scheduler), [0, 2, 4]);
    }
}
